"""The model of the lifecycle (`statechart.model`) and the real core take the same steps, and a meaning of the model that is
not the core's is found out. The paths to all cells of the table are played in `test_cells`.
"""

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statechart import Action, Command, Fact, Guard, Leaf, Step, decisions
from statechart.action_meaning import ACTIONS, nothing
from statechart.explore import Exploration, Path, explore, moves
from statechart.guard_meaning import GUARDS
from statechart.model import DEPENDABLE, Model, Way
from statechart.world import LARGEST, VECTOR, Bounds, Picks, World, pack, unpack
from tests.kernel.model_player import Player

SMALL = Bounds(queue=2, commands=4, turns=2, attempts=2, calls=2)
RARE = (Command.CLOSE, Command.CANCEL, Fact.HALTED, Fact.DEADLINE_ELAPSED)
WIDE = Bounds(queue=3, commands=LARGEST, turns=3, attempts=3, calls=3)


@pytest.fixture(scope="module")
def explored() -> Exploration:
    return explore(decisions(), SMALL)


def walk(chance: random.Random, length: int = 80) -> set[str]:
    """The names of the cells on a random way through model and core: mostly facts that a run may count on, at times
    anything that may come.
    """
    model, player, seen = Model(decisions(), WIDE), Player(WIDE, chance.choice), set()
    state = pack(model.start())
    for _ in range(length):
        world = unpack(state)
        world.budget = LARGEST
        if not model.possible(world):
            break  # closed: only what does nothing is left
        anything = [trigger for trigger in model.possible(world) if trigger not in RARE or chance.random() < 0.1]
        likely = [trigger for trigger in anything if trigger in DEPENDABLE]
        trigger = chance.choice(likely if likely and chance.random() < 0.8 else anything)
        way, after, picks = chance.choice([move for move in moves(model, world) if move[0].trigger is trigger])
        state = pack(after)
        assert player.step((trigger, picks.named)).name == way.name
        seen.add(way.name)
        if chance.random() < 0.1:
            player.speak_late()
    return seen


def test_random_walks_go_the_same_way() -> None:
    """Whatever comes in whatever order, model and core have the same numbers after each step, and what the core asked for
    is what the model counted. Every leaf but `closed`, where a walk ends, is gone on from, and many cells are seen.
    """
    seen: set[str] = set()

    @settings(max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32))
    def walks(seed: int) -> None:
        seen.update(walk(random.Random(seed)))

    walks()
    assert {name.rpartition(" in ")[2].partition(" when ")[0] for name in seen} == set(map(str, Leaf)) - {"closed"}
    assert len(seen) > 150


def steps(explored: Exploration, states: Iterable[int]) -> Iterator[tuple[Way, Path]]:
    """Each step that can be taken in these states, with a shortest path to it; the step is the last one."""
    for number in states:
        path = explored.path_to(number)
        for way, _, picks in moves(explored.model, unpack(explored.states[number])):
            yield way, [*path, (way.trigger, picks.named)]


def kinds(explored: Exploration) -> list[int]:
    """A state for each combination of all numbers but those that commands change: the queues, the budget, the tail."""
    kept = [
        VECTOR.index(name) for name in VECTOR if name not in ("steering", "follow_up", "budget", "tail", "close_wanted")
    ]
    found: dict[bytes, int] = {}
    for number, state in enumerate(explored.states):
        found.setdefault(bytes(state[place] for place in kept), number)
    return list(found.values())


def test_every_fact_in_every_kind_of_state(explored: Exploration) -> None:
    """Paths to a state of each kind, and from there each fact that may come, with whatever it may find out."""
    count = 0
    for way, path in steps(explored, kinds(explored)):
        if isinstance(way.trigger, Fact):
            player = Player(SMALL)
            assert [player.step(label) for label in path][-1].name == way.name
            count += 1

    assert count > 1500


def parts(explored: Exploration, word: Guard | Action, **meanings: Any) -> bool:
    """Whether the model with these meanings goes another way than the core, somewhere where *word* matters."""
    shortest = ((way, explored.path_of(way)) for way in explored.model.ways)
    for way, path in itertools.chain(shortest, steps(explored, range(0, len(explored.states), 7))):
        asked = {guard for guard, _ in way.answers}
        if word in asked or (isinstance(way.decision, Step) and word in way.decision.do):
            player = Player(SMALL, **meanings)
            try:
                for label in path:
                    player.step(label)
            except AssertionError:
                return True
    return False


@pytest.mark.parametrize("guard", Guard)
def test_a_guard_that_means_something_else_is_found(guard: Guard, explored: Exploration) -> None:
    """A model in which a guard says the opposite does not go where the core goes."""
    asks = GUARDS[guard]

    def opposite(world: World, pick: Picks) -> bool:
        return not asks(world, pick)

    assert parts(explored, guard, guards={**GUARDS, guard: opposite})


@pytest.mark.parametrize("action", [action for action in Action if ACTIONS[action] is not nothing])
def test_an_action_that_means_nothing_is_found(action: Action, explored: Exploration) -> None:
    """A model in which an action does nothing does not go where the core goes."""
    assert parts(explored, action, actions={**ACTIONS, action: nothing})


def test_nothing_is_what_no_guard_asks_about() -> None:
    """The actions without a meaning are those that only tell, record, or replace what the next request is made with."""
    assert {action for action in Action if ACTIONS[action] is nothing} == {
        Action.ANNOUNCE_PHASE, Action.CONFIGURE, Action.STAGE_CONFIGURATION, Action.CLOSE, Action.RECORD_LISTENER_FAILURE,
        Action.ABANDON_LISTENERS,
    }  # fmt: skip


def test_late_reports_are_no_steps(explored: Exploration) -> None:
    """What was abandoned may report as it likes: no step is decided, in this run or the next, and nothing changes."""
    player = Player(SMALL)
    (way,) = [way for way in explored.model.ways if (way.leaf, way.trigger) == (Leaf.CANCELLING, Fact.GRACE_ELAPSED)]
    path = explored.path_of(next(w for w in explored.model.ways if (w.leaf, w.trigger) == (Leaf.TOOLS, Fact.TOOL_SETTLED)))
    for label in [*path[:-1], (Command.CANCEL, ()), (way.trigger, ())]:
        player.step(label)

    assert player.late
    player.speak_late()
    assert not player.late
