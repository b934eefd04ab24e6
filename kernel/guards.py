"""What the lifecycle may ask: one predicate for each guard of the chart. Pure: they look, and change nothing.

Each gets the state as it was before the input, and the input, so that a step is decided before anything is changed.
"""

from collections.abc import Callable
from typing import Any, Final

from kernel.errors import Failure, MessageLimitError
from kernel.estimators import size
from kernel.frozen import shown
from kernel.inputs import CallPrepared, HookReturned, ToolSettled
from kernel.messages import NO_USAGE, AssistantMessage, CustomMessage, Message, SummaryMessage
from kernel.state import CoreState
from statechart import Guard


def prompt_fits(state: CoreState, input: Any) -> bool:
    free = state.free_messages()
    return free is None or free >= 2


def item_fits(state: CoreState, input: Any) -> bool:
    return prompt_fits(state, input)


def queue_has_room(state: CoreState, input: Any) -> bool:
    limit = state.config.queue_limit
    return limit is None or len(state.steering) + len(state.follow_up) < limit


def has_messages(state: CoreState, input: Any) -> bool:
    return len(state.transcript) > 0


def has_steering(state: CoreState, input: Any) -> bool:
    return bool(state.steering)


def has_follow_up(state: CoreState, input: Any) -> bool:
    return bool(state.follow_up)


def tail_owed(state: CoreState, input: Any) -> bool:
    context = state.transcript.context
    return len(context) > 0 and context[-1].role != "assistant"


def compactable(state: CoreState, input: Any) -> bool:
    policy = state.config.compaction
    return policy is not None and state.transcript.cut(policy.keep_turns) > 0


def steering_joins(state: CoreState, input: Any) -> bool:
    return bool(state.steering) and not state.live.steering_drained


def compaction_due(state: CoreState, input: Any) -> bool:
    window = state.window
    if window is None or state.live.threshold_tried:
        return False
    return state.context_tokens + input.tokens > window and compactable(state, input)


def overflow_recoverable(state: CoreState, input: Any) -> bool:
    recoverable = input.failure.overflow and state.config.compaction is not None and not state.live.overflow_tried
    return recoverable and usage_left(state, input)


def retryable(state: CoreState, input: Any) -> bool:
    policy = state.config.retry
    failure: Failure = input.failure
    if policy is None or failure.overflow or not failure.retryable:
        return False
    return state.live.attempts + 1 < policy.max_attempts and usage_left(state, input)


def usage_left(state: CoreState, input: Any) -> bool:
    return spent(state) is None


def spent(state: CoreState) -> str | None:
    """What the run has used of `usage_limit` that allows no further request; None when it allows one."""
    limit, run = state.config.usage_limit, state.live
    if limit is None:
        return None
    # What an attempt took that is about to be given up is not in the sum yet.
    open_usage = (run.message.usage if run.message is not None else None) or NO_USAGE
    used = {"tokens": run.usage.total + open_usage.total + 1, "requests": run.requests + 1, "tool_calls": run.tool_calls}
    for name, count in used.items():
        allowed = getattr(limit, name)
        if allowed is not None and count > allowed:
            return f"usage_limit allows a run {_counted(allowed, name)}"
    return None


def _counted(count: int, name: str) -> str:
    words = name.replace("_", " ")
    return f"{count} {words.removesuffix('s') if count == 1 else words}"


def response_fits(state: CoreState, input: Any) -> bool:
    return response_fault(state) is None


def response_fault(state: CoreState) -> Failure | None:
    """Why the response that is open can't be adopted; None when it can."""
    message = state.live.message
    calls = message.call_count if message is not None else 0
    if calls > state.config.call_limit:
        return Failure(f"the response asks for {calls} tool calls; call_limit allows {state.config.call_limit}")
    free = state.free_messages()
    # What is promised to the open response itself is what it may now use.
    if free is None or free + 1 + state.config.call_limit >= 1 + calls:
        return None
    return Failure(
        f"the response and its {calls} tool results do not fit: the transcript has {len(state.transcript)} messages, "
        f"message_limit is {state.config.message_limit}; reset() or compact() first",
        code=MessageLimitError.code,
    )


def calls_runnable(state: CoreState, input: Any) -> bool:
    message = state.live.message
    if message is None or message.call_count == 0 or input.stop == "length":
        return False
    limit = state.config.usage_limit
    allowed = limit.tool_calls if limit is not None else None
    return allowed is None or state.live.tool_calls + message.call_count <= allowed


def batch_over(state: CoreState, input: Any) -> bool:
    batch = state.live.batch
    if batch is None or batch.open_count != 1:
        return False
    match input:
        case CallPrepared():
            return input.error is not None
        case ToolSettled():
            return not hook_follows(state, input)
        case HookReturned():
            return True
    return False


def hook_follows(state: CoreState, settled: ToolSettled) -> bool:
    """Whether `after_tool_result` is to be called for this result."""
    return "after_tool_result" in state.hooks and settled.ended != "cancelled"


def stop_unasked(state: CoreState, input: Any) -> bool:
    return "should_stop_after_turn" in state.hooks and state.live.stop_answer is None


def stop_wanted(state: CoreState, input: Any) -> bool:
    return state.live.stop_answer is True


def turn_left(state: CoreState, input: Any) -> bool:
    limit = state.config.max_turns
    return limit is None or state.live.turn < limit


def turn_owed(state: CoreState, input: Any) -> bool:
    return state.live.owed


def output_due(state: CoreState, input: Any) -> bool:
    return state.setup.output is not None and state.live.output is None and not tail_owed(state, input)


def output_wrong(state: CoreState, input: Any) -> bool:
    return state.live.output is not None and state.live.output.error is not None


def correction_fits(state: CoreState, input: Any) -> bool:
    return prompt_fits(state, input)


def compaction_manual(state: CoreState, input: Any) -> bool:
    compaction = state.live.compaction
    return compaction is not None and compaction.reason == "manual"


def compaction_threshold(state: CoreState, input: Any) -> bool:
    compaction = state.live.compaction
    return compaction is not None and compaction.reason == "threshold"


def summary_shrinks(state: CoreState, input: Any) -> bool:
    compaction = state.live.compaction
    assert compaction is not None
    converted = "convert_to_llm" in state.hooks
    older = state.transcript.older(compaction.length)
    return bool(input.text.strip()) and _weight(SummaryMessage(input.text)) < sum(
        _weight(each, converted) for each in older
    )


def _weight(message: Message, converted: bool = False) -> int:
    """How much of a context *message* takes, in bytes; a provider spends a few tokens beside its text."""
    if isinstance(message, CustomMessage):  # what a hook makes of its data is not known here; without one it is not sent
        return len(shown(message.data)) + 16 if converted else 0
    if isinstance(message, AssistantMessage) and message.is_cut:
        return 0
    return size(message) + 16


def fails_run(state: CoreState, input: Any) -> bool:
    own_end = input.event_type in ("subscriber.failed", "run.finished")
    current = state.run is not None and input.run_id == state.run.id
    return state.config.subscriber_failure == "fail_run" and current and not own_end


def undoes_outcome(state: CoreState, input: Any) -> bool:
    run = state.run
    outcome = run.outcome if run is not None and run.result is None else None
    return outcome is not None and outcome.status not in ("cancelled", "failed") and fails_run(state, input)


def unwound(state: CoreState, input: Any) -> bool:
    return not state.works


def close_wanted(state: CoreState, input: Any) -> bool:
    return state.close_wanted


Predicate = Callable[[CoreState, Any], bool]
GUARDS: Final[dict[Guard, Predicate]] = {guard: globals()[guard.value] for guard in Guard}
