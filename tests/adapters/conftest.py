"""The lane `views`: what can't be run is skipped, and the report says so loudly."""

from collections.abc import Generator

import pytest

from tests.adapters.outside import NotHere
from tests.conftest import SAID


def _skip_what_is_not_here(item: pytest.Item) -> Generator[None, object, object]:
    """A counterpart that is not here skips the test; the session says so at its end."""
    try:
        return (yield)
    except NotHere as error:
        said = item.config.stash.setdefault(SAID, [])
        line = f"SKIPPED: a view was not tried with its counterpart. {error}"
        if line not in said:
            said.append(line)
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """What a fixture needs."""
    return (yield from _skip_what_is_not_here(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What the test itself needs."""
    return (yield from _skip_what_is_not_here(item))
