"""The event stream in other words: pure projections of events into lines, which are dictionaries that JSON can say.

`native` says everything that happened. `chapter_06` and `checkpoint_09` speak as the documents that the kernel honours,
and number their own lines from 0 in each run; `pi` speaks as the Pi agent core, which numbers nothing. A projection
leaves out what its vocabulary has no word for, and never adds what did not happen.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kernel import events
from kernel.messages import AssistantMessage, Message, StopReason, ToolMessage

Line = dict[str, Any]
Projector = Callable[[events.Event], Iterator[Line]]
"""What turns one event after the other into lines. It remembers what it must, so each stream needs its own."""


def projector(dialect: str) -> Projector:
    """A fresh projector into *dialect*: `native`, `chapter_06`, `checkpoint_09` or `pi`."""
    if dialect not in DIALECTS:
        raise ValueError(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
    return DIALECTS[dialect]()


def project(stream: Iterable[events.Event], dialect: str = "native") -> Iterator[Line]:
    """The lines of a whole stream, in order."""
    to_lines = projector(dialect)
    for event in stream:
        yield from to_lines(event)


# ---- native ----


def native_line(event: events.Event) -> Line | None:
    """*event* in the kernel's own words; None for a piece of nothing, which is never shown. `count` is there when the
    event stands for several.
    """
    details = _NATIVE[type(event)](event)
    if details is None:
        return None
    count = getattr(event, "count", 1)
    return {"type": event.type, "sequence": event.sequence, **details} | ({"count": count} if count != 1 else {})


def _native(event: events.Event) -> Iterator[Line]:
    line = native_line(event)
    if line is not None:
        yield line


def _nothing(event: events.Event) -> Line:
    return {}


def _update(event: events.MessageUpdated) -> Line | None:
    if event.channel == "call":
        return {"call": event.call_id}
    key = "delta" if event.channel == "text" else "reasoning"
    return {key: event.delta} if event.delta else None


def _started(event: events.MessageStarted) -> Line:
    return {"role": event.role} if event.call_id is None else {"role": event.role, "id": event.call_id}


def _ended(event: events.MessageEnded) -> Line:
    message = event.message
    line: Line = {"role": message.role}
    if isinstance(message, ToolMessage):
        line |= {"id": message.call_id, "text": message.text, "error": message.is_error}
    else:
        line |= {"text": message.text, "stop": message.stop.value} | _calls_and_error(message)
    return line if event.kept else line | {"kept": False}


def _calls_and_error(message: AssistantMessage) -> Line:
    line: Line = {}
    if message.calls:
        line["calls"] = [call.id for call in message.calls]
    if message.error:
        line["error"] = message.error
    return line


def _tool_ended(event: events.ToolEnded) -> Line:
    line: Line = {"id": event.call_id, "text": event.text, "error": event.is_error}
    return line if event.executed else line | {"executed": False}


def _queues(event: events.QueueChanged) -> Line:
    line = {"steering": _texts(event.steering), "follow_up": _texts(event.follow_up)}
    return line | {"dropped": _texts(event.dropped)} if event.dropped else line


def _texts(messages: Iterable[Any]) -> list[str]:
    return [message.text for message in messages]


_NATIVE: Final[dict[type[events.Event], Callable[[Any], Line | None]]] = {
    events.RunStarted: _nothing,
    events.PhaseChanged: lambda event: {"source": str(event.source), "target": str(event.target)},
    events.TurnStarted: lambda event: {"turn": event.turn},
    events.MessageAccepted: lambda event: {"origin": event.origin, "text": event.message.text},
    events.MessageStarted: _started,
    events.MessageUpdated: _update,
    events.MessageEnded: _ended,
    events.ToolStarted: lambda event: {"id": event.call_id, "name": event.name},
    events.ToolUpdated: lambda event: {"id": event.call_id, "text": event.text},
    events.ToolEnded: _tool_ended,
    events.TurnEnded: lambda event: {"results": list(event.results)},
    events.RetryScheduled: lambda event: {"attempt": event.attempt, "delay": event.delay},
    events.RetryEnded: _nothing,
    events.CompactionStarted: lambda event: {"reason": event.reason},
    events.CompactionEnded: lambda event: {"outcome": event.outcome},
    events.QueueChanged: _queues,
    events.HookFailed: lambda event: {"hook": event.hook},
    events.SubscriberFailed: _nothing,
    events.UpdateDiscarded: lambda event: {"id": event.call_id},
    events.RunFinished: lambda event: {"status": event.status},
}


# ---- the others, each a table of what it has words for ----

Translation = dict[type[events.Event], Callable[[Any], list[Line]]]


def _say(name: str, details: Callable[[Any], Line | None] | None = None) -> Callable[[Any], list[Line]]:
    """A translation into one line of the type *name*; without *details* it says what the native line says."""

    def lines(event: events.Event) -> list[Line]:
        said = (details or _NATIVE[type(event)])(event)
        return [] if said is None else [{"type": name, **said}]

    return lines


def _chapter_ended(event: events.MessageEnded) -> Line:
    line = _ended(event)
    line.pop("kept", None)
    return line | {"stop": stop_in_pi(line["stop"])} if "stop" in line else line


def _chapter_tool_ended(event: events.ToolEnded) -> Line:
    return {"id": event.call_id, "text": event.text, "error": event.is_error}


_CHAPTER_06: Final[Translation] = {
    events.RunStarted: _say("agent_start"),
    events.TurnStarted: _say("turn_start", _nothing),
    events.MessageStarted: _say("message_start"),
    events.MessageUpdated: _say("message_update"),
    events.MessageEnded: _say("message_end", _chapter_ended),
    events.ToolStarted: _say("tool_execution_start"),
    events.ToolUpdated: _say("tool_execution_update"),
    events.ToolEnded: _say("tool_execution_end", _chapter_tool_ended),
    events.TurnEnded: _say("turn_end"),
    events.RunFinished: _say("agent_end"),
}

_CHECKPOINT_09: Final[Translation] = {
    events.MessageAccepted: _say("message.accepted"),
    events.MessageUpdated: _say("model.chunk"),
    events.ToolStarted: _say("tool.started"),
    events.ToolUpdated: _say("tool.updated"),
    events.ToolEnded: _say("tool.ended"),
    events.RunFinished: _say("run.finished"),
}


def _numbered(words: Translation) -> Projector:
    """A projector that numbers its lines from 0 in each run."""
    number = 0

    def lines(event: events.Event) -> Iterator[Line]:
        nonlocal number
        if isinstance(event, events.RunStarted):
            number = 0
        for line in words[type(event)](event) if type(event) in words else ():
            yield {"type": line.pop("type"), "sequence": number, **line}
            number += 1

    return lines


def _pi() -> Projector:
    """Pi tells a tool result's text when its message starts, so it is remembered from the end of the execution."""
    results: dict[str, list[Line]] = {}

    def started(event: events.MessageStarted) -> list[Line]:
        line = {"type": "message_start", **_started(event)}
        told = results.get(event.call_id or "")
        return [line | told.pop(0)] if told else [line]

    def ended(event: events.ToolEnded) -> list[Line]:
        results.setdefault(event.call_id, []).append({"text": event.text, "error": event.is_error})
        return _CHAPTER_06[events.ToolEnded](event)

    words = _CHAPTER_06 | {
        events.MessageAccepted: _pi_accepted,
        events.MessageStarted: started,
        events.ToolEnded: ended,
        events.RunFinished: _say("agent_end", _nothing),
    }
    return lambda event: iter(words[type(event)](event) if type(event) in words else ())


