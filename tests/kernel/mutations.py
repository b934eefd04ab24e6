"""Streams that were damaged on purpose, and what must be found in them.

For each type of event the tables say what a checker has to find when an event of it is dropped, doubled, swapped with the
next one or changed: the guarantee and the place, or that the stream is still right. They are written from the design,
by hand, and share no code with the rules.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

Line = dict[str, Any]
Found = tuple[str, int] | None
"""The guarantee and the place of the first breach; None: the stream is still right."""

_PI = {
    "agent_start": "run.started", "agent_end": "run.finished", "turn_start": "turn.started", "turn_end": "turn.ended",
    "message_start": "message.started", "message_update": "message.updated", "message_end": "message.ended",
    "tool_execution_start": "tool.started", "tool_execution_update": "tool.updated", "tool_execution_end": "tool.ended",
}  # fmt: skip
OPENS_OR_CLOSES = {
    "run.finished", "turn.started", "turn.ended", "message.started", "message.updated", "tool.started", "tool.updated",
    "retry.scheduled", "compaction.started", "message.accepted",
}  # fmt: skip
"""What can't come while a message, a backoff or a compaction is open, and so shows that it was not closed."""


@frozen
class Mutant:
    """A damaged stream, what was done, and what must be found."""

    lines: list[Line]
    deed: str
    due: Found


def kind(line: Line) -> str:
    """The type of event, in native words."""
    said = str(line.get("type", ""))
    return _PI.get(said, said)


def events_of(lines: list[Line]) -> list[Line]:
    """What is an event in these lines."""
    return [line for line in lines if kind(line) not in ("", "final")]


def numbered(lines: list[Line]) -> list[Line]:
    """The lines, numbered as if what was done to them had been so."""
    made, number = [], 0
    for line in lines:
        number = 0 if kind(line) == "run.started" else number
        made.append({**line, "sequence": number} if "sequence" in line else line)
        number += line.get("count", 1)
    return made


def first(lines: list[Line], start: int, *kinds: str, **details: Any) -> int:
    """The place of the first event of these kinds, from *start* on; the number of lines when there is none."""
    for place in range(start, len(lines)):
        line = lines[place]
        if kind(line) in kinds and all(line.get(key) == value for key, value in details.items()):
            return place
    return len(lines)


def run_around(lines: list[Line], place: int) -> list[Line]:
    """The events of the run up to this one."""
    start = max((each for each in range(place + 1) if kind(lines[each]) == "run.started"), default=0)
    return lines[start:place]


def knows_queues(lines: list[Line], place: int) -> bool:
    """Whether it can be known what waited before the queues changed for the item that enters here."""
    return sum(kind(line) == "queue.changed" for line in run_around(lines, place)) > 1


def is_taking(lines: list[Line], place: int) -> bool:
    """Whether an item enters here from a queue."""
    return place < len(lines) and lines[place].get("origin") in ("steering", "follow_up")


# ---- dropped ----


def dropped(lines: list[Line]) -> Iterator[Mutant]:
    """Each event left out, as if it had never been."""
    for place, line in enumerate(lines):
        mutant = lines[:place] + lines[place + 1 :]
        due = _WITHOUT[kind(line)](mutant, place, line)
        if due != "unsaid":
            yield Mutant(numbered(mutant), f"without {place}: {line}", due)


def _no_end(lines: list[Line], place: int, line: Line) -> Found:
    return "G1", min(place, len(lines) - 1)


def _no_turn(lines: list[Line], place: int, line: Line) -> Found:
    nearest = first(lines, place, "message.accepted", "message.started", "compaction.started", "turn.ended")
    return "G10" if kind(lines[nearest]) == "compaction.started" else "G2", nearest


def _no_item(lines: list[Line], place: int, line: Line) -> Found:
    return ("G6", place) if line["origin"] != "prompt" and knows_queues(lines, place) else None


