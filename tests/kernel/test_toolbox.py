"""The file tools: what they do below the root, and that there is no way out of it."""

import asyncio
import errno
import os
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, Tool, ToolMessage, ToolResult, toolbox
from kernel.testing import ScriptedModel, call, say
from kernel.toolbox import files
from kernel.tools import specs_of

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX file types")
SECRET = "the secret"


class Context:
    call_id = "c1"
    run_id = "r1"
    cancelled = False

    def update(self, text: str) -> None: ...


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with files in it, and a secret beside it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "root-of-another").mkdir()
    (tmp_path / "root-of-another" / "secret.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a.md").write_text("# A\nalpha\nBeta\n")
    (root / "b.txt").write_text("alpha beta\n")
    return root


def ask(tool: Tool, context: Any = None, **arguments: Any) -> ToolResult:
    spec = specs_of([tool])[tool.name]

    async def main() -> ToolResult:
        return await spec.execute(spec.validate(arguments), context or Context())

    return asyncio.run(main())


def named(root: Path, name: str) -> Tool:
    return next(tool for tool in files(root, write=True) if tool.name == name)


def text(result: ToolResult) -> str:
    assert not result.is_error, result
    return result.content[0].text


def refusal(result: ToolResult) -> str:
    assert result.is_error, result
    return result.content[0].text


# ---- no way out ----


def links(root: Path) -> dict[str, str]:
    """Paths that lead out of the root, by what they are."""
    outside = root.parent / "secret.txt"
    (root / "link.txt").symlink_to(outside)
    (root / "up").symlink_to("..")
    (root / "chain").symlink_to("link.txt")
    (root / "docs" / "deep").symlink_to(root / "up")
    return {
        "parent": "../secret.txt",
        "parent through a directory": "docs/../../secret.txt",
        "absolute": str(outside),
        "a sibling that begins like the root": "../root-of-another/secret.txt",
        "link to a file": "link.txt",
        "link to a link": "chain",
        "link to a directory": "up/secret.txt",
        "link from within": "docs/deep/secret.txt",
        "what is not there": "../nothing.txt",
        "the file system": "/",
    }


WAYS_OUT = [
    "parent", "parent through a directory", "absolute", "a sibling that begins like the root", "link to a file",
    "link to a link", "link to a directory", "link from within", "what is not there", "the file system",
]  # fmt: skip


@POSIX
@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize(
    ("name", "more"),
    [("read_file", {}), ("list_files", {}), ("search", {"pattern": "secret"}), ("write_file", {"content": "x"})],
)
def test_there_is_no_way_out(root: Path, way: str, name: str, more: dict[str, Any]):
    """Each tool refuses each path that leads out of the root, tells nothing of what is there, and changes nothing."""
    path = links(root)[way]
    said = refusal(ask(named(root, name), path=path, **more))
    assert said == f"{path} is outside the root directory; give a path below it"
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert not (root.parent / "nothing.txt").exists()


@POSIX
def test_a_search_does_not_follow_links_out(root: Path):
    """A search below the root does not look into what links point to."""
    links(root)
    assert text(ask(named(root, "search"), pattern=SECRET)).startswith("No line contains 'the secret'")


@POSIX
def test_a_link_that_stays_inside_is_a_path_like_others(root: Path):
    """A link within the root can be followed, and writing through it writes its target."""
    (root / "link").symlink_to("docs/a.md")
    assert text(ask(named(root, "read_file"), path="link")).startswith("# A")
    ask(named(root, "write_file"), path="link", content="new")
    assert ((root / "link").is_symlink(), (root / "docs" / "a.md").read_text()) == (True, "new")


@POSIX
def test_a_hard_link_is_cut_and_not_written_through(root: Path):
    """Writing a file that has another name outside leaves the other one as it was."""
    os.link(root.parent / "secret.txt", root / "hard.txt")
    ask(named(root, "write_file"), path="hard.txt", content="new")
    assert (root.parent / "secret.txt").read_text() == SECRET


def test_an_absolute_path_below_the_root_is_allowed(root: Path):
    """Models like absolute paths: one that stays inside is taken."""
    assert text(ask(named(root, "read_file"), path=str(root / "b.txt"))) == "alpha beta"


