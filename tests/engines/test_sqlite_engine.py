"""The embedded engine in one process: orders and their answers, cursors, pieces, and what it refuses."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, CustomMessage, Finished, ModelRequest, TextDelta, UserMessage
from kernel.engines import EngineError, Order, Told
from kernel.engines.sqlite import SqliteEngine
from kernel.engines.suite.plans import agent, plan, turn
from kernel.messages import Part, ToolCall
from kernel.testing import ScriptedModel
from tests.engines.memory import Room

HELLO = plan(turn("Hello ", "there."))


def run(play: Callable[[], Any]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(20):
            return await play()

    return asyncio.run(within())


@asynccontextmanager
async def served(path: Path, make: Callable[[str], Agent] | None = None, **settings: Any) -> AsyncIterator[SqliteEngine]:
    """An engine that is served in this process."""
    room = Room()
    room.gates.open("open")
    async with SqliteEngine(path / "s.db", **settings) as engine:
        serving = asyncio.create_task(engine.serve(make or (lambda session: agent(room))))
        try:
            yield engine
        finally:
            serving.cancel()
            await asyncio.wait({serving})


async def told_until(engine: SqliteEngine, session: str, kind: str, after: int = 0, **how: Any) -> list[Told]:
    found: list[Told] = []
    async for told in engine.events(session, after, **how):
        found.append(told)
        if told.event.type == kind:
            break
    return found


class TestOrders:
    @pytest.mark.parametrize(
        ("order", "code"),
        [
            (Order("continue"), "NOTHING_TO_CONTINUE"),
            (Order("compact"), "NOTHING_TO_COMPACT"),
            (Order("cancel"), None),
            (Order("reset"), None),
            (Order("clear_queues"), None),
            (Order("steer", "Hi"), None),
            (Order("follow_up", CustomMessage("note", {"n": 1})), None),
        ],
    )
    def test_each_has_its_answer(self, order: Order, code: str | None, tmp_path: Path):
        """What the agent refuses is the order's answer, with the code of the error; all else is taken."""

        async def play() -> tuple[str, str | None]:
            async with served(tmp_path) as engine:
                answer = await engine.answer("s", await engine.submit("s", order))
                return answer.status, answer.code

        assert run(play) == ("taken" if code is None else "refused", code)

    @pytest.mark.parametrize(
        ("kind", "more", "why"),
        [
            ("shout", {}, "must be one of prompt, steer"),
            ("prompt", {}, "of the kind prompt takes a message"),
            ("cancel", {"message": "Hi"}, "of the kind cancel takes no message"),
            ("prompt", {"message": 7}, "takes a message, not 7"),
            ("prompt", {"message": "Hi", "reason": "x"}, "takes no reason"),
            ("cancel", {"reason": 7}, "Order.reason must be str"),
        ],
    )
    def test_what_is_no_order_is_refused_where_it_is_made(self, kind: Any, more: dict[str, Any], why: str):
        """The sentence says what the kind takes."""
        with pytest.raises((TypeError, ValueError), match=why):
            Order(kind, **more)

    @pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 7])
    def test_names_are_held_to_what_can_be_shown(self, name: Any, tmp_path: Path):
        """Of sessions and of keys."""

        async def play() -> None:
            async with SqliteEngine(tmp_path / "s.db") as engine:
                with pytest.raises((TypeError, ValueError), match="session must"):
                    await engine.submit(name, Order("cancel"))
                with pytest.raises((TypeError, ValueError), match="key must"):
                    await engine.submit("s", Order("cancel"), key=name)

        run(play)

    def test_a_prompt_in_a_run_waits_and_a_cancel_does_not(self, tmp_path: Path):
        """Three prompts at once are three runs, in their order; the cancel reaches the first of them."""
        room = Room()

        async def play() -> tuple[list[str], list[str]]:
            async with served(tmp_path, lambda session: agent(room)) as engine:
                stuck = plan(turn("One.", calls=[("wait", {"gate": "never"})]))
                for text in (stuck, plan(turn("Two.")), plan(turn("Three."))):
                    await engine.submit("s", Order("prompt", text))
                while not room.ran():
                    await asyncio.sleep(0.005)
                await engine.submit("s", Order("cancel"))
                ends: list[str] = []
                async for told in engine.events("s"):
                    if told.event.type == "run.finished":
                        ends.append(told.event.result.status)  # type: ignore[attr-defined]
                        if len(ends) == 3:
                            break
                return ends, [m.text for m in (await engine.state("s")).messages if m.role == "assistant"]

        assert run(play) == (["cancelled", "completed", "completed"], ["One.", "Two.", "Three."])


