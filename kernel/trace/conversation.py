"""G4 to G6: each call has one result in its place, and what is queued enters where it may and is not lost."""

import functools
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kernel.trace.lines import CUT, Breach, Rule, Run, breach, calls_of, ends_message, opens_answer, turns_of

# ---- G4 and G5: each call has its result, in its turn ----


def g4_each_call_is_answered(run: Run) -> Iterator[Breach]:
    """The results of a message follow it before any other message, one for each call, in source order."""
    owed: list[str] = []
    for line in run:
        if ends_message(line, "tool"):
            if line["id"] not in owed:
                yield breach("G4", line, f"a result of {line['id']}, which no call waits for")
            elif owed.pop(0) != line["id"]:
                yield breach("G4", line, f"the result of {line['id']} came out of source order")
                owed = [call for call in owed if call != line["id"]]
        elif line["type"] in ("message.accepted", "turn.ended", "run.finished") or opens_answer(line):
            if owed:
                yield breach("G4", line, f"{line['type']} before the results of {owed}")
            owed = []
        else:
            owed += calls_of(line)


def g4_a_cut_message_asks_for_nothing(run: Run) -> Iterator[Breach]:
    """A message that was cancelled or failed enters the transcript without its calls."""
    for line in run:
        if line.get("stop") in CUT and calls_of(line):
            yield breach("G4", line, f"a message with the stop reason {line['stop']} keeps calls")


def g4_each_call_is_executed_once(run: Run) -> Iterator[Breach]:
    """In a turn, each call starts once, in source order, ends once, and its message says what its end said."""
    for turn in turns_of(run):
        calls = [call for line in turn for call in calls_of(line)]
        for kind in ("tool.started", "tool.ended"):
            ids = [line["id"] for line in turn if line["type"] == kind]
            right = ids == calls if kind == "tool.started" else sorted(ids) == sorted(calls)
            if not right:
                yield breach("G4", turn[-1], f"the calls {calls} have {kind} for {ids}")
        yield from _said_twice_alike(turn)


def _said_twice_alike(turn: Run) -> Iterator[Breach]:
    told: dict[str, list[tuple[Any, Any]]] = {}
    for line in turn:
        if line["type"] == "tool.ended":
            told.setdefault(line["id"], []).append((line["text"], line["error"]))
            if not line.get("executed", True) and not line["error"]:
                yield breach("G4", line, f"{line['id']} was not executed and is no error")
        elif ends_message(line, "tool"):
            ends = told.get(line["id"])
            if not ends or ends.pop(0) != (line["text"], line["error"]):
                yield breach("G4", line, f"the message of {line['id']} is not what its tool.ended said")


def g5_a_turn_ends_last(run: Run) -> Iterator[Breach]:
    """`turn.ended` lists the results of its turn, in their order."""
    for turn in turns_of(run):
        results = [line["id"] for line in turn if ends_message(line, "tool")]
        end = turn[-1]
        if end["type"] == "turn.ended" and list(end.get("results", ())) != results:
            yield breach("G5", end, f"turn.ended lists {end.get('results')}, and the results were {results}")


# ---- G6: what is queued enters where it may, and is not lost ----


def g6_items_enter_at_boundaries(run: Run) -> Iterator[Breach]:
    """User messages open a turn, a prompt only the first one, and a follow-up never joins another kind."""
    for number, turn in enumerate(turns_of(run), start=1):
        answered = False
        origins: list[str] = []
        for line in turn:
            answered = answered or opens_answer(line)
            if line["type"] == "message.accepted":
                origins.append(line["origin"])
                if answered:
                    yield breach("G6", line, f"{line['origin']} entered in the middle of a turn")
                elif not _may_follow(number, origins):
                    yield breach("G6", line, f"in turn {number} the origins are {origins}")


def _may_follow(number: int, origins: Sequence[str]) -> bool:
    first, last = origins[0], origins[-1]
    if len(origins) == 1:
        return last != "prompt" or number == 1
    if last == "steering":
        return first == "steering" or number == 1
    return last == first == "follow_up" and "steering" not in origins


def g6_steering_comes_first(run: Run) -> Iterator[Breach]:
    """No follow-up is taken at a boundary at which steering waits."""
    steering: list[str] = []
    waited = False
    for line in run:
        if line["type"] == "queue.changed":
            steering = list(line.get("steering", ()))
        elif line["type"] == "turn.ended":
            waited = bool(steering)
        elif line["type"] == "message.accepted" and line["origin"] == "follow_up" and waited and steering:
            yield breach("G6", line, f"a follow-up entered while steering waited: {steering}")


def g6_nothing_queued_is_lost(run: Run) -> Iterator[Breach]:
    """What leaves a queue has entered the transcript or is reported as dropped."""
    changes = [line for line in run if line["type"] == "queue.changed"]
    accepted = [line for line in run if line["type"] == "message.accepted"]
    dropped = Counter(text for line in changes for text in line.get("dropped", ()))
    for queue in ("steering", "follow_up"):
        shown = [Counter[str](line.get(queue, ())) for line in changes]
        most = functools.reduce(operator.or_, shown, Counter[str]())
        waiting = shown[-1] if shown else Counter[str]()
        entered = Counter(line["text"] for line in accepted if line["origin"] == queue)
        if lost := most - waiting - entered - dropped:
            yield breach("G6", run[-1], f"lost from the queue {queue}: {sorted(lost)}")


RULES: Final[tuple[Rule, ...]] = (
    g4_each_call_is_answered,
    g4_a_cut_message_asks_for_nothing,
    g4_each_call_is_executed_once,
    g5_a_turn_ends_last,
    g6_items_enter_at_boundaries,
    g6_steering_comes_first,
    g6_nothing_queued_is_lost,
)
