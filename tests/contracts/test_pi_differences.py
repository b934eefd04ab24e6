"""Where the Pi agent core 0.85.0 does what a guarantee forbids: one test for each row of the table in `docs/profiles.md`.

Each docstring tells what we do. What Pi does there, and which guarantee decides, is in the table. Here: cancel, failures,
listeners; tools, hooks and the face are in `test_pi_differences_tools.py`.
"""

import asyncio
from typing import Any

import attrs
import pytest

from kernel import Finished, ModelError, StopReason, TextDelta, ToolContext, tool
from kernel.profiles import PI_0_85
from kernel.testing import CUT_OFF, Gates, Recorder, ScriptedModel, call, say
from tests.contracts.pi_world import BEGIN, END, answer, pi_agent, said_by, slow, user
from tests.contracts.support import Agent, Hooks, heard, lines, on, passing, requests, roles, simulated, told

# ---- cancel ----


@tool
async def obedient(context: ToolContext) -> str:
    """Hang until cancelled."""
    await passing(3600)
    return "never"


def _deaf(gates: Gates, text: str = "deaf finished anyway") -> Any:
    @tool
    async def deaf() -> str:
        """Ignore every cancellation until the gate opens."""
        await gates.wait_ignoring_cancel("end")
        return text

    return deaf


def _with(tools: Any, *answers: Any, **changes: Any) -> Agent:
    return Agent(ScriptedModel(answers), tools=tools, config=attrs.evolve(PI_0_85, **changes))


@simulated
async def test_difference_cancel_in_a_batch_asks_the_model_no_more():
    """After the calls have ended, with what a deaf one had still done, the run ends; there is no second request."""
    gates = Gates()
    agent = _with([obedient, _deaf(gates)], [call("A", "obedient"), call("B", "deaf")], say("no"))
    asyncio.get_running_loop().call_later(1, agent.abort)
    asyncio.get_running_loop().call_later(2, gates.open, "end")
    said, ended = await said_by(agent, "go")
    assert (ended.status, len(agent.state.model.requests)) == ("cancelled", 1)
    assert [(message.call_id, message.is_error) for message in agent.messages[2:]] == [("A", True), ("B", False)]
    assert agent.messages[3].text == "deaf finished anyway"
    assert said[-2:] == ["turn_end [A,B]", "agent_end"]


@simulated
async def test_difference_cancel_closes_the_calls_that_had_not_started():
    """In a sequential batch each call has its start, its end and its result; none of the rest was executed."""
    agent = _with([obedient], [call(id, "obedient") for id in "ABC"], tool_execution="sequential")
    asyncio.get_running_loop().call_later(1, agent.abort)
    recorder, _ = await told(agent, "go")
    assert [event.call_id for event in recorder.of("tool.started")] == ["A", "B", "C"]
    assert [(event.call_id, event.executed) for event in recorder.of("tool.ended")] == [
        ("A", True), ("B", False), ("C", False),
    ]  # fmt: skip
    assert [message.call_id for message in agent.messages[2:]] == ["A", "B", "C"]


@simulated
async def test_difference_no_hook_runs_after_a_cancel():
    """A cancel from the check of one call keeps the next ones from being checked."""
    asked: list[str] = []

    def before(wanted: Any, arguments: Any) -> None:
        asked.append(wanted.id)
        if wanted.id == "B":
            agent.abort()

    agent = pi_agent([call(id, "quick") for id in "ABC"], hooks=Hooks(before_tool_call=before))
    recorder, _ = await told(agent, "go")
    assert asked == ["A", "B"]
    assert [(event.call_id, event.executed) for event in recorder.of("tool.ended")] == [(id, False) for id in "ABC"]


@pytest.mark.parametrize("moment", ["in the same step", "run.started"])
@simulated
async def test_difference_cancel_stops_a_provider_that_would_ignore_it(moment: str):
    """A cancel before the request keeps it from being sent."""
    agent = pi_agent(say("whole"))
    if moment == "run.started":
        on(agent, moment, agent.abort)
    run = agent.prompt("go")
    if moment == "in the same step":
        agent.abort()
    assert (await run).status == "cancelled"
    assert agent.state.model.requests == []


