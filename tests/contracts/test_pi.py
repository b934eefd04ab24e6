"""The Pi agent core 0.85.0: where our guarantees allow it, the profile does what it does, event by event.

What it was seen to do is told here in its own vocabulary, through the dialect `pi`; its marks where a block of text begins
and ends are no events of ours. Queues, owners and listeners are in `test_pi_queues.py`; where we differ, in
`test_pi_differences.py`.
"""

from typing import Any

import pytest

from kernel import Finished, ModelError, StopReason, ToolContext, tool
from kernel.profiles import PI_0_85
from kernel.testing import ScriptedModel, call, say
from tests.contracts.pi_world import BEGIN, END, answer, calling, pi_agent, result, said_by, user
from tests.contracts.support import Agent, Hooks, heard, lines, on, requests, roles, simulated

# ---- plain runs ----


@simulated
async def test_a_text_turn():
    """One answer: the prompt, its pieces, the turn, the end."""
    said, _ = await said_by(pi_agent(say("Hel", "lo")))
    assert said == [
        *BEGIN, *user("hi"), "message_start assistant", "message_update Hel", "message_update lo",
        "message_end assistant Hello stop", "turn_end", *END,
    ]  # fmt: skip


@simulated
async def test_b_two_parallel_tools():
    """Calls start in source order, end as they complete, and their results come in source order after both."""
    said, _ = await said_by(pi_agent([call("A", "slow"), call("B", "quick")], say("ok")), "go")
    assert said == [
        *BEGIN, *user("go"), *calling("A", "B"), "tool_execution_start A", "tool_execution_start B",
        "tool_execution_end B fast done", "tool_execution_end A slow done", *result("A", "slow done"),
        *result("B", "fast done"), "turn_end [A,B]", "turn_start", *answer("ok"), *END,
    ]  # fmt: skip


@simulated
async def test_c_steering_in_the_tools_and_a_follow_up():
    """Steering enters with the next turn, the follow-up when nothing else is left, each in a turn of this run."""
    agent = pi_agent([call("A", "slow"), call("B", "quick")], say("1"), say("2"))
    agent.follow_up("FOLLOWUP")
    on(agent, "tool.started", lambda: agent.steer("STEER"))
    said, _ = await said_by(agent, "go")
    place = said.index("turn_end [A,B]")
    assert said[place:] == [
        "turn_end [A,B]", "turn_start", *user("STEER"), *answer("1"), "turn_start", *user("FOLLOWUP"), *answer("2"), *END,
    ]  # fmt: skip
    assert requests(agent.state.model)[2] == [
        "user:go", "assistant:", "tool:A", "tool:B", "user:STEER", "assistant:1", "user:FOLLOWUP",
    ]  # fmt: skip


async def _aborted() -> tuple[Agent, list[str]]:
    agent = pi_agent(say("a", "b", "c"), say("1"), say("2"))
    agent.follow_up("F")
    on(agent, "message.updated", lambda: (agent.steer("S"), agent.abort()), nth=2)
    said, _ = await said_by(agent)
    return agent, said


@simulated
async def test_d_abort_in_the_answer():
    """What had been said stays, marked as aborted; turn and run end; both queues are kept."""
    agent, said = await _aborted()
    assert said == [
        *BEGIN, *user("hi"), "message_start assistant", "message_update a", "message_update b",
        "message_end assistant ab aborted", "turn_end", *END,
    ]  # fmt: skip
    assert [message.text for message in (*agent.queued.steering, *agent.queued.follow_up)] == ["S", "F"]
    assert (agent.messages[-1].text, agent.messages[-1].stop) == ("ab", StopReason.ABORTED)


@simulated
async def test_d2_continue_after_an_abort():
    """It begins with the queued steering, and the follow-up comes at the end of that run."""
    agent, _ = await _aborted()
    recorder = heard(agent)
    await agent.continue_()
    assert lines(recorder.events, "pi") == [
        *BEGIN, *user("S"), *answer("1"), "turn_start", *user("F"), *answer("2"), *END,
    ]  # fmt: skip


