"""What faults are planted with: patches of the kernel that are taken out again, in the few shapes that most faults have."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import frozen

from kernel.actions import ACTIONS
from kernel.core import BoundStep, Core, bound_table
from kernel.guards import GUARDS
from kernel.state import CoreState
from statechart import Action, Command, Fact, Guard, Leaf, Step

Plant = pytest.MonkeyPatch
Fault = Callable[[Plant], None]


@frozen
class Clause:
    """One promise of a guarantee, and each fault against it with the tests that catch it."""

    says: str
    faults: dict[Fault, tuple[str, ...]]

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that hold it."""
        return tuple(dict.fromkeys(test for tests in self.faults.values() for test in tests))


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing, whatever it is asked for."""


def replace(plant: Plant, name: str, put: Any, *rooms: Any) -> None:
    """Have each of these modules, which import it by name, use *put* instead of *name*."""
    for room in rooms:
        plant.setattr(room, name, put)


def action(plant: Plant, name: Action, do: Callable[[Any, Any], None]) -> None:
    """Have the action *name* do *do*."""
    plant.setitem(ACTIONS, name, do)


def before(plant: Plant, name: Action, do: Callable[[Any, Any], None]) -> None:
    """Have *do* happen before the action *name*."""
    whole = ACTIONS[name]

    def both(state: Any, input: Any) -> None:
        do(state, input)
        whole(state, input)

    action(plant, name, both)


def after(plant: Plant, name: Action, do: Callable[[Any, Any], None]) -> None:
    """Have *do* happen after the action *name*."""
    whole = ACTIONS[name]

    def both(state: Any, input: Any) -> None:
        whole(state, input)
        do(state, input)

    action(plant, name, both)


def guard(plant: Plant, name: Guard, answer: Callable[[Any, Any], bool]) -> None:
    """Have the guard *name* answer so."""
    plant.setitem(GUARDS, name, answer)


def deaf(plant: Plant, trigger: Command | Fact, *leaves: Leaf, do: Iterable[Any] = ()) -> None:
    """Have *trigger* stay in each of these *leaves*, and do no more than *do*."""
    for leaf in leaves:
        plant.setitem(bound_table()[leaf], trigger, BoundStep(leaf, tuple(do), Step(leaf, ())))


def unsaid(plant: Plant, kind: type, when: Callable[[Any, tuple[Any, ...]], bool] = lambda *_: True) -> None:
    """Have events of this *kind* not be published, when the state and the event's content are such."""
    publish = CoreState.publish

    def most(state: Any, published: type, *content: Any) -> None:
        if published is not kind or not when(state, content):
            publish(state, published, *content)

    plant.setattr(CoreState, "publish", most)


def later(plant: Plant) -> list[Callable[[], object]]:
    """A list of what is to be done only when the next input comes: after all listeners have heard of this one."""
    waiting: list[Callable[[], object]] = []
    receive = Core.receive

    def receiving(core: Core, input: Any) -> Any:
        due = waiting[:]
        waiting.clear()
        for do in due:
            do()
        return receive(core, input)

    plant.setattr(Core, "receive", receiving)
    return waiting
