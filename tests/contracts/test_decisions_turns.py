"""What the documents leave open, second part: calls that do not run, errors that say nothing, and drain points."""

from typing import Any

import attrs
import pytest

from kernel import Block, Finished, KernelConfig, ModelError, ToolResult, tool
from kernel.profiles import DEFAULT
from kernel.testing import ScriptedModel, call, say
from tests.contracts.pi_world import finish
from tests.contracts.support import Agent, Hooks, every_profile, on, phases, read, requests, roles, simulated, told


def _agent(profile: KernelConfig, *answers: Any, hooks: Hooks | None = None, tools: Any = (), **changes: Any) -> Agent:
    config = attrs.evolve(profile, **changes)
    return Agent(ScriptedModel(answers), tools=[read, finish, *tools], hooks=hooks or Hooks(), config=config)


# ---- calls that do not run ----


def _results(agent: Agent) -> list[tuple[str, bool, bool]]:
    """Each result of the transcript: what it says first, whether it is an error, whether the body ran."""
    tools = [message for message in agent.messages if message.role == "tool"]
    return [(message.text.split(":")[0], message.is_error, message.executed) for message in tools]


@every_profile
@simulated
async def test_calls_of_a_truncated_answer_are_told_and_not_executed(profile: KernelConfig):
    """Each starts and ends as an error, its result says that it was not executed, and the model is asked again."""
    agent = _agent(profile, [call("A", "read"), call("B", "read"), Finished("length")], say("x"))
    recorder, result = await told(agent)
    assert [event.call_id for event in recorder.of("tool.started")] == ["A", "B"]
    assert [(event.call_id, event.is_error, event.executed) for event in recorder.of("tool.ended")] == [
        ("A", True, False), ("B", True, False),
    ]  # fmt: skip
    assert _results(agent) == [("not executed", True, False)] * 2
    assert (result.status, result.turns) == ("completed", 2)


@pytest.mark.parametrize("moment", ["message.ended", "tool.started"])
@every_profile
@simulated
async def test_calls_that_a_cancel_prevents_are_told_and_not_executed(profile: KernelConfig, moment: str):
    """From the moment at which the answer is whole, each of its calls has its start, its end and its result."""
    agent = _agent(profile, [call("A", "read"), call("B", "read")], say("no"), tool_execution="sequential")
    on(agent, moment, agent.cancel)
    recorder, _ = await told(agent)
    assert [event.call_id for event in recorder.of("tool.started")] == ["A", "B"]
    assert [event.executed for event in recorder.of("tool.ended")] == [False, False]
    assert _results(agent) == [("not executed", True, False)] * 2


@every_profile
@simulated
async def test_calls_that_were_executed_before_a_cancel_keep_their_results(profile: KernelConfig):
    """What is finished is kept, and only the others say that they were not executed."""
    agent = _agent(profile, [call("A", "read"), call("B", "read")], say("no"), tool_execution="sequential")
    on(agent, "tool.ended", agent.cancel)
    await told(agent)
    assert _results(agent) == [("text of notes.txt", False, True), ("not executed", True, False)]


@pytest.mark.parametrize("moment", ["message.ended", "tool.started", "tool.ended", "turn.ended"])
@every_profile
@simulated
async def test_no_hook_and_no_body_runs_after_a_cancel(profile: KernelConfig, moment: str):
    """Whatever was due next, of this call, of the next one or of the turn, is not begun."""
    after: list[str] = []

    def note(name: str, answer: Any = None) -> Any:
        return lambda *arguments: (after.append(name), answer if answer is None else arguments[0])[1]

    @tool
    async def body() -> str:
        """Note that it runs."""
        after.append("body")
        return ""

    hooks = Hooks(
        transform_context=note("transform_context", 1), convert_to_llm=note("convert_to_llm", 1),
        before_tool_call=note("before"), after_tool_result=note("after"), should_stop_after_turn=note("stop"),
    )  # fmt: skip
    calls = [call("A", "body"), call("B", "body")]
    agent = _agent(profile, calls, say("no"), tools=[body], hooks=hooks, tool_execution="sequential")
    on(agent, moment, lambda: (agent.cancel(), after.clear()))
    assert (await agent.prompt("Hi")).status == "cancelled"
    assert after == []


@pytest.mark.parametrize("stop", ["stop", "tool_use", None])
@every_profile
@simulated
async def test_calls_decide_whether_tools_run_and_not_the_stop_reason(profile: KernelConfig, stop: Any):
    """Calls run after any stop reason of a whole answer, and none are waited for when there are none."""
    agent = _agent(profile, [call("A", "read"), *([Finished(stop)] if stop else [])], ["x", Finished("tool_use")])
    _, result = await told(agent)
    assert (_results(agent), result.status) == ([("text of notes.txt", False, True)], "completed")
    assert result.turns == 2


@every_profile
@simulated
async def test_an_empty_answer_is_a_completed_empty_message(profile: KernelConfig):
    """A model may say nothing; that is its answer."""
    agent = _agent(profile, [])
    _, result = await told(agent)
    assert (result.status, result.final_text, roles(agent.messages)) == ("completed", "", ["user:Hi", "assistant:"])


class _Mute(Exception):
    """An error that says nothing."""

    def __str__(self) -> str:
        return " "


@tool
async def mute() -> str:
    """Raise without a word."""
    raise _Mute


@tool
async def silent(blank: str) -> ToolResult:
    """Say that it failed, and no more."""
    return ToolResult(blank, is_error=True)


def _raises_mutely(*arguments: Any) -> Any:
    raise _Mute


