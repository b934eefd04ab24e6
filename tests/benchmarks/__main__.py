"""`python -m tests.benchmarks [--rounds N] [--only NAME …]`: measure, and print one Markdown table."""

import argparse
import asyncio
from collections.abc import Callable

from attrs import evolve

from tests.benchmarks import memory, micro, network, report, small, startup
from tests.benchmarks.floor import Event, Floor
from tests.benchmarks.measure import Row, compare
from tests.benchmarks.sides import Side
from tests.benchmarks.subject import Kernel
from tests.benchmarks.workloads import workloads

EXTRA = ("awaited", "in-place", "memory", "guarding", "small", "startup", "network")


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _eager() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]  # from Python 3.12 on
    return loop


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop, "uvloop": _uvloop, "eager": _eager,
}  # fmt: skip


async def _awaited(event: Event) -> None:
    return


def sides(name: str) -> tuple[Side, Side]:
    """Who does the workload *name*."""
    match name:
        case "awaited":
            return Floor(_awaited), Kernel(lambda ear: ear.listen_slowly)
        case "in-place":
            return Floor(in_place=True), Kernel()
        case "growth":
            return Floor(), Kernel(endless=True)
        case "construction":
            return Floor(), Kernel(listen=None)
    return Floor(), Kernel()


async def measure(name: str, rounds: int) -> list[Row]:
    """One workload on both sides, after a short run of it that nobody measures."""
    every, small = workloads(), workloads(0.05)
    workload = {"awaited": "text", "in-place": "tools"}.get(name, name)
    await compare(small[workload], *sides(name), rounds=1)
    rows = await compare(every[workload], *sides(name), rounds=rounds)
    note = {"awaited": ", an async listener awaited", "in-place": "; the bare loop awaits the tool in place"}
    return [evolve(row, label=row.label + note.get(name, "")) for row in rows]


def main() -> None:
    """Measure what is asked for."""
    names = (*workloads(), *EXTRA)
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--loop", choices=LOOPS, default="asyncio", help="the event loop of both sides")
    options = parser.parse_args()
    report.show(report.machine() + "\n\n" + report.header())
    for name in names:
        if name not in options.only:
            continue
        match name:
            case "memory":
                report.show(report.lines(asyncio.run(memory.memory_rows())))
            case "guarding":
                report.show(report.lines(micro.staying_rows(100_000) + micro.moving_rows(1000) + micro.size_rows()))
            case "small":
                report.show(report.lines(small.rows(100_000)))
            case "startup":
                report.show(report.lines(startup.import_rows() + startup.table_rows()))
            case "network":
                report.show(report.lines(network.cancel_rows(100)))
            case _:
                with asyncio.Runner(loop_factory=LOOPS[options.loop]) as runner:
                    report.show(report.lines(runner.run(measure(name, options.rounds))))


if __name__ == "__main__":
    main()