def _pi_accepted(event: events.MessageAccepted) -> list[Line]:
    message = {"role": "user", "text": event.message.text}
    return [{"type": "message_start", **message}, {"type": "message_end", **message}]


DIALECTS: Final[dict[str, Callable[[], Projector]]] = {
    "native": lambda: _native,
    "chapter_06": lambda: _numbered(_CHAPTER_06),
    "checkpoint_09": lambda: _numbered(_CHECKPOINT_09),
    "pi": _pi,
}
"""Each dialect by its name, with what makes a fresh projector into it."""


# ---- messages ----

_STOPS_IN_PI: Final = {StopReason.TOOL_USE.value: "toolUse"}


def stop_in_pi(stop: str) -> str:
    """A stop reason as Pi and chapter 06 spell it."""
    return _STOPS_IN_PI.get(stop, stop)


def message_line(message: Message, dialect: str = "native") -> Line:
    """A message of the transcript, as the last line of a scenario shows it."""
    if isinstance(message, ToolMessage):
        return {"role": "tool", "id": message.call_id, "text": message.text, "error": message.is_error}
    if isinstance(message, AssistantMessage):
        stop = stop_in_pi(message.stop.value) if dialect == "pi" else message.stop.value
        calls = [call.id for call in message.calls]
        return {"role": "assistant", "text": message.text, "stop": stop, "calls": calls}
    return {"role": message.role, "text": message.text}


def message_summary(message: Message) -> str:
    """A message of a request in one word: `user:text`, `assistant:text`, `tool:call id`, `summary:text`."""
    if isinstance(message, ToolMessage):
        return f"tool:{message.call_id}"
    return f"{message.role}:{message.text}"


__all__ = [
    "DIALECTS", "Line", "Projector", "message_line", "message_summary", "native_line", "project", "projector",
    "stop_in_pi",
]  # fmt: skip
