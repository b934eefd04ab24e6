"""The model of the lifecycle goes where the real shell and core go, step by step: through every scenario of `cases/`, and
through random ones in any order of tasks. What the shell reports is what the model lets it report.
"""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernel.agent
from kernel.core import Core
from kernel.scenario import parse, play
from kernel.testing import Chooser, Deadlock
from tests.conformance.test_random_scenarios import Data, scenarios
from tests.kernel.model_follower import Follower

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


@contextmanager
def followed() -> Iterator[list[Follower]]:
    """Hang a follower on each core that an agent makes meanwhile; afterwards none has gone astray."""
    pairs: list[tuple[Core, Follower]] = []
    followers: list[Follower] = []

    def make(*arguments: Any, **keywords: Any) -> Core:
        core = Core(*arguments, **keywords)
        follower = Follower(core.state)
        core._shadow = follower.shadow
        pairs.append((core, follower))
        followers.append(follower)
        return core

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel.agent, "Core", make)
        yield followers
    for core, follower in pairs:
        follower.catch_up(core.state)
        assert follower.wrong == []


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_it_follows_a_case(path: Path) -> None:
    """In each step of the case the model has the same guards, the same row, and afterwards the same numbers."""
    with followed() as followers:
        play(parse(path.read_bytes()), "native", lambda line: None)

    assert followers[0].steps


def follow(scenario: Data, choose: Chooser | None = None) -> None:
    with followed(), suppress(Deadlock):
        play(parse(json.dumps(scenario)), "native", lambda line: None, choose=choose)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios())
def test_it_follows_random_scenarios(scenario: Data) -> None:
    """The same in scenarios that nobody thought of."""
    follow(scenario)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios(), st.integers(0, 2**16))
def test_it_follows_in_any_order(scenario: Data, seed: int) -> None:
    """The same when the tasks that are ready take turns in whatever order."""
    follow(scenario, random.Random(seed).randrange)
