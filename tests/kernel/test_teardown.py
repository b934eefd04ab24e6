"""When the world goes away: a loop that is torn down, a task that is cancelled from outside, a bug of the kernel's own."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kernel import CompactionPolicy, Hooks, ModelError, Run, tool
from kernel.testing import SimulatedLoop, call
from tests.kernel.helpers import Act, Stage, play, ticks, turns


def waiting(place: str) -> Stage:
    """A stage whose run waits for ever at *place*."""
    stage = Stage(
        {"request": [wait], "stream": ["a", wait], "backoff": [ModelError("busy", retryable=True)],
         "compactor": [ModelError("full", overflow=True)]}.get(place, ["a", call("c1", "act")]),
        ["b"],
        tools=[Act(body=wait if place == "tool" else "ok")],
        hooks=Hooks(**({HOOKS[place]: wait} if place in HOOKS else {})),
        messages=turns(3),
        compactor=type("Waits", (), {"summarize": staticmethod(wait)})(),
        compaction=CompactionPolicy(keep_turns=1),
    )  # fmt: skip
    if place.startswith("listener"):

        async def listener(event: Any) -> None:
            if event.type == place.partition(" ")[2] and event.run_id.endswith("-1"):
                await wait()

        stage.agent.subscribe(listener)
    return stage


async def wait(*_: Any) -> None:
    await asyncio.Event().wait()


HOOKS = {"context": "transform_context", "before": "before_tool_call", "after": "after_tool_result",
         "stop": "should_stop_after_turn"}  # fmt: skip
PLACES = ["request", "stream", "tool", *HOOKS, "compactor", "listener run.started", "listener tool.started"]
TASKS = {"request": "kernel model", "stream": "kernel model", "tool": "kernel tool act", "compactor": "kernel compactor"}


def begun(stage: Stage, loop: SimulatedLoop) -> Run:
    with loop.active():
        run = stage.agent.prompt("Hi")
        loop.drain()
    return run


def ended_as_cancelled(stage: Stage, run: Run) -> None:
    """The run has its one end, and the agent is as good as new."""
    assert run.result is not None
    assert run.result.status == "cancelled"
    assert stage.types.count("run.finished") == 1
    assert stage.types[-1] == "run.finished"
    assert stage.agent.phase == "idle"
    stage.keeps_its_word()


class TestLoopTeardown:
    @pytest.mark.parametrize("place", [*PLACES, "backoff"])
    def test_it_ends_the_run_as_cancelled(self, place: str) -> None:
        """A loop whose tasks are all cancelled leaves a run that is cancelled, closed and recorded (EXT-4)."""
        stage, loop = waiting(place), SimulatedLoop()
        run = begun(stage, loop)
        left = loop.shutdown()
        ended_as_cancelled(stage, run)
        assert left != []
        assert all(task.cancelled() for task in left)
        assert loop.exceptions == []

    def test_in_settling_the_outcome_stays(self) -> None:
        """A run that had its end keeps it, though a listener never heard it out."""
        stage, loop = waiting("listener run.finished"), SimulatedLoop()
        run = begun(stage, loop)
        assert run.result is None
        loop.shutdown()
        assert (run.result and run.result.status, stage.agent.phase) == ("completed", "idle")

    def test_a_task_that_never_took_its_first_step(self) -> None:
        """A run whose task is cancelled before it began ends all the same."""
        stage, loop = waiting("tool"), SimulatedLoop()
        with loop.active():
            run = stage.agent.prompt("Hi")
            (task,) = loop.unfinished()
            task.cancel()
        assert loop.shutdown() == []
        ended_as_cancelled(stage, run)
        assert task.cancelled()

    def test_asyncio_run_comes_back(self) -> None:
        """A script that forgets its run ends, and finds it cancelled."""
        stage = waiting("tool")

        async def main() -> Run:
            run = stage.agent.prompt("Hi")
            await ticks(50)
            return run

        run = asyncio.run(main())
        gc.collect()
        ended_as_cancelled(stage, run)

    @pytest.mark.parametrize("place", ["stream", "before", "backoff"])
    def test_the_next_run_works_on_a_new_loop(self, place: str) -> None:
        """After a teardown the agent goes on with another loop (I4)."""
        stage, loop = waiting(place), SimulatedLoop()
        begun(stage, loop)
        loop.shutdown()
        stage.agent.configure(model=type(stage.model)([["again"]]))

        async def main() -> str:
            return (await stage.agent.prompt("again")).status

        assert play(main()) == "completed"


class TestDeadLoop:
    COMMANDS: dict[str, Callable[[Any], Any]] = {  # noqa: RUF012  # a table for one test
        "prompt": lambda agent: agent.prompt("again"),
        "continue_": lambda agent: agent.continue_(),
        "steer": lambda agent: agent.steer("left"),
        "cancel": lambda agent: agent.cancel(),
        "reset": lambda agent: agent.reset(),
        "configure": lambda agent: agent.configure(system_prompt="Be kind."),
        "wait_for_idle": lambda agent: asyncio.ensure_future(agent.wait_for_idle()),
        "aclose": lambda agent: asyncio.ensure_future(agent.aclose()),
    }

    @pytest.mark.parametrize("command", COMMANDS)
    @pytest.mark.parametrize("place", ["stream", "tool", "listener turn.started"])
    def test_the_next_command_finds_it_dead(self, place: str, command: str) -> None:
        """A run whose loop was closed under it is recorded as cancelled by the next command, which then works."""
        stage, loop = waiting(place), SimulatedLoop()
        run = begun(stage, loop)
        left = loop.unfinished()
        loop.close()

        async def main() -> None:
            answer = self.COMMANDS[command](stage.agent)
            if isinstance(answer, asyncio.Future):
                await answer
            if command in ("prompt", "continue_"):
                stage.agent.cancel()
                await answer
                del stage.heard.events[-len([e for e in stage.heard.events if e.run_id == answer.id]) :]
            assert answer is not True
            assert run.result is not None

        play(main())
        assert stage.types.count("run.finished") == 1
        assert (run.result and run.result.status) == "cancelled"
        assert stage.agent.phase == ("closed" if command == "aclose" else "idle")
        forget(left)

    def test_it_is_collected_in_silence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a closed loop left of a run is collected without an error of ours."""
        raised: list[Any] = []
        monkeypatch.setattr(sys, "unraisablehook", lambda args: raised.append(args.exc_value))
        stage, loop = waiting("listener turn.started"), SimulatedLoop()
        begun(stage, loop)
        for task in loop.unfinished():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        del stage, loop, task
        gc.collect()
        assert raised == []


