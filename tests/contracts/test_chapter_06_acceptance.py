"""Chapter 06, part 4: the sequence that one should observe, and each line of the acceptance criteria."""

import inspect
from typing import Any

import attrs
import pytest

from kernel import Finished, ModelError, StopReason, TextDelta, tool
from kernel.dialects import project
from kernel.profiles import CHAPTER_06
from kernel.testing import Gates, Recorder, ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    Event,
    Hooks,
    check,
    fail,
    heard,
    lines,
    on,
    passing,
    read,
    roles,
    simulated,
    told,
    types,
)

# ---- what one should observe ----

OBSERVED = [
    {"type": "agent_start"},
    {"type": "turn_start"},
    {"type": "message_start", "role": "assistant"},
    {"type": "message_update", "call": "A"},
    {"type": "message_end", "role": "assistant", "text": "", "stop": "toolUse", "calls": ["A"]},
    {"type": "tool_execution_start", "id": "A", "name": "read"},
    {"type": "tool_execution_end", "id": "A", "text": "text of notes.txt", "error": False},
    {"type": "message_start", "role": "tool", "id": "A"},
    {"type": "message_end", "role": "tool", "id": "A", "text": "text of notes.txt", "error": False},
    {"type": "turn_end", "results": ["A"]},
    {"type": "turn_start"},
    {"type": "message_start", "role": "assistant"},
    {"type": "message_update", "delta": "It says so."},
    {"type": "message_end", "role": "assistant", "text": "It says so.", "stop": "stop"},
    {"type": "turn_end", "results": []},
    {"type": "agent_end", "status": "completed"},
]


def _reading() -> Agent:
    return Agent(ScriptedModel([[call("A", "read")], say("It says so.")]), tools=[read], config=CHAPTER_06)


@simulated
async def test_observe_the_exact_sequence_from_request_to_idle():
    """A request that reads one file gives these lines, numbered from 0, and no other."""
    recorder, _ = await told(_reading())
    assert list(project(recorder.events, "chapter_06")) == [
        {"type": line["type"], "sequence": number, **line} for number, line in enumerate(OBSERVED)
    ]


@simulated
async def test_observe_that_one_sequence_serves_all():
    """A spinner, a log and a test that listen at once hear the same events in the same order."""
    agent = _reading()
    ears = [heard(agent) for _ in range(3)]
    read_by_caller = [event async for event in agent.prompt("Hi")]
    assert all(ear.events == read_by_caller for ear in ears)


@simulated
async def test_observe_that_a_permission_gate_sees_the_call_before_it_runs():
    """Between the start of a call and its execution, the gate is asked with the call announced and nothing done."""
    order: list[str] = []

    @tool
    async def act() -> str:
        """Act."""
        order.append("act")
        return ""

    hooks = Hooks(before_tool_call=lambda call, arguments: order.append("gate"))
    agent = Agent(ScriptedModel([[call("A", "act")], say("x")]), tools=[act], hooks=hooks, config=CHAPTER_06)
    on(agent, "tool.started", lambda: order.append("start"))
    on(agent, "tool.ended", lambda: order.append("end"))
    await agent.prompt("Hi")
    assert order == ["start", "gate", "act", "end"]


# ---- acceptance 1: the outside drives through methods alone ----

COMMANDS = {"prompt", "continue_", "run_sync", "steer", "follow_up", "unqueue", "clear_queues", "cancel", "abort"}
CONFIGURATION = {"subscribe", "configure", "compact", "reset", "wait_for_idle", "aclose"}
FACTS = {"state", "messages", "phase", "is_running", "queued", "subscriber_errors", "abandoned"}


def test_acceptance_1_the_public_surface_is_methods_and_snapshots():
    """What can be called are commands; everything else that is public is a property without a setter."""
    public = {name: inspect.getattr_static(Agent, name) for name in dir(Agent) if not name.startswith("_")}
    assert {name for name, thing in public.items() if inspect.isfunction(thing)} == COMMANDS | CONFIGURATION
    assert {name for name, thing in public.items() if isinstance(thing, property)} == FACTS
    assert all(public[name].fset is None for name in FACTS)


@pytest.mark.parametrize("name", sorted(FACTS | {"anything_else"}))
def test_acceptance_1_nothing_can_be_assigned(name: str):
    """No attribute of an agent can be set from outside."""
    with pytest.raises(AttributeError):
        setattr(_reading(), name, None)


# ---- acceptance 2: subscribers change nothing, and what they promise counts ----


def _meddle_with_the_list(agent: Agent, event: Any) -> None:
    agent.messages.append(event.message)