def _no_piece(lines: list[Line], place: int, line: Line) -> Any:
    end = first(lines, place, "message.ended")
    if line.get("delta"):
        return "G3", end
    pieces = [each.get("call") for each in lines[:place] + lines[place:end]]
    is_due = "call" in line and lines[end]["stop"] not in ("error", "aborted") and line["call"] not in pieces
    return ("G3", end) if is_due else "unsaid" if line.get("call") in pieces else None


def _no_start(lines: list[Line], place: int, line: Line) -> Found:
    own = min(first(lines, place, "tool.ended", id=line["id"]), first(lines, place, "tool.updated", id=line["id"]))
    other = first(lines, place, "tool.started")
    return ("G2", own) if own < other else ("G4", other)


def _no_tool_end(lines: list[Line], place: int, line: Line) -> Found:
    message = first(lines, place, "message.started")
    late = first(lines, place, "update.discarded", id=line["id"])
    if late < message and first(lines[:place], 0, "tool.ended", id=line["id"]) == place:
        return "G8", late
    return "G2", message


def _no_change(lines: list[Line], place: int, line: Line) -> Any:
    known = any(kind(each) == "queue.changed" for each in run_around(lines, place))
    if not known:
        return None
    return ("G6", place) if is_taking(lines, place) else "unsaid"


def _shows_at(*kinds: str) -> Callable[[list[Line], int, Line], Found]:
    return lambda lines, place, line: ("G2", first(lines, place, *kinds))


def _nothing(*_: Any) -> None:
    return None


_WITHOUT: dict[str, Callable[[list[Line], int, Line], Any]] = {
    "run.started": lambda lines, place, line: ("G1", place),
    "run.finished": _no_end,
    "phase.changed": _shows_at("phase.changed", "run.finished"),
    "turn.started": _no_turn,
    "turn.ended": _shows_at("turn.started", "run.finished"),
    "message.accepted": _no_item,
    "message.started": _shows_at("message.updated", "message.ended"),
    "message.updated": _no_piece,
    "message.ended": _shows_at(*OPENS_OR_CLOSES),
    "tool.started": _no_start,
    "tool.updated": _nothing,
    "tool.ended": _no_tool_end,
    "retry.scheduled": _shows_at("retry.ended"),
    "retry.ended": _shows_at(*OPENS_OR_CLOSES),
    "compaction.started": _shows_at("compaction.ended"),
    "compaction.ended": _shows_at(*OPENS_OR_CLOSES),
    "queue.changed": _no_change,
    "hook.failed": _nothing,
    "subscriber.failed": _nothing,
    "update.discarded": _nothing,
}


# ---- doubled ----


def doubled(lines: list[Line]) -> Iterator[Mutant]:
    """Each event told twice."""
    for place, line in enumerate(lines):
        mutant = lines[: place + 1] + lines[place:]
        due = _TWICE.get(kind(line), _again)(mutant, place, line)
        if due != "unsaid":
            yield Mutant(numbered(mutant), f"twice {place}: {line}", due)


def _again(lines: list[Line], place: int, line: Line) -> Found:
    return "G2", place + 1


def _item_again(lines: list[Line], place: int, line: Line) -> Found:
    return ("G6", place + 1) if line["origin"] == "prompt" or knows_queues(lines, place) else None


def _piece_again(lines: list[Line], place: int, line: Line) -> Found:
    return ("G3", first(lines, place, "message.ended")) if line.get("delta") else None


def _start_again(lines: list[Line], place: int, line: Line) -> Any:
    calls = next((each["calls"] for each in reversed(lines[:place]) if each.get("calls")), [])
    return "unsaid" if calls.count(line["id"]) > 1 else ("G4", place + 1)


def _change_again(lines: list[Line], place: int, line: Line) -> Found:
    if line.get("dropped"):
        return "G6", place + 1
    if not is_taking(lines, place + 2):
        return None
    known = any(kind(each) == "queue.changed" for each in run_around(lines, place))
    return "G6", place + 1 if known else place + 2


