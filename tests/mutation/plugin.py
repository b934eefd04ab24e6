"""A pytest plugin: the tests of this process see agents that live by a faulty declaration, the mutant of that number."""

import os
from contextlib import ExitStack

import pytest

from statechart.check import Declaration
from tests.mutation.killers import living_by
from tests.mutation.mutants import mutants

NUMBER = "PHASEKERNEL_MUTANT"


def pytest_configure(config: pytest.Config) -> None:
    faulty = list(mutants())[int(os.environ[NUMBER])]
    stack = ExitStack()
    stack.enter_context(living_by(Declaration(faulty.rows).table))
    config.add_cleanup(stack.close)
