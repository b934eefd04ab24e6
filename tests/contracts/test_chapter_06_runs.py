"""Chapter 06, part 2: cleanup on every way out, listeners that count into settlement, phases, and the order of events."""

import asyncio
import functools
from typing import Any

import attrs
import pytest

from kernel import AgentBusyError, CompactionPolicy, ModelError, RetryPolicy, Usage
from kernel.profiles import CHAPTER_06
from kernel.testing import Recorder, ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    Event,
    Hooks,
    check,
    heard,
    on,
    passing,
    phases,
    read,
    requests,
    simulated,
    told,
    types,
)

# ---- rule 2: the same cleanup on every way out ----


def _boom(event: Event) -> None:
    raise RuntimeError("boom")


def _completing() -> Agent:
    return Agent(ScriptedModel([["a", call("A", "read")], say("b")]), tools=[read], config=CHAPTER_06)


def _failing() -> Agent:
    return Agent(ScriptedModel([["par", ModelError("boom")]]), config=CHAPTER_06)


def _failed_by_its_listener(type: str) -> Agent:
    agent = _completing()
    agent.subscribe(lambda event: _boom(event) if event.type == type else None)
    return agent


def _aborted(type: str) -> Agent:
    agent = _completing()
    on(agent, type, agent.abort)
    return agent


def _stopped() -> Agent:
    hooks = Hooks(should_stop_after_turn=lambda state: True)
    return Agent(ScriptedModel([say("a")]), hooks=hooks, config=CHAPTER_06)


WAYS_OUT = {
    "completed": _completing,
    "failed": _failing,
    "aborted in the answer": functools.partial(_aborted, "message.updated"),
    "aborted in the tools": functools.partial(_aborted, "tool.started"),
    "listener in the answer": functools.partial(_failed_by_its_listener, "message.updated"),
    "listener in the tools": functools.partial(_failed_by_its_listener, "tool.started"),
    "stopped": _stopped,
}
every_way_out = pytest.mark.parametrize("make", WAYS_OUT.values(), ids=WAYS_OUT.keys())


@every_way_out
@simulated
async def test_rule_2_cleanup_is_the_same_on_every_way_out(make: Any):
    """Nothing streams, no call is pending, the phase is idle, and whoever waits goes on."""
    agent = make()
    run = agent.prompt("Hi")
    await agent.wait_for_idle()
    state = agent.state
    assert (state.is_streaming, state.streaming_message, state.pending_tool_calls) == (False, None, ())
    assert (state.phase, state.is_running, agent.abandoned) == ("idle", False, ())
    assert (await run) is run.result


@every_way_out
@simulated
async def test_rule_2_the_last_event_finds_the_agent_clean(make: Any):
    """Whoever hears the end of the run sees no stream and no pending call any more."""
    agent, seen = make(), []
    on(agent, "run.finished", lambda: seen.append(agent.state))
    await agent.prompt("Hi")
    assert [(state.is_streaming, state.pending_tool_calls) for state in seen] == [(False, ())]


@every_way_out
@simulated
async def test_rule_2_the_next_prompt_is_accepted(make: Any):
    """However a run ends, the agent takes another prompt."""
    agent = make()
    await agent.prompt("Hi")
    assert (await agent.prompt("again")).status in ("completed", "failed", "stopped")


# ---- rule 3: what a subscriber promises is awaited ----


@simulated
async def test_rule_3_idle_includes_what_listeners_still_do():
    """The run settles when a slow log has written its last event, and not before."""
    written: list[str] = []

    async def log(event: Event) -> None:
        await passing(1)
        written.append(event.type)

    agent = Agent(ScriptedModel([say("a")]), config=CHAPTER_06)
    recorder = heard(agent)
    agent.subscribe(log)
    agent.prompt("Hi")
    await agent.wait_for_idle()
    assert written == recorder.types


@simulated
async def test_rule_3_a_settling_run_is_not_idle():
    """While a listener of the last event works, a run is still going."""
    seen: list[Any] = []
    agent = Agent(ScriptedModel([say("a")]), config=CHAPTER_06)

    async def log(event: Event) -> None:
        if event.type == "run.finished":
            await passing(1)
            seen.append((agent.phase, agent.is_running))

    agent.subscribe(log)
    await agent.prompt("Hi")
    assert seen == [("settling", True)]


@simulated
async def test_rule_3_a_slow_subscriber_slows_the_whole_run():
    """Each event waits for the listener of the one before: its time is paid once for each event."""
    loop = asyncio.get_running_loop()
    agent = Agent(ScriptedModel([say("a", "b", "c")]), config=CHAPTER_06)
    recorder = heard(agent)
    agent.subscribe(lambda event: passing(1))
    began = loop.time()
    await agent.prompt("Hi")
    assert loop.time() - began == len(recorder.events)