def forget(tasks: list[Any]) -> None:
    """Tasks of a closed loop can never end; they are not to be complained of."""
    for task in tasks:
        task._log_destroy_pending = False
        with suppress(RuntimeError):  # what cleans up may find that its loop is closed
            task.get_coro().close()


class TestOutsideCancellation:
    @pytest.mark.parametrize("place", [place for place in PLACES if not place.startswith("listener")])
    def test_of_a_work_ends_the_run(self, place: str) -> None:
        """Who cancels the task of a model, tool, hook or compactor from outside cancels the run (EXT-10)."""
        stage = waiting(place)

        async def main() -> Run:
            run = stage.agent.prompt("Hi")
            await ticks(50)
            name = TASKS.get(place, "kernel hook")
            (task,) = [task for task in asyncio.all_tasks() if task.get_name().startswith(name)]
            task.cancel()
            await run
            assert task.cancelled()
            return run

        ended_as_cancelled(stage, play(main()))

    def test_of_a_listener_ends_the_run(self) -> None:
        """Who cancels the task of an awaited listener from outside cancels the run."""
        stage = waiting("listener turn.started")

        async def main() -> Run:
            run = stage.agent.prompt("Hi")
            await ticks(50)
            (task,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("kernel listener")]
            task.cancel()
            async with asyncio.timeout(60):
                await run
            return run

        ended_as_cancelled(stage, play(main(), left=None))

    def test_of_the_runs_own_task_ends_the_run(self) -> None:
        """Cancelling the kernel's own task ends the run as cancelled, and the task is cancelled."""
        stage = waiting("tool")

        async def main() -> Run:
            run = stage.agent.prompt("Hi")
            await ticks(50)
            (task,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("kernel run")]
            task.cancel()
            await run
            await ticks()
            assert task.cancelled()
            return run

        ended_as_cancelled(stage, play(main()))

    def test_a_listener_that_fails_in_the_same_moment_is_recorded(self) -> None:
        """A listener that has failed when the run's own task is cancelled is recorded; nobody else would ask its task."""
        stage, loop = Stage("a"), SimulatedLoop()
        tasks: list[Any] = []

        async def listener(event: Any) -> None:
            if event.type == "turn.started":
                tasks.append(asyncio.current_task())
                raise ValueError("the listener broke")

        stage.agent.subscribe(listener)
        with loop.active():
            run = stage.agent.prompt("Hi")
            (own,) = loop.unfinished()
            loop.drain(lambda: tasks and tasks[0].done())
            own.cancel()
        loop.shutdown()
        del tasks[:], own
        gc.collect()
        ended_as_cancelled(stage, run)
        assert [failure.error for failure in stage.agent.subscriber_errors] == ["the listener broke"]
        assert loop.exceptions == []

    def test_what_a_listener_asks_for_at_this_end_is_told(self) -> None:
        """A command of a listener that hears of a dead run's end has its event too, and no number is left out."""
        stage, loop = Stage("a"), SimulatedLoop()
        stage.on("run.started", lambda: stage.agent.follow_up("later"))
        with loop.active():
            run = stage.agent.prompt("Hi")
            (own,) = loop.unfinished()
            own.cancel()
        loop.shutdown()
        ended_as_cancelled(stage, run)
        assert "queue.changed" in stage.types

    def test_what_a_cancelled_tool_held_is_free(self) -> None:
        """The keys of a call whose task was cancelled from outside do not block the next run."""
        act = Act(body=wait, resources=lambda _: ("file",))
        stage = Stage([call("c1", "act")], [call("c2", "act")], ["done"], tools=[act], run_deadline=60)

        async def main() -> str:
            run = stage.agent.prompt("Hi")
            await ticks(50)
            (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "kernel tool act"]
            task.cancel()
            await run
            stage.agent.configure(tools=[Act(resources=lambda _: ("file",))])
            return (await stage.agent.prompt("again")).status

        assert play(main()) == "completed"

    @pytest.mark.parametrize("end", ["shutdown", "close"])
    def test_what_a_dead_loop_held_is_free(self, end: str) -> None:
        """The keys of a call whose loop was torn down do not block a run on another loop."""
        act = Act(body=wait, resources=lambda _: ("file",))
        stage, loop = (
            Stage([call("c1", "act")], [call("c2", "act")], ["done"], tools=[act], run_deadline=60),
            SimulatedLoop(),
        )
        begun(stage, loop)
        left = loop.unfinished()
        getattr(loop, end)()

        async def main() -> str:
            stage.agent.configure(tools=[Act(resources=lambda _: ("file",))])
            return (await stage.agent.prompt("again")).status

        try:
            assert play(main()) == "completed"
        finally:
            forget(left)


