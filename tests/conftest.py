"""What all tests share: how long random attacks go on, and a place to say what was covered and what was skipped."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("suite", deadline=None)  # how long an example takes says more of the machine than of the kernel
settings.load_profile("suite")

SAID: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", type=float, default=0.0, metavar="MINUTES",
        help="run the random attacks for so many minutes, with new examples each time (60 for an hour)",
    )  # fmt: skip


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Take a line for the end of the session: what a checker covered, or loudly that it could not run."""
    return pytestconfig.stash.setdefault(SAID, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The lines in a section of their own, so that a lane that was skipped is seen."""
    said = config.stash.get(SAID, [])
    if said:
        terminalreporter.section("covered")
        for line in said:
            terminalreporter.line(line)
    if "PHASEKERNEL_SAID" in os.environ:  # for `python -m tests.proof`
        counts = {name: len(terminalreporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
        Path(os.environ["PHASEKERNEL_SAID"]).write_text(json.dumps({"said": said, **counts}))
