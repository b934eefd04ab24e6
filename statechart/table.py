"""The lifecycle, declared once. Every way in which an agent can move is a row here.

Rule 1: no phase is set anywhere else. The machine of `transitions` is built from these rows, the decision table is read
off that machine, and the core may only go where the table says.
Rule 2: guards ask booleans, and for every leaf, trigger and valuation of the guards at most one row is enabled, so that
the order of rows decides nothing. `statechart.check` proves it, and proves that each known trigger has an answer.

How to read a row: `Row(trigger, source, target, do)`. `target=INTERNAL` stays in place and does something; `target=NO_OP`
stays in place and does nothing at all; a row whose target is its own source would leave and enter it again, and the
chart has none. A source may be a leaf, a state around leaves (`RUNNING`), or a tuple of both.

Two kinds of trigger. *Commands* are public methods; a command that no row allows is refused with a typed error (see
`REFUSED_BY_PHASE` and `REFUSED_BY_GUARD`). *Facts* are reports of the shell; a fact where no row knows it is a bug.

Where a step tells its listeners something and then wants to start something, it stops at `await_delivery`: the next
`advance` comes when all listeners have had their say, so a cancel from a listener is seen before anything starts.

Weak point: what guards and actions *mean* is the kernel's; the check takes that meaning from an abstraction.
"""

from typing import Final

from attrs import field, frozen

from statechart.vocabulary import RUNNING, Action, Command, Fact, Guard, Leaf, Refusal

INTERNAL: Final = None
NO_OP: Final = "no_op"


def _as_tuple(source: str | tuple[str, ...]) -> tuple[str, ...]:
    return source if isinstance(source, tuple) else (source,)


@frozen
class Row:
    """One way to move: *trigger* in *source*, when its guards hold, goes to *target* and does *do* in that order."""

    trigger: Command | Fact
    source: tuple[str, ...] = field(converter=_as_tuple)
    target: str | None
    do: tuple[Action, ...] = ()
    when: tuple[Guard, ...] = field(default=(), kw_only=True)
    unless: tuple[Guard, ...] = field(default=(), kw_only=True)


IDLE, CANCELLING, SETTLING, CLOSED = Leaf.IDLE, Leaf.CANCELLING, Leaf.SETTLING, Leaf.CLOSED
OPEN: Final = (IDLE, RUNNING, CANCELLING, SETTLING)
BUSY: Final = (RUNNING, CANCELLING, SETTLING)
REPLYING: Final = (Leaf.REQUESTING, Leaf.STREAMING)
A, C, F, G = Action, Command, Fact, Guard

