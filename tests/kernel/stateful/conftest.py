"""How many examples: few and always the same ones by default, and new ones for as long as `--long` says."""

from collections.abc import Callable

import pytest
from hypothesis import Phase, settings

from tests.kernel.stateful.machine import SETTINGS


@pytest.fixture
def examples() -> Callable[[int], settings]:
    """The settings for so many examples, the same ones each time."""

    def chosen(count: int) -> settings:
        return settings(
            SETTINGS, max_examples=count, stateful_step_count=30, derandomize=True, phases=(Phase.generate, Phase.shrink),
            print_blob=False, report_multiple_bugs=False,
        )  # fmt: skip

    return chosen


@pytest.fixture(autouse=True)
def shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the live machine of each step too: it must agree."""
    monkeypatch.setenv("PHASEKERNEL_SHADOW", "1")
