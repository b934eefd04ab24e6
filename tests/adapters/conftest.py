"""The lane `views`: what can't be run is skipped, and the report says so loudly."""

from collections.abc import Callable

import pytest

from tests.adapters.outside import NotHere


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """A counterpart that is not here skips the test; the session says so at its end."""
    try:
        return (yield)
    except NotHere as error:
        from tests.conftest import SAID

        said = item.config.stash.setdefault(SAID, [])
        line = f"SKIPPED: a view was not tried with its counterpart. {error}"
        if line not in said:
            said.append(line)
        pytest.skip(str(error))


@pytest.fixture
def tell(say: Callable[[str], None]) -> Callable[[str], None]:
    """A line for the end of the session."""
    return say