@simulated
async def test_difference_cancel_ends_a_stream_that_hangs():
    """A provider that neither answers nor stops is given up, and the agent can be used."""
    gates = Gates()

    async def hang(request: Any) -> Any:
        yield TextDelta("x")
        await gates.wait_ignoring_cancel("end")
        yield Finished()

    agent = pi_agent(hang, say("ok"))
    on(agent, "message.updated", agent.abort)
    assert (await agent.prompt("1")).status == "cancelled"
    agent.reset()
    assert (await agent.prompt("2")).final_text == "ok"
    gates.open("end")


@simulated
async def test_difference_an_abort_is_no_error():
    """Neither the cut message nor the state has an error text, and nothing is made up when nothing had been said."""
    agent = pi_agent(say("a", "b"), say("c"))
    on(agent, "message.updated", agent.abort)
    on(agent, "turn.started", agent.abort, nth=2)
    await agent.prompt("1")
    assert (agent.messages[-1].stop, agent.messages[-1].error) == (StopReason.ABORTED, None)
    assert agent.state.error_message is None
    await agent.prompt("2")
    assert roles(agent.messages) == ["user:1", "assistant:a", "user:2"]


# ---- what is left of a failure ----


@simulated
async def test_difference_a_failed_answer_leaves_no_open_call():
    """Its text stays and its call does not, so that no later request has a call without a result."""
    agent = pi_agent(["par", call("A", "quick"), ModelError("cut")], say("ok"))
    ended = await agent.prompt("go")
    assert (agent.messages[1].text, agent.messages[1].calls) == ("par", ())
    assert [each.id for each in ended.partial.calls] == ["A"]
    await agent.prompt("next")
    assert requests(agent.state.model)[1] == ["user:go", "user:next"]


@pytest.mark.parametrize("end", ["aborted", "failed"])
@simulated
async def test_difference_a_cut_answer_is_not_sent_again(end: str):
    """It stays in the conversation, and no request carries it."""
    agent = pi_agent(["par", *([ModelError("no")] if end == "failed" else ["more"])], say("ok"))
    if end == "aborted":
        on(agent, "message.updated", agent.abort)
    await agent.prompt("1")
    await agent.prompt("2")
    assert requests(agent.state.model)[1] == ["user:1", "user:2"]
    assert roles(agent.messages) == ["user:1", "assistant:par", "user:2", "assistant:ok"]


@simulated
async def test_difference_continue_after_a_failure_asks_again():
    """The message of the failure is no tail that blocks."""
    agent = pi_agent(["par", ModelError("socket hang up")], say("ok"))
    await agent.prompt("hi")
    recorder = heard(agent)
    assert (await agent.continue_()).final_text == "ok"
    assert lines(recorder.events, "pi") == [*BEGIN, *answer("ok"), *END]


@simulated
async def test_difference_the_result_of_a_failed_run_has_all_its_messages():
    """Prompt, answers, results and the failure are in it, and not the failure alone."""
    agent = pi_agent([call("A", "quick")], [ModelError("529")])
    ended = await agent.prompt("go")
    assert ended.messages == tuple(agent.messages)
    assert [message.role for message in ended.messages] == ["user", "assistant", "tool", "assistant"]


@simulated
async def test_difference_a_stream_without_an_end_is_a_failure():
    """The run fails, and what had come stays as an error."""
    agent = pi_agent(["x", CUT_OFF])
    said, ended = await said_by(agent)
    assert ended.status == "failed"
    assert said[-3].startswith("message_end assistant x error (the stream ended")
    assert said[-2:] == ["turn_end", "agent_end"]


# ---- listeners ----


def _boom() -> None:
    raise RuntimeError("listener boom")


@simulated
async def test_difference_a_failing_listener_leaves_the_message_closed():
    """The answer that it broke off ends once, with what had been said; it is the failure's message as well."""
    agent = pi_agent(say("par", "tial"))
    on(agent, "message.updated", _boom)
    said, ended = await said_by(agent)
    assert said == [
        *BEGIN, *user("hi"), "message_start assistant", "message_update par",
        "message_end assistant par error (listener boom)", "turn_end", *END,
    ]  # fmt: skip
    assert (ended.status, ended.partial.text) == ("failed", "par")


