"""The lane `aimock`: one provider for all its tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.providers.aimock import PACKAGE, Aimock, NotHere, running


@pytest.fixture(scope="session")
def aimock(say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    """A provider that nobody here wrote; where it can't be run the tests are skipped, and the report says so."""
    try:
        with running(tmp_path_factory.mktemp("aimock")) as provider:
            say(f"aimock: {PACKAGE}")
            yield provider
    except NotHere as error:
        say(f"SKIPPED: the adapters were not tried on another's provider. {error}")
        pytest.skip(str(error))