class TestRunSync:
    def test_it_is_prompt_and_its_result(self) -> None:
        """`run_sync` says and leaves the same as `prompt` (I9)."""
        one, two = (Stage(["a", call("c1", "act")], ["b"], tools=[Act()]) for _ in range(2))
        result = one.agent.run_sync("Hi")
        play(two.run())
        assert (one.types, one.said) == (two.types, two.said)
        assert result == one.heard.events[-1].result

    def test_it_may_be_called_again(self) -> None:
        """One agent, many calls: each has a loop of its own."""
        stage = Stage(["a"], ["b"])
        assert [stage.agent.run_sync("Hi").final_text for _ in range(2)] == ["a", "b"]

    @pytest.mark.parametrize("kind", ["task", "thread"])
    def test_a_deaf_tool_does_not_hold_it(self, kind: str) -> None:
        """`run_sync` comes back though a tool ignores everything, and its thread or task is listed (PAIR-13)."""
        release = threading.Event()

        async def deaf(*_: Any) -> None:
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    continue

        @tool(name="act")
        def blocks() -> str:
            """Block."""
            release.wait()
            return "late"

        stage = Stage([call("c1", "act")], run_deadline=0.02, cancel_grace=0.02)
        stage.agent.configure(tools=[Act(body=deaf) if kind == "task" else blocks])
        result = stage.agent.run_sync("Hi")
        assert (result.status, result.error.code) == ("failed", "RUN_DEADLINE")
        assert [(work.kind, work.call_id) for work in stage.agent.abandoned] == [("tool", "c1")]
        release.set()
        stage.keeps_its_word()
        del stage
        gc.collect()

    def test_a_sync_tool_that_returns_late_is_late(self) -> None:
        """A thread that is left behind says nothing any more once its run is over."""
        release, left = threading.Event(), threading.Event()

        @tool(name="act")
        def blocks() -> str:
            """Block."""
            release.wait()
            left.set()
            return "late"

        stage = Stage([call("c1", "act")], ["b"], tools=[blocks], cancel_grace=0.02)
        stage.on("tool.started", lambda: asyncio.get_running_loop().call_later(0.02, stage.agent.cancel))
        assert stage.agent.run_sync("Hi").status == "cancelled"
        release.set()
        assert left.wait(5)
        assert stage.agent.run_sync("again").final_text == "b"
        assert [text for role, text in stage.said if role == "tool"] != ["late"]

    @pytest.mark.parametrize("kind", ["task", "thread"])
    def test_what_a_deaf_tool_held_is_free_when_it_is_gone(self, kind: str) -> None:
        """The keys of a tool that was left in another loop are free when its task can't go on or its thread has ended."""
        release = threading.Event()

        async def deaf(*_: Any) -> None:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)

        @tool(name="act", resources=lambda _: ("file",))
        def blocks() -> None:
            """Block."""
            threading.current_thread().name = "blocked"
            release.wait()

        stage = Stage([call("c1", "act")], [call("c2", "act")], ["b"], cancel_grace=0.02)
        first = [True]

        def cancel_the_first() -> None:
            if first and first.pop():
                asyncio.get_running_loop().call_later(0.02, stage.agent.cancel)

        stage.on("tool.started", cancel_the_first)
        keys: Any = {"resources": lambda _: ("file",)}
        stage.agent.configure(tools=[Act(body=deaf, **keys) if kind == "task" else blocks])
        assert stage.agent.run_sync("Hi").status == "cancelled"
        release.set()
        for thread in threading.enumerate():
            if thread.name == "blocked":
                thread.join()
        stage.agent.configure(tools=[Act(**keys)])
        assert stage.agent.run_sync("again").status == "completed"
