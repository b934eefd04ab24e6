"""Checkpoint 09, part 5: the edges of its diagram, its fragments, its acceptance criteria, and how it differs from Pi."""

import asyncio
import socket
from typing import Any

import attrs
import pytest

from kernel import (
    AgentBusyError,
    Finished,
    MessageLimitError,
    ModelError,
    NothingToContinueError,
    QueueFullError,
    Run,
    RunResult,
    TextDelta,
    UserMessage,
)
from kernel.dialects import project
from kernel.profiles import CHECKPOINT_09
from kernel.testing import Recorder, ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    ended,
    heard,
    on,
    passing,
    phases,
    read,
    requests,
    roles,
    simulated,
    told,
    types,
)


def _agent(*answers: Any, **changes: Any) -> Agent:
    return Agent(ScriptedModel(answers), tools=[read], config=attrs.evolve(CHECKPOINT_09, **changes))


# ---- the diagram, edge by edge ----


@simulated
async def test_edge_from_idle_to_running():
    """A prompt and a continue each lead from idle into a turn."""
    agent = _agent(say("par"), say("a"))
    before = agent.phase
    run = agent.prompt("Hi")
    prompted = agent.phase
    agent.cancel()
    await run
    between = agent.phase
    run = agent.continue_()
    assert [before, prompted, between, agent.phase] == ["idle", "turn", "idle", "turn"]
    await run


@simulated
async def test_edge_of_a_completed_tool_turn():
    """A turn with tools leads into the next turn of the same run."""
    recorder, _ = await told(_agent([call("A", "read")], say("b")))
    assert phases(recorder, only="idle turn settling") == ["idle", "turn", "turn", "settling", "idle"]


@simulated
async def test_edge_through_the_steering_boundary():
    """With steering queued, a completed turn leads over the boundary into a turn that begins with one message."""
    agent = _agent(say("a"), say("b"))
    on(agent, "message.updated", lambda: agent.steer("left"))
    recorder, _ = await told(agent)
    assert phases(recorder) == ["idle", "turn", "steering", "turn", "steering", "follow_up", "settling", "idle"]
    assert [event.origin for event in recorder.of("message.accepted")] == ["prompt", "steering"]


@simulated
async def test_edge_through_the_follow_up_boundary():
    """When the model would stop and a follow-up waits, the boundary leads into a turn that begins with it."""
    agent = _agent(say("a"), say("b"))
    agent.follow_up("then")
    recorder, _ = await told(agent)
    path = phases(recorder)
    assert path[:5] == ["idle", "turn", "steering", "follow_up", "turn"]
    assert path[5:] == ["steering", "follow_up", "settling", "idle"]


@simulated
async def test_edge_from_running_through_cancelling():
    """An accepted cancel leads into cancelling, and when what was going on has stopped into settling."""
    agent = _agent(say("a"))
    on(agent, "message.updated", agent.cancel)
    recorder, _ = await told(agent)
    assert phases(recorder) == ["idle", "turn", "cancelling", "settling", "idle"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [(say("a"), "completed"), ([call("A", "read")], "max_turns"), ([ModelError("no")], "failed")],
)
@simulated
async def test_edge_from_running_to_settling(answer: Any, status: str):
    """Completion, the cap of turns and failure lead into settling without a detour over cancelling."""
    recorder, result = await told(_agent(answer, max_turns=1))
    path = phases(recorder)
    assert result.status == status
    assert path[-2:] == ["settling", "idle"]
    assert "cancelling" not in path


@simulated
async def test_edge_from_settling_to_idle():
    """The end is published once, by a run that still owns the conversation; then nobody does."""
    agent, seen = _agent(say("a")), []
    on(agent, "run.finished", lambda: seen.append((agent.phase, agent.is_running)))
    recorder, _ = await told(agent)
    assert seen == [("settling", True)]
    assert (agent.phase, agent.is_running, recorder.types.count("run.finished")) == ("idle", False, 1)


@simulated
async def test_edge_of_a_failing_subscriber():
    """A run in which a subscriber fails stays in its phase, and the failure is recorded."""
    agent, seen = _agent(say("a")), []

    def listener(event: Any) -> None:
        if event.type == "message.updated":
            raise ValueError("boom")
        if event.type == "subscriber.failed":
            seen.append(agent.phase)

    agent.subscribe(listener)
    assert (await agent.prompt("Hi")).status == "completed"
    assert (seen, len(agent.subscriber_errors)) == (["turn"], 1)