@POSIX
def test_a_root_behind_a_link_is_the_root(root: Path):
    """The root may be given as a link."""
    (root.parent / "alias").symlink_to(root)
    assert text(ask(named(root.parent / "alias", "read_file"), path="b.txt")) == "alpha beta"


# ---- what is no file ----


@POSIX
@pytest.mark.parametrize("name", ["read_file", "list_files", "search", "write_file"])
@pytest.mark.parametrize(
    "kind", ["nul", "half a surrogate", "loop", "broken link", "too long", "missing", "pipe", "socket", "empty"]
)
def test_whatever_a_path_is_the_model_gets_a_sentence(root: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    """No path raises, hangs, or is answered with the absolute place of the root."""
    (root / "loop").symlink_to("loop")
    (root / "broken link").symlink_to("gone/away")
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    path = {"nul": "a\0b", "half a surrogate": "\ud800", "too long": "x" * 5000, "empty": ""}.get(kind, kind)
    more = {"search": {"pattern": "alpha"}, "write_file": {"content": "x"}}.get(name, {})
    result = ask(named(root, name), path=path, **more)
    said = result.content[0].text
    assert said
    assert str(root) not in said
    assert "Errno" not in said
    assert "Traceback" not in said


@POSIX
def test_a_pipe_is_not_waited_for(root: Path):
    """A named pipe is refused, instead of waiting for someone to write into it."""
    os.mkfifo(root / "pipe")
    assert refusal(ask(named(root, "read_file"), path="pipe")) == "pipe is a device, pipe or socket, not a file"


def test_what_may_not_be_read_is_told(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A file without permission is a sentence, without its absolute path."""

    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "open", refuse)
    assert refusal(ask(named(root, "read_file"), path="b.txt")) == "b.txt: Permission denied"


# ---- reading ----


def test_reading_gives_the_text(root: Path):
    """`read_file` gives the file's text."""
    assert text(ask(named(root, "read_file"), path="docs/a.md")) == "# A\nalpha\nBeta"


def test_reading_can_begin_and_end_anywhere(root: Path):
    """`offset` and `limit` choose lines, and the last sentence tells how to go on."""
    said = text(ask(named(root, "read_file"), path="docs/a.md", offset=2, limit=1))
    assert said == "alpha\n[lines 2 to 2 of 3; go on with offset 3]"


def test_reading_past_the_end_is_an_error(root: Path):
    """An offset past the end tells how many lines there are."""
    assert refusal(ask(named(root, "read_file"), path="b.txt", offset=2)) == "b.txt has 1 lines; line 2 is past its end"


def test_an_empty_file_is_said_to_be_empty(root: Path):
    """A model must not take an empty answer for a failure."""
    (root / "empty").touch()
    assert text(ask(named(root, "read_file"), path="empty")) == "The file is empty."


def test_a_directory_is_not_read(root: Path):
    """A directory is refused, with the tool that lists it."""
    assert refusal(ask(named(root, "read_file"), path="docs")) == "docs is a directory, not a file; list it with list_files"


def test_a_binary_file_is_not_read(root: Path):
    """A file with NUL bytes is told to be binary, with its size."""
    (root / "data").write_bytes(b"a\0b")
    assert refusal(ask(named(root, "read_file"), path="data")) == "data is a binary file of 3 bytes; only text can be read"


def test_other_encodings_are_read_as_far_as_possible(root: Path):
    """Bytes that are not UTF-8 are replaced, line ends of Windows and a byte order mark are taken away."""
    (root / "latin").write_bytes(b"\xef\xbb\xbfcaf\xe9\r\nand\r\n")
    assert text(ask(named(root, "read_file"), path="latin")) == "caf\N{REPLACEMENT CHARACTER}\nand"


def test_a_long_file_is_cut_at_a_line(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A result holds whole lines up to its limit, and says where to go on."""
    monkeypatch.setattr(toolbox, "TEXT_CHARACTERS", 20)
    (root / "long").write_text("12345678\n" * 5)
    assert (
        text(ask(named(root, "read_file"), path="long")) == "12345678\n12345678\n[lines 1 to 2 of 5; go on with offset 3]"
    )


def test_a_long_line_is_cut(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A single line above the limit is cut and says its length."""
    monkeypatch.setattr(toolbox, "TEXT_CHARACTERS", 5)
    (root / "long").write_text("1234567890")
    assert text(ask(named(root, "read_file"), path="long")) == "12345\n[the line has 10 characters; 5 are shown]"


def test_a_huge_file_is_read_in_part(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a file above the limit of bytes only the first ones are read, and that is said."""
    monkeypatch.setattr(toolbox, "FILE_BYTES", 4)
    assert text(ask(named(root, "read_file"), path="b.txt")) == "alph\n[only the first 4 bytes of the file can be read]"


# ---- listing ----


def test_listing_names_files_directories_and_links(root: Path):
    """`list_files` gives sizes, marks directories and links, and sorts by name."""
    (root / "link").symlink_to("nowhere")
    assert text(ask(named(root, "list_files"))) == "b.txt (11 bytes)\ndocs/\nlink (link)"


def test_a_name_with_a_line_break_is_one_line(root: Path):
    """A file's name can't pretend to be two entries."""
    (root / "docs" / "a\nb").touch()
    assert text(ask(named(root, "list_files"), path="docs")) == "'a\\nb' (0 bytes)\na.md (15 bytes)"


def test_an_empty_directory_is_said_to_be_empty(root: Path):
    """An empty directory is told in a sentence."""
    (root / "none").mkdir()
    assert text(ask(named(root, "list_files"), path="none")) == "The directory is empty."


def test_a_file_is_not_listed(root: Path):
    """A file is refused, with the tool that reads it."""
    assert refusal(ask(named(root, "list_files"), path="b.txt")) == "b.txt is a file; read it with read_file"


def test_a_large_directory_is_cut(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Above the limit of entries, a sentence tells how many there are."""
    monkeypatch.setattr(toolbox, "ENTRIES", 1)
    assert text(ask(named(root, "list_files"))) == "b.txt (11 bytes)\n[1 of 2 entries; find the others with search]"


# ---- searching ----


def test_searching_gives_file_line_and_text(root: Path):
    """`search` finds lines in all files below a directory, in order."""
    assert text(ask(named(root, "search"), pattern="alpha")) == f"b.txt:1: alpha beta\n{Path('docs/a.md')}:2: alpha"


def test_searching_one_file(root: Path):
    """`search` takes a file as well."""
    assert text(ask(named(root, "search"), pattern="alpha", path="b.txt")) == "b.txt:1: alpha beta"


def test_case_matters_unless_told(root: Path):
    """`ignore_case` finds both."""
    assert text(ask(named(root, "search"), pattern="beta", path="docs")).startswith("No line contains 'beta'; 1 files")
    assert text(ask(named(root, "search"), pattern="beta", path="docs", ignore_case=True)).endswith(":3: Beta")


def test_a_pattern_is_taken_literally(root: Path):
    """A pattern that would run for ever as a regular expression is a text like any other."""
    (root / "b.txt").write_text("(a+)+$ and " + "a" * 100)
    assert text(ask(named(root, "search"), pattern="(a+)+$")).startswith("b.txt:1: (a+)+$ and")


@pytest.mark.parametrize("pattern", ["", "a\nb"])
def test_a_pattern_is_one_line(root: Path, pattern: str):
    """An empty pattern, and one of two lines, can't be found."""
    assert (
        refusal(ask(named(root, "search"), pattern=pattern)) == "the pattern must be a text of one line that is not empty"
    )


def test_binary_files_and_other_peoples_directories_are_skipped(root: Path):
    """Binary files, and what version control and package managers keep, are not searched."""
    (root / "data").write_bytes(b"alpha\0")
    (root / ".git").mkdir()
    (root / ".git" / "x").write_text("alpha")
    assert len(text(ask(named(root, "search"), pattern="alpha")).splitlines()) == 2


def test_many_matches_are_cut(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Above the limit of matches, a sentence tells how many there are."""
    monkeypatch.setattr(toolbox, "MATCHES", 1)
    said = text(ask(named(root, "search"), pattern="alpha"))
    assert said.splitlines()[1:] == ["[2 lines match and 1 are shown; search a longer text or a smaller directory]"]


def test_many_files_are_cut(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Above the limit of files, a sentence tells that the search stopped."""
    monkeypatch.setattr(toolbox, "FILES_SEARCHED", 1)
    said = text(ask(named(root, "search"), pattern="alpha"))
    assert said.splitlines()[1:] == ["[stopped after 1 files; search a smaller directory]"]


def test_a_long_line_is_shown_around_its_match(root: Path):
    """Of a long line the part with the match is shown."""
    (root / "b.txt").write_text("x" * 10_000 + "needle" + "x" * 10_000)
    said = text(ask(named(root, "search"), pattern="needle"))
    assert "needle" in said
    assert len(said) < 400


def test_a_cancelled_search_ends(root: Path):
    """A search in its thread looks whether it was cancelled."""
    context = Context()
    context.cancelled = True
    assert text(ask(named(root, "search"), context, pattern="alpha")).startswith("No line contains")


# ---- writing ----


def test_there_is_no_writing_unless_asked_for(root: Path):
    """Without `write` no tool writes."""
    assert [tool.name for tool in files(root)] == ["read_file", "list_files", "search"]


def test_writing_makes_directories_and_replaces(root: Path):
    """`write_file` makes a file with its directories, or replaces one, and tells which."""
    write = named(root, "write_file")
    assert text(ask(write, path="x/y/z.txt", content="é\n")) == "Wrote x/y/z.txt: 3 bytes."
    assert text(ask(write, path="x/y/z.txt", content="")) == "Replaced x/y/z.txt: 0 bytes."
    assert (root / "x/y/z.txt").read_bytes() == b""


@POSIX
def test_a_replaced_file_keeps_its_mode(root: Path):
    """A script stays executable."""
    (root / "b.txt").chmod(0o750)
    ask(named(root, "write_file"), path="b.txt", content="new")
    assert stat.S_IMODE((root / "b.txt").stat().st_mode) == 0o750


def test_a_failed_write_leaves_nothing_behind(root: Path):
    """What can't be written leaves the old file as it was, and no other file beside it."""
    context = Context()
    context.cancelled = True
    assert refusal(ask(named(root, "write_file"), context, path="b.txt", content="new")).endswith("nothing was written")
    assert refusal(ask(named(root, "write_file"), path="b.txt", content="\ud800")).startswith("the content has characters")
    assert refusal(ask(named(root, "write_file"), path="docs", content="new")).startswith("docs is a directory")
    assert refusal(ask(named(root, "write_file"), path="b.txt/c", content="new"))
    assert sorted(path.name for path in root.iterdir()) == ["b.txt", "docs"]
    assert (root / "b.txt").read_text() == "alpha beta\n"


def test_too_much_is_not_written(root: Path, monkeypatch: pytest.MonkeyPatch):
    """There is a limit of bytes for writing."""
    monkeypatch.setattr(toolbox, "FILE_BYTES", 2)
    assert refusal(ask(named(root, "write_file"), path="new", content="123")) == "the content has 3 bytes; 2 are the limit"


@pytest.mark.parametrize("name", ["read_file", "write_file"])
def test_calls_for_one_file_share_a_key(root: Path, name: str):
    """Two names of one file are one resource; a path that can't be used is none."""
    keys = specs_of(files(root, write=True))[name].resources
    assert keys is not None
    assert keys({"path": "docs/../b.txt"}) == keys({"path": "b.txt"}) == (f"file:{root / 'b.txt'}",)
    assert keys({"path": "../x"}) == keys({"path": "a\0"}) == ()


def test_in_one_turn_a_file_is_read_as_it_was_written(root: Path):
    """A call that reads a file waits for the call before it that writes it."""
    model = ScriptedModel(
        [[call("c1", "write_file", path="n", content="new"), call("c2", "read_file", path="./n")], say("done")]
    )
    result = Agent(model, tools=files(root, write=True)).run_sync("go")
    assert [message.text for message in result.messages if isinstance(message, ToolMessage)] == ["Wrote n: 3 bytes.", "new"]


def test_the_root_must_be_there(root: Path):
    """A root that is missing or a file is a ValueError that names it."""
    for path in (root / "gone", root / "b.txt"):
        with pytest.raises(ValueError, match="root must be an existing directory"):
            files(path)


def test_the_tools_run_in_threads(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A slow disk does not hold up the loop."""
    threads: list[threading.Thread] = []
    monkeypatch.setattr(toolbox.Room, "read", lambda *_: threads.append(threading.current_thread()) or "")
    ask(named(root, "read_file"), path="b.txt")
    assert threads != [threading.main_thread()]
