"""G4 and G5: each call has its one result, in its place and in its turn."""

from collections.abc import Iterator
from typing import Any, Final

from kernel.trace.lines import Breach, Rule, Run, breach, calls_of, ends_message, is_cut, opens_answer, turns_of


def g4_each_call_is_answered(run: Run) -> Iterator[Breach]:
    """The results of a message follow it before any other message, one for each call, in source order."""
    owed: list[str] = []
    for line in run:
        if line["type"] == "message.started" and line["role"] == "tool":
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
        if is_cut(line) and calls_of(line):
            yield breach("G4", line, f"a message with the stop reason {line['stop']} keeps calls")


def g4_a_whole_message_is_kept(run: Run) -> Iterator[Breach]:
    """Only what was cancelled or failed may stay out of the transcript."""
    for line in run:
        if line["type"] == "message.ended" and not line.get("kept", True) and not is_cut(line):
            yield breach("G4", line, f"a whole {line['role']} message was not kept")


def g4_each_call_is_executed_once(run: Run) -> Iterator[Breach]:
    """In a turn, each call starts once, in source order, and ends once."""
    for turn in turns_of(run):
        due: list[str] = []
        for line in turn:
            due += calls_of(line)
            if line["type"] == "tool.started":
                if line["id"] not in due[:1]:
                    yield breach("G4", line, f"{line['id']} was started, where the calls {due} are due")
                due = due[1:] if line["id"] in due[:1] else [call for call in due if call != line["id"]]
            elif line["type"] == "turn.ended" and due:
                yield breach("G4", line, f"the turn ended, and the calls {due} were never started")


def g4_both_ends_say_the_same(run: Run) -> Iterator[Breach]:
    """What `tool.ended` said of a call its message says too, and what was not executed is an error."""
    for turn in turns_of(run):
        told: dict[str, list[tuple[Any, Any]]] = {}
        for line in turn:
            if line["type"] == "tool.ended":
                told.setdefault(line["id"], []).append((line["text"], line["error"]))
                if not line.get("executed", True) and not line["error"]:
                    yield breach("G4", line, f"{line['id']} was not executed and is no error")
            elif line["type"] == "message.started" and line["role"] == "tool" and not told.get(line["id"]):
                yield breach("G4", line, f"the message of {line['id']}, which has not ended")
            elif ends_message(line, "tool"):
                ends = told.get(line["id"])
                if ends and ends.pop(0) != (line["text"], line["error"]):
                    yield breach("G4", line, f"the message of {line['id']} is not what its tool.ended said")


def g5_a_turn_ends_last(run: Run) -> Iterator[Breach]:
    """`turn.ended` lists the results of its turn, in their order."""
    for turn in turns_of(run):
        results = [line["id"] for line in turn if ends_message(line, "tool")]
        end = turn[-1]
        if end["type"] == "turn.ended" and list(end.get("results", ())) != results:
            yield breach("G5", end, f"turn.ended lists {end.get('results')}, and the results were {results}")


RULES: Final[tuple[Rule, ...]] = (
    g4_each_call_is_answered,
    g4_a_cut_message_asks_for_nothing,
    g4_a_whole_message_is_kept,
    g4_each_call_is_executed_once,
    g4_both_ends_say_the_same,
    g5_a_turn_ends_last,
)
