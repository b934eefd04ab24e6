"""Each dialect says what it has words for, in the words of its document."""

from typing import Any

import attrs
import pytest

from kernel import events
from kernel.dialects import DIALECTS, message_line, message_summary, native_line, project, projector
from kernel.events import Event, RunResult
from kernel.frozen import EMPTY
from kernel.messages import (
    AssistantMessage,
    CustomMessage,
    StopReason,
    SummaryMessage,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

CALLING = AssistantMessage((Text("Hm"), ToolCall("c1", "read")), StopReason.TOOL_USE)
RESULT = ToolMessage("c1", "read", "A")


def numbered(*details: tuple[type[Event], dict[str, Any]], run: str = "r") -> list[Event]:
    return [kind(run_id=run, sequence=number, **fields) for number, (kind, fields) in enumerate(details)]


COMPLETED = RunResult(run_id="r", status="completed", final_text="", messages=(), partial=None, usage=Usage(), turns=1)

RUN = numbered(
    (events.RunStarted, {}),
    (events.PhaseChanged, {"source": "idle", "target": "turn"}),
    (events.TurnStarted, {"turn": 1}),
    (events.MessageAccepted, {"message": UserMessage("Hi"), "origin": "prompt"}),
    (events.MessageStarted, {"role": "assistant"}),
    (events.MessageUpdated, {"channel": "reasoning", "delta": "let me see"}),
    (events.MessageUpdated, {"channel": "text", "delta": "Hm"}),
    (events.MessageUpdated, {"channel": "call", "delta": "{}", "call_id": "c1"}),
    (events.MessageEnded, {"message": CALLING}),
    (events.ToolStarted, {"call_id": "c1", "name": "read", "arguments": EMPTY}),
    (events.ToolUpdated, {"call_id": "c1", "text": "50%"}),
    (events.ToolEnded, {"call_id": "c1", "name": "read", "text": "A", "is_error": False, "executed": True}),
    (events.MessageStarted, {"role": "tool", "call_id": "c1"}),
    (events.MessageEnded, {"message": RESULT}),
    (events.TurnEnded, {"turn": 1, "results": ("c1",)}),
    (events.RunFinished, {"result": COMPLETED}),
)


def bare(lines: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "sequence"} for line in lines]


def test_native_says_everything() -> None:
    """The native lines of a run, with the numbers of its events."""
    lines = list(project(RUN))
    assert [line["sequence"] for line in lines] == list(range(16))
    assert bare(lines) == [
        {"type": "run.started"},
        {"type": "phase.changed", "source": "idle", "target": "turn"},
        {"type": "turn.started", "turn": 1},
        {"type": "message.accepted", "origin": "prompt", "text": "Hi"},
        {"type": "message.started", "role": "assistant"},
        {"type": "message.updated", "reasoning": "let me see"},
        {"type": "message.updated", "delta": "Hm"},
        {"type": "message.updated", "call": "c1"},
        {"type": "message.ended", "role": "assistant", "text": "Hm", "stop": "tool_use", "calls": ["c1"]},
        {"type": "tool.started", "id": "c1", "name": "read"},
        {"type": "tool.updated", "id": "c1", "text": "50%"},
        {"type": "tool.ended", "id": "c1", "text": "A", "error": False},
        {"type": "message.started", "role": "tool", "id": "c1"},
        {"type": "message.ended", "role": "tool", "id": "c1", "text": "A", "error": False},
        {"type": "turn.ended", "results": ["c1"]},
        {"type": "run.finished", "status": "completed"},
    ]


FAILED = AssistantMessage("par", StopReason.ERROR, error="boom")


@pytest.mark.parametrize(
    ("kind", "fields", "line"),
    [
        (events.MessageEnded, {"message": FAILED}, {"text": "par", "stop": "error", "error": "boom"}),
        (events.MessageEnded, {"message": FAILED, "kept": False}, {"kept": False}),
        (
            events.ToolEnded,
            {"call_id": "c", "name": "n", "text": "t", "is_error": True, "executed": False},
            {"id": "c", "text": "t", "error": True, "executed": False},
        ),
        (events.RetryScheduled, {"attempt": 1, "delay": 0.5, "error": "529"}, {"attempt": 1, "delay": 0.5}),
        (events.RetryEnded, {"attempt": 1}, {}),
        (events.CompactionStarted, {"reason": "overflow"}, {"reason": "overflow"}),
        (events.CompactionEnded, {"outcome": "declined"}, {"outcome": "declined"}),
        (events.HookFailed, {"hook": "transform_context", "error": "no"}, {"hook": "transform_context"}),
        (events.SubscriberFailed, {"event_type": "turn.ended", "event": 3, "error": "no"}, {}),
        (events.UpdateDiscarded, {"call_id": "c1"}, {"id": "c1"}),
    ],
)
def test_native_details(kind: type[Event], fields: dict[str, Any], line: dict[str, Any]) -> None:
    """What an event has beside its type is said where there is something to say."""
    told = native_line(kind("r", 4, **fields))
    assert told is not None
    assert {key: told.get(key) for key in line} == line
    assert list(told)[:2] == ["type", "sequence"]


def test_queues_are_told_with_what_was_dropped() -> None:
    """Both queues are always said, dropped items only when there are any."""
    item = UserMessage("s")
    assert bare([native_line(events.QueueChanged("r", 0, (item,), ()))]) == [
        {"type": "queue.changed", "steering": ["s"], "follow_up": []}
    ]
    told = native_line(events.QueueChanged("r", 0, (), (), (item,)))
    assert told is not None
    assert told["dropped"] == ["s"]


