"""What models, tools and threads of others get wrong is theirs: one clear outcome, and nothing of ours breaks."""

import asyncio
import threading
from typing import Any

import pytest

from kernel import Agent, Finished, KernelConfig, ModelError, ReasoningDelta, RetryPolicy, TextDelta, run, tool
from kernel.events import MessageUpdated
from kernel.scenario import main as scenario
from kernel.testing import Recorder, ScriptedModel, call, collect, simulate
from kernel.trace import check


class Odd(ModelError):
    """A subclass that never called its parent."""

    def __init__(self, **fields: Any) -> None:
        Exception.__init__(self, "HTTP 500")
        vars(self).update(fields)


@pytest.mark.parametrize("after", ["2", b"3", True, [4]], ids=["text", "bytes", "bool", "list"])
def test_a_wait_that_is_no_number_is_refused_where_it_is_made(after: Any):
    """A header handed on as text is a TypeError that names the argument."""
    with pytest.raises(TypeError, match="retry_after"):
        ModelError("429", retryable=True, retry_after=after)


NONSENSE: list[dict[str, Any]] = [
    {},
    {"retryable": True, "retry_after": "2"},
    {"retryable": 1, "retry_after": float("nan")},
]


@pytest.mark.parametrize("fields", NONSENSE, ids=["none", "text", "nan"])
def test_a_bare_subclass_is_a_failure_of_the_model(fields: dict[str, Any]):
    """An error that lacks our fields, or has nonsense in them, is read as far as it goes."""
    config = KernelConfig(retry=RetryPolicy(base_delay=0.0, max_attempts=2))
    agent = Agent(ScriptedModel([[Odd(**fields)], [Odd(**fields)]]), config=config)
    heard = Recorder()
    agent.subscribe(heard)
    result = simulate(_result(agent))

    assert (result.failure.code, result.failure.message) == ("MODEL_FAILED", "HTTP 500")
    assert check(heard.events) == []


def test_a_stream_that_can_not_be_asked_to_close_has_ended():
    """What the attribute `aclose` does after the terminal part concerns nobody."""

    class Stream:
        def __init__(self) -> None:
            self.parts = iter([TextDelta("a"), Finished()])

        def __aiter__(self) -> "Stream":
            return self

        async def __anext__(self) -> Any:
            return next(self.parts)

        @property
        def aclose(self) -> Any:
            raise RuntimeError("no such thing")

    class Model:
        def stream(self, request: Any) -> Any:
            return Stream()

    assert simulate(_result(Agent(Model()))).final_text == "a"


class Untold(BaseException):
    """Something that can't even say what it is."""

    def __str__(self) -> str:
        raise ValueError("not even that")


@pytest.mark.parametrize("error", [Untold(), StopIteration(3), SystemExit(2)], ids=lambda error: type(error).__name__)
def test_whatever_a_thread_raises_is_the_calls_result(error: BaseException):
    """A sync tool that raises what no task could carry is answered with an error all the same."""

    @tool
    def raises() -> str:
        """Raise."""
        raise error

    agent = Agent(ScriptedModel([[call("c", "raises")], ["done"]]), tools=[raises])

    assert agent.run_sync("go").final_text == "done"
    assert agent.messages[2].is_error
    assert agent.messages[2].text


class Deaf:
    name, description, parameters = "deaf", "d", {"type": "object"}

    async def execute(self, arguments: Any, context: Any) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue


class Bye:
    name, description, parameters = "bye", "d", {"type": "object"}

    async def execute(self, arguments: Any, context: Any) -> None:
        raise SystemExit(3)


def test_an_exit_beside_a_deaf_tool_ends_the_program():
    """`run_sync` comes back with the SystemExit, though something that was told to stop only then does not."""
    agent = Agent(
        ScriptedModel([[call("a", "deaf"), call("b", "bye")]]),
        tools=[Deaf(), Bye()],
        config=KernelConfig(cancel_grace=0.01),
    )
    with pytest.raises(SystemExit):
        agent.run_sync("go")


def test_a_deaf_observed_listener_does_not_hold_run_sync():
    """Under `observe`, what a listener began and never ends is left behind after `cancel_grace`."""
    agent = Agent(ScriptedModel([["a"]]), config=KernelConfig(subscribers="observe", cancel_grace=0.01))
    agent.subscribe(lambda event: Deaf().execute(None, None) if event.type == "turn.started" else None)

    assert agent.run_sync("go").status == "completed"


def test_a_thread_keeps_its_key_beyond_its_loop():
    """A key of a sync tool that was abandoned is free when its thread ends, not when its loop does."""
    going, release, bodies = threading.Event(), threading.Event(), []

    @tool(resources=lambda _: ["file"])
    def write(first: bool) -> str:
        """Write."""
        bodies.append(("in", first))
        if first:
            going.set()
            release.wait()
        bodies.append(("out", first))
        return "ok"

    script = [[call("a", "write", first=True)], [call("b", "write", first=False)], ["done"]]
    agent = Agent(ScriptedModel(script), tools=[write], config=KernelConfig(cancel_grace=0.0))

    async def cut() -> None:
        run = agent.prompt("one")
        while not going.is_set():
            await asyncio.sleep(0)
        agent.cancel()
        await run

    asyncio.run(cut())
    assert [work.call_id for work in agent.abandoned] == ["a"]
    agent.subscribe(lambda event: event.type == "tool.started" and release.set())

    assert agent.run_sync("two").final_text == "done"
    assert bodies == [("in", True), ("out", True), ("in", False), ("out", False)]
    assert agent.abandoned == ()


def test_a_full_buffer_joins_pieces_without_looking_at_them_again(monkeypatch: pytest.MonkeyPatch):
    """With no reader, pieces of one message cost one slot and one look each, however many they are, and none is lost."""
    looks: list[None] = []
    alike = run._alike
    monkeypatch.setattr(run, "_alike", lambda *events: looks.append(None) or alike(*events))
    apart = [part for number in range(20) for part in (f"{number} ", ReasoningDelta("hm"))]
    texts = [f"{number} " for number in range(3000)]
    agent = Agent(ScriptedModel([[*apart, *texts]]), config=KernelConfig(event_buffer=53))

    async def main() -> list[Any]:
        going = agent.prompt("go")
        await going
        return await collect(going)

    pieces = [event for event in simulate(main()) if isinstance(event, MessageUpdated)]
    assert "".join(event.delta for event in pieces[40:]) == "".join(texts)
    assert sum(event.count for event in pieces) == 3040
    assert len(looks) < 2 * 3040


@pytest.mark.parametrize(
    "text",
    [
        '{"config":{"profile":["x"]},"drive":[]}',
        '{"model":[[{"usage":{"input":-5}}]],"drive":[]}',
        '{"expect":' + "[" * 99999,
    ],
    ids=["profile", "usage", "deep"],
)
def test_what_is_no_scenario_is_told_so(text: str, tmp_path: Any, capsys: Any):
    """Malformed in whatever way: a sentence on standard error, and exit status 2."""
    path = tmp_path / "scenario.json"
    path.write_text(text)

    assert scenario([str(path)]) == 2
    assert str(path) in capsys.readouterr().err


async def _result(agent: Agent) -> Any:
    return await agent.prompt("go")
