"""An agent as small numbers: what the exhaustive check knows of a kernel's state, and of the world around it.

A `World` is a vector of small numbers. Some stand for what the core remembers, some for what its surroundings remember
(whether an `advance` is on its way, which timer has elapsed, how many commands are still to come). What the state is asked
in one leaf only is forgotten in the others (`LIVES`), so that two worlds which nothing can tell apart are one state.

What a step finds out and nobody remembers (how long the conversation is, what a model says, whether a failure may pass)
is not in the vector: a step *picks* it, and the exploration follows every pick.
"""

from collections.abc import Iterable
from enum import StrEnum
from operator import attrgetter
from typing import Final

from attrs import define, fields_dict, frozen

from statechart.vocabulary import RUNNING, Command, Fact, Leaf

LARGEST: Final = 250
"""No number of a state is larger: each is a byte."""


@frozen
class Bounds:
    """How far the exploration goes. Each is a limit that the kernel has too, but for `commands`."""

    queue: int = 2
    """Messages in both queues together."""
    commands: int = 8
    """Commands that change something, and failures of listeners, in the whole life of an agent."""
    turns: int = 3
    """Turns of a run (`max_turns`)."""
    attempts: int = 3
    """Requests of a turn (`retry.max_attempts`)."""
    calls: int = 3
    """Tool calls of a response."""


class Free(StrEnum):
    """What a step may find out, one way or the other. True or false, but for those in `NUMBERS`."""

    FITS = "fits"  # the transcript has room for what comes
    COMPACTABLE = "compactable"  # something is older than the kept turns
    DUE = "due"  # the context is near the window, and can be compacted
    OVERFLOW = "overflow"  # the request did not fit, and compaction is on
    PASSING = "passing"  # the failure may pass, and retry is on
    CALLS = "calls"  # tool calls of the response
    TRUNCATED = "truncated"  # it was cut off at the output limit
    SEQUENTIAL = "sequential"  # the calls run one after the other
    UNFIT = "unfit"  # a call's arguments are wrong, or its hook blocks it
    STARTED = "started"  # calls that are ready and hold no key in common with one that runs or comes before
    TERMINATES = "terminates"  # the result says that the run need not go on
    RESULT_HOOK = "result_hook"  # after_tool_result is to hear of the result
    STOP_HOOK = "stop_hook"  # there is a should_stop_after_turn
    STOPS = "stops"  # and it says yes
    SPENT = "spent"  # usage_limit allows no further request
    OUTPUT = "output"  # the final answer must fit something
    WRONG = "wrong"  # and it does not
    SHRINKS = "shrinks"  # the summary makes the context smaller
    ALL = "all"  # a drain point takes all items of its queue, not one
    FAILS_RUN = "fails_run"  # the policy, and the event that the listener failed at, fail the run
    STEERS = "steers"  # the item to take out waits as steering
    FOLLOWS = "follows"  # or as a follow-up


NUMBERS: Final = frozenset({Free.CALLS, Free.STARTED})
EMPTY, ANSWERED, OWED = 0, 1, 2
UNDECIDED, WELL, ILL = 0, 1, 2
MANUAL, THRESHOLD, OVERFLOW = 1, 2, 3
NOTHING, PROJECTION, REQUEST, STOP_HOOK, SUMMARY, CHECK = 0, 1, 2, 3, 4, 5
NO_TIMER, TICKING, OVER = 0, 1, 2
UNASKED, GO_ON, STOP = 0, 1, 2
UNCHECKED, RIGHT, WRONG = 0, 1, 2


