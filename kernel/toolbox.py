"""File tools that stay below one directory: list, read, search, and, only when asked for, write.

Every path is resolved, links included, and must then be the root or below it. What can't be done is told to the model
as an error result, in terms of the path that it gave; no path outside is ever described, not even as missing.

Weak point: a path is resolved first and opened then. A process that swaps a directory for a link in between is not
stopped by this; who must defend against other processes of the same user needs a sandbox, not a tool.
"""

import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, final

from attrs import frozen
from msgspec import Meta

from kernel.ports import Tool, ToolContext, ToolResult
from kernel.tools import tool

FILE_BYTES: Final = 16 * 2**20
"""Bytes of one file that are looked at: more than any source file, and little enough to hold."""
TEXT_CHARACTERS: Final = 60_000
"""Characters of one result: some fifteen thousand tokens, a large bite of a model's context but not all of it."""
LINES: Final = 2_000
"""Lines that `read_file` returns unless asked for fewer."""
ENTRIES: Final = 500
"""Entries that `list_files` names: a directory with more is to be searched."""
MATCHES: Final = 200
"""Matching lines that `search` shows."""
FILES_SEARCHED: Final = 10_000
"""Files that `search` opens: some seconds of work."""
_LINE_CHARACTERS: Final = 300
_SKIPPED: Final = frozenset({".git", ".hg", ".venv", "__pycache__", "node_modules"})

Line = Annotated[int, Meta(ge=1)]


class RefusedPathError(Exception):
    """A path that can't be used, told in a sentence for the model."""


def files(root: str | os.PathLike[str], *, write: bool = False) -> tuple[Tool, ...]:
    """`read_file`, `list_files` and `search` below *root*; with *write* also `write_file`.

    With it, calls for the same file run in source order: a file that is written and then read in one turn is read as it
    was written.
    """
    room = Room(_existing(root))

    def keys(arguments: dict[str, Any]) -> tuple[str, ...]:
        with suppress(RefusedPathError):
            return (f"file:{os.path.normcase(room.inside(arguments['path']))}",)
        return ()

    @tool(replay="safe", resources=keys if write else None)
    def read_file(path: str, offset: Line = 1, limit: Line = LINES) -> ToolResult:
        """Read a text file.

        Args:
            path: The file, relative to the root directory.
            offset: The first line to return, counted from 1.
            limit: How many lines to return at most.

        """
        return _answer(path, lambda: room.read(path, offset, limit))

    @tool(replay="safe")
    def list_files(path: str = ".") -> ToolResult:
        """List a directory: its files with their sizes, and its directories, which end with a slash.

        Args:
            path: The directory, relative to the root directory.

        """
        return _answer(path, lambda: room.entries(path))

    @tool(replay="safe")
    # No regular expressions: Python's can run for ever on a few characters, and no thread but theirs runs meanwhile.
    def search(  # noqa: D417  # a model is not told of the context
        context: ToolContext, pattern: str, path: str = ".", ignore_case: bool = False
    ) -> ToolResult:
        """Find the lines that contain a text, in a file or in all text files below a directory.

        Args:
            pattern: The text, taken literally: not a regular expression.
            path: The file or directory, relative to the root directory.
            ignore_case: Whether upper and lower case are the same.

        """
        return _answer(path, lambda: room.search(pattern, path, ignore_case, lambda: context.cancelled))

    @tool(resources=keys)
    def write_file(context: ToolContext, path: str, content: str) -> ToolResult:  # noqa: D417  # as above
        """Write a text file: a new one, or in place of the old one. Missing directories are made.

        Args:
            path: The file, relative to the root directory.
            content: The whole new text.

        """
        return _answer(path, lambda: room.write(path, content, lambda: context.cancelled))

    reading: tuple[Tool, ...] = (read_file, list_files, search)
    return (*reading, write_file) if write else reading


