"""What a docstring says about a function and its parameters: enough of the Google and the Sphinx style, and no more."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Final, final

from attrs import frozen

_ARGUMENTS: Final = re.compile(r"(args|arguments|params|parameters|keyword args|keyword arguments):", re.IGNORECASE)
_FIELD: Final = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


@final
@frozen
class Docstring:
    """The first paragraph, and the texts of the parameters by their names."""

    summary: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """The parts of a docstring that a model is told.

    >>> parse_docstring("Read a file.\\n\\nArgs:\\n    path (str): Where it is,\\n        from here.")
    Docstring(summary='Read a file.', parameters={'path': 'Where it is, from here.'})
    """
    lines = inspect.cleandoc(text or "").splitlines()
    return Docstring(" ".join(_summary(lines)), {**_google(lines), **_sphinx(lines)})


def _summary(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if not line.strip() or line.startswith(":") or _ARGUMENTS.fullmatch(line.strip()):
            return
        yield line.strip()


def _google(lines: list[str]) -> dict[str, str]:
    start = next((number for number, line in enumerate(lines) if _ARGUMENTS.fullmatch(line.strip())), None)
    return {} if start is None else _entries(_section(lines[start + 1 :]), _ENTRY)


def _section(lines: list[str]) -> list[str]:
    """The indented lines up to the next section or the next line that is not indented."""
    taken: list[str] = []
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        taken.append(line)
    return inspect.cleandoc("\n" + "\n".join(taken)).splitlines()


def _sphinx(lines: list[str]) -> dict[str, str]:
    return _entries(lines, _FIELD)


def _entries(lines: Iterable[str], head: re.Pattern[str]) -> dict[str, str]:
    """Each entry begins at the margin; lines that are indented below it go on with it."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        match = head.match(line)
        if match:
            current = found.setdefault(match[1], [])
            current.append(match[2].strip())
        elif not line.strip() or not line[0].isspace():
            current = None
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, texts)) for name, texts in found.items()}
