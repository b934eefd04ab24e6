"""The Pi agent core 0.85.0: where our guarantees allow it, the profile does what it does, event by event.

What it was seen to do is told here in its own vocabulary, through the dialect `pi`; its marks where a block of text begins
and ends are no events of ours. Where a guarantee forbids it, see `test_pi_differences.py`.
"""

import asyncio
from typing import Any

import attrs
import pytest

from kernel import AgentBusyError, Finished, ModelError, NothingToContinueError, StopReason, ToolContext, ToolResult, tool
from kernel.profiles import PI_0_85
from kernel.testing import Gates, Recorder, ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    Event,
    Hooks,
    RunResult,
    fail,
    heard,
    lines,
    on,
    passing,
    read,
    requests,
    roles,
    simulated,
    told,
)

USER = ["message_start user {0}", "message_end user {0}"]


def user(text: str) -> list[str]:
    """The lines of a user message."""
    return [line.format(text) for line in USER]


def answer(text: str) -> list[str]:
    """The lines of an answer in one piece, and of the end of its turn."""
    return ["message_start assistant", f"message_update {text}", f"message_end assistant {text} stop", "turn_end"]


def calling(*ids: str) -> list[str]:
    """The lines of an answer that only calls."""
    ends = f"message_end assistant toolUse [{','.join(ids)}]"
    return ["message_start assistant", *(f"message_update {id}" for id in ids), ends]


def result(id: str, text: str) -> list[str]:
    """The lines of a result message."""
    return [f"message_start tool {id} {text}", f"message_end tool {id} {text}"]


BEGIN, END = ["agent_start", "turn_start"], ["agent_end"]


@tool
async def quick() -> str:
    """End at once."""
    return "fast done"


@tool
async def slow(context: ToolContext) -> str:
    """End when the loop has nothing else to do."""
    await passing(1)
    return "slow done"


@tool
async def finish() -> ToolResult:
    """Say that no answer is needed."""
    return ToolResult("t", terminate=True)


def _agent(*answers: Any, hooks: Hooks | None = None, **changes: Any) -> Agent:
    tools = [read, fail, quick, slow, finish]
    return Agent(ScriptedModel(answers), tools=tools, hooks=hooks or Hooks(), config=attrs.evolve(PI_0_85, **changes))


async def _run(agent: Agent, prompt: str = "hi") -> tuple[list[str], RunResult]:
    recorder, result = await told(agent, prompt)
    return lines(recorder.events, "pi"), result


# ---- plain runs ----


@simulated
async def test_a_text_turn():
    """One answer: the prompt, its pieces, the turn, the end."""
    said, _ = await _run(_agent(say("Hel", "lo")))
    assert said == [
        *BEGIN, *user("hi"), "message_start assistant", "message_update Hel", "message_update lo",
        "message_end assistant Hello stop", "turn_end", *END,
    ]  # fmt: skip


@simulated
async def test_b_two_parallel_tools():
    """Calls start in source order, end as they complete, and their results come in source order after both."""
    said, _ = await _run(_agent([call("A", "slow"), call("B", "quick")], say("ok")), "go")
    assert said == [
        *BEGIN, *user("go"), *calling("A", "B"), "tool_execution_start A", "tool_execution_start B",
        "tool_execution_end B fast done", "tool_execution_end A slow done", *result("A", "slow done"),
        *result("B", "fast done"), "turn_end [A,B]", "turn_start", *answer("ok"), *END,
    ]  # fmt: skip


@simulated
async def test_c_steering_in_the_tools_and_a_follow_up():
    """Steering enters with the next turn, the follow-up when nothing else is left, each in a turn of this run."""
    agent = _agent([call("A", "slow"), call("B", "quick")], say("1"), say("2"))
    agent.follow_up("FOLLOWUP")
    on(agent, "tool.started", lambda: agent.steer("STEER"))
    said, _ = await _run(agent, "go")
    place = said.index("turn_end [A,B]")
    assert said[place:] == [
        "turn_end [A,B]", "turn_start", *user("STEER"), *answer("1"), "turn_start", *user("FOLLOWUP"), *answer("2"), *END,
    ]  # fmt: skip
    assert requests(agent.state.model)[2] == [
        "user:go", "assistant:", "tool:A", "tool:B", "user:STEER", "assistant:1", "user:FOLLOWUP",
    ]  # fmt: skip