_TWICE: dict[str, Callable[[list[Line], int, Line], Any]] = {
    "run.started": lambda lines, place, line: ("G1", place + 1),
    "run.finished": lambda lines, place, line: ("G1", place + 1),
    "message.accepted": _item_again,
    "message.updated": _piece_again,
    "tool.started": _start_again,
    "tool.updated": _nothing,
    "queue.changed": _change_again,
    "hook.failed": _nothing,
    "subscriber.failed": _nothing,
    "update.discarded": _nothing,
}
"""For the rest: what is open can't be opened again, and what is closed can't be closed."""


# ---- swapped with the next ----


def swapped(lines: list[Line]) -> Iterator[Mutant]:
    """Each two neighbours the other way round, as far as the table says what that means."""
    for place, (line, after) in enumerate(itertools.pairwise(lines)):
        pair = (kind(line), kind(after))
        if pair in _THE_OTHER_WAY:
            mutant = [*lines[:place], after, line, *lines[place + 2 :]]
            due = _THE_OTHER_WAY[pair](lines, place, line)
            if due != "unsaid":
                yield Mutant(numbered(mutant), f"{place} after {after}: {line}", due)


def _here(guarantee: str) -> Callable[[list[Line], int, Line], Found]:
    return lambda lines, place, line: (guarantee, place)


def _piece_late(lines: list[Line], place: int, line: Line) -> Any:
    if line.get("delta"):
        return "G3", place
    return "unsaid" if "call" in line else ("G2", place + 1)


def _pieces_swapped(lines: list[Line], place: int, line: Line) -> Any:
    after = lines[place + 1]
    if "delta" in line and "delta" in after:
        same = line["delta"] + after["delta"] == after["delta"] + line["delta"]
        return None if same else ("G3", first(lines, place, "message.ended"))
    return None if "delta" in line or "delta" in after else "unsaid"


def _starts_swapped(lines: list[Line], place: int, line: Line) -> Found:
    return None if line["id"] == lines[place + 1]["id"] else ("G4", place)


def _if_its_own(lines: list[Line], place: int, line: Line) -> Found:
    return ("G2", place) if lines[place + 1]["id"] == line["id"] else None


def _taken_late(lines: list[Line], place: int, line: Line) -> Any:
    known = any(kind(each) == "queue.changed" for each in run_around(lines, place))
    return ("G6", place) if known and is_taking(lines, place + 1) else "unsaid"


_THE_OTHER_WAY: dict[tuple[str, str], Callable[[list[Line], int, Line], Any]] = {
    ("run.started", "phase.changed"): _here("G1"),
    ("run.started", "turn.started"): _here("G1"),
    ("run.finished", "run.started"): _here("G1"),
    ("turn.ended", "run.finished"): _here("G2"),
    ("phase.changed", "run.finished"): _here("G2"),
    ("phase.changed", "phase.changed"): _here("G2"),
    ("phase.changed", "turn.started"): _nothing,
    ("turn.started", "message.accepted"): _here("G2"),
    ("turn.started", "message.started"): _here("G2"),
    ("message.accepted", "message.started"): lambda lines, place, line: (
        "G6", place if is_taking(lines, place) and knows_queues(lines, place) else place + 1
    ),
    ("message.started", "message.updated"): _here("G2"),
    ("message.started", "message.ended"): _here("G2"),
    ("message.updated", "message.ended"): _piece_late,
    ("message.updated", "message.updated"): _pieces_swapped,
    ("message.ended", "tool.started"): _here("G2"),
    ("message.ended", "message.started"): _here("G2"),
    ("message.ended", "turn.ended"): _here("G2"),
    ("message.ended", "retry.scheduled"): _here("G2"),
    ("message.ended", "compaction.started"): _here("G2"),
    ("tool.started", "tool.started"): _starts_swapped,
    ("tool.started", "tool.updated"): _if_its_own,
    ("tool.started", "tool.ended"): _if_its_own,
    ("tool.ended", "message.started"): _here("G2"),
    ("tool.updated", "tool.updated"): _nothing,
    ("turn.ended", "turn.started"): _here("G2"),
    ("turn.ended", "phase.changed"): _nothing,
    ("retry.scheduled", "retry.ended"): _here("G2"),
    ("retry.ended", "message.started"): _here("G2"),
    ("compaction.started", "compaction.ended"): _here("G2"),
    ("compaction.ended", "message.started"): _here("G2"),
    ("queue.changed", "message.accepted"): _taken_late,
}  # fmt: skip


