"""The store: one owner for each session, keys, cursors, and what is forgotten."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.engines import EngineError, EventsGoneError
from kernel.engines.hosting import Batch
from kernel.engines.port import Answer
from kernel.engines.sqlite.store import ORDERS_KEPT, Claimed, Store

LONG = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store that keeps three events."""
    made = Store(tmp_path / "s.db", 3)
    yield made
    made.close()


def batch(
    inputs: str = "i\n", *, events: int = 0, done: int | None = None, base: str | None = None, idle: bool = False
) -> Batch:
    outcomes = () if done is None else ((done, "taken", None, None),)
    return Batch(inputs, tuple(f"e{n}" for n in range(events)), outcomes, base, idle)


def owned(store: Store, worker: str, session: str = "s") -> Claimed:
    store.renew(worker, LONG)
    store.submit(session, "order", None)
    (claimed,) = store.claim(worker, 9)
    return claimed


class TestOwning:
    def test_a_session_has_one_owner(self, store: Store):
        """What one worker has claimed no other one gets, while its lease lasts."""
        owned(store, "a")
        store.renew("b", LONG)

        assert store.claim("b", 9) == []

    def test_a_lease_that_is_over_frees_all_its_sessions(self, store: Store):
        """The next worker gets them, with a higher epoch."""
        first = owned(store, "a")
        store.renew("a", -1)
        store.renew("b", LONG)

        assert store.claim("b", 9) == [Claimed("s", first.epoch + 1)]

    def test_who_has_lost_a_session_stores_nothing(self, store: Store):
        """A worker that stood still is told so, and the log has only what the new owner stored."""
        first = owned(store, "a")
        store.append("a", [(first, batch("before\n", base="base"))])
        store.renew("a", -1)
        store.renew("b", LONG)
        (second,) = store.claim("b", 9)

        assert store.append("a", [(first, batch("stale\n", events=2, done=1))]) == [first]
        assert store.append("b", [(second, batch("fresh\n"))]) == []
        kept, row = store.load("s")
        assert kept is not None
        assert (kept.batches, row.position, store.answer("s", 1)) == (("before\n", "fresh\n"), 0, Answer("waiting"))

    def test_one_that_was_lost_does_not_take_the_others_with_it(self, store: Store):
        """All that a worker stores goes in one transaction, but for the sessions that it has lost."""
        lost, kept = owned(store, "a", "lost"), owned(store, "a", "kept")
        store.release("a", [lost])

        assert store.append("a", [(lost, batch()), (kept, batch("mine\n", base="base"))]) == [lost]
        assert store.load("kept")[0].batches == ("mine\n",)  # type: ignore[union-attr]

    def test_what_rests_is_not_claimed(self, store: Store):
        """A session with nothing to do has no owner to fear for; the next order wakes it."""
        claimed = owned(store, "a")
        store.append("a", [(claimed, batch(done=1, base="base", idle=True))])
        store.release("a", [claimed])
        store.renew("b", LONG)

        assert store.claim("b", 9) == []
        store.submit("s", "more", None)
        assert [each.session for each in store.claim("b", 9)] == ["s"]

    def test_an_order_that_came_meanwhile_keeps_it_awake(self, store: Store):
        """A worker that says it is done is not, when an order it has not seen is there."""
        claimed = owned(store, "a")
        store.submit("s", "late", None)
        store.append("a", [(claimed, batch(done=1, base="base", idle=True))])

        assert [(sid, number) for sid, number, _ in store.orders("a")] == [("s", 2)]

    def test_who_leaves_owns_nothing(self, store: Store):
        """Whatever it had claimed, it is free for the next one at once."""
        for session in "ab":
            owned(store, "a", session)
        store.leave("a")
        store.renew("b", LONG)

        assert {claimed.session for claimed in store.claim("b", 9)} == {"a", "b"}

    def test_no_more_are_claimed_than_asked_for_and_none_of_those_that_were_refused(self, store: Store):
        """The limit and the exceptions hold."""
        for session in "abc":
            store.submit(session, "order", None)
        store.renew("w", LONG)

        assert len(store.claim("w", 1, ["a"])) == 1
        assert [claimed.session for claimed in store.claim("w", 9, ["a"])] == ["c"]