@simulated
async def test_rule_3_subscribers_are_awaited_one_after_the_other():
    """The second listener hears an event when the first one is done with it."""
    order: list[str] = []

    async def first(event: Event) -> None:
        order.append(f"1 begins {event.sequence}")
        await passing(1)
        order.append(f"1 ends {event.sequence}")

    agent = Agent(ScriptedModel([say("a")]), config=CHAPTER_06)
    agent.subscribe(first)
    agent.subscribe(lambda event: order.append(f"2 hears {event.sequence}"))
    result = await agent.prompt("Hi")
    count = len(order) // 3
    assert result.status == "completed"
    assert order == [said for n in range(count) for said in (f"1 begins {n}", f"1 ends {n}", f"2 hears {n}")]


# ---- the phases ----

CHAPTERS = "idle turn compaction retry"


class _Summaries:
    async def summarize(self, messages: Any) -> str:
        """A short summary."""
        return "S"


def _detouring() -> tuple[Agent, ScriptedModel, Recorder]:
    """An agent whose next run compacts, then fails once, then calls a tool, and then answers."""
    answers = [say("one", "."), ["two", Usage(90, 20)], [ModelError("529", retryable=True)], [call("A", "read")], say("x")]
    model = ScriptedModel(answers, context_window=100)
    config = attrs.evolve(CHAPTER_06, compaction=CompactionPolicy(reserve=0, keep_turns=1))
    agent = Agent(model, tools=[read], config=config, compactor=_Summaries())
    return agent, model, heard(agent)


async def _warmed_up() -> tuple[Agent, ScriptedModel, Recorder]:
    agent, model, recorder = _detouring()
    await agent.prompt("1")
    await agent.prompt("2")
    recorder.clear()
    return agent, model, recorder


@simulated
async def test_phases_of_a_plain_run():
    """Idle, turn, idle; in between, the boundaries at which queued messages could enter are phases of their own."""
    recorder, _ = await told(Agent(ScriptedModel([say("a")]), config=CHAPTER_06))
    assert phases(recorder, only=CHAPTERS) == ["idle", "turn", "idle"]
    assert phases(recorder) == ["idle", "turn", "steering", "follow_up", "settling", "idle"]


@simulated
async def test_phases_of_a_compaction():
    """Near the window the turn goes into compaction and comes back to go on with the summary."""
    agent, model, recorder = await _warmed_up()
    assert (await agent.prompt("3")).status == "completed"
    assert phases(recorder, only=CHAPTERS)[:4] == ["idle", "turn", "compaction", "turn"]
    assert requests(model)[2][0] == "summary:S"


@simulated
async def test_phases_of_a_retry():
    """A failure that may pass leads into retry and back, and the request that is sent again is the same one."""
    model = ScriptedModel([[ModelError("529", retryable=True)], say("a")])
    config = attrs.evolve(CHAPTER_06, retry=RetryPolicy(base_delay=8))
    recorder, result = await told(Agent(model, config=config))
    assert result.status == "completed"
    assert phases(recorder, only=CHAPTERS) == ["idle", "turn", "retry", "turn", "idle"]
    assert requests(model) == [["user:Hi"], ["user:Hi"]]
    assert recorder.types.index("retry.scheduled") < recorder.types.index("retry.ended")


@simulated
async def test_a_retry_sends_what_the_hook_had_made():
    """The context is projected once for both requests."""
    asked: list[int] = []
    model = ScriptedModel([[ModelError("529", retryable=True)], say("a")])
    hooks = Hooks(transform_context=lambda messages: (asked.append(1), messages)[1])
    await Agent(model, hooks=hooks, config=CHAPTER_06).prompt("Hi")
    assert (len(asked), len(model.requests)) == (1, 2)


@simulated
async def test_a_retry_backs_off():
    """The wait that was announced passes before the request is sent again."""
    loop = asyncio.get_running_loop()
    model = ScriptedModel([[ModelError("529", retryable=True, retry_after=7)], say("a")])
    await Agent(model, config=CHAPTER_06).prompt("Hi")
    assert loop.time() == 7


@simulated
async def test_the_phase_is_a_fact_that_can_be_queried():
    """Whoever hears of a phase finds the agent in it, compacting and retrying included."""
    agent, _, recorder = await _warmed_up()
    seen: list[str] = []
    agent.subscribe(lambda event: seen.append(agent.phase) if event.type == "phase.changed" else None)
    await agent.prompt("3")
    assert ["idle", *seen, "idle"] == phases(recorder)
    assert {"compaction", "retry"} <= set(seen)


PHASES = ["turn", "compaction", "retry", "steering", "follow_up", "settling"]


def _at_phase(agent: Agent, phase: str, act: Any) -> None:
    def listener(event: Any) -> None:
        if event.type == "phase.changed" and event.target == phase:
            act()

    agent.subscribe(listener)


