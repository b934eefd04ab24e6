"""What an idle agent holds, after one turn of text, and what the process holds for it.

*Live* is what Python's own allocator counts for an agent that idles; *resident* is what the process has grown by after
2,000 of them have run at once, so it contains what the allocator kept from the runs' peak. Each resident figure is of a
fresh process (`python -m tests.benchmarks.memory kernel 2000`), since a second measurement in one process finds memory
that the first one freed.
"""

import asyncio
import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Final

from tests.benchmarks.floor import Floor
from tests.benchmarks.measure import Row, Spread, beside
from tests.benchmarks.plans import text_plan
from tests.benchmarks.sides import Seen, Side
from tests.benchmarks.subject import Kernel
from tests.benchmarks.workloads import together

ROOT: Final = Path(__file__).parents[2]
CAN_SEE_RESIDENT: Final = sys.platform == "linux"
SIDES: Final[dict[str, Side]] = {"floor": Floor(), "kernel": Kernel(listen=None)}


async def live_kilobytes(side: Side, count: int) -> float:
    """The live memory of an agent that has run once and idles."""
    plan = text_plan(4)

    async def idle() -> object:
        agent = side.agent(plan)
        await side.run(agent, Seen())
        return agent

    for _ in range(20):
        await idle()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        agents = [await idle() for _ in range(count)]
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / len(agents) / 1024
    finally:
        tracemalloc.stop()


async def resident_kilobytes(side: Side, count: int) -> float:
    """What this process grows by for each of *count* agents that have run once, all at the same time."""
    await together(side, 2)
    gc.collect()
    before = _resident()
    agents, _ = await together(side, count)
    gc.collect()
    return (_resident() - before) / len(agents)


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def in_fresh_process(side: str, count: int) -> float:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.memory", side, str(count)]
    return float(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


async def memory_rows(live: int = 200, resident: int = 2000, rounds: int = 3) -> list[Row]:
    """Both figures of both sides."""
    floor, kernel = [Spread.of([await live_kilobytes(side, live) for _ in range(rounds)]) for side in SIDES.values()]
    rows = [beside("an idle agent, live", "kB", floor, kernel)]
    if CAN_SEE_RESIDENT:
        floor, kernel = [Spread.of([in_fresh_process(side, resident) for _ in range(rounds)]) for side in SIDES]
        rows.append(beside("an idle agent, resident", "kB", floor, kernel))
    return rows


if __name__ == "__main__":
    print(asyncio.run(resident_kilobytes(SIDES[sys.argv[1]], int(sys.argv[2]))))
