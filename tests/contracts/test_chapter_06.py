"""Chapter 06, part 1: the kernel's state, its methods, and the rule that no exception escapes a run.

Everything runs under the profile of the chapter. The other parts, in the chapter's order: `test_chapter_06_runs.py`
(cleanup, listeners, phases, order of events), `test_chapter_06_turns.py` (hooks, tools), `test_chapter_06_acceptance.py`.
"""

import asyncio
from typing import Any

import pytest

from kernel import ModelError, StopReason, TextDelta, ToolContext, UserMessage, tool
from kernel.profiles import CHAPTER_06
from kernel.testing import Gates, ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    Event,
    Finished,
    Hooks,
    check,
    heard,
    on,
    read,
    requests,
    roles,
    simulated,
    told,
)

# ---- the state ----


@simulated
async def test_the_state_has_what_the_chapter_lists():
    """Conversation, capabilities, model, effort, streaming, pending calls, failure and both queues can be looked up."""
    model = ScriptedModel()
    agent = Agent(model, tools=[read], system_prompt="Be kind.", reasoning_effort="high", config=CHAPTER_06)
    agent.steer("left")
    agent.follow_up("then")
    state = agent.state
    assert (list(state.messages), [each.name for each in state.tools]) == ([], ["read"])
    assert (state.model, state.system_prompt, state.reasoning_effort) == (model, "Be kind.", "high")
    assert (state.is_streaming, state.streaming_message, state.pending_tool_calls) == (False, None, ())
    assert (state.error_message, state.phase) == (None, "idle")
    assert state.queued.steering == (UserMessage("left"),)
    assert state.queued.follow_up == (UserMessage("then"),)


@simulated
async def test_is_streaming_is_true_while_parts_come():
    """The flag is up while a response arrives, and down while tools run and afterwards."""
    flags: list[bool] = []
    agent = Agent(ScriptedModel([["a", call("A", "read")], say("b")]), tools=[read], config=CHAPTER_06)
    for type in ("message.updated", "tool.started", "run.finished"):
        on(agent, type, lambda: flags.append(agent.state.is_streaming))
    await agent.prompt("Hi")
    assert flags == [True, False, False]


@simulated
async def test_is_streaming_says_that_a_request_is_in_progress():
    """A request that has been sent and not yet answered counts as streaming."""
    gates = Gates()
    agent = Agent(ScriptedModel([_held(gates)]), config=CHAPTER_06)
    run = agent.prompt("Hi")
    await gates.wait("asked")
    in_progress = agent.state.is_streaming
    gates.open("answer")
    await run
    assert in_progress


def _held(gates: Gates) -> Any:
    async def response(request: Any) -> Any:
        gates.open("asked")
        await gates.wait("answer")
        yield TextDelta("late")
        yield Finished()

    return response


@simulated
async def test_streaming_message_is_what_has_come_so_far():
    """The partial answer grows with its pieces, and is gone when the message has ended."""
    seen: list[Any] = []
    agent = Agent(ScriptedModel([say("Hel", "lo")]), config=CHAPTER_06)
    for nth in (1, 2):
        on(agent, "message.updated", lambda: seen.append(agent.state.streaming_message.text), nth=nth)
    on(agent, "message.ended", lambda: seen.append(agent.state.streaming_message))
    await agent.prompt("Hi")
    assert seen == ["Hel", "Hello", None]


@simulated
async def test_pending_tool_calls_are_those_that_execute():
    """A call's id is pending from its start to its end."""
    gates, seen = Gates(), []

    @tool
    async def hold() -> str:
        """Wait until the other one has ended."""
        await gates.wait("go")
        return "slow"

    agent = Agent(ScriptedModel([[call("A", "hold"), call("B", "read")], say("x")]), tools=[hold, read], config=CHAPTER_06)
    on(agent, "tool.started", lambda: seen.append(set(agent.state.pending_tool_calls)), nth=2)
    on(agent, "tool.ended", lambda: seen.append(set(agent.state.pending_tool_calls)))
    on(agent, "tool.ended", gates.opening("go"))
    on(agent, "turn.ended", lambda: seen.append(set(agent.state.pending_tool_calls)))
    await agent.prompt("Hi")
    assert seen == [{"A", "B"}, {"A"}, set()]


