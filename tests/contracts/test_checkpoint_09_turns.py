"""Checkpoint 09, part 2: where queued messages enter, and one sequence over all turns of a run."""

from typing import Any

import attrs
import pytest

from kernel import ToolContext, UserMessage, tool
from kernel.profiles import CHECKPOINT_09
from kernel.testing import CUT_OFF, Recorder, ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    RunResult,
    ended,
    heard,
    on,
    read,
    requests,
    roles,
    simulated,
    told,
    types,
)


def _agent(model: ScriptedModel, **options: Any) -> Agent:
    return Agent(model, tools=[read], config=CHECKPOINT_09, **options)


# ---- the boundaries of turns ----


@simulated
async def test_steering_from_idle_joins_the_next_prompt():
    """One message that was queued while idle is in the first request, after the prompt and not in it."""
    model = ScriptedModel([say("a")])
    agent = _agent(model)
    agent.steer("left")
    await agent.prompt("Hi")
    assert requests(model) == [["user:Hi", "user:left"]]


@pytest.mark.parametrize("moment", ["message.started", "message.updated", "tool.started", "tool.ended"])
@simulated
async def test_steering_waits_until_the_turn_is_whole(moment: str):
    """Whenever it comes, it enters after the answer and the results of all its calls."""
    agent = _agent(ScriptedModel([["a", call("A", "read"), call("B", "read")], say("b")]))
    on(agent, moment, lambda: agent.steer("left"))
    await told(agent)
    assert roles(agent.messages) == ["user:Hi", "assistant:a", "tool:A", "tool:B", "user:left", "assistant:b"]


@simulated
async def test_steering_from_inside_a_tool_waits_as_well():
    """A tool that steers its own run is answered first."""

    @tool
    async def steer(context: ToolContext) -> str:
        """Steer."""
        agent.steer("left")
        return "done"

    agent = Agent(ScriptedModel([[call("A", "steer")], say("b")]), tools=[steer], config=CHECKPOINT_09)
    await told(agent)
    assert roles(agent.messages) == ["user:Hi", "assistant:", "tool:A", "user:left", "assistant:b"]


@simulated
async def test_one_steering_message_enters_at_a_boundary():
    """Two messages that were queued in one turn enter at two boundaries."""
    agent = _agent(ScriptedModel([say("a"), say("b"), say("c")]))
    on(agent, "message.updated", lambda: (agent.steer("1"), agent.steer("2")))
    await told(agent)
    assert roles(agent.messages) == ["user:Hi", "assistant:a", "user:1", "assistant:b", "user:2", "assistant:c"]


@simulated
async def test_a_follow_up_waits_until_the_model_would_stop():
    """It does not enter while results are owed or steering waits; it enters when the run would end."""
    agent = _agent(ScriptedModel([[call("A", "read")], say("b"), say("c"), say("d")]))
    agent.follow_up("then")
    on(agent, "message.started", lambda: agent.steer("left"), nth=3)
    await told(agent)
    assert roles(agent.messages)[3:] == ["assistant:b", "user:left", "assistant:c", "user:then", "assistant:d"]


@simulated
async def test_queued_messages_are_not_merged():
    """Each is a user message of its own, also where they stand side by side."""
    model = ScriptedModel([say("a"), say("b")])
    agent = _agent(model)
    agent.steer("left")
    agent.follow_up("then")
    await agent.prompt("Hi")
    assert [type(message) for message in model.requests[0].messages] == [UserMessage, UserMessage]
    assert requests(model)[1] == ["user:Hi", "user:left", "assistant:a", "user:then"]


async def _no_part(request: Any) -> Any:
    yield "par"


@pytest.mark.parametrize("answer", [["par", CUT_OFF], _no_part], ids=["no end", "no part"])
@simulated
async def test_only_a_valid_answer_is_adopted(answer: Any):
    """A stream that breaks the protocol fails the run, and leaves nothing in the conversation."""
    agent = _agent(ScriptedModel([answer]))
    assert (await agent.prompt("Hi")).status == "failed"
    assert roles(agent.messages) == ["user:Hi"]


# ---- one sequence over all turns ----


async def _long_run() -> tuple[Agent, ScriptedModel, Recorder, RunResult]:
    model = ScriptedModel([[call("A", "read")], say("b"), say("c")])
    agent = _agent(model)
    on(agent, "tool.started", lambda: agent.steer("left"))
    agent.follow_up("then")
    recorder, result = await told(agent)
    return agent, model, recorder, result


@simulated
async def test_events_are_numbered_over_the_whole_run():
    """A tool turn, a steered turn and a follow-up are one stream from 0 without a gap, of one run."""
    _, _, recorder, result = await _long_run()
    assert [event.sequence for event in recorder.events] == list(range(len(recorder.events)))
    assert {event.run_id for event in recorder.events} == {result.run_id}
    assert (result.turns, [event.turn for event in recorder.of("turn.started")]) == (3, [1, 2, 3])


@simulated
async def test_requests_are_counted_over_the_whole_run():
    """Each request of the run has the next number."""
    _, model, _, result = await _long_run()
    assert [request.id for request in model.requests] == [f"{result.run_id}:{number}" for number in (1, 2, 3)]


@simulated
async def test_a_run_ends_once():
    """There is one `run.finished`, and it is the last event."""
    _, _, recorder, _ = await _long_run()
    assert recorder.types.count("run.finished") == 1
    assert types(recorder.events, "checkpoint_09")[-1] == "run.finished"


@simulated
async def test_each_message_is_accepted_once():
    """Prompt, steering and follow-up are announced one time each, with where they came from."""
    _, _, recorder, _ = await _long_run()
    assert [(event.origin, event.message.text) for event in recorder.of("message.accepted")] == [
        ("prompt", "Hi"),
        ("steering", "left"),
        ("follow_up", "then"),
    ]


@simulated
async def test_max_turns_caps_the_whole_run():
    """Turns of tools, steering and follow-ups are counted together; what is left over stays queued."""
    model = ScriptedModel([[call("A", "read")], say("b"), say("c")])
    agent = Agent(model, tools=[read], config=attrs.evolve(CHECKPOINT_09, max_turns=2))
    agent.follow_up("then")
    result = await agent.prompt("Hi")
    assert (result.status, result.turns, len(model.requests)) == ("max_turns", 2, 2)
    assert agent.queued.follow_up == (UserMessage("then"),)


@simulated
async def test_max_turns_of_the_profile_is_twenty():
    """A model that calls for ever is asked twenty times, and the last results are in the conversation."""
    model = ScriptedModel([[call("A", "read")]] * 30)
    agent = _agent(model)
    result = await agent.prompt("Hi")
    assert (result.status, len(model.requests), agent.messages[-1].role) == ("max_turns", 20, "tool")


@simulated
async def test_the_reader_of_a_run_gets_what_listeners_get():
    """Iterating the run gives the same events in the same order."""
    agent = _agent(ScriptedModel([[call("A", "read")], say("b")]))
    recorder = heard(agent)
    events, result = await ended(agent.prompt("Hi"))
    assert events == recorder.events
    assert events[-1].result is result
