"""How a figure is made: CPU time of the process, two sides in turn, the middle of several rounds.

CPU time, since machines are shared: the fake models never wait, so on an idle machine it is the wall time. Ratios are
taken between two measurements that follow each other in one process, since a machine's speed changes from minute to
minute. The work is checked outside the timed part. The garbage collector is left as it is, and run before each part.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, final

from attrs import frozen

from tests.benchmarks.sides import Seen, Side, rest


@final
class Stopwatch:
    """CPU microseconds between entering and leaving its `with` block."""

    __slots__ = ("microseconds", "start")

    def __enter__(self) -> "Stopwatch":
        self.start = time.process_time()
        return self

    def __exit__(self, *exception: object) -> None:
        self.microseconds = (time.process_time() - self.start) * 1e6


@final
@frozen
class Spread:
    """The middle of several rounds, and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of these figures."""
        figures = list(values)
        return cls(statistics.median(figures), min(figures), max(figures))


@final
@frozen
class Row:
    """One line of the table: what the kernel takes and, where there is something to compare it to, what the floor takes."""

    label: str
    unit: str
    kernel: Spread
    floor: Spread | None = None
    ratio: Spread | None = None


def beside(label: str, unit: str, floor: Spread, kernel: Spread) -> Row:
    """A row of two figures that were not measured in pairs; its ratio is that of their medians."""
    return Row(label, unit, kernel, floor, Spread.of([kernel.median / floor.median]))


@final
@frozen
class Workload:
    """Something that both sides do. *run* gives one figure for each label; *pairs* of runs make a round."""

    labels: tuple[str, ...]
    unit: str
    run: Callable[[Side], Awaitable[Sequence[float]]]
    pairs: int = 1


async def compare(workload: Workload, floor: Side, kernel: Side, rounds: int) -> list[Row]:
    """Run *workload* on both sides in turn."""
    taken = [[await _pair(workload, floor, kernel) for _ in range(workload.pairs)] for _ in range(rounds)]
    middle = statistics.median
    return [
        Row(
            label,
            workload.unit,
            Spread.of(middle(mine[place] for _, mine in pairs) for pairs in taken),
            Spread.of(middle(bare[place] for bare, _ in pairs) for pairs in taken),
            Spread.of(middle(mine[place] / bare[place] for bare, mine in pairs) for pairs in taken),
        )
        for place, label in enumerate(workload.labels)
    ]


async def _pair(workload: Workload, floor: Side, kernel: Side) -> tuple[Sequence[float], Sequence[float]]:
    gc.collect()
    bare = await workload.run(floor)
    gc.collect()
    return bare, await workload.run(kernel)


def expect(actual: object, expected: object, what: str) -> None:
    """Refuse a measurement of work that was not done. Not an `assert`, which `-O` would drop."""
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r}, expected {expected!r}")


async def cancel_reader(side: Side, agent: Any) -> float:
    """Cancel the task that reads a run, once its model is stuck: what most have for a cancel. CPU microseconds."""
    seen = Seen()
    task = asyncio.create_task(side.run(agent, seen))
    while not seen.deltas:
        await asyncio.sleep(0)
    await rest()
    with Stopwatch() as watch:
        task.cancel()
        await asyncio.wait({task})
    expect(task.cancelled(), True, "the run was cancelled")
    return watch.microseconds
