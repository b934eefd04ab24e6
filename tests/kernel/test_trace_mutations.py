"""The trace checker against streams that were damaged on purpose: it tells the right guarantee at the right event."""

import json
import pathlib
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.scenario import run
from kernel.trace import NotAnEventError, breaches_of_lines
from tests.conformance.test_random_scenarios import lines_of, scenarios
from tests.kernel.mutations import CHANGES, Line, Mutant, changed, doubled, dropped, events_of, kind, rearranged, swapped

CASES = sorted((pathlib.Path(__file__).parent.parent / "conformance" / "cases").glob("*.json"))
PI = [path for path in CASES if "pi" in json.loads(path.read_text())]
DAMAGES = {"dropped": dropped, "doubled": doubled, "swapped": swapped, "rearranged": rearranged}
QUIET: Any = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


def native(path: pathlib.Path) -> list[Line]:
    return events_of(run(path.read_text()))


def pi(path: pathlib.Path) -> list[Line]:
    return events_of(json.loads(path.read_text())["pi"])


def assert_found(mutant: Mutant) -> None:
    """The first breach is the one that is due, and it needs nothing that comes after it."""
    found = breaches_of_lines(mutant.lines)
    if mutant.due is None:
        assert found == [], mutant.deed
        return
    guarantee, place = mutant.due
    assert found, f"nothing was found {mutant.deed}"
    assert found[0].place == place, f"{found[0]}, and {mutant.due} is right {mutant.deed}"
    assert guarantee in {each.guarantee for each in found if each.place == place}, f"{found[0]} {mutant.deed}"
    if "run.finished" not in found[0].text:
        assert_it_is_the_first(mutant.lines)


def assert_it_is_the_first(lines: list[Line]) -> None:
    """Cut off after the first breach, the stream has it all the same; cut off before, it has none."""
    found = breaches_of_lines(lines, whole=False)
    if found:
        place = found[0].place
        assert breaches_of_lines(lines[: place + 1], whole=False)[0] == found[0]
        assert breaches_of_lines(lines[:place], whole=False) == []


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_damaged_case_is_found_out(path: pathlib.Path, damage: str) -> None:
    """For each event of each case: what breaks a guarantee is told at the first event that shows it, the rest passes."""
    for mutant in DAMAGES[damage](native(path)):
        assert_found(mutant)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("path", PI, ids=lambda path: path.stem)
def test_damaged_lines_of_pi_are_found_out(path: pathlib.Path, damage: str) -> None:
    """The same for the lines of the real Pi agent core."""
    for mutant in DAMAGES[damage](pi(path)):
        if "compaction" not in mutant.deed:  # of which Pi does not speak
            assert_found(mutant)


def test_a_changed_word_is_found_out() -> None:
    """Each row of the table finds an event in the cases that it fits, and is found out in each of them."""
    rows: Counter[str] = Counter()
    for path in CASES:
        for mutant in changed(native(path)):
            assert_found(mutant)
            rows[mutant.deed.split(",")[0]] += 1
    assert len(rows) == len(CHANGES)


def test_the_tables_speak_of_all_that_a_stream_can_show() -> None:
    """Each guarantee of which a stream shows something is broken by some mutation, and each type of event is tried."""
    tried: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for path in CASES:
        for damage in (dropped, doubled, swapped, rearranged, changed):
            broken.update(mutant.due[0] for mutant in damage(native(path)) if mutant.due)
        tried.update(kind(line) for line in native(path))
    assert set(broken) == {f"G{number}" for number in range(1, 17)} - {"G12", "G13", "G14"}
    assert len(tried) == 20


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_number_left_out_is_found_out(path: pathlib.Path) -> None:
    """An event that is missing, the numbers being as they were, is a gap right there."""
    lines = native(path)
    for place, line in enumerate(lines):
        if kind(line) not in ("run.started", "run.finished"):
            found = breaches_of_lines(lines[:place] + lines[place + 1 :])
            assert ("G1", place) in {(breach.guarantee, breach.place) for breach in found}
            assert found[0].place == place


@settings(max_examples=400, **QUIET)
@given(scenarios(), st.integers(0, 2**16))
def test_no_false_alarm(scenario: Line, seed: int) -> None:
    """Random runs, cut off anywhere, have no breach, whatever the profile and the order of tasks."""
    lines, _ = lines_of(scenario, random.Random(seed).randrange if seed % 2 else None)
    for length in range(len(lines) + 1):
        assert breaches_of_lines(lines[:length], whole=False) == []


@settings(max_examples=300, **QUIET)
@given(scenarios(), st.randoms(use_true_random=False))
def test_the_first_breach_needs_nothing_that_follows(scenario: Line, chance: random.Random) -> None:
    """However a random run is damaged, the stream up to its first breach shows it, and the stream before it shows none."""
    lines = events_of(lines_of(scenario)[0])
    for _ in range(chance.randrange(1, 4) if lines else 0):
        place = chance.randrange(len(lines))
        deed = chance.randrange(3)
        moved = lines.pop(place)
        if deed:
            lines.insert(chance.randrange(len(lines) + 1), moved)
        if deed == 2:
            lines.insert(chance.randrange(len(lines) + 1), moved)
        if not lines:
            return
    assert_it_is_the_first(lines)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_is_no_event_is_refused(path: pathlib.Path) -> None:
    """A line without a word that its type needs, or with one of another kind, is refused, and never makes a rule fail."""
    lines = native(path)
    for place, line in enumerate(lines):
        for word in line:
            for value in (None, [1], {}, -1, "zz", ...):
                altered = (
                    {key: said for key, said in line.items() if key != word} if value is ... else {**line, word: value}
                )
                damaged = [*lines[:place], altered, *lines[place + 1 :]]
                assert refused_at(damaged) in (None, place)


def refused_at(lines: list[Line]) -> int | None:
    """The place of the line that was refused as no event; None when there is none."""
    try:
        breaches_of_lines(lines)
    except NotAnEventError as error:
        return error.place
    return None
