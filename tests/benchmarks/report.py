"""The one table, and the machine that it was measured on."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.benchmarks.measure import Row, Spread

LIBRARIES = ("attrs", "cattrs", "msgspec", "transitions")


def machine() -> str:
    """What the figures are worth: CPU, Python, libraries."""
    libraries = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; "
        f"{platform.python_implementation()} {platform.python_version()} ({platform.python_compiler()}); {libraries}"
    )


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        for line in facts.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def header() -> str:
    """The head of the table."""
    return "| what | unit | bare loop | phasekernel | times the bare loop |\n|---|---|---|---|---|"


def lines(rows: Iterable[Row]) -> str:
    """The rows of the table."""
    return "\n".join(
        f"| {row.label} | {row.unit} | {_cell(row.floor)} | {_cell(row.kernel)} | {_cell(row.ratio)} |" for row in rows
    )


def show(text: str) -> None:
    """Print at once: a run takes a while."""
    print(text, file=sys.stdout, flush=True)


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return ""
    if spread.low == spread.high:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.low)}–{number(spread.high)})"


def number(value: float) -> str:
    """Three figures, or as many as there are."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