@pytest.mark.parametrize("command", ["prompt", "continue_"])
@simulated
async def test_edge_of_an_overlapping_owner(command: str):
    """A run during which a second one is asked for stays where it was."""
    agent, seen = _agent(say("a")), []

    def try_it() -> None:
        with pytest.raises(AgentBusyError):
            getattr(agent, command)(*["more"][: command == "prompt"])
        seen.append(agent.phase)

    on(agent, "message.updated", try_it)
    assert (await agent.prompt("Hi")).status == "completed"
    assert seen == ["turn"]


# ---- the two fragments, statement by statement ----


async def settle(stream: Run) -> tuple[list[dict[str, Any]], RunResult]:
    """Drain the events of a run into the checkpoint's words, and await its result."""
    events, result = await ended(stream)
    return list(project(events, "checkpoint_09")), result


@simulated
async def test_build_it():
    """One answer: the ownership changes hands and back, and the run ends once."""
    model = ScriptedModel([say("Hello.")])
    agent = Agent(model, config=CHECKPOINT_09)

    stream = agent.prompt("Hi")
    assert agent.is_running is True

    events, result = await settle(stream)
    assert (result.status, result.final_text) == ("completed", "Hello.")
    assert agent.is_running is False
    assert [message.role for message in agent.messages] == ["user", "assistant"]
    assert [event["type"] for event in events] == ["message.accepted", "model.chunk", "run.finished"]
    assert [event["sequence"] for event in events] == [0, 1, 2]
    assert len([event for event in events if event["type"] == "run.finished"]) == 1


@simulated
async def test_failure_experiment():
    """While the first request is held open, a second owner fails at once and the first one keeps the conversation."""
    entered = asyncio.Event()
    release = asyncio.Event()

    async def response(request: Any) -> Any:
        entered.set()
        await release.wait()
        yield TextDelta("done")
        yield Finished()

    model = ScriptedModel([response])
    agent = Agent(model, config=CHECKPOINT_09)
    active = agent.prompt("first")
    await entered.wait()

    with pytest.raises(AgentBusyError):
        agent.prompt("second")
    with pytest.raises(AgentBusyError, match="Agent is already running"):
        agent.continue_()

    release.set()
    await settle(active)
    assert len(model.requests) == 1


# ---- the acceptance criteria ----


