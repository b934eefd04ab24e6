"""Which words a native line must have to be judged at all. What they say is for the rules; that they are there, and of the
right kind, is for this module, so that a rule need not doubt what it reads.
"""

from typing import Any, Final

from kernel.trace.lines import Line

_WORDS: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "run.started": {},
    "phase.changed": {"source": str, "target": str},
    "turn.started": {"turn": int},
    "message.accepted": {"origin": str, "text": str},
    "message.started": {"role": str},
    "message.updated": {},
    "message.ended": {"role": str, "text": str},
    "tool.started": {"id": str, "name": str},
    "tool.updated": {"id": str, "text": str},
    "tool.ended": {"id": str, "text": str, "error": bool},
    "turn.ended": {"results": list},
    "retry.scheduled": {"attempt": int, "delay": (int, float)},
    "retry.ended": {},
    "compaction.started": {"reason": str},
    "compaction.ended": {"outcome": str},
    "queue.changed": {"steering": list, "follow_up": list},
    "hook.failed": {"hook": str},
    "subscriber.failed": {},
    "update.discarded": {"id": str},
    "run.finished": {"status": str},
}
"""What each type of event must have."""
_ROLES: Final[dict[tuple[str, str], dict[str, type]]] = {
    ("message.started", "tool"): {"id": str},
    ("message.ended", "tool"): {"id": str, "error": bool},
    ("message.ended", "assistant"): {"stop": str},
}
"""What it must have besides in this role."""
_OPTIONAL: Final[dict[str, type]] = {
    "sequence": int, "count": int, "kept": bool, "executed": bool, "calls": list, "dropped": list, "delta": str,
    "reasoning": str, "call": str, "error": object,
}  # fmt: skip
"""What may be left out."""
_PIECES: Final = ("delta", "reasoning", "call")


class NotAnEventError(ValueError):
    """A line that is no event of the vocabulary: in which place of the stream, from 0, and what is wrong with it."""

    def __init__(self, place: int, fault: str) -> None:
        super().__init__(f"line {place}: {fault}")
        self.place = place
        self.fault = fault


def fault_of(line: Line) -> str | None:
    """What keeps *line* from being an event of the native vocabulary; None when it is one."""
    kind = line["type"]
    if not isinstance(kind, str) or kind not in _WORDS:
        return f"there is no event {kind!r}"
    due = _WORDS[kind] | _ROLES.get((kind, str(line.get("role"))), {})
    for word, of in due.items():
        if word not in line:
            return f"a {kind} without {word!r}"
        if not _is_a(line[word], of):
            return f"a {kind} with {word} {line[word]!r}"
    for word, of in _OPTIONAL.items():
        if word in line and not _is_a(line[word], of):
            return f"a {kind} with {word} {line[word]!r}"
    if kind == "message.updated" and not any(word in line for word in _PIECES):
        return f"a {kind} with no piece of a message"
    return None


def _is_a(value: Any, of: type | tuple[type, ...]) -> bool:
    if of is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, of) and (not isinstance(value, bool) or of in (bool, object))