@simulated
async def test_d3_the_next_prompt_after_an_abort():
    """Steering that is left from before joins it, after it."""
    agent, _ = await _aborted()
    agent.clear_queues()
    agent.steer("STALE")
    said, _ = await said_by(agent, "new")
    assert said == [*BEGIN, *user("new"), *user("STALE"), *answer("1"), *END]


@simulated
async def test_f_an_error_before_the_answer():
    """The failure is an assistant message; the follow-up stays queued; the prompt resolves."""
    agent = pi_agent([ModelError("529 overloaded")])
    agent.follow_up("F")
    said, ended = await said_by(agent)
    failure = ["message_start assistant", "message_end assistant error (529 overloaded)"]
    assert said == [*BEGIN, *user("hi"), *failure, "turn_end", *END]
    assert (ended.status, agent.state.error_message) == ("failed", "529 overloaded")
    assert len(agent.queued.follow_up) == 1


@simulated
async def test_f2_an_error_in_the_answer():
    """What had been said stays, and its message ends with the error."""
    said, _ = await said_by(pi_agent(["par", ModelError("socket hang up")]))
    assert said == [
        *BEGIN, *user("hi"), "message_start assistant", "message_update par",
        "message_end assistant par error (socket hang up)", "turn_end", *END,
    ]  # fmt: skip


@simulated
async def test_f3_a_provider_that_throws_at_once():
    """It is a failure like any other, with all brackets closed."""

    def boom(request: Any) -> Any:
        raise RuntimeError("boom")

    said, _ = await said_by(pi_agent(boom))
    failure = ["message_start assistant", "message_end assistant error (boom)"]
    assert said == [*BEGIN, *user("hi"), *failure, "turn_end", *END]


# ---- unusual answers ----


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        ([], "message_end assistant stop"),
        ([Finished(StopReason.TOOL_USE)], "message_end assistant toolUse"),
        (["cut", Finished(StopReason.LENGTH)], "message_end assistant cut length"),
        (["a", Finished(), "more"], "message_end assistant a stop"),
    ],
    ids=["h3 empty", "h4 tool use without calls", "h7 length", "bb second end"],
)
@simulated
async def test_h_an_unusual_answer_is_an_answer(parts: Any, ends: str):
    """Empty, without the calls that it announced, at its limit, or with more after its end: the run completes."""
    said, ended = await said_by(pi_agent(parts))
    assert ended.status == "completed"
    assert said[-3:] == [ends, "turn_end", "agent_end"]


@simulated
async def test_h5_calls_decide_and_not_the_stop_reason():
    """The calls of an answer that ended with stop are executed."""
    said, _ = await said_by(pi_agent([call("A", "quick"), Finished(StopReason.STOP)], say("ok")))
    assert "tool_execution_end A fast done" in said


@pytest.mark.parametrize(
    ("name", "arguments"), [("nowhere", {}), ("read", {"path": 5})], ids=["i1 unknown", "i2 arguments"]
)
@simulated
async def test_i_a_call_that_cannot_run_ends_before_the_next_starts(name: str, arguments: Any):
    """It is an error result at once, and the run goes on."""
    said, ended = await said_by(pi_agent([call("A", name, **arguments), call("B", "quick")], say("ok")))
    tools = [line.split()[:2] for line in said if line.startswith("tool_execution")]
    assert [line.removeprefix("tool_execution_") for line, _ in tools] == ["start", "end", "start", "end"]
    assert [id for _, id in tools] == ["A", "A", "B", "B"]
    assert ended.status == "completed"


@simulated
async def test_i5_a_late_update_is_no_event():
    """What a tool says after its end is not heard."""
    later: list[Any] = []

    @tool
    async def leave(context: ToolContext) -> str:
        """Talk on afterwards."""
        context.update("1")
        later.append(context)
        return "t"

    agent = Agent(ScriptedModel([[call("A", "leave")], say("ok")]), tools=[leave], config=PI_0_85)
    on(agent, "turn.ended", lambda: later[0].update("2"))
    said, _ = await said_by(agent)
    assert [line for line in said if "update" in line and " A " in line] == ["tool_execution_update A 1"]


