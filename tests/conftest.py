"""`--long MINUTES`: how long the random attacks that have no natural end go on."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", type=float, default=0.0, metavar="MINUTES",
        help="run the random attacks for so many minutes, with new examples each time (60 for an hour)",
    )  # fmt: skip
