"""`python -m tests.proof [LANE ...]`: run every checker of the lifecycle and print what each covered, as a table.

A lane whose tools are missing is skipped and says so; the exit status is 1 when a lane failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.proof.lanes import LANES, Lane


@frozen
class Outcome:
    """What a lane came to."""

    lane: Lane
    result: str
    covered: tuple[str, ...]
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the lanes that are asked for, by default all."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description="Run every checker of the lifecycle.")
    names = [lane.name for lane in LANES]
    parser.add_argument("lanes", nargs="*", metavar="LANE", help=f"some of: {', '.join(names)} (default: all)")
    asked = parser.parse_args(arguments).lanes
    if unknown := [name for name in asked if name not in names]:
        parser.error(f"there is no lane {unknown[0]!r}; there are {', '.join(names)}")
    outcomes = []
    for lane in LANES:
        if not asked or lane.name in asked:
            print(f"{lane.name}: {lane.about} …", file=sys.stderr, flush=True)
            outcomes.append(run(lane))
    print(table(outcomes))
    return int(any(outcome.result.startswith("FAILED") for outcome in outcomes))


def run(lane: Lane) -> Outcome:
    """Run one lane in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said.json")
        began = time.perf_counter()
        done = subprocess.run(
            lane.command, capture_output=True, text=True, env=os.environ | {"PHASEKERNEL_SAID": str(said)}
        )
        seconds = time.perf_counter() - began
        told = json.loads(said.read_text()) if said.exists() else None
    if done.returncode != 0:
        print(done.stdout, done.stderr, file=sys.stderr)
    if told is None:
        return Outcome(lane, "ok" if done.returncode == 0 else "FAILED", tuple(_sums(done.stdout)), seconds)
    return Outcome(lane, _verdict(told, done.returncode), tuple(told["said"]) or (f"{told['passed']} tests",), seconds)


def _sums(output: str) -> list[str]:
    """What a command of our own says of how far it went, and its last line, the sum."""
    lines = [line for line in output.splitlines() if line.strip()]
    return [line for line in lines[:-1] if line.startswith("explored")] + lines[-1:]


def _verdict(told: dict[str, Any], status: int) -> str:
    counts = ", ".join(f"{told[name]} {name}" for name in ("passed", "failed", "error", "skipped") if told[name])
    if status != 0:
        return f"FAILED: {counts or f'exit status {status}'}"
    return f"ok: {counts}" if told["passed"] else f"SKIPPED: {counts}"


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as Markdown."""
    rows = [
        f"| {outcome.lane.name} | {outcome.lane.about} | {'; '.join(map(str.strip, outcome.covered))} | {outcome.result} | "
        f"{outcome.seconds:.0f} s |"
        for outcome in outcomes
    ]
    return "\n".join(["| checker | what it holds | what it covered | result | time |", "|---|---|---|---|---|", *rows])


if __name__ == "__main__":
    sys.exit(main())
