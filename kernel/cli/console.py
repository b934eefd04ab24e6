"""What a run looks like: one plain line for each thing that happens, or, in a terminal, as it happens.

Whatever a model, a tool or a file says is shown without its control characters: it could otherwise command the terminal.
"""

import io
import os
import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final, Protocol, TextIO, final

from kernel.events import (
    CompactionEnded,
    CompactionStarted,
    Event,
    HookFailed,
    MessageAccepted,
    MessageEnded,
    MessageUpdated,
    PhaseChanged,
    QueueChanged,
    RetryScheduled,
    RunFinished,
    RunResult,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
)
from kernel.messages import AssistantMessage
from kernel.trace.file import TraceWriter

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_SHOWN: Final = 100
"""Characters of arguments and results that are shown of a tool call."""


class Console(Protocol):
    """Where a run is shown. `shows_input`: it shows what is typed itself."""

    shows_input: ClassVar[bool]

    def show(self, event: Event) -> None:
        """Show what has happened."""
        ...

    def note(self, text: str) -> None:
        """Say something of our own."""
        ...

    def typed(self, text: str) -> None:
        """What a user has typed and not sent."""
        ...

    def watch(self) -> AbstractContextManager[None]:
        """Within it the run goes on."""
        ...


def console_for(stream: TextIO) -> Console:
    """A terminal's console when *stream* is one, else one of plain lines."""
    if not stream.isatty():
        return LineConsole(stream)
    return TerminalConsole(stream, color="NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb")


def harmless(text: str) -> str:
    """*text* with its control characters (line breaks and tabs excepted) made visible."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


@final
class TraceConsole:
    """Each event as a line of JSON: a trace (`kernel.trace.file`). Remarks are no events: they go to *remarks*."""

    shows_input: ClassVar[bool] = False

    def __init__(self, stream: TextIO, remarks: TextIO) -> None:
        self._stream = stream
        self._writer = TraceWriter(self._write)
        self._remarks = remarks

    def show(self, event: Event) -> None:
        """Print the event."""
        self._writer(event)
        if isinstance(self._writer.error, OSError):  # whoever read has left
            raise self._writer.error

    def note(self, text: str) -> None:
        """Print a remark where it disturbs nobody who reads."""
        print(f"note: {harmless(text)}", file=self._remarks)

    def typed(self, text: str) -> None:
        """Nothing is shown of it."""

    def watch(self) -> AbstractContextManager[None]:
        """Nothing is begun, and nothing has to be ended."""
        return nullcontext()

    def _write(self, line: str) -> None:
        self._stream.write(line)
        self._stream.flush()


@final
class LineConsole:
    """One line for each thing that happens; nothing is ever overwritten."""

    shows_input: ClassVar[bool] = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, event: Event) -> None:
        """Print the line of the event, when it has one."""
        if isinstance(event, MessageEnded) and isinstance(event.message, AssistantMessage):
            for text in event.message.text.splitlines():
                self._print(f"text: {text}".rstrip())
        line = line_of(event)
        if line is not None:
            self._print(line)

    def typed(self, text: str) -> None:
        """The terminal itself shows what is typed."""

    def watch(self) -> AbstractContextManager[None]:
        """Nothing is begun, and nothing has to be ended."""
        return nullcontext()

    def note(self, text: str) -> None:
        """Print a remark."""
        self._print(f"note: {text}")

    def _print(self, line: str) -> None:
        # One write for each line, so that lines of several processes on one terminal do not mix.
        self._stream.write(harmless(line).replace("\n", " ") + "\n")
        self._stream.flush()


@final
class TerminalConsole:
    """Text as it streams, and lines between."""

    shows_input: ClassVar[bool] = False

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._color = color
        self._at_margin = True

    def show(self, event: Event) -> None:
        """Write what the event adds."""
        if isinstance(event, MessageUpdated):
            if event.channel != "call":
                self._write(harmless(event.delta), "2" if event.channel == "reasoning" else "")
            return
        line = line_of(event)
        if line is not None:
            self._line(line, style_of(event))

    def typed(self, text: str) -> None:
        """The terminal itself shows what is typed."""

    def watch(self) -> AbstractContextManager[None]:
        """Nothing is begun, and nothing has to be ended."""
        return nullcontext()

    def note(self, text: str) -> None:
        """Write a remark."""
        self._line(text, "33")

    def _line(self, text: str, style: str) -> None:
        if not self._at_margin:
            self._write("\n", "")
        self._write(harmless(text), style)
        self._write("\n", "")

    def _write(self, text: str, style: str) -> None:
        if not text:
            return
        self._stream.write(f"\x1b[{style}m{text}\x1b[0m" if style and self._color else text)
        self._stream.flush()
        self._at_margin = text.endswith("\n")


def style_of(event: Event) -> str:
    match event:
        case PhaseChanged():
            return "2"
        case ToolEnded(is_error=True) | HookFailed() | RetryScheduled():
            return "31"
        case ToolStarted() | ToolUpdated() | ToolEnded():
            return "36"
        case RunFinished():
            return "1"
        case _:
            return ""


def line_of(event: Event) -> str | None:
    """The line of an event; None for one that has none of its own."""
    match event:
        case PhaseChanged():
            return f"phase: {event.source} -> {event.target}"
        case MessageAccepted():
            return f"you ({event.origin.replace('_', '-')}): {event.message.text}"
        case ToolStarted():
            return f"tool started: {event.name} {short(arguments_of(event.arguments))}"
        case ToolUpdated():
            return f"tool: {short(event.text)}"
        case ToolEnded():
            return f"tool {_verdict(event)}: {event.name}: {short(event.text)}"
        case QueueChanged() if event.steering:
            return f"waits for the next turn: {len(event.steering)}"
        case RetryScheduled():
            return f"request failed, next try in {event.delay:.1f} s: {event.error}"
        case CompactionStarted():
            return f"compaction: {event.reason}"
        case CompactionEnded():
            return f"compaction: {event.outcome}"
        case HookFailed():
            return f"hook failed: {event.hook}: {event.error}"
        case RunFinished():
            return _outcome(event.result)
        case _:
            return None


def _verdict(event: ToolEnded) -> str:
    if not event.executed:
        return "not executed"
    return "failed" if event.is_error else "ended"


def _outcome(result: RunResult) -> str:
    why = result.reason if result.failure is None else result.failure.message
    used = result.usage
    return (
        f"{result.status}{f' ({why})' if why else ''}: {count_of(result.turns, 'turn')}, "
        f"{count_of(len(result.messages), 'message')}, {used.input} tokens in, {used.output} out"
    )


def count_of(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def arguments_of(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def short(text: str) -> str:
    lines = text.splitlines() or [""]
    first = lines[0] if len(lines[0]) <= _SHOWN else lines[0][:_SHOWN] + "…"
    return first if len(lines) == 1 else f"{first} (and {count_of(len(lines) - 1, 'more line')})"


def prepare(stream: TextIO) -> TextIO:
    """*stream* so that a character that it can't encode is replaced instead of ending the run."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream
