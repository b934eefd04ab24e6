"""The lane `pi`: one Pi for all its tests, and what it covered, or that it did not run, at the end of the report."""

from collections.abc import Iterator

import pytest

from tests.differential.pi import NotHere, Pi, found

SAID: list[str] = []
"""What the end of the report says of this lane."""


@pytest.fixture(scope="session")
def pi() -> Iterator[Pi]:
    """The real Pi; a test that needs it is skipped, and the report says so, where it can't be run."""
    try:
        running = Pi(found())
    except NotHere as error:
        if not SAID:
            SAID.append(f"SKIPPED: the differential test against Pi did not run. {error}")
        pytest.skip(str(error))
    SAID.append(f"Pi: {running.runs['package']} {running.runs['version']} on Node {running.runs['node']}")
    yield running
    running.close()


@pytest.fixture(scope="session")
def said() -> list[str]:
    """Sentences for the end of the report."""
    return SAID


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if SAID:
        terminalreporter.section("differential test against Pi")
        for sentence in SAID:
            terminalreporter.write_line(sentence)