class TestEvents:
    def test_a_reader_that_comes_back_misses_nothing_and_hears_nothing_twice(self, tmp_path: Path):
        """Whatever the place where it left: what it heard before and after is what one reader hears who stays."""

        async def play() -> None:
            async with served(tmp_path) as engine:
                await engine.submit("s", Order("prompt", HELLO))
                whole = await told_until(engine, "s", "run.finished")
                for place in range(len(whole)):
                    rest = await told_until(engine, "s", "run.finished", after=place)
                    assert [*whole[:place], *rest] == whole
                assert [told.position for told in whole] == list(range(1, len(whole) + 1))
                assert "message.updated" not in {told.event.type for told in whole}

        run(play)

    @pytest.mark.parametrize("elsewhere", [False, True])
    def test_pieces_are_told_to_those_who_listen_now(self, elsewhere: bool, tmp_path: Path):
        """In this process, and by the file beside the sessions to others; they have no position."""
        room = Room()

        async def play() -> list[str]:
            async with served(tmp_path, lambda session: agent(room)) as engine, SqliteEngine(tmp_path / "s.db") as other:
                await engine.submit("s", Order("prompt", plan(turn("one ", "@half", "two"))))
                reading = asyncio.create_task(
                    told_until(other if elsewhere else engine, "s", "run.finished", pieces=True)
                )
                await told_until(engine, "s", "turn.started")
                await asyncio.sleep(0.1)
                room.gates.open("half")
                return [t.event.delta for t in await reading if t.position is None]  # type: ignore[attr-defined]

        assert run(play) == ["one ", "two"]

    def test_who_does_not_want_pieces_gets_none(self, tmp_path: Path):
        """By default only what is stored is told."""

        async def play() -> list[Told]:
            async with served(tmp_path) as engine:
                await engine.submit("s", Order("prompt", HELLO))
                return await told_until(engine, "s", "run.finished")

        assert all(told.position is not None for told in run(play))


class TestServing:
    def test_between_runs_the_agents_own_configuration_is_taken_up(self, tmp_path: Path):
        """Served by another version of the agent, a session at rest goes on with what that one has."""
        prompts: list[str] = []

        class Model:
            async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
                prompts.append(f"{request.system_prompt}: {len(request.messages)}")
                yield TextDelta("yes")
                yield Finished()

        async def play(version: str) -> None:
            async with served(tmp_path, lambda session: Agent(Model(), system_prompt=version)) as engine:
                await engine.answer("s", await engine.submit("s", Order("prompt", "Hi")))
                while (await engine.state("s")).is_running:
                    await asyncio.sleep(0.01)

        for version in ("one", "two"):
            run(lambda version=version: play(version))
        assert prompts == ["one: 1", "two: 3"]

    def test_an_agent_that_can_not_be_made_leaves_its_session_to_others(self, tmp_path: Path, caplog: Any):
        """The reason is logged, other sessions are served, and the order waits."""

        def make(session: str) -> Any:
            if session == "bad":
                raise LookupError("no such customer")
            return agent(Room()) if session == "good" else "an agent"

        async def play() -> int:
            async with served(tmp_path, make) as engine:
                for session in ("bad", "odd", "good"):
                    await engine.submit(session, Order("prompt", HELLO))
                await told_until(engine, "good", "run.finished")
                return (await engine.state("bad")).waiting

        with caplog.at_level(logging.ERROR, "kernel.engines"):
            assert run(play) == 1
        said = " ".join(record.getMessage() for record in caplog.records)
        assert "session bad is not served by this worker: " in said
        assert "no such customer" in said
        assert "make_agent must return a kernel.Agent, not 'an agent'" in said

    def test_a_worker_that_ends_hands_its_sessions_on_at_once(self, tmp_path: Path):
        """The next one goes on with the run long before the lease of the first would be over."""
        room = Room()

        async def play() -> str:
            async with served(tmp_path, lambda session: agent(room), lease=600) as engine:
                text = plan(turn("One.", calls=[("wait", {"gate": "open"})]), turn("Two."))
                await engine.submit("s", Order("prompt", text))
                while not room.ran():
                    await asyncio.sleep(0.005)
            room.gates.open("open")
            async with served(tmp_path, lambda session: agent(room), lease=600) as engine:
                await told_until(engine, "s", "run.finished")
                return (await engine.state("s")).messages[-1].text

        assert run(play) == "Two."

    @pytest.mark.parametrize("slots", [0, -1, True, 1.5])
    def test_slots_that_make_no_sense_are_refused(self, slots: Any, tmp_path: Path):
        """By name."""

        async def play() -> None:
            async with SqliteEngine(tmp_path / "s.db") as engine:
                with pytest.raises(ValueError, match="slots must be a positive int"):
                    await engine.serve(lambda session: agent(Room()), slots=slots)

        run(play)