@pytest.mark.parametrize("phase", PHASES)
@simulated
async def test_a_prompt_is_accepted_in_idle_alone(phase: str):
    """In every other phase it is refused, and the refusal changes nothing."""
    agent, model, recorder = await _warmed_up()
    refused: list[Any] = []

    def try_it() -> None:
        with pytest.raises(AgentBusyError) as error:
            agent.prompt("not now")
        refused.append(error.value.code)

    _at_phase(agent, phase, try_it)
    result = await agent.prompt("3")
    assert set(refused) == {"AGENT_BUSY"}
    assert result.status == "completed"
    assert not any("not now" in said for asked in requests(model) for said in asked)
    assert check(recorder.events) == []


@pytest.mark.parametrize("phase", PHASES[:-1])
@simulated
async def test_abort_works_in_every_phase(phase: str):
    """It ends whatever the phase was waiting for, and the same way out leads back to idle."""
    agent, _, recorder = await _warmed_up()
    _at_phase(agent, phase, agent.abort)
    result = await agent.prompt("3")
    assert result.status == "cancelled"
    path = phases(recorder)
    assert path[path.index(phase) :] == [phase, "cancelling", "settling", "idle"]


@pytest.mark.parametrize("phase", ["compaction", "retry"])
@simulated
async def test_steering_in_a_detour_waits_for_the_boundary(phase: str):
    """What is said while the agent compacts or backs off enters after the turn, not in it."""
    agent, model, _ = await _warmed_up()
    _at_phase(agent, phase, functools.partial(agent.steer, "left"))
    await agent.prompt("3")
    assert ["user:left" in asked for asked in requests(model)[2:]] == [False, False, True]


# ---- the order of events ----


@simulated
async def test_events_of_a_run_in_the_chapters_words():
    """Run, turn, answer, tool, result, end of the turn, end of the run."""
    agent = Agent(ScriptedModel([["a", call("A", "read")], say("b")]), tools=[read], config=CHAPTER_06)
    recorder, _ = await told(agent)
    assert types(recorder.events, "chapter_06") == [
        "agent_start",
        "turn_start",
        "message_start", "message_update", "message_update", "message_end",
        "tool_execution_start", "tool_execution_end",
        "message_start", "message_end",
        "turn_end",
        "turn_start",
        "message_start", "message_update", "message_end",
        "turn_end",
        "agent_end",
    ]  # fmt: skip


@every_way_out
@simulated
async def test_events_of_a_message_are_start_updates_end(make: Any):
    """No message begins before the one before has ended, and pieces come inside of one alone."""
    agent = make()
    recorder = heard(agent)
    await agent.prompt("Hi")
    depth = 0
    for name in types(recorder.events, "chapter_06"):
        depth += {"message_start": 1, "message_end": -1}.get(name, 0)
        assert depth in (0, 1)
        assert name != "message_update" or depth == 1
    assert depth == 0


@every_way_out
@simulated
async def test_events_of_the_tools_come_before_the_end_of_the_turn(make: Any):
    """When a turn ends, each of its calls has started, has ended, and has its result message."""
    agent = make()
    recorder = heard(agent)
    await agent.prompt("Hi")
    started, ended, answered = set(), set(), set()
    for event in recorder.events:
        match event.type:
            case "tool.started":
                started.add(event.call_id)
            case "tool.ended":
                ended.add(event.call_id)
            case "message.ended" if event.message.role == "tool":
                answered.add(event.message.call_id)
            case "turn.ended":
                assert started == ended == answered


@every_way_out
@simulated
async def test_events_end_with_agent_end(make: Any):
    """The end of the run is said once, last of all."""
    agent = make()
    recorder = heard(agent)
    await agent.prompt("Hi")
    names = types(recorder.events, "chapter_06")
    assert names[-1] == "agent_end"
    assert names.count("agent_end") == names.count("agent_start") == 1


@simulated
async def test_events_come_after_the_state_has_changed():
    """Whoever hears that a message has ended finds it in the conversation."""
    agent, seen = Agent(ScriptedModel([["a", call("A", "read")], say("b")]), tools=[read], config=CHAPTER_06), []
    agent.subscribe(lambda event: seen.append(agent.messages[-1] is event.message) if event.type == "message.ended" else 0)
    await agent.prompt("Hi")
    assert seen == [True, True, True]


@simulated
async def test_events_give_metrics_what_they_need():
    """Each turn's usage is on its message, and the sum is on the end of the run."""
    agent = Agent(ScriptedModel([[call("A", "read"), Usage(10, 2)], ["b", Usage(20, 3)]]), tools=[read], config=CHAPTER_06)
    recorder, result = await told(agent)
    told_usage = [event.message.usage for event in recorder.of("message.ended") if event.message.role == "assistant"]
    assert told_usage == [Usage(10, 2), Usage(20, 3)]
    assert result.usage == recorder.events[-1].result.usage == Usage(30, 5)
