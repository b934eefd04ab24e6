"""The lane `pi`: one Pi for all its tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.differential.pi import NotHere, Pi, found


@pytest.fixture(scope="session")
def pi(say: Callable[[str], None]) -> Iterator[Pi]:
    """The real Pi; a test that needs it is skipped, and the report says so, where it can't be run."""
    try:
        running = Pi(found())
    except NotHere as error:
        say(f"SKIPPED: the differential test against Pi did not run. {error}")
        pytest.skip(str(error))
    say(f"Pi: {running.runs['package']} {running.runs['version']} on Node {running.runs['node']}")
    yield running
    running.close()
