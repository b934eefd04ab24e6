"""The suite on the embedded engine, with real processes that are killed and paused. Smaller than the command's."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kernel.engines.suite import SCENARIOS, Bench, Figures, scenarios

SMALLER: dict[str, Callable[[Bench], Awaitable[Figures]]] = {
    "paused": functools.partial(scenarios.paused, seconds=1),
    "late": functools.partial(scenarios.late, tries=25),
    "shared": functools.partial(scenarios.shared, sessions=40),
    "long": functools.partial(scenarios.long, turns=100),
    "big": functools.partial(scenarios.big, sizes=(0.5, 20)),
    "random_kills": functools.partial(scenarios.random_kills, kills=4),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_embedded_engine_passes(name: str, tmp_path: Path):
    """The scenario passes on a file of SQLite."""

    async def play() -> None:
        bench = Bench(f"sqlite:{tmp_path}/sessions.db", tmp_path)
        try:
            await (SMALLER.get(name) or SCENARIOS[name])(bench)
        finally:
            await bench.close()

    asyncio.run(play())
