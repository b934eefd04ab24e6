"""Plain data as a line of JSON, and back, exactly: journals and recorded streams are files of such lines.

A line is pure ASCII, so that it can be written to a file of any encoding, and so that a crash can't tear a letter apart.
What JSON can't say exactly is refused when it is written, and what Python's `json` would silently mend (a name that comes
twice) or can't do (a nesting too deep) is refused when it is read.

Theory. JSON writes a character outside of the first plane as two halves (`\\ud83d\\ude00`). Python lets the halves be
characters of their own; models that cut their stream in the wrong place send them. Two of them side by side would come
back as one character, so a mark is put between them; where such marks are already, one more.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

_MARK: Final = "\ufdd0"  # never a character: Unicode keeps it for uses like this
_HALVES: Final = re.compile(f"([\ud800-\udbff]{_MARK}*)(?=[\udc00-\udfff])")
_MARKED: Final = re.compile(f"([\ud800-\udbff]{_MARK}*){_MARK}(?=[\udc00-\udfff])")


def to_line(data: Any) -> str:
    """*data* as a line, newline included. Raises TypeError or ValueError when JSON can't say it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if not text.isascii():
        marked = _each_text(data, _HALVES, r"\1" + _MARK) if _HALVES.search(text) else data
        text = json.dumps(marked, separators=(",", ":"))
    return text + "\n"


def from_line(line: str | bytes) -> Any:
    """What *line* says. Raises ValueError, with a sentence, for all that is not one JSON value in UTF-8."""
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        data = json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return _each_text(data, _MARKED, r"\1") if "\\ufdd0" in text or _MARK in text else data


def entries_of(
    lines: Sequence[str | bytes], first: int, wrong: Callable[[int, str], Exception]
) -> Iterator[tuple[int, Any]]:
    """What the lines of a file say from the line *first* on, with their numbers, which count from 1.

    A last line without its newline that is not JSON is torn, as a crash leaves it, and left out; any other one that is not
    raises what *wrong* makes of its number and the reason.
    """
    for number, line in enumerate(lines[first - 1 :], start=first):
        try:
            data = from_line(line)
        except ValueError as error:
            if number == len(lines) and line[-1:] not in ("\n", b"\n"):
                return
            raise wrong(number, f"is not JSON: {error}") from error
        yield number, data


def exact(value: Any) -> Any:
    """*value*, which was frozen, as plain data that comes back equal. Raises TypeError when JSON can't say it exactly."""
    if isinstance(value, dict):
        if unnamed := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"JSON has only strings as keys, not {unnamed[0]!r}")
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [exact(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"JSON can't say {value!r}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name comes twice in one object")
    return made


def _each_text(data: Any, pattern: re.Pattern[str], instead: str) -> Any:
    if isinstance(data, str):
        return pattern.sub(instead, data)
    if isinstance(data, dict):
        return {pattern.sub(instead, key): _each_text(item, pattern, instead) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_each_text(item, pattern, instead) for item in data]
    return data
