"""The decision table: what the live machine does, compiled into a lookup that costs nanoseconds.

The machine of `transitions` takes 10 to 60 µs for a step and 125 kB for an agent of its own. So the machine is run once,
for each leaf and trigger, on a probe that answers guards from a script and writes down the actions; whenever the machine
asks a guard that the script has no answer for, both answers are followed. What comes out is the machine's own behaviour,
with its fall-through from children to parents and its order of rows, not our reading of the declaration.

The compiled table is shipped beside this module with a fingerprint of the declaration and of the library. When either
changed, the table is compiled anew on first use, and a test fails until `python -m statechart draw` was run.

What the table can't carry is refused when it is compiled: callbacks anywhere but in `after`, parallel states.
"""

import functools
import json
import os.path
from typing import Any, Final, assert_never

from attrs import frozen

from statechart.table import REFUSED_BY_GUARD, REFUSED_BY_PHASE, ROWS, Row
from statechart.vocabulary import Action, Command, Fact, Guard, Leaf, Refusal

SHIPPED: Final = "decisions.json"
TRIGGERS: Final = (*Command, *Fact)


@frozen
class Step:
    """The machine goes to *target* (its own leaf, when it stays) and the actions are done in this order."""

    target: Leaf
    do: tuple[Action, ...]


@frozen
class Ask:
    """Which way depends on *guard*."""

    guard: Guard
    yes: "Decision"
    no: "Decision"


@frozen
class Refuse:
    """A command that is not allowed here, and the error that says so."""

    refusal: Refusal


Decision = Step | Ask | Refuse | None
Decisions = dict[Leaf, dict[str, Decision]]


class CannotCompileError(RuntimeError):
    """The machine has something that a table can't say."""


class Probe:
    """A model that answers guards from a script and writes down actions. Guards are pure: asked twice, answered once."""

    def __init__(self, leaf: str, script: tuple[bool, ...]) -> None:
        self.state = leaf
        self.script = script
        self.asked: dict[str, bool] = {}
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in _GUARDS:
            return lambda: self._answer(name)
        if name in _ACTIONS:
            return lambda: self.done.append(name)
        raise AttributeError(name)

    def _answer(self, guard: str) -> bool:
        position = len(self.asked)
        return self.asked.setdefault(guard, self.script[position] if position < len(self.script) else True)


_GUARDS: Final = frozenset(map(str, Guard))
_ACTIONS: Final = frozenset(map(str, Action))


def compile_table(machine: Any = None) -> Decisions:
    """Read the decision table off the live machine (or off *machine*) by running it on probes."""
    from statechart.machine import machine as live

    subject = machine if machine is not None else live()
    _refuse_what_a_table_cannot_say(subject)
    return {
        leaf: {
            str(trigger): decision
            for trigger in TRIGGERS
            if (decision := _explore(subject, leaf, trigger, ())) is not None
        }
        for leaf in Leaf
    }


def _explore(machine: Any, leaf: Leaf, trigger: Command | Fact, script: tuple[bool, ...]) -> Decision:
    from statechart.machine import ask

    probe = Probe(str(leaf), script)
    went = ask(probe, str(trigger), machine)
    asked = list(probe.asked)
    if len(asked) > len(script):
        guard = Guard(asked[len(script)])
        return Ask(
            guard,
            _explore(machine, leaf, trigger, (*script, True)),
            _explore(machine, leaf, trigger, (*script, False)),
        )
    if went:
        return Step(Leaf(probe.state), tuple(Action(name) for name in probe.done))
    return _refusal(leaf, trigger, Guard(asked[-1]) if asked else None) if isinstance(trigger, Command) else None


def _refusal(leaf: Leaf, command: Command, last_guard: Guard | None) -> Refuse:
    if last_guard is not None:
        if (command, last_guard) not in REFUSED_BY_GUARD:
            raise CannotCompileError(f"{command} in {leaf} has no refusal for when {last_guard} says no")
        return Refuse(REFUSED_BY_GUARD[command, last_guard])
    state = str(leaf)
    while state and state not in REFUSED_BY_PHASE:
        state = state.rpartition(".")[0]
    if not state:
        raise CannotCompileError(f"{command} in {leaf} has no row and no refusal")
    return Refuse(REFUSED_BY_PHASE[state])


def _refuse_what_a_table_cannot_say(machine: Any) -> None:
    around = [machine.prepare_event, machine.before_state_change, machine.after_state_change, machine.finalize_event]
    if any(around) or machine.on_exception or machine.on_final or machine.has_queue:
        raise CannotCompileError("the machine has callbacks of its own or a queue")
    for name in machine.get_nested_state_names():
        state = machine.get_state(name)
        if state.on_enter or state.on_exit or isinstance(state.initial, (list, tuple)):
            raise CannotCompileError(f"the state {name} has callbacks or runs in parallel")
    for transition in machine.get_transitions():
        if transition.prepare or transition.before:
            raise CannotCompileError(f"a transition from {transition.source} acts before it is decided")
        if transition.dest == transition.source:
            raise CannotCompileError(f"a transition from {transition.source} leaves and enters it again")


def fingerprint(rows: tuple[Row, ...] = ROWS) -> str:
    """A digest of all that the compiled table depends on: the declaration and the library's version."""
    import hashlib
    import importlib.metadata

    said = repr((rows, sorted(REFUSED_BY_GUARD.items()), sorted(REFUSED_BY_PHASE.items()), list(Leaf)))
    return hashlib.sha256(f"{importlib.metadata.version('transitions')} {said}".encode()).hexdigest()


@functools.cache
def decisions() -> Decisions:
    """The decision table of this process: the shipped one when it still fits, else compiled from the live machine."""
    shipped = os.path.join(os.path.dirname(__file__), SHIPPED)
    if os.path.isfile(shipped):
        with open(shipped, encoding="utf-8") as file:
            text = json.load(file)
        if text["fingerprint"] == fingerprint():
            return load(text)
    return compile_table()


def dump(table: Decisions) -> dict[str, Any]:
    """The table as plain data, with its fingerprint."""
    rows = {str(leaf): {trigger: _dump(decision) for trigger, decision in row.items()} for leaf, row in table.items()}
    return {"fingerprint": fingerprint(), "decisions": rows}


def load(text: dict[str, Any]) -> Decisions:
    """The table from its plain data; the opposite of `dump`."""
    return {
        Leaf(leaf): {trigger: _load(decision) for trigger, decision in row.items()}
        for leaf, row in text["decisions"].items()
    }


def _dump(decision: Decision) -> Any:
    match decision:
        case Step(target, do):
            return [str(target), *map(str, do)]
        case Ask(guard, yes, no):
            return {"ask": str(guard), "yes": _dump(yes), "no": _dump(no)}
        case Refuse(refusal):
            return {"refuse": str(refusal)}
        case None:
            return None
        case _:
            assert_never(decision)


def _load(text: Any) -> Decision:
    if text is None:
        return None
    if isinstance(text, list):
        return Step(Leaf(text[0]), tuple(map(Action, text[1:])))
    if "ask" in text:
        return Ask(Guard(text["ask"]), _load(text["yes"]), _load(text["no"]))
    return Refuse(Refusal(text["refuse"]))
