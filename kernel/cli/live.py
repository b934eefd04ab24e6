"""A live view of a run, for a terminal: lines above that stay, and a few below that are drawn anew.

What has been said scrolls away as in any terminal; below it stand the phases, the line that is being said, the calls that
are running, what waits, and what is typed. Nothing is drawn more often than some twenty times a second, whatever comes, and
each time in one write, so that it does not flicker. When it ends, the lower part is taken away, and all lines are above.

`rich` does the drawing (the extra `cli`). Without it, in a pipe and in a dumb terminal there are plain lines (`console`).
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TextIO, final

from attrs import define, field

from kernel.cli.console import arguments_of, count_of, harmless, line_of, short, style_of
from kernel.events import (
    Event,
    MessageEnded,
    MessageUpdated,
    PhaseChanged,
    QueueChanged,
    RetryEnded,
    RetryScheduled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from kernel.messages import Usage
from statechart import Phase

FRAME: Final = 0.05
"""Seconds between two drawings: smooth to the eye, and a fraction of a percent of a processor."""
TOOLS_SHOWN: Final = 5
PARTIAL_ROWS: Final = 3
"""Rows of the line that is being said; the rest of a longer one is seen when it ends."""
_STYLES: Final = {"2": "dim", "31": "red", "36": "cyan", "33": "yellow", "1": "bold", "": ""}
_SHOWN: Final = tuple(phase for phase in Phase if phase not in (Phase.IDLE, Phase.CLOSED))


@define
class Call:
    """A call that is running: what is asked for, and since when."""

    name: str
    arguments: str
    since: float


@define
class View:
    """What the lower part shows. Events change it; it knows no terminal."""

    phase: str = Phase.IDLE
    turn: int = 0
    said: str = ""
    style: str = ""
    calls: dict[str, Call] = field(factory=dict)
    steering: int = 0
    follow_up: int = 0
    usage: Usage = field(factory=Usage)
    retry_at: float | None = None
    typed: str = ""
    lines: list[tuple[str, str]] = field(factory=list)
    """What is to be written above, with its style, since the last drawing."""

    def take(self, event: Event, now: float) -> None:
        """Take in what has happened."""
        match event:
            case PhaseChanged():
                self.phase = event.target
            case TurnStarted():
                self.turn = event.turn
            case TurnEnded():
                self.usage += event.usage
            case MessageUpdated() if event.channel != "call":
                self._say(harmless(event.delta), "dim" if event.channel == "reasoning" else "")
            case MessageEnded():
                self._end_line()
            case ToolStarted():
                self.calls[event.call_id] = Call(event.name, short(arguments_of(event.arguments)), now)
            case ToolEnded():
                self.calls.pop(event.call_id, None)
            case QueueChanged():
                self.steering, self.follow_up = len(event.steering), len(event.follow_up)
            case RetryScheduled():
                self.retry_at = now + event.delay
            case RetryEnded():
                self.retry_at = None
            case _:
                pass
        line = None if isinstance(event, PhaseChanged) else line_of(event)
        if line is not None:
            self._end_line()
            self.lines.append((harmless(line), _STYLES[style_of(event)]))

    def note(self, text: str) -> None:
        """A remark of our own."""
        self._end_line()
        self.lines.append((harmless(text), "yellow"))

    def _say(self, text: str, style: str) -> None:
        if style != self.style:
            self._end_line()
            self.style = style
        *whole, self.said = (self.said + text).split("\n")
        self.lines += [(line, style) for line in whole]

    def _end_line(self) -> None:
        if self.said:
            self.lines.append((self.said, self.style))
        self.said = ""

    # ---- the rows of the lower part ----

    def rows(self, width: int, now: float) -> Iterator[list[tuple[str, str]]]:
        """Each row as pieces with their styles; none is wider than *width*."""
        if self.said:
            rows = [self.said[at : at + width] for at in range(0, len(self.said), width)]
            yield from ([(row, self.style)] for row in rows[-PARTIAL_ROWS:])
        for call in list(self.calls.values())[:TOOLS_SHOWN]:
            seconds = f"{now - call.since:6.1f} s  "
            yield [(seconds, "dim"), (f"{call.name} {call.arguments}"[: width - len(seconds)], "cyan")]
        if len(self.calls) > TOOLS_SHOWN:
            yield [(f"and {len(self.calls) - TOOLS_SHOWN} more calls"[:width], "dim")]
        yield self._phases(width)
        yield [(self._facts(now)[:width], "dim")]
        yield [("> ", "bold"), (self.typed[-(width - 3) :], "")]

    def _phases(self, width: int) -> list[tuple[str, str]]:
        names = [phase.replace("_", "-") for phase in _SHOWN]
        if sum(map(len, names)) + 3 * len(names) > width:
            return [(f" {self.phase.replace('_', '-')} "[:width], "reverse")]
        pieces = []
        for phase, name in zip(_SHOWN, names, strict=True):
            pieces += [(f" {name} ", "reverse" if phase == self.phase else "dim"), (" ", "")]
        return pieces

    def _facts(self, now: float) -> str:
        facts = [f"turn {self.turn}", f"{self.usage.input:,} tokens in, {self.usage.output:,} out"]
        if self.steering or self.follow_up:
            facts.append(f"waiting: {self.steering} to steer, {count_of(self.follow_up, 'follow-up')}")
        if self.retry_at is not None:
            facts.insert(0, f"next try in {max(0.0, self.retry_at - now):.1f} s")
        return " · ".join(facts)


@final
class LiveConsole:
    """The view on a terminal. Draw within `watch`; what is shown after it is plain lines."""

    shows_input: ClassVar[bool] = True

    def __init__(self, stream: TextIO, *, color: bool, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, no_color=not color)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._view = View()

    def show(self, event: Event) -> None:
        """Take in what has happened. It is drawn with the next frame."""
        self._view.take(event, self._clock())
        self._flush_unless_live()

    def note(self, text: str) -> None:
        """Say something of our own."""
        self._view.note(text)
        self._flush_unless_live()

    def typed(self, text: str) -> None:
        """What has been typed so far. Drawn at once: who types waits for it."""
        self._view.typed = harmless(text)
        if self._timer is not None:
            self._draw()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Draw while it lasts; afterwards all lines are there, and the lower part is not."""
        self._live.start()
        self._tick()
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._draw()
            self._live.stop()

    def _tick(self) -> None:
        self._draw()
        self._timer = asyncio.get_running_loop().call_later(FRAME, self._tick)

    def _draw(self) -> None:
        from rich.text import Text

        view, self._view.lines = self._view.lines, []
        width = max(20, self._console.width)
        rows: list[Any] = [Text.assemble(*row) for row in self._view.rows(width, self._clock())]
        self._live.update(Text("\n").join(rows))
        if view:  # what is printed takes the lower part with it, in the same write
            self._console.print(Text("\n").join(Text(line, style) for line, style in view), soft_wrap=True)
        else:
            self._live.refresh()

    def _flush_unless_live(self) -> None:
        if self._timer is None:
            from rich.text import Text

            lines, self._view.lines = self._view.lines, []
            for line, style in lines:
                self._console.print(Text(line, style), soft_wrap=True)
