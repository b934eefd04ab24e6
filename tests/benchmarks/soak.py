"""`python -m tests.benchmarks.soak --minutes 30`: a long life, in which everything goes wrong now and then.

Some agents on one loop are prompted again and again. Their models stall, fail and ask for tools; tools fail, hang,
ignore their cancellation and speak too late; and at random moments they are steered, followed up, cancelled, listened to,
compacted and reset. From time to time all of them come to rest, and what the process holds is looked at: blocks of memory,
the resident size, tasks, descriptors. A table in the end; the exit status is 1 when anything has grown.
"""

import argparse
import asyncio
import gc
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from kernel import (
    Agent,
    CompactionPolicy,
    Finished,
    KernelConfig,
    KernelError,
    ModelError,
    RetryPolicy,
    TextDelta,
    ToolCall,
    ToolContext,
    Usage,
    tool,
)
from tests.benchmarks import report

AGENTS: Final = 8
CONFIG: Final = KernelConfig(
    cancel_grace=0.02,
    stream_idle_timeout=0.1,
    tool_timeout=0.1,
    max_turns=6,
    message_limit=400,
    retry=RetryPolicy(base_delay=0.001, max_delay=0.002),
    compaction=CompactionPolicy(keep_turns=1),
)
_GROWTH: Final = 0.02
"""By how much the blocks of memory may differ between the first and the last look: caches of this and that."""


@frozen
class Look:
    """What the process held at one moment of rest."""

    minutes: float
    runs: int
    blocks: int
    resident: float
    tasks: int
    files: int

    @classmethod
    def now(cls, began: float, runs: int) -> "Look":
        """What it holds now, after a collection."""
        gc.collect()
        files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20 if sys.platform == "linux" else 0.0
        minutes = (time.monotonic() - began) / 60
        return cls(minutes, runs, sys.getallocatedblocks(), resident, len(asyncio.all_tasks()), files)


class Moody:
    """A model that does one thing or another."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._calls = 0

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """An answer, a call, a failure, silence."""
        mood = self._draw.random()
        for _ in range(self._draw.randint(0, 20)):
            await asyncio.sleep(0)
            yield TextDelta("word ")
        if mood < 0.08:
            raise ModelError("overloaded", retryable=True)
        if mood < 0.10:
            raise ModelError("broken")
        if mood < 0.12:
            raise ModelError("too long", overflow=True)
        if mood < 0.13:
            await asyncio.sleep(9)
        if mood < 0.15:
            return
        for _ in range(self._draw.randint(1, 4) if mood < 0.6 else 0):
            self._calls += 1
            yield ToolCall(f"c{self._calls}", self._draw.choice(list(TOOLS)), {})
        yield Usage(100, 10)
        yield Finished()


@tool
async def works(context: ToolContext) -> str:
    """Work a little."""
    context.update("half")
    await asyncio.sleep(0.001)
    return "done"


@tool
async def fails() -> str:
    """Fail."""
    raise ValueError("no")


@tool
async def hangs() -> str:
    """Hang until it is stopped."""
    await asyncio.sleep(9)
    return "never"


@tool
async def ignores(context: ToolContext) -> str:
    """Ignore being stopped, for a while, and speak too late."""
    end = asyncio.get_running_loop().time() + 0.15
    while (left := end - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    context.update("late")
    return "late"


@tool
def in_a_thread() -> str:
    """Work in a thread."""
    time.sleep(0.001)
    return "done"


TOOLS: Final = {made.name: made for made in (works, fails, hangs, ignores, in_a_thread)}


async def live(agent: Agent, draw: random.Random, until: float, statuses: Counter[str]) -> None:
    """Prompt *agent* again and again, and disturb it."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        if draw.random() < 0.1:
            agent.reset()
        with agent.subscribe(lambda event: None):
            try:
                run = agent.compact() if draw.random() < 0.05 else agent.prompt("go " * draw.randint(1, 20))
            except KernelError:
                agent.reset()
                continue
            for _ in range(draw.randint(0, 3)):
                await asyncio.sleep(draw.random() * 0.01)
                disturb(agent, draw)
            statuses[(await run).status] += 1


def disturb(agent: Agent, draw: random.Random) -> None:
    """One command, whether it suits or not."""
    try:
        match draw.randint(0, 5):
            case 0:
                agent.cancel("at random")
            case 1 | 2:
                agent.steer("more")
            case 3:
                agent.follow_up("and then")
            case 4:
                agent.clear_queues()
            case _:
                agent.configure(system_prompt="word " * draw.randint(0, 9))
    except KernelError:
        pass


async def soak(minutes: float, seed: int, looks: int) -> tuple[list[Look], Counter[str]]:
    """So long a life, looked at so many times."""
    draw = random.Random(seed)
    agents = [Agent(Moody(draw), tools=TOOLS.values(), config=CONFIG) for _ in range(AGENTS)]
    statuses: Counter[str] = Counter()
    seen: list[Look] = []
    began = time.monotonic()
    loop = asyncio.get_running_loop()
    for _ in range(looks + 1):  # the first stretch is for warming up
        until = loop.time() + minutes * 60 / (looks + 1)
        await asyncio.gather(*(live(agent, draw, until, statuses) for agent in agents))
        while any(agent.abandoned for agent in agents):
            await asyncio.sleep(0.01)
        for agent in agents:
            agent.clear_queues()
            agent.reset()
        seen.append(Look.now(began, statuses.total()))
    for agent in agents:
        await agent.aclose()
    return seen, statuses


def grown(looks: list[Look]) -> list[str]:
    """What is more at the end than at the beginning."""
    first, last = looks[0], looks[-1]
    found = [name for name in ("tasks", "files") if getattr(last, name) > getattr(first, name)]
    return found + (["blocks"] if last.blocks > first.blocks * (1 + _GROWTH) else [])


def table(looks: list[Look]) -> str:
    """A line for each look."""
    lines = ["| minutes | runs | blocks of memory | resident MB | tasks | descriptors |", "|---|---|---|---|---|---|"]
    for each in looks:
        life, memory = f"{each.minutes:.1f} | {each.runs:,}", f"{each.blocks:,} | {each.resident:.1f}"
        lines.append(f"| {life} | {memory} | {each.tasks} | {each.files} |")
    return "\n".join(lines)


def main() -> int:
    """Live, print the table, and say what has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    looks, statuses = asyncio.run(soak(options.minutes, options.seed, looks=9))
    report.show(f"{report.machine()}\n\n{table(looks)}\n\n{dict(statuses.most_common())}")
    found = grown(looks)
    report.show(f"more at the end: {', '.join(found)}" if found else "nothing has grown")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
