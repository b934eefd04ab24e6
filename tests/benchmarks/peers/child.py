"""One peer, in its own environment: `python -m tests.benchmarks.peers.child NAME ROUNDS`. Prints its rows, a line each."""

import asyncio
import importlib
import json
import sys

from attrs import asdict

from tests.benchmarks.floor import Floor
from tests.benchmarks.measure import Row, Spread, compare
from tests.benchmarks.memory import live_kilobytes
from tests.benchmarks.sides import Side
from tests.benchmarks.subject import Kernel
from tests.benchmarks.workloads import workloads


def side(name: str) -> Side:
    """The side called *name*; `phasekernel` is ours."""
    if name == "phasekernel":
        return Kernel(endless=True)
    return importlib.import_module(f"tests.benchmarks.peers.{name}").Peer()  # type: ignore[no-any-return]


async def measure(name: str, rounds: int, scale: float = 1.0) -> None:
    """Run every workload beside the bare loop, each after a short run of it that nobody measures."""
    peer, every, small = side(name), workloads(scale), workloads(0.05 * scale)
    for key, workload in every.items():
        await compare(small[key], Floor(), peer, rounds=1)
        slow = key in ("growth", "agents") and name != "phasekernel"  # where a round of a peer takes a minute
        for row in await compare(workload, Floor(), peer, rounds=min(rounds, 2) if slow else rounds):
            _say(row)
    _say(Row("an idle agent, live", "kB", Spread.of([await live_kilobytes(peer, max(2, int(200 * scale)))])))


def _say(row: Row) -> None:
    print(json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 1.0))
