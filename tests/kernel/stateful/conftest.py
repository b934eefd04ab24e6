"""How many examples: few and always the same ones by default, many and new ones with `--hypothesis-profile long`."""

import pytest
from hypothesis import HealthCheck, Phase, settings

LONG = settings(
    max_examples=5_000, stateful_step_count=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("long", LONG)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the long profile take its time."""
    if is_long(config):
        for item in items:
            item.add_marker(pytest.mark.timeout(0), append=False)


def is_long(config: pytest.Config) -> bool:
    return config.getoption("--hypothesis-profile", None) == "long"


@pytest.fixture
def examples(request: pytest.FixtureRequest):
    """The settings for so many examples; the long profile has its own."""

    def chosen(count: int) -> settings:
        if is_long(request.config):
            return LONG
        return settings(
            LONG, max_examples=count, stateful_step_count=30, derandomize=True, phases=(Phase.generate, Phase.shrink),
            print_blob=False, report_multiple_bugs=False,
        )  # fmt: skip

    return chosen


@pytest.fixture(autouse=True)
def shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the live machine of each step too: it must agree."""
    monkeypatch.setenv("PHASEKERNEL_SHADOW", "1")
