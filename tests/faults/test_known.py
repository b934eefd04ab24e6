"""Every known fault is accounted for: it has its probe, or it is listed with the feature that it waits for."""

import ast
import pathlib
import re
from collections.abc import Callable, Iterator

from tests.faults.known import KINDS, KNOWN, Waits

ROOT = pathlib.Path(__file__).parent.parent.parent
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "measurements.md").read_text()
NUMBERS = {
    "OVL": (1, 2, 4, 5, 6, 8, 9),
    "SIG": (1, 2, 4, 5, 6, 8, 9, 10, 12),
    "PAIR": (1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14),
    "KEEP": (1, 2, 4, 5, 6, 8, 9, 10, 12, 13),
    "PAR": (1, 2, 4, 5, 6, 8, 9, 10, 12),
    "STE": (1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14),
    "APR": (1, 2, 4, 5, 6, 8, 9, 10, 12, 13),
    "CMP": (1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14),
    "RET": (1, 2, 4, 5, 6, 8),
    "TRM": (1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18),
    "ORD": (1, 2, 4, 5, 6, 8),
    "SUB": (1, 2, 4, 5, 6, 8, 9),
    "EXT": (1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14),
    "LAT": (1, 2, 4, 5, 6, 8, 9),
    "LIM": (1, 2, 4, 5, 6),
    "MEM": (1, 2, 4, 5, 6),
    "CHD": (1, 2, 4, 5, 6),
}
IDS = [f"{kind}-{number}" for kind, numbers in NUMBERS.items() for number in numbers]
NAMED = re.compile(rf"\b(?:{'|'.join(KINDS)})-\d+\b")
WAITING = {id: where for id, where in KNOWN.items() if isinstance(where, Waits)}


def docstrings_of(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The node id, and the docstring, of each test in a file."""

    def within(node: ast.Module | ast.ClassDef, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for inner in node.body:
            if isinstance(inner, ast.ClassDef) and inner.name.startswith("Test"):
                yield from within(inner, (*names, inner.name))
            elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and inner.name.startswith("test_"):
                yield "::".join((*names, inner.name)), ast.get_docstring(inner) or ""

    yield from within(ast.parse(path.read_text()), (path.relative_to(TESTS).as_posix(),))


DOCSTRINGS = {node: text for path in sorted(TESTS.rglob("test_*.py")) for node, text in docstrings_of(path)}


def table() -> list[str]:
    """The rows for `docs/measurements.md`."""
    rows = ["| kind | what goes wrong | have their probe | wait for a feature |", "|---|---|---|---|"]
    for kind, words in KINDS.items():
        ids = [id for id in KNOWN if id.startswith(f"{kind}-")]
        waiting = [id for id in ids if id in WAITING]
        rows.append(f"| {kind} | {words} | {len(ids) - len(waiting)} of {len(ids)} | {', '.join(waiting)} |")
    rows += ["", "| waits | for | which will owe |", "|---|---|---|"]
    return rows + [f"| {id} | {where.feature} | {where.owes} |" for id, where in WAITING.items()]


def test_each_is_there_once(say: Callable[[str], None]) -> None:
    """The table has each known fault, in order, and no other."""
    assert list(KNOWN) == IDS
    assert list(KINDS) == list(NUMBERS)
    source = (TESTS / "faults" / "known.py").read_text()
    assert [id for id in IDS if source.count(f'"{id}":') != 1] == []
    say(f"known faults: {len(IDS) - len(WAITING)} of {len(IDS)} by their own probe, {len(WAITING)} wait for a feature")


def test_each_probe_is_a_test_that_says_so() -> None:
    """The test that the table names exists, and names the fault in its docstring."""
    wrong = [id for id, node in KNOWN.items() if id not in WAITING and id not in NAMED.findall(DOCSTRINGS.get(node, ""))]
    assert wrong == []


def test_no_test_names_another() -> None:
    """Whatever fault a test's docstring names is in the table, and does not wait for anything."""
    named = {id for text in DOCSTRINGS.values() for id in NAMED.findall(text)}
    assert named == set(IDS) - set(WAITING)


def test_the_page_says_so() -> None:
    """The tables in `docs/measurements.md` are these; when they are not, this shows what they should be."""
    section = PAGE.split("\n## Known faults of agents\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert "\n".join(rows) == "\n".join(row for row in table() if row)

