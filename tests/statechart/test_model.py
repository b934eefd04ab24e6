"""The exploration of the lifecycle: it finds nothing in ours, and in broken ones what was broken, by a shortest path."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from statechart import INTERNAL, NO_OP, ROWS, Action, Command, Fact, Guard, Leaf, Row, decisions
from statechart.action_meaning import ACTIONS
from statechart.check import Declaration
from statechart.explore import ENDLESS, STUCK, Exploration, explore, in_words
from statechart.guard_meaning import GUARDS
from statechart.model import SAYS, Model
from statechart.promises import MOVES, STATES
from statechart.vocabulary import RUNNING
from statechart.world import LIVES, VECTOR, Bounds, Free, Picks, World, forget, pack, unpack

SMALL = Bounds(queue=2, commands=3, turns=2, attempts=2, calls=1)
A, C, F, G = Action, Command, Fact, Guard
Rows = tuple[Row, ...]


def the(trigger: Command | Fact, source: str, target: str | None, nth: int = 0) -> Row:
    """The row for *trigger* that leads from *source* to *target*."""
    return [row for row in ROWS if row.trigger is trigger and source in row.source and row.target == target][nth]


def changed(row: Row, *more: Row, **changes: object) -> Rows:
    return (*(evolve(each, **changes) if each is row else each for each in ROWS), *more)


def without(row: Row, *more: Row) -> Rows:
    return (*(each for each in ROWS if each is not row), *more)


def broken(rows: Rows = ROWS, **meanings: Any) -> Exploration:
    return explore(Declaration(rows).table, SMALL, **meanings)


CANCEL = the(C.CANCEL, RUNNING, Leaf.CANCELLING)
BATCH = the(F.ADVANCE, Leaf.TOOLS, INTERNAL)
STEER = the(C.STEER, Leaf.IDLE, INTERNAL)
UNWOUND, WAITING = the(F.ADVANCE, Leaf.CANCELLING, Leaf.SETTLING), the(F.ADVANCE, Leaf.CANCELLING, NO_OP)
FINISH = the(F.ADVANCE, Leaf.SETTLING, INTERNAL)
ASK_STOP = the(F.ADVANCE, Leaf.STEERING, INTERNAL)
BACKOFF = the(F.BACKOFF_ELAPSED, Leaf.RETRY, Leaf.REQUESTING)
PROJECTED = the(F.PROJECTED, Leaf.PROJECTING, Leaf.REQUESTING)
COMPLETE = the(F.ADVANCE, Leaf.FOLLOW_UP, Leaf.SETTLING, -1)
PROMPT = the(C.PROMPT, Leaf.IDLE, Leaf.OPENING)
LATE = next(row for row in ROWS if row.trigger is F.SUMMARIZED and Leaf.CANCELLING in row.source)
TO_CLOSED, TO_IDLE = the(F.SETTLED, Leaf.SETTLING, Leaf.CLOSED), the(F.SETTLED, Leaf.SETTLING, Leaf.IDLE)
STEERED = the(F.ADVANCE, Leaf.FOLLOW_UP, Leaf.OPENING)
FOLLOWED = the(F.ADVANCE, Leaf.FOLLOW_UP, Leaf.OPENING, 1)
ELSEWHERE = tuple(state for state in STEER.source if state != Leaf.CANCELLING)


def forgetful(w: World, pick: Picks) -> None:
    """A compaction that does not remember that this turn has tried it."""
    ACTIONS[A.START_COMPACTION](w, pick)
    w.threshold_tried = 0


def patient(w: World, pick: Picks) -> object:
    """A retry that does not count."""
    return pick(Free.PASSING)


OPENED = "prompt(fits)"
ASKING = f"{OPENED} → advance(not spent, not due) → projected → advance"
STREAMING = f"{ASKING} → response_started"
IN_TOOLS = f"{STREAMING} → response_completed(fits, calls=1, not truncated)"
ANSWER = f"{STREAMING} → response_completed(fits, calls=0)"
RETRIED = f"{ASKING} → response_failed(not overflow, passing) → backoff_elapsed"

FAULTS: list[tuple[str, Callable[[], Exploration], str]] = [
    ("stops", lambda: broken((*ROWS, Row(C.CANCEL, Leaf.TOOLS, NO_OP))), f"{IN_TOOLS} → cancel"),
    (
        "drain points",
        lambda: broken(changed(BATCH, do=(A.ADVANCE_BATCH, A.ACCEPT_STEERING))),
        IN_TOOLS.replace("(not spent, not due)", "(not spent, not due) → steer(fits)") + " → advance",
    ),
    ("decided once", lambda: broken(changed(UNWOUND, do=(A.COMPLETE, *UNWOUND.do))), f"{OPENED} → cancel → advance"),
    (
        "termination",
        lambda: broken(actions={**ACTIONS, A.START_COMPACTION: forgetful}),
        f"{OPENED} → advance(not spent, due) → advance → summarized(not shrinks) → advance(not spent, due)",
    ),
    ("no dead end", lambda: broken(changed(BACKOFF, do=BACKOFF.do[:-1])), RETRIED),
    (
        "finished once",
        lambda: broken(changed(FINISH, do=(A.FINISH, A.AWAIT_DELIVERY))),
        f"{OPENED} → advance(spent) → advance → advance",
    ),
    (
        "delivered first",
        lambda: broken(changed(PROJECTED, do=(*PROJECTED.do[:-1], A.SEND_REQUEST))),
        f"{OPENED} → advance(not spent, not due) → projected",
    ),
    (
        "bounded",
        lambda: broken(guards={**GUARDS, G.RETRYABLE: patient}),
        f"{RETRIED} → advance → response_failed(not overflow, passing)",
    ),
    ("cancel ends", lambda: broken(changed(CANCEL, do=(A.ACCEPT_CANCEL, *CANCEL.do[2:]))), f"{OPENED} → cancel"),
    (
        "nothing open",
        lambda: broken(tuple(row for row in changed(UNWOUND, when=()) if row is not WAITING)),
        f"{OPENED} → advance(not spent, not due) → cancel → advance",
    ),
    ("answered", lambda: broken(without(LATE)), f"{OPENED} → advance(not spent, due) → advance → cancel → summarized"),
    (
        "closed",
        lambda: broken(tuple(row for row in changed(TO_IDLE, unless=()) if row is not TO_CLOSED)),
        f"{OPENED} → close → advance → advance → settled",
    ),
    (
        "follow-ups",
        lambda: broken(tuple(row for row in changed(FOLLOWED, unless=()) if row is not STEERED)),
        ANSWER.replace(OPENED, f"{OPENED} → follow_up(fits)") + " → advance(not stop_hook) → steer(fits) → advance",
    ),
    (
        "answer fits",
        lambda: broken(
            tuple(row for row in changed(COMPLETE, unless=COMPLETE.unless[:-1]) if G.OUTPUT_WRONG not in row.when)
        ),
        f"{ANSWER} → advance(not stop_hook) → advance(output) → output_checked(wrong) → advance",
    ),
    (
        "conserved",
        lambda: broken(changed(STEER, Row(C.STEER, Leaf.CANCELLING, NO_OP), source=ELSEWHERE)),
        f"{OPENED} → cancel → steer",
    ),
    ("begins", lambda: broken((*ROWS, evolve(PROMPT, source=Leaf.STEERING))), f"{ANSWER} → {OPENED}"),
    (
        "one thing",
        lambda: broken(changed(ASK_STOP, do=(A.ASK_STOP, A.AWAIT_DELIVERY))),
        f"{ANSWER} → advance(stop_hook) → advance(stop_hook)",
    ),
    (
        "outcome held",
        lambda: broken(changed(COMPLETE, do=COMPLETE.do[1:])),
        f"{ANSWER} → advance(not stop_hook) → advance(not output)",
    ),
    (
        "stays stopped",
        lambda: broken(changed(WAITING, target=INTERNAL, do=(A.SEND_REQUEST,))),
        f"{OPENED} → advance(not spent, not due) → cancel → advance",
    ),
]


@pytest.mark.parametrize(("name", "fault", "path"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_planted_fault_is_found_by_a_shortest_path(name: str, fault: Callable[[], Exploration], path: str):
    """Each promise is broken by a lifecycle that was broken for it, and the path that shows it is this one."""
    assert in_words(fault().broken[name]) == path


def test_each_promise_has_a_planted_fault():
    """No promise is believed that was never seen to be broken."""
    promises = {each.name for each in (*MOVES, *STATES, STUCK, ENDLESS)}

    assert {name for name, _, _ in FAULTS} == promises


@pytest.fixture(scope="module")
def ours() -> Exploration:
    return explore(decisions(), Bounds(queue=2, commands=4, turns=2, attempts=2, calls=2))


def test_the_lifecycle_keeps_its_promises(ours: Exploration):
    """Nothing is broken in any state that our own lifecycle reaches."""
    assert {name: in_words(path) for name, path in ours.broken.items()} == {}
    assert all(result.cases > 1000 and result.violations == () for result in ours.results())


def test_the_exploration_is_the_same_each_time(ours: Exploration):
    """States, their order and the paths to them depend on nothing but the table and the bounds."""
    again = explore(decisions(), ours.model.bounds)

    assert again.states == ours.states
    assert [again.path_to(state) for state in range(0, 5000, 500)] == [ours.path_to(state) for state in range(0, 5000, 500)]


def test_larger_bounds_reach_more():
    """Each bound bounds something."""
    least = Bounds(queue=1, commands=2, turns=1, attempts=1, calls=1)
    count = len(explore(decisions(), least).states)
    larger = {name: len(explore(decisions(), evolve(least, **{name: 2})).states) for name in ("turns", "attempts", "calls")}

    assert all(states > count for states in larger.values()), (count, larger)
    assert len(explore(decisions(), evolve(least, commands=3)).states) > count
    assert len(explore(decisions(), evolve(least, commands=3, queue=2)).states) > len(
        explore(decisions(), evolve(least, commands=3)).states
    )


def test_a_path_leads_where_it_says(ours: Exploration):
    """Played again, step by step, each path ends in the state that it is the path to."""
    model = ours.model
    for number in range(0, len(ours.states), 97):
        world = model.start()
        for trigger, picked in ours.path_to(number):
            picks = Picks(trigger, model.bounds, tuple(value for _, value in picked))
            model.carry_out(world, model.decide(world, trigger, picks), picks)
            world = unpack(pack(world))
        assert pack(world) == ours.states[number]


def test_every_word_has_a_meaning():
    """Each guard, each action and each fact of the vocabulary is known to the model, and nothing else."""
    assert (set(GUARDS), set(ACTIONS), set(SAYS)) == (set(Guard), set(Action), set(Fact))


@pytest.mark.parametrize("leaf", Leaf)
def test_what_means_nothing_is_forgotten(leaf: Leaf):
    """In each leaf the numbers that live elsewhere are 0 afterwards, and the others are as they were."""
    world = World(leaf, *range(1, len(VECTOR)))
    forget(world)

    assert [name for name in VECTOR if not getattr(world, name)] == [
        name for name in VECTOR if name in LIVES and leaf not in LIVES[name]
    ]


def test_a_state_holds_the_vector_and_nothing_else():
    """Packing keeps each number of the vector; what one step did is in no state."""
    world = World(Leaf.TOOLS, *range(1, len(VECTOR)), begun=1, started=2, dropped=3)
    back = unpack(pack(world))

    assert [getattr(back, name) for name in VECTOR] == [getattr(world, name) for name in VECTOR]
    assert (back.begun, back.started, back.dropped) == (0, 0, 0)


def test_a_step_is_told_each_answer_once():
    """Every combination of picks comes once; a second look at the same pick is no new one."""
    seen, scripts = [], [()]
    while scripts:
        picks = Picks(Command.PROMPT, SMALL, scripts.pop())
        if picks(Free.CALLS, 0, 2) and picks(Free.CALLS, 0, 2) < 2:
            picks(Free.FITS)
        seen.append(picks.named)
        scripts += picks.others

    assert sorted(seen) == [
        ((Free.CALLS, 0),),
        ((Free.CALLS, 1), (Free.FITS, 0)),
        ((Free.CALLS, 1), (Free.FITS, 1)),
        ((Free.CALLS, 2),),
    ]


def test_deciding_changes_nothing(ours: Exploration):
    """Guards are pure: after all of them were asked in a state, it is the same."""
    model: Model = ours.model
    for state in ours.states[::50]:
        world = unpack(state)
        for trigger in model.possible(world):
            model.decide(world, trigger, Picks(trigger, model.bounds))
        assert pack(world) == state
