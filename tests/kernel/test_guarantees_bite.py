"""Each clause of each guarantee is held by tests that fail when it is broken: the faults are planted, one by one.

The table is in `tests/kernel/planted/clauses.py`. A test is called here as pytest would call it, with all its parameters,
once as the kernel is and once under each fault; what it must do then is fail as a test does, by what it claims.
"""

import importlib
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from kernel.core import bound_table
from kernel.drive import Drive
from kernel.shadow import VARIABLE
from kernel.testing import SimulatedLoop
from tests.kernel.planted import control, kept, structure, values
from tests.kernel.planted.clauses import GUARANTEES
from tests.kernel.planted.kit import Fault, Plant

CLAUSES = [(name, clause) for name, clauses in GUARANTEES.items() for clause in clauses]
BITES = [
    pytest.param(fault, test, id=f"{name}-{fault.__name__}-{test.rpartition('::test_')[2]}")
    for name, clause in CLAUSES
    for fault, tests in clause.faults.items()
    for test in tests
]
TESTS = sorted({test for _, clause in CLAUSES for test in clause.tests})
PLANTED = pathlib.Path(structure.__file__).parent


def parameters_of(function: Any) -> Iterator[dict[str, Any]]:
    """The arguments of each case of a parametrized test; one empty set for any other."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    for cases in itertools.product(*(list(mark.args[1]) for mark in marks)):
        arguments: dict[str, Any] = {}
        for mark, case in zip(marks, cases, strict=True):
            names = mark.args[0] if not isinstance(mark.args[0], str) else mark.args[0].split(",")
            values = getattr(case, "values", None) if isinstance(case, type(pytest.param())) else None
            if values is None:
                values = (case,) if len(names) == 1 else case
            arguments |= dict(zip(map(str.strip, names), values, strict=True))
        yield arguments


def run(test: str) -> None:
    """Call the test of this node id with each of its cases, until one fails."""
    file, name_of_class, name = test.split("::")
    module = importlib.import_module(f"tests.kernel.{file.removesuffix('.py')}")
    case = getattr(module, name_of_class)()
    function = getattr(case, name)
    for arguments in parameters_of(function):
        function(**arguments)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """A patch of the kernel that is taken out again, with what was bound to it, and with the loops of tests that failed."""
    loops: list[SimulatedLoop] = []
    init = SimulatedLoop.__init__

    def make(loop: SimulatedLoop, **arguments: Any) -> None:
        loops.append(loop)
        init(loop, **arguments)

    bound_table.cache_clear()
    monkeypatch.delenv(VARIABLE, raising=False)  # the live machine would find most of them by itself
    monkeypatch.setattr(SimulatedLoop, "__init__", make)
    yield monkeypatch
    for loop in loops:
        if not loop.is_closed():
            loop.shutdown()
    bound_table.cache_clear()


@pytest.mark.parametrize("test", TESTS)
def test_the_tests_hold_without_a_fault(test: str) -> None:
    """Called as they are called here, all named tests pass on the kernel as it is."""
    run(test)


@pytest.mark.parametrize(("fault", "test"), BITES)
def test_a_fault_is_caught(fault: Fault, test: str, plant: Plant) -> None:
    """The test fails, and by its claim: neither the kernel nor the fault itself just crashes."""
    bugs: list[BaseException] = []
    report = Drive.report_bug
    plant.setattr(Drive, "report_bug", lambda drive, error: bugs.append(error) or report(drive, error))
    fault(plant)
    with pytest.raises((Exception, pytest.fail.Exception)) as failed:
        run(test)
    assert bugs == []
    assert pathlib.Path(failed.traceback[-1].path).parent != PLANTED


def test_each_guarantee_has_its_clauses() -> None:
    """Sixteen guarantees, each with clauses, and each clause with a fault that a test catches."""
    assert list(GUARANTEES) == [f"G{number}" for number in range(1, 17)]
    assert [clause.says for _, clause in CLAUSES if not clause.faults or not all(clause.faults.values())] == []


def test_each_fault_is_planted() -> None:
    """No fault is written down and forgotten, and each says what it does."""
    planted = {fault for _, clause in CLAUSES for fault in clause.faults}
    written = {
        thing
        for room in (structure, control, kept, values)
        for name, thing in vars(room).items()
        if callable(thing) and getattr(thing, "__module__", "") == room.__name__ and not name.startswith("_")
    }
    assert sorted(fault.__name__ for fault in written - planted) == []
    assert [fault.__name__ for fault in planted if not (fault.__doc__ or "").strip()] == []
