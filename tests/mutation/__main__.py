"""`python -m tests.mutation [--every N]`: each faulty declaration is caught by what it does, or its survival is explained.

Prints who caught how many, and each survivor. Exit status 1 when one survives that `survivors.py` does not explain, or when
all were tried and a reason explains none. All take some 20 minutes on two processors; `--every 10` takes one in ten.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from statechart.check import Declaration
from tests.mutation.killers import kill
from tests.mutation.mutants import mutants
from tests.mutation.plugin import NUMBER
from tests.mutation.survivors import REASONS, part_of

DIRECTED: Final = (
    "tests/kernel/test_core.py", "tests/kernel/test_core_ends.py", "tests/kernel/test_continue.py",
    "tests/kernel/test_closing.py", "tests/kernel/test_guarantees.py", "tests/kernel/test_guarantees_control.py",
    "tests/kernel/test_guarantees_kept.py", "tests/kernel/test_compaction.py", "tests/kernel/test_teardown.py",
    "tests/kernel/test_listeners_awaited.py", "tests/kernel/test_batches.py", "tests/kernel/test_swallowed_cancels.py",
    "tests/kernel/test_usage.py", "tests/kernel/test_outputs.py",
    "tests/contracts", "tests/faults",
    "--ignore=tests/faults/test_bite.py",
)  # fmt: skip
"""Tests of behaviour that are quick; none of them looks at the declaration."""


def caught(number: int) -> tuple[int, str | None, str]:
    """Who catches the mutant of that number, and by what. For what is explained the slowest killer is not asked."""
    mutant = list(mutants())[number]
    found = kill(Declaration(mutant.rows))
    if found is not None:
        return number, *found
    if part_of(mutant.name) is not None:
        return number, None, ""
    command = (
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin", *DIRECTED,
    )  # fmt: skip
    # What the tests of a mutant say is not what this lane covered.
    environment = {name: value for name, value in os.environ.items() if name != "PHASEKERNEL_SAID"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment | {NUMBER: str(number)})
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return number, ("directed tests" if failures else None), "".join(failures[:1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all mutants, or one in so many."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Plant faults in the declaration.")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take one mutant in N (default: all)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="processes")
    asked = parser.parse_args(arguments)
    names = [mutant.name for mutant in mutants()]
    chosen = range(0, len(names), asked.every)
    killers: Counter[str] = Counter()
    used: set[str | None] = set()
    unexplained = 0
    began = time.perf_counter()
    with ProcessPoolExecutor(asked.workers) as pool:
        for number, killer, _ in pool.map(caught, chosen, chunksize=4):
            killers[killer or "survives"] += 1
            if killer is None:
                part = part_of(names[number])
                used.add(part)
                unexplained += part is None
                print(f"survives: {names[number]}: {REASONS.get(part or '', 'UNEXPLAINED')}", flush=True)
    idle = REASONS.keys() - used if asked.every == 1 else set()
    sums = ", ".join(f"{count} {name}" for name, count in killers.most_common())
    seconds = time.perf_counter() - began
    print(f"{len(chosen)} of {len(names)} mutants in {seconds:.0f} s: {sums}; {unexplained} unexplained")
    for part in sorted(idle):
        print(f"explains nothing: {part}")
    return int(unexplained > 0 or bool(idle))


if __name__ == "__main__":
    sys.exit(main())