# ---- more than one event at a time ----


def rearranged(lines: list[Line]) -> Iterator[Mutant]:
    """Whole results left out, doubled and swapped; a compaction amid open calls; a follow-up before waiting steering."""
    for place, line in enumerate(lines):
        rest = lines[place + 2 :]
        if kind(line) == "message.started" and line["role"] == "tool" and not _shares_its_id(lines, place):
            due = first(lines, place + 2, "message.started", "message.accepted", "turn.ended") - 2
            yield Mutant(numbered([*lines[:place], *rest]), f"without the result {place}", ("G4", due))
            yield Mutant(numbered([*lines[: place + 2], *lines[place:]]), f"twice the result {place}", ("G4", place + 2))
            if rest and kind(rest[0]) == "message.started" and rest[0]["role"] == "tool":
                other = [*lines[:place], *rest[:2], *lines[place : place + 2], *rest[2:]]
                yield Mutant(numbered(other), f"the result {place} after the next", ("G4", place))
        if kind(line) == "message.ended" and line.get("calls"):
            started = {"type": "compaction.started", "sequence": 0, "reason": "threshold"}
            amid = [started, {"type": "compaction.ended", "sequence": 0, "outcome": "compacted"}]
            mutant = [*lines[: place + 1], *amid, *lines[place + 1 :]]
            yield Mutant(numbered(mutant), f"a compaction after {place}", ("G10", place + 1))
        if kind(line) == "queue.changed" and line["follow_up"] and _is_one_steered_later(lines, place):
            changed = {"steering": [lines[place + 1]["text"], *line["steering"]], "follow_up": line["follow_up"][1:]}
            instead = [line | changed, lines[place + 1] | {"origin": "follow_up", "text": line["follow_up"][0]}]
            yield Mutant([*lines[:place], *instead, *rest], f"a follow-up before steering {place}", ("G6", place + 1))


def _shares_its_id(lines: list[Line], place: int) -> bool:
    calls = next((each["calls"] for each in reversed(lines[:place]) if each.get("calls")), [])
    return calls.count(lines[place]["id"]) > 1


def _is_one_steered_later(lines: list[Line], place: int) -> bool:
    """Whether one steering message enters here, in a turn that is not the first."""
    origins = [line.get("origin") for line in lines[place + 1 : place + 3]]
    turns = sum(kind(line) == "turn.started" for line in run_around(lines, place))
    return origins[:1] == ["steering"] and None in origins[1:] and turns > 1


# ---- changed ----


@frozen
class Change:
    """What is done to an event of a type, where that makes a difference, and what must then be found."""

    kind: str
    alter: Callable[[Line], Line]
    guarantee: str
    where: Callable[[list[Line], int], int] = lambda lines, place: place
    when: Callable[[list[Line], int], bool] = lambda lines, place: True


def changed(lines: list[Line]) -> Iterator[Mutant]:
    """Each event with another word in it, for each row of the table that fits."""
    for place, line in enumerate(lines):
        for row, change in enumerate(CHANGES):
            if change.kind in (kind(line), "*") and change.when(lines, place):
                altered = {**line, **change.alter(line)}
                mutant = [*lines[:place], altered, *lines[place + 1 :]]
                due = (change.guarantee, change.where(lines, place))
                yield Mutant(mutant, f"row {row}, {place}: {line} became {altered}", due)


