"""G1 to G3, and G16: a run has one beginning and one end, what opens in it closes, and a message is what was streamed."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kernel.trace.lines import Breach, Line, Rule, Run, breach, ends_message, is_cut, is_of_pi

# ---- G1: one run, one end ----

STATUSES: Final = frozenset({"completed", "cancelled", "failed", "max_turns", "stopped", "paused"})


def g1_the_end_has_a_status(run: Run) -> Iterator[Breach]:
    """`run.finished` says how the run ended. That it comes, and comes last, is for the whole stream."""
    end = run[-1]
    if end["type"] == "run.finished" and end.get("status") not in STATUSES:
        yield breach("G1", end, f"run.finished with the status {end.get('status')!r}")


def g1_numbers_have_no_gap(run: Run) -> Iterator[Breach]:
    """Events are numbered from 0, by one, and belong to one run. An event that stands for several takes their numbers."""
    due = 0
    for line in run:
        if line.get("sequence") != due:
            yield breach("G1", line, f"an event has the number {line.get('sequence')}, where {due} is due")
            return
        if line.get("run") != run[0].get("run"):
            yield breach("G1", line, f"an event of run {line.get('run')} inside run {run[0].get('run')}")
        due += line.get("count", 1)


def g16_only_pieces_are_joined(run: Run) -> Iterator[Breach]:
    """Only pieces of a message and updates of a call stand for several, and they stand for one at least."""
    for line in run:
        count = line.get("count", 1)
        if count < 1 or (count > 1 and line["type"] not in ("message.updated", "tool.updated")):
            yield breach("G16", line, f"{line['type']} stands for {count} events")


# ---- G2: what opens closes ----


PHASES: Final = frozenset({"turn", "steering", "follow_up", "compaction", "retry", "cancelling", "settling", "paused"})


def g2_phases_follow_one_another(run: Run) -> Iterator[Breach]:
    """A phase is left before another is entered; a run begins in `idle` and ends in `settling`, which nothing leaves."""
    phase = "idle"
    for line in run:
        if line["type"] == "phase.changed":
            wrong = line["source"] != phase or line["target"] == phase or line["target"] not in PHASES
            if wrong or phase == "settling":
                yield breach("G2", line, f"from {line['source']} to {line['target']} while in {phase}")
            phase = line["target"]
        elif line["type"] == "run.finished" and phase != "settling" and not is_of_pi(line):
            yield breach("G2", line, f"the run ended in the phase {phase}")


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
    """An answer's text is its deltas joined, its calls are those that were streamed, and its stop reason is known."""
    text, calls = "", dict[str, None]()
    for line in run:
        if line["type"] == "message.started":
            text, calls = "", {}
        elif line["type"] == "message.updated":
            text += line.get("delta") or ""
            if "call" in line:
                calls[line["call"]] = None
        elif ends_message(line, "assistant"):
            if line["text"] != text:
                yield breach("G3", line, f"the text {line['text']!r} was streamed as {text!r}")
            told = list(dict.fromkeys(line.get("calls", ())))
            if told != list(calls) and not (is_cut(line) and calls.keys() >= set(told)):
                yield breach("G3", line, f"the calls {told} were streamed as {list(calls)}")
            if line.get("stop") not in STOPS:
                yield breach("G3", line, f"the stop reason {line.get('stop')!r}")


ROLES: Final = frozenset({"assistant", "tool"})


def g3_only_answers_are_streamed(run: Run) -> Iterator[Breach]:
    """A message ends in the role in which it started, and only an assistant message has pieces."""
    role = text = None
    for line in run:
        if line["type"] == "message.started":
            role, text = line["role"], line.get("text")  # only Pi says both times what a message says
            if role not in ROLES and not (role == "user" and is_of_pi(line)):
                yield breach("G3", line, f"a message of the role {role!r}")
        elif line["type"] == "message.updated" and role not in ("assistant", None):
            yield breach("G3", line, f"a piece of a {role} message")
        elif line["type"] == "message.ended" and line["role"] != role:
            yield breach("G3", line, f"a message that started as {role} ended as {line['role']}")
        elif line["type"] == "message.ended" and text not in (None, line["text"]):
            yield breach("G3", line, f"a message that started as {text!r} ended as {line['text']!r}")


RULES: Final[tuple[Rule, ...]] = (
    g1_the_end_has_a_status,
    g1_numbers_have_no_gap,
    g16_only_pieces_are_joined,
    g2_phases_follow_one_another,
    g2_everything_closes,
    g2_updates_belong_to_an_open_call,
    g2_turns_are_counted,
    g3_a_message_is_its_pieces,
    g3_only_answers_are_streamed,
)