def _meddle_with_the_view(agent: Agent, event: Any) -> None:
    agent.state.messages[0] = event.message


def _meddle_with_the_message(agent: Agent, event: Any) -> None:
    event.message.content = ()


def _meddle_with_the_blocks(agent: Agent, event: Any) -> None:
    event.message.content[0] = None


def _meddle_with_the_arguments(agent: Agent, event: Any) -> None:
    event.message.calls[0].arguments["deep"]["list"] = []


def _meddle_with_the_event(agent: Agent, event: Any) -> None:
    event.message = None


MEDDLERS = [
    _meddle_with_the_list, _meddle_with_the_view, _meddle_with_the_message, _meddle_with_the_blocks,
    _meddle_with_the_arguments, _meddle_with_the_event,
]  # fmt: skip


@pytest.mark.parametrize("meddle", MEDDLERS)
@simulated
async def test_acceptance_2_a_subscriber_cannot_modify_messages(meddle: Any):
    """Views, messages, their blocks and the arguments in them refuse every change."""
    refused: list[BaseException] = []
    asked = call("A", "read", deep={"list": [1]})
    agent = Agent(ScriptedModel([[asked], say("x")]), tools=[read], config=CHAPTER_06)

    def listener(event: Any) -> None:
        if event.type == "message.ended" and not refused:
            with pytest.raises((TypeError, AttributeError)) as error:
                meddle(agent, event)
            refused.append(error.value)

    agent.subscribe(listener)
    assert (await agent.prompt("Hi")).status == "completed"
    assert len(refused) == 1
    assert agent.messages[1].calls == (asked,)


@simulated
async def test_acceptance_2_a_promise_of_a_subscriber_counts():
    """The run completes after what its listener began, and not before."""
    order: list[str] = []

    async def log(event: Event) -> None:
        await passing(1)
        if event.type == "run.finished":
            order.append("log written")

    agent = _reading()
    agent.subscribe(log)
    await agent.prompt("Hi")
    order.append("prompt returned")
    assert order == ["log written", "prompt returned"]


# ---- acceptance 3: any internal exception is an assistant message ----


def _boom(*arguments: Any) -> Any:
    raise RuntimeError("boom")


def _provider_fails(agent: Any) -> Agent:
    return Agent(ScriptedModel([["par", RuntimeError("boom")]]), config=CHAPTER_06)


def _subscriber_fails(monkeypatch: Any) -> Agent:
    agent = _reading()
    agent.subscribe(lambda event: _boom() if event.type == "tool.ended" else None)
    return agent


def _kernel_fails(monkeypatch: Any) -> Agent:
    monkeypatch.setattr("random.random", _boom)  # the backoff's dice, inside the kernel's own work
    return Agent(ScriptedModel([[ModelError("529", retryable=True)]]), config=CHAPTER_06)


@pytest.mark.parametrize("make", [_provider_fails, _subscriber_fails, _kernel_fails])
@simulated
async def test_acceptance_3_an_internal_exception_is_an_assistant_message(make: Any, monkeypatch: pytest.MonkeyPatch):
    """It ends the run with a message whose stop reason is error, and waiting for idle returns as always."""
    agent = make(monkeypatch)
    recorder = heard(agent)
    agent.prompt("Hi")
    await agent.wait_for_idle()
    assert agent.messages[-1].stop is StopReason.ERROR
    assert "boom" in agent.messages[-1].error
    assert types(recorder.events, "chapter_06")[-2:] == ["turn_end", "agent_end"]
    assert check(recorder.events) == []


# ---- acceptance 4: a fake provider can assert the whole lifecycle ----


@simulated
async def test_acceptance_4_the_complete_sequence_with_parallel_tools():
    """The faster tool ends first, results keep the order of the calls, and the sequence is the same each time."""
    gates = Gates()

    @tool
    async def slow() -> str:
        """Wait for the other one."""
        await gates.wait("go")
        return "slow"

    agent = Agent(ScriptedModel([[call("A", "slow"), call("B", "read")], say("x")]), tools=[slow, read], config=CHAPTER_06)
    on(agent, "tool.ended", gates.opening("go"))
    recorder, _ = await told(agent)
    assert lines(recorder.events, "chapter_06") == [
        "agent_start",
        "turn_start",
        "message_start assistant",
        "message_update A",
        "message_update B",
        "message_end assistant toolUse [A,B]",
        "tool_execution_start A",
        "tool_execution_start B",
        "tool_execution_end B text of notes.txt",
        "tool_execution_end A slow",
        "message_start tool A",
        "message_end tool A slow",
        "message_start tool B",
        "message_end tool B text of notes.txt",
        "turn_end [A,B]",
        "turn_start",
        "message_start assistant",
        "message_update x",
        "message_end assistant x stop",
        "turn_end",
        "agent_end completed",
    ]


