"""Pi's lines, read for what differs on purpose: what makes ours of them, and from which line on they go their own way.

Each function is that of one rule in `rules.py`, where it is said what the difference is and whose guarantee decides.
Those that rewrite give new lines; those that cut give the place of the first line that is not compared, or None.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.differential.pi import Line, Played

Lines = list[Line]


# ---- finding one's way in Pi's lines ----


def _is_cut(line: Line) -> bool:
    return line.get("stop") in ("error", "aborted")


def _with_final(lines: Lines, change: Callable[[Line], Line]) -> Lines:
    return [change(line) if line.get("type") == "final" else line for line in lines]


def _marks(lines: Lines, name: str) -> Iterator[tuple[int, Line]]:
    return ((place, line) for place, line in enumerate(lines) if line.get("mark") == name)


# ---- what rewrites: no cut message is sent, no request is made after a cancel ----


def without_cut_messages(lines: Lines) -> Lines:
    requests = [line for _, line in _marks(lines, "request")]

    def change(final: Line) -> Line:
        sent = [
            [text for place, text in enumerate(texts) if place not in mark["cut"]]
            for texts, mark in zip(final["requests"], requests, strict=True)
        ]
        return {**final, "requests": sent}

    return _with_final(lines, change)


def without_requests_after_an_abort(lines: Lines) -> Lines:
    requests = [line for _, line in _marks(lines, "request")]

    def change(final: Line) -> Line:
        kept = [texts for texts, mark in zip(final["requests"], requests, strict=True) if not mark["aborted"]]
        return {**final, "requests": kept}

    return [line for line in _with_final(lines, change) if not line.get("after_abort")]


def without_error_of_an_abort(lines: Lines) -> Lines:
    def change(line: Line) -> Line:
        if line.get("error") != "Request was aborted":
            return line
        return {key: value for key, value in line.items() if key != "error"}

    return [change(line) for line in lines]


def without_unsaid_messages(lines: Lines) -> Lines:
    unsaid = {place for _, line in _marks(lines, "unsaid") for place in line["places"]}

    def change(final: Line) -> Line:
        return {**final, "messages": [line for place, line in enumerate(final["messages"]) if place not in unsaid]}

    return _with_final(lines, change)


def without_calls_of_cut_messages(lines: Lines) -> Lines:
    def change(line: Line) -> Line:
        if line.get("type") == "final":
            return {**line, "messages": [{**one, "calls": []} if _is_cut(one) else one for one in line["messages"]]}
        return {key: value for key, value in line.items() if key != "calls"} if _is_cut(line) else line

    return [change(line) for line in lines]


# ---- what rewrites: sentences ----

SENTENCES: Final = {
    "‹no such tool›": (r"Tool \w+ not found", r"unknown tool '\w+'; .*"),
    "‹arguments do not fit›": (r'(?s)Validation failed for tool "\w+":.*', r"(?s)The arguments of \w+ do not fit: .*"),
    "‹truncated›": (
        r'Tool call "\w+" was not executed: the response hit the output token limit.*',
        r"not executed: the response was cut off at the output limit.*",
    ),
    "‹aborted›": (
        r"Operation aborted",
        r"cancelled: the run was stopped while this call was running"
        r"|not executed: the run (ended before this call could run|was stopped before this could begin)",
    ),
}


def worded(line: Line, whose: int) -> Line:
    if line.get("type") == "final":
        return {**line, "messages": [worded(message, whose) for message in line["messages"]]}
    if line.get("error") is not True:
        return line
    for word, sentences in SENTENCES.items():
        if re.fullmatch(sentences[whose], line["text"]):
            return {**line, "text": word}
    return line


# ---- what cuts ----


def at_mark(name: str, **details: Any) -> Callable[[Played], int | None]:
    def cut(theirs: Played) -> int | None:
        marks = _marks(theirs.lines, name)
        return next((place for place, line in marks if details.items() <= line.items()), None)

    return cut


def at_calls_not_begun(theirs: Played) -> int | None:
    """At an abort, while some call of the last answer has neither ended nor begun."""
    for place, _ in _marks(theirs.lines, "abort"):
        waiting: set[str] = set()
        for line in theirs.lines[:place]:
            if line.get("type") == "message_end" and line["role"] == "assistant" and not _is_cut(line):
                waiting = set(line.get("calls", ()))
            if line.get("type") == "tool_execution_end" or line.get("mark") == "body":
                waiting.discard(line["id"])
            if line.get("type") == "turn_end":
                waiting = set()
        if waiting:
            return place
    return None


def at_an_abort_in_an_update(theirs: Played) -> int | None:
    """At an abort that a listener of an update asks for."""
    for place, _ in _marks(theirs.lines, "abort"):
        told = next((line["type"] for line in reversed(theirs.lines[:place]) if "type" in line), None)
        if told == "tool_execution_update":
            return place
    return None


def at_a_truncated_result(theirs: Played) -> int | None:
    """At the first result of a truncated answer that has more than one call."""
    many = False
    for place, line in enumerate(theirs.lines):
        if line.get("type") == "message_end" and line["role"] == "assistant":
            many = line["stop"] == "length" and len(line.get("calls", ())) > 1
        if many and line.get("type") == "message_start" and line["role"] == "tool":
            return place
    return None


def at_a_hang_after_an_abort(theirs: Played) -> int | None:
    """At the end of what happened, when Pi hangs in a run that was aborted."""
    types = [line.get("type", line.get("mark")) for line in theirs.lines]
    start = len(types) - types[::-1].index("agent_start") if "agent_start" in types else 0
    return len(types) if theirs.stuck and "abort" in types[start:] else None
