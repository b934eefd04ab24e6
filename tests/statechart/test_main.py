"""The commands of `python -m statechart`."""

import subprocess
import sys
from pathlib import Path

import pytest

import statechart.__main__ as program
import statechart.check as checking
from statechart import Action, compile_table
from statechart.action_meaning import ACTIONS, nothing
from statechart.check import Check
from statechart.explore import explore
from statechart.exports import FORMATS
from statechart.method_table import document
from statechart.world import Bounds

SMALL = ("--queue", "1", "--commands", "1", "--turns", "1", "--attempts", "1", "--calls", "1")
TEXTS = {"lifecycle.dot", "lifecycle-full.dot", "phases.dot", "lifecycle.mmd", "lifecycle.xstate.json", "methods.md"}


@pytest.fixture
def no_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def test_check_succeeds(capsys: pytest.CaptureFixture[str]):
    """The checks of our own declaration end with status 0 and a sum, and say how far they went."""
    assert program.main(["check", *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "(queue 1, commands 1, turns 1, attempts 1, calls 1) in " in lines[0]
    assert lines[-1].endswith(" 0 violations")


def test_check_fails_when_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """One violation is enough for status 1, and it is printed."""
    monkeypatch.setattr(checking, "CHECKS", (Check("never", "it never holds", lambda given: iter(["it is broken"])),))

    assert program.main(["check", *SMALL]) == 1
    out = capsys.readouterr().out
    assert "     - it is broken\n" in out
    assert out.endswith(" 1 violations\n")


def test_a_violation_in_the_exploration_is_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What only the exploration finds ends with status 1 too, and is told by its path."""
    lost = {**ACTIONS, Action.AWAIT_DELIVERY: nothing}
    monkeypatch.setattr(program, "explore", lambda table, bounds: explore(table, bounds, actions=lost))

    assert program.main(["check", *SMALL]) == 1
    assert "     - prompt(fits)\n" in capsys.readouterr().out


@pytest.mark.parametrize("number", ["0", "-1", "251", "many"])
def test_a_bound_that_is_none_is_refused(number: str, capsys: pytest.CaptureFixture[str]):
    """A bound is a number from 1 to what a byte can hold."""
    with pytest.raises(SystemExit, match="2"):
        program.main(["check", "--turns", number])

    assert "argument --turns" in capsys.readouterr().err


def test_table_prints_the_page(capsys: pytest.CaptureFixture[str]):
    """`table` prints what `draw` writes into `methods.md`."""
    assert program.main(["table"]) == 0
    assert capsys.readouterr().out == document(compile_table())


def test_draw_writes_all_text_forms(tmp_path: Path, no_graphviz: None, capsys: pytest.CaptureFixture[str]):
    """Without graphviz the texts are written all the same, and one line says what is missing and how to get it."""
    program.draw(tmp_path / "diagrams", package=tmp_path)

    written = {path.name for path in (tmp_path / "diagrams").iterdir()}
    said = capsys.readouterr()
    assert written == TEXTS
    assert (tmp_path / "decisions.json").is_file()
    assert said.err == program.WITHOUT_GRAPHVIZ + "\n"
    assert {Path(line.removeprefix("wrote ")).name for line in said.out.splitlines()} == {*TEXTS, "decisions.json"}


def test_draw_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """With graphviz there is an SVG for each DOT file, and each file that was written is named once, by a path to it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dot").write_text('#!/bin/sh\necho "<svg/>" > "$4"\n')
    (programs / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    program.draw(tmp_path / "diagrams", package=tmp_path)

    assert (tmp_path / "diagrams" / "lifecycle.svg").read_text() == "<svg/>\n"
    assert (tmp_path / "diagrams" / "lifecycle-full.svg").is_file()
    said = capsys.readouterr()
    named = [Path(line.removeprefix("wrote ")).resolve() for line in said.out.splitlines()]
    folder = (tmp_path / "diagrams").resolve()
    assert said.err == ""
    assert set(named) == {*folder.iterdir(), tmp_path.resolve() / "decisions.json"}
    assert len(set(named)) == len(named)


def test_draw_is_a_command(monkeypatch: pytest.MonkeyPatch):
    """`draw` draws into `diagrams`, or where it is told."""
    asked: list[Path] = []
    monkeypatch.setattr(program, "draw", asked.append)

    assert [program.main(["draw"]), program.main(["draw", "--into", "elsewhere"])] == [0, 0]
    assert asked == [Path("diagrams"), Path("elsewhere")]


def test_drawing_twice_gives_the_same(tmp_path: Path, no_graphviz: None):
    """Nothing in the texts depends on when or in which order they were written."""
    for name in ("one", "other"):
        program.draw(tmp_path / name, package=tmp_path)

    one, other = ({name: (tmp_path / folder / name).read_text() for name in TEXTS} for folder in ("one", "other"))
    assert one == other


def test_it_runs_as_a_module():
    """`python -m statechart check` ends with the status of the checks."""
    program = [sys.executable, "-m", "statechart", "check", *SMALL]
    done = subprocess.run(program, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [[], ["dance"]])
def test_a_wrong_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """A missing or unknown command ends with status 2 and says what there is."""
    with pytest.raises(SystemExit, match="2"):
        program.main(arguments)

    assert "draw" in capsys.readouterr().err


@pytest.mark.parametrize("word", FORMATS)
def test_export_prints_or_writes(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Without a file the export goes to standard output; with one it goes there, and that is said."""
    file = tmp_path / "export"

    assert program.main(["export", word]) == 0
    assert capsys.readouterr().out == FORMATS[word](Bounds())
    assert program.main(["export", word, str(file)]) == 0
    assert file.read_text(encoding="utf-8") == FORMATS[word](Bounds())
    assert Path(capsys.readouterr().out.removeprefix("wrote ").strip()).resolve() == file.resolve()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export"], "{promela,scxml,xstate}"),
        (["export", "uml"], "'uml' (choose from"),
        (["export", "scxml", "one", "two"], "unrecognized arguments: two"),
    ],
)
def test_a_wrong_export_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    """A missing or unknown format and a file too many end with status 2, and what is wrong or what there is is said."""
    with pytest.raises(SystemExit, match="2"):
        program.main(arguments)

    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["export", "xstate", "{}/file/x"], ["export", "scxml", "{}"], ["draw", "--into", "{}/file"]]
)
def test_what_can_not_be_written_is_said(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A file below a file, a folder for a file and a file for a folder are one line on standard error and status 2."""
    (tmp_path / "file").write_text("")

    assert program.main([each.format(tmp_path) for each in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"python -m statechart {arguments[0]}: error: ")
    assert str(tmp_path) in line


def test_a_reader_that_leaves_is_no_error():
    """When whoever read has left, as `head` does, nothing is said."""
    with subprocess.Popen(
        [sys.executable, "-m", "statechart", "export", "xstate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 1
