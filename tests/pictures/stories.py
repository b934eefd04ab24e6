"""Runs in simulated time, written as traces: what the pictures in the documentation and in the tests are drawn from."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from kernel import Agent, KernelConfig, ModelError, ToolResult, Usage, tool
from kernel.testing import ScriptedModel, call, simulate
from kernel.trace.file import Trace, TraceWriter, read_trace

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def wait(seconds: float) -> Callable[[], Awaitable[None]]:
    """A pause in a script."""
    return lambda: asyncio.sleep(seconds)


@tool
async def read_file(path: str, seconds: float) -> str:
    """Read a file."""
    await asyncio.sleep(seconds)
    return f"the text of {path}"


@tool
async def run_tests(seconds: float, red: bool = False) -> ToolResult:
    """Run the tests."""
    await asyncio.sleep(seconds)
    return ToolResult("3 failed" if red else "all passed", is_error=red)


TOOLS = (read_file, run_tests)


def traced(
    act: Callable[[Agent], Awaitable[object]], script: list[Any], config: KernelConfig | None = None, **more: Any
) -> str:
    """The trace of what *act* does with an agent, from the beginning of simulated time."""
    lines: list[str] = []

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        agent = Agent(ScriptedModel(script), tools=TOOLS, config=config or KernelConfig(), **more)
        agent.subscribe(TraceWriter(lines.append, clock=clock, now=lambda: BEGAN))
        await act(agent)

    simulate(main(), max_steps=10_000_000)
    return "".join(lines)


def as_trace(text: str) -> Trace:
    return read_trace(text.splitlines(keepends=True))


def three_seconds() -> str:
    """A short run with all that a picture can show: tools side by side, steering, a retry, a follow-up, a cancel."""
    script = [
        [
            wait(0.25), "I look at both files.", wait(0.15), call("c1", "read_file", path="a.py", seconds=0.35),
            call("c2", "read_file", path="b.py", seconds=0.2), call("c3", "run_tests", seconds=0.55, red=True),
            Usage(1200, 60),
        ],
        [wait(0.1), ModelError("overloaded", retryable=True, retry_after=0.25)],
        [wait(0.3), "Mended. ", wait(0.1), call("c4", "run_tests", seconds=0.3), Usage(1500, 90)],
        [wait(0.25), "All tests pass.", Usage(1700, 20)],
        [wait(0.2), "And the documentation: ", wait(9.0), "never said"],
    ]  # fmt: skip

    async def act(agent: Agent) -> None:
        loop = asyncio.get_running_loop()
        run = agent.prompt("Mend the tests.")
        loop.call_later(0.7, agent.steer, "Leave b.py alone.")
        loop.call_later(1.5, agent.follow_up, "Then write documentation.")
        loop.call_later(3.0, agent.cancel, "enough for today")
        await run

    return traced(act, script)


def three_hours(seed: int = 3) -> str:
    """A long run: four hundred turns with tools of all lengths and failures, and a night before the last run."""
    draw = random.Random(seed)
    script: list[Any] = []
    for turn in range(400):
        if draw.random() < 0.05:
            error = ModelError("overloaded", retryable=True, retry_after=draw.uniform(5, 60))
            script.append([wait(draw.uniform(0, 2)), error])
        calls = [
            call(f"c{turn}-{number}", "run_tests", seconds=draw.expovariate(1 / 40), red=draw.random() < 0.1)
            if draw.random() < 0.2
            else call(f"c{turn}-{number}", "read_file", path=f"{number}.py", seconds=draw.uniform(0.01, 2))
            for number in range(draw.randint(1, 3))
        ]
        script.append([wait(draw.uniform(1, 20)), "So. ", *calls, Usage(3000 + 20 * turn, 150)])
    script.append([wait(5), "Done.", Usage(9000, 20)])
    script.append([wait(200), "You are welcome.", Usage(9100, 10)])

    async def act(agent: Agent) -> None:
        loop = asyncio.get_running_loop()
        run = agent.prompt("Port it.")
        for _ in range(12):
            loop.call_later(draw.uniform(60, 9000), agent.steer, "Mind the tests.")
        await run
        await asyncio.sleep(8 * 3600)
        await agent.prompt("Thank you.")

    return traced(act, script, KernelConfig(max_turns=None))
