"""G1 to G3: a run has one beginning and one end, what opens in it closes, and a message is what was streamed."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kernel.trace.lines import Breach, Line, Rule, Run, breach

# ---- G1: one run, one end ----

STATUSES: Final = frozenset({"completed", "cancelled", "failed", "max_turns", "stopped", "paused"})


def g1_ends_once(run: Run) -> Iterator[Breach]:
    """`run.finished` is the last event, with a status; a run that begins before it has taken its place."""
    end = run[-1]
    if end["type"] != "run.finished":
        yield breach("G1", end, f"the run's last event is {end['type']}, not run.finished")
    elif end.get("status") not in STATUSES:
        yield breach("G1", end, f"run.finished with the status {end.get('status')!r}")


def g1_numbers_have_no_gap(run: Run) -> Iterator[Breach]:
    """Events are numbered from 0, by one, and belong to one run."""
    for place, line in enumerate(run):
        if line.get("sequence") != place:
            yield breach("G1", line, f"the event in place {place} has the number {line.get('sequence')}")
            return
        if line.get("run") != run[0].get("run"):
            yield breach("G1", line, f"an event of run {line.get('run')} inside run {run[0].get('run')}")


# ---- G2: what opens closes ----


def g2_phases_follow_one_another(run: Run) -> Iterator[Breach]:
    """A phase is left before another is entered; a run begins in `idle` and ends in `settling`."""
    phase = "idle"
    for line in run:
        if line["type"] == "phase.changed":
            if line["source"] != phase or line["target"] == phase:
                yield breach("G2", line, f"from {line['source']} to {line['target']} while in {phase}")
            phase = line["target"]
    if phase not in ("settling", "idle"):
        yield breach("G2", run[-1], f"the run ended in the phase {phase}")


_OPENS: Final = {
    "turn.started": "turn",
    "message.started": "message",
    "tool.started": "tool",
    "retry.scheduled": "retry",
    "compaction.started": "compaction",
}
_CLOSES: Final = {
    "turn.ended": "turn",
    "message.ended": "message",
    "tool.ended": "tool",
    "retry.ended": "retry",
    "compaction.ended": "compaction",
}
_AROUND: Final[dict[str, tuple[frozenset[str], ...]]] = {
    "turn": (frozenset(),),
    "message": (frozenset({"turn"}),),
    "tool": (frozenset({"turn"}), frozenset({"turn", "tool"})),
    "retry": (frozenset({"turn"}),),
    "compaction": (frozenset(), frozenset({"turn"})),
    "message.accepted": (frozenset({"turn"}),),
    "message.updated": (frozenset({"turn", "message"}),),
    "tool.updated": (frozenset({"turn", "tool"}),),
    "run.finished": (frozenset(),),
}
"""What may be open, exactly, when one of these opens or comes."""


def g2_everything_closes(run: Run) -> Iterator[Breach]:
    """Turns, messages, tools, retries and compactions open in their place and close before what is around them."""
    opened: Counter[tuple[str, str | None]] = Counter()
    for line in run:
        name = str(_OPENS.get(line["type"], line["type"]))
        kinds = frozenset(kind for kind, _ in opened)
        if name in _AROUND and kinds not in _AROUND[name]:
            yield breach("G2", line, f"{line['type']} while open: {', '.join(sorted(kinds)) or 'nothing'}")
        if line["type"] in _OPENS:
            opened[_key_of(name, line)] += 1
        elif line["type"] in _CLOSES:
            yield from _close(opened, line)


def _close(opened: Counter[tuple[str, str | None]], line: Line) -> Iterator[Breach]:
    key = _key_of(_CLOSES[line["type"]], line)
    if opened[key] < 1:
        yield breach("G2", line, f"{line['type']} of what is not open")
    elif key[0] == "turn" and len(opened) > 1:
        inside = sorted({kind for kind, _ in opened} - {"turn"})
        yield breach("G2", line, f"turn.ended while open: {', '.join(inside)}")
    opened[key] -= 1
    if opened[key] < 1:
        del opened[key]


def _key_of(kind: str, line: Line) -> tuple[str, str | None]:
    return kind, line.get("id") if kind in ("tool", "message") else None


def g2_updates_belong_to_an_open_call(run: Run) -> Iterator[Breach]:
    """A tool's progress comes between the start and the end of that very call."""
    opened: Counter[str] = Counter()
    for line in run:
        if line["type"] == "tool.started":
            opened[line["id"]] += 1
        elif line["type"] == "tool.ended":
            opened[line["id"]] -= 1
        elif line["type"] == "tool.updated" and opened[line["id"]] < 1:
            yield breach("G2", line, f"an update of {line['id']}, which is not open")


def g2_turns_are_counted(run: Run) -> Iterator[Breach]:
    """Turns are numbered from 1, by one."""
    turns = [line for line in run if line["type"] == "turn.started"]
    for number, line in enumerate(turns, start=1):
        if line.get("turn") != number:
            yield breach("G2", line, f"turn {line.get('turn')} where {number} is due")


# ---- G3: a message is what was streamed ----

STOPS: Final = frozenset({"stop", "tool_use", "length", "error", "aborted"})


def g3_a_message_is_its_pieces(run: Run) -> Iterator[Breach]:
    """An answer's text is its deltas joined, its calls are calls that were streamed, and its stop reason is known."""
    text, calls = "", set[str | None]()
    for line in run:
        if line["type"] == "message.started":
            text, calls = "", set()
        elif line["type"] == "message.updated":
            text += line.get("delta") or ""
            calls.add(line.get("call"))
        elif line["type"] == "message.ended" and line["role"] == "assistant":
            if line["text"] != text:
                yield breach("G3", line, f"the text {line['text']!r} was streamed as {text!r}")
            if unheard := [call for call in line.get("calls", ()) if call not in calls]:
                yield breach("G3", line, f"calls that were never streamed: {unheard}")
            if line.get("stop") not in STOPS:
                yield breach("G3", line, f"the stop reason {line.get('stop')!r}")


def g3_only_answers_are_streamed(run: Run) -> Iterator[Breach]:
    """A message ends in the role in which it started, and only an assistant message has pieces."""
    role = None
    for line in run:
        if line["type"] == "message.started":
            role = line["role"]
        elif line["type"] == "message.updated" and role == "tool":
            yield breach("G3", line, "a piece of a tool message")
        elif line["type"] == "message.ended" and line["role"] != role:
            yield breach("G3", line, f"a message that started as {role} ended as {line['role']}")


RULES: Final[tuple[Rule, ...]] = (
    g1_ends_once,
    g1_numbers_have_no_gap,
    g2_phases_follow_one_another,
    g2_everything_closes,
    g2_updates_belong_to_an_open_call,
    g2_turns_are_counted,
    g3_a_message_is_its_pieces,
    g3_only_answers_are_streamed,
)
