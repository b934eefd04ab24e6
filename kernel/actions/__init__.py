"""What a step does once it is decided: one function for each action of the chart, by the part of a run it belongs to.

Each takes the state and the input, changes the state, and appends effects. Actions are total: they never refuse and never
raise, since the lifecycle has already decided.
"""

from collections.abc import Callable
from typing import Any, Final

from kernel.actions import batches, detours, endings, runs, turns
from kernel.state import CoreState
from statechart import Action

Effector = Callable[[CoreState, Any], None]

ACTIONS: Final[dict[Action, Effector]] = {
    action: next(
        getattr(room, action.value) for room in (runs, turns, batches, detours, endings) if hasattr(room, action.value)
    )
    for action in Action
}

__all__ = ["ACTIONS", "Effector"]