SAYS_NOTHING: dict[str, tuple[Any, Any]] = {
    "a tool that raises": (call("A", "mute"), None),
    "a result that is empty": (call("A", "silent", blank=""), None),
    "a result that is blank": (call("A", "silent", blank=" \n"), None),
    "a block": (call("A", "read"), lambda *arguments: Block("")),
    "a blank block": (call("A", "read"), lambda *arguments: Block(" ")),
    "an empty reason": (call("A", "read"), lambda *arguments: ""),
    "a blank reason": (call("A", "read"), lambda *arguments: "\t"),
    "a hook that raises": (call("A", "read"), _raises_mutely),
}


@pytest.mark.parametrize("name", SAYS_NOTHING)
@simulated
async def test_the_error_of_a_call_is_never_empty(name: str):
    """A model can't learn from an error that says nothing: event and result have a text."""
    asked, hook = SAYS_NOTHING[name]
    agent = _agent(DEFAULT, [asked], say("x"), tools=[mute, silent], hooks=Hooks(before_tool_call=hook))
    recorder, _ = await told(agent)
    (ended,) = recorder.of("tool.ended")
    assert ended.is_error
    assert ended.text.strip()
    assert agent.messages[2].text == ended.text


@pytest.mark.parametrize("error", [_Mute(), ModelError(""), ModelError(" ")])
@simulated
async def test_the_error_of_a_run_is_never_empty(error: Exception):
    """The failure's message and the state tell at least what kind of error it was."""
    agent = _agent(DEFAULT, ["par", error])
    await told(agent)
    assert agent.messages[-1].error == agent.state.error_message == type(error).__name__


@simulated
async def test_the_error_of_a_hook_or_listener_is_never_empty():
    """What is reported of them has a text too."""
    hooks = Hooks(transform_context=_raises_mutely, should_stop_after_turn=_raises_mutely)
    agent = _agent(DEFAULT, say("x"), hooks=hooks)
    on(agent, "turn.started", _raises_mutely)
    recorder, _ = await told(agent)
    said = [event.error for event in recorder.of("hook.failed", "subscriber.failed")]
    assert said == ["_Mute"] * 3
    assert [each.error for each in agent.subscriber_errors] == ["_Mute"]


# ---- drain points ----


@pytest.mark.parametrize("moment", ["while idle", "run.started", "turn.started", "message.accepted"])
@every_profile
@simulated
async def test_the_first_turn_drains_steering_once_after_the_prompt(profile: KernelConfig, moment: str):
    """What was queued until the prompt had been told joins it; the second message waits for the next turn."""
    agent = _agent(profile, say("a"), say("b"))

    def both() -> None:
        agent.steer("1")
        agent.steer("2")

    both() if moment == "while idle" else on(agent, moment, both)
    await told(agent)
    assert requests(agent.state.model) == [["user:Hi", "user:1"], ["user:Hi", "user:1", "assistant:a", "user:2"]]


@every_profile
@simulated
async def test_the_message_that_was_drained_brings_no_other_with_it(profile: KernelConfig):
    """What a listener of the drained message queues waits: the first turn drains once."""
    agent = _agent(profile, say("a"), say("b"))
    agent.steer("1")
    on(agent, "message.accepted", lambda: agent.steer("2"), nth=2)
    await told(agent)
    assert requests(agent.state.model)[0] == ["user:Hi", "user:1"]


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@every_profile
@simulated
async def test_a_continue_drains_once(profile: KernelConfig, queue: str):
    """One that began with steering sends it alone; one that began with a follow-up takes steering along."""
    agent = _agent(profile, say("a"), say("b"), say("c"))
    await agent.prompt("Hi")
    getattr(agent, queue)("1")
    on(agent, "message.accepted", lambda: agent.steer("2"))
    await agent.continue_()
    first = requests(agent.state.model)[1][2:]
    assert first == (["user:1"] if queue == "steer" else ["user:1", "user:2"])


@pytest.mark.parametrize(("moment", "joins"), [("turn.ended", True), ("turn.started", False)])
@every_profile
@simulated
async def test_a_later_turn_takes_its_messages_before_it_starts(profile: KernelConfig, moment: str, joins: bool):
    """Queued when a turn has ended, a message opens the next one; queued when that has started, it waits for its end."""
    agent = _agent(profile, [call("A", "read")], say("b"), say("c"))
    on(agent, moment, lambda: agent.steer("left"), nth=1 if joins else 2)
    recorder, _ = await told(agent)
    when = ["user:left" in asked for asked in requests(agent.state.model)]
    assert when == ([False, True] if joins else [False, False, True])
    names = [event.type for event in recorder.of("turn.started", "message.accepted", "turn.ended")]
    assert names[-3:] == ["turn.started", "message.accepted", "turn.ended"]


@every_profile
@simulated
async def test_a_follow_up_enters_when_nothing_steers_and_nothing_is_owed(profile: KernelConfig):
    """Not while results wait, not while steering waits, and then before the run would end."""
    agent = _agent(profile, [call("A", "read")], say("b"), say("c"), say("d"))
    agent.follow_up("then")
    on(agent, "turn.ended", lambda: agent.steer("left"), nth=2)
    await told(agent)
    assert ["user:then" in asked for asked in requests(agent.state.model)] == [False, False, False, True]


@every_profile
@simulated
async def test_each_completed_turn_passes_the_boundaries(profile: KernelConfig):
    """`steering` after each; `follow_up` after those with which the run could end."""
    agent = _agent(profile, [call("A", "read")], say("b"), say("c"), say("d"))
    agent.follow_up("then")
    on(agent, "turn.ended", lambda: agent.steer("left"), nth=2)
    recorder, _ = await told(agent)
    assert phases(recorder, only="turn steering follow_up") == [
        "turn", "steering", "turn", "steering", "turn", "steering", "follow_up", "turn", "steering", "follow_up",
    ]  # fmt: skip
