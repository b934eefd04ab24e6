"""Where the Pi agent core 0.85.0 does what a guarantee forbids: one test for each row of the table in `docs/profiles.md`.

Each docstring tells what we do. What Pi does there, and which guarantee decides, is in the table.
"""

import asyncio
from typing import Any

import pytest

from kernel import AgentBusyError, Finished, ModelError, StopReason, TextDelta, ToolContext, ToolMessage, tool
from kernel.profiles import PI_0_85
from kernel.testing import CUT_OFF, Gates, Recorder, ScriptedModel, call, say
from tests.contracts.pi_world import BEGIN, END, answer, calling, pi_agent, quick, result, said_by, user
from tests.contracts.support import (
    Agent,
    Hooks,
    check,
    heard,
    lines,
    on,
    passing,
    requests,
    roles,
    simulated,
    told,
)

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


def _with(tools: Any, *answers: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(answers), tools=tools, config=PI_0_85, **options)


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
    agent = _with([obedient], [call(id, "obedient") for id in "ABC"], config=PI_0_85) if False else _sequential()
    asyncio.get_running_loop().call_later(1, agent.abort)
    recorder, _ = await told(agent, "go")
    assert [event.call_id for event in recorder.of("tool.started")] == ["A", "B", "C"]
    assert [(event.call_id, event.executed) for event in recorder.of("tool.ended")] == [
        ("A", True), ("B", False), ("C", False),
    ]  # fmt: skip
    assert [message.call_id for message in agent.messages[2:]] == ["A", "B", "C"]


def _sequential() -> Agent:
    @tool(mode="sequential")
    async def hang() -> str:
        """Hang until cancelled."""
        await passing(3600)
        return "never"

    return _with([hang], [call(id, "hang") for id in "ABC"])


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
    assert said[place + 4 :] == ["message_start assistant", "message_end assistant error (listener boom)",
                                 "turn_end [A,B]", *END]  # fmt: skip
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
    agent = _with([quick, _deaf(gates)], [call("A", "quick"), call("B", "deaf")], ["x", gates.opening("end"), _later, "y"])
    on(agent, "tool.ended", _boom)
    assert (await agent.prompt("one")).status == "failed"
    recorder = heard(agent)
    await agent.prompt("two")
    said = [*BEGIN, *user("two"), "message_start assistant", "message_update x", "message_update y"]
    assert lines(recorder.events, "pi") == [*said, "message_end assistant xy stop", "turn_end", *END]
    assert [event.call_id for event in recorder.of("update.discarded")] == ["B"]
    assert agent.abandoned == ()


async def _later() -> None:
    await passing(1)


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


# ---- tools and hooks ----


@simulated
async def test_difference_a_tool_that_returns_nothing_has_an_empty_result():
    """It is no failure of the run, and its siblings keep theirs."""

    @tool
    async def nothing() -> None:
        """Return nothing."""

    agent = _with([nothing, quick], [call("A", "nothing"), call("B", "quick")], say("ok"))
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
    assert said[: place] == [*BEGIN, *user("hi"), *calling("X", "X")]  # fmt: skip
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
    recorder = heard(agent)
    await agent.prompt("hi")
    assert seen == [(True, False)]
    assert check(recorder.events) == []
