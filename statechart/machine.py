"""The one live machine of the process, built from the declaration; the only module that imports `transitions`.

Settings, each with its reason: synchronous and hierarchical, since the async machines of the library swallow
cancellations; `separator="."` on a subclass of our own, since the default one splits `follow_up` in two;
`auto_transitions=False`, since `to_<state>()` would walk around every guard; `queued=False`, since a queue answers True
before it has looked at the guard; `model=None`, since the library decorates and keeps every model for ever; actions only
in `after`, so that nothing runs before the step is decided.

Nobody may add to the machine once it is built: what it says now is what was checked, drawn and compiled.
"""

import functools
from typing import Any, Final, Never, Protocol

from transitions import MachineError
from transitions.extensions.nesting import HierarchicalMachine, NestedState

from statechart.table import NO_OP, ROWS, Row
from statechart.vocabulary import Leaf


class PhaseState(NestedState):
    """A state whose path is written with dots. The separator is set here and not on the library's class."""

    separator = "."


class SealedError(RuntimeError):
    """Somebody tried to change the machine after it was built."""


class PhaseMachine(HierarchicalMachine):
    """The lifecycle as `transitions` runs it. Sealed after construction."""

    state_cls = PhaseState

    def __init__(self, rows: tuple[Row, ...] = ROWS) -> None:
        self._sealed = False
        super().__init__(
            model=None,
            states=STATES,
            transitions=[declaration for row in rows for declaration in _declarations(row)],
            initial=str(Leaf.IDLE),
            auto_transitions=False,
            queued=False,
        )
        self._sealed = True

    def add_transition(self, *args: Any, **kwargs: Any) -> None:
        """Refused once the machine is built: a way to move is a row of the table."""
        if self._sealed:
            raise SealedError("the machine is sealed; add a row to statechart.table and build it again")
        super().add_transition(*args, **kwargs)

    def add_states(self, *args: Any, **kwargs: Any) -> None:
        """Refused once the machine is built."""
        if self._sealed:
            raise SealedError("the machine is sealed; add a leaf to statechart.vocabulary and build it again")
        super().add_states(*args, **kwargs)

    def remove_transition(self, *_args: Any, **_kwargs: Any) -> Never:
        """Always refused."""
        raise SealedError("the machine is sealed; remove the row from statechart.table and build it again")


def _nest(leaves: list[str]) -> list[Any]:
    """The library's nested declaration of states, from their dotted paths; a parent starts in its first child."""
    tree: dict[str, list[str]] = {}
    for leaf in leaves:
        head, _, rest = leaf.partition(".")
        tree.setdefault(head, []).extend([rest] if rest else [])
    return [
        {"name": name, "initial": _first(below), "children": _nest(below)} if below else name
        for name, below in tree.items()
    ]


def _first(leaves: list[str]) -> str:
    return leaves[0].partition(".")[0]


STATES: Final = _nest([str(leaf) for leaf in Leaf])


def _declarations(row: Row) -> list[dict[str, Any]]:
    return [
        {
            "trigger": str(row.trigger),
            "source": str(source),
            "dest": None if row.target in (None, NO_OP) else str(row.target),
            "conditions": [str(guard) for guard in row.when],
            "unless": [str(guard) for guard in row.unless],
            "after": [str(action) for action in row.do],
        }
        for source in row.source
    ]


class Model(Protocol):
    """What the machine moves: an object with a writable state, an attribute for each guard and for each action."""

    state: str


@functools.cache
def machine() -> PhaseMachine:
    """The live machine of this process. Built on first use, since the library takes some 50 ms to import."""
    return PhaseMachine()


def ask(model: Model, trigger: str, on: PhaseMachine | None = None) -> bool | None:
    """Fire *trigger* on *model* by the live machine: True it went, False all guards refused, None no row knows it."""
    try:
        return bool((on or machine()).trigger_event(model, trigger))
    except MachineError:
        return None