async def _aborted() -> tuple[Agent, list[str]]:
    agent = _agent(say("a", "b", "c"), say("1"), say("2"))
    agent.follow_up("F")
    on(agent, "message.updated", lambda: (agent.steer("S"), agent.abort()), nth=2)
    said, _ = await _run(agent)
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
    said, _ = await _run(agent, "new")
    assert said == [*BEGIN, *user("new"), *user("STALE"), *answer("1"), *END]


@simulated
async def test_f_an_error_before_the_answer():
    """The failure is an assistant message; the follow-up stays queued; the prompt resolves."""
    agent = _agent([ModelError("529 overloaded")])
    agent.follow_up("F")
    said, ended = await _run(agent)
    failure = ["message_start assistant", "message_end assistant error (529 overloaded)"]
    assert said == [*BEGIN, *user("hi"), *failure, "turn_end", *END]
    assert (ended.status, agent.state.error_message) == ("failed", "529 overloaded")
    assert len(agent.queued.follow_up) == 1


@simulated
async def test_f2_an_error_in_the_answer():
    """What had been said stays, and its message ends with the error."""
    said, _ = await _run(_agent(["par", ModelError("socket hang up")]))
    assert said == [
        *BEGIN, *user("hi"), "message_start assistant", "message_update par",
        "message_end assistant par error (socket hang up)", "turn_end", *END,
    ]  # fmt: skip


@simulated
async def test_f3_a_provider_that_throws_at_once():
    """It is a failure like any other, with all brackets closed."""

    def boom(request: Any) -> Any:
        raise RuntimeError("boom")

    said, _ = await _run(_agent(boom))
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
    said, ended = await _run(_agent(parts))
    assert ended.status == "completed"
    assert said[-3:] == [ends, "turn_end", "agent_end"]


@simulated
async def test_h5_calls_decide_and_not_the_stop_reason():
    """The calls of an answer that ended with stop are executed."""
    said, _ = await _run(_agent([call("A", "quick"), Finished(StopReason.STOP)], say("ok")))
    assert "tool_execution_end A fast done" in said


@pytest.mark.parametrize(("name", "arguments"), [("nowhere", {}), ("read", {"path": 5})], ids=["i1 unknown", "i2 arguments"])
@simulated
async def test_i_a_call_that_cannot_run_ends_before_the_next_starts(name: str, arguments: Any):
    """It is an error result at once, and the run goes on."""
    said, ended = await _run(_agent([call("A", name, **arguments), call("B", "quick")], say("ok")))
    tools = [line.split()[:2] for line in said if line.startswith("tool_execution")]
    assert [line.removeprefix("tool_execution_") for line, _ in tools] == ["start", "end", "start", "end"]
    assert [id for _, id in tools] == ["A", "A", "B", "B"]
    assert ended.status == "completed"


@simulated
async def test_i3_two_calls_of_one_id():
    """Both run, and both have their result, in source order."""
    agent = _agent([call("X", "slow"), call("X", "quick")], say("ok"))
    said, _ = await _run(agent)
    ends = [line for line in said if line.startswith("tool_execution_end")]
    assert ends == ["tool_execution_end X fast done", "tool_execution_end X slow done"]
    assert [message.text for message in agent.messages[2:4]] == ["slow done", "fast done"]


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
    said, _ = await _run(agent)
    assert [line for line in said if "update" in line and " A " in line] == ["tool_execution_update A 1"]


@simulated
async def test_ff_a_tool_that_throws_leaves_its_sibling_alone():
    """One result is an error, the other is what its tool returned."""
    agent = _agent([call("A", "fail"), call("B", "slow")], say("ok"))
    await _run(agent)
    assert [(message.text, message.is_error) for message in agent.messages[2:4]] == [
        ("disk on fire", True), ("slow done", False),
    ]  # fmt: skip


