"""What every export is written from: the places and the transitions of the live machine, as plain values in a fixed order.

The order of the transitions of a place is that of the declaration, since that is the order in which `transitions` asks
them. Ours are disjoint, so that it decides nothing; an export keeps it all the same.

A transition to a place inside its own source is refused: how much of the source `transitions` leaves then depends on the
leaf that it is in, and no export can say that. Ours have none.

Weak point: callbacks other than `after` are not read. `PhaseMachine` can't have them, and `compile_table` refuses them.
"""

from collections.abc import Iterator

from attrs import frozen

from statechart.machine import PhaseMachine, machine
from statechart.vocabulary import Command, Fact


class CannotExportError(RuntimeError):
    """The machine has something that an export can't say."""


@frozen
class Transition:
    """One transition as declared: no *target* when it stays in place; *needs* are guards and the answers they must give."""

    trigger: str
    source: str
    target: str | None
    needs: tuple[tuple[str, bool], ...]
    do: tuple[str, ...]

    @property
    def is_reflexive(self) -> bool:
        """Whether it leaves its source and enters it again."""
        return self.target == self.source


@frozen
class Structure:
    """A statechart: the place it starts in, all places by their paths, and the transitions."""

    initial: str
    places: tuple[str, ...]
    first: dict[str, str]
    """Where a place starts that has others inside."""
    transitions: tuple[Transition, ...]

    def inside(self, place: str) -> list[str]:
        """The places directly inside *place*; the outermost ones for the empty name."""
        return [name for name in self.places if name.rpartition(".")[0] == place]

    def leaving(self, place: str) -> list[Transition]:
        """The transitions declared on *place* itself."""
        return [transition for transition in self.transitions if transition.source == place]

    def guards(self) -> list[str]:
        """The guards that are asked anywhere, each once, in the order in which they first occur."""
        return list(dict.fromkeys(guard for transition in self.transitions for guard, _ in transition.needs))


def read(live: PhaseMachine | None = None) -> Structure:
    """The statechart of the live machine (or of *live*)."""
    subject = live if live is not None else machine()
    places = tuple(subject.get_nested_state_names())
    first = {place: f"{place}.{start}" for place in places if (start := subject.get_state(place).initial)}
    return Structure(str(subject.initial), places, first, tuple(_transitions(subject)))


def _transitions(live: PhaseMachine) -> Iterator[Transition]:
    for trigger in (*Command, *Fact):
        for declared in live.get_transitions(trigger) if trigger in live.events else ():
            if declared.dest is not None and declared.dest.startswith(f"{declared.source}."):
                raise CannotExportError(f"{trigger} goes from {declared.source} to {declared.dest}, which is inside it")
            needs = tuple((str(asked.func), asked.target) for asked in declared.conditions)
            yield Transition(trigger, declared.source, declared.dest, needs, tuple(map(str, declared.after)))