COMMANDS: Final = (
    Row(C.PROMPT, IDLE, Leaf.OPENING, (A.BEGIN_RUN, A.ANNOUNCE_PHASE, A.OPEN_TURN, A.ACCEPT_PROMPT, A.AWAIT_DELIVERY),
        when=(G.PROMPT_FITS,)),
    Row(C.CONTINUE, IDLE, Leaf.OPENING,
        (A.BEGIN_RUN, A.ANNOUNCE_PHASE, A.OPEN_TURN, A.ACCEPT_STEERING, A.AWAIT_DELIVERY),
        when=(G.HAS_MESSAGES, G.HAS_STEERING)),
    Row(C.CONTINUE, IDLE, Leaf.OPENING, (A.BEGIN_RUN, A.ANNOUNCE_PHASE, A.OPEN_TURN, A.AWAIT_DELIVERY),
        when=(G.HAS_MESSAGES, G.TAIL_OWED), unless=(G.HAS_STEERING,)),
    Row(C.CONTINUE, IDLE, Leaf.OPENING,
        (A.BEGIN_RUN, A.ANNOUNCE_PHASE, A.OPEN_TURN, A.ACCEPT_FOLLOW_UP, A.AWAIT_DELIVERY),
        when=(G.HAS_MESSAGES, G.HAS_FOLLOW_UP), unless=(G.HAS_STEERING, G.TAIL_OWED)),
    Row(C.COMPACT, IDLE, Leaf.COMPACTION,
        (A.BEGIN_RUN, A.ANNOUNCE_PHASE, A.START_COMPACTION, A.AWAIT_DELIVERY), when=(G.COMPACTABLE,)),
    Row(C.STEER, OPEN, INTERNAL, (A.ENQUEUE_STEERING,), when=(G.QUEUE_HAS_ROOM, G.ITEM_FITS)),
    Row(C.FOLLOW_UP, OPEN, INTERNAL, (A.ENQUEUE_FOLLOW_UP,), when=(G.QUEUE_HAS_ROOM, G.ITEM_FITS)),
    Row(C.UNQUEUE, OPEN, INTERNAL, (A.UNQUEUE,)),
    Row(C.CLEAR_QUEUES, OPEN, INTERNAL, (A.CLEAR_QUEUES,)),
    Row(C.CANCEL, RUNNING, CANCELLING, (A.ACCEPT_CANCEL, A.STOP_WORK, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY)),
    Row(C.CANCEL, SETTLING, INTERNAL, (A.START_GRACE,)),
    Row(C.CANCEL, (IDLE, CANCELLING, CLOSED), NO_OP),
    Row(C.RESET, IDLE, INTERNAL, (A.RESET,)),
    Row(C.CONFIGURE, IDLE, INTERNAL, (A.CONFIGURE,)),
    Row(C.CONFIGURE, BUSY, INTERNAL, (A.STAGE_CONFIGURATION,)),
    Row(C.SUBSCRIBE, OPEN, NO_OP),
    Row(C.WAIT_FOR_IDLE, (*OPEN, CLOSED), NO_OP),
    Row(C.CLOSE, IDLE, CLOSED, (A.CLOSE,)),
    Row(C.CLOSE, RUNNING, CANCELLING,
        (A.REQUEST_CLOSE, A.ACCEPT_CANCEL, A.STOP_WORK, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY)),
    Row(C.CLOSE, CANCELLING, INTERNAL, (A.REQUEST_CLOSE,)),
    Row(C.CLOSE, SETTLING, INTERNAL, (A.REQUEST_CLOSE, A.START_GRACE)),
    Row(C.CLOSE, CLOSED, NO_OP),
)

