"""The commands of `python -m statechart`."""

import subprocess
import sys
from pathlib import Path

import pytest

import statechart.__main__ as program
import statechart.check as checking
from statechart import compile_table
from statechart.check import Check
from statechart.method_table import document

TEXTS = {"lifecycle.dot", "lifecycle-full.dot", "lifecycle.mmd", "methods.md"}


@pytest.fixture
def no_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def test_check_succeeds(capsys: pytest.CaptureFixture[str]):
    """The checks of our own declaration end with status 0 and a sum."""
    assert program.main(["check"]) == 0
    assert capsys.readouterr().out.endswith(" 0 violations\n")


def test_check_fails_when_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """One violation is enough for status 1, and it is printed."""
    monkeypatch.setattr(checking, "CHECKS", (Check("never", "it never holds", lambda given: iter(["it is broken"])),))

    assert program.main(["check"]) == 1
    assert "     - it is broken\n1 checks, 1 cases, 1 violations\n" in capsys.readouterr().out


def test_table_prints_the_page(capsys: pytest.CaptureFixture[str]):
    """`table` prints what `draw` writes into `methods.md`."""
    assert program.main(["table"]) == 0
    assert capsys.readouterr().out == document(compile_table())


def test_draw_writes_all_text_forms(tmp_path: Path, no_graphviz: None, capsys: pytest.CaptureFixture[str]):
    """Without graphviz the texts are written all the same, and one line says what is missing and how to get it."""
    program.draw(tmp_path / "diagrams", package=tmp_path)

    assert {path.name for path in (tmp_path / "diagrams").iterdir()} == TEXTS
    assert (tmp_path / "decisions.json").is_file()
    assert capsys.readouterr().err == program.WITHOUT_GRAPHVIZ + "\n"


def test_draw_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """With graphviz there is an SVG for each DOT file, and nothing is said."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dot").write_text('#!/bin/sh\necho "<svg/>" > "$4"\n')
    (programs / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    program.draw(tmp_path / "diagrams", package=tmp_path)

    assert (tmp_path / "diagrams" / "lifecycle.svg").read_text() == "<svg/>\n"
    assert (tmp_path / "diagrams" / "lifecycle-full.svg").is_file()
    assert capsys.readouterr() == ("", "")


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
    done = subprocess.run([sys.executable, "-m", "statechart", "check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [[], ["dance"]])
def test_a_wrong_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """A missing or unknown command ends with status 2 and says what there is."""
    with pytest.raises(SystemExit, match="2"):
        program.main(arguments)

    assert "draw" in capsys.readouterr().err
