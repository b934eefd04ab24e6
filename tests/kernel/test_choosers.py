"""Choosers: who goes next on a simulated loop."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import find, given, settings

from kernel.testing import Exhaustive, Priorities, Seeded, SimulationError, Tape, fifo, simulate, tapes


async def talkers(names: str) -> str:
    """What these tasks say, each twice."""
    said: list[str] = []

    async def talk(name: str) -> None:
        for _ in range(2):
            said.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(talk(name) for name in names))
    return "".join(said)


def three_talkers() -> Any:
    """Three of them."""
    return talkers("abc")


PLAIN = simulate(three_talkers())


@pytest.mark.parametrize("choose", [fifo, Tape([]), Tape([0, 0, 0])])
def test_first_in_first_out_is_what_asyncio_does(choose: Any) -> None:
    """Whoever answers nothing but 0 has asyncio's own order."""
    assert asyncio.run(three_talkers()) == PLAIN
    assert simulate(three_talkers(), choose=choose) == PLAIN


@pytest.mark.parametrize("kind", [Seeded, Priorities])
def test_a_seed_is_an_order(kind: Callable[[int], Any]) -> None:
    """The same seed gives the same order, and other seeds give others."""
    orders = [simulate(three_talkers(), choose=kind(seed)) for seed in range(30)]
    assert orders == [simulate(three_talkers(), choose=kind(seed)) for seed in range(30)]
    assert len(set(orders)) > 5


def test_without_changes_the_highest_rank_runs_until_it_waits() -> None:
    """Between its changes a priority order interrupts nobody."""
    orders = {simulate(three_talkers(), choose=Priorities(seed, changes=0)) for seed in range(50)}
    assert orders == {"aabbcc", "aaccbb", "bbaacc", "bbccaa", "ccaabb", "ccbbaa"}


def test_one_change_of_rank_interrupts_one_task_once() -> None:
    """With one change, one task is put back behind the others once, and no order has two interruptions."""
    orders = {simulate(three_talkers(), choose=Priorities(seed, changes=1, steps=8)) for seed in range(200)}
    interrupted = {order for order in orders if any(order.find(name) + 1 != order.rfind(name) for name in "abc")}
    assert interrupted
    assert all(sum(order.find(name) + 1 != order.rfind(name) for name in "abc") == 1 for order in interrupted)


def test_who_falls_later_falls_lower() -> None:
    """Of two tasks that lost their rank, the one that lost it first goes first."""
    owners: list[Any] = ["a", "b", "c"]
    choose = Priorities(0, changes=50, steps=2)  # so many that both choices have one
    second, last = owners[choose.among(owners)], owners[choose.among(owners)]
    (first,) = {*owners} - {second, last}
    assert owners[choose.among(owners)] == last
    assert [choose.among([second, first]), choose.among([first, second])] == [1, 0]


def test_a_tape_is_read_number_by_number() -> None:
    """Each number is taken modulo what there is to choose from; after the last one, 0."""
    choose = Tape([5, 6, 7])
    assert [choose(count) for count in (2, 4, 5, 9)] == [1, 2, 2, 0]


@settings(max_examples=50, derandomize=True, database=None)
@given(tape=tapes())
def test_any_tape_is_an_order(tape: list[int]) -> None:
    """Whatever was drawn, everything is said, and each task says its own in order."""
    assert sorted(simulate(three_talkers(), choose=Tape(tape))) == list("aabbcc")


def test_shrinking_a_tape_ends_near_the_plain_order() -> None:
    """Hypothesis finds the shortest tape for an order in which c begins: one number."""
    tape = find(
        tapes(), lambda tape: simulate(three_talkers(), choose=Tape(tape)).startswith("c"),
        settings=settings(derandomize=True, database=None, max_examples=2_000),
    )  # fmt: skip
    assert len([number for number in tape if number]) == 1


def test_hypothesis_is_not_needed() -> None:
    """`kernel.testing` can be imported without Hypothesis, and `tapes` says what it needs."""
    program = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from kernel.testing import tapes\n"
        "try: tapes()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "tapes() needs Hypothesis: pip install hypothesis\n"


class TestExhaustive:
    def test_all_orders_are_there(self) -> None:
        """Of two tasks that speak twice there are 4!/(2!·2!) = 6 orders, and it finds each of them."""
        search = Exhaustive()
        orders = {simulate(talkers("ab"), choose=choose) for choose in search}
        assert orders == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}
        assert search.exhausted

    def test_no_sequence_of_answers_comes_twice(self) -> None:
        """Each schedule is another one; when what is asked depends on the answers, too."""
        seen = []
        for choose in Exhaustive():
            first = choose(3)
            seen.append((first, *(choose(2) for _ in range(first))))
        assert sorted(seen) == [(0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1)]
        assert len(set(seen)) == len(seen)

    def test_a_bound_on_deviations(self) -> None:
        """Of ten choices between two there are 1 + 10 + 45 sequences with at most two that differ."""
        search = Exhaustive(deviations=2)
        seen = [tuple(choose(2) for _ in range(10)) for choose in search]
        assert len(set(seen)) == len(seen) == search.schedules == 56
        assert max(map(sum, seen)) == 2
        assert search.exhausted

    @pytest.mark.parametrize(("limit", "exhausted"), [(89, False), (90, True), (91, True)])
    def test_it_says_whether_it_came_to_the_end(self, limit: int, exhausted: bool) -> None:
        """Within its limit it is exhausted; one short of the end it is not."""
        search = Exhaustive(limit)
        seen = [(choose(9), choose(10)) for choose in search]
        assert len(seen) == min(limit, 90)
        assert search.exhausted is exhausted

    def test_what_does_not_do_the_same_again_is_found_out(self) -> None:
        """Where the number of choices differs from the last time, it says that the scenario is to blame."""

        def search() -> None:
            for count, choose in enumerate(Exhaustive(), start=2):
                choose(count)

        with pytest.raises(SimulationError, match="choice 0 was among 2 and is among 3 now"):
            search()

    def test_no_schedules_make_no_sense(self) -> None:
        """A limit below 1 is refused."""
        with pytest.raises(ValueError, match="limit must be at least 1, not 0"):
            Exhaustive(0)
