"""Every scenario in `cases/` holds: the guarantees, what it expects, and the lines of Pi where it has them."""

import json
from pathlib import Path

import pytest

from tests.conformance.judge import EXPECTATIONS, Story, at_the_end, differences, judge

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))

WAITING: frozenset[str] = frozenset()
"""Names of cases that wait for the next milestone. One that holds already must leave this list."""


def cases() -> list[object]:
    waits = pytest.mark.xfail(strict=True, reason="waits for the next milestone")
    return [pytest.param(path, id=path.stem, marks=[waits] if path.stem in WAITING else []) for path in CASES]


@pytest.mark.parametrize("path", cases())
def test_case_holds(path: Path) -> None:
    """The case in this file holds."""
    assert judge(path) == []


def test_all_cases_are_there() -> None:
    """There are seventy cases, each named as its file, and 23 with Pi's lines."""
    content = [json.loads(path.read_text()) for path in CASES]
    assert [case["name"] for case in content] == [path.stem for path in CASES]
    assert (len(content), sum("pi" in case for case in content)) == (70, 23)


def test_nobody_waits_in_vain() -> None:
    """Each case that waits is a case."""
    assert {path.stem for path in CASES} >= WAITING


def test_every_expectation_can_fail() -> None:
    """No expectation holds for a story in which it is wrong."""
    final = {"type": "final", "phase": "idle", "running": False, "pending": [], "subscriber_errors": 0}
    final |= {"queued": {"steering": [], "follow_up": []}, "messages": [], "requests": []}
    event = {"type": "run.finished", "status": "failed", "sequence": 0}
    story = Story([event, {"refused": "prompt"}, {"did": "cancel", "value": True}, final])
    wrong = {
        "status": ["completed"], "status_in": ["completed"], "model_calls": 1, "transcript": ["user:Hi"],
        "requests": [["user:Hi"]], "queued": {}, "phase": "turn", "pending": ["c1"], "subscriber_errors": 1,
        "phases": ["idle", "turn"], "results_for": ["c1"], "order": [{"type": "run.finished"}, {"type": "run.finished"}],
        "absent": [{"type": "run.finished", "status": "failed"}], "refused": [], "did": [], "nothing_lost": ["Hi"],
    }  # fmt: skip
    assert wrong.keys() == EXPECTATIONS.keys()
    assert [key for key, want in wrong.items() if not list(EXPECTATIONS[key](story, want))] == []


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "text": "", "calls": ["c1"]}],
        [{"role": "assistant", "text": "", "calls": ["c1"]}, {"role": "assistant", "text": "x", "calls": []}],
        [{"role": "tool", "id": "c1", "text": "A", "error": False}],
        [{"role": "user", "text": "unannounced"}],
    ],
    ids=["open call", "message before the result", "orphan result", "unannounced user"],
)
def test_a_broken_transcript_is_seen(messages: list[dict[str, object]]) -> None:
    """A transcript with an open call, an orphan result or a message from nowhere is a fault."""
    assert list(at_the_end(Story([{"type": "final", "running": False, "pending": [], "messages": messages}])))


@pytest.mark.parametrize("theirs", [[{"a": 2}, {"b": 1}], [{"a": 1}], [{"a": 1}, {"b": 2}]])
def test_a_line_that_pi_does_not_have_is_seen(theirs: list[dict[str, int]]) -> None:
    """A line that differs from Pi's, or that Pi does not have, is a fault."""
    assert list(differences([{"a": 1}, {"b": 1, "more": 1}], theirs))
    assert not list(differences([{"a": 1}, {"b": 1, "more": 1}], [{"a": 1}, {"b": 1}]))