def _is(**details: Any) -> Callable[[list[Line], int], bool]:
    return lambda lines, place: all(lines[place].get(key) == value for key, value in details.items())


def _cut(lines: list[Line], place: int) -> bool:
    return lines[place].get("stop") in ("error", "aborted")


def _answers(lines: list[Line], place: int) -> bool:
    return lines[place]["role"] == "assistant" and not _cut(lines, place)


def _has(key: str) -> Callable[[list[Line], int], bool]:
    return lambda lines, place: bool(lines[place].get(key))


def _next(*kinds: str) -> Callable[[list[Line], int], int]:
    return lambda lines, place: first(lines, place, *kinds)


def _own_message(lines: list[Line], place: int) -> int:
    return first(lines, place, "message.ended", role="tool", id=lines[place]["id"])


def _is_cancelled(lines: list[Line], place: int) -> bool:
    return any(line.get("target") == "cancelling" for line in run_around(lines, place))


def _idle_in_cancel(lines: list[Line], place: int) -> bool:
    run, id = run_around(lines, place), lines[place]["id"]
    cancel = first(run, 0, "phase.changed", target="cancelling")
    return lines[place].get("executed") is False and first(run, cancel, "tool.started", id=id) < len(run)


def _truncated(lines: list[Line], place: int) -> bool:
    answers = [line for line in run_around(lines, place) if line.get("role") == "assistant" and "stop" in line]
    return bool(answers) and answers[-1]["stop"] == "length" and lines[place].get("executed") is False


def _fell_silent(lines: list[Line], place: int) -> bool:
    """Whether a run failed, was not cancelled, and its last answer was cut."""
    answers = [line for line in run_around(lines, place) if line.get("role") == "assistant" and "stop" in line]
    return bool(answers) and _cut(answers, len(answers) - 1) and not _is_cancelled(lines, place)


def _retried(lines: list[Line], place: int) -> bool:
    following = first(lines, place + 1, "message.started", "retry.scheduled", "turn.ended")
    return lines[place].get("kept") is False and kind(lines[following]) == "retry.scheduled"


def _goes_on(lines: list[Line], place: int) -> bool:
    return lines[place]["outcome"] == "compacted" and lines[place - 1].get("reason") == "overflow"


def _waits(lines: list[Line], place: int) -> bool:
    """Whether an item just came into a queue that was known."""
    before = [line for line in run_around(lines, place) if kind(line) == "queue.changed"]
    return bool(before) and bool(before[-1]["steering"]) and before[-1]["steering"] == lines[place]["steering"]


