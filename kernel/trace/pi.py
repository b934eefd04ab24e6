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


def speaks_pi(lines: Iterable[Line]) -> bool:
    """Whether these lines are Pi's."""
    return any(line.get("type") == "agent_start" for line in lines)


def from_pi(lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """Pi's lines as native ones, numbered from 0 in each run."""
    sequence = turn = 0
    first, stop = True, ""
    for line in lines:
        kind = line.get("type")
        if kind == "agent_start":
            sequence, turn, first = 0, 0, True
        turn += kind == "turn_start"
        stop = line.get("stop", stop)
        native = _told(line, turn, first)
        if native is None:
            continue
        if kind == "agent_end":
            native["status"] = _STATUS.get(stop, "completed")
        first = first and native["type"] != "message.accepted"
        yield {**native, "sequence": sequence}
        sequence += 1


def _told(line: Line, turn: int, first: bool) -> dict[str, Any] | None:
    kind, role = line.get("type"), line.get("role")
    if kind in _SAME:
        return {**line, "type": _SAME[kind]}
    if kind == "turn_start":
        return {"type": "turn.started", "turn": turn}
    if kind == "agent_end":
        return {"type": "run.finished"}
    if kind == "message_start" and role != "user":
        return {"type": "message.started", "role": role} | ({"id": line["id"]} if "id" in line else {})
    if kind == "message_end" and role == "user":
        origin = "prompt" if first and turn == 1 else "steering"
        return {"type": "message.accepted", "origin": origin, "text": line["text"]}
    if kind == "message_end":
        stop = {"stop": _STOPS.get(line["stop"], line["stop"])} if "stop" in line else {}
        return {**line, "type": "message.ended", **stop}
    return None
