"""What a process pays once: importing the kernel, and having the decision table.

An import is measured inside a fresh process, as its CPU time between two lines, and the smallest of several is taken,
since everything that disturbs it only adds to it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from statechart.decisions import compile_table, dump, fingerprint, load
from tests.benchmarks.measure import Row, Spread, expect

ROOT: Final = Path(__file__).parents[2]
_SCRIPT: Final = """
import asyncio, sys, time
before, start = len(sys.modules), time.process_time()
import {package}
print((time.process_time() - start) * 1000, len(sys.modules) - before, "transitions" in sys.modules)
"""


def import_cost(package: str) -> tuple[float, int]:
    """CPU milliseconds and modules that importing *package* adds to a process that has asyncio."""
    command = [sys.executable, "-c", _SCRIPT.format(package=package)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    if package == "kernel":
        expect(answer[2], "False", "the kernel imports transitions")
    return float(answer[0]), int(answer[1])


def import_rows(times: int = 7) -> list[Row]:
    """The cost of `import kernel` beside its largest dependencies."""
    rows = []
    for package in ("attrs", "msgspec", "kernel"):
        costs = [import_cost(package) for _ in range(times)]
        label = f"`import {package}` over asyncio ({costs[0][1]} modules more), least of {times}"
        milliseconds = [cost for cost, _ in costs]
        rows.append(Row(label, "ms", Spread(min(milliseconds), min(milliseconds), max(milliseconds))))
    return rows


def table_rows(times: int = 5) -> list[Row]:
    """Loading the decision table as it is shipped, and compiling it by running the live machine."""
    text = json.dumps(dump(compile_table()))
    expect(load(json.loads(text)) == compile_table(), True, "the loaded table is the compiled one")
    return [
        Row("loading the decision table", "ms", _milliseconds(lambda: load(json.loads(text)), times)),
        Row("its fingerprint, which tells whether it still fits", "ms", _milliseconds(fingerprint, times)),
        Row("compiling it from the live machine", "ms", _milliseconds(compile_table, times)),
    ]


def _milliseconds(call: Callable[[], object], times: int) -> Spread:
    figures = []
    for _ in range(times):
        start = time.process_time()
        call()
        figures.append((time.process_time() - start) * 1000)
    return Spread.of(figures)