@simulated
async def test_difference_listeners_behind_a_failing_one_hear_everything():
    """The event at which the first one failed reaches the others, and so does all that follows."""
    agent = pi_agent(say("par", "tial"))
    on(agent, "message.updated", _boom)
    recorder = heard(agent)
    run = agent.prompt("hi")
    assert [event async for event in run] == recorder.events
    assert [event.sequence for event in recorder.events] == list(range(len(recorder.events)))


@simulated
async def test_difference_a_failing_listener_leaves_no_call_without_a_result():
    """The calls of the turn end and have their results before the failure's message."""
    agent = pi_agent([call("A", "quick"), call("B", "slow")])
    on(agent, "tool.ended", _boom)
    said, ended = await said_by(agent, "go")
    assert roles(agent.messages) == ["user:go", "assistant:", "tool:A", "tool:B", "assistant:"]
    place = said.index("message_start tool A fast done")
    failure = ["message_start assistant", "message_end assistant error (listener boom)"]
    assert said[place + 4 :] == [*failure, "turn_end [A,B]", *END]
    assert ended.status == "failed"


@simulated
async def test_difference_a_listener_that_fails_at_the_end_ends_nothing_twice():
    """There is one end, the prompt resolves with the result that was decided, and the failure is recorded."""
    agent = pi_agent(say("ok"))
    on(agent, "run.finished", _boom)
    said, ended = await said_by(agent)
    assert said == [*BEGIN, *user("hi"), *answer("ok"), *END]
    assert (ended.status, [each.error for each in agent.subscriber_errors]) == ("completed", ["listener boom"])


@simulated
async def test_difference_a_deaf_tool_of_a_failed_run_says_nothing_in_the_next():
    """What it does later is discarded, and told of only as that."""
    gates = Gates()
    second = ["x", gates.opening("end"), lambda: passing(1), "y"]
    agent = _with([slow, _deaf(gates)], [call("A", "slow"), call("B", "deaf")], second)
    on(agent, "tool.ended", _boom)
    assert (await agent.prompt("one")).status == "failed"
    recorder = heard(agent)
    await agent.prompt("two")
    said = [*BEGIN, *user("two"), "message_start assistant", "message_update x", "message_update y"]
    assert lines(recorder.events, "pi") == [*said, "message_end assistant xy stop", "turn_end", *END]
    assert [event.call_id for event in recorder.of("update.discarded")] == ["B"]
    assert agent.abandoned == ()


@simulated
async def test_difference_a_listener_that_awaits_its_run_is_told_so():
    """Waiting for the run from inside an awaited listener raises, and the run fails with that sentence."""
    agent = pi_agent(say("ok"))

    async def waits(event: Any) -> None:
        if event.type == "turn.started":
            await agent.wait_for_idle()

    agent.subscribe(waits)
    ended = await agent.prompt("hi")
    assert ended.status == "failed"
    assert "wait_for_idle()" in agent.messages[-1].error


@simulated
async def test_difference_a_tool_that_awaits_its_run_is_told_so():
    """Its call is an error at once, and the run goes on."""

    @tool
    async def waits() -> str:
        """Wait for the run."""
        await agent.wait_for_idle()
        return "never"

    agent = _with([waits], [call("A", "waits")], say("ok"))
    assert (await agent.prompt("hi")).status == "completed"
    assert agent.messages[2].is_error


@simulated
async def test_difference_the_same_listener_twice_is_two_listeners():
    """Each subscription hears each event, and one that comes during an event hears the next one."""
    agent, seen = pi_agent(say("ok")), Recorder()
    agent.subscribe(seen)
    agent.subscribe(seen)
    on(agent, "run.started", lambda: agent.subscribe(seen))
    await agent.prompt("hi")
    assert seen.types[:5] == ["run.started", "run.started", *["phase.changed"] * 3]
