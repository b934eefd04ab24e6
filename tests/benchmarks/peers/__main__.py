"""`python -m tests.benchmarks.peers --folder FOLDER`: install what is missing, measure each, and print one Markdown table.

Every kernel is measured in a process of its own, ours as well, with the bare loop of its language beside it. Nothing is
installed but into FOLDER (and Pi as `tests/differential` has it). The peers take some ten minutes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import report
from tests.benchmarks.memory import ROOT
from tests.differential.pi import NotHere, found

PYTHONS: Final = ("phasekernel", "pydantic_ai", "openai_agents", "strands", "langchain")
PI: Final = "pi"
COLUMNS: Final = {
    "text turn of": "a delta",
    "the same, yielding": "a delta, yielding",
    "tool turns": "a tool turn",
    "parallel calls": "a parallel call",
    "growth": "turns 350–400 by 1–50",
    "agents at once": "an agent of 2,000",
    "prompt to first": "first text",
    "cancel to end": "cancel",
    "making": "making an agent",
    "idle agent": "idle, live kB",
}
"""What a row's label has in it, and the head of its column."""

Row = dict[str, Any]


def groups() -> dict[str, list[str]]:
    """What each peer's environment holds, from `pyproject.toml`."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    return {name: declared[f"peer-{name.replace('_', '-')}"] for name in PYTHONS if name != "phasekernel"}


def python_of(name: str, folder: Path) -> str:
    """The Python of the environment of *name*, which is made where it is missing."""
    if name == "phasekernel":
        return sys.executable
    home = folder / name
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-e", str(ROOT), *groups()[name]], check=True)
        (home / "ready").touch()
    return str(python)


def command_of(name: str, folder: Path, rounds: int, scale: float) -> list[str]:
    """How *name* is measured."""
    sizes = [str(rounds), str(scale)]
    if name == PI:
        return ["node", "--expose-gc", str(Path(__file__).parent / "pi.mjs"), str(found()), *sizes]
    return [python_of(name, folder), "-m", "tests.benchmarks.peers.child", name, *sizes]


def rows_of(name: str, folder: Path, rounds: int, scale: float) -> Iterator[Row]:
    """The rows of *name*, as its process prints them."""
    command = command_of(name, folder, rounds, scale)
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def label_of(name: str) -> str:
    """How the table calls it: the package and its version."""
    if name == "phasekernel":
        return "**phasekernel**"
    if name == PI:
        manifest = json.loads((found() / "node_modules/@earendil-works/pi-agent-core/package.json").read_text())
        return f"pi-agent-core {manifest['version']} (Node)"
    return " with ".join(requirement.replace("==", " ") for requirement in groups()[name])


def cells(rows: list[Row]) -> dict[str, str]:
    """One line of the table: the figure, and how many times that of the bare loop it is."""
    line: dict[str, str] = {}
    for part, column in COLUMNS.items():
        for row in rows:
            if part in row["label"]:
                times = f" ({report.number(row['ratio']['median'])}×)" if row["ratio"] else ""
                line[column] = report.number(row["kernel"]["median"]) + times
    turns = [row["kernel"]["median"] for row in rows if row["label"].startswith("turn ")]
    line[COLUMNS["growth"]] = report.number(turns[1] / turns[0])
    return line


def main() -> None:
    """Measure those that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "peers", help="where the environments are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="smaller sizes, to see whether it works")
    parser.add_argument("--only", nargs="+", choices=(*PYTHONS, PI), default=(*PYTHONS, PI), metavar="NAME")
    options = parser.parse_args()
    report.show(report.machine())
    table: dict[str, dict[str, str]] = {}
    for name in options.only:
        try:
            rows = []
            for row in rows_of(name, options.folder, options.rounds, options.scale):
                rows.append(row)
                report.show(f"    {name}: {row['label']}: {row['kernel']} {row['ratio'] or ''}")
            table[label_of(name)] = cells(rows)
        except NotHere as missing:
            report.show(f"SKIPPED: {name}: {missing}")
    columns = list(COLUMNS.values())
    report.show("\n".join(["", f"| µs of CPU | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]))
    for label, line in table.items():
        report.show(f"| {label} | {' | '.join(line.get(column, '') for column in columns)} |")


if __name__ == "__main__":
    main()
