"""Random walks over the lifecycle, and what an interpreter says to them: the ground on which interpreters are compared.

A walk starts in the initial place and is a list of events; an event is a trigger and the guards that say yes to it. Every
interpreter takes the same walks with a state of its own, so that a wrong step shows in what follows as well. Of each event
it says where it is then, what it did in which order, whether it had a transition at all, and which places it left and
entered: without the last an internal transition could not be told from one that leaves and enters again.

A walk by chance alone hardly ever leaves the first phases, since a quarter of what can happen ends a run: of 20,000 such
events none came to the tools. So a walk sets out again and again for a place drawn by lot, on the shortest way that the
table knows. What it does on arrival is chance, and a branch of a decision is the likelier the less often it was drawn; some
events are drawn blindly, any trigger with any answers.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from attrs import evolve, frozen

from statechart import Ask, Decision, Decisions, Leaf, Row, Step
from statechart.decisions import TRIGGERS
from statechart.exports.structure import Structure, Transition
from statechart.machine import PhaseMachine, ask
from statechart.table import INTERNAL, NO_OP, ROWS
from statechart.vocabulary import RUNNING, TURN, Action, Command, Guard

LENGTH = 40
AFTER_THE_END = 3
BLIND_SHARE = 0.2
SETS_OUT = 0.2
PATIENCE = 10  # times the events asked for, when a branch is not reached
SHOWN = 5

SEED = int(os.environ.get("PHASEKERNEL_WALK_SEED", "") or random.SystemRandom().randrange(2**32))
EVENTS = int(os.environ.get("PHASEKERNEL_WALK_EVENTS", "") or 10_000)


@frozen
class Event:
    """A trigger, and the guards that say yes to it; all others say no."""

    trigger: str
    yes: tuple[str, ...]


@frozen
class Outcome:
    """What an interpreter says to an event; *crossed* are the places left (`-`) and entered (`+`), in their order."""

    state: str
    did: tuple[str, ...]
    went: bool
    crossed: tuple[str, ...]


Walk = tuple[Event, ...]
Told = list[list[Outcome]]
"""The outcomes of the events of each walk."""


class Walker:
    """A model of the live machine: it answers guards for the event at hand and notes all that is done."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.yes: tuple[str, ...] = ()
        self.did: list[str] = []
        self.crossed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("-", "+")):
            return lambda: self.crossed.append(name)
        if name in set(Guard):
            return lambda: name in self.yes
        if name in set(Action):
            return lambda: self.did.append(name)
        raise AttributeError(name)

    def take(self, event: Event, machine: PhaseMachine) -> Outcome:
        self.yes, self.did, self.crossed = event.yes, [], []
        went = ask(self, event.trigger, machine)
        return Outcome(self.state, tuple(self.did), bool(went), tuple(self.crossed))


def noting(rows: tuple[Row, ...] = ROWS) -> PhaseMachine:
    """The machine of *rows*, which also tells its model of each place that it leaves or enters."""
    machine = PhaseMachine(rows)
    for place in machine.get_nested_state_names():
        machine.get_state(place).on_exit.append(f"-{place}")
        machine.get_state(place).on_enter.append(f"+{place}")
    return machine


Way = tuple[tuple[str, frozenset[tuple[str, bool]]], ...]
"""Triggers and the answers that they need, one after the other."""


def ways(table: Decisions) -> dict[tuple[str, str], Way]:
    """The shortest way from each leaf to each other one that can be reached from it."""
    found: dict[tuple[str, str], Way] = {}
    for start in map(str, Leaf):
        reached: dict[str, Way] = {start: ()}
        for here in (queue := [start]):
            for trigger, decision in table[Leaf(here)].items():
                for answers, end in _ends(decision):
                    if isinstance(end, Step) and end.target not in reached:
                        reached[str(end.target)] = (*reached[here], (trigger, answers))
                        queue.append(str(end.target))
        found |= {(start, there): way for there, way in reached.items() if way}
    return found


