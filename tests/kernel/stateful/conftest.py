"""The two profiles of the stateful tests."""

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "long", derandomize=False, max_examples=5_000, stateful_step_count=60, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture
def shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of a core is asked of the live machine too."""
    monkeypatch.setenv("PHASEKERNEL_SHADOW", "1")
