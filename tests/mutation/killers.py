"""Who may catch a faulty declaration, the cheapest first: the compiler, the checks of the rows, the exploration of the
model, the scenarios, and the state machine with its programs and a few random examples.

None of them compares with the declaration as it should be: the oracle of the state machine is given the faulty table too,
and the shipped decisions are not looked at. What is caught is caught by what it does.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kernel import core
from kernel.core import bound_table
from statechart.check import Declaration, check
from statechart.decisions import CannotCompileError, Decisions
from statechart.explore import explore
from statechart.world import Bounds
from tests.conformance.judge import judge
from tests.kernel.stateful import coverage, oracle
from tests.kernel.stateful.machine import SETTINGS, AgentMachine
from tests.kernel.stateful.rarities import PLAYS, play

CASES: Final = sorted((Path(__file__).parent.parent / "conformance" / "cases").glob("*.json"))
BOUNDS: Final = Bounds(queue=2, commands=4, turns=2, attempts=2, calls=2)
EXAMPLES: Final = 200
Killer = Callable[[Declaration], str | None]
"""What it found wrong; None when it is content."""


def by_compiler(given: Declaration) -> str | None:
    """The machine can't be made, or the table can't carry it."""
    try:
        return None if given.table else ""
    except CannotCompileError as error:
        return str(error)


def by_checks(given: Declaration) -> str | None:
    """A promise of the rows is broken."""
    return next((f"{found.check.name}: {found.violations[0]}" for found in check(given) if found.violations), None)


def by_exploration(given: Declaration) -> str | None:
    """A state of the model breaks a promise, or is none that the model can hold."""
    try:
        found = explore(given.table, BOUNDS).results()
    except (ArithmeticError, AssertionError, LookupError, ValueError) as error:
        return repr(error)
    return next((f"{each.check.name}: {each.violations[0]}" for each in found if each.violations), None)


def by_scenarios(given: Declaration) -> str | None:
    """A case comes out otherwise than it must, or can't be played."""
    with living_by(given.table):
        for path in CASES:
            try:
                faults = judge(path)
            except Exception as error:
                return f"{path.stem}: {error!r}"
            if faults:
                return f"{path.stem}: {faults[0]}"
    return None


def by_state_machine(given: Declaration) -> str | None:
    """A promise is broken by a program or by a random example."""
    generate = settings(
        SETTINGS, max_examples=EXAMPLES, stateful_step_count=30, derandomize=True, phases=(Phase.generate,)
    )
    with living_by(given.table), contextlib.redirect_stdout(io.StringIO()):
        try:
            for program, config in PLAYS:
                play(program, config)
            run_state_machine_as_test(AgentMachine, settings=generate)
        except Exception as error:
            return (str(error).splitlines() or [repr(error)])[0]
    return None


KILLERS: Final[dict[str, Killer]] = {
    "compiler": by_compiler,
    "checks of the rows": by_checks,
    "exploration": by_exploration,
    "scenarios": by_scenarios,
    "state machine": by_state_machine,
}


@contextmanager
def living_by(table: Decisions) -> Iterator[None]:
    """While it lasts, new agents live by *table*, and the oracle believes in it."""
    with patch.object(core, "decisions", lambda: table):
        bound_table.cache_clear()
        faulty = bound_table()
    bound_table.cache_clear()
    with (
        patch.object(core, "bound_table", lambda: faulty),
        patch.object(oracle, "decisions", lambda: table),
        patch.object(coverage, "decisions", lambda: table),
        patch.object(coverage, "DECLARED", Declaration()),
    ):
        yield


def kill(given: Declaration) -> tuple[str, str] | None:
    """The first killer that finds something, and what; None when the faulty declaration survives all."""
    for name, killer in KILLERS.items():
        found = killer(given)
        if found is not None:
            return name, found
    return None
