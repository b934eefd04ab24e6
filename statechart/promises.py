"""What every step and every state of the lifecycle must keep, whatever the world does: promises as data.

A promise about a *move* looks at the world before and after it, and at what the move did (the hidden numbers of a `World`).
A promise about a *state* looks at the world where a move led. Each predicate says when the promise is broken.
"""

from collections.abc import Callable
from typing import Final

from attrs import frozen

from statechart.decisions import Refuse, Step
from statechart.guard_meaning import open_calls
from statechart.model import Way
from statechart.vocabulary import RUNNING, Action, Command, Fact, Leaf
from statechart.world import ILL, TICKING, UNDECIDED, WELL, WRONG, Bounds, World

RUN: Final = frozenset(leaf for leaf in Leaf if leaf.startswith(RUNNING))
REST: Final = frozenset({Leaf.IDLE, Leaf.CLOSED})
QUEUEING: Final = (Command.STEER, Command.FOLLOW_UP)
STOPPING: Final = (Command.CANCEL, Command.CLOSE, Fact.DEADLINE_ELAPSED)


@frozen
class OfMoves:
    """A promise that each step keeps; `broken(before, way, after)` says that one does not.

    Where a trigger changes nothing, the world after is the one before, and only promises that are *still* could be broken.
    """

    name: str
    promise: str
    broken: Callable[[World, Way, World], object]
    still: bool = False


@frozen
class OfStates:
    """A promise that each state keeps."""

    name: str
    promise: str
    broken: Callable[[World, Bounds], object]


def _unanswered(before: World, way: Way, after: World) -> object:
    return not isinstance(way.decision, Step | Refuse)


def _decides(before: World, way: Way, after: World) -> object:
    """Decided at most once in a run, but for a listener that fails a run which was about to end well."""
    undone = way.trigger is Fact.SUBSCRIBER_FAILED and before.outcome == WELL and not before.finished
    return after.decided and (after.decided > 1 or (before.outcome != UNDECIDED and not undone))


def _finishes(before: World, way: Way, after: World) -> object:
    """`run.finished` with an outcome and once; a run ends when it was said, and then only."""
    if after.told and (after.told > 1 or before.finished or before.outcome == UNDECIDED):
        return True
    left = before.place not in REST and after.place in REST
    return (left or after.ended) and not (before.finished and left and after.ended == 1)


def _begins(before: World, way: Way, after: World) -> object:
    return after.begun != (before.place in REST and after.place not in REST) or (
        after.begun and before.place is not Leaf.IDLE
    )


def _enters(before: World, way: Way, after: World) -> object:
    """Where a message may enter: with what opens a run or a turn, and once more in an opening that has not drained yet."""
    if not (after.steered or after.followed):
        return False
    joins = before.place is Leaf.OPENING and not before.drained
    opens = joins or before.place in (Leaf.IDLE, Leaf.STEERING, Leaf.FOLLOW_UP)
    busy = before.going or before.preparing or before.running or before.hooks or open_calls(before)
    return after.place is not Leaf.OPENING or not opens or busy


def _follows(before: World, way: Way, after: World) -> object:
    waits = before.place is not Leaf.IDLE and (before.place is not Leaf.FOLLOW_UP or before.owed)
    return after.followed and (before.steering or waits or after.steered)


def _stops(before: World, way: Way, after: World) -> object:
    return before.place in RUN and way.trigger in STOPPING and not (after.place is Leaf.CANCELLING and after.outcome == ILL)


def _goes_on(before: World, way: Way, after: World) -> object:
    """What starts or enters, in a run that was cancelled, or that has failed or ended."""
    return (after.started or after.steered or after.followed) and (before.outcome or after.outcome) != UNDECIDED


def _loses(before: World, way: Way, after: World) -> object:
    """An accepted item is in a queue, entered, or was dropped."""
    added = way.trigger in QUEUEING and isinstance(way.decision, Step)
    gone = after.steered + after.followed + after.dropped
    return before.steering + before.follow_up + added != after.steering + after.follow_up + gone


def _rushes(before: World, way: Way, after: World) -> object:
    return after.started and not (way.trigger is Fact.ADVANCE and before.pending)


def _collides(before: World, way: Way, after: World) -> object:
    return after.collided


def _settles_for_less(before: World, way: Way, after: World) -> object:
    return isinstance(way.decision, Step) and Action.COMPLETE in way.decision.do and before.answer == WRONG


MOVES: Final = (
    OfMoves("answered", "every command and every fact that may come has a step or a typed refusal", _unanswered, True),
    OfMoves("decided once", "an outcome is decided once, but for a listener that undoes a good end", _decides),
    OfMoves("finished once", "a run that began says run.finished once, with an outcome, and then ends", _finishes),
    OfMoves("begins", "a run begins from idle and nowhere else, and what leads from idle into a run begins it", _begins),
    OfMoves("drain points", "messages enter at drain points, where nothing is going on", _enters),
    OfMoves("follow-ups", "a follow-up enters when nothing steers and nothing is owed", _follows),
    OfMoves("stops", "cancel, close and the deadline stop a run wherever it is", _stops, True),
    OfMoves("stays stopped", "nothing starts and nothing enters once the outcome is decided", _goes_on),
    OfMoves("delivered first", "what starts was waiting for all that was said before it to be heard", _rushes),
    OfMoves("one thing", "a request, hook or summary never starts beside another, or beside tools", _collides),
    OfMoves("answer fits", "a run whose last answer does not fit what was asked for is never completed", _settles_for_less),
    OfMoves("conserved", "each item that was queued waits, has entered, or was dropped, and is counted once", _loses, True),
)


def _has_wrong_outcome(w: World, bounds: Bounds) -> object:
    wanted = {Leaf.CANCELLING: (ILL,), Leaf.SETTLING: (WELL, ILL)}
    return w.outcome not in wanted.get(w.place, (UNDECIDED,)) or w.run != (w.place not in REST)


def _is_left_open(w: World, bounds: Bounds) -> object:
    """Nothing is open or going when the run is settling; while idle, nothing of a run is left either."""
    if w.place in RUN or w.place is Leaf.CANCELLING:
        return False
    works = w.going or w.preparing or w.running or w.hooks or open_calls(w)
    brackets = w.turn_open or w.message or w.backoff or w.compaction
    left = w.place in REST and (w.pending or w.finished or w.grace or w.deadline or w.halted)
    return works or brackets or left


def _is_too_much(w: World, bounds: Bounds) -> object:
    queued, calls = w.steering + w.follow_up, open_calls(w)
    return queued > bounds.queue or w.turn > bounds.turns or w.attempts >= bounds.attempts or calls > bounds.calls


def _has_no_end(w: World, bounds: Bounds) -> object:
    return w.place is Leaf.CANCELLING and w.grace != TICKING


def _reopens(w: World, bounds: Bounds) -> object:
    return w.close_wanted and (w.place in RUN or w.place is Leaf.IDLE)


STATES: Final = (
    OfStates("outcome held", "who runs has no outcome, who cancels an ill one, who settles some", _has_wrong_outcome),
    OfStates("nothing open", "when a run settles all is closed and nothing goes on; idle has nothing left", _is_left_open),
    OfStates("bounded", "queues, turns, attempts and calls keep their limits", _is_too_much),
    OfStates("cancel ends", "while something is told to stop, the time that it has is running", _has_no_end),
    OfStates("closed", "an agent that was told to close begins nothing more", _reopens),
)