@simulated
async def test_error_message_is_the_reason_of_the_last_failure():
    """A failed run leaves its reason, and the next run starts without one."""
    seen: list[Any] = []
    agent = Agent(ScriptedModel([[ModelError("529")], say("x")]), config=CHAPTER_06)
    await agent.prompt("Hi")
    seen.append(agent.state.error_message)
    on(agent, "run.started", lambda: seen.append(agent.state.error_message))
    await agent.prompt("again")
    assert seen == ["529", None]


@simulated
async def test_a_tool_has_no_way_to_the_provider():
    """What a tool is given names its call and takes progress; neither the model nor the agent is in it."""
    given: list[str] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look at the context."""
        given.extend(name for name in dir(context) if not name.startswith("_"))
        return ""

    await Agent(ScriptedModel([[call("A", "look")], say("x")]), tools=[look], config=CHAPTER_06).prompt("Hi")
    assert {"call_id", "run_id", "cancelled", "update"} <= set(given)
    assert not {"model", "stream", "agent", "prompt", "messages"} & set(given)


# ---- the methods ----


@pytest.mark.parametrize("message", ["Hi", UserMessage("Hi")], ids=["text", "message"])
@simulated
async def test_prompt_takes_text_or_a_user_message(message: Any):
    """Both enter the conversation as the same message."""
    agent = Agent(ScriptedModel([say("Hello")]), config=CHAPTER_06)
    await agent.prompt(message)
    assert roles(agent.messages) == ["user:Hi", "assistant:Hello"]


@simulated
async def test_each_prompt_starts_a_run():
    """The agent is in a turn when `prompt` returns; two prompts are two runs, each with its own beginning and end."""
    agent = Agent(ScriptedModel([say("a"), say("b")]), config=CHAPTER_06)
    recorder = heard(agent)
    first = agent.prompt("1")
    assert (agent.phase, agent.is_running) == ("turn", True)
    await first
    second = agent.prompt("2")
    await second
    assert first.id != second.id
    assert [event.run_id for event in recorder.of("run.started")] == [first.id, second.id]
    assert [event.run_id for event in recorder.of("run.finished")] == [first.id, second.id]


@simulated
async def test_steering_and_follow_ups_take_messages():
    """Both queues take a user message, and it reaches the conversation as it was given."""
    agent = Agent(ScriptedModel([say("a"), say("b"), say("c")]), config=CHAPTER_06)
    agent.steer(UserMessage("left"))
    agent.follow_up(UserMessage("then"))
    await agent.prompt("Hi")
    assert roles(agent.messages) == ["user:Hi", "user:left", "assistant:a", "user:then", "assistant:b"]


@simulated
async def test_abort_stops_the_run_that_goes():
    """`abort` reaches the provider, and the next run knows nothing of it."""
    gates, stopped = Gates(), []

    async def hang(request: Any) -> Any:
        try:
            await gates.wait("never")
        except asyncio.CancelledError:
            stopped.append(request.id)
            raise
        yield Finished()

    agent = Agent(ScriptedModel([hang, say("fresh")]), config=CHAPTER_06)
    run = agent.prompt("Hi")
    agent.subscribe(lambda event: None)
    asyncio.get_running_loop().call_later(1, agent.abort)
    assert (await run).status == "cancelled"
    assert len(stopped) == 1
    assert (await agent.prompt("again")).final_text == "fresh"


@simulated
async def test_wait_for_idle_waits_for_the_run_and_for_nothing_else():
    """It returns at once while idle, and with the run while one goes."""
    agent = Agent(ScriptedModel([say("a")]), config=CHAPTER_06)
    await agent.wait_for_idle()
    run = agent.prompt("Hi")
    assert run.result is None
    await agent.wait_for_idle()
    assert (run.result.status, agent.phase) == ("completed", "idle")


@simulated
async def test_subscribe_returns_what_ends_the_subscription():
    """A listener hears each event until it is unsubscribed."""
    agent, seen = Agent(ScriptedModel([say("a"), say("b")]), config=CHAPTER_06), []
    unsubscribe = agent.subscribe(lambda event: seen.append(event.type))
    await agent.prompt("Hi")
    heard_of_one = len(seen)
    unsubscribe()
    await agent.prompt("again")
    assert seen[-1] == "run.finished"
    assert len(seen) == heard_of_one


# ---- rule 1: no exception escapes, each becomes a message ----


def _refuses(request: Any) -> Any:
    raise RuntimeError("boom")


async def _says_no_part(request: Any) -> Any:
    yield "a string is no part"


PROVIDERS = {
    "raises when it is asked": _refuses,
    "raises before the first part": [RuntimeError("boom")],
    "raises in the middle": ["par", RuntimeError("boom")],
    "breaks the protocol": _says_no_part,
    "finds the context too long": [ModelError("too long", overflow=True)],
}


@pytest.mark.parametrize("answer", PROVIDERS.values(), ids=PROVIDERS.keys())
@simulated
async def test_rule_1_a_failing_provider_becomes_an_assistant_message(answer: Any):
    """The failure is the last message, with stop reason error and events like any other; the agent works on."""
    agent = Agent(ScriptedModel([answer, say("back")]), config=CHAPTER_06)
    recorder, result = await told(agent)
    last = agent.messages[-1]
    assert (result.status, last.role, last.stop) == ("failed", "assistant", StopReason.ERROR)
    assert last.error
    assert [event.message for event in recorder.of("message.ended")] == [last]
    assert (await agent.prompt("again")).final_text == "back"


@simulated
async def test_rule_1_an_exception_of_a_context_hook_falls_back():
    """What the chapter says of the hook itself wins: its input is used, and the failure is told."""

    def boom(messages: Any) -> Any:
        raise RuntimeError("boom")

    model = ScriptedModel([say("a")])
    recorder, result = await told(Agent(model, hooks=Hooks(transform_context=boom), config=CHAPTER_06))
    assert (result.status, requests(model)) == ("completed", [["user:Hi"]])
    assert [event.error for event in recorder.of("hook.failed")] == ["boom"]


class _FailsAt:
    """A listener that raises at the nth event; *later* in the awaitable that it returns."""

    def __init__(self, nth: int, *, later: bool = False) -> None:
        self.left = nth
        self.later = later

    def __call__(self, event: Event) -> Any:
        self.left -= 1
        if self.left == 0:
            return self._fail() if self.later else _refuses(None)
        return None

    async def _fail(self) -> None:
        _refuses(None)


def _working() -> Agent:
    return Agent(ScriptedModel([["a", call("A", "read")], say("b"), say("c")]), tools=[read], config=CHAPTER_06)


PATH = 24
"""Events of a run of `_working`; the last one is `run.finished`."""


@simulated
async def test_rule_1_the_path_that_is_failed_below():
    """A run with one call has so many events, and the last two are the step into settling and the end."""
    recorder, _ = await told(_working())
    assert len(recorder.events) == PATH
    assert recorder.types[-2:] == ["phase.changed", "run.finished"]


@pytest.mark.parametrize("later", [False, True], ids=["at once", "awaited"])
@pytest.mark.parametrize("nth", range(1, PATH))
@simulated
async def test_rule_1_a_failing_subscriber_becomes_an_assistant_message(nth: int, later: bool):
    """Wherever it raises before the end, a message says so, nothing is left open, and the agent works on."""
    agent = _working()
    recorder = heard(agent)
    unsubscribe = agent.subscribe(_FailsAt(nth, later=later))
    result = await agent.prompt("Hi")
    last = agent.messages[-1]
    assert (result.status, last.role, last.stop, last.error) == ("failed", "assistant", StopReason.ERROR, "boom")
    assert check(recorder.events) == []
    unsubscribe()
    assert (await agent.prompt("again")).status == "completed"


@simulated
async def test_rule_1_a_subscriber_that_fails_at_the_end_is_recorded():
    """Nothing can follow the end of a run, so a failure of hearing it stays in the list of failures."""
    agent = _working()
    agent.subscribe(_FailsAt(PATH))
    recorder, result = await told(agent)
    assert (result.status, recorder.types[-1]) == ("completed", "run.finished")
    assert [failure.error for failure in agent.subscriber_errors] == ["boom"]


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a text")


@simulated
async def test_rule_1_holds_for_an_exception_without_a_text():
    """A subscriber's exception that raises when it is asked for its text ends the run too."""

    def listener(event: Event) -> None:
        if event.type == "message.ended":
            raise _Mute

    agent = _working()
    agent.subscribe(listener)
    assert (await agent.prompt("Hi")).status == "failed"


@simulated
async def test_rule_1_holds_for_a_subscriber_that_was_cancelled():
    """A cancellation that comes out of what a subscriber promised is a failure of it, as one that it raises at once is."""

    async def listener(event: Event) -> None:
        if event.type == "message.ended":
            raise asyncio.CancelledError("by something of the listener's own")

    agent = _working()
    agent.subscribe(listener)
    assert (await agent.prompt("Hi")).status == "failed"
