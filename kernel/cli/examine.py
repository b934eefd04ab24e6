"""`python -m kernel check FILE` holds a recorded stream of events against the guarantees; `python -m kernel journal` writes
the journal of a scenario, and replays a journal to the events that it gives.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel.codec import Codec, explain
from kernel.dialects import DIALECTS, native_line, projector
from kernel.errors import describe
from kernel.events import Event
from kernel.journal import JournalError, read_journal
from kernel.jsonl import from_line
from kernel.scenario import ScenarioError, parse, play
from kernel.testing import SimulationError
from kernel.trace import NotAnEventError, breaches_of_lines
from kernel.trace.file import event_of, is_header


def check(argv: Sequence[str]) -> int:
    """The command `check`: 0 when no guarantee is broken, 1 when one is, 2 when the file can't be read as a stream."""
    parser = argparse.ArgumentParser(
        prog="python -m kernel check",
        description="Hold a stream of events (a trace, or JSON Lines: native or Pi's, or encoded events) against the "
        "guarantees G1 to G16, as far as a stream shows them. Prints each breach with its line, the first one first.",
        epilog="Exit status: 0 no breach, 1 a breach, 2 the file is no stream of events.",
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--cut", action="store_true", help="the stream was cut off: that it has no end is no breach")
    options = parser.parse_args(argv)
    try:
        lines, numbers = _lines(options.file)
        breaches = breaches_of_lines(lines, whole=not options.cut)
    except NotAnEventError as error:
        return _stop(ValueError(f"{options.file}, line {numbers[error.place]}: {error.fault}"))
    except (OSError, ValueError) as error:
        return _stop(error)
    for breach in breaches:
        print(f"line {numbers[breach.place]}: {breach}")
    print(f"{len(lines)} lines, {len(breaches)} breaches")
    return 1 if breaches else 0


def _lines(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The lines of a stream, and their numbers in the file. Raises ValueError with the number of a line that is none."""
    codec = Codec()
    lines: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, text in enumerate(path.read_bytes().split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            line = _line(codec, from_line(text))
        except Exception as error:
            raise ValueError(f"{path}, line {number}: {explain(error)}") from error
        if line is not None:
            lines.append(line)
            numbers.append(number)
    if not any(line.get("type", "final") != "final" for line in lines):
        raise ValueError(f"{path}: there is no event in it")
    return lines, numbers


def _line(codec: Codec, data: Any) -> dict[str, Any] | None:
    if not isinstance(data, dict):
        raise TypeError("it is no JSON object")
    if is_header(data):
        return None
    if "is" in data:
        event = event_of(codec, data)
        line = native_line(event)
        return None if line is None else {**line, "run": event.run_id}
    if not data.keys() & {"type", "refused", "did"}:
        raise ValueError("it is no event: it has no type")
    return data


def journal(argv: Sequence[str]) -> int:
    """The command `journal`: `write SCENARIO FILE` or `replay FILE`. 0 when it worked, 2 when a file is wrong or can't be
    written, 3 when the scenario stopped where nothing can go on; the journal is then what there was up to there.
    """
    parser = argparse.ArgumentParser(
        prog="python -m kernel journal",
        description="Journals of inputs: all that entered an agent's core, written down, and replayed to the same events.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="run a scenario and write the journal of its inputs")
    write.add_argument("scenario", type=Path)
    write.add_argument("file", type=Path)
    replay = commands.add_parser("replay", help="print the lines of the events that a journal gives")
    replay.add_argument("file", type=Path)
    replay.add_argument("--dialect", choices=tuple(DIALECTS), default="native")
    options = parser.parse_args(argv)
    try:
        if options.command == "write":
            _write(options.scenario, options.file)
        else:
            _replay(options.file, options.dialect)
    except SimulationError as error:
        return _stop(error, 3)
    except (OSError, ScenarioError, JournalError) as error:
        return _stop(error)
    return 0


def _write(scenario: Path, path: Path) -> None:
    parsed = parse(scenario.read_bytes())  # first, so that a bad scenario costs nobody a journal
    with path.open("w", encoding="ascii", newline="\n") as file:
        play(parsed, "native", lambda _: None, journal=file.write)


def _replay(path: Path, dialect: str) -> None:
    project = projector(dialect)
    with path.open("rb") as file:
        read = read_journal(file)
    for effects in read.replay():
        for effect in effects:
            for line in project(effect) if isinstance(effect, Event) else ():
                print(json.dumps(line))


def _stop(error: Exception, status: int = 2) -> int:
    sys.stdout.flush()
    print(describe(error), file=sys.stderr)
    return status