@simulated
async def test_sequential_execution_records_each_result_after_its_call():
    """With sequential tools, a result message follows the end of its call, before the next call starts."""
    said, _ = await _run(_agent([call("A", "slow"), call("B", "quick")], say("ok"), tool_execution="sequential"))
    place = said.index("tool_execution_start A")
    assert said[place : place + 9] == [
        "tool_execution_start A", "tool_execution_end A slow done", *result("A", "slow done"),
        "tool_execution_start B", "tool_execution_end B fast done", *result("B", "fast done"), "turn_end [A,B]",
    ]  # fmt: skip


# ---- terminate and stop ----


@simulated
async def test_j1_all_tools_terminate():
    """The results need no answer, and the run ends."""
    agent = _agent([call("A", "finish"), call("B", "finish")])
    said, ended = await _run(agent)
    assert said[-2:] == ["turn_end [A,B]", "agent_end"]
    assert (ended.status, len(agent.state.model.requests)) == ("completed", 1)


@simulated
async def test_j2_not_all_tools_terminate():
    """One result that needs an answer is enough to go on."""
    agent = _agent([call("A", "finish"), call("B", "quick")], say("ok"))
    said, _ = await _run(agent)
    assert said[-6:] == ["turn_start", *answer("ok"), "agent_end"]


@simulated
async def test_j3_terminate_with_queued_messages():
    """Steering and follow-up are delivered all the same."""
    agent = _agent([call("A", "finish")], say("1"), say("2"))
    on(agent, "tool.started", lambda: (agent.steer("S"), agent.follow_up("F")))
    said, _ = await _run(agent, "go")
    place = said.index("turn_end [A]")
    assert said[place + 1 :] == [
        "turn_start", *user("S"), *answer("1"), "turn_start", *user("F"), *answer("2"), "agent_end",
    ]  # fmt: skip


async def _stopped() -> Agent:
    answers = iter([True, False])
    agent = _agent([call("A", "quick")], say("ok"), hooks=Hooks(should_stop_after_turn=lambda state: next(answers)))
    agent.follow_up("F")
    said, _ = await _run(agent, "go")
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

    said, _ = await _run(_agent([call("A", "quick"), call("B", "quick")], say("ok"), hooks=Hooks(before_tool_call=before)))
    place = said.index("tool_execution_start A")
    assert said[place : place + 3] == [
        "tool_execution_start A", "tool_execution_end A before boom !", "tool_execution_start B",
    ]  # fmt: skip


# ---- queues ----


@simulated
async def test_l3_a_follow_up_at_the_very_end_waits():
    """Queued by whoever hears the end, it stays for the next run."""
    agent = _agent(say("ok"))
    on(agent, "run.finished", lambda: agent.follow_up("F"))
    said, _ = await _run(agent)
    assert said == [*BEGIN, *user("hi"), *answer("ok"), *END]
    assert len(agent.queued.follow_up) == 1


@simulated
async def test_l4_steering_wakes_a_finished_answer():
    """Queued by whoever hears the end of the last turn, it opens another one."""
    agent = _agent(say("1"), say("2"))
    on(agent, "turn.ended", lambda: agent.steer("S"))
    said, _ = await _run(agent)
    assert said == [*BEGIN, *user("hi"), *answer("1"), "turn_start", *user("S"), *answer("2"), *END]


def _queue_all(agent: Agent) -> None:
    for text in ("S1", "S2"):
        agent.steer(text)
    for text in ("F1", "F2"):
        agent.follow_up(text)


@simulated
async def test_l5_queues_are_drained_one_at_a_time():
    """The first steering joins the prompt; each other message has a turn of its own."""
    agent = _agent(say("1"), say("2"), say("3"), say("4"))
    _queue_all(agent)
    said, _ = await _run(agent, "go")
    assert said == [
        *BEGIN, *user("go"), *user("S1"), *answer("1"), "turn_start", *user("S2"), *answer("2"),
        "turn_start", *user("F1"), *answer("3"), "turn_start", *user("F2"), *answer("4"), *END,
    ]  # fmt: skip


