"""Every cell of the decision table on the real core: each leaf × trigger × branch of guards, by a shortest path to it.

The cells and the paths are made from the table and the exploration of the model; nothing here is written down but what
can't be reached, and why.
"""

import pytest

from statechart import Command, Fact, Leaf, decisions
from statechart.check import Declaration
from statechart.explore import Exploration, explore
from statechart.model import Model
from statechart.world import Bounds
from tests.kernel.model_player import Player

BOUNDS = Bounds(queue=2, commands=4, turns=2, attempts=2, calls=2)
CELLS = {way.name: way for way in Model(decisions(), BOUNDS).ways}
UNREACHABLE: dict[str, str] = {}
"""Cells that nothing leads to, each with the reason. None: each answer of each guard can be had wherever it is asked."""


@pytest.fixture(scope="module")
def explored() -> Exploration:
    return explore(decisions(), BOUNDS)


@pytest.mark.parametrize("name", [name for name in CELLS if name not in UNREACHABLE])
def test_the_core_does_what_the_table_says(name: str, explored: Exploration) -> None:
    """On the way there and in the cell itself the core decides as the table does, and carries out what the model says."""
    (way,) = [way for way in explored.reached if way.name == name]
    player = Player(BOUNDS)
    taken = [player.step(label) for label in explored.path_of(way)]

    assert (taken[-1].name, taken[-1].decision) == (name, way.decision)


def test_what_can_not_be_reached_is_listed(explored: Exploration) -> None:
    """A cell is listed as unreachable when it is, and only then."""
    assert {way.name for way in explored.unreached} == set(UNREACHABLE)


def test_the_cells_are_all_there_are(explored: Exploration) -> None:
    """Each command in each leaf is a cell or more, and each fact where a row knows it; no two have one name."""
    given = Declaration()
    known = {
        (leaf, trigger)
        for leaf in Leaf
        for trigger in (*Command, *Fact)
        if isinstance(trigger, Command) or given.table[leaf].get(trigger) is not None
    }

    assert {(way.leaf, way.trigger) for way in CELLS.values()} == known
    assert len(CELLS) == len(explored.model.ways)


def test_a_fact_that_no_row_knows_never_comes(explored: Exploration) -> None:
    """Where a fact has no row, no state lets the shell report it."""
    assert "answered" not in explored.broken
