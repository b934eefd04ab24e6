"""Judges a scenario by what it prints: against the guarantees, against what it expects, and against Pi's own lines.

Each thing that a case may expect is one function in `EXPECTATIONS`: it gets the story that the lines tell and what is
wanted, and says what is wrong, or nothing.
"""

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from attrs import frozen

from kernel.scenario import run
from kernel.trace import breaches_of_lines

Line = dict[str, Any]


@frozen
class Story:
    """What the lines of a scenario tell."""

    lines: list[Line]

    @property
    def final(self) -> Line:
        """The last line."""
        return self.lines[-1]

    @property
    def events(self) -> list[Line]:
        """The events, in order."""
        return [line for line in self.lines if "sequence" in line]

    @property
    def statuses(self) -> list[str]:
        """How each run ended."""
        return [line["status"] for line in self.events if line["type"] == "run.finished"]

    @property
    def phases(self) -> list[str]:
        """The visible phases that were passed, and the one at the end."""
        path = [line[end] for line in self.events if line["type"] == "phase.changed" for end in ("source", "target")]
        return [phase for phase, _ in groupby([*path, self.final["phase"]])]

    @property
    def dropped(self) -> list[str]:
        """The texts that were reported as given up."""
        return [text for line in self.events for text in line.get("dropped", ())]


def judge(path: Path) -> list[str]:
    """What is wrong with the case in this file. Empty: it holds."""
    text = path.read_text()
    case = json.loads(text)
    story = Story(run(text))
    faults = [str(breach) for breach in breaches_of_lines(story.lines)]
    faults += at_the_end(story)
    for key, want in case.get("expect", {}).items():
        faults += [f"{key}: {fault}" for fault in EXPECTATIONS[key](story, want)]
    if "pi" in case:
        faults += differences(run(text, "pi"), case["pi"])
    return faults


def differences(lines: list[Line], theirs: list[Line]) -> Iterator[str]:
    """Where our lines in Pi's dialect are not Pi's own. Of the last line, what Pi does not say is not compared."""
    lines = [*lines[:-1], {key: lines[-1].get(key) for key in theirs[-1]}]
    if len(lines) != len(theirs):
        yield f"{len(lines)} lines, and Pi has {len(theirs)}"
    for number, (line, pi) in enumerate(zip(lines, theirs, strict=False)):
        if line != pi:
            yield f"line {number} is {line}, and Pi's is {pi}"
            return


# ---- what holds at the end of every scenario ----


def at_the_end(story: Story) -> Iterator[str]:
    """Nothing goes on, every call has its one result in place, and every user message was announced."""
    final = story.final
    if final.get("type") != "final" or final["running"] or final["pending"]:
        yield f"something still goes on: {final}"
    owed: list[str] = []
    for message in final["messages"]:
        if message["role"] == "tool":
            if owed[:1] != [message["id"]]:
                yield f"the result of {message['id']} is out of place: {owed} wait for theirs"
            owed = [call for place, call in enumerate(owed) if place != 0]
        elif owed:
            yield f"no result for {owed} before {message}"
        else:
            owed = list(message.get("calls", ()))
    if owed:
        yield f"no result for {owed}"
    accepted = [line["text"] for line in story.events if line["type"] == "message.accepted"]
    users = [message["text"] for message in final["messages"] if message["role"] == "user"]
    if users != accepted[len(accepted) - len(users) :]:
        yield f"the users said {users}, and {accepted} was announced"


# ---- what a case may expect ----


def _equal(told: Callable[[Story], Any]) -> Callable[[Story, Any], Iterator[str]]:
    def compare(story: Story, want: Any) -> Iterator[str]:
        if (got := told(story)) != want:
            yield f"{got}, not {want}"

    return compare


def _status_in(story: Story, want: list[str]) -> Iterator[str]:
    if not story.statuses or set(story.statuses) - set(want):
        yield f"{story.statuses}, not of {want}"


def _phases(story: Story, want: list[str]) -> Iterator[str]:
    named = [phase for phase, _ in groupby(phase for phase in story.phases if phase in want)]
    if named != want:
        yield f"{named}, not {want}"


def _order(story: Story, want: list[Line]) -> Iterator[str]:
    rest = iter(story.events)
    for pattern in want:
        if not any(_fits(line, pattern) for line in rest):
            yield f"{pattern} did not come in its place"
            return


def _absent(story: Story, want: list[Line]) -> Iterator[str]:
    for pattern in want:
        if any(_fits(line, pattern) for line in story.events):
            yield f"{pattern} came"


def _nothing_lost(story: Story, want: list[str]) -> Iterator[str]:
    final = story.final
    kept = [message["text"] for message in final["messages"]]
    kept += final["queued"]["steering"] + final["queued"]["follow_up"] + story.dropped
    for text in want:
        if text not in kept:
            yield f"{text!r} is nowhere"


def _fits(line: Line, pattern: Line) -> bool:
    return pattern.items() <= {key: value for key, value in line.items() if key in pattern}.items()


def _shown(message: Line) -> str:
    if message["role"] == "tool":
        return f"tool:{message['id']}{'!' * message['error']}:{message['text']}"
    calls = ",".join(message.get("calls", ()))
    return f"{message['role']}:{message['text']}" + (f"[{calls}]" if calls else "")


EXPECTATIONS: dict[str, Callable[[Story, Any], Iterator[str]]] = {
    "status": _equal(lambda story: story.statuses),
    "status_in": _status_in,
    "model_calls": _equal(lambda story: len(story.final["requests"])),
    "transcript": _equal(lambda story: [_shown(message) for message in story.final["messages"]]),
    "requests": _equal(lambda story: story.final["requests"]),
    "queued": _equal(lambda story: story.final["queued"]),
    "phase": _equal(lambda story: story.final["phase"]),
    "pending": _equal(lambda story: story.final["pending"]),
    "subscriber_errors": _equal(lambda story: story.final["subscriber_errors"]),
    "phases": _phases,
    "results_for": _equal(lambda story: [line["id"] for line in story.final["messages"] if line["role"] == "tool"]),
    "order": _order,
    "absent": _absent,
    "refused": _equal(lambda story: [line["refused"] for line in story.lines if "refused" in line]),
    "did": _equal(lambda story: [[line["did"], line["value"]] for line in story.lines if "did" in line]),
    "nothing_lost": _nothing_lost,
}
