"""How a run ends. However it does, it goes through one funnel: `unwind` closes what is open, `finish` tells the result."""

from typing import Any

from kernel.actions.batches import UNEXECUTED, close_calls, held_call
from kernel.actions.detours import end_backoff, end_compaction
from kernel.actions.turns import begin_turn, cut_message, end_turn, synthesize_failure
from kernel.effects import AbandonListeners, AbandonWork, CancelWork, Settle
from kernel.errors import Failure, KernelBug, MessageLimitError
from kernel.events import RunFinished, RunResult, TurnStarted
from kernel.guards import spent
from kernel.state import CallStatus, CoreState, Outcome
from statechart import Fact


def complete(state: CoreState, input: Any) -> None:
    state.live.outcome = Outcome("completed")


def stop(state: CoreState, input: Any) -> None:
    state.live.outcome = Outcome("stopped")


def exhaust_turns(state: CoreState, input: Any) -> None:
    state.live.outcome = Outcome("max_turns")


def fail_by_usage(state: CoreState, input: Any) -> None:
    why = f"{spent(state)}, and the model has yet to answer; continue_() goes on with a new budget"
    state.live.outcome = Outcome("failed", Failure(why, code="USAGE_LIMIT"))


def fail_by_output(state: CoreState, input: Any) -> None:
    checked = state.live.output
    assert checked is not None
    why = (
        f"the answer is not what was asked for ({checked.error}), and message_limit has no room to ask again; "
        "reset() or compact() first"
    )
    state.live.outcome = Outcome("failed", Failure(why, code=MessageLimitError.code))


def fail(state: CoreState, input: Any) -> None:
    failure = state.live.failure or Failure("the compaction was declined")
    state.live.outcome = Outcome("failed", failure)


def accept_cancel(state: CoreState, input: Any) -> None:
    state.live.outcome = Outcome("cancelled", reason=getattr(input, "reason", None) or _default_reason(input))


def _default_reason(input: Any) -> str | None:
    return None if hasattr(input, "reason") else "closed"


def fail_by_deadline(state: CoreState, input: Any) -> None:
    seconds = state.config.run_deadline
    failure = Failure(f"the run took longer than run_deadline, {seconds} s", code="RUN_DEADLINE")
    state.live.outcome = Outcome("failed", failure)


def fail_by_listener(state: CoreState, input: Any) -> None:
    state.live.outcome = Outcome(
        "failed", Failure(input.failure.message, code="SUBSCRIBER_FAILED", cause=input.failure.cause)
    )


def halt(state: CoreState, input: Any) -> None:
    if input.failure is not None:
        state.live.outcome = Outcome("failed", input.failure)
    else:
        state.live.outcome = Outcome("cancelled", reason="the event loop or the task that carried the run is gone")


def stop_work(state: CoreState, input: Any) -> None:
    start_grace(state, input)
    state.stop_timer(Fact.BACKOFF_ELAPSED)
    if state.works:
        state.effects.append(CancelWork(tuple(state.works)))


def start_grace(state: CoreState, input: Any) -> None:
    """One deadline for the run, however often it is told to stop."""
    if Fact.GRACE_ELAPSED not in state.live.timers:
        state.start_timer(Fact.GRACE_ELAPSED, state.config.cancel_grace)


def release_work(state: CoreState, input: Any) -> None:
    del state.works[input.work]


def abandon_work(state: CoreState, input: Any) -> None:
    if not state.works:
        return
    state.effects.append(AbandonWork(tuple(state.works)))
    for work, call in state.works.items():
        if call is not None and call.status is CallStatus.RUNNING:  # its hook holds no keys, and nobody would free them
            state.abandoned[work] = held_call(state, call)
    state.works.clear()


def abandon_listeners(state: CoreState, input: Any) -> None:
    state.effects.append(AbandonListeners())


def unwind(state: CoreState, input: Any) -> None:
    """Close, from the inside out, all that is open."""
    end_backoff(state, input)
    run = state.live
    end_compaction(state, "cancelled")
    if run.batch is not None:
        close_calls(state, run.batch, UNEXECUTED)
    had_turns = run.turn > 0
    cut_message(state)
    synthesize_failure(state, open_turn_for_failure if had_turns else None)
    end_turn(state, input)


def open_turn_for_failure(state: CoreState) -> None:
    """A failure outside a turn opens one turn more for its message; `max_turns` does not count it."""
    begin_turn(state)
    state.live.turn += 1
    state.publish(TurnStarted, state.live.turn)


def finish(state: CoreState, input: Any) -> None:
    run = state.live
    outcome = run.outcome or Outcome("failed", Failure("the run ended without an outcome", code=KernelBug.code))
    result = RunResult(
        run_id=run.id,
        status=outcome.status,
        final_text=run.final_text,
        messages=tuple(run.messages),
        partial=run.partial,
        usage=run.usage,
        turns=run.turn,
        requests=run.requests,
        tool_calls=run.tool_calls,
        failure=outcome.failure,
        reason=outcome.reason,
        output=run.output.value if run.output is not None and outcome.status == "completed" else None,
    )
    state.error_message = outcome.failure.message if outcome.failure is not None else None
    state.publish(RunFinished, result)
    run.result = result
    state.effects.append(Settle())
