"""`python -m kernel check FILE` holds a recorded stream of events against the guarantees; `python -m kernel journal` writes
the journal of a scenario, and replays a journal to the events that it gives.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernel.codec import Codec
from kernel.dialects import DIALECTS, native_line, projector
from kernel.errors import describe
from kernel.events import Event
from kernel.journal import JournalError, read_journal
from kernel.scenario import ScenarioError, parse, play
from kernel.trace import breaches_of_lines
from kernel.trace.pi import from_pi, speaks_pi


def check(argv: Sequence[str]) -> int:
    """The command `check`: 0 when no guarantee is broken, 1 when one is, 2 when the file can't be read."""
    parser = argparse.ArgumentParser(
        prog="python -m kernel check",
        description="Hold a stream of events (JSON Lines: native or Pi's lines, or encoded events) against the guarantees.",
    )
    parser.add_argument("file", type=Path)
    try:
        lines = list(_lines(parser.parse_args(argv).file))
    except (OSError, ValueError) as error:
        return _stop(error)
    breaches = breaches_of_lines(list(from_pi(lines)) if speaks_pi(lines) else lines)
    for breach in breaches:
        print(breach)
    print(f"{len(lines)} lines, {len(breaches)} breaches")
    return 1 if breaches else 0


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    codec = Codec()
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip():
            continue
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise TypeError("it is no JSON object")
            line = native_line(codec.load_event(data)) if "is" in data else data
        except Exception as error:
            raise ValueError(f"{path}, line {number}: {describe(error)}") from error
        if line is not None:
            yield dict(line)


def journal(argv: Sequence[str]) -> int:
    """The command `journal`: `write SCENARIO FILE` or `replay FILE`."""
    parser = argparse.ArgumentParser(prog="python -m kernel journal", description="Journals of inputs.")
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
            with options.file.open("w", encoding="utf-8") as file:
                play(parse(options.scenario.read_bytes()), "native", lambda _: None, journal=file.write)
        else:
            _replay(options.file, options.dialect)
    except (OSError, ScenarioError, JournalError) as error:
        return _stop(error)
    return 0


def _replay(path: Path, dialect: str) -> None:
    project = projector(dialect)
    with path.open(encoding="utf-8") as file:
        read = read_journal(file)
    for effects in read.replay():
        for effect in effects:
            for line in project(effect) if isinstance(effect, Event) else ():
                print(json.dumps(line, ensure_ascii=False))


def _stop(error: Exception) -> int:
    print(describe(error), file=sys.stderr)
    return 2
