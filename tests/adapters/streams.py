"""Streams of kernel events for adapters: of all scenario cases, of random scenarios, and of runs in simulated time."""

import contextlib
import json
import random
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.events import Event
from kernel.journal import read_journal
from kernel.scenario import parse, play
from kernel.testing import Deadlock
from tests.conformance.test_random_scenarios import scenarios
from tests.pictures.stories import as_trace, three_hours, three_seconds

CASES: Final = sorted((Path(__file__).parents[1] / "conformance" / "cases").glob("*.json"))


def events_of_scenario(scenario: dict[str, Any]) -> list[Event]:
    """All events of a scenario, as its journal tells them: also of one that hangs, up to there."""
    journal: list[str] = []
    with contextlib.suppress(Deadlock):
        play(parse(json.dumps(scenario)), "native", lambda _: None, journal=journal.append)
    return [effect for effects in read_journal(journal).replay() for effect in effects if isinstance(effect, Event)]


def streams_of_cases() -> dict[str, list[Event]]:
    return {path.stem: events_of_scenario(json.loads(path.read_text())) for path in CASES}


def streams_of_stories() -> dict[str, list[Event]]:
    return {
        name: [heard.event for heard in as_trace(text).heard]
        for name, text in (("three seconds", three_seconds()), ("three hours", three_hours()))
    }


def random_streams() -> st.SearchStrategy[list[Event]]:
    """The events of random scenarios, sometimes from the middle on and sometimes cut off."""
    whole = scenarios().map(events_of_scenario).filter(bool)
    return st.one_of(whole, st.tuples(whole, st.floats(0, 1), st.floats(0, 1)).map(_part))


def _part(drawn: tuple[list[Event], float, float]) -> list[Event]:
    events, *shares = drawn
    first, last = sorted(int(share * len(events)) for share in shares)
    return events[first : last + 1]


def many_random_streams(count: int, seed: int) -> list[list[Event]]:
    """*count* random streams at once, for a judge that lives in another process."""
    found: list[list[Event]] = []

    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(random_streams())
    def collect(events: list[Event]) -> None:
        found.append(events)

    collect()
    random.Random(seed).shuffle(found)
    return found
