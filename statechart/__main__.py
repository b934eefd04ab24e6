"""`python -m statechart draw | table | check | export`: what is made of the declaration, and whether it keeps its word."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import fields

from statechart.check import Declaration, check, report
from statechart.decisions import SHIPPED, compile_table, dump
from statechart.draw import render, texts
from statechart.explore import explore
from statechart.exports import FORMATS
from statechart.method_table import document
from statechart.phases import NAME as PHASES
from statechart.phases import phases_dot
from statechart.world import LARGEST, Bounds

PACKAGE: Final = Path(__file__).parent
BOUNDS: Final = {
    "queue": "messages in both queues together",
    "commands": "commands that change something and failing listeners, in the life of an agent",
    "turns": "turns of a run",
    "attempts": "requests of a turn",
    "calls": "tool calls of a response",
}
FORMATS_HELP: Final = "promela: a model with promises for spin; scxml: the W3C's language; xstate: JSON for XState 5"
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
        diagrams / "lifecycle.xstate.json": FORMATS["xstate"](Bounds()),
        **{diagrams / name: text for name, text in texts().items()},
        diagrams / f"{PHASES}.dot": phases_dot(),
    }


def draw(diagrams: Path, package: Path = PACKAGE) -> None:
    """Write the compiled decisions, the diagrams, the method table and the XState export; say which files those are."""
    diagrams.mkdir(parents=True, exist_ok=True)
    for path, text in files(diagrams, package).items():
        _write(path, text)
    drawn = render(diagrams)
    for path in drawn or ():
        _say_written(path)
    if drawn is None:
        print(WITHOUT_GRAPHVIZ, file=sys.stderr)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
    _say_written(path)


def _say_written(path: Path) -> None:
    print(f"wrote {os.path.relpath(path)}")


def _bound(text: str) -> int:
    number = int(text)
    if not 0 < number <= LARGEST:
        raise argparse.ArgumentTypeError(f"a bound is a number from 1 to {LARGEST}, not {number}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; 1 when a check found a violation, 2 when a file can't be written."""
    asked = _parser().parse_args(arguments)
    try:
        status = _do(asked)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has left, as `head` does; what the interpreter flushes at its end goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"python -m statechart {asked.command}: error: {error}", file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m statechart", description="The lifecycle of an agent, as declared.")
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="write diagrams, the method table, an XState machine and the decisions")
    drawing.add_argument("--into", type=Path, default=Path("diagrams"), help="folder of the diagrams (default: diagrams)")
    commands.add_parser("table", help="print what each method and each fact does, as Markdown")
    checking = commands.add_parser("check", help="prove the promises of the declaration; exit status 1 when one is broken")
    exporting = commands.add_parser("export", help="write the lifecycle in the language of another tool")
    exporting.add_argument("format", choices=sorted(FORMATS), help=FORMATS_HELP)
    exporting.add_argument("file", type=Path, nargs="?", metavar="FILE", help="where to (default: standard output)")
    for bound in fields(Bounds):
        said = f"{BOUNDS[bound.name]} (default: {bound.default})"
        checking.add_argument(f"--{bound.name}", type=_bound, default=bound.default, metavar="N", help=said)
        said = f"for promela: {said}"
        exporting.add_argument(f"--{bound.name}", type=_bound, default=bound.default, metavar="N", help=said)
    return parser


def _bounds(asked: argparse.Namespace) -> Bounds:
    return Bounds(**{bound.name: getattr(asked, bound.name) for bound in fields(Bounds)})


def _do(asked: argparse.Namespace) -> int:
    if asked.command == "draw":
        draw(asked.into)
    elif asked.command == "table":
        print(document(compile_table()), end="")
    elif asked.command == "export" and asked.file is not None:
        _write(asked.file, FORMATS[asked.format](_bounds(asked)))
    elif asked.command == "export":
        print(FORMATS[asked.format](_bounds(asked)), end="")
    else:
        given = Declaration()
        results = check(given)
        began = time.perf_counter()
        explored = explore(given.table, _bounds(asked))
        results += explored.results()
        print(f"explored {explored.summary} in {time.perf_counter() - began:.1f} s")
        print(report(results))
        return int(any(result.violations for result in results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
