"""What the rules work on: the lines of one run, and ways to cut them up."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

from attrs import frozen

Line = Mapping[str, Any]
Run = Sequence[Line]


@final
@frozen
class Breach:
    """A guarantee that a stream broke: at which event of its run, how, and in which place of the whole stream, from 0."""

    guarantee: str
    sequence: int
    text: str
    place: int = -1

    def __str__(self) -> str:
        return f"{self.guarantee} at {self.sequence}: {self.text}"


Rule = Callable[[Run], Iterator[Breach]]

CUT: Final = frozenset({"error", "aborted"})
"""Stop reasons of messages that were cancelled or failed."""


def breach(guarantee: str, line: Line, text: str) -> Breach:
    """A breach that shows at *line*."""
    return Breach(guarantee, line.get("sequence", -1), text, line.get("place", -1))


def runs_of(stream: Iterable[Line]) -> tuple[list[list[Line]], list[Line]]:
    """The lines of each run, and those that belong to none."""
    runs: list[list[Line]] = []
    loose: list[Line] = []
    inside = False
    for line in stream:
        if line["type"] == "run.started":
            runs.append([])
            inside = True
        (runs[-1] if inside else loose).append(line)
        inside = inside and line["type"] != "run.finished"
    return runs, loose


def turns_of(run: Run) -> Iterator[list[Line]]:
    """The lines of each turn, from its start to its end, or to the end of the run when it has none."""
    turn: list[Line] | None = None
    for line in run:
        if line["type"] == "turn.started":
            turn = []
        if turn is not None:
            turn.append(line)
            if line["type"] == "turn.ended":
                yield turn
                turn = None
    if turn:
        yield turn


def calls_of(line: Line) -> list[str]:
    """The calls that the message which ends here leaves to be answered."""
    if not ends_message(line, "assistant") or not line.get("kept", True):
        return []
    return list(line.get("calls", ()))


def ends_message(line: Line, role: str) -> bool:
    """Whether a message of this role ends here."""
    return bool(line["type"] == "message.ended" and line["role"] == role)


def opens_answer(line: Line) -> bool:
    """Whether an assistant message starts here."""
    return bool(line["type"] == "message.started" and line["role"] == "assistant")


def is_cut(line: Line) -> bool:
    """Whether an answer that was cancelled or failed ends here."""
    return ends_message(line, "assistant") and line.get("stop") in CUT


def is_of_pi(line: Line) -> bool:
    """Whether the line was told in Pi's words, which say less."""
    return line.get("dialect") == "pi"