def stroll(machine: PhaseMachine, seed: int, table: Decisions | None = None) -> Iterator[list[tuple[Event, Outcome]]]:
    """Walks without end over *machine*, each event with what the machine did; *table* is its map, where there is one."""
    chance = random.Random(seed)
    drawn: Counter[tuple[str, Way]] = Counter()
    known = ways(table) if table else {}
    while True:
        walker, walk, ahead = Walker(str(machine.initial)), [], ()
        left = LENGTH
        while left > 0:
            if not ahead and chance.random() < SETS_OUT:
                ahead = known.get((walker.state, str(chance.choice(list(Leaf)))), ())
            ahead = ahead or _drawn(_choices(machine, walker.state, table), walker.state, chance, drawn)
            (trigger, needs), ahead = ahead[0], ahead[1:]
            answers = {str(guard): chance.random() < 0.5 for guard in Guard} | dict(needs)
            event = Event(trigger, tuple(guard for guard, answer in answers.items() if answer))
            walk.append((event, walker.take(event, machine)))
            left = min(left - 1, AFTER_THE_END) if walker.state == Leaf.CLOSED else left - 1
        yield walk


def _choices(machine: PhaseMachine, state: str, table: Decisions | None) -> list[Way]:
    """What is known in *state*: each trigger with each set of answers that makes a difference, as far as there is a map."""
    if not table:
        return [((trigger, frozenset()),) for trigger in sorted(set(machine.get_triggers(state)))]
    return [((trigger, answers),) for trigger, decision in table[Leaf(state)].items() for answers, _ in _ends(decision)]


def _drawn(choices: list[Way], state: str, chance: random.Random, drawn: Counter[tuple[str, Way]]) -> Way:
    if not choices or chance.random() < BLIND_SHARE:
        return ((str(chance.choice(TRIGGERS)), frozenset()),)
    (choice,) = chance.choices(choices, [1 / (1 + drawn[state, each]) for each in choices])
    drawn[state, choice] += 1
    return choice


Branch = tuple[str, str, frozenset[tuple[str, bool]]]
"""A leaf, a trigger, and the answers that lead to one end of the decision."""


def branches(table: Decisions) -> set[Branch]:
    """Every end of every decision."""
    return {
        (str(leaf), trigger, answers)
        for leaf, row in table.items()
        for trigger, decision in row.items()
        for answers, _ in _ends(decision)
    }


def _ends(
    decision: Decision, so_far: frozenset[tuple[str, bool]] = frozenset()
) -> Iterator[tuple[frozenset[tuple[str, bool]], Decision]]:
    if isinstance(decision, Ask):
        yield from _ends(decision.yes, so_far | {(str(decision.guard), True)})
        yield from _ends(decision.no, so_far | {(str(decision.guard), False)})
    else:
        yield so_far, decision


def follow(table: Decisions, state: str, event: Event) -> tuple[Decision, Branch]:
    """The end of the decision that *event* comes to in *state*, and by which branch."""
    decision, answers = table[Leaf(state)].get(event.trigger), set()
    while isinstance(decision, Ask):
        answers.add((str(decision.guard), str(decision.guard) in event.yes))
        decision = decision.yes if decision.guard in event.yes else decision.no
    return decision, (state, event.trigger, frozenset(answers))


@frozen
class Ground:
    """Walks, what the live machine told of them, and the branches of the table that they took."""

    walks: list[Walk]
    told: Told
    taken: set[Branch]

    def __len__(self) -> int:
        return sum(map(len, self.walks))


def walk_over(rows: tuple[Row, ...], seed: int, events: int, table: Decisions | None = None) -> Ground:
    """At least *events* events; and more, within reason, until each branch of *table* was taken."""
    machine = noting(rows)
    wanted = branches(table) if table else set()
    walks, told, taken, count = [], [], set(), 0
    for walk in stroll(machine, seed, table):
        walks.append(tuple(event for event, _ in walk))
        told.append([outcome for _, outcome in walk])
        states = [str(machine.initial), *(outcome.state for outcome in told[-1])]
        if table:
            taken |= {follow(table, state, event)[1] for state, event in zip(states, walks[-1], strict=False)} & wanted
        count += len(walk)
        if count >= events and (taken == wanted or count >= PATIENCE * events):
            return Ground(walks, told, taken)
    raise AssertionError("a stroll has no end")


def by_table(table: Decisions, walks: Sequence[Walk]) -> list[list[tuple[str, tuple[str, ...], bool]]]:
    """What the compiled table says to *walks*: state, actions and whether there is a step."""
    told = []
    for walk in walks:
        state, said = str(Leaf.IDLE), []
        for event in walk:
            decision, _ = follow(table, state, event)
            if isinstance(decision, Step):
                state = str(decision.target)
                said.append((state, tuple(map(str, decision.do)), True))
            else:
                said.append((state, (), False))
        told.append(said)
    return told