TURN_ROWS: Final = (
    Row(F.ADVANCE, Leaf.OPENING, INTERNAL, (A.ACCEPT_STEERING, A.AWAIT_DELIVERY), when=(G.STEERING_JOINS,)),
    Row(F.ADVANCE, Leaf.OPENING, Leaf.COMPACTION, (A.ANNOUNCE_PHASE, A.START_COMPACTION, A.AWAIT_DELIVERY),
        when=(G.COMPACTION_DUE,), unless=(G.STEERING_JOINS,)),
    Row(F.ADVANCE, Leaf.OPENING, Leaf.PROJECTING, (A.PROJECT,), unless=(G.STEERING_JOINS, G.COMPACTION_DUE)),
    Row(F.PROJECTED, Leaf.PROJECTING, Leaf.REQUESTING, (A.PREPARE_REQUEST, A.AWAIT_DELIVERY)),
    Row(F.ADVANCE, Leaf.REQUESTING, INTERNAL, (A.SEND_REQUEST,)),
    Row(F.RESPONSE_STARTED, Leaf.REQUESTING, Leaf.STREAMING, (A.OPEN_MESSAGE,)),
    Row(F.RESPONSE_COMPLETED, Leaf.STREAMING, SETTLING, (A.REFUSE_RESPONSE, A.END_TURN, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        unless=(G.RESPONSE_FITS,)),
    Row(F.RESPONSE_COMPLETED, Leaf.STREAMING, Leaf.TOOLS, (A.ADOPT_RESPONSE, A.OPEN_BATCH),
        when=(G.RESPONSE_FITS, G.CALLS_RUNNABLE)),
    Row(F.RESPONSE_COMPLETED, Leaf.STREAMING, Leaf.STEERING,
        (A.ADOPT_RESPONSE, A.CLOSE_BATCH, A.END_TURN, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.RESPONSE_FITS,), unless=(G.CALLS_RUNNABLE,)),
    Row(F.RESPONSE_FAILED, REPLYING, Leaf.COMPACTION,
        (A.DISCARD_RESPONSE, A.ANNOUNCE_PHASE, A.START_COMPACTION, A.AWAIT_DELIVERY),
        when=(G.OVERFLOW_RECOVERABLE,)),
    Row(F.RESPONSE_FAILED, REPLYING, Leaf.RETRY, (A.DISCARD_RESPONSE, A.ANNOUNCE_PHASE, A.START_BACKOFF),
        when=(G.RETRYABLE,), unless=(G.OVERFLOW_RECOVERABLE,)),
    Row(F.RESPONSE_FAILED, REPLYING, SETTLING, (A.FAIL_RESPONSE, A.END_TURN, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        unless=(G.OVERFLOW_RECOVERABLE, G.RETRYABLE)),
)

_BATCH_DONE: Final = (A.CLOSE_BATCH, A.END_TURN, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY)
TOOL_ROWS: Final = (
    Row(F.ADVANCE, Leaf.TOOLS, INTERNAL, (A.ADVANCE_BATCH,)),
    *(
        row
        for fact, take in (
            (F.CALL_PREPARED, A.TAKE_PREPARED),
            (F.TOOL_SETTLED, A.TAKE_RESULT),
            (F.HOOK_RETURNED, A.TAKE_HOOK),
        )
        for row in (
            Row(fact, Leaf.TOOLS, Leaf.STEERING, (take, *_BATCH_DONE), when=(G.BATCH_OVER,)),
            Row(fact, Leaf.TOOLS, INTERNAL, (take,), unless=(G.BATCH_OVER,)),
        )
    ),
)

_NEXT_TURN: Final = (A.ANNOUNCE_PHASE, A.OPEN_TURN)
BOUNDARY_ROWS: Final = (
    Row(F.ADVANCE, Leaf.STEERING, INTERNAL, (A.ASK_STOP,), when=(G.STOP_UNASKED,)),
    Row(F.HOOK_RETURNED, Leaf.STEERING, INTERNAL, (A.TAKE_STOP_ANSWER, A.AWAIT_DELIVERY)),
    Row(F.ADVANCE, Leaf.STEERING, SETTLING, (A.STOP, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.STOP_WANTED,), unless=(G.STOP_UNASKED,)),
    Row(F.ADVANCE, Leaf.STEERING, Leaf.OPENING, (*_NEXT_TURN, A.ACCEPT_STEERING, A.AWAIT_DELIVERY),
        when=(G.HAS_STEERING, G.TURN_LEFT), unless=(G.STOP_UNASKED, G.STOP_WANTED)),
    Row(F.ADVANCE, Leaf.STEERING, SETTLING, (A.EXHAUST_TURNS, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.HAS_STEERING,), unless=(G.STOP_UNASKED, G.STOP_WANTED, G.TURN_LEFT)),
    Row(F.ADVANCE, Leaf.STEERING, Leaf.OPENING, (*_NEXT_TURN, A.AWAIT_DELIVERY),
        when=(G.TURN_OWED, G.TURN_LEFT), unless=(G.STOP_UNASKED, G.STOP_WANTED, G.HAS_STEERING)),
    Row(F.ADVANCE, Leaf.STEERING, SETTLING, (A.EXHAUST_TURNS, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.TURN_OWED,), unless=(G.STOP_UNASKED, G.STOP_WANTED, G.HAS_STEERING, G.TURN_LEFT)),
    Row(F.ADVANCE, Leaf.STEERING, Leaf.FOLLOW_UP, (A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        unless=(G.STOP_UNASKED, G.STOP_WANTED, G.HAS_STEERING, G.TURN_OWED)),
    Row(F.ADVANCE, Leaf.FOLLOW_UP, Leaf.OPENING, (*_NEXT_TURN, A.ACCEPT_STEERING, A.AWAIT_DELIVERY),
        when=(G.HAS_STEERING, G.TURN_LEFT)),
    Row(F.ADVANCE, Leaf.FOLLOW_UP, SETTLING, (A.EXHAUST_TURNS, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.HAS_STEERING,), unless=(G.TURN_LEFT,)),
    Row(F.ADVANCE, Leaf.FOLLOW_UP, Leaf.OPENING, (*_NEXT_TURN, A.ACCEPT_FOLLOW_UP, A.AWAIT_DELIVERY),
        when=(G.HAS_FOLLOW_UP, G.TURN_LEFT), unless=(G.HAS_STEERING,)),
    Row(F.ADVANCE, Leaf.FOLLOW_UP, SETTLING, (A.EXHAUST_TURNS, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.HAS_FOLLOW_UP,), unless=(G.HAS_STEERING, G.TURN_LEFT)),
    Row(F.ADVANCE, Leaf.FOLLOW_UP, SETTLING, (A.COMPLETE, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        unless=(G.HAS_STEERING, G.HAS_FOLLOW_UP)),
)

_RESUME: Final = (A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY)
_FAILING: Final = (A.FAIL, A.UNWIND, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY)
DETOUR_ROWS: Final = (
    Row(F.BACKOFF_ELAPSED, Leaf.RETRY, Leaf.REQUESTING, (A.END_BACKOFF, *_RESUME)),
    Row(F.ADVANCE, Leaf.COMPACTION, INTERNAL, (A.SUMMARIZE,), when=(G.COMPACTABLE,)),
    Row(F.ADVANCE, Leaf.COMPACTION, SETTLING, (A.DECLINE_COMPACTION, *_FAILING),
        unless=(G.COMPACTABLE,)),
    Row(F.SUMMARIZED, Leaf.COMPACTION, Leaf.OPENING, (A.ADOPT_SUMMARY, *_RESUME),
        when=(G.SUMMARY_SHRINKS,), unless=(G.COMPACTION_MANUAL,)),
    Row(F.SUMMARIZED, Leaf.COMPACTION, SETTLING, (A.ADOPT_SUMMARY, A.COMPLETE, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.SUMMARY_SHRINKS, G.COMPACTION_MANUAL)),
    Row(F.SUMMARIZED, Leaf.COMPACTION, SETTLING, (A.DECLINE_COMPACTION, A.COMPLETE, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY),
        when=(G.COMPACTION_MANUAL,), unless=(G.SUMMARY_SHRINKS,)),
    Row(F.SUMMARIZED, Leaf.COMPACTION, Leaf.OPENING, (A.DECLINE_COMPACTION, *_RESUME),
        when=(G.COMPACTION_THRESHOLD,), unless=(G.SUMMARY_SHRINKS, G.COMPACTION_MANUAL)),
    Row(F.SUMMARIZED, Leaf.COMPACTION, SETTLING, (A.DECLINE_COMPACTION, *_FAILING),
        unless=(G.SUMMARY_SHRINKS, G.COMPACTION_MANUAL, G.COMPACTION_THRESHOLD)),
    Row(F.SUMMARY_FAILED, Leaf.COMPACTION, Leaf.OPENING, (A.FAIL_COMPACTION, *_RESUME),
        when=(G.COMPACTION_THRESHOLD,)),
    Row(F.SUMMARY_FAILED, Leaf.COMPACTION, SETTLING, (A.FAIL_COMPACTION, *_FAILING),
        unless=(G.COMPACTION_THRESHOLD,)),
)

_STOPPING: Final = (A.STOP_WORK, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY)
_ENDING: Final = (A.UNWIND, A.ANNOUNCE_PHASE, A.AWAIT_DELIVERY)
ENDING_ROWS: Final = (
    Row(F.DEADLINE_ELAPSED, RUNNING, CANCELLING, (A.FAIL_BY_DEADLINE, *_STOPPING)),
    Row(F.DEADLINE_ELAPSED, CANCELLING, NO_OP),
    Row(F.DEADLINE_ELAPSED, SETTLING, INTERNAL, (A.START_GRACE,)),
    Row(F.SUBSCRIBER_FAILED, RUNNING, CANCELLING, (A.RECORD_LISTENER_FAILURE, A.FAIL_BY_LISTENER, *_STOPPING),
        when=(G.FAILS_RUN,)),
    Row(F.SUBSCRIBER_FAILED, RUNNING, INTERNAL, (A.RECORD_LISTENER_FAILURE,), unless=(G.FAILS_RUN,)),
    Row(F.SUBSCRIBER_FAILED, SETTLING, INTERNAL,
        (A.RECORD_LISTENER_FAILURE, A.FAIL_BY_LISTENER, A.UNWIND, A.AWAIT_DELIVERY), when=(G.UNDOES_OUTCOME,)),
    Row(F.SUBSCRIBER_FAILED, SETTLING, INTERNAL, (A.RECORD_LISTENER_FAILURE,), unless=(G.UNDOES_OUTCOME,)),
    Row(F.SUBSCRIBER_FAILED, (IDLE, CANCELLING, CLOSED), INTERNAL, (A.RECORD_LISTENER_FAILURE,)),
    *(
        Row(fact, CANCELLING, INTERNAL, (A.RELEASE_WORK, A.AWAIT_DELIVERY))
        for fact in (
            F.PROJECTED, F.RESPONSE_COMPLETED, F.RESPONSE_FAILED, F.CALL_PREPARED, F.HOOK_RETURNED, F.SUMMARIZED,
            F.SUMMARY_FAILED,
        )
    ),
    Row(F.TOOL_SETTLED, CANCELLING, INTERNAL, (A.RELEASE_TOOL, A.AWAIT_DELIVERY)),
    Row(F.ADVANCE, CANCELLING, SETTLING, _ENDING, when=(G.UNWOUND,)),
    Row(F.ADVANCE, CANCELLING, NO_OP, unless=(G.UNWOUND,)),
    Row(F.GRACE_ELAPSED, CANCELLING, SETTLING, (A.ABANDON_WORK, A.ABANDON_LISTENERS, *_ENDING)),
    Row(F.GRACE_ELAPSED, SETTLING, INTERNAL, (A.ABANDON_LISTENERS,)),
    Row(F.HALTED, RUNNING, SETTLING, (A.HALT, A.ABANDON_WORK, A.ABANDON_LISTENERS, *_ENDING)),
    Row(F.HALTED, CANCELLING, SETTLING, (A.ABANDON_WORK, A.ABANDON_LISTENERS, *_ENDING)),
    Row(F.HALTED, SETTLING, INTERNAL, (A.ABANDON_LISTENERS,)),
    Row(F.ADVANCE, SETTLING, INTERNAL, (A.FINISH,)),
    Row(F.SETTLED, SETTLING, IDLE, (A.END_RUN,), unless=(G.CLOSE_WANTED,)),
    Row(F.SETTLED, SETTLING, CLOSED, (A.END_RUN, A.CLOSE), when=(G.CLOSE_WANTED,)),
)

ROWS: Final = (*COMMANDS, *TURN_ROWS, *TOOL_ROWS, *BOUNDARY_ROWS, *DETOUR_ROWS, *ENDING_ROWS)

REFUSED_BY_PHASE: Final = {CLOSED: Refusal.CLOSED, RUNNING: Refusal.BUSY, CANCELLING: Refusal.BUSY, SETTLING: Refusal.BUSY}
"""The error for a command that has no row where the machine is."""

REFUSED_BY_GUARD: Final = {
    (C.PROMPT, G.PROMPT_FITS): Refusal.MESSAGE_LIMIT,
    (C.CONTINUE, G.HAS_MESSAGES): Refusal.NOTHING_TO_CONTINUE,
    (C.CONTINUE, G.HAS_FOLLOW_UP): Refusal.NOTHING_TO_CONTINUE,
    (C.COMPACT, G.COMPACTABLE): Refusal.NOTHING_TO_COMPACT,
    (C.STEER, G.QUEUE_HAS_ROOM): Refusal.QUEUE_FULL,
    (C.STEER, G.ITEM_FITS): Refusal.MESSAGE_LIMIT,
    (C.FOLLOW_UP, G.QUEUE_HAS_ROOM): Refusal.QUEUE_FULL,
    (C.FOLLOW_UP, G.ITEM_FITS): Refusal.MESSAGE_LIMIT,
}
"""The error for a command whose rows are all disabled, by the guard that said no last."""
