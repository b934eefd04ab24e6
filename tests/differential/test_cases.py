"""The player of Pi is right: on the recorded cases it prints what was recorded, and it refuses what Pi can't play."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.pi import Pi

CASES = sorted((Path(__file__).parent.parent / "conformance" / "cases").glob("*.json"))
RECORDED = [path for path in CASES if "pi" in json.loads(path.read_text())]

pytestmark = pytest.mark.pi


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_pi_prints_what_was_recorded(path: Path, pi: Pi) -> None:
    """Played again on the real Pi, the case gives its `pi` lines."""
    case = json.loads(path.read_text())
    played = pi.plays(case)
    assert [line for line in played.lines if "mark" not in line] == case["pi"]
    assert not played.stuck


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ({"config": {"max_turns": 1}}, "max_turns"),
        ({"tools": [{"name": "t", "script": [], "timeout": 1}]}, "timeout"),
        ({"model": [[{"text": "a"}]], "drive": [{"compact": True}]}, "compact"),
        ({"drive": [{"unqueue": "S"}]}, "unqueue"),
        ({"when": [{"event": {"type": "run.started"}, "do": [{"compact": True}]}], "drive": [{"prompt": "P"}]}, "compact"),
        ({"model": [[{"image": "x"}]], "drive": [{"prompt": "P"}]}, "image"),
    ],
)
def test_what_pi_can_not_play_is_refused(part: dict[str, Any], key: str, pi: Pi) -> None:
    """A key that Pi has nothing for is never passed over in silence."""
    with pytest.raises(AssertionError, match=key):
        pi.plays(part)


def test_twice_the_same(pi: Pi) -> None:
    """A scenario gives the same lines each time, whatever was played before it."""
    tools = [{"name": "t", "script": [{"wait": "g"}, {"return": "A"}]}, {"name": "u", "script": [{"open": "g"}]}]
    calls = [{"call": {"id": f"c{number}", "name": "tu"[number % 2]}} for number in range(4)]
    scenario = {"tools": tools, "model": [calls, [{"wait": "never"}]], "drive": [{"prompt": "P"}]}
    assert pi.plays(scenario) == pi.plays(scenario)
