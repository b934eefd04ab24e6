"""A stream in the vocabulary of the Pi agent core, told in native lines so that the same rules can judge it.

Pi numbers nothing and names no phase and no status: the numbers are given here, the status is read off the last answer, and
rules about phases have nothing to say.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kernel.trace.lines import Line

_STOPS: Final = {"toolUse": "tool_use"}
_STATUS: Final = {"error": "failed", "aborted": "cancelled"}
_SAME: Final = {
    "agent_start": "run.started",
    "turn_end": "turn.ended",
    "tool_execution_start": "tool.started",
    "tool_execution_update": "tool.updated",
    "tool_execution_end": "tool.ended",
    "message_update": "message.updated",
}


_OWN: Final = frozenset({*_SAME, "agent_end", "turn_start", "message_start", "message_end"})


def speaks_pi(lines: Iterable[Line]) -> bool:
    """Whether these lines are Pi's."""
    return any(str(line.get("type")) in _OWN for line in lines)


def from_pi(lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """Pi's lines as native ones, numbered from 0 in each run. A word that Pi does not have stays as it is."""
    sequence = turn = 0
    first, stop = True, None
    for line in lines:
        kind = str(line.get("type"))
        if kind == "agent_start":
            sequence, turn, first, stop = 0, 0, True, None
        turn += kind == "turn_start"
        stop = line.get("stop", stop)
        for native in _told(line, turn, first):
            if kind == "agent_end":
                native["status"] = _STATUS.get(str(stop), "completed")
            first = first and native["type"] != "message.accepted"
            place = {"place": line["place"]} if "place" in line else {}
            yield {**native, **place, "sequence": sequence, "dialect": "pi"}
            sequence += 1


def _told(line: Line, turn: int, first: bool) -> list[dict[str, Any]]:
    kind = str(line.get("type", "final"))
    if kind == "final":
        return []
    if kind in _SAME:
        return [{**line, "type": _SAME[kind]}]
    if kind == "turn_start":
        return [{"type": "turn.started", "turn": turn}]
    if kind == "agent_end":
        return [{"type": "run.finished"}]
    if kind == "message_start":
        return [{**line, "type": "message.started"}]
    if kind == "message_end":
        stop = {"stop": _STOPS.get(str(line["stop"]), line["stop"])} if "stop" in line else {}
        ended = {**line, "type": "message.ended", **stop}
        if line.get("role") != "user":
            return [ended]
        # Pi tells of a user's message as of any other; where it enters is for the rules of a native `message.accepted`.
        origin = "prompt" if first and turn == 1 else "steering"
        return [ended, {"type": "message.accepted", "origin": origin, "text": line.get("text")}]
    return [dict(line)]
