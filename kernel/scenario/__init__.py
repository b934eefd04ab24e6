"""Scenario files: a scripted model, scripted tools, what is done at which event, and what comes of it, line by line.

`python -m kernel scenario FILE [--dialect native|pi|checkpoint_09|chapter_06]` runs one on the kernel and prints one
JSON object a line. It takes no network and no real time, and gives the same lines each time. Exit status 2: the file is
no scenario, and the sentence on standard error says why. 3: it stopped where nothing can go on, and standard error says
who waits.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from kernel.dialects import DIALECTS, Line
from kernel.scenario.format import Scenario, ScenarioError, parse
from kernel.scenario.runner import play
from kernel.testing import SimulationError

__all__ = ["Scenario", "ScenarioError", "main", "parse", "play", "run"]


def run(text: bytes | str, dialect: str = "native") -> list[Line]:
    """All lines of the scenario that *text* is. Raises as `parse` and `play` do."""
    lines: list[Line] = []
    play(parse(text), dialect, lines.append)
    return lines


def main(argv: Sequence[str]) -> int:
    """The command `scenario` with these arguments; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m kernel scenario", description="Run a scenario file on the kernel.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--dialect", choices=tuple(DIALECTS), default="native")
    options = parser.parse_args(argv)
    try:
        scenario = parse(options.file.read_bytes())
    except (OSError, ScenarioError) as error:
        return _stop(options.file, error, 2)
    try:
        play(scenario, options.dialect, _print)
    except ScenarioError as error:
        return _stop(options.file, error, 2)
    except SimulationError as error:
        return _stop(options.file, error, 3)
    return 0


def _print(line: Line) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")


def _stop(file: Path, error: Exception, status: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"{file}: {error}\n")
    return status
