"""The Pi agent core 0.85.0, second part: queues, who may start a run, listeners, and what it does not limit."""

import asyncio
from typing import Any

import pytest

from kernel import AgentBusyError, Finished, ModelError, NothingToContinueError
from kernel.testing import Recorder, call, say
from tests.contracts.pi_world import BEGIN, END, answer, pi_agent, said_by, user
from tests.contracts.support import Agent, Event, on, passing, roles, simulated

# ---- queues ----


@simulated
async def test_l3_a_follow_up_at_the_very_end_waits():
    """Queued by whoever hears the end, it stays for the next run."""
    agent = pi_agent(say("ok"))
    on(agent, "run.finished", lambda: agent.follow_up("F"))
    said, _ = await said_by(agent)
    assert said == [*BEGIN, *user("hi"), *answer("ok"), *END]
    assert len(agent.queued.follow_up) == 1


@simulated
async def test_l4_steering_wakes_a_finished_answer():
    """Queued by whoever hears the end of the last turn, it opens another one."""
    agent = pi_agent(say("1"), say("2"))
    on(agent, "turn.ended", lambda: agent.steer("S"))
    said, _ = await said_by(agent)
    assert said == [*BEGIN, *user("hi"), *answer("1"), "turn_start", *user("S"), *answer("2"), *END]


def _queue_all(agent: Agent) -> None:
    for text in ("S1", "S2"):
        agent.steer(text)
    for text in ("F1", "F2"):
        agent.follow_up(text)


@simulated
async def test_l5_queues_are_drained_one_at_a_time():
    """The first steering joins the prompt; each other message has a turn of its own."""
    agent = pi_agent(say("1"), say("2"), say("3"), say("4"))
    _queue_all(agent)
    said, _ = await said_by(agent, "go")
    assert said == [
        *BEGIN, *user("go"), *user("S1"), *answer("1"), "turn_start", *user("S2"), *answer("2"),
        "turn_start", *user("F1"), *answer("3"), "turn_start", *user("F2"), *answer("4"), *END,
    ]  # fmt: skip


@simulated
async def test_l5_queues_may_be_drained_at_once():
    """With the other mode a whole queue enters at its boundary, as messages of their own."""
    agent = pi_agent(say("1"), say("2"), steering_mode="all", follow_up_mode="all")
    _queue_all(agent)
    said, _ = await said_by(agent, "go")
    assert said == [
        *BEGIN, *user("go"), *user("S1"), *user("S2"), *answer("1"),
        "turn_start", *user("F1"), *user("F2"), *answer("2"), *END,
    ]  # fmt: skip


@pytest.mark.parametrize("queue", ["steering", "follow_up"])
@simulated
async def test_l5_each_queue_has_its_own_mode(queue: str):
    """One may be emptied at once while the other gives one message at a boundary."""
    agent = pi_agent(say("1"), say("2"), say("3"), **{f"{queue}_mode": "all"})
    _queue_all(agent)
    said, _ = await said_by(agent, "go")
    if queue == "steering":
        turns = [[*user("S1"), *user("S2")], user("F1"), user("F2")]
    else:
        turns = [user("S1"), user("S2"), [*user("F1"), *user("F2")]]
    first, second, third = turns
    assert said == [
        *BEGIN, *user("go"), *first, *answer("1"), "turn_start", *second, *answer("2"), "turn_start", *third,
        *answer("3"), *END,
    ]  # fmt: skip


# ---- owners and listeners ----


@simulated
async def test_n_a_second_owner_is_refused():
    """Prompt, continue and reset throw while a run goes, a second prompt in the same step included."""
    agent = pi_agent(say("ok"))
    run = agent.prompt("1")
    for command in (lambda: agent.prompt("2"), agent.continue_, agent.reset):
        with pytest.raises(AgentBusyError):
            command()
    assert (await run).status == "completed"


@simulated
async def test_continue_without_work_is_refused():
    """On an empty conversation, and after an answer with nothing queued, it throws."""
    agent = pi_agent(say("ok"))
    with pytest.raises(NothingToContinueError):
        agent.continue_()
    await agent.prompt("hi")
    with pytest.raises(NothingToContinueError):
        agent.continue_()


@simulated
async def test_abort_while_idle_does_nothing():
    """It is no error and reaches no later run."""
    agent = pi_agent(say("ok"))
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

    agent = pi_agent(say("ok"))
    agent.subscribe(listener("1"))
    agent.subscribe(listener("2"))
    await agent.prompt("hi")
    assert order == ["1 starts", "1 ends", "2 starts", "2 ends"] * (len(order) // 4)


@simulated
async def test_p_what_listeners_see_of_the_state():
    """A message is there at its end, a call pending at its start and not at its end, the agent running at the very end."""
    agent, seen = pi_agent([call("A", "quick")], say("ok")), []
    on(agent, "message.ended", lambda: seen.append(roles(agent.messages)))
    on(agent, "tool.started", lambda: seen.append(agent.state.pending_tool_calls))
    on(agent, "tool.ended", lambda: seen.append(agent.state.pending_tool_calls))
    on(agent, "run.finished", lambda: seen.append(agent.is_running))
    await agent.prompt("hi")
    assert seen == [["user:hi", "assistant:"], ("A",), (), True]


@simulated
async def test_r_unsubscribing_inside_a_listener():
    """The others hear every event."""
    agent = pi_agent(say("ok"))
    unsubscribe = agent.subscribe(lambda event: unsubscribe())
    recorder = Recorder()
    agent.subscribe(recorder)
    run = agent.prompt("hi")
    assert [event async for event in run] == recorder.events


@simulated
async def test_w_a_slow_listener_holds_the_stream_back():
    """The model is not read on before the listener of its last piece is done."""
    produced = []

    async def pieces(request: Any) -> Any:
        for part in say("a", "b", "c"):
            produced.append(asyncio.get_running_loop().time())
            yield part
        yield Finished()

    agent = pi_agent(pieces)
    agent.subscribe(lambda event: passing(50) if event.type == "message.updated" else None)
    await agent.prompt("hi")
    assert produced == [0, 50, 100]


@simulated
async def test_there_are_no_limits_and_no_retry():
    """Neither queues nor turns are counted, and a failure that may pass is not tried again."""
    agent = pi_agent(*[[call("A", "quick")]] * 205, say("ok"), [ModelError("529", retryable=True)])
    for number in range(300):
        agent.steer(str(number))
    assert len(agent.clear_queues().steering) == 300
    assert (await agent.prompt("hi")).turns == 206
    assert (await agent.prompt("hi")).status == "failed"
    assert len(agent.state.model.requests) == 207
