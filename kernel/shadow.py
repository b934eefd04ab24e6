"""Shadow mode: each step of a core is also asked of the live machine of `transitions`, and must come out the same.

Set `PHASEKERNEL_SHADOW=1` to run a whole test suite so. It costs some 50 µs a step and is off by default.
"""

import os
import threading
from typing import Any, Final

from kernel.core import BoundStep, Shadow
from kernel.guards import GUARDS
from kernel.state import CoreState
from statechart import Action, Guard, Refuse

VARIABLE: Final = "PHASEKERNEL_SHADOW"
_ONE_AT_A_TIME: Final = threading.RLock()  # agents in several threads share the one machine
_GUARDS: Final = frozenset(map(str, Guard))
_ACTIONS: Final = frozenset(map(str, Action))


class ShadowError(AssertionError):
    """The decision table and the live machine disagree."""


def shadow() -> Shadow | None:
    """The check, when the environment asks for it."""
    return compare if os.environ.get(VARIABLE, "0") not in ("", "0") else None


def compare(state: CoreState, input: Any, trigger: str, decided: BoundStep | Refuse | None) -> None:
    """Ask the live machine what was just decided, with the core's own guards, before anything is done."""
    from statechart.machine import ask

    model = _Model(state, input)
    with _ONE_AT_A_TIME:
        went = ask(model, str(trigger))
    if isinstance(decided, BoundStep):
        expected = (True, str(decided.step.target), [str(action) for action in decided.step.do])
        actual = (went, model.state, model.done)
    else:
        expected, actual = (False, str(state.leaf), []), (bool(went), model.state, model.done)
    if expected != actual:
        raise ShadowError(f"{trigger} in {state.leaf}: the table says {expected}, transitions says {actual}")


class _Model:
    """The core as the live machine sees it: its guards answer, its actions are only written down."""

    def __init__(self, state: CoreState, input: Any) -> None:
        self.state = str(state.leaf)
        self.core_state = state
        self.input = input
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in _GUARDS:
            return lambda: GUARDS[Guard(name)](self.core_state, self.input)
        if name in _ACTIONS:
            return lambda: self.done.append(name)
        raise AttributeError(name)
