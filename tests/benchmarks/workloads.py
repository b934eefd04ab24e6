"""What both sides do, and the proof that they have done it."""

import asyncio
import itertools
import statistics
from collections.abc import Sequence
from typing import Any, Final

from tests.benchmarks.measure import Stopwatch, Workload, expect
from tests.benchmarks.plans import Pace, parallel_plan, text_plan, tool_plan
from tests.benchmarks.sides import TALLY, Counted, Seen, Side

MICROSECONDS: Final = "µs"


async def text_turn(side: Side, deltas: int, pace: Pace = "instant") -> Sequence[float]:
    """One turn of text; CPU for each delta."""
    plan = text_plan(deltas, pace)
    agent, seen = side.agent(plan), Seen()
    with Stopwatch() as watch:
        await side.run(agent, seen)
    text = plan[0].text
    expect(side.counted(agent), Counted(1, 0, 0, text), "the transcript")
    expect((seen.deltas, seen.characters), (deltas, len(text)), "deltas and characters seen")
    return (watch.microseconds / deltas,)


async def tool_turns(side: Side, turns: int) -> Sequence[float]:
    """Turns with one tool call each; CPU for each."""
    agent, before = side.agent(tool_plan(turns)), TALLY.calls
    with Stopwatch() as watch:
        await side.run(agent, Seen())
    expect(TALLY.calls - before, turns, "tool calls")
    expect(side.counted(agent), Counted(1, turns, turns, "all done"), "the transcript")
    return (watch.microseconds / turns,)


async def parallel_calls(side: Side, calls: int, runs: int) -> Sequence[float]:
    """Runs of one turn with many calls; CPU for each call."""
    agents, before = [side.agent(parallel_plan(calls)) for _ in range(runs)], TALLY.calls
    with Stopwatch() as watch:
        for agent in agents:
            await side.run(agent, Seen())
    expect(TALLY.calls - before, calls * runs, "tool calls")
    for agent in agents:
        expect(side.counted(agent), Counted(1, calls, calls, "all done"), "the transcript")
    return (watch.microseconds / calls / runs,)


async def growth(side: Side, turns: int, sample: int) -> Sequence[float]:
    """One run of many tool turns: CPU of a turn among its first *sample*, and among its last."""
    agent = side.agent(tool_plan(turns))
    TALLY.times = []
    try:
        await side.run(agent, Seen())
    finally:
        times, TALLY.times = TALLY.times, None
    expect(len(times), turns, "tool calls")
    expect(side.counted(agent), Counted(1, turns, turns, "all done"), "the transcript")
    took = [(end - start) * 1e6 for start, end in itertools.pairwise(times)]
    return statistics.median(took[:sample]), statistics.median(took[-sample:])


async def together(side: Side, count: int) -> tuple[list[Any], float]:
    """So many agents at once, each made and prompted once: the agents, and the CPU of all."""
    plan = text_plan(4)
    agents: list[Any] = []

    async def one() -> None:
        agents.append(side.agent(plan))
        await side.run(agents[-1], Seen())

    with Stopwatch() as watch:
        await asyncio.gather(*(one() for _ in range(count)))
    expect({side.counted(agent) for agent in agents}, {Counted(1, 0, 0, plan[0].text)}, "the transcripts")
    return agents, watch.microseconds


async def many_agents(side: Side, count: int) -> Sequence[float]:
    """So many agents at once; CPU for each."""
    agents, microseconds = await together(side, count)
    return (microseconds / len(agents),)


async def first_text(side: Side, times: int) -> Sequence[float]:
    """From the prompt to the first piece of text at the consumer; the median CPU. The model yields before each of two
    pieces: one that never yields would have ended before any consumer of its own task could see the first.
    """
    took = []
    for _ in range(times):
        agent, seen = side.agent(text_plan(2, "yielding")), Seen()
        with Stopwatch() as watch:
            await side.run(agent, seen)
        took.append((seen.first_text - watch.start) * 1e6)
        expect(seen.deltas, 2, "deltas seen")
    return (statistics.median(took),)


async def cancel(side: Side, times: int) -> Sequence[float]:
    """From the cancel of a run whose model is stuck to its end; the median CPU."""
    plan = text_plan(1, "stuck")
    return (statistics.median([await side.cancel(side.agent(plan)) for _ in range(times)]),)


async def construction(side: Side, count: int) -> Sequence[float]:
    """Making an agent with one tool; CPU for each."""
    plan = text_plan(1)
    with Stopwatch() as watch:
        agents = [side.agent(plan) for _ in range(count)]
    expect(len(agents), count, "agents")
    return (watch.microseconds / count,)


def workloads(scale: float = 1.0) -> dict[str, Workload]:
    """All workloads, by a short name. *scale* makes them smaller, for a test that looks only whether they work."""

    def size(full: int) -> int:
        return max(2, int(full * scale))

    deltas, turns, calls, long = size(2000), size(100), size(32), size(400)
    return {
        "text": Workload(
            (f"text turn of {deltas:,} deltas, a delta",), MICROSECONDS, lambda side: text_turn(side, deltas), pairs=7
        ),
        "yielding": Workload(
            ("the same, yielding before each, a delta",), MICROSECONDS,
            lambda side: text_turn(side, deltas, "yielding"), pairs=5,
        ),
        "tools": Workload(
            (f"{turns} tool turns, a turn",), MICROSECONDS, lambda side: tool_turns(side, turns), pairs=5
        ),
        "parallel": Workload(
            (f"{calls} parallel calls, a call",), MICROSECONDS,
            lambda side: parallel_calls(side, calls, size(20)), pairs=3,
        ),
        "growth": Workload(
            (f"turn 1–{size(50)} of {long}", f"turn {long - size(50)}–{long} of {long}"), MICROSECONDS,
            lambda side: growth(side, long, size(50)),
        ),
        "agents": Workload(
            (f"{size(2000):,} agents at once, an agent",), MICROSECONDS, lambda side: many_agents(side, size(2000))
        ),
        "first": Workload(("prompt to first text",), MICROSECONDS, lambda side: first_text(side, size(200))),
        "cancel": Workload(("cancel to end of run",), MICROSECONDS, lambda side: cancel(side, size(200))),
        "construction": Workload(
            ("making an agent with a tool",), MICROSECONDS, lambda side: construction(side, size(300)), pairs=3
        ),
    }  # fmt: skip
