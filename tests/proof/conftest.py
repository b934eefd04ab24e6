"""What the second opinions share: the walks that all of them take."""

from collections.abc import Callable

import pytest

from statechart import Decisions, compile_table
from statechart.table import ROWS
from tests.proof import walks


@pytest.fixture(scope="session")
def table() -> Decisions:
    return compile_table()


@pytest.fixture(scope="session")
def ground(table: Decisions, say: Callable[[str], None]) -> walks.Ground:
    """The walks of this session, and what the live machine told of them."""
    over = walks.walk_over(ROWS, walks.SEED, walks.EVENTS, table)
    say(f"walks: {len(over.walks)} with {len(over)} events, PHASEKERNEL_WALK_SEED={walks.SEED}")
    return over
