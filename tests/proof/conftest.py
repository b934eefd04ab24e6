"""What the proving lanes share: they say at the end what they compared, and loudly what they could not."""

from collections.abc import Callable

import pytest

from statechart import Decisions, compile_table
from statechart.table import ROWS
from tests.proof import walks

SAID = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Take a line for the end of the session."""
    return pytestconfig.stash.setdefault(SAID, []).append


@pytest.fixture(scope="session")
def table() -> Decisions:
    return compile_table()


@pytest.fixture(scope="session")
def ground(table: Decisions, say: Callable[[str], None]) -> walks.Ground:
    """The walks of this session, and what the live machine told of them."""
    over = walks.walk_over(ROWS, walks.SEED, walks.EVENTS, table)
    say(f"walks: {len(over.walks)} with {len(over)} events, PHASEKERNEL_WALK_SEED={walks.SEED}")
    return over


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A section of its own, so that a lane that was skipped is seen."""
    if said := config.stash.get(SAID, []):
        terminalreporter.section("second opinion")
        for line in said:
            terminalreporter.line(line)
