"""The page about guarantees says what is: its tables are the planted faults, and what it says of streams fits the rules."""

import pathlib

import pytest

from kernel import trace
from tests.kernel.planted.clauses import GUARANTEES
from tests.kernel.planted.page import table

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
SECTIONS = {text.partition(":")[0]: text for text in PAGE.split("\n## ")[1:]}
RULES = [rule.__name__ for rule in (*trace.RULES, *trace.RULES_ACROSS_RUNS)]


def test_each_guarantee_has_its_section() -> None:
    """The sections are G1 to G16, in their order."""
    assert list(SECTIONS) == list(GUARANTEES)


@pytest.mark.parametrize("name", GUARANTEES)
def test_a_table_is_what_is_planted(name: str) -> None:
    """The rows of a section are the clauses of the guarantee; when they are not, this shows what they should be."""
    rows = [line for line in SECTIONS[name].splitlines() if line.startswith("|")]
    assert "\n".join(rows) == "\n".join(table(GUARANTEES[name]))


@pytest.mark.parametrize("name", GUARANTEES)
def test_what_a_stream_shows_is_what_is_checked(name: str) -> None:
    """A section says that a stream shows nothing where no rule of `kernel.trace` looks, and something where one does."""
    (said,) = [text for text in SECTIONS[name].split("\n\n") if text.startswith("**A stream shows**")]
    rules = [rule for rule in RULES if rule.startswith(f"{name.lower()}_")]
    assert said.startswith("**A stream shows** nothing") == (rules == [])


def test_the_readme_leads_to_it() -> None:
    """What the README promises is linked to the page."""
    promises = (ROOT / "README.md").read_text().split("\n## What it promises", 1)[1].split("\n## ", 1)[0]
    assert "(docs/guarantees.md)" in promises
