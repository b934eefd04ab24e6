"""Fault points: what goes wrong where a test says so, and what the agent makes of it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kernel import Agent, Finished, Hooks, KernelConfig, RunResult, TextDelta, ToolContext, tool
from kernel.testing import (
    Fault,
    FaultKind,
    InjectedError,
    Recorder,
    ScriptedModel,
    call,
    faulty_hook,
    faulty_listener,
    faulty_model,
    faulty_tool,
    say,
)
from kernel.testing.fault_points import spoil_hooks
from kernel.testing.faults import ALL_FAULTS, MENU
from tests.kernel.helpers import play

Say = tuple[Any, ...]
NO_HOOKS = Hooks()


@tool
async def look(context: ToolContext) -> str:
    """Look."""
    context.update("looking")
    return "seen"


class Scene:
    """An agent with faults, and what is seen of it."""

    def __init__(
        self, *responses: Any, model: Say = (), look_: Say = (), hooks: Hooks = NO_HOOKS, listener: Say = (), **config: Any
    ) -> None:
        self.script = ScriptedModel(responses or [say("a", "b"), say("c"), say("d")])
        self.heard = Recorder()
        self.agent = Agent(
            faulty_model(self.script, *model), tools=[faulty_tool(look, *look_)], hooks=hooks,
            config=KernelConfig(**config),
        )  # fmt: skip
        self.agent.subscribe(self.heard)
        self.agent.subscribe(faulty_listener(self.agent, *listener))

    async def run(self, cancel_after: float | None = None) -> RunResult:
        """One run, cancelled after so many seconds."""
        run = self.agent.prompt("Go.")
        if cancel_after is not None:
            asyncio.get_running_loop().call_later(cancel_after, run.cancel)
        return await run


def timed(main: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    """What *main* returns, and the seconds that it took."""

    async def both() -> tuple[Any, float]:
        value = await main
        return value, asyncio.get_running_loop().time()

    return play(both(), left=None)


LOOK = [call("c1", "look")]


# ---- the values ----


@pytest.mark.parametrize("fault", MENU, ids=str)
def test_a_fault_is_text_and_back(fault: Fault) -> None:
    """What a fault is called names it."""
    assert Fault.parse(str(fault)) == fault


def test_the_menu_has_every_kind() -> None:
    """Nothing that can go wrong is left out of what explore() chooses from."""
    assert {fault.kind for fault in MENU} == ALL_FAULTS


def test_what_is_no_fault_is_refused() -> None:
    """A kind that does not exist is a ValueError that says so."""
    with pytest.raises(ValueError, match="tool explodes"):
        faulty_tool(look, "tool explodes")


# ---- without a fault ----


def test_a_wrapper_without_a_fault_is_not_there() -> None:
    """The same events come after the same steps of the loop, whether model, tool and hooks are wrapped or not."""

    async def hook(*_: Any) -> None:
        await asyncio.sleep(0)

    async def plain(wrapped: bool) -> tuple[list[str], int]:
        hooks = Hooks(before_tool_call=hook, after_tool_result=hook)
        model: Any = ScriptedModel([LOOK, say("ok")])
        if wrapped:
            agent = Agent(faulty_model(model), tools=[faulty_tool(look)], hooks=spoil_hooks(hooks, lambda name: None))
        else:
            agent = Agent(model, tools=[look], hooks=hooks)
        heard = Recorder()
        agent.subscribe(heard)
        await agent.prompt("Go.")
        return heard.types, asyncio.get_running_loop().steps  # type: ignore[attr-defined]

    assert play(plain(wrapped=True)) == play(plain(wrapped=False))


def test_a_wrapped_tool_is_the_tool() -> None:
    """Name, schema, mode, timeout, resources and the check of arguments stay."""

    @tool(mode="sequential", timeout=3, resources=lambda arguments: [arguments["path"]], replay="safe")
    async def write(path: str) -> str:
        """Write."""
        return path

    wrapped = faulty_tool(write, "tool raises")
    for field in ("name", "description", "parameters", "mode", "timeout", "resources", "replay"):
        assert getattr(wrapped, field) == getattr(write, field)
    with pytest.raises(ValueError, match="path"):
        wrapped.validate({})


# ---- streams ----


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        ("stream breaks", "failed", ""),
        ("stream breaks@1", "failed", "a"),
        ("stream breaks@9", "failed", "ab"),
        ("stream ends early@1", "completed", "c"),
        ("stream fails@1", "completed", "c"),
        ("stream overflows", "failed", ""),
    ],
)
def test_a_stream_goes_wrong_after_so_many_parts(fault: str, status: str, text: str) -> None:
    """What was said before the fault was said; where there are fewer parts, it comes before the end."""
    result, _ = timed(Scene(model=(fault,), subscribers="observe").run())
    said = result.partial.text if result.partial is not None else result.final_text
    assert (result.status, said) == (status, text)


def test_the_next_stream_is_as_it_should_be() -> None:
    """A script has one entry for each request, and after its end all is well."""
    scene = Scene(model=("stream fails", "stream fails@1"))
    result, _ = timed(scene.run())
    assert (result.status, result.final_text, len(scene.script.requests)) == ("completed", "d", 3)


def test_a_stream_that_stalls_is_ended_by_the_idle_timeout() -> None:
    """It never comes back by itself (G11)."""
    result, seconds = timed(Scene(model=("stream stalls@1",), stream_idle_timeout=7, retry=None).run())
    assert (result.status, seconds) == ("failed", 7)


def test_a_slow_stream_takes_its_time_before_each_part() -> None:
    """Two parts and the end, two seconds each."""
    result, seconds = timed(Scene(model=("stream slow@2",)).run())
    assert (result.final_text, seconds) == ("ab", 6)


def test_a_stream_that_ignores_cancel_is_abandoned() -> None:
    """It takes its ten seconds, and the run does not wait for them (G8)."""
    scene = Scene(model=("stream ignores cancel@10",), cancel_grace=2)

    async def main() -> list[Any]:
        await scene.run(cancel_after=1)
        seen = [asyncio.get_running_loop().time(), len(scene.agent.abandoned)]
        await asyncio.sleep(20)
        return [*seen, len(scene.agent.abandoned)]

    assert play(main()) == [3, 1, 0]


def test_the_inner_stream_is_closed() -> None:
    """A generator that is given up by its wrapper is closed by it."""
    closed: list[str] = []

    class Model:
        async def stream(self, request: Any) -> Any:
            try:
                yield TextDelta("a")
                yield TextDelta("b")
                yield Finished()
            finally:
                closed.append("closed")

    async def main() -> list[str]:
        async for _ in faulty_model(Model(), "stream ends early@1").stream(None):  # type: ignore[arg-type]
            pass
        return list(closed)

    assert play(main()) == ["closed"]


# ---- tools ----


@pytest.mark.parametrize(
    ("fault", "text", "seconds"),
    [
        (None, "seen", 0),
        ("tool raises", "look broke", 0),
        ("tool raises afterwards", "look broke after its work was done", 0),
        ("tool slow@3", "seen", 3),
        ("tool ignores cancel@4", "seen", 4),
    ],
)
def test_a_tool_goes_wrong(fault: str | None, text: str, seconds: float) -> None:
    """The result says what became of the call; the next request is made all the same."""
    scene = Scene(LOOK, say("ok"), look_=(fault,))
    result, took = timed(scene.run())
    (ended,) = scene.heard.of("tool.ended")
    updates = len(scene.heard.of("tool.updated"))
    assert (ended.text, took, result.status) == (text, seconds, "completed")  # type: ignore[attr-defined]
    assert updates == (fault != "tool raises")


def test_a_tool_that_hangs_ends_with_a_cancel() -> None:
    """It never comes back, and listens when it is told to stop."""
    result, seconds = timed(Scene(LOOK, look_=("tool hangs",)).run(cancel_after=9))
    assert (result.status, seconds) == ("cancelled", 9)


def test_a_tool_that_ignores_cancel_is_abandoned() -> None:
    """It goes on for its time, and the run does not wait for it (G8)."""
    result, seconds = timed(Scene(LOOK, look_=("tool ignores cancel@60",), cancel_grace=2).run(cancel_after=1))
    assert (result.status, seconds) == ("cancelled", 3)


def test_what_a_tool_says_late_is_discarded() -> None:
    """Its update comes a second after its end, in the next run, and is told as such."""
    scene = Scene(LOOK, say("ok"), say("again"), look_=("tool speaks late@1",), model=(None, None, "stream slow@1"))

    async def main() -> None:
        await scene.run()
        await scene.run()

    timed(main())
    (discarded,) = scene.heard.of("update.discarded")
    assert discarded.run_id.endswith("-2")


# ---- hooks ----


@pytest.mark.parametrize(
    ("fault", "seconds", "failed"),
    [("hook raises", 0, 1), ("hook slow@2", 2, 0), ("hook ignores cancel@3", 3, 0), (None, 0, 0)],
)
def test_a_hook_goes_wrong(fault: str | None, seconds: float, failed: int) -> None:
    """A context hook that raises is reported and falls back (G15); a slow one is waited for."""
    hook = faulty_hook(lambda messages: messages, fault)
    scene = Scene(hooks=Hooks(transform_context=hook))
    result, took = timed(scene.run())
    assert (result.status, took, len(scene.heard.of("hook.failed"))) == ("completed", seconds, failed)


def test_a_hook_that_hangs_ends_with_a_cancel() -> None:
    """It listens when it is told to stop."""
    result, seconds = timed(Scene(hooks=Hooks(transform_context=faulty_hook(list, "hook hangs"))).run(cancel_after=2))
    assert (result.status, seconds) == ("cancelled", 2)


# ---- listeners ----


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("listener raises", "the listener broke"),
        ("listener raises later", "the listener broke, later"),
        ("listener prompts", "Agent is already running"),
        ("listener waits", "which waits for it"),
    ],
)
def test_a_listener_that_fails_is_recorded(fault: str, error: str) -> None:
    """It raises, or does what is refused in its place; the run goes on."""
    scene = Scene(listener=(None, None, fault))
    result, _ = timed(scene.run())
    (recorded,) = scene.agent.subscriber_errors
    assert error in recorded.error
    assert result.status == "completed"


@pytest.mark.parametrize(("fault", "seconds"), [("listener slow@2", 2), ("listener slow", 0)])
def test_a_slow_listener_is_waited_for(fault: str, seconds: float) -> None:
    """The run takes the listener's time."""
    assert timed(Scene(listener=(fault,)).run())[1] == seconds


def test_a_listener_that_hangs_ends_with_a_cancel() -> None:
    """It is given up after the grace, or listens."""
    result, seconds = timed(Scene(listener=("listener hangs",), cancel_grace=1).run(cancel_after=2))
    assert (result.status, seconds <= 3) == ("cancelled", True)


@pytest.mark.parametrize(("fault", "status", "turns"), [
    ("listener cancels", "cancelled", 1), ("listener steers", "completed", 2), ("listener follows up", "completed", 2),
])  # fmt: skip
def test_a_listener_re_enters(fault: str, status: str, turns: int) -> None:
    """It commands the agent that it listens to, here at the end of the first turn's message."""
    scene = Scene(say("a"), say("b"), listener=(None,) * 6 + (fault,))
    result, _ = timed(scene.run())
    assert (result.status, result.turns) == (status, turns)


def test_what_is_injected_is_told_from_what_is_not() -> None:
    """An injected failure is an InjectedError."""
    with pytest.raises(InjectedError, match="look broke"):
        faulty_tool(look, Fault(FaultKind.TOOL_RAISES)).execute({}, None)
