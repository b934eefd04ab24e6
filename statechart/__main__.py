"""`python -m statechart draw | table | check`: what is made of the declaration, and whether it keeps its promises."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from statechart.check import check, report
from statechart.decisions import SHIPPED, compile_table, dump
from statechart.draw import render, texts
from statechart.method_table import document

PACKAGE: Final = Path(__file__).parent
WITHOUT_GRAPHVIZ: Final = (
    "The SVGs were not drawn, since graphviz is not installed; `apt-get install graphviz` or `brew install graphviz` does."
)


def decisions_text(plain: dict[str, Any]) -> str:
    """Dumped decisions as JSON with one line for each leaf and trigger, sorted, so that a change is a short diff."""
    leaves = []
    for leaf, row in sorted(plain["decisions"].items()):
        cells = [f"{json.dumps(trigger)}: {json.dumps(cell)}" for trigger, cell in sorted(row.items())]
        leaves.append(f"{json.dumps(leaf)}: {{\n" + ",\n".join(cells) + "\n}")
    return f'{{\n"fingerprint": {json.dumps(plain["fingerprint"])},\n"decisions": {{\n' + ",\n".join(leaves) + "\n}\n}\n"


def files(diagrams: Path, package: Path = PACKAGE) -> dict[Path, str]:
    """Everything that `draw` writes as text, by path."""
    table = compile_table()
    return {
        package / SHIPPED: decisions_text(dump(table)),
        diagrams / "methods.md": document(table),
        **{diagrams / name: text for name, text in texts().items()},
    }


def draw(diagrams: Path, package: Path = PACKAGE) -> None:
    """Write the compiled decisions, the diagrams and the method table."""
    diagrams.mkdir(parents=True, exist_ok=True)
    for path, text in files(diagrams, package).items():
        path.write_text(text, encoding="utf-8")
    if not render(diagrams):
        print(WITHOUT_GRAPHVIZ, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; 1 when a check found a violation."""
    parser = argparse.ArgumentParser(prog="python -m statechart", description="The lifecycle of an agent, as declared.")
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="write diagrams, the method table and the compiled decisions")
    drawing.add_argument("--into", type=Path, default=Path("diagrams"), help="folder of the diagrams (default: diagrams)")
    commands.add_parser("table", help="print what each method and each fact does, as Markdown")
    commands.add_parser("check", help="prove the promises of the declaration; exit status 1 when one is broken")
    asked = parser.parse_args(arguments)
    if asked.command == "draw":
        draw(asked.into)
    elif asked.command == "table":
        print(document(compile_table()), end="")
    else:
        results = check()
        print(report(results))
        return int(any(result.violations for result in results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
