"""`python -m kernel timeline TRACE` draws a run over time, `python -m kernel path TRACE` its way on the phase diagram."""

import argparse
import sys
import webbrowser
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from kernel.pictures import path, timeline
from kernel.pictures.path import steps
from kernel.pictures.svg import duration
from kernel.trace.file import Trace, TraceError, read_trace

_SAID: Final = 40
"""Steps of a path that are printed; the picture has them all."""


def draw_timeline(argv: Sequence[str]) -> int:
    """The command `timeline`: 0 when the picture was written, 2 when a file can't be read or written."""
    return _draw("timeline", "Draw a run over time: phases, responses, tools, messages, retries, cancel.", timeline, argv)


def draw_path(argv: Sequence[str]) -> int:
    """The command `path`: the same for the way of a run on the phase diagram; the way is printed, too."""
    return _draw("path", "Mark on the phase diagram which way a run went.", path, argv)


def _draw(name: str, description: str, picture: Callable[[Trace], str], argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m kernel {name}",
        description=description,
        epilog="A trace is what `python -m kernel --json` prints and `--trace FILE` writes. Exit status: 0 drawn, 2 not.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"default: TRACE with the ending .{name}.svg")
    parser.add_argument("--no-open", action="store_true", help="only write it; in a terminal it is opened, too")
    options = parser.parse_args(argv)
    output = options.output or options.trace.with_suffix(f".{name}.svg")
    try:
        with options.trace.open("rb") as file:
            trace = read_trace(file)
        output.write_text(picture(trace), encoding="utf-8", newline="\n")
    except (OSError, TraceError, ValueError) as error:
        print(f"{options.trace}: {error}", file=sys.stderr)
        return 2
    if name == "path":
        print(_told(trace))
    print(f"wrote {output}")
    if sys.stdout.isatty() and not options.no_open:
        webbrowser.open(output.resolve().as_uri())
    return 0


def _told(trace: Trace) -> str:
    told = [f"{phase} ({duration(seconds)})" for phase, seconds in islice(steps(trace), _SAID + 1)]
    return " → ".join([*told[:_SAID], "…"] if len(told) > _SAID else told)
