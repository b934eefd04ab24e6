"""Checkpoint 09, part 3: subscribers that are observed and not awaited, and a cancel that wins what is not yet adopted."""

import asyncio
import gc
import weakref
from typing import Any

import attrs
import pytest

from kernel import Finished, Run, TextDelta, UserMessage, tool
from kernel.profiles import CHECKPOINT_09
from kernel.testing import Gates, ScriptedModel, call, say
from tests.contracts.support import Agent, Event, heard, on, passing, read, requests, roles, simulated, told


def _agent(*answers: Any) -> Agent:
    return Agent(ScriptedModel(answers or [["a", call("A", "read")], say("b")]), tools=[read], config=CHECKPOINT_09)


# ---- subscribers ----


@simulated
async def test_subscribers_hear_in_the_order_in_which_they_came():
    """For each event the first subscriber is first, and the last one last."""
    agent, order = _agent(), []
    for name in "xyz":
        agent.subscribe(lambda event, name=name: order.append((event.sequence, name)))
    await agent.prompt("Hi")
    assert order == [(number, name) for number in range(len(order) // 3) for name in "xyz"]


@simulated
async def test_unsubscribing_twice_does_nothing():
    """The second call changes nothing, also when the same function is subscribed a second time."""
    agent, seen = _agent(), []
    first = agent.subscribe(seen.append)
    agent.subscribe(seen.append)
    first()
    first()
    result = await agent.prompt("Hi")
    assert [event.type for event in seen].count("run.finished") == 1
    assert result.status == "completed"


@simulated
async def test_unsubscribing_ends_delivery():
    """No event that is published afterwards reaches the listener."""
    agent, seen = _agent(), []
    unsubscribe = agent.subscribe(lambda event: seen.append(event.type))
    on(agent, "turn.started", unsubscribe)
    await agent.prompt("Hi")
    assert seen == ["run.started", "phase.changed", "turn.started"]


@pytest.mark.parametrize("moment", ["before a run", "in a run"])
@simulated
async def test_unsubscribing_releases_the_listener(moment: str):
    """Whoever keeps what `subscribe` returned does not keep the listener alive."""

    class Listener:
        def __call__(self, event: Event) -> None:
            pass

    agent, listener = _agent(), Listener()
    reference, unsubscribe = weakref.ref(listener), agent.subscribe(listener)
    if moment == "in a run":
        on(agent, "turn.started", unsubscribe)
        await agent.prompt("Hi")
    unsubscribe()
    del listener
    gc.collect()
    assert reference() is None


@simulated
async def test_an_event_goes_to_those_who_listen_when_it_is_published():
    """One who is removed while it is delivered still hears it; one who comes then hears the next."""
    agent, seen = _agent(), []

    def change(event: Event) -> None:
        if event.type == "turn.started" and event.turn == 1:
            leaving()
            agent.subscribe(lambda event: seen.append(f"new {event.type}"))

    agent.subscribe(change)
    leaving = agent.subscribe(lambda event: seen.append(f"old {event.type}"))
    await agent.prompt("Hi")
    assert seen[:4] == ["old run.started", "old phase.changed", "old turn.started", "new message.accepted"]
    assert not any(said.startswith("old") for said in seen[3:])


def _at(type: str, act: Any) -> Any:
    return lambda event: act() if event.type == type else None


def _raise() -> None:
    raise ValueError("boom")


async def _reject() -> None:
    await passing(1)
    raise ValueError("boom")


FAILING = pytest.mark.parametrize("act", [_raise, _reject], ids=["at once", "promised"])


@FAILING
@simulated
async def test_a_failing_subscriber_is_recorded(act: Any):
    """What it said is kept, with the event that it was told of."""
    agent = _agent()
    agent.subscribe(_at("tool.started", act))
    recorder, result = await told(agent)
    await passing(2)
    (error,) = agent.subscriber_errors
    (event,) = recorder.of("tool.started")
    assert (error.error, error.event_type, error.event) == ("boom", "tool.started", event.sequence)
    assert error.run_id == result.run_id


@FAILING
@simulated
async def test_a_failing_subscriber_changes_neither_others_nor_the_end(act: Any):
    """Later subscribers hear every event, and the run settles as it would have."""
    agent = _agent()
    for type in ("run.started", "message.updated", "tool.ended", "run.finished"):
        agent.subscribe(_at(type, act))
    recorder, result = await told(agent)
    assert (result.status, roles(agent.messages)[-1]) == ("completed", "assistant:b")
    assert [event.sequence for event in recorder.events] == list(range(len(recorder.events)))
    await passing(2)
    assert len(agent.subscriber_errors) == len(recorder.of("run.started", "message.updated", "tool.ended", "run.finished"))


@simulated
async def test_subscriber_errors_are_immutable():
    """Neither what was handed out nor an error in it can be changed, and it does not grow."""
    agent = _agent(say("a"), say("b"))
    agent.subscribe(_at("turn.started", _raise))
    await agent.prompt("1")
    errors: Any = agent.subscriber_errors
    await agent.prompt("2")
    with pytest.raises(AttributeError):
        errors.append("x")
    with pytest.raises(AttributeError):
        errors[0].error = "x"
    assert (len(errors), len(agent.subscriber_errors)) == (1, 2)


@simulated
async def test_promises_of_subscribers_are_not_awaited():
    """A subscriber that takes an hour for each event delays neither events nor the end."""
    loop, agent, done = asyncio.get_running_loop(), _agent(), []

    async def slow(event: Event) -> None:
        await passing(3600)
        done.append(event.type)

    agent.subscribe(slow)
    recorder, _ = await told(agent)
    assert (loop.time(), done, agent.is_running) == (0, [], False)
    await passing(3601)
    assert done == recorder.types


@pytest.mark.parametrize("policy", ["record", "fail_run"])
@simulated
async def test_a_promise_that_is_rejected_in_the_next_run_is_of_its_own(policy: Any):
    """The failure is recorded for the run that was told of; the run that goes then neither fails nor tells of it."""
    agent = Agent(
        ScriptedModel([say("a"), [lambda: passing(5), "b"]]), config=attrs.evolve(CHECKPOINT_09, subscriber_failure=policy)
    )
    unsubscribe = agent.subscribe(_at("run.started", _reject))
    first = await agent.prompt("1")
    unsubscribe()
    recorder, second = await told(agent, "2")
    assert [each.run_id for each in agent.subscriber_errors] == [first.run_id]
    assert (second.status, recorder.of("subscriber.failed")) == ("completed", [])


@simulated
async def test_an_async_subscriber_begins_after_plain_ones():
    """All are called in order; the body of an async one begins when the loop comes to it, which is after that event."""
    agent, order = _agent(say("a")), []

    async def later(event: Event) -> None:
        order.append("async")

    agent.subscribe(later)
    agent.subscribe(lambda event: order.append("plain"))
    await agent.prompt("Hi")
    await passing(1)
    assert order[0] == "plain"
    assert order.count("async") == order.count("plain")


@pytest.mark.parametrize("what", ["run", "wait_for_idle"])
@simulated
async def test_a_subscriber_may_await_the_run(what: str):
    """Whoever is not awaited can wait for the run that tells it, and is no deadlock."""
    agent, seen = _agent(), []
    runs: list[Run] = []

    async def waits(event: Event) -> None:
        if event.type == "run.started":
            await (runs[0] if what == "run" else agent.wait_for_idle())
            seen.append(agent.phase)

    agent.subscribe(waits)
    runs.append(agent.prompt("Hi"))
    assert (await runs[0]).status == "completed"
    await passing(1)
    assert seen == ["idle"]
    assert agent.subscriber_errors == ()


# ---- cancel ----


@simulated
async def test_cancel_is_false_while_idle():
    """There is nothing to cancel, before the first run and after it."""
    agent = _agent()
    assert agent.cancel("early") is False
    assert (await agent.prompt("Hi")).status == "completed"
    assert agent.cancel("late") is False


@simulated
async def test_cancel_is_true_once():
    """The call that stops the run says so; the next one has nothing left to do, and its reason counts for nothing."""
    agent = _agent()
    run = agent.prompt("Hi")
    assert [agent.cancel("first"), agent.cancel("second")] == [True, False]
    result = await run
    assert (result.status, result.reason) == ("cancelled", "first")


@simulated
async def test_cancel_is_false_when_the_outcome_is_decided():
    """Whoever hears the end of the run comes too late, and the result stays."""
    agent, answers = _agent(), []
    on(agent, "run.finished", lambda: answers.append(agent.cancel()))
    result = await agent.prompt("Hi")
    assert (answers, result.status) == ([False], "completed")


@simulated
async def test_cancel_reaches_the_model():
    """The stream that is open is told to stop, and no other one is opened."""
    gates, stopped = Gates(), []

    async def hang(request: Any) -> Any:
        try:
            yield TextDelta("par")
            await gates.wait("never")
        finally:
            stopped.append(request.id)

    model = ScriptedModel([hang, say("no")])
    agent = Agent(model, config=CHECKPOINT_09)
    on(agent, "message.updated", agent.cancel)
    assert (await agent.prompt("Hi")).status == "cancelled"
    assert (len(stopped), len(model.requests)) == (1, 1)


@simulated
async def test_cancel_reaches_a_tool():
    """The tool that runs is told to stop, and the model is not asked again."""
    gates, stopped = Gates(), []

    @tool
    async def hang() -> str:
        """Never end."""
        try:
            await gates.wait("never")
        finally:
            stopped.append("hang")
        return ""

    model = ScriptedModel([[call("A", "hang")], say("no")])
    agent = Agent(model, tools=[hang], config=CHECKPOINT_09)
    run = agent.prompt("Hi")
    asyncio.get_running_loop().call_later(1, agent.cancel)
    assert (await run).status == "cancelled"
    assert (stopped, len(model.requests)) == (["hang"], 1)


@pytest.mark.parametrize("way", ["wait", "wait_ignoring_cancel"])
@simulated
async def test_cancel_wins_against_a_completion_of_the_same_moment(way: str):
    """The answer completes in the very step in which the cancel is accepted: one result, cancelled, nothing adopted."""
    gates = Gates()

    async def answer(request: Any) -> Any:
        yield TextDelta("whole")
        await getattr(gates, way)("finish")
        yield Finished()

    agent = _agent(answer)
    recorder = heard(agent)
    run = agent.prompt("Hi")
    asyncio.get_running_loop().call_later(1, lambda: (gates.open("finish"), agent.cancel("now")))
    result = await run
    assert (result.status, result.reason, result.partial.text) == ("cancelled", "now", "whole")
    assert [event.status for event in recorder.of("run.finished")] == ["cancelled"]
    assert roles(agent.messages) == ["user:Hi"]


@simulated
async def test_cancel_at_the_last_piece_wins():
    """A cancel from the listener of the last piece comes before the answer is adopted."""
    agent = _agent(say("a", "b"))
    on(agent, "message.updated", agent.cancel, nth=2)
    result = await agent.prompt("Hi")
    assert (result.status, result.partial.text, roles(agent.messages)) == ("cancelled", "ab", ["user:Hi"])


@pytest.mark.parametrize("moment", ["message.ended", "turn.ended"])
@simulated
async def test_cancel_wins_until_the_outcome_is_decided(moment: str):
    """After the answer is adopted and before the run has ended, a cancel still decides how it ends; the answer stays."""
    agent = _agent(say("a"))
    on(agent, moment, agent.cancel)
    recorder, result = await told(agent)
    assert (result.status, recorder.types.count("run.finished")) == ("cancelled", 1)
    assert roles(agent.messages) == ["user:Hi", "assistant:a"]


@simulated
async def test_cancel_makes_no_message_up():
    """What a cancelled answer had said is on the result, and not in the conversation."""
    agent = _agent(say("par", "tial"))
    on(agent, "message.updated", agent.cancel)
    result = await agent.prompt("Hi")
    assert roles(agent.messages) == ["user:Hi"]
    assert (result.partial.text, result.messages) == ("par", (UserMessage("Hi"),))


@simulated
async def test_cancel_in_the_tools_leaves_no_call_without_a_result():
    """The answer that was adopted stays, with the work that was done, and a call that was cut has an error result."""
    gates = Gates()

    @tool
    async def hang() -> str:
        """Never end."""
        await gates.wait("never")
        return ""

    model = ScriptedModel([["a", call("A", "read"), call("B", "hang")]])
    agent = Agent(model, tools=[read, hang], config=CHECKPOINT_09)
    on(agent, "tool.ended", agent.cancel)
    await told(agent)
    assert roles(agent.messages) == ["user:Hi", "assistant:a", "tool:A", "tool:B"]
    assert [message.is_error for message in agent.messages[2:]] == [False, True]


@simulated
async def test_cancel_keeps_what_was_queued():
    """Steering and follow-up wait until the caller goes on, and then enter in their order."""
    model = ScriptedModel([say("par"), say("a"), say("b")])
    agent = Agent(model, config=CHECKPOINT_09)
    receipts = [agent.follow_up("then")]
    on(agent, "message.updated", lambda: (receipts.append(agent.steer("left")), agent.cancel()))
    await agent.prompt("Hi")
    assert [receipt.status for receipt in receipts] == ["queued", "queued"]
    await agent.continue_()
    assert requests(model)[1:] == [["user:Hi", "user:left"], ["user:Hi", "user:left", "assistant:a", "user:then"]]
