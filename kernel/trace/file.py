"""A trace: what listeners heard and when, written down whole, for whoever looks at it later.

    with open("run.jsonl", "w") as file:
        agent.subscribe(TraceWriter(file.write))    # written while the agent goes on
    with open("run.jsonl", "rb") as file:
        trace = read_trace(file)                    # the same events, and when each was heard

It is JSON Lines in ASCII: a header with the format's version and the date on which it was begun, then one event a line,
with the seconds since then. `python -m kernel --json` prints one; `check` judges it, `timeline` and `path` draw it, `serve`
plays it again. Of a last line that was torn, as a crash leaves it, nothing is made; anything else that is wrong is refused
with its line number. A journal (`kernel.journal`) has what went *into* a core and can be replayed; a trace has what came
out of it.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, final

from attrs import frozen

from kernel.codec import Codec, explain
from kernel.errors import KernelError, describe
from kernel.events import Event
from kernel.jsonl import entries_of, from_line, to_line

FORMAT: Final = "phasekernel.trace/1"
"""Raised whenever a trace of before would be read as something else."""
_AT: Final = "at"
_DIGITS: Final = 6
"""Of a second: a microsecond is less than any listener could tell."""


class TraceError(KernelError):
    """A trace that can't be read: which line, and why."""

    code = "TRACE"

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line} of the trace: {why}")
        self.line = line


@final
@frozen
class Heard:
    """An event, and when it was heard: in seconds since the trace was begun."""

    at: float
    event: Event


@final
@frozen
class Trace:
    """A trace that was read: when it was begun, and what was heard, in its order."""

    began: datetime
    heard: tuple[Heard, ...]


@final
class TraceWriter:
    """A listener that writes each event as a line; the header is written at once.

    *write* is called with whole lines, newline included. When it raises, or an event has what JSON can't say (a custom
    message's data, say), that is logged and kept in `error`, and nothing more is written: a trace with a hole in it tells
    what did not happen. *clock* gives seconds, *now* the date.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.error: BaseException | None = None
        self._write = write
        self._clock = clock
        self._codec = Codec()
        self._began = clock()
        self._put({"format": FORMAT, "began": now().isoformat(timespec="seconds")})

    def __call__(self, event: Event) -> None:
        if self.error is not None:
            return
        at = round(self._clock() - self._began, _DIGITS)
        try:
            line = {_AT: at, **self._codec.dump_event(event)}
        except Exception as error:
            self._end(error)
        else:
            self._put(line)

    def _put(self, line: dict[str, Any]) -> None:
        try:
            self._write(to_line(line))
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        self.error = error
        logging.getLogger("kernel.trace").error("the trace ends here: %s", describe(error))


def is_header(data: Any) -> bool:
    """Whether *data* is the first line of a trace, of this version or another."""
    return isinstance(data, dict) and str(data.get("format", "")).startswith(FORMAT.partition("/")[0])


def read_trace(lines: Iterable[str | bytes]) -> Trace:
    """Read a trace. *lines* have their newlines, as those of a file have. Raises `TraceError`."""
    given = list(lines)
    began = _header(given[0] if given else "")
    codec = Codec()
    heard: list[Heard] = []
    for number, data in entries_of(given, 2, TraceError):
        try:
            heard.append(_heard(codec, data, heard[-1].at if heard else 0.0))
        except Exception as error:
            raise TraceError(number, f"is not an event: {explain(error)}") from error
    return Trace(began, tuple(heard))


def event_of(codec: Codec, data: dict[str, Any]) -> Event:
    """The event that a line of a trace tells of."""
    return codec.load_event({name: value for name, value in data.items() if name != _AT})


def _heard(codec: Codec, data: Any, before: float) -> Heard:
    if not isinstance(data, dict):
        raise TypeError("it is no object")
    at = data.get(_AT)
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not math.isfinite(at):
        raise TypeError(f"its time is {at!r}, and seconds since the beginning are meant")
    if at < before:
        raise ValueError(f"its time is {at}, and the line before has {before}")
    return Heard(float(at), event_of(codec, data))


def _header(line: str | bytes) -> datetime:
    try:
        data = from_line(line)
    except ValueError:
        data = None
    if not is_header(data):
        _refuse('is not the header of a trace, such as `python -m kernel --json` or a TraceWriter writes first')
    if data["format"] != FORMAT:
        _refuse(f"the format is {data['format']!r}, and this version reads {FORMAT!r}")
    try:
        if data.keys() != {"format", "began"}:
            raise ValueError(f"it has {', '.join(data)}")
        return datetime.fromisoformat(data["began"])
    except (TypeError, ValueError) as error:
        raise TraceError(1, f"the header is wrong: {describe(error)}") from error


def _refuse(why: str) -> NoReturn:
    raise TraceError(1, why)