def _existing(root: str | os.PathLike[str]) -> Path:
    path = Path(root).resolve()
    if not path.is_dir():
        raise ValueError(f"root must be an existing directory, not {os.fspath(root)!r}")
    return path


def _answer(path: str, work: Callable[[], str]) -> ToolResult:
    try:
        return ToolResult(work())
    except RefusedPathError as error:
        return ToolResult(str(error), is_error=True)
    except OSError as error:  # its own text would tell the absolute path
        return ToolResult(f"{_shown(path)}: {error.strerror or type(error).__name__}", is_error=True)


def _shown(name: str) -> str:
    """A name as it can stand in a line of text: one with a line break in it must not look like two."""
    return name if name.isprintable() else repr(name)


@final
@frozen
class Room:
    """A directory, and what may be done below it. Each method raises `RefusedPathError` or OSError."""

    root: Path

    def inside(self, path: str) -> Path:
        """*path* with all links followed, when that is the root or below it."""
        try:
            resolved = (self.root / path).resolve()
        except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL, half a surrogate pair
            raise RefusedPathError(f"{_shown(path)} is not a usable path") from None
        if not resolved.is_relative_to(self.root):
            raise RefusedPathError(f"{_shown(path)} is outside the root directory; give a path below it")
        return resolved

    def read(self, path: str, offset: int, limit: int) -> str:
        """Lines of a text file, with a last sentence when that is not all."""
        content, is_whole = _content(self.inside(path), path)
        lines = content.replace("\r\n", "\n").removesuffix("\n").split("\n")
        if not content:
            return "The file is empty."
        if offset > len(lines):
            raise RefusedPathError(f"{_shown(path)} has {len(lines)} lines; line {offset} is past its end")
        chosen = lines[offset - 1 : offset - 1 + limit]
        text, shown = _fitting(chosen)
        last = offset - 1 + shown
        if last < len(lines):
            text += f"\n[lines {offset} to {last} of {len(lines)}; go on with offset {last + 1}]"
        if not is_whole:
            text += f"\n[only the first {FILE_BYTES} bytes of the file can be read]"
        return text

    def entries(self, path: str) -> str:
        """The entries of a directory, one a line."""
        directory = self.inside(path)
        if directory.is_file():
            raise RefusedPathError(f"{_shown(path)} is a file; read it with read_file")
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        lines = [_entry(entry) for entry in entries[:ENTRIES]]
        if len(entries) > ENTRIES:
            lines.append(f"[{ENTRIES} of {len(entries)} entries; find the others with search]")
        return "\n".join(lines) or "The directory is empty."

    def search(self, pattern: str, path: str, ignore_case: bool, is_cancelled: Callable[[], bool]) -> str:
        """The lines that contain *pattern*, as `file:line: text`."""
        if not pattern or "\n" in pattern:
            raise RefusedPathError("the pattern must be a text of one line that is not empty")
        needle = pattern.casefold() if ignore_case else pattern
        found: list[str] = []
        total = count = 0
        for file in islice(self._walk(self.inside(path), path), FILES_SEARCHED + 1):
            count += 1
            if is_cancelled() or count > FILES_SEARCHED:
                break
            for number, line in _lines_with(file, needle, ignore_case):
                total += 1
                if total <= MATCHES:
                    found.append(f"{_shown(str(file.relative_to(self.root)))}:{number}: {line}")
        return "\n".join([*found, *_remarks(pattern, total, count)])

    def _walk(self, start: Path, path: str) -> Iterator[Path]:
        if not start.exists():
            raise RefusedPathError(f"{_shown(path)} does not exist")
        if not start.is_dir():
            yield start
        for directory, names, file_names in os.walk(start):  # links to directories are not followed
            names[:] = sorted(name for name in names if name not in _SKIPPED)
            yield from (Path(directory, name) for name in sorted(file_names) if not Path(directory, name).is_symlink())

    def write(self, path: str, content: str, is_cancelled: Callable[[], bool]) -> str:
        """Put *content* in the place of the file, all of it or nothing."""
        target = self.inside(path)
        old = _mode(target, path)
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise RefusedPathError("the content has characters that no file can hold (half a surrogate pair)") from None
        if len(data) > FILE_BYTES:
            raise RefusedPathError(f"the content has {len(data)} bytes; {FILE_BYTES} are the limit")
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.parent / f".{uuid.uuid4().hex}.tmp"
        try:
            new.write_bytes(data)
            if old is not None:
                new.chmod(stat.S_IMODE(old))
            if is_cancelled():
                raise RefusedPathError("the call was cancelled; nothing was written")
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
        return f"{'Wrote' if old is None else 'Replaced'} {_shown(path)}: {len(data)} bytes."


