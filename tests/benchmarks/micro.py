"""What guarding costs: deciding one step by the bound table, beside a call that nobody guards and beside the live machine.

Two steps stand for all. *Staying*: `subscribe` while idle, which no guard decides and which does nothing, so that what is
measured is the guarding alone; and `steer`, which two guards decide. *Moving*: `advance` from `opening`, which asks its
guards, changes the phase and acts; its actions are also called by themselves, since they are no cost of the guarding.
"""

import gc
import sys
import time
import timeit
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any, Final

from kernel.config import KernelConfig
from kernel.core import Bound, BoundAsk, BoundStep, Core, bound_table
from kernel.effects import Barrier
from kernel.guards import GUARDS
from kernel.inputs import Advance, Prompt, QueuedItem, Steer, Subscribe
from kernel.messages import UserMessage
from kernel.setup import Setup
from kernel.state import CoreState
from statechart import Action, Guard, Leaf
from statechart.machine import PhaseMachine, ask
from tests.benchmarks.measure import Row, Spread, beside, expect

ROUNDS: Final = 9


def new_core() -> Core:
    """The core of an agent without tools, idle."""
    return Core(KernelConfig(), Setup(None, print, {}))


def opening_core() -> tuple[Core, Advance]:
    """A core that has been prompted, and the input that moves it on."""
    core = new_core()
    effects = core.receive(Prompt("run", UserMessage("go")))
    barrier = effects[-1]
    assert isinstance(barrier, Barrier)
    return core, Advance(barrier.token)


def decide(table: dict[Leaf, dict[str, Bound]], state: CoreState, input: Any) -> Bound:
    """What `Core` decides, without carrying it out."""
    node = table[state.leaf].get(input.trigger)
    while node.__class__ is BoundAsk:
        node = node.yes if node.guard(state, input) else node.no
    return node


class Unguarded:
    """A method that does what an empty step does, without asking whether it may."""

    def receive(self, input: Any) -> list[Any]:
        """No effects."""
        return []


class LiveModel:
    """A core as the live machine moves it: guards answer as the core's do, actions do nothing."""

    def __init__(self, state: CoreState, input: Any) -> None:
        self.state = str(state.leaf)
        for guard in Guard:
            setattr(self, guard.value, lambda guard=guard: GUARDS[guard](state, input))
        for action in Action:
            setattr(self, action.value, lambda: None)


def nanoseconds(call: Callable[[], object], times: int) -> Spread:
    """CPU of one call, the call of *call* itself taken off."""
    empty = min(timeit.repeat(_nothing, timer=time.process_time, repeat=ROUNDS, number=times))
    figures = timeit.repeat(call, timer=time.process_time, repeat=ROUNDS, number=times)
    return Spread.of(max(0.0, figure - empty) / times * 1e9 for figure in figures)


def _nothing() -> None:
    return


def each(make: Callable[[], Any], call: Callable[[Any], object], times: int) -> Spread:
    """CPU nanoseconds of *call* on things that can be used once, made outside the timed part. Without the garbage
    collector, as `timeit` has it.
    """
    figures = []
    for _ in range(ROUNDS):
        things = [make() for _ in range(times)]
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            for thing in things:
                call(thing)
            figures.append((time.process_time() - start) / times * 1e9)
        finally:
            gc.enable()
    return Spread.of(figures)


def staying_rows(times: int) -> list[Row]:
    """Guarding a command that stays in place."""
    core, table, plain = new_core(), bound_table(), Unguarded()
    state, subscribe, steer = core.state, Subscribe(), Steer(QueuedItem(1, UserMessage("left")))
    model = LiveModel(state, subscribe)
    expect(isinstance(decide(table, state, steer), BoundStep), True, "steer is allowed")
    expect(ask(model, str(subscribe.trigger)), True, "the live machine allows subscribe")
    live = str(subscribe.trigger)
    unguarded = nanoseconds(lambda: plain.receive(subscribe), times)
    guarded = nanoseconds(lambda: core.receive(subscribe), times)
    return [
        beside("`subscribe` while idle, beside a method that nobody guards", "ns", unguarded, guarded),
        Row("deciding `subscribe`: no guard", "ns", nanoseconds(lambda: decide(table, state, subscribe), times)),
        Row("deciding `steer`: two guards", "ns", nanoseconds(lambda: decide(table, state, steer), times)),
        Row("`subscribe` asked of the live machine", "ns", nanoseconds(lambda: ask(model, live), max(2, times // 100))),
    ]


def moving_rows(times: int) -> list[Row]:
    """Guarding a step that changes the phase."""
    core, advance = opening_core()
    table, state = bound_table(), core.state
    step = decide(table, state, advance)
    assert isinstance(step, BoundStep)
    expect(step.target is state.leaf, False, "the step stays in place")
    live, trigger = LiveModel(state, advance), str(advance.trigger)

    def act(ready: tuple[Core, Advance]) -> None:
        ready[0].state.effects = []
        for action in step.actions:
            action(ready[0].state, ready[1])

    def ask_live() -> None:
        live.state = str(state.leaf)
        ask(live, trigger)

    ask_live()
    expect(live.state, str(step.target), "where the live machine goes")
    actions = each(opening_core, act, times)
    whole = each(opening_core, lambda ready: ready[0].receive(ready[1]), times)
    return [
        beside("`advance` from `opening`, beside its actions alone", "ns", actions, whole),
        Row("deciding it", "ns", nanoseconds(lambda: decide(table, state, advance), times)),
        Row("the same asked of the live machine", "ns", nanoseconds(ask_live, max(2, times // 100))),
    ]


def agent_bytes() -> int:
    """What the lifecycle adds to an agent: its core, which holds a reference to the shared table, and two fields of the
    state, the leaf and the phase. The enum members that they refer to are shared too.
    """
    core, other = new_core(), new_core()
    if core._table is not other._table:
        raise AssertionError("two agents have a table each")
    reference = sys.getsizeof((None,)) - sys.getsizeof(())
    return sys.getsizeof(core) + 2 * reference


def table_bytes() -> int:
    """The bound table, which all agents of a process share; its functions and enum members are not its own."""
    seen: dict[int, Any] = {}
    waiting: list[Any] = [bound_table()]
    while waiting:
        item = waiting.pop()
        if id(item) not in seen:
            seen[id(item)] = item
            waiting.extend(_parts(item))
    return sum(map(sys.getsizeof, seen.values()))


def _parts(item: Any) -> Iterable[Any]:
    match item:
        case dict():
            return item.values()
        case BoundAsk(yes=yes, no=no):
            return (yes, no)
        case BoundStep(actions=actions, step=step):
            return (actions, step, step.do)
    return ()


def machine_bytes() -> int:
    """A machine of `transitions` of one's own, which is what an agent would have without the table."""
    PhaseMachine()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        machines = [PhaseMachine() for _ in range(2)]
        return (tracemalloc.get_traced_memory()[0] - before) // len(machines)
    finally:
        tracemalloc.stop()


def size_rows() -> list[Row]:
    """The lifecycle's memory."""
    return [
        Row("an agent's share of the lifecycle", "bytes", Spread.of([agent_bytes()])),
        Row("the table that all agents share", "bytes", Spread.of([table_bytes()])),
        Row("a machine of `transitions` for each agent, instead", "bytes", Spread.of([machine_bytes()])),
    ]