@define(eq=False)
class World:
    """The state vector, and after a blank line what one step did, which is in no state."""

    place: Leaf = Leaf.IDLE
    steering: int = 0
    follow_up: int = 0
    tail: int = EMPTY  # how the conversation ends; calls count as their results, since those are promised
    close_wanted: int = 0
    # of the run
    run: int = 0  # there is one
    outcome: int = UNDECIDED
    finished: int = 0  # run.finished was published, so `settled` will come
    grace: int = NO_TIMER
    deadline: int = 0  # may still elapse
    halted: int = 0  # the loop or its task went away
    turn: int = 0
    drained: int = 0  # steering was taken in the first turn, or its time is over
    # of the turn
    turn_open: int = 0
    attempts: int = 0
    overflow_tried: int = 0
    threshold_tried: int = 0
    owed: int = 0  # a call that is closed owes the model its result
    stop: int = UNASKED
    answer: int = UNCHECKED
    message: int = 0  # a response is open
    backoff: int = NO_TIMER  # over: the timer was stopped, and retry.ended is still to be said
    compaction: int = 0  # why
    # what is going on and will report
    going: int = NOTHING
    preparing: int = 0
    running: int = 0
    hooks: int = 0
    # calls that nothing is going on for
    sequential: int = 0
    waiting: int = 0
    announced: int = 0
    ready: int = 0
    hooks_due: int = 0
    # of the surroundings
    pending: int = 0  # an `advance` is on its way
    budget: int = 0  # commands left

    begun: int = 0
    decided: int = 0
    told: int = 0  # run.finished
    ended: int = 0
    started: int = 0
    collided: int = 0  # something was started beside what must be over first
    steered: int = 0
    followed: int = 0
    dropped: int = 0


_HIDDEN: Final = ("begun", "decided", "told", "ended", "started", "collided", "steered", "followed", "dropped")
VECTOR: Final = tuple(name for name in fields_dict(World) if name not in _HIDDEN)
"""The names of the state vector, in their order. The leaf, `place`, stands first, as its number in `LEAVES`."""

LEAVES: Final = tuple(Leaf)
_NUMBER: Final = {leaf: number for number, leaf in enumerate(LEAVES)}
_rest: Final = attrgetter(*VECTOR[1:])

_RUN: Final = frozenset(leaf for leaf in Leaf if leaf.startswith(RUNNING))
_ASKING: Final = _RUN - {Leaf.TOOLS, Leaf.STEERING, Leaf.FOLLOW_UP}
LIVES: Final = {
    "turn": _RUN,
    "drained": _RUN,
    "attempts": _ASKING,
    "overflow_tried": _ASKING,
    "threshold_tried": _ASKING,
    "owed": _RUN - _ASKING,
    "stop": frozenset({Leaf.STEERING}),
    "answer": frozenset({Leaf.FOLLOW_UP}),
    **dict.fromkeys(("sequential", "waiting", "announced", "ready", "hooks_due"), frozenset({Leaf.TOOLS})),
}
"""Where a number means something. Elsewhere it is 0: nothing asks it before it is set again."""
_DEAD: Final = {leaf: tuple(name for name, leaves in LIVES.items() if leaf not in leaves) for leaf in Leaf}


def forget(world: World) -> None:
    """Set to 0 what means nothing where the world is."""
    for name in _DEAD[world.place]:
        setattr(world, name, 0)


def pack(world: World) -> bytes:
    """The state of *world*, one byte for each number."""
    return bytes((_NUMBER[world.place], *_rest(world)))


def unpack(state: bytes) -> World:
    """A world of this state, to be changed by a step."""
    leaf, *rest = state
    return World(LEAVES[leaf], *rest)


Pick = tuple[Free, int]


class Picks:
    """What one step is told when it picks, and what else it could have been told.

    *script* holds the first answers. Where it ends, the lowest answer is given, and a script for each other one is kept
    in `others`. `made` is what was picked, in order; what is picked twice is the same.
    """

    __slots__ = ("_known", "_script", "bounds", "made", "others", "trigger")

    def __init__(self, trigger: Command | Fact, bounds: Bounds, script: tuple[int, ...] = ()) -> None:
        self.trigger = trigger
        self.bounds = bounds
        self._script = script
        self._known: dict[Free, int] = {}
        self.made: list[int] = []
        self.others: list[tuple[int, ...]] = []

    def __call__(self, free: Free, low: int = 0, high: int = 1) -> int:
        """A number from *low* to *high*."""
        known = self._known.get(free)
        if known is not None:
            return known
        made = self.made
        place = len(made)
        if place < len(self._script):
            answer = self._script[place]
        else:
            answer = low
            self.others += [(*made, other) for other in range(low + 1, high + 1)]
        self._known[free] = answer
        made.append(answer)
        return answer

    @property
    def named(self) -> tuple[Pick, ...]:
        """What was picked, with its names."""
        return tuple(self._known.items())


def saying(trigger: str, picks: Iterable[Pick]) -> str:
    """A step in words: its trigger, and what was picked."""
    words = [f"{free}={value}" if free in NUMBERS else f"{'' if value else 'not '}{free}" for free, value in picks]
    return f"{trigger}({', '.join(words)})" if words else trigger
