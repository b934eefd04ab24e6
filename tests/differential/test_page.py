"""What can be said of the rules without Pi: the page is theirs, their scenarios are scenarios, and comparing can fail."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kernel.scenario import parse
from tests.differential.page import FIRST, PAGE, page
from tests.differential.pi import HERE, PACKAGE, VERSION, Played, plays
from tests.differential.rules import RULES, Rule, compare, without
from tests.differential.scenarios import scenario_of, smaller
from tests.differential.test_random import COUNT


def test_the_page_is_made_of_the_rules() -> None:
    """`python -m tests.differential.page` would change nothing."""
    assert PAGE.read_text() == page(COUNT)
    assert FIRST.keys() == {rule.name for rule in RULES}
    for rule in RULES:
        assert f"| {rule.pi} | {rule.here} | {rule.decided_by} |" in PAGE.read_text()
        assert f"scenario: {json.dumps(rule.scenario)}" in PAGE.read_text()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_our_half_of_a_difference_holds(rule: Rule) -> None:
    """The kernel prints the line that the page has for it."""
    here = FIRST[rule.name]["here"]
    assert here is not None
    lines = compare(plays(rule.scenario), Played([], False), without(rule.name)).ours
    assert any(here.items() <= line.items() for line in lines)


def test_each_seed_has_a_scenario_of_its_own() -> None:
    """Scenarios are read by the kernel, are the same each time, and differ from each other."""
    made = [json.dumps(scenario_of(seed)) for seed in range(200)]
    assert made == [json.dumps(scenario_of(seed)) for seed in range(200)]
    assert len(set(made)) == 200
    assert all(parse(scenario) for scenario in made)


def test_a_scenario_is_made_smaller_as_far_as_it_goes() -> None:
    """What has nothing to do with the failure is left out."""

    def has_a_follow_up(scenario: Any) -> bool:
        return '"follow_up": "F' in json.dumps(scenario.get("when", []))

    found = next(scenario for scenario in map(scenario_of, range(100)) if has_a_follow_up(scenario))
    small = smaller(found, has_a_follow_up)
    assert list(small) == ["when"]
    assert len(small["when"]) == len(small["when"][0]["do"]) == 1


@pytest.mark.parametrize("change", ["missing", "more", "other"])
def test_a_line_that_differs_is_seen(change: str) -> None:
    """Comparing fails on a line that one of the two does not have, or has otherwise."""
    theirs = plays({"model": [[{"text": "a"}]], "drive": [{"prompt": "P"}]})
    theirs.lines.insert(-1, {"mark": "unsaid", "places": []})
    theirs.lines.insert(4, {"mark": "request", "aborted": False, "cut": []})
    ours = plays({"model": [[{"text": "a"}]], "drive": [{"prompt": "P"}]})
    assert compare(ours, theirs).same
    if change == "missing":
        del ours.lines[3]
    elif change == "more":
        ours.lines.append(ours.lines[3])
    else:
        ours.lines[3] = {**ours.lines[3], "text": "Q"}
    assert not compare(ours, theirs).same


def test_the_lock_names_versions_and_no_registry() -> None:
    """The package is at the exact version, all others are locked, and no file says where they come from."""
    package, lock = (json.loads((HERE / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert package["dependencies"] == {PACKAGE: VERSION}
    assert lock["packages"][f"node_modules/{PACKAGE}"]["version"] == VERSION
    locked = {name: entry for name, entry in lock["packages"].items() if name}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+\S*", entry["version"]) for entry in locked.values())
    assert all("resolved" not in entry and entry["integrity"] for entry in locked.values())


def test_the_lane_is_left_out_unless_asked_for() -> None:
    """A plain run of the suite needs neither Node nor a package from elsewhere."""
    settings = tomllib.loads((Path(HERE).parent.parent / "pyproject.toml").read_text())["tool"]["pytest"]
    assert "not pi" in settings["addopts"][settings["addopts"].index("-m") + 1]
