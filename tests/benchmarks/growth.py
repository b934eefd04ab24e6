"""`python -m tests.benchmarks.growth`: does the cost of one more grow with how many there are? A table, and a picture.

Each series is the CPU time of one unit of work at growing sizes: turns of one run, messages of a history, agents on a loop,
listeners, bytes of a result, messages that were queued and delivered over a life. Flat is what is promised; the last column
of the table is the cost at the end by the cost at the beginning. The work is checked outside of what is timed.
"""

import asyncio
import gc
import itertools
import statistics
import tracemalloc
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final
from xml.etree import ElementTree

from attrs import frozen

from kernel import Agent, AssistantMessage, KernelConfig, Message, UserMessage
from kernel.pictures.svg import Element, add, to_text
from tests.benchmarks import report
from tests.benchmarks.measure import Stopwatch, expect
from tests.benchmarks.plans import LAST_WORDS, Turn, text_plan, tool_plan
from tests.benchmarks.sides import TALLY
from tests.benchmarks.subject import ECHO, Ear, FakeModel, Kernel
from tests.benchmarks.workloads import together

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
UNBOUND: Final = KernelConfig(max_turns=None, message_limit=None)
_BUCKETS: Final = 20


@final
@frozen
class Series:
    """One curve: what is counted, what a unit of it costs, and the figures."""

    title: str
    unit: str
    points: Sequence[tuple[float, float]]

    @property
    def growth(self) -> float:
        """The cost at the end by the cost at the beginning: of the last and the first quarter of the points."""
        costs = [cost for _, cost in self.points]
        quarter = max(1, len(costs) // 4)
        return statistics.median(costs[-quarter:]) / statistics.median(costs[:quarter])


def unbound(turns: Sequence[Turn], messages: Sequence[Message] = ()) -> Agent:
    """An agent without the limits of a conversation."""
    return Agent(FakeModel(tuple(turns)), tools=[ECHO], config=UNBOUND, messages=messages)


async def read(agent: Agent) -> None:
    """One prompt, and all that comes of it."""
    run = agent.prompt("go")
    async for _ in run:
        pass
    expect((await run).status, "completed", "the run")


async def turns_of_a_run(count: int) -> Series:
    """One run of many tool turns: the middle of what a turn costs, in parts of the run."""
    agent = unbound(tool_plan(count))
    TALLY.times = []
    try:
        await read(agent)
    finally:
        times, TALLY.times = TALLY.times, None
    took = [(end - start) * 1e6 for start, end in itertools.pairwise(times)]
    size = max(1, len(took) // _BUCKETS)
    places = range(0, len(took) - size + 1, size)
    points = [(place + size, statistics.median(took[place : place + size])) for place in places]
    return Series("turns of one run", "µs a turn", points)


async def messages_of_a_history(most: int, steps: int = 11) -> Series:
    """A turn of text at the end of a conversation of growing length."""
    points = []
    for step in range(steps):
        count = most * step // (steps - 1) // 2
        history = [part for _ in range(count) for part in (UserMessage("Hi"), AssistantMessage("Hello."))]
        agent, took = unbound(text_plan(4) * 16, history), []
        await read(agent)  # the collector has looked at what is new before it is timed
        gc.collect()
        for _ in range(15):
            with Stopwatch() as watch:
                await read(agent)
            took.append(watch.microseconds)
        expect(len(agent.messages), 2 * count + 32, "the transcript")
        points.append((2 * count, statistics.median(took)))
    return Series("messages of history", "µs a turn", points)


async def agents_on_a_loop(sizes: Sequence[int], *, collecting: bool) -> Series:
    """So many agents at once, each made and prompted once; with Python's collector of cycles, or without it."""
    points = []
    for size in sizes:
        gc.collect()
        if not collecting:
            gc.disable()
        try:
            _, microseconds = await together(Kernel(), size)
        finally:
            gc.enable()
        points.append((size, microseconds / size))
    return Series("agents at once" if collecting else "agents at once, no collector", "µs an agent", points)


async def listeners(sizes: Sequence[int], deltas: int) -> Series:
    """What one more listener costs for each event."""
    points = []
    for size in sizes:
        took = []
        for _ in range(5):
            agent, ears = unbound(text_plan(deltas)), [Ear() for _ in range(size)]
            for ear in ears:
                agent.subscribe(ear.listen)
            with Stopwatch() as watch:
                await read(agent)
            expect(len({ear.heard for ear in ears}), 1, "events heard by each")
            took.append(watch.microseconds / ears[0].heard / size)
        points.append((size, statistics.median(took)))
    return Series("listeners", "µs an event and listener", points)


async def bytes_of_a_result(sizes: Sequence[int]) -> Series:
    """A tool turn whose result has so many bytes."""
    from kernel import tool

    points = []
    for size in sizes:
        text = "x" * size

        @tool(name="echo")
        async def big(number: int, text: str = text) -> str:
            """Give back much."""
            return text

        took = []
        for _ in range(15):
            agent = Agent(FakeModel((*tool_plan(1)[:1], Turn(LAST_WORDS))), tools=[big])
            with Stopwatch() as watch:
                await read(agent)
            took.append(watch.microseconds)
        expect(len(agent.messages[2].text), size, "the result")
        points.append((size / 1e6, statistics.median(took)))
    return Series("MB of a tool's result", "µs a run", points)


async def messages_of_a_life(count: int, at_once: int = 250) -> tuple[Series, Series]:
    """So many messages steered and delivered, some hundreds in each run: their cost, and what an agent holds in between."""
    turn = Turn(LAST_WORDS)
    agent = unbound([turn] * (count + count // at_once + 1))
    runs = -(-count // at_once)
    costs, held = array("d", bytes(8 * runs)), array("d", bytes(8 * runs))  # made before, so that they are not what grows
    tracemalloc.start()
    try:
        for run in range(runs):
            with Stopwatch() as watch:
                receipts = [agent.steer("more") for _ in range(at_once)]
                await read(agent)
            expect({receipt.status for receipt in receipts}, {"delivered"}, "the receipts")
            del receipts
            agent.reset()
            costs[run] = watch.microseconds / at_once
            gc.collect()
            held[run] = tracemalloc.get_traced_memory()[0] / 1024
    finally:
        tracemalloc.stop()
    size = max(1, runs // _BUCKETS)
    places = range(0, runs - size + 1, size)

    def middle(figures: "array[float]", unit: str) -> Series:
        points = [((at + size) * at_once, statistics.median(figures[at : at + size])) for at in places]
        return Series("messages steered over a life", unit, points)

    return middle(costs, "µs, traced"), middle(held, "kB held after a run")


async def measure(scale: float = 1.0) -> list[Series]:
    """All series, at a part of their full size."""
    def sized(number: int) -> int:
        return max(2, int(number * scale))

    life = await messages_of_a_life(sized(100_000))
    agents = [sized(size) for size in (500, 1000, 2000, 4000, 6000, 8000, 10_000)]
    return [
        await turns_of_a_run(sized(10_000)),
        await messages_of_a_history(sized(10_000)),
        await agents_on_a_loop(agents, collecting=True),
        await agents_on_a_loop(agents, collecting=False),
        await listeners([1, 5, 10, 20, 40, 60, 80, 100], sized(500)),
        await bytes_of_a_result([sized(size) for size in (1000, 100_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000)]),
        *life,
    ]  # fmt: skip


# ---- the table and the picture ----


def table(series: Sequence[Series]) -> str:
    """A line for each series."""
    lines = ["| what grows | up to | unit | first | last | end by beginning |", "|---|---|---|---|---|---|"]
    for each in series:
        (_, first), (size, last) = each.points[0], each.points[-1]
        lines.append(f"| {each.title} | {size:,.0f} | {each.unit} | {first:.2f} | {last:.2f} | {each.growth:.2f} |")
    return "\n".join(lines)


def picture(series: Sequence[Series]) -> str:
    """Small pictures side by side, each with its zero: what is flat looks flat."""
    wide, high, across = 380, 190, 3
    down = -(-len(series) // across)
    root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    root.set("viewBox", f"0 0 {wide * across} {high * down}")
    add(root, "style", "text{font-family:system-ui,Arial,sans-serif;font-size:11px;fill:#37474f}")
    add(root, "rect", width="100%", height="100%", fill="white")
    for number, each in enumerate(series):
        _plot(root, each, (number % across) * wide, (number // across) * high, wide, high)
    return to_text(root)


def _plot(root: Element, series: Series, x: float, y: float, wide: float, high: float) -> None:
    left, top, right, bottom = x + 44, y + 34, x + wide - 16, y + high - 26
    largest = max(size for size, _ in series.points)
    highest = max(1.0, max(cost for _, cost in series.points) * 1.25)
    places = [(left + (right - left) * size / largest, bottom - (bottom - top) * max(0.0, cost) / highest)
              for size, cost in series.points]  # fmt: skip
    add(root, "text", f"{series.title}: {series.unit}", x=x + 12, y=y + 18, font_weight="bold")
    add(root, "path", d=f"M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}", fill="none", stroke="#90a4ae")
    for share in (0.0, 0.5, 1.0):
        at = bottom - (bottom - top) * share
        add(root, "text", f"{highest * share:.3g}", x=left - 5, y=at + 4, text_anchor="end")
    add(root, "text", f"{largest:,.0f}", x=right, y=bottom + 15, text_anchor="end")
    add(root, "text", "0", x=left, y=bottom + 15)
    line = " ".join(f"{at:.1f},{height:.1f}" for at, height in places)
    add(root, "polyline", points=line, fill="none", stroke="#1565c0", stroke_width=1.8)
    for at, height in places if len(places) <= 30 else ():
        add(root, "circle", cx=at, cy=height, r=2, fill="#1565c0")


def main() -> None:
    """Measure, print the table, and write the picture."""
    series = asyncio.run(measure())
    report.show(report.machine() + "\n\n" + table(series))
    (FOLDER / "growth.svg").write_text(picture(series), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
