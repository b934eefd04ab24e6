"""How `docs/guarantees.md` shows the clauses of a guarantee: a row for each, its faults and who caught them."""

from collections.abc import Iterable

from tests.kernel.planted.kit import Clause

HEAD = ("| promise | planted fault | caught by |", "|---|---|---|")


def table(clauses: Iterable[Clause]) -> list[str]:
    """The lines of the table."""
    return [*HEAD, *(_row(clause) for clause in clauses)]


def _row(clause: Clause) -> str:
    faults = " ".join((fault.__doc__ or "").strip() for fault in clause.faults)
    tests = ", ".join(f"`{test}`" for test in clause.tests)
    return f"| {clause.says} | {faults} | {tests} |"
