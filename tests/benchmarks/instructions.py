"""Instructions instead of seconds: `python -m tests.benchmarks.instructions`, which needs valgrind.

A process that does the work twice as often executes so many instructions more; that difference is what the work takes.
It does not depend on what else the machine does, and hardly on the machine. Each figure is of two fresh processes with
the same hash seed and no collector (which would come at other moments).
"""

import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
from typing import Final

from tests.benchmarks import report
from tests.benchmarks.floor import Floor
from tests.benchmarks.memory import ROOT
from tests.benchmarks.plans import Plan, parallel_plan, text_plan, tool_plan
from tests.benchmarks.sides import Seen, Side
from tests.benchmarks.subject import Kernel

SIDES: Final[dict[str, Side]] = {"floor": Floor(), "kernel": Kernel(endless=True)}
WORK: Final[dict[str, tuple[str, int, Plan]]] = {
    "text": ("a delta", 500, text_plan(500)),
    "yielding": ("a delta, yielding before each", 500, text_plan(500, "yielding")),
    "tools": ("a tool turn", 50, tool_plan(50)),
    "parallel": ("a parallel call of 32", 32, parallel_plan(32)),
    "cancel": ("a run, to its cancel and its end", 1, text_plan(1, "stuck")),
}
"""What is done, how many units of it a run has, and the plan of its model."""
RUNS: Final = 5


def instructions(name: str, side: str, count: int) -> int:
    """The instructions of a fresh process with so many runs of *name* on *side*."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
    command = [*valgrind, "-m", "tests.benchmarks.instructions", name, side, str(count)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


def per_unit(name: str, side: str) -> float:
    """The instructions of one unit of *name*."""
    _, units, _ = WORK[name]
    return (instructions(name, side, 2 * RUNS) - instructions(name, side, RUNS)) / RUNS / units


async def work(name: str, side: Side, count: int) -> None:
    """What the measured process does: one run, so that all is loaded, and so many more."""
    _, _, plan = WORK[name]
    gc.disable()
    for _ in range(count + 1):
        agent = side.agent(plan)
        await (side.cancel(agent) if name == "cancel" else side.run(agent, Seen()))


def main() -> None:
    """Count, and print a table."""
    if len(sys.argv) == 4:
        asyncio.run(work(sys.argv[1], SIDES[sys.argv[2]], int(sys.argv[3])))
        return
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: apt-get install valgrind")
    report.show(f"{report.machine()}\n\n| instructions | bare loop | phasekernel | times the bare loop |")
    report.show("|---|---|---|---|")
    for name, (label, _, _) in WORK.items():
        bare, mine = (per_unit(name, side) for side in SIDES)
        report.show(f"| {label} | {bare:,.0f} | {mine:,.0f} | {report.number(mine / bare)} |")


if __name__ == "__main__":
    main()
