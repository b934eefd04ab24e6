"""Every state that the lifecycle can reach, and whether each keeps its promises: breadth first, so that what is found is
found by a shortest path.

States are kept packed, with the step that first led to each of them; edges between states of a run are kept as numbers, for
the two questions that only the whole graph answers: does every run end (no cycle), and is none stuck (no dead end)?

A state that breaks a promise is told and not followed further, so a broken lifecycle ends the exploration early.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import asdict, define, field, frozen

from statechart.action_meaning import ACTIONS, Effector
from statechart.check import Promise, Result
from statechart.decisions import Decisions
from statechart.guard_meaning import GUARDS, Question
from statechart.model import DEPENDABLE, Model, Way
from statechart.promises import MOVES, REST, STATES, OfMoves
from statechart.vocabulary import Action, Command, Fact, Guard
from statechart.world import LEAVES, Bounds, Pick, Picks, World, pack, saying, unpack

Label = tuple[Command | Fact, tuple[Pick, ...]]
Path = list[Label]


@frozen
class OfTheWhole:
    """A promise that only all states together keep."""

    name: str
    promise: str


STUCK: Final = OfTheWhole("no dead end", "in every state of a run something comes that leads on, without luck or rescue")
STILL: Final = tuple(each for each in MOVES if each.still)
ENDLESS: Final = OfTheWhole("termination", "no way goes round in a run: when commands end, idle or closed is reached")


@define(eq=False)
class Exploration:
    """What was found."""

    model: Model
    states: list[bytes] = field(factory=list)
    edges: int = 0
    """Steps between states, those that lead to a known one included."""
    looks: int = 0
    """Triggers looked at in a state, with each pick: edges, and those that change nothing."""
    reached: dict[Way, tuple[int, Label]] = field(factory=dict)
    """Each cell of the table that was seen: the first state where it was, and the step."""
    broken: dict[str, Path] = field(factory=dict)
    """A shortest path to a breach, by the name of the promise."""
    _came: "array[int]" = field(factory=lambda: array("l"))
    _by: list[Label] = field(factory=list)
    _starts: "array[int]" = field(factory=lambda: array("l"))
    _targets: "array[int]" = field(factory=lambda: array("l"))
    _labels: dict[Label, Label] = field(factory=dict)
    _cut: set[int] = field(factory=set)

    def path_to(self, state: int) -> Path:
        """The steps that lead from a new agent to a state, by a shortest way."""
        path: Path = []
        while state:
            path.append(self._by[state])
            state = self._came[state]
        return path[::-1]

    def path_of(self, way: Way) -> Path:
        """The steps that lead through a cell of the table; it is the last one."""
        state, label = self.reached[way]
        return [*self.path_to(state), label]

    @property
    def unreached(self) -> list[Way]:
        """Cells that no state comes to."""
        return [way for way in self.model.ways if way not in self.reached]

    def results(self) -> list[Result]:
        """A result for each promise, as `statechart.check` has them."""
        count = len(self.states)
        told: list[tuple[Promise, int]] = [
            *((each, self.looks) for each in MOVES),
            *((each, count) for each in STATES),
            (STUCK, count),
            (ENDLESS, self.edges),
        ]
        return [
            Result(promise, cases, (in_words(self.broken[promise.name]),) if promise.name in self.broken else ())
            for promise, cases in told
        ]

    @property
    def summary(self) -> str:
        """How much there was, within which bounds."""
        bounds = ", ".join(f"{name} {value}" for name, value in asdict(self.model.bounds).items())
        return f"{len(self.states)} states and {self.edges} edges, {self.looks} looks ({bounds})"

    def breach(self, name: str, path: Path) -> None:
        """Keep the first breach of a promise; the search goes by length, so that is a shortest one."""
        self.broken.setdefault(name, path)


def in_words(path: Iterable[Label]) -> str:
    """A path as its commands and facts, each with what was picked."""
    return " → ".join(saying(trigger, picks) for trigger, picks in path)


def explore(
    table: Decisions,
    bounds: Bounds | None = None,
    guards: Mapping[Guard, Question] = GUARDS,
    actions: Mapping[Action, Effector] = ACTIONS,
) -> Exploration:
    """All that can be reached within *bounds*. *guards* and *actions* are what the table's words mean."""
    model = Model(table, bounds if bounds is not None else Bounds(), guards, actions)
    found = Exploration(model)
    _search(found)
    _find_stuck(found)
    _find_endless(found)
    return found


