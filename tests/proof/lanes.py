"""The checkers of the lifecycle, each with the command that runs it and what it is about."""

import sys
from typing import Final

from attrs import frozen

PYTEST: Final = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


@frozen
class Lane:
    """One checker: its name, what it holds against what, and its command."""

    name: str
    about: str
    command: tuple[str, ...]
    needs: str = ""
    """What must be there besides the `dev` extra; without it the lane is skipped, and says so."""


def _tests(*paths: str, marker: str = "") -> tuple[str, ...]:
    return (*PYTEST, *(("-m", marker) if marker else ()), *paths)


LANES: Final = (
    Lane("check", "the declaration, case by case, and every reachable state of its model",
         (sys.executable, "-m", "statechart", "check")),
    Lane("bridge", "the model against the real core, guard by guard and action by action",
         _tests("tests/kernel/test_model_bridge.py", "tests/conformance/test_model_follows.py")),
    Lane("cells", "each leaf, trigger and branch of guards on the real core", _tests("tests/kernel/test_cells.py")),
    Lane("second opinion", "spin, XState and python-statemachine against the live machine",
         _tests("tests/proof", marker="second_opinion"), needs="spin, gcc, Node.js, xstate, the extra `proof`"),
    Lane("stateful", "random commands, listeners and worlds around the real agent", _tests("tests/kernel/stateful")),
    Lane("simulator", "all orders of small programs, and faults at every point",
         _tests("tests/kernel/test_explore.py", "tests/kernel/test_fault_points.py", "tests/kernel/test_choosers.py")),
    Lane("guarantees", "each clause of G1 to G16 has a test, and a planted fault that it catches",
         _tests("tests/kernel/test_guarantees_bite.py", "tests/kernel/test_guarantees_page.py")),
    Lane("known faults", "the faults that agents have had, each by its own probe", _tests("tests/faults")),
    Lane("scenarios", "seventy cases and random ones, judged line by line", _tests("tests/conformance")),
    Lane("streams", "the trace checker on streams that were damaged on purpose",
         _tests("tests/kernel/test_trace_mutations.py", "tests/kernel/test_journal_damage.py")),
    Lane("mutants", "faults of the declaration, one in ten: caught by what they do, or explained",
         (sys.executable, "-m", "tests.mutation", "--every", "10")),
    Lane("Pi", "random scenarios on the real Pi agent core 0.85.0",
         _tests("tests/differential", marker="pi"), needs="Node.js, the package of Pi"),
)  # fmt: skip
