"""The kernel on other event loops than asyncio's own: what is told is the same on each. And agents in several threads."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Event, KernelConfig, ReentrancyError, Run, RunResult, tool
from kernel.events import ToolEnded
from kernel.testing import Gates, ScriptedModel, SimulatedLoop, call, say, simulate
from tests.conformance.judge import judge

CASES = sorted((Path(__file__).parents[1] / "conformance" / "cases").glob("*.json"))
EAGER: Any = getattr(asyncio, "eager_task_factory", None)
needs_eager = pytest.mark.skipif(EAGER is None, reason="eager tasks came with Python 3.12")

Line = tuple[str, ...]


def eager_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(EAGER)
    return loop


def uv_loop() -> asyncio.AbstractEventLoop:
    return pytest.importorskip("uvloop", reason="uvloop is not installed: pip install uvloop").new_event_loop()  # type: ignore[no-any-return]


LOOPS = [pytest.param(eager_loop, id="eager", marks=needs_eager), pytest.param(uv_loop, id="uvloop")]


class Life:
    """An agent that is steered, followed up, cancelled and prompted again, with tools on the loop and in a thread, and a
    listener that is awaited.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.gates = Gates()
        self.agent = Agent(
            ScriptedModel(
                [
                    [*say("Let me ", "see."), call("c1", "in_thread"), call("c2", "on_loop")],
                    say("Steered."),
                    say("Followed."),
                    [call("c3", "stuck")],
                    say("Again."),
                ]
            ),
            tools=[tool(self.in_thread), tool(self.on_loop), tool(self.stuck)],
        )
        self.agent.subscribe(self.hear)

    def in_thread(self) -> str:
        """Answer from a thread."""
        return "from a thread"

    async def on_loop(self) -> str:
        """Answer when the other one has."""
        await self.gates.wait("thread")
        return "from the loop"

    async def stuck(self) -> str:
        """Never answer."""
        self.gates.open("stuck")
        await asyncio.Event().wait()
        return "never"

    async def hear(self, event: Event) -> None:
        """Write *event* down, and let others take their turn."""
        await asyncio.sleep(0)
        told = (getattr(event, name, "") for name in ("source", "target", "call_id", "delta"))
        self.lines.append((event.type, *map(str, told)))
        if isinstance(event, ToolEnded) and event.call_id == "c1":
            self.gates.open("thread")

    async def live(self) -> list[Line]:
        """All of it, and what was heard."""
        run = self.agent.prompt("Hi")
        self.agent.steer("Left")
        self.agent.follow_up("Then")
        first = await run
        stopped = self.agent.prompt("Wait")
        await self.gates.wait("stuck")
        stopped.cancel()
        last = [result.status for result in (first, await stopped, await self.agent.prompt("Go on"))]
        return [*self.lines, tuple(last), *((message.role, message.text) for message in self.agent.messages)]


def lived(factory: Callable[[], asyncio.AbstractEventLoop]) -> list[Line]:
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(Life().live())


@pytest.mark.parametrize("factory", LOOPS)
def test_an_agent_lives_the_same_life(factory: Callable[[], asyncio.AbstractEventLoop]):
    """Every event, status and message is that of asyncio's own loop, in the same order."""
    usual = lived(asyncio.new_event_loop)

    assert ("completed", "cancelled", "completed") in usual
    assert lived(factory) == usual


@pytest.fixture
def eager_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated loops start tasks eagerly."""
    made = SimulatedLoop.__init__

    def eagerly(loop: SimulatedLoop, *arguments: Any, **named: Any) -> None:
        made(loop, *arguments, **named)
        loop.set_task_factory(EAGER)

    monkeypatch.setattr(SimulatedLoop, "__init__", eagerly)


@needs_eager
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_holds_where_tasks_start_eagerly(path: Path, eager_simulation: None):
    """Work that begins in the middle of the step that asked for it changes nothing: every case holds."""
    assert judge(path) == []


@needs_eager
def test_a_stream_is_not_read_in_the_step_that_asked_for_it(eager_simulation: None):
    """A listener's cancel is seen between two parts of a stream that never waits, though its task starts eagerly."""
    agent = Agent(ScriptedModel([say("one ", "two ", "three")]))
    agent.subscribe(lambda event: agent.cancel() if event.type == "message.updated" else None)

    async def cut() -> tuple[str, str]:
        return (await agent.prompt("Hi")).status, agent.messages[-1].text

    assert simulate(cut()) == ("cancelled", "one ")


@needs_eager
def test_async_listeners_that_are_only_observed_begin_after_the_others(eager_simulation: None):
    """An observed listener hears of an event when those that came after it have heard of it too."""
    order: list[str] = []

    async def slow(event: Event) -> None:
        order.append("async")

    async def listened() -> None:
        agent = Agent(ScriptedModel([say("Hi")]), config=KernelConfig(subscribers="observe"))
        agent.subscribe(slow)
        agent.subscribe(lambda event: order.append("plain"))
        await agent.prompt("Hi")

    simulate(listened())
    assert order[:2] == ["plain", "async"]


@needs_eager
@pytest.mark.parametrize("where", ["tool", "listener"])
def test_who_waits_for_its_own_run_is_refused_though_it_started_eagerly(where: str, eager_simulation: None):
    """A tool and an awaited listener that wait for their own run, before anything else, are told so."""
    refused: list[Exception] = []
    runs: list[Run] = []

    async def wait() -> str:
        """Wait for the run."""
        try:
            await runs[0]
        except ReentrancyError as error:
            refused.append(error)
        return "waited"

    async def listen(event: Event) -> None:
        if where == "listener" and event.type == "turn.started":
            await wait()

    async def lived() -> str:
        script = [[call("c", "wait")], say("Done.")] if where == "tool" else [say("Done.")]
        agent = Agent(ScriptedModel(script), tools=[tool(wait)])
        agent.subscribe(listen)
        runs.append(agent.prompt("Hi"))
        return (await runs[0]).status

    assert (simulate(lived()), len(refused)) == ("completed", 1)


THREADS, RUNS = 8, 25


def test_agents_in_threads_do_not_hear_of_each_other():
    """Each thread has a loop and agents of its own, and all share a tool: each run hears its own events, and ends once."""

    @tool
    def double(number: int) -> str:
        """Twice the number."""
        return str(2 * number)

    async def one(thread: int, number: int) -> RunResult:
        agent = Agent(ScriptedModel([[call("c", "double", number=number)], say(f"{thread}:{number}")]), tools=[double])
        heard: list[Event] = []
        agent.subscribe(heard.append)
        result = await agent.prompt("Double it.")
        assert {event.run_id for event in heard} == {result.run_id}
        assert [event.sequence for event in heard] == list(range(len(heard)))
        assert [event.type for event in heard].count("run.finished") == 1
        assert [message.text for message in agent.messages][-2:] == [str(2 * number), f"{thread}:{number}"]
        return result

    async def all_of(thread: int) -> list[RunResult]:
        return await asyncio.gather(*(one(thread, number) for number in range(RUNS)))

    with ThreadPoolExecutor(THREADS) as pool:
        results = [each for part in pool.map(lambda thread: asyncio.run(all_of(thread)), range(THREADS)) for each in part]

    assert {result.status for result in results} == {"completed"}
    assert len({result.run_id for result in results}) == THREADS * RUNS


def test_the_word_for_eager_tasks_is_known():
    """Where this Python has eager tasks, they were tried here and not skipped."""
    assert (EAGER is not None) == (sys.version_info >= (3, 12))
