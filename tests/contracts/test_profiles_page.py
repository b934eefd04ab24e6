"""The page about profiles says what is: its tables are the profiles, each row's test exists, and its example runs."""

import ast
import doctest
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kernel import KernelConfig, profiles

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "profiles.md"


def rows(title: str) -> Iterator[list[str]]:
    """The cells of the tables below the heading that begins so, without their heads."""
    text = PAGE.read_text().split(f"# {title}", 1)[1].split("\n#", 1)[0]
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("|") and not cells[0].startswith("---"):
            yield cells


def policies() -> dict[str, list[str]]:
    return {cells[0]: cells[1:] for cells in rows("The policies") if cells[0] not in ("policy", "limit")}


def said(value: Any) -> set[str]:
    """How the page may say *value*."""
    if value is None:
        return {"none", "off"}
    return {str(value)} if isinstance(value, str | int | float) else {"on"}


PROFILES = [profiles.DEFAULT, profiles.CHAPTER_06, profiles.CHECKPOINT_09, profiles.PI_0_85]
NAMED = [cells[-1] for title in ("Chapter 06", "Checkpoint 09", "Pi 0.85.0") for cells in rows(title) if "::" in cells[-1]]


def test_the_page_has_every_policy():
    """Each field of the configuration is in one of the two tables."""
    assert set(policies()) == {field.name for field in KernelConfig.__attrs_attrs__}


@pytest.mark.parametrize("name", policies())
def test_a_row_is_what_the_profiles_are(name: str):
    """The cells of a policy are the profiles' own values; a limit that is the same in all of them is told once."""
    cells = policies()[name]
    told = cells[:4] if len(cells) == 5 else cells[:1] * 4
    assert all(cell in said(getattr(profile, name)) for cell, profile in zip(told, PROFILES, strict=True))
    assert cells[-1]


def names_in(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("named", NAMED)
def test_a_row_names_a_test(named: str):
    """The test that a difference names is there."""
    file, name = named.split("::")
    assert name in names_in(file)


def test_each_difference_from_pi_has_its_row():
    """Every test of a difference is named by one row."""
    files = sorted(path.name for path in HERE.glob("test_pi_differences*.py"))
    there = {f"{file}::{name}" for file in files for name in names_in(file) if name.startswith("test_difference_")}
    assert sorted(name for name in NAMED if name.startswith("test_pi")) == sorted(there)


def test_the_example_runs():
    """What the page shows comes out."""
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 0
    assert failed == 0


COMMANDS = re.findall(r"^\.venv/bin/pytest -q (tests/contracts/\S+)$", PAGE.read_text(), re.MULTILINE)

OFFLINE = """
import sys
import pytest

def forbid(event, details):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname"):
        raise AssertionError(f"the network was asked for: {event} {details}")

sys.addaudithook(forbid)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""
"""Runs tests in an interpreter that has no network: what asks for it is refused, wherever the question comes from."""


def test_each_command_of_the_page_selects_the_files_of_its_document():
    """Every file of the contracts but this one is run by one of the commands, and by no other."""
    root = HERE.parent.parent
    selected = [path for command in COMMANDS for path in root.glob(command)]
    assert sorted(selected) == sorted(set(HERE.glob("test_*.py")) - {pathlib.Path(__file__)})


def test_the_checkpoints_command_passes_offline():
    """The focused command runs that document's files, in an interpreter in which whatever asks for the network fails."""
    (command,) = (each for each in COMMANDS if "checkpoint_09" in each)
    root = HERE.parent.parent
    files = sorted(str(path) for path in root.glob(command))
    done = subprocess.run([sys.executable, "-c", OFFLINE, *files], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert " passed in " in done.stdout
