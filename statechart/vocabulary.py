"""The words of the lifecycle: phases, triggers, guards and actions, each with one sentence.

Everything in `statechart.table` is spelled with these names, and nothing else gives them a meaning here: the kernel
implements each guard as a predicate over its state and each action as a function, and a test compares the names.

A *leaf* is where the machine is; a *phase* is what a user sees of it. Several leaves may show as one phase: the five
leaves of a turn are all `turn`.
"""

from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """What the agent is doing, as a fact that can be queried and asserted on."""

    IDLE = "idle"
    TURN = "turn"
    STEERING = "steering"
    FOLLOW_UP = "follow_up"
    COMPACTION = "compaction"
    RETRY = "retry"
    CANCELLING = "cancelling"
    SETTLING = "settling"
    CLOSED = "closed"


class Leaf(StrEnum):
    """The places of the machine, each by its full path; a dot separates a state from the state around it."""

    IDLE = "idle"
    OPENING = "running.turn.opening"
    PROJECTING = "running.turn.projecting"
    REQUESTING = "running.turn.requesting"
    STREAMING = "running.turn.streaming"
    TOOLS = "running.turn.tools"
    STEERING = "running.steering"
    FOLLOW_UP = "running.follow_up"
    COMPACTION = "running.compaction"
    RETRY = "running.retry"
    CANCELLING = "cancelling"
    SETTLING = "settling"
    CLOSED = "closed"


RUNNING: Final = "running"
TURN: Final = "running.turn"


def phase_of(leaf: Leaf) -> Phase:
    """The phase that a user sees while the machine is in *leaf*."""
    return _PHASES[leaf]


_PHASES: Final = {leaf: Phase.TURN if leaf.startswith(TURN) else Phase(leaf.rpartition(".")[2]) for leaf in Leaf}


class Command(StrEnum):
    """What a caller may ask for: one for each public method of the agent."""

    PROMPT = "prompt"
    CONTINUE = "continue_"
    STEER = "steer"
    FOLLOW_UP = "follow_up"
    UNQUEUE = "unqueue"
    CLEAR_QUEUES = "clear_queues"
    CANCEL = "cancel"
    COMPACT = "compact"
    RESET = "reset"
    CONFIGURE = "configure"
    SUBSCRIBE = "subscribe"
    WAIT_FOR_IDLE = "wait_for_idle"
    CLOSE = "close"


class Fact(StrEnum):
    """What the shell reports: something that has happened in the world."""

    ADVANCE = "advance"  # all that was published so far has been delivered
    PROJECTED = "projected"  # the context for the next request is ready
    RESPONSE_STARTED = "response_started"  # the first part of a response came
    RESPONSE_COMPLETED = "response_completed"  # the terminal part of a response came
    RESPONSE_FAILED = "response_failed"  # a request or its stream failed, stalled or broke off
    CALL_PREPARED = "call_prepared"  # a call's arguments were checked and its hook was asked
    TOOL_SETTLED = "tool_settled"  # a tool returned, raised, timed out or let go
    HOOK_RETURNED = "hook_returned"  # after_tool_result or should_stop_after_turn came back
    OUTPUT_CHECKED = "output_checked"  # the final answer was held against what was asked for
    SUMMARIZED = "summarized"  # the compactor gave a summary
    SUMMARY_FAILED = "summary_failed"  # the compactor failed
    BACKOFF_ELAPSED = "backoff_elapsed"  # the wait before another attempt is over
    GRACE_ELAPSED = "grace_elapsed"  # what was told to stop has had its time
    DEADLINE_ELAPSED = "deadline_elapsed"  # the run has had its time
    SUBSCRIBER_FAILED = "subscriber_failed"  # a listener raised
    HALTED = "halted"  # the kernel's own task or loop is gone, or the kernel has a bug
    SETTLED = "settled"  # run.finished was delivered and its listeners are done


