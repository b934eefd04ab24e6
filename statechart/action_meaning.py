"""What each action does to a `World`: what `kernel.actions` does to what is in the vector. Events and messages are not.

A test plays paths on both and compares (see `statechart.model`).
"""

from collections.abc import Callable
from typing import Final

from statechart.guard_meaning import open_calls
from statechart.vocabulary import Action, Command, Fact
from statechart.world import (
    ANSWERED,
    CHECK,
    EMPTY,
    GO_ON,
    ILL,
    MANUAL,
    NO_TIMER,
    NOTHING,
    OVER,
    OVERFLOW,
    OWED,
    PROJECTION,
    REQUEST,
    RIGHT,
    STOP,
    STOP_HOOK,
    SUMMARY,
    THRESHOLD,
    TICKING,
    UNDECIDED,
    WELL,
    WRONG,
    Free,
    Picks,
    World,
)

Effector = Callable[[World, Picks], None]


def nothing(w: World, pick: Picks) -> None:
    """Events, records and configurations: what no guard asks about."""


def begin_run(w: World, pick: Picks) -> None:
    w.begun += 1
    w.run, w.outcome, w.turn, w.drained, w.deadline = 1, UNDECIDED, 0, 0, 1


def end_run(w: World, pick: Picks) -> None:
    """All of the run is thrown away, its timers included."""
    w.ended += 1
    w.run = w.finished = w.outcome = w.deadline = w.halted = 0
    w.grace = NO_TIMER


def reset(w: World, pick: Picks) -> None:
    w.tail = EMPTY
    clear_queues(w, pick)


def enqueue_steering(w: World, pick: Picks) -> None:
    w.steering += 1


def enqueue_follow_up(w: World, pick: Picks) -> None:
    w.follow_up += 1


def unqueue(w: World, pick: Picks) -> None:
    """One item leaves its queue, or none does, when it is not there any more."""
    if w.steering and pick(Free.STEERS):
        w.steering -= 1
        w.dropped += 1
    elif w.follow_up and pick(Free.FOLLOWS):
        w.follow_up -= 1
        w.dropped += 1


def clear_queues(w: World, pick: Picks) -> None:
    w.dropped += w.steering + w.follow_up
    w.steering = w.follow_up = 0


def open_turn(w: World, pick: Picks) -> None:
    """What belonged to the turn before is forgotten."""
    w.turn += 1
    w.turn_open = 1
    w.owed = w.attempts = w.overflow_tried = w.threshold_tried = w.stop = w.answer = 0
    _close_calls(w)


def accept_prompt(w: World, pick: Picks) -> None:
    w.tail = OWED


def _taken(pick: Picks, waiting: int) -> int:
    """One item or all, as the mode says; with less than two it does not matter."""
    return waiting if waiting < 2 or pick(Free.ALL) else 1


def accept_steering(w: World, pick: Picks) -> None:
    w.drained = 1
    w.steered = _taken(pick, w.steering)
    w.steering -= w.steered
    w.tail = OWED if w.steered else w.tail


def accept_follow_up(w: World, pick: Picks) -> None:
    w.followed = _taken(pick, w.follow_up)
    w.follow_up -= w.followed
    w.tail = OWED if w.followed else w.tail


def await_delivery(w: World, pick: Picks) -> None:
    """Only the newest barrier counts, so more than one on its way is as good as one."""
    w.pending = 1


def _start(w: World, work: int) -> None:
    """One such work at a time, and none beside the tools of a batch."""
    w.started += 1
    w.collided += w.going != NOTHING or bool(w.preparing or w.running or w.hooks)
    w.going = work


def project(w: World, pick: Picks) -> None:
    w.drained = 1
    _start(w, PROJECTION)


def prepare_request(w: World, pick: Picks) -> None:
    w.going = NOTHING


def send_request(w: World, pick: Picks) -> None:
    _start(w, REQUEST)


def open_message(w: World, pick: Picks) -> None:
    w.message = 1


def adopt_response(w: World, pick: Picks) -> None:
    """Its calls wait, and their results are promised."""
    w.going, w.message, w.attempts, w.owed = NOTHING, 0, 0, 0
    w.waiting = pick(Free.CALLS, 0, pick.bounds.calls)
    w.tail = OWED if w.waiting else ANSWERED


def drop_response(w: World, pick: Picks) -> None:
    """Whether it is kept, cut, does not change who is to speak next."""
    w.going, w.message = NOTHING, 0


def end_response(w: World, pick: Picks) -> None:
    drop_response(w, pick)
    end_ill(w, pick)


def end_turn(w: World, pick: Picks) -> None:
    w.turn_open = 0
    _close_calls(w)


def _close_calls(w: World) -> None:
    """No call is left but those that something is going on for."""
    w.sequential = w.waiting = w.announced = w.ready = w.hooks_due = 0


def _announce_next(w: World) -> None:
    if open_calls(w):
        if w.waiting:
            w.waiting -= 1
            w.announced = 1
        w.pending = 1


def open_batch(w: World, pick: Picks) -> None:
    """The order matters where there are two calls or more."""
    w.sequential = pick(Free.SEQUENTIAL) if w.waiting > 1 else 0
    _announce_next(w)


def advance_batch(w: World, pick: Picks) -> None:
    """Hooks that are due; the preparation that was announced, or, when none is, calls that are ready.

    Of these at least one runs when no other does: the first holds no key that anything else holds.
    """
    w.started += w.hooks_due
    w.hooks += w.hooks_due
    w.hooks_due = 0
    if w.announced:
        w.announced, w.preparing = 0, 1
        w.started += 1
    elif w.ready and not w.preparing:
        count = w.ready if w.ready == 1 and not w.running else pick(Free.STARTED, int(not w.running), w.ready)
        w.started += count
        w.ready -= count
        w.running += count


