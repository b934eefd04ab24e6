"""Faults of the declaration, made from its rows: a row that is gone, a wrong target, a guard or an action that is missing,
an action that is done twice. Each changes one thing in one row.
"""

from collections.abc import Iterator
from typing import Final

from attrs import evolve, frozen

from statechart import INTERNAL, NO_OP, ROWS, Leaf, Row
from statechart.check import describe

AWAY: Final = {Leaf.SETTLING: Leaf.CANCELLING}
"""Where a row goes wrong to: settling, or cancelling where it should go to settling."""


@frozen
class Mutant:
    """A declaration with one fault."""

    name: str
    rows: tuple[Row, ...]


def mutants() -> Iterator[Mutant]:
    """All of them, in the order of the rows."""
    for place, row in enumerate(ROWS):
        for what, changed in _changes(row):
            replaced = () if changed is None else (changed,)
            yield Mutant(f"{describe(row)}: {what}", (*ROWS[:place], *replaced, *ROWS[place + 1 :]))


def _changes(row: Row) -> Iterator[tuple[str, Row | None]]:
    yield "is gone", None
    if len(row.source) > 1:
        for source in row.source:
            yield f"is gone in {source}", evolve(row, source=tuple(each for each in row.source if each != source))
    target = AWAY.get(row.target, Leaf.SETTLING) if row.target not in (INTERNAL, NO_OP) else Leaf.SETTLING
    yield f"goes to {target}", evolve(row, target=target)
    if row.target not in (INTERNAL, NO_OP) and row.do:
        yield "stays", evolve(row, target=INTERNAL)
    for guard in row.when:
        yield f"does not ask {guard}", evolve(row, when=tuple(each for each in row.when if each is not guard))
    for guard in row.unless:
        yield f"does not ask for no {guard}", evolve(row, unless=tuple(each for each in row.unless if each is not guard))
    for place, action in enumerate(row.do):
        fewer = (*row.do[:place], *row.do[place + 1 :])
        # A row that does nothing in its place is spelled as a no-op.
        idle = NO_OP if not fewer and row.target is INTERNAL else row.target
        yield f"{action} is missing ({place})", evolve(row, do=fewer, target=idle)
        yield f"{action} is done twice ({place})", evolve(row, do=(*row.do[:place], action, *row.do[place:]))
