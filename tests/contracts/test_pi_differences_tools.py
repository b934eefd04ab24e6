"""Where the Pi agent core 0.85.0 does what a guarantee forbids, second part: tools, hooks, and the face of the agent."""

from typing import Any

import pytest

from kernel import AgentBusyError, Finished, StopReason, ToolMessage, tool
from kernel.profiles import PI_0_85
from kernel.testing import ScriptedModel, call, say
from tests.contracts.pi_world import BEGIN, calling, pi_agent, quick, result, said_by, user
from tests.contracts.support import Agent, Hooks, lines, on, requests, simulated, told

# ---- tools and hooks ----


@simulated
async def test_difference_a_tool_that_returns_nothing_has_an_empty_result():
    """It is no failure of the run, and its siblings keep theirs."""

    @tool
    async def nothing() -> None:
        """Return nothing."""

    model = ScriptedModel([[call("A", "nothing"), call("B", "quick")], say("ok")])
    agent = Agent(model, tools=[nothing, quick], config=PI_0_85)
    assert (await agent.prompt("go")).status == "completed"
    assert agent.messages[2] == ToolMessage("A", "nothing", "")
    assert agent.messages[3].text == "fast done"


def _hook_boom(*arguments: Any) -> Any:
    raise RuntimeError("hook boom")


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@simulated
async def test_difference_a_failing_context_hook_falls_back(hook: str):
    """The run goes on with what the hook was given."""
    agent = pi_agent(say("ok"), hooks=Hooks(**{hook: _hook_boom}))
    assert (await agent.prompt("hi")).status == "completed"
    assert requests(agent.state.model) == [["user:hi"]]


@simulated
async def test_difference_a_hook_that_fails_after_a_call_leaves_its_result():
    """The failure is told, and the result is what the tool returned."""
    agent = pi_agent([call("A", "quick")], say("ok"), hooks=Hooks(after_tool_result=_hook_boom))
    recorder, _ = await told(agent)
    assert (agent.messages[2].text, agent.messages[2].is_error) == ("fast done", False)
    assert len(recorder.of("hook.failed")) == 1


@simulated
async def test_difference_arguments_can_not_be_changed_by_a_hook():
    """The hook's arguments are a copy: the tool gets those that were checked."""

    def before(wanted: Any, arguments: dict[str, Any]) -> None:
        arguments["path"] = 5

    agent = pi_agent([call("A", "read", path="x")], say("ok"), hooks=Hooks(before_tool_call=before))
    await agent.prompt("hi")
    assert agent.messages[2].text == "text of x"


@simulated
async def test_difference_a_truncated_answer_closes_its_calls_together():
    """None is executed; all have ended before the first result is recorded, as in any parallel batch."""
    agent = pi_agent([call("A", "quick"), call("B", "quick"), Finished(StopReason.LENGTH)], say("ok"))
    recorder, ended = await told(agent)
    said = [line.split(" not executed")[0] for line in lines(recorder.events, "pi")]
    place = said.index("tool_execution_start A")
    assert said[place : place + 4] == [
        "tool_execution_start A", "tool_execution_end A", "tool_execution_start B", "tool_execution_end B",
    ]  # fmt: skip
    assert [event.executed for event in recorder.of("tool.ended")] == [False, False]
    assert ended.status == "completed"


@simulated
async def test_difference_calls_that_share_an_id_run_one_after_the_other():
    """What is said of one of them can't be taken for the other's; each has its own result."""
    agent = pi_agent([call("X", "slow"), call("X", "quick")], say("ok"))
    said, _ = await said_by(agent)
    place = said.index("tool_execution_start X")
    assert said[:place] == [*BEGIN, *user("hi"), *calling("X", "X")]
    assert said[place : place + 8] == [
        "tool_execution_start X", "tool_execution_end X slow done", *result("X", "slow done"),
        "tool_execution_start X", "tool_execution_end X fast done", *result("X", "fast done"),
    ]  # fmt: skip


# ---- the face ----


@simulated
async def test_difference_state_is_read_only():
    """Nothing of the state can be assigned, and the conversation can't be added to from a tool."""
    agent = pi_agent(say("ok"))
    for name in ("messages", "model", "tools", "system_prompt"):
        with pytest.raises(AttributeError):
            setattr(agent.state, name, None)
    with pytest.raises(AttributeError):
        agent.messages.append("injected")


@simulated
async def test_difference_a_configuration_takes_effect_at_the_next_turn():
    """What is configured in a run is used by its next turn."""
    other = ScriptedModel([say("other")])
    agent = pi_agent([call("A", "quick")], say("no"))
    on(agent, "tool.started", lambda: agent.configure(model=other))
    assert (await agent.prompt("hi")).final_text == "other"
    assert requests(other) == [["user:hi", "assistant:", "tool:A"]]


@simulated
async def test_difference_a_refusal_has_a_type_and_a_code():
    """A busy agent says so with an error that a program can tell from others."""
    agent = pi_agent(say("ok"))
    run = agent.prompt("hi")
    with pytest.raises(AgentBusyError) as error:
        agent.prompt("more")
    assert error.value.code == "AGENT_BUSY"
    await run


@pytest.mark.parametrize("message", [[], ["a", "b"]], ids=["none", "several"])
@simulated
async def test_difference_a_prompt_is_one_message(message: Any):
    """A list is refused, and nothing has changed."""
    agent = pi_agent(say("ok"))
    with pytest.raises(TypeError):
        agent.prompt(message)
    assert (len(agent.messages), agent.is_running) == (0, False)


@simulated
async def test_difference_streaming_is_not_running():
    """Between answers nothing streams, though a run is going."""
    agent, seen = pi_agent([call("A", "quick")], say("ok")), []
    on(agent, "tool.started", lambda: seen.append((agent.state.is_running, agent.state.is_streaming)))
    await told(agent)
    assert seen == [(True, False)]