def differences(over: Ground, theirs: Iterable[list[Outcome]]) -> Iterator[str]:
    """Where *theirs* is not what the live machine told, event by event, in words."""
    for number, (walk, ours, others) in enumerate(zip(over.walks, over.told, theirs, strict=True)):
        for place, (event, our, their) in enumerate(zip(walk, ours, others, strict=True)):
            if our != their:
                yield f"walk {number}, event {place}, {event.trigger} {event.yes}:\n  live  {our}\n  other {their}"


def shown(found: list[str]) -> str:
    """The first few differences and how to see them again."""
    return "\n".join([f"{len(found)} differences; PHASEKERNEL_WALK_SEED={SEED} shows them again", *found[:SHOWN]])


def declaration(seed: int) -> tuple[Row, ...]:
    """Rows that nobody would write: from and to regions, onto themselves, several enabled at once."""
    chance = random.Random(seed)
    places = [*map(str, Leaf), RUNNING, TURN]
    rows = []
    for trigger in TRIGGERS:
        for source in chance.choices(places, k=chance.randint(4, 12)):
            outside = [place for place in places if not place.startswith(f"{source}.")]
            asked = chance.sample(list(Guard), chance.randint(0, 3))
            middle = chance.randint(0, len(asked))
            rows.append(
                Row(
                    trigger,
                    source,
                    chance.choice([INTERNAL, NO_OP, source, *chance.sample(outside, 4)]),
                    tuple(chance.sample(list(Action), chance.randint(0, 4))),
                    when=tuple(asked[:middle]),
                    unless=tuple(asked[middle:]),
                )
            )
    return tuple(chance.sample(rows, len(rows)))


def _with(trigger: str, source: str, change: Callable[[Transition], Transition]) -> Callable[[Structure], Structure]:
    """Put *change* in the place of the first transition of *trigger* in *source*."""

    def plant(structure: Structure) -> Structure:
        rows = list(structure.transitions)
        position = next(at for at, each in enumerate(rows) if (each.trigger, each.source) == (trigger, source))
        rows[position] = change(rows[position])
        return evolve(structure, transitions=tuple(rows))

    return plant


def _without(trigger: str, source: str) -> Callable[[Structure], Structure]:
    """Leave out the transitions of *trigger* in *source*."""

    def plant(structure: Structure) -> Structure:
        kept = tuple(each for each in structure.transitions if (each.trigger, each.source) != (trigger, source))
        return evolve(structure, transitions=kept)

    return plant


LET_THROUGH = Transition(Command.RESET, Leaf.SETTLING, None, (), (Action.RESET,))
FAULTS: dict[str, Callable[[Structure], Structure]] = {
    "a swapped target": _with("backoff_elapsed", Leaf.RETRY, lambda row: evolve(row, target=Leaf.PROJECTING)),
    "a dropped guard": _with("response_completed", Leaf.STREAMING, lambda row: evolve(row, needs=())),
    "a guard turned round": _with(
        "settled", Leaf.SETTLING, lambda row: evolve(row, needs=tuple((guard, not answer) for guard, answer in row.needs))
    ),
    "a doubled action": _with("projected", Leaf.PROJECTING, lambda row: evolve(row, do=(row.do[0], *row.do))),
    "a dropped action": _with("prompt", Leaf.IDLE, lambda row: evolve(row, do=row.do[:-1])),
    "actions in another order": _with("halted", Leaf.CANCELLING, lambda row: evolve(row, do=row.do[::-1])),
    "an internal transition of a leaf made external": _with(
        "advance", Leaf.REQUESTING, lambda row: evolve(row, target=row.source)
    ),
    "an internal transition of a region made external": _with("steer", RUNNING, lambda row: evolve(row, target=row.source)),
    "a dropped no-op": _without("cancel", Leaf.IDLE),
    "a dropped fact": _without("advance", Leaf.TOOLS),
    "a refused command let through": lambda it: evolve(it, transitions=(*it.transitions, LET_THROUGH)),
    "a machine that starts elsewhere": lambda it: evolve(it, initial=str(Leaf.CANCELLING)),
}
"""What may be wrong with an export, planted in what it is written from."""