class TestSessions:
    def test_they_are_listed_shown_and_deleted(self, tmp_path: Path):
        """The newest first; what rests can be forgotten, and then it never was."""

        async def play() -> None:
            async with served(tmp_path) as engine:
                for session in ("a", "b"):
                    await engine.submit(session, Order("prompt", HELLO))
                    await told_until(engine, session, "run.finished")
                while any(row.live for row in await engine.sessions()):
                    await asyncio.sleep(0.01)
                assert [row.session for row in await engine.sessions()] == ["b", "a"]
                assert (await engine.state("a")).messages[0] == UserMessage(HELLO)
                assert '"format":"phasekernel.session/1"' in await engine.log("a")
                await engine.delete("a")
                with pytest.raises(EngineError, match="there is no session a"):
                    await engine.state("a")

        run(play)

    def test_a_log_begins_anew_so_that_opening_a_session_stays_fast(self, tmp_path: Path):
        """After forty runs the log has the newest state and no more inputs than `base_every` and one run."""

        async def play() -> int:
            async with served(tmp_path, base_every=30) as engine:
                for number in range(40):
                    await engine.answer("s", await engine.submit("s", Order("prompt", f"{number}")))
                    while (await engine.state("s")).is_running:
                        await asyncio.sleep(0.001)
                assert len((await engine.state("s")).messages) == 80
                return len((await engine.log("s")).splitlines())

        assert run(play) <= 1 + 30 + 20

    def test_what_has_something_to_do_is_not_deleted(self, tmp_path: Path):
        """The sentence says what to do first."""

        async def play() -> None:
            async with SqliteEngine(tmp_path / "s.db") as engine:
                await engine.submit("s", Order("prompt", HELLO))
                with pytest.raises(EngineError, match="session s has something to do: cancel it first"):
                    await engine.delete("s")

        run(play)

    def test_a_closed_engine_says_so(self, tmp_path: Path):
        """Whatever is asked of it."""

        async def play() -> None:
            engine = SqliteEngine(tmp_path / "s.db")
            await engine.aclose()
            await engine.aclose()
            with pytest.raises(EngineError, match="the engine is closed"):
                await engine.submit("s", Order("cancel"))

        run(play)


class TestTrouble:
    def test_what_can_not_be_written_down_costs_only_its_own_session(self, tmp_path: Path, caplog: Any):
        """A model asks for something that JSON can't say: that session is left, with the reason; others go on."""

        def make(session: str) -> Agent:
            odd = ToolCall("c", "count", {"numbers": {1, 2}})
            return Agent(ScriptedModel([[odd] if session == "odd" else ["Hello."]]))

        async def play() -> str:
            async with served(tmp_path, make) as engine:
                for session in ("odd", "good"):
                    await engine.submit(session, Order("prompt", "Hi"))
                while "odd" not in caplog.text:
                    await asyncio.sleep(0.01)
                return [t.event.type for t in await told_until(engine, "good", "run.finished")][-1]

        with caplog.at_level(logging.ERROR, "kernel.engines"):
            assert run(play) == "run.finished"
        assert "session odd is not served by this worker" in caplog.text

    def test_a_worker_that_ends_at_any_moment_owns_nothing_afterwards(self, tmp_path: Path):
        """Ended after any number of turns of the loop, also while it is opening a session, however long its lease is."""

        async def play() -> list[str | None]:
            owners = []
            async with SqliteEngine(tmp_path / "s.db", lease=600) as engine:
                for turns in range(60):
                    await engine.submit(f"s{turns}", Order("prompt", HELLO))
                    serving = asyncio.create_task(engine.serve(lambda session: agent(Room())))
                    while turns and not serving.done():
                        await asyncio.sleep(0)
                        turns -= (await engine.sessions())[0].owner is not None or turns > 30
                    serving.cancel()
                    await asyncio.wait({serving})
                    owners += [row.owner for row in await engine.sessions()]
            return owners

        assert set(run(play)) == {None}

    def test_a_file_that_breaks_while_it_is_used_is_told_in_a_sentence(self, tmp_path: Path):
        """Not in SQLite's own exceptions."""

        async def play() -> None:
            async with SqliteEngine(tmp_path / "s.db") as engine:
                db = sqlite3.connect(tmp_path / "s.db")
                db.execute("DROP TABLE orders")
                db.close()
                with pytest.raises(EngineError, match=r"s\.db can't be used: no such table: orders"):
                    await engine.submit("s", Order("cancel"))

        run(play)
