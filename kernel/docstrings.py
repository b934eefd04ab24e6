"""What a docstring says about a function and its parameters: enough of the Google, NumPy and Sphinx styles, and no more.

There are libraries that read all of a docstring (griffelib, docstring-parser). None is used, because what a model is told
must not depend on what happens to be installed, and a library that everybody must install is too much for these lines.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, final

from attrs import frozen

_ARGUMENTS: Final = re.compile(r"(args|arguments|params|parameters|keyword args|keyword arguments):", re.IGNORECASE)
_FIELD: Final = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"((?:other )?parameters)\s*\n-{3,}\s*$", re.IGNORECASE | re.MULTILINE)
_NUMPY_END: Final = re.compile(r"^\S.*\n-{3,}\s*$", re.MULTILINE)
_NUMPY_ENTRY: Final = re.compile(r"\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*(?=\s*(?::|$))")
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
    return Docstring(" ".join(_summary(lines)), {**_google(lines), **_sphinx(lines), **_numpy("\n".join(lines))})


def _summary(lines: list[str]) -> Iterator[str]:
    for line, below in pairwise([*lines, ""]):
        if not line.strip() or line.startswith(":") or _ARGUMENTS.fullmatch(line.strip()):
            return
        if _NUMPY_END.match(f"{line}\n{below}"):
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


def _numpy(text: str) -> dict[str, str]:
    """A head at the margin names a parameter, or some with commas between, and a type; its text is indented below it."""
    found: dict[str, str] = {}
    for section in _NUMPY.finditer(text):
        end = _NUMPY_END.search(text, section.end())
        names: list[str] = []
        for line in text[section.end() : end.start() if end else None].splitlines():
            if line.strip() and not line[0].isspace():
                head = _NUMPY_ENTRY.match(line)
                names = [name.strip().lstrip("*") for name in head[0].split(",")] if head else []
                found.update(dict.fromkeys(names, ""))
            for name in names if line[:1].isspace() else ():
                found[name] = f"{found[name]} {line.strip()}".strip()
    return {name: said for name, said in found.items() if said}


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