# ---- acceptance 5: unknown tools, tool errors and aborts are explicit ----


async def _of_one_call(name: str, **arguments: Any) -> tuple[Recorder, Agent]:
    agent = Agent(ScriptedModel([[call("A", name, **arguments)], say("x")]), tools=[read, fail], config=CHAPTER_06)
    recorder, _ = await told(agent)
    return recorder, agent


@simulated
async def test_acceptance_5_an_unknown_tool_is_explicit():
    """The call starts and ends as an error that names the tool, and the model sees that result."""
    recorder, agent = await _of_one_call("fly")
    said = [line for line in lines(recorder.events, "chapter_06") if line.startswith("tool_execution")]
    assert said[0] == "tool_execution_start A"
    assert said[1].startswith("tool_execution_end A unknown tool 'fly'")
    assert said[1].endswith("!")
    assert (agent.messages[2].is_error, agent.messages[2].executed) == (True, False)


@simulated
async def test_acceptance_5_a_tool_error_is_explicit():
    """The call ends as an error with the text of the exception, and the run goes on."""
    recorder, agent = await _of_one_call("fail")
    assert "tool_execution_end A disk on fire !" in lines(recorder.events, "chapter_06")
    assert roles(agent.messages)[-1] == "assistant:x"


@simulated
async def test_acceptance_5_bad_arguments_are_explicit():
    """A call whose arguments do not fit ends as an error, and its tool does not run."""
    recorder, agent = await _of_one_call("read", path=5)
    assert [event.executed for event in recorder.of("tool.ended")] == [False]
    assert "path" in agent.messages[2].text


@simulated
async def test_acceptance_5_an_abort_in_the_answer_is_explicit():
    """The cut answer ends with stop reason aborted, the turn ends, and the end of the run says cancelled."""
    agent = Agent(ScriptedModel([say("par", "tial")]), config=CHAPTER_06)
    on(agent, "message.updated", agent.abort)
    recorder, _ = await told(agent)
    assert lines(recorder.events, "chapter_06")[-3:] == [
        "message_end assistant par aborted",
        "turn_end",
        "agent_end cancelled",
    ]


@simulated
async def test_acceptance_5_an_abort_before_the_answer_is_explicit():
    """When nothing had been said there is no message, and the end of the run tells of the abort."""
    agent = Agent(ScriptedModel([say("never")]), config=CHAPTER_06)
    on(agent, "turn.started", agent.abort)
    recorder, _ = await told(agent)
    assert lines(recorder.events, "chapter_06") == ["agent_start", "turn_start", "turn_end", "agent_end cancelled"]


@simulated
async def test_acceptance_5_an_abort_in_the_tools_is_explicit():
    """Each call of the answer ends with an error of its own, also one that had not begun."""
    gates = Gates()

    @tool(mode="sequential")
    async def hang() -> str:
        """Never end."""
        await gates.wait("never")
        return ""

    agent = Agent(ScriptedModel([[call("A", "hang"), call("B", "hang")]]), tools=[hang], config=CHAPTER_06)
    on(agent, "tool.started", agent.abort)
    recorder, _ = await told(agent)
    ends = [(event.call_id, event.is_error, event.executed) for event in recorder.of("tool.ended")]
    assert ends == [("A", True, False), ("B", True, False)]
    assert lines(recorder.events, "chapter_06")[-1] == "agent_end cancelled"


@simulated
async def test_acceptance_5_an_abort_that_is_ignored_is_explicit():
    """A provider that goes on in spite of the abort is given up after the grace period, and the run is cancelled."""
    gates = Gates()

    async def deaf(request: Any) -> Any:
        yield TextDelta("par")
        await gates.wait_ignoring_cancel("late")
        yield Finished()

    agent = Agent(ScriptedModel([deaf]), config=attrs.evolve(CHAPTER_06, cancel_grace=2.0))
    on(agent, "message.updated", agent.abort)
    recorder, result = await told(agent)
    assert result.status == "cancelled"
    assert [each.kind for each in agent.abandoned] == ["model"]
    assert lines(recorder.events, "chapter_06")[-1] == "agent_end cancelled"
    gates.open("late")
    await passing(1)
    assert agent.abandoned == ()