def test_a_piece_of_nothing_is_never_shown() -> None:
    """A delta without text has no line."""
    assert native_line(events.MessageUpdated("r", 0, "text", "")) is None


def test_every_event_has_a_native_line() -> None:
    """No event is unknown to the native dialect."""
    kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)} - {Event}
    told = {type(event) for event in RUN}
    assert len(told) < len(kinds)
    for kind in kinds - told:
        values = {"message": FAILED, "steering": (), "follow_up": (), "attempt": 1, "delay": 0.0}
        fields = {
            field.name: values.get(field.name, "x")
            for field in attrs.fields(kind)
            if field.name not in ("run_id", "sequence") and field.default is attrs.NOTHING
        }
        assert native_line(kind("r", 0, **fields)) is not None


def test_chapter_06() -> None:
    """The names of the chapter, no events for user messages, and a status at the end; numbered from 0."""
    lines = list(project(RUN, "chapter_06"))
    assert [line["sequence"] for line in lines] == list(range(14))
    assert [line["type"] for line in lines] == [
        "agent_start", "turn_start", "message_start", "message_update", "message_update", "message_update", "message_end",
        "tool_execution_start", "tool_execution_update", "tool_execution_end", "message_start", "message_end", "turn_end",
        "agent_end",
    ]  # fmt: skip
    assert lines[6]["stop"] == "toolUse"
    assert lines[-1]["status"] == "completed"
    assert not any(line.get("role") == "user" for line in lines)


def test_checkpoint_09() -> None:
    """Accepted messages, a chunk for each delta, tools, and one end with a status; numbered from 0."""
    lines = list(project(RUN, "checkpoint_09"))
    assert [line["sequence"] for line in lines] == list(range(8))
    assert [line["type"] for line in lines] == [
        "message.accepted", "model.chunk", "model.chunk", "model.chunk", "tool.started", "tool.updated", "tool.ended",
        "run.finished",
    ]  # fmt: skip
    assert lines[2]["delta"] == "Hm"
    assert lines[-1]["status"] == "completed"


@pytest.mark.parametrize("dialect", ["chapter_06", "checkpoint_09"])
def test_each_run_is_numbered_anew(dialect: str) -> None:
    """The numbers start at 0 in each run."""
    lines = list(project(RUN + RUN, dialect))
    half = len(lines) // 2
    assert lines[:half] == lines[half:]


def test_pi() -> None:
    """Pi tells user messages as messages, a result's text when its message starts, and numbers nothing."""
    assert list(project(RUN, "pi")) == [
        {"type": "agent_start"},
        {"type": "turn_start"},
        {"type": "message_start", "role": "user", "text": "Hi"},
        {"type": "message_end", "role": "user", "text": "Hi"},
        {"type": "message_start", "role": "assistant"},
        {"type": "message_update", "reasoning": "let me see"},
        {"type": "message_update", "delta": "Hm"},
        {"type": "message_update", "call": "c1"},
        {"type": "message_end", "role": "assistant", "text": "Hm", "stop": "toolUse", "calls": ["c1"]},
        {"type": "tool_execution_start", "id": "c1", "name": "read"},
        {"type": "tool_execution_update", "id": "c1", "text": "50%"},
        {"type": "tool_execution_end", "id": "c1", "text": "A", "error": False},
        {"type": "message_start", "role": "tool", "id": "c1", "text": "A", "error": False},
        {"type": "message_end", "role": "tool", "id": "c1", "text": "A", "error": False},
        {"type": "turn_end", "results": ["c1"]},
        {"type": "agent_end"},
    ]


def test_two_results_of_one_id_in_pi() -> None:
    """Two calls that share an id have their results told in order."""
    ended = {"call_id": "c1", "name": "read", "is_error": False, "executed": True}
    start = (events.MessageStarted, {"role": "tool", "call_id": "c1"})
    stream = numbered((events.ToolEnded, {"text": "A", **ended}), (events.ToolEnded, {"text": "B", **ended}), start, start)
    assert [line["text"] for line in project(stream, "pi")] == ["A", "B", "A", "B"]


def test_projectors_do_not_share_what_they_remember() -> None:
    """Each stream has its own numbers."""
    first, second = projector("checkpoint_09"), projector("checkpoint_09")
    event = events.MessageUpdated("r", 5, "text", "x")
    assert [line["sequence"] for line in (*first(event), *first(event), *second(event))] == [0, 1, 0]


def test_an_unknown_dialect_is_refused() -> None:
    """The error names the dialect, and those that there are."""
    with pytest.raises(ValueError, match="no dialect 'klingon'; there are native, chapter_06"):
        projector("klingon")
    assert list(DIALECTS) == ["native", "chapter_06", "checkpoint_09", "pi"]


def test_messages_as_lines() -> None:
    """A message of the transcript, for the last line of a scenario."""
    assert [message_line(message) for message in (UserMessage("Hi"), CALLING, RESULT, SummaryMessage("SUM"))] == [
        {"role": "user", "text": "Hi"},
        {"role": "assistant", "text": "Hm", "stop": "tool_use", "calls": ["c1"]},
        {"role": "tool", "id": "c1", "text": "A", "error": False},
        {"role": "summary", "text": "SUM"},
    ]
    assert message_line(CALLING, "pi")["stop"] == "toolUse"


def test_messages_in_a_word() -> None:
    """A message of a request, in one word."""
    messages = (UserMessage("Hi"), CALLING, RESULT, SummaryMessage("SUM"), CustomMessage("note"))
    assert [message_summary(message) for message in messages] == [
        "user:Hi", "assistant:Hm", "tool:c1", "summary:SUM", "custom:[note]",
    ]  # fmt: skip