CHANGES = [
    Change("*", lambda line: {"sequence": line["sequence"] + 1}, "G1"),
    Change("run.finished", lambda line: {"status": "fine"}, "G1"),
    Change("phase.changed", lambda line: {"source": "nowhere"}, "G2"),
    Change("phase.changed", lambda line: {"target": "nowhere"}, "G2"),
    Change("turn.started", lambda line: {"turn": line["turn"] + 1}, "G2"),
    Change("message.ended", lambda line: {"id": "zz"}, "G2", when=_is(role="tool")),
    Change("tool.ended", lambda line: {"id": "zz"}, "G2"),
    Change("tool.updated", lambda line: {"id": "zz"}, "G2"),
    Change("message.started", lambda line: {"role": "user"}, "G3", when=_is(role="assistant")),
    Change("message.updated", lambda line: {"delta": line["delta"] + "!"}, "G3", _next("message.ended"), _has("delta")),
    Change("message.ended", lambda line: {"text": line["text"] + "!"}, "G3", when=_is(role="assistant")),
    Change("message.ended", lambda line: {"stop": "because"}, "G3", when=_answers),
    Change("message.ended", lambda line: {"calls": [*line.get("calls", ()), "zz"]}, "G3", when=_answers),
    Change("message.ended", lambda line: {"calls": line["calls"][1:]}, "G3", when=lambda lines, place: bool(
        _answers(lines, place) and lines[place].get("calls") and lines[place]["calls"].count(lines[place]["calls"][0]) == 1
    )),
    Change("message.ended", lambda line: {"kept": False}, "G4", when=_answers),
    Change("message.ended", lambda line: {"kept": False}, "G4", when=_is(role="tool")),
    Change("message.ended", lambda line: {"stop": "aborted"}, "G4", when=_has("calls")),
    Change("message.ended", lambda line: {"text": line["text"] + "!"}, "G4", when=_is(role="tool")),
    Change("message.ended", lambda line: {"error": not line["error"]}, "G4", when=_is(role="tool")),
    Change("message.started", lambda line: {"id": "zz"}, "G4", when=_is(role="tool")),
    Change("tool.started", lambda line: {"id": "zz"}, "G4"),
    Change("tool.ended", lambda line: {"text": line["text"] + "!"}, "G4", _own_message),
    Change("tool.ended", lambda line: {"error": True}, "G4", _own_message, _is(error=False)),
    Change("tool.ended", lambda line: {"executed": False}, "G4", when=_is(error=False)),
    Change("turn.ended", lambda line: {"results": [*line["results"], "zz"]}, "G5"),
    Change("turn.ended", lambda line: {"results": line["results"][1:]}, "G5", when=_has("results")),
    Change("message.accepted", lambda line: {"origin": "nobody"}, "G6"),
    Change("message.accepted", lambda line: {"text": "zz"}, "G6",
           when=lambda lines, place: is_taking(lines, place) and knows_queues(lines, place)),
    Change("queue.changed", lambda line: {"steering": []}, "G6", lambda lines, place: place + 1, _waits),
    Change("queue.changed", lambda line: {"dropped": ["zz"]}, "G6",
           when=lambda lines, place: any(kind(line) == "queue.changed" for line in run_around(lines, place))),
    Change("run.finished", lambda line: {"status": "completed"}, "G7", when=_is_cancelled),
    Change("tool.ended", lambda line: {"executed": True}, "G7", when=_idle_in_cancel),
    Change("update.discarded", lambda line: {"id": "zz"}, "G8"),
    Change("retry.scheduled", lambda line: {"attempt": line["attempt"] + 1}, "G9"),
    Change("retry.scheduled", lambda line: {"delay": -1.0}, "G9"),
    Change("message.ended", lambda line: {"kept": True}, "G9", _next("retry.scheduled"), _retried),
    Change("compaction.started", lambda line: {"reason": "boredom"}, "G10"),
    Change("compaction.started", lambda line: {"reason": "manual"}, "G10", when=lambda lines, place: (
        lines[place]["reason"] != "manual"
    )),
    Change("compaction.started", lambda line: {"reason": "threshold"}, "G10", when=_is(reason="manual")),
    Change("compaction.ended", lambda line: {"outcome": "maybe"}, "G10"),
    Change("compaction.ended", lambda line: {"outcome": "failed"}, "G10", _next("message.updated"), _goes_on),
    Change("tool.ended", lambda line: {"executed": True}, "G11", when=_truncated),
    Change("message.ended", lambda line: {"error": ""}, "G11", when=_is(stop="error")),
    Change("run.finished", lambda line: {"status": "completed"}, "G11", when=_fell_silent),
    Change("hook.failed", lambda line: {"hook": "before_tool_call"}, "G15"),
    Change("message.updated", lambda line: {"count": 0}, "G16"),
    Change("turn.started", lambda line: {"count": 2}, "G16"),
]  # fmt: skip
"""The mutation, the guarantee that it breaks, and the event at which that shows (by default the one that was changed)."""
