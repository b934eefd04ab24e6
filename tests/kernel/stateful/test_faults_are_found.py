"""Faults are planted in the kernel, one by one, and the state machine must find each of them.

A green stateful test proves little until it has failed: these are the faults that its promises are worth.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import Phase, settings

from kernel import core, guards
from kernel.actions import ACTIONS, batches, endings, turns
from kernel.core import BoundStep, Core, bound_table
from kernel.effects import Barrier
from kernel.events import MessageAccepted, RunFinished
from kernel.listeners import Listeners
from kernel.state import CallStatus, CoreState
from kernel.transcript import MessageView, Transcript
from kernel.work import Work
from statechart import Action, Command, Guard, Leaf, Step
from tests.kernel.stateful.machine import AgentMachine, attack

Plant = pytest.MonkeyPatch


def steering_stays_queued(plant: Plant) -> None:
    """A steering message that was delivered waits on."""

    def accept(state: CoreState, input: Any) -> None:
        waiting = list(state.steering)
        turns.accept_steering(state, input)
        state.steering[:] = waiting

    plant.setitem(ACTIONS, Action.ACCEPT_STEERING, accept)


def cancel_stops_nothing(plant: Plant) -> None:
    """A cancel waits for what is going on and does not tell it to stop."""
    plant.setitem(ACTIONS, Action.STOP_WORK, endings.start_grace)


def cancel_misses_what_has_not_begun(plant: Plant) -> None:
    """Work whose task was made but has not taken its first step is not told of a cancel."""
    stop = Work.stop
    plant.setattr(Work, "stop", lambda work: stop(work) if work.started else None)
    plant.setattr(Core, "is_running", True)


def cancel_has_no_deadline(plant: Plant) -> None:
    """What ignores a cancel is waited for without end."""
    plant.setitem(ACTIONS, Action.START_GRACE, lambda *_: None)
    plant.setattr(endings, "start_grace", lambda *_: None)


def a_call_is_left_open(plant: Plant) -> None:
    """When a batch is closed, the last call that did not run gets no result."""
    close = batches.close_calls

    def close_some(state: CoreState, batch: Any, unexecuted: str) -> None:
        for call in [call for call in batch.calls if call.status is CallStatus.WAITING][-1:]:
            call.recorded = True
            batches._done(state, call)
        close(state, batch, unexecuted)

    plant.setattr(batches, "close_calls", close_some)
    plant.setattr(endings, "close_calls", close_some)


def late_reports_are_taken(plant: Plant) -> None:
    """The core does not look whether a report is of something that it still waits for."""
    plant.setattr(core, "_REPORTS", frozenset())


def old_deliveries_count(plant: Plant) -> None:
    """An `advance` of an earlier delivery is taken for that of the newest one."""
    plant.setattr(CoreState, "await_delivery", lambda state, _=(): state.effects.append(Barrier(state.barrier)))


def a_run_finishes_twice(plant: Plant) -> None:
    """`run.finished` is published twice."""

    def finish(state: CoreState, input: Any) -> None:
        endings.finish(state, input)
        run = state.live
        state.effects.insert(-1, RunFinished(run.id, run.sequence, run.result))

    plant.setitem(ACTIONS, Action.FINISH, finish)


def listeners_hear_first(plant: Plant) -> None:
    """A prompt is announced before it is recorded."""
    late: list[Any] = []

    def accept(state: CoreState, input: Any) -> None:
        late.append(input.message)
        state.publish(MessageAccepted, input.message, "prompt")

    def await_delivery(state: CoreState, input: Any) -> None:
        turns.await_delivery(state, input)

    def project(state: CoreState, input: Any) -> None:
        while late:
            state.add_message(late.pop())
        turns.project(state, input)

    plant.setitem(ACTIONS, Action.ACCEPT_PROMPT, accept)
    plant.setitem(ACTIONS, Action.AWAIT_DELIVERY, await_delivery)
    plant.setitem(ACTIONS, Action.PROJECT, project)


def snapshots_grow(plant: Plant) -> None:
    """An old view of the transcript shows the messages that came after it."""
    plant.setattr(MessageView, "__iter__", lambda view: iter(view._storage))


def cut_messages_are_sent(plant: Plant) -> None:
    """A message that was cut goes to the model again."""
    plant.setattr(Transcript, "plain", property(lambda transcript: transcript.messages))
    plant.setattr(Transcript, "context", property(lambda transcript: transcript.messages))


def follow_ups_push_in(plant: Plant) -> None:
    """A follow-up enters though tool results wait for the model."""
    plant.setitem(guards.GUARDS, Guard.TURN_OWED, lambda *_: False)


def retries_never_end(plant: Plant) -> None:
    """A failure that may pass is waited out again and again."""

    def retryable(state: CoreState, input: Any) -> bool:
        return state.config.retry is not None and input.failure.retryable

    plant.setitem(guards.GUARDS, Guard.RETRYABLE, retryable)


def keys_are_not_held(plant: Plant) -> None:
    """Two calls that share a resource key run at the same time."""
    plant.setattr(CoreState, "held_resources", lambda state: set())


def unsubscribing_removes_the_first(plant: Plant) -> None:
    """To unsubscribe ends somebody else's subscription."""

    def remove(listeners: Listeners, subscription: Any) -> None:
        listeners.all = listeners.all[:1] + listeners.all[2:]

    plant.setattr(Listeners, "_remove", remove)


def the_table_forgets_a_cancel(plant: Plant) -> None:
    """The compiled table does nothing for a cancel while a response streams; the live machine cancels."""
    plant.setitem(bound_table()[Leaf.STREAMING], Command.CANCEL, BoundStep(Leaf.STREAMING, (), Step(Leaf.STREAMING, ())))


FAULTS: Final[dict[Callable[[Plant], None], str]] = {
    steering_stays_queued: "g6_each_item_is_in_one_place",
    cancel_stops_nothing: "nothing was in the way|after the cancel was accepted",
    cancel_misses_what_has_not_begun: "after the cancel was accepted",
    cancel_has_no_deadline: "stuck in cancelling|stuck in settling|g8_cancel_is_bounded",
    a_call_is_left_open: "G4|the results of|no result of",
    late_reports_are_taken: "has no answer in",
    old_deliveries_count: "run.finished came|G[0-9]+ at|has no answer in",
    a_run_finishes_twice: "run.finished",
    listeners_hear_first: "G12",
    snapshots_grow: "g14_snapshots_never_change",
    cut_messages_are_sent: "a cut message|a custom message|sent were|continue_ in idle",  # a cut tail then blocks, too
    follow_ups_push_in: "g6_",
    retries_never_end: "g9_attempts_are_bounded",
    keys_are_not_held: "at the same time",
    unsubscribing_removes_the_first: "listeners_hear_everything",
    the_table_forgets_a_cancel: "transitions says",
}
"""Each fault, and what is said by the promises that it breaks. A fault that crashes is found too easily to prove much."""


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch):
    """A patch of the kernel that is taken out again, with what was bound to it."""
    bound_table.cache_clear()
    yield monkeypatch
    bound_table.cache_clear()


@pytest.mark.parametrize(("fault", "said"), FAULTS.items(), ids=[fault.__name__ for fault in FAULTS])
def test_a_planted_fault_is_found(fault, said, plant, examples):
    """The state machine fails by the promise that this fault breaks."""
    fault(plant)
    generate = settings(examples(1_000), phases=(Phase.generate,))
    with pytest.raises(AssertionError, match=said):
        attack(AgentMachine, generate, lambda: True)  # more, with other seeds, as long as nothing is found
