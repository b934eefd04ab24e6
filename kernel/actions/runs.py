"""The frame of a run, its queues and its configuration."""

from typing import Any

from kernel.effects import RunEnded
from kernel.events import PhaseChanged, RunStarted, SubscriberFailed
from kernel.state import ERRORS_KEPT, CoreState, ListenerFailure, RunState
from kernel.transcript import Transcript
from statechart import Fact, phase_of


def announce_phase(state: CoreState, input: Any) -> None:
    previous, state.phase = state.phase, phase_of(state.leaf)
    state.publish(PhaseChanged, str(previous), str(state.phase))


def begin_run(state: CoreState, input: Any) -> None:
    state.run = RunState(input.run_id)
    state.error_message = None
    state.publish(RunStarted)
    if state.config.run_deadline is not None:
        state.start_timer(Fact.DEADLINE_ELAPSED, state.config.run_deadline)


def end_run(state: CoreState, input: Any) -> None:
    run = state.live
    for fact in list(run.timers):
        state.stop_timer(fact)
    assert run.result is not None
    state.effects.append(RunEnded(run.result))
    state.run = None
    state.works = {}  # all of it is closed; a new one, since an emptied one keeps its room while the agent idles
    state.phase = phase_of(state.leaf)
    adopt_staged(state)


def adopt_staged(state: CoreState) -> None:
    """Let a configuration that came while the agent was busy take effect."""
    if state.staged is not None:
        state.setup, state.staged = state.staged, None


def reset(state: CoreState, input: Any) -> None:
    state.transcript = Transcript()
    state.archive = ()
    state.context_tokens = state.counted = 0
    state.error_message = None
    state.listener_failures = ()
    state.listener_failure_count = 0
    clear_queues(state, input)


def configure(state: CoreState, input: Any) -> None:
    state.setup = input.setup


def stage_configuration(state: CoreState, input: Any) -> None:
    state.staged = input.setup


def enqueue_steering(state: CoreState, input: Any) -> None:
    state.steering.append(input.item)
    state.tell_queues()


def enqueue_follow_up(state: CoreState, input: Any) -> None:
    state.follow_up.append(input.item)
    state.tell_queues()


def unqueue(state: CoreState, input: Any) -> None:
    for queue in (state.steering, state.follow_up):
        for item in queue:
            if item.id == input.item_id:
                queue.remove(item)
                state.leave_queue((item,), "dropped")
                return


def clear_queues(state: CoreState, input: Any) -> None:
    items = (*state.steering, *state.follow_up)
    state.steering.clear()
    state.follow_up.clear()
    state.leave_queue(items, "dropped")


def request_close(state: CoreState, input: Any) -> None:
    state.close_wanted = True


def close(state: CoreState, input: Any) -> None:
    state.phase = phase_of(state.leaf)


def record_listener_failure(state: CoreState, input: Any) -> None:
    error = input.failure.message
    failure = ListenerFailure(input.run_id, input.event_type, input.event, error)
    state.listener_failures = (*state.listener_failures, failure)[-ERRORS_KEPT:]  # a deque takes 600 bytes, even when empty
    state.listener_failure_count += 1
    # Telling listeners that a listener failed at being told so would go round for ever.
    if input.event_type != "subscriber.failed" and state.run is not None and state.run.id == input.run_id:
        state.publish(SubscriberFailed, input.event_type, input.event, error)
