"""The ways out of a turn and back: waiting to ask again, making the context smaller, and asking whether to stop."""

from typing import Any, Final

from kernel.effects import CallHook, CheckOutput, Summarize
from kernel.errors import Failure
from kernel.events import CompactionEnded, CompactionStarted, HookFailed, RetryEnded, RetryScheduled
from kernel.inputs import Compact, OutputChecked, ResponseFailed
from kernel.messages import SummaryMessage
from kernel.state import Compaction, CoreState
from statechart import Fact

_DOUBLINGS: Final = 1023
"""Of the backoff: the largest power of two that a float can hold. By then every wait is at its cap."""


def ask_stop(state: CoreState, input: Any) -> None:
    state.effects.append(CallHook(state.start(), "should_stop_after_turn"))


def take_stop_answer(state: CoreState, input: Any) -> None:
    del state.works[input.work]
    state.live.stop_answer = input.answer
    if input.failure is not None:
        state.publish(HookFailed, "should_stop_after_turn", input.failure)


def check_output(state: CoreState, input: Any) -> None:
    state.effects.append(CheckOutput(state.start(), state.live.final_text))


def take_output(state: CoreState, input: OutputChecked) -> None:
    del state.works[input.work]
    state.live.output = input


def start_backoff(state: CoreState, input: ResponseFailed) -> None:
    run = state.live
    run.attempts += 1
    run.backing_off = True
    delay = _delay(state, input.failure, input.jitter)
    state.publish(RetryScheduled, run.attempts, delay, input.failure.message)
    state.start_timer(Fact.BACKOFF_ELAPSED, delay)


def _delay(state: CoreState, failure: Failure, jitter: float) -> float:
    """Full jitter: from nothing to the exponential bound, so that many agents do not come back together."""
    policy = state.config.retry
    assert policy is not None
    if failure.retry_after is not None:
        return min(policy.max_delay, max(0.0, failure.retry_after))
    doublings = min(state.live.attempts - 1, _DOUBLINGS)
    return jitter * min(policy.max_delay, policy.base_delay * 2.0**doublings)


def end_backoff(state: CoreState, input: Any) -> None:
    run = state.live
    if run.backing_off:
        run.backing_off = False
        state.stop_timer(Fact.BACKOFF_ELAPSED)
        state.publish(RetryEnded, run.attempts)


def start_compaction(state: CoreState, input: Any) -> None:
    run = state.live
    run.steering_drained = True
    policy = state.config.compaction
    assert policy is not None
    match input:
        case Compact():
            reason = "manual"
        case ResponseFailed():
            reason = "overflow"
            run.overflow_tried = True
        case _:
            reason = "threshold"
            run.threshold_tried = True
    run.compaction = Compaction(reason, state.transcript.cut(policy.keep_turns))  # type: ignore[arg-type]
    state.publish(CompactionStarted, reason)


def summarize(state: CoreState, input: Any) -> None:
    older = state.transcript.older(_compaction(state).length)
    state.effects.append(Summarize(state.start(), tuple(m for m in older if not getattr(m, "is_cut", False))))


def adopt_summary(state: CoreState, input: Any) -> None:
    del state.works[input.work]
    state.tell_hook_failures(input.failures)
    length = _compaction(state).length
    summary = SummaryMessage(input.text)
    state.archive = (*state.archive, *state.transcript.older(length))
    state.transcript = state.transcript.compacted(length, summary)
    state.context_tokens = state.counted = 0  # what the last response told was about the longer context
    state.live.messages.append(summary)
    end_compaction(state, "compacted")


def decline_compaction(state: CoreState, input: Any) -> None:
    state.works.pop(getattr(input, "work", 0), None)
    state.tell_hook_failures(getattr(input, "failures", ()))
    end_compaction(state, "declined")


def fail_compaction(state: CoreState, input: Any) -> None:
    del state.works[input.work]
    state.tell_hook_failures(input.failures)
    state.live.failure = input.failure
    end_compaction(state, "failed")


def end_compaction(state: CoreState, outcome: str) -> None:
    """Close the compaction, if one is open."""
    if state.live.compaction is not None:
        state.live.compaction = None
        state.publish(CompactionEnded, outcome)


def _compaction(state: CoreState) -> Compaction:
    compaction = state.live.compaction
    assert compaction is not None
    return compaction