def take_prepared(w: World, pick: Picks) -> None:
    w.preparing = 0
    if pick(Free.UNFIT):
        w.owed = 1
        _announce_next(w)
    else:
        w.ready += 1
        if w.sequential:
            w.pending = 1
        else:
            _announce_next(w)


def take_result(w: World, pick: Picks) -> None:
    w.running -= 1
    if not pick(Free.TERMINATES):
        w.owed = 1
    if pick(Free.RESULT_HOOK):
        w.hooks_due += 1
        w.pending = 1
    else:
        _move_on(w)


def take_hook(w: World, pick: Picks) -> None:
    w.hooks -= 1
    _move_on(w)


def _move_on(w: World) -> None:
    if w.sequential:
        _announce_next(w)
    elif w.ready:
        w.pending = 1


def close_batch(w: World, pick: Picks) -> None:
    """A call that did not run is answered all the same, and the model is to hear of it."""
    if open_calls(w):
        w.owed = 1
    _close_calls(w)


def ask_stop(w: World, pick: Picks) -> None:
    _start(w, STOP_HOOK)


def take_stop_answer(w: World, pick: Picks) -> None:
    w.going = NOTHING
    w.stop = STOP if pick(Free.STOPS) else GO_ON


def accept_correction(w: World, pick: Picks) -> None:
    """It asks for another answer."""
    w.tail = OWED


def check_output(w: World, pick: Picks) -> None:
    _start(w, CHECK)


def take_output(w: World, pick: Picks) -> None:
    w.going = NOTHING
    w.answer = WRONG if pick(Free.WRONG) else RIGHT


def start_backoff(w: World, pick: Picks) -> None:
    w.attempts += 1
    w.backoff = TICKING


def end_backoff(w: World, pick: Picks) -> None:
    w.backoff = NO_TIMER


def start_compaction(w: World, pick: Picks) -> None:
    """Why follows from who asks, and a turn tries each reason once."""
    w.drained = 1
    if pick.trigger is Command.COMPACT:
        w.compaction = MANUAL
    elif pick.trigger is Fact.RESPONSE_FAILED:
        w.compaction, w.overflow_tried = OVERFLOW, 1
    else:
        w.compaction, w.threshold_tried = THRESHOLD, 1


def summarize(w: World, pick: Picks) -> None:
    _start(w, SUMMARY)


def end_compaction(w: World, pick: Picks) -> None:
    """Adopted, declined or failed: the newest turns stay, so it is the same one's turn to speak."""
    w.going, w.compaction = NOTHING, 0


def end_well(w: World, pick: Picks) -> None:
    w.decided += 1
    w.outcome = WELL


def end_ill(w: World, pick: Picks) -> None:
    w.decided += 1
    w.outcome = ILL


def start_grace(w: World, pick: Picks) -> None:
    """One for the run: a grace that is over does not start again."""
    w.grace = w.grace or TICKING


def stop_work(w: World, pick: Picks) -> None:
    """Works are told to stop, and still report."""
    start_grace(w, pick)
    w.backoff = OVER if w.backoff else NO_TIMER


def release_work(w: World, pick: Picks) -> None:
    if pick.trigger is Fact.CALL_PREPARED:
        w.preparing = 0
    elif pick.trigger is Fact.HOOK_RETURNED and w.hooks:
        w.hooks -= 1
    else:
        w.going = NOTHING


def release_tool(w: World, pick: Picks) -> None:
    w.running -= 1


def abandon_work(w: World, pick: Picks) -> None:
    """What they report from now on is late, and reaches no guard and no action."""
    w.going = w.preparing = w.running = w.hooks = NOTHING


def unwind(w: World, pick: Picks) -> None:
    """Everything that was opened is closed."""
    w.backoff = w.compaction = w.message = w.turn_open = 0
    _close_calls(w)


def finish(w: World, pick: Picks) -> None:
    w.told += 1
    w.finished = 1


def request_close(w: World, pick: Picks) -> None:
    w.close_wanted = 1


ACTIONS: Final[dict[Action, Effector]] = {
    **dict.fromkeys((Action.ANNOUNCE_PHASE, Action.CONFIGURE, Action.STAGE_CONFIGURATION, Action.CLOSE), nothing),
    **dict.fromkeys((Action.RECORD_LISTENER_FAILURE, Action.ABANDON_LISTENERS), nothing),
    **dict.fromkeys((Action.COMPLETE, Action.STOP, Action.EXHAUST_TURNS), end_well),
    **dict.fromkeys((Action.FAIL, Action.ACCEPT_CANCEL, Action.FAIL_BY_DEADLINE, Action.FAIL_BY_LISTENER), end_ill),
    **dict.fromkeys((Action.HALT, Action.FAIL_BY_USAGE, Action.FAIL_BY_OUTPUT), end_ill),
    **dict.fromkeys((Action.REFUSE_RESPONSE, Action.FAIL_RESPONSE), end_response),
    Action.DISCARD_RESPONSE: drop_response,
    **dict.fromkeys((Action.ADOPT_SUMMARY, Action.DECLINE_COMPACTION, Action.FAIL_COMPACTION), end_compaction),
    **{action: globals()[action] for action in Action if action in globals()},
}
"""What each action does to a world."""