def _mode(target: Path, path: str) -> int | None:
    """The mode of the file that is to be replaced; None when there is none."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise RefusedPathError(f"{_shown(path)} is {_kind(mode)} and can't be written as a file")
    if not os.access(target, os.W_OK):
        raise RefusedPathError(f"{_shown(path)} may not be written")
    return mode


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a link" if stat.S_ISLNK(mode) else "a device, pipe or socket"


def _content(file: Path, path: str) -> tuple[str, bool]:
    """A regular file's text, and whether it is all of it."""
    # Without O_NONBLOCK, opening a named pipe waits for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        hint = "; list it with list_files" if stat.S_ISDIR(mode) else ""
        raise RefusedPathError(f"{_shown(path)} is {_kind(mode)}, not a file{hint}")
    with os.fdopen(os.open(file, flags), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise RefusedPathError(f"{_shown(path)} is not a file any more")
        data = stream.read(FILE_BYTES + 1)
    if b"\0" in data:
        raise RefusedPathError(f"{_shown(path)} is a binary file of {file.stat().st_size} bytes; only text can be read")
    return data[:FILE_BYTES].decode("utf-8-sig", errors="replace"), len(data) <= FILE_BYTES


def _fitting(lines: list[str]) -> tuple[str, int]:
    """As many of the lines as a result may hold, at least one; and how many they are."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line) + 1
        if size > TEXT_CHARACTERS and count:
            return "\n".join(lines[:count]), count
    text = "\n".join(lines)
    if len(text) > TEXT_CHARACTERS:
        text = f"{text[:TEXT_CHARACTERS]}\n[the line has {len(text)} characters; {TEXT_CHARACTERS} are shown]"
    return text, len(lines)


def _entry(entry: os.DirEntry[str]) -> str:
    name = _shown(entry.name)
    if entry.is_symlink():
        return f"{name} (link)"
    if entry.is_dir():
        return f"{name}/"
    try:
        size = entry.stat(follow_symlinks=False).st_size
    except OSError:
        return name
    return f"{name} ({size} bytes)"


def _lines_with(file: Path, needle: str, ignore_case: bool) -> Iterator[tuple[int, str]]:
    try:
        content, _ = _content(file, file.name)
    except (OSError, RefusedPathError):  # binary, unreadable or gone: there is no line to show
        return
    for number, line in enumerate(content.split("\n"), start=1):
        at = (line.casefold() if ignore_case else line).find(needle)
        if at >= 0:
            start = max(0, at - _LINE_CHARACTERS // 2) if len(line) > _LINE_CHARACTERS else 0
            yield number, line[start : start + _LINE_CHARACTERS].strip()


def _remarks(pattern: str, total: int, count: int) -> Iterator[str]:
    if not total:
        yield f"No line contains {pattern!r}; {min(count, FILES_SEARCHED)} files were searched."
    if total > MATCHES:
        yield f"[{total} lines match and {MATCHES} are shown; search a longer text or a smaller directory]"
    if count > FILES_SEARCHED:
        yield f"[stopped after {FILES_SEARCHED} files; search a smaller directory]"