@simulated
async def test_acceptance_1_everything_passes_offline(monkeypatch: pytest.MonkeyPatch):
    """A run needs no network: with sockets forbidden it is as before."""

    def forbidden(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", forbidden)
    assert (await _agent(say("a")).prompt("Hi")).status == "completed"


@simulated
async def test_acceptance_2_a_second_owner_is_refused_in_a_stable_way():
    """Both commands raise the same error with the same code, each time, and the run is none the worse."""
    agent = _agent(say("a"))
    run = agent.prompt("Hi")
    codes = []
    for command in (lambda: agent.prompt("more"), agent.continue_) * 2:
        with pytest.raises(AgentBusyError) as error:
            command()
        codes.append(error.value.code)
    assert codes == ["AGENT_BUSY"] * 4
    assert (await run).status == "completed"
    assert roles(agent.messages) == ["user:Hi", "assistant:a"]


@simulated
async def test_acceptance_3_messages_are_fresh_and_frozen():
    """Each look gives a new sequence, and neither it nor what is in it can be changed."""
    agent = _agent(say("a"))
    await agent.prompt("Hi")
    messages: Any = agent.messages
    assert agent.messages is not messages
    with pytest.raises(AttributeError):
        messages.push(UserMessage("x"))
    with pytest.raises(AttributeError):
        messages[0].content = ()
    with pytest.raises(TypeError):
        messages[1].content[0] = None


@simulated
async def test_acceptance_4_steering_and_follow_up_enter_at_their_boundaries():
    """Steering after the whole turn, the follow-up when the run would end, both as messages of their own."""
    agent = _agent([call("A", "read")], say("b"), say("c"))
    on(agent, "tool.started", lambda: (agent.follow_up("then"), agent.steer("left")))
    await told(agent)
    assert roles(agent.messages) == [
        "user:Hi", "assistant:", "tool:A", "user:left", "assistant:b", "user:then", "assistant:c",
    ]  # fmt: skip


@simulated
async def test_acceptance_5_one_sequence_and_one_end_for_each_run():
    """Each of two runs is numbered from 0, without a gap, and ends once."""
    agent = _agent([call("A", "read")], say("b"), say("c"))
    recorder = Recorder()
    agent.subscribe(recorder)
    for prompt in ("1", "2"):
        recorder.clear()
        await agent.prompt(prompt)
        lines = list(project(recorder.events, "checkpoint_09"))
        assert [line["sequence"] for line in lines] == list(range(len(lines)))
        assert [line["type"] for line in lines].count("run.finished") == 1


@simulated
async def test_acceptance_6_subscribers_are_ordered_removable_and_harmless():
    """They hear in order of registration, not after they left, and neither a failure nor a hang of theirs matters."""
    agent, order = _agent(say("a")), []

    def fails(event: Any) -> None:
        order.append("1")
        raise ValueError("boom")

    def hangs(event: Any) -> Any:
        order.append("2")
        return passing(3600)

    agent.subscribe(fails)
    agent.subscribe(hangs)
    leaves = agent.subscribe(lambda event: order.append("3"))
    agent.subscribe(lambda event: order.append("4"))
    leaves()
    result = await agent.prompt("Hi")
    assert (result.status, agent.is_running) == ("completed", False)
    assert order == [*"124"] * (len(order) // 3)
    await passing(3601)


@simulated
async def test_acceptance_7_an_accepted_cancel_wins_settles_once_and_keeps_the_queue():
    """The answer that had just completed is not adopted, there is one end, and the steering waits."""
    agent = _agent(say("a"))
    recorder = heard(agent)
    on(agent, "message.updated", lambda: (agent.steer("left"), agent.cancel("enough")))
    result = await agent.prompt("Hi")
    assert (result.status, result.reason) == ("cancelled", "enough")
    assert recorder.types.count("run.finished") == 1
    assert agent.queued.steering == (UserMessage("left"),)


ENDS: dict[str, tuple[Any, dict[str, int]]] = {
    "completed": (say("a"), {}),
    "cancelled": (say("a"), {}),
    "AGENT_MESSAGE_LIMIT": ([call(f"{number}", "read") for number in range(4)], {"message_limit": 5}),
    "MODEL_FAILED": ([ModelError("no")], {}),
}


@pytest.mark.parametrize("end", ENDS)
@simulated
async def test_acceptance_8_every_end_clears_the_owner(end: str):
    """Afterwards nobody owns the conversation, and a continue with something to do completes."""
    answer, changes = ENDS[end]
    agent = _agent(answer, say("b"), **changes)
    if end == "cancelled":
        on(agent, "message.updated", agent.cancel)
    result = await agent.prompt("Hi")
    assert end in (result.status, result.error.code if result.error else None)
    assert not agent.is_running
    if end == "completed":
        with pytest.raises(NothingToContinueError):
            agent.continue_()
        agent.follow_up("then")
    assert (await agent.continue_()).final_text == "b"


@simulated
async def test_acceptance_9_impossible_work_is_refused():
    """The 257th queued message, and a message without room among the 4096, are refused when they come."""
    agent = _agent()
    for number in range(256):
        agent.steer(str(number))
    with pytest.raises(QueueFullError):
        agent.steer("257")
    full = Agent(ScriptedModel(), messages=[UserMessage("u")] * 4095, config=CHECKPOINT_09)
    for refused in (full.prompt, full.steer, full.follow_up):
        with pytest.raises(MessageLimitError):
            refused("more")
    assert len(full.messages) == 4095


# ---- how it differs from Pi ----


@simulated
async def test_compared_with_pi_a_prompt_is_a_stream_with_a_result():
    """What `prompt` returns can be iterated for events and awaited for the result, by as many as like."""
    agent = _agent(say("a"))
    run = agent.prompt("Hi")
    events, result = await ended(run)
    assert (result.final_text, await run) == ("a", result)
    assert types(events, "checkpoint_09")[-1] == "run.finished"


@simulated
async def test_compared_with_pi_a_cancel_has_a_reason():
    """The reason that was given is on the result."""
    agent = _agent(say("a"))
    run = agent.prompt("Hi")
    agent.cancel("tired")
    assert (await run).reason == "tired"


@simulated
async def test_compared_with_pi_queues_give_one_message_at_a_time():
    """Neither queue is emptied at one boundary."""
    agent = _agent(say("a"), say("b"), say("c"), say("d"))
    for text in ("s1", "s2"):
        agent.steer(text)
    for text in ("f1", "f2"):
        agent.follow_up(text)
    await agent.prompt("Hi")
    last = [asked[-1] for asked in requests(agent.state.model)]
    assert last == ["user:s1", "user:s2", "user:f1", "user:f2"]