@simulated
async def test_l5_queues_may_be_drained_at_once():
    """With the other mode a whole queue enters at its boundary, as messages of their own."""
    agent = _agent(say("1"), say("2"), steering_mode="all", follow_up_mode="all")
    _queue_all(agent)
    said, _ = await _run(agent, "go")
    assert said == [
        *BEGIN, *user("go"), *user("S1"), *user("S2"), *answer("1"),
        "turn_start", *user("F1"), *user("F2"), *answer("2"), *END,
    ]  # fmt: skip


# ---- owners and listeners ----


@simulated
async def test_n_a_second_owner_is_refused():
    """Prompt, continue and reset throw while a run goes, a second prompt in the same step included."""
    agent = _agent(say("ok"))
    run = agent.prompt("1")
    for command in (lambda: agent.prompt("2"), agent.continue_, agent.reset):
        with pytest.raises(AgentBusyError):
            command()
    assert (await run).status == "completed"


@simulated
async def test_continue_without_work_is_refused():
    """On an empty conversation, and after an answer with nothing queued, it throws."""
    agent = _agent(say("ok"))
    with pytest.raises(NothingToContinueError):
        agent.continue_()
    await agent.prompt("hi")
    with pytest.raises(NothingToContinueError):
        agent.continue_()


@simulated
async def test_abort_while_idle_does_nothing():
    """It is no error and reaches no later run."""
    agent = _agent(say("ok"))
    agent.abort()
    assert (await agent.prompt("hi")).status == "completed"


@simulated
async def test_o2_listeners_are_strictly_serial():
    """The first is done with an event before the second hears it, and the run waits for both."""
    order: list[str] = []

    def listener(name: str) -> Any:
        async def listen(event: Event) -> None:
            order.append(f"{name} starts")
            await passing(1)
            order.append(f"{name} ends")

        return listen

    agent = _agent(say("ok"))
    agent.subscribe(listener("1"))
    agent.subscribe(listener("2"))
    await agent.prompt("hi")
    assert order == ["1 starts", "1 ends", "2 starts", "2 ends"] * (len(order) // 4)


@simulated
async def test_p_what_listeners_see_of_the_state():
    """A message is there at its end, a call pending at its start and not at its end, the agent running at the very end."""
    agent, seen = _agent([call("A", "quick")], say("ok")), []
    on(agent, "message.ended", lambda: seen.append(roles(agent.messages)))
    on(agent, "tool.started", lambda: seen.append(agent.state.pending_tool_calls))
    on(agent, "tool.ended", lambda: seen.append(agent.state.pending_tool_calls))
    on(agent, "run.finished", lambda: seen.append(agent.is_running))
    await agent.prompt("hi")
    assert seen == [["user:hi", "assistant:"], ("A",), (), True]


@simulated
async def test_r_unsubscribing_inside_a_listener():
    """The others hear every event."""
    agent = _agent(say("ok"))
    unsubscribe = agent.subscribe(lambda event: unsubscribe())
    recorder = Recorder()
    agent.subscribe(recorder)
    run = agent.prompt("hi")
    assert [event async for event in run] == recorder.events


@simulated
async def test_w_a_slow_listener_holds_the_stream_back():
    """The model is not read on before the listener of its last piece is done."""
    gates, produced = Gates(), []

    async def pieces(request: Any) -> Any:
        for part in say("a", "b", "c"):
            produced.append(asyncio.get_running_loop().time())
            yield part
        gates.open("read to the end")
        yield Finished()

    agent = _agent(pieces)
    agent.subscribe(lambda event: passing(50) if event.type == "message.updated" else None)
    await agent.prompt("hi")
    assert produced == [0, 50, 100]


@simulated
async def test_there_are_no_limits_and_no_retry():
    """Neither queues nor turns are counted, and a failure that may pass is not tried again."""
    agent = _agent(*[[call("A", "quick")]] * 205, say("ok"), [ModelError("529", retryable=True)])
    for number in range(300):
        agent.steer(str(number))
    assert len(agent.clear_queues().steering) == 300
    assert (await agent.prompt("hi")).turns == 206
    assert (await agent.prompt("hi")).status == "failed"
    assert len(agent.state.model.requests) == 207
