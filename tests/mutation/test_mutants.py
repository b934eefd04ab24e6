"""What can be said of the mutants in a moment: they are what they say, none is ours, and crude ones die."""

import pytest

from statechart import ROWS
from statechart.check import Declaration
from tests.mutation.killers import KILLERS, kill
from tests.mutation.mutants import Mutant, mutants

ALL = list(mutants())
CRUDE = [mutant for mutant in ALL if "is gone" in mutant.name or "goes to" in mutant.name or "does not ask" in mutant.name]
"""A row that is gone, a wrong target, a guard that is not asked: quickly found. `python -m tests.mutation` tries all."""


def test_our_own_declaration_survives() -> None:
    """No killer finds anything in the declaration as it is: what they find in another one is a fault of that one."""
    assert {name: killer(Declaration()) for name, killer in KILLERS.items()} == dict.fromkeys(KILLERS)


def test_each_mutant_is_another_declaration() -> None:
    """Each differs from ours in one row, and has a name of its own."""
    assert len({mutant.name for mutant in ALL}) == len(ALL)
    assert not [mutant.name for mutant in ALL if mutant.rows == ROWS]


@pytest.mark.parametrize("mutant", CRUDE[::20], ids=lambda mutant: mutant.name)
def test_a_crude_mutant_is_caught_by_what_it_does(mutant: Mutant) -> None:
    """Without a look at the declaration as it should be, something is found wrong."""
    assert kill(Declaration(mutant.rows)) is not None