class Guard(StrEnum):
    """A yes-or-no question about the kernel's state and the input at hand. Pure, and boolean only."""

    PROMPT_FITS = "prompt_fits"  # the transcript has room for a prompt and its answer
    QUEUE_HAS_ROOM = "queue_has_room"  # both queues together are below their limit
    ITEM_FITS = "item_fits"  # the transcript has room for one more queued message and its answer
    HAS_MESSAGES = "has_messages"
    HAS_STEERING = "has_steering"
    HAS_FOLLOW_UP = "has_follow_up"
    TAIL_OWED = "tail_owed"  # the transcript ends with something that a model has yet to answer
    COMPACTABLE = "compactable"  # something older than the kept turns can become a summary
    STEERING_JOINS = "steering_joins"  # steering is queued and the first turn has not drained it yet
    COMPACTION_DUE = "compaction_due"  # the context is near the window, can be compacted, and this turn has not tried to
    OVERFLOW_RECOVERABLE = "overflow_recoverable"  # the context did not fit, and this turn has not compacted yet
    RETRYABLE = "retryable"  # the failure may pass, and an attempt is left
    USAGE_LEFT = "usage_left"  # usage_limit allows one more request
    RESPONSE_FITS = "response_fits"  # the response and all its results fit the limits
    CALLS_RUNNABLE = "calls_runnable"  # the response asks for tools, is not truncated, and usage_limit allows its calls
    BATCH_OVER = "batch_over"  # with this input the last open call of the batch is closed
    STOP_UNASKED = "stop_unasked"  # should_stop_after_turn has not been asked for this turn
    STOP_WANTED = "stop_wanted"  # should_stop_after_turn said yes
    TURN_LEFT = "turn_left"  # max_turns allows one more
    TURN_OWED = "turn_owed"  # results wait for the model
    OUTPUT_DUE = "output_due"  # the final answer must fit something, and has not been checked
    OUTPUT_WRONG = "output_wrong"  # it was checked, and does not fit
    CORRECTION_FITS = "correction_fits"  # the transcript has room to ask for another answer
    COMPACTION_MANUAL = "compaction_manual"
    COMPACTION_THRESHOLD = "compaction_threshold"
    SUMMARY_SHRINKS = "summary_shrinks"  # the summary is not empty and makes the context smaller
    FAILS_RUN = "fails_run"  # the policy says that a failing listener fails the run
    UNDOES_OUTCOME = "undoes_outcome"  # a failing listener fails a run that was about to end well
    UNWOUND = "unwound"  # nothing that was started is still going
    CLOSE_WANTED = "close_wanted"


class Action(StrEnum):
    """What a step does, after it was decided. Total: an action never refuses and never raises."""

    ANNOUNCE_PHASE = "announce_phase"
    # the run
    BEGIN_RUN = "begin_run"
    END_RUN = "end_run"
    RESET = "reset"
    CONFIGURE = "configure"
    STAGE_CONFIGURATION = "stage_configuration"
    # the queues
    ENQUEUE_STEERING = "enqueue_steering"
    ENQUEUE_FOLLOW_UP = "enqueue_follow_up"
    UNQUEUE = "unqueue"
    CLEAR_QUEUES = "clear_queues"
    # the turn
    OPEN_TURN = "open_turn"
    ACCEPT_PROMPT = "accept_prompt"
    ACCEPT_STEERING = "accept_steering"
    ACCEPT_FOLLOW_UP = "accept_follow_up"
    ACCEPT_CORRECTION = "accept_correction"
    AWAIT_DELIVERY = "await_delivery"
    PROJECT = "project"
    PREPARE_REQUEST = "prepare_request"
    SEND_REQUEST = "send_request"
    OPEN_MESSAGE = "open_message"
    ADOPT_RESPONSE = "adopt_response"
    REFUSE_RESPONSE = "refuse_response"
    FAIL_RESPONSE = "fail_response"
    DISCARD_RESPONSE = "discard_response"
    END_TURN = "end_turn"
    # the tools of a turn
    OPEN_BATCH = "open_batch"
    ADVANCE_BATCH = "advance_batch"
    TAKE_PREPARED = "take_prepared"
    TAKE_RESULT = "take_result"
    TAKE_HOOK = "take_hook"
    CLOSE_BATCH = "close_batch"
    # the boundary
    ASK_STOP = "ask_stop"
    TAKE_STOP_ANSWER = "take_stop_answer"
    CHECK_OUTPUT = "check_output"
    TAKE_OUTPUT = "take_output"
    # retry
    START_BACKOFF = "start_backoff"
    END_BACKOFF = "end_backoff"
    # compaction
    START_COMPACTION = "start_compaction"
    SUMMARIZE = "summarize"
    ADOPT_SUMMARY = "adopt_summary"
    DECLINE_COMPACTION = "decline_compaction"
    FAIL_COMPACTION = "fail_compaction"
    # ends
    COMPLETE = "complete"
    STOP = "stop"
    EXHAUST_TURNS = "exhaust_turns"
    FAIL = "fail"
    ACCEPT_CANCEL = "accept_cancel"
    FAIL_BY_DEADLINE = "fail_by_deadline"
    FAIL_BY_USAGE = "fail_by_usage"
    FAIL_BY_OUTPUT = "fail_by_output"
    FAIL_BY_LISTENER = "fail_by_listener"
    HALT = "halt"
    STOP_WORK = "stop_work"
    RELEASE_WORK = "release_work"
    RELEASE_TOOL = "release_tool"
    ABANDON_WORK = "abandon_work"
    UNWIND = "unwind"
    FINISH = "finish"
    START_GRACE = "start_grace"
    ABANDON_LISTENERS = "abandon_listeners"
    RECORD_LISTENER_FAILURE = "record_listener_failure"
    REQUEST_CLOSE = "request_close"
    CLOSE = "close"


class Refusal(StrEnum):
    """Why a command is refused: the error that the caller gets, by its stable code."""

    BUSY = "AGENT_BUSY"
    CLOSED = "AGENT_CLOSED"
    NOTHING_TO_CONTINUE = "NOTHING_TO_CONTINUE"
    NOTHING_TO_COMPACT = "NOTHING_TO_COMPACT"
    QUEUE_FULL = "QUEUE_FULL"
    MESSAGE_LIMIT = "AGENT_MESSAGE_LIMIT"
