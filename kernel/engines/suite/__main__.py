"""`python -m kernel.engines.suite ENGINE [--only NAME …] [--kills N]`: play the scenarios, and print a Markdown table.

ENGINE is what `open_engine` takes, with `{}` for a folder that is new for each scenario: `sqlite:{}/sessions.db`.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from kernel.engines.suite import SCENARIOS, Bench, Figures
from kernel.engines.suite.scenarios import random_kills


async def play(engine: str, scenario: Callable[[Bench], Awaitable[Figures]]) -> Figures:
    """Play one scenario on an engine that is empty."""
    with tempfile.TemporaryDirectory(prefix="kernel-suite-") as folder:
        bench = Bench(engine.replace("{}", folder), Path(folder))
        try:
            return await scenario(bench)
        finally:
            await bench.close()


def main() -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m kernel.engines.suite", description=__doc__)
    parser.add_argument("engine", nargs="?", default="sqlite:{}/sessions.db", metavar="ENGINE")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), metavar="NAME")
    parser.add_argument("--kills", type=int, default=10, help="of workers, in random_kills")
    options = parser.parse_args()
    failed = 0
    print("| scenario | | seconds | figures |\n|---|---|---|---|", flush=True)
    for name in options.only:
        scenario = SCENARIOS[name]
        if name == "random_kills":
            scenario = lambda bench: random_kills(bench, options.kills)  # noqa: E731
        start = time.perf_counter()
        try:
            figures = asyncio.run(play(options.engine, scenario))
            said, passed = "; ".join(f"{what} {value:.3g}" for what, value in figures.items()), "passed"
        except (AssertionError, TimeoutError) as error:
            said, passed = str(error)[:300] or type(error).__name__, "FAILED"
            failed += 1
        print(f"| {name} | {passed} | {time.perf_counter() - start:.1f} | {said} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
