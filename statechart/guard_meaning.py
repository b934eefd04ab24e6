"""What each guard asks of a `World`: the same as `kernel.guards` on what is in the vector, and a pick for what is not.

A test plays paths on both and compares (see `statechart.model`). Pure, as the kernel's are.
"""

from collections.abc import Callable
from typing import Final

from statechart.vocabulary import Fact, Guard
from statechart.world import (
    ANSWERED,
    EMPTY,
    MANUAL,
    OWED,
    STOP,
    THRESHOLD,
    UNASKED,
    UNCHECKED,
    WELL,
    WRONG,
    Free,
    Picks,
    World,
)

Question = Callable[[World, Picks], object]


def open_calls(w: World) -> int:
    """Calls of the batch without a final result."""
    return w.waiting + w.announced + w.preparing + w.ready + w.running + w.hooks_due + w.hooks


def _batch_over(w: World, pick: Picks) -> object:
    if open_calls(w) != 1:
        return False
    if pick.trigger is Fact.CALL_PREPARED:
        return pick(Free.UNFIT)
    return pick.trigger is Fact.HOOK_RETURNED or not pick(Free.RESULT_HOOK)


def _compactable(w: World, pick: Picks) -> object:
    """An overflow does not ask before it is announced; the others did, and nothing has changed since."""
    return w.compaction in (MANUAL, THRESHOLD) or (w.tail != EMPTY and pick(Free.COMPACTABLE))


def _retryable(w: World, pick: Picks) -> object:
    return w.attempts + 1 < pick.bounds.attempts and not pick(Free.OVERFLOW) and pick(Free.PASSING)


GUARDS: Final[dict[Guard, Question]] = {
    Guard.PROMPT_FITS: lambda w, pick: pick(Free.FITS),
    Guard.QUEUE_HAS_ROOM: lambda w, pick: w.steering + w.follow_up < pick.bounds.queue,
    Guard.ITEM_FITS: lambda w, pick: pick(Free.FITS),
    Guard.HAS_MESSAGES: lambda w, pick: w.tail != EMPTY,
    Guard.HAS_STEERING: lambda w, pick: w.steering > 0,
    Guard.HAS_FOLLOW_UP: lambda w, pick: w.follow_up > 0,
    Guard.TAIL_OWED: lambda w, pick: w.tail == OWED,
    Guard.COMPACTABLE: _compactable,
    Guard.STEERING_JOINS: lambda w, pick: w.steering > 0 and not w.drained,
    Guard.COMPACTION_DUE: lambda w, pick: not w.threshold_tried and pick(Free.DUE),
    Guard.OVERFLOW_RECOVERABLE: lambda w, pick: not w.overflow_tried and pick(Free.OVERFLOW),
    Guard.RETRYABLE: _retryable,
    Guard.USAGE_LEFT: lambda w, pick: not pick(Free.SPENT),
    Guard.RESPONSE_FITS: lambda w, pick: pick(Free.FITS),
    Guard.CALLS_RUNNABLE: lambda w, pick: pick(Free.CALLS, 0, pick.bounds.calls) and not pick(Free.TRUNCATED),
    Guard.BATCH_OVER: _batch_over,
    Guard.STOP_UNASKED: lambda w, pick: w.stop == UNASKED and pick(Free.STOP_HOOK),
    Guard.STOP_WANTED: lambda w, pick: w.stop == STOP,
    Guard.TURN_LEFT: lambda w, pick: w.turn < pick.bounds.turns,
    Guard.TURN_OWED: lambda w, pick: w.owed,
    Guard.OUTPUT_DUE: lambda w, pick: w.answer == UNCHECKED and w.tail == ANSWERED and pick(Free.OUTPUT),
    Guard.OUTPUT_WRONG: lambda w, pick: w.answer == WRONG,
    Guard.CORRECTION_FITS: lambda w, pick: pick(Free.FITS),
    Guard.COMPACTION_MANUAL: lambda w, pick: w.compaction == MANUAL,
    Guard.COMPACTION_THRESHOLD: lambda w, pick: w.compaction == THRESHOLD,
    Guard.SUMMARY_SHRINKS: lambda w, pick: pick(Free.SHRINKS),
    Guard.FAILS_RUN: lambda w, pick: pick(Free.FAILS_RUN),
    Guard.UNDOES_OUTCOME: lambda w, pick: w.outcome == WELL and not w.finished and pick(Free.FAILS_RUN),
    Guard.UNWOUND: lambda w, pick: not (w.going or w.preparing or w.running or w.hooks),
    Guard.CLOSE_WANTED: lambda w, pick: w.close_wanted,
}
"""What each guard asks of a world. Each is pure, and the same as the kernel's on what the vector keeps."""