def moves(model: Model, before: World) -> Iterator[tuple[Way, World, Picks]]:
    """Every way to go on from a world: the way, the world after it (the same one where nothing changes), the picks."""
    state = pack(before)
    for trigger in model.possible(before):
        scripts: list[tuple[int, ...]] = [()]
        while scripts:
            picks = Picks(trigger, model.bounds, scripts.pop())
            way = model.decide(before, trigger, picks)
            after = before
            if way.moves:
                after = unpack(state)
                model.carry_out(after, way, picks)
            scripts += reversed(picks.others)
            yield way, after, picks


def _search(found: Exploration) -> None:
    states, starts = found.states, found._starts
    index: dict[bytes, int] = {}
    _add(found, index, found.model.start(), -1, (Command.WAIT_FOR_IDLE, ()))
    still = {leaf: list(found.model.still(leaf)) for leaf in LEAVES}
    number = 0
    while number < len(states):
        starts.append(len(found._targets))
        if number not in found._cut:
            before = unpack(states[number])
            for way in still[before.place]:
                found.looks += 1
                if way not in found.reached:
                    found.reached[way] = (number, (way.trigger, ()))
                _keeps(found, STILL, number, before, way, before, ())
            _go_on(found, index, number, before)
        number += 1
    starts.append(len(found._targets))


def _go_on(found: Exploration, index: dict[bytes, int], number: int, before: World) -> None:
    """Take every step that is possible in a state."""
    reached, targets = found.reached, found._targets
    for way, after, picks in moves(found.model, before):
        found.looks += 1
        if way not in reached:
            reached[way] = (number, (way.trigger, picks.named))
        if after is before:
            _keeps(found, STILL, number, before, way, after, picks.named)
            continue
        found.edges += 1
        if _keeps(found, MOVES, number, before, way, after, picks.named):
            known = index.get(pack(after))
            if known is None:
                known = _add(found, index, after, number, (way.trigger, picks.named))
            targets.append(known)


def _keeps(
    found: Exploration,
    promises: Iterable[OfMoves],
    number: int,
    before: World,
    way: Way,
    after: World,
    picks: tuple[Pick, ...],
) -> bool:
    """Whether a step keeps *promises*; what it breaks is told."""
    broken = [each.name for each in promises if each.broken(before, way, after)]
    for name in broken:
        found.breach(name, [*found.path_to(number), (way.trigger, picks)])
    return not broken


def _add(found: Exploration, index: dict[bytes, int], world: World, came: int, by: Label) -> int:
    """Note a new state, and look whether it keeps what states promise."""
    state = pack(world)
    number = index[state] = len(found.states)
    found.states.append(state)
    found._came.append(came)
    found._by.append(found._labels.setdefault(by, by))
    for each in STATES:
        if each.broken(world, found.model.bounds):
            found.breach(each.name, found.path_to(number))
            found._cut.add(number)
    return number


def _find_stuck(found: Exploration) -> None:
    """A state of a run where nothing comes that a run may count on."""
    for number, state in enumerate(found.states):
        if LEAVES[state[0]] in REST or number in found._cut:
            continue
        if DEPENDABLE.isdisjoint(found.model.possible(unpack(state))):
            found.breach(STUCK.name, found.path_to(number))
            return


def _find_endless(found: Exploration) -> None:
    """Peel off states of runs that only lead to what was peeled off; where something is left, it goes round."""
    count, starts, targets = len(found.states), found._starts, found._targets
    left = [0] * count
    sources: list[list[int]] = [[] for _ in range(count)]
    rest = frozenset(number for number, leaf in enumerate(LEAVES) if leaf in REST)
    busy = bytearray(state[0] not in rest for state in found.states)
    for state in range(count):
        for target in targets[starts[state] : starts[state + 1]] if busy[state] else ():
            if busy[target]:
                left[state] += 1
                sources[target].append(state)
    peeled = [state for state in range(count) if busy[state] and not left[state]]
    for state in peeled:
        busy[state] = False
        for source in sources[state]:
            left[source] -= 1
            if not left[source]:
                peeled.append(source)
    for state in range(count):
        if busy[state] and (ring := _around(found, busy, state)):
            found.breach(ENDLESS.name, [*found.path_to(state), *ring])
            return


def _around(found: Exploration, among: bytearray, first: int) -> Path:
    """A shortest way from a state through states *among* these back to it; empty when there is none."""
    index = {state: number for number, state in enumerate(found.states) if among[number]}
    ways: dict[int, Path] = {first: []}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for way, after, picks in moves(found.model, unpack(found.states[state])):
            target = index.get(pack(after))
            if target is None or not way.moves:
                continue
            path = [*ways[state], (way.trigger, picks.named)]
            if target == first:
                return path
            if target not in ways:
                ways[target] = path
                waiting.append(target)
    return []