class TestOrders:
    def test_a_key_is_one_order(self, store: Store):
        """The same key gives the same number, in each session for itself."""
        assert [store.submit("s", "order", "k") for _ in range(3)] == [1, 1, 1]
        assert store.submit("t", "order", "k") == 1
        assert store.submit("s", "order", None) == 2

    def test_a_key_with_another_order_is_refused(self, store: Store):
        """And nothing is stored."""
        store.submit("s", "order", "k")

        with pytest.raises(EngineError, match="session s: the key 'k' was used for another order"):
            store.submit("s", "another", "k")
        assert store.submit("s", "next", None) == 2

    def test_an_order_that_never_was_has_no_answer(self, store: Store):
        """The sentence names it."""
        with pytest.raises(EngineError, match="session s has no order 7"):
            store.answer("s", 7)

    def test_done_orders_are_forgotten_some_day_and_waiting_ones_never(self, store: Store):
        """The newest are kept, so a key is known for a while; one that waits is kept however old it is."""
        claimed = owned(store, "a")
        for _ in range(ORDERS_KEPT + 5):
            store.submit("s", "order", None)
        done = batch(base="base", idle=True)
        outcomes = tuple((number, "taken", None, None) for number in range(2, ORDERS_KEPT + 7))
        store.append("a", [(claimed, Batch(done.inputs, (), outcomes, "base", True))])

        assert store.answer("s", 1).status == "waiting"
        with pytest.raises(EngineError, match="no order 3"):
            store.answer("s", 3)
        assert store.answer("s", ORDERS_KEPT + 6).status == "taken"


class TestEvents:
    def test_a_cursor_misses_nothing_and_doubles_nothing(self, store: Store):
        """Positions count from 1 without a gap, over all batches."""
        claimed = owned(store, "a")
        store.append("a", [(claimed, batch(events=2, base="base"))])
        store.append("a", [(claimed, batch(events=1))])

        assert [position for position, _ in store.events("s", 0)] == [1, 2, 3]
        assert [position for position, _ in store.events("s", 2)] == [3]
        assert store.events("s", 3) == []

    def test_events_that_are_gone_are_said_to_be(self, store: Store):
        """A reader that comes too late is told where it can go on."""
        claimed = owned(store, "a")
        store.append("a", [(claimed, batch(events=5, base="base", idle=True))])

        with pytest.raises(EventsGoneError, match="the first that is has the position 3") as refused:
            store.events("s", 0)
        assert refused.value.first == 3
        assert [position for position, _ in store.events("s", 2)] == [3, 4, 5]


class TestForgetting:
    def test_a_base_replaces_the_log_before_it(self, store: Store):
        """What is replayed when a session is opened is what came after the newest base."""
        claimed = owned(store, "a")
        store.append("a", [(claimed, batch("one\n", base="first"))])
        store.append("a", [(claimed, batch("", base="second"))])
        store.append("a", [(claimed, batch("two\n"))])
        kept, _ = store.load("s")

        assert kept is not None
        assert (kept.base, kept.batches) == ("second", ("two\n",))

    def test_a_session_is_deleted_only_at_rest(self, store: Store):
        """One that has something to do stays; one that rests is gone with all its rows."""
        claimed = owned(store, "a")
        assert not store.delete("s")
        store.append("a", [(claimed, batch(done=1, events=1, base="base", idle=True))])

        assert store.delete("s")
        assert (store.sessions(), store.events("s", 0)) == ([], [])

    def test_a_session_that_never_was_is_said_so(self, store: Store):
        """With the file's name."""
        with pytest.raises(EngineError, match=r"there is no session ghost in .*s\.db"):
            store.load("ghost")