@simulated
async def test_ff_a_tool_that_throws_leaves_its_sibling_alone():
    """One result is an error, the other is what its tool returned."""
    agent = pi_agent([call("A", "fail"), call("B", "slow")], say("ok"))
    await said_by(agent)
    assert [(message.text, message.is_error) for message in agent.messages[2:4]] == [
        ("disk on fire", True), ("slow done", False),
    ]  # fmt: skip


@simulated
async def test_sequential_execution_records_each_result_after_its_call():
    """With sequential tools, a result message follows the end of its call, before the next call starts."""
    said, _ = await said_by(pi_agent([call("A", "slow"), call("B", "quick")], say("ok"), tool_execution="sequential"))
    place = said.index("tool_execution_start A")
    assert said[place : place + 9] == [
        "tool_execution_start A", "tool_execution_end A slow done", *result("A", "slow done"),
        "tool_execution_start B", "tool_execution_end B fast done", *result("B", "fast done"), "turn_end [A,B]",
    ]  # fmt: skip


# ---- terminate and stop ----


@simulated
async def test_j1_all_tools_terminate():
    """The results need no answer, and the run ends."""
    agent = pi_agent([call("A", "finish"), call("B", "finish")])
    said, ended = await said_by(agent)
    assert said[-2:] == ["turn_end [A,B]", "agent_end"]
    assert (ended.status, len(agent.state.model.requests)) == ("completed", 1)


@simulated
async def test_j2_not_all_tools_terminate():
    """One result that needs an answer is enough to go on."""
    agent = pi_agent([call("A", "finish"), call("B", "quick")], say("ok"))
    said, _ = await said_by(agent)
    assert said[-6:] == ["turn_start", *answer("ok"), "agent_end"]


@simulated
async def test_j3_terminate_with_queued_messages():
    """Steering and follow-up are delivered all the same."""
    agent = pi_agent([call("A", "finish")], say("1"), say("2"))
    on(agent, "tool.started", lambda: (agent.steer("S"), agent.follow_up("F")))
    said, _ = await said_by(agent, "go")
    place = said.index("turn_end [A]")
    assert said[place + 1 :] == [
        "turn_start", *user("S"), *answer("1"), "turn_start", *user("F"), *answer("2"), "agent_end",
    ]  # fmt: skip


async def _stopped() -> Agent:
    answers = iter([True, False])
    agent = pi_agent([call("A", "quick")], say("ok"), hooks=Hooks(should_stop_after_turn=lambda state: next(answers)))
    agent.follow_up("F")
    said, _ = await said_by(agent, "go")
    assert said[-2:] == ["turn_end [A]", "agent_end"]
    return agent


@simulated
async def test_x_a_stop_after_the_turn():
    """The run ends after the turn's results; no queue is looked at."""
    agent = await _stopped()
    assert roles(agent.messages) == ["user:go", "assistant:", "tool:A"]
    assert len(agent.queued.follow_up) == 1


@simulated
async def test_x2_continue_after_a_stop():
    """The results are answered, without a new message before."""
    agent = await _stopped()
    agent.clear_queues()
    recorder = heard(agent)
    await agent.continue_()
    assert lines(recorder.events, "pi") == [*BEGIN, *answer("ok"), *END]


@simulated
async def test_k1_a_hook_that_throws_before_a_call():
    """It is that call's error result, before the next call starts."""

    def before(asked: Any, arguments: Any) -> None:
        if asked.id == "A":
            raise RuntimeError("before boom")

    agent = pi_agent([call("A", "quick"), call("B", "quick")], say("ok"), hooks=Hooks(before_tool_call=before))
    said, _ = await said_by(agent)
    place = said.index("tool_execution_start A")
    assert said[place : place + 3] == [
        "tool_execution_start A", "tool_execution_end A before boom !", "tool_execution_start B",
    ]  # fmt: skip
