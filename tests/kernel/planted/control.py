"""Faults against G6 to G8: what is queued, what a cancel stops, and in which time."""

import threading
import types
from typing import Any

from kernel import threads, workers
from kernel.actions import batches, endings, runs, turns
from kernel.core import Core
from kernel.errors import Failure
from kernel.events import ToolUpdated, UpdateDiscarded
from kernel.inputs import QueuedItem, ResponseCompleted
from kernel.messages import UserMessage
from kernel.shell import Shell
from kernel.state import CoreState, Outcome
from kernel.work import Work
from statechart import Action, Command, Fact, Guard, Leaf
from tests.kernel.planted.kit import Fault, Plant, action, after, before, deaf, guard, nothing, replace, unsaid

# ---- G6 ----


def steering_enters_at_once(plant: Plant) -> None:
    """A steering message enters in the middle of a turn."""
    after(plant, Action.ENQUEUE_STEERING, lambda state, told: state.run and turns.accept_steering(state, told))


def steering_never_joins_the_prompt(plant: Plant) -> None:
    """What was queued before the first drain point waits for the second."""
    guard(plant, Guard.STEERING_JOINS, lambda *_: False)


def a_follow_up_is_taken_for_steering(plant: Plant) -> None:
    """A follow-up enters at the next boundary."""
    action(plant, Action.ENQUEUE_FOLLOW_UP, runs.enqueue_steering)


def items_are_merged(plant: Plant) -> None:
    """Items that enter together become one message."""
    deliver = turns._deliver

    def merge(state: Any, queue: list[Any], mode: Any, origin: Any) -> None:
        if mode == "all" and queue:
            text = "\n".join(item.message.text for item in queue)
            queue[:] = [QueuedItem(queue[0].id, UserMessage(text))]
        deliver(state, queue, mode, origin)

    plant.setattr(turns, "_deliver", merge)


def a_mode_is_not_heard(plant: Plant) -> None:
    """One item enters where the policy says all."""
    deliver = turns._deliver
    plant.setattr(turns, "_deliver", lambda state, queue, _, origin: deliver(state, queue, "one", origin))


def a_cancel_loses_what_waits(plant: Plant) -> None:
    """A cancel empties the queues and tells nobody."""

    def lose(state: Any, input: Any) -> None:
        state.steering.clear()
        state.follow_up.clear()

    after(plant, Action.ACCEPT_CANCEL, lose)


def what_is_taken_out_is_not_reported(plant: Plant) -> None:
    """An item that is unqueued is just gone."""
    tell = CoreState.tell_queues
    plant.setattr(CoreState, "tell_queues", lambda state, dropped=(): None if dropped else tell(state))


def receipts_are_not_told(plant: Plant) -> None:
    """A receipt says `queued` for ever."""
    plant.setattr(Shell, "settle_receipts", nothing)


def the_last_poll_is_early(plant: Plant) -> None:
    """What comes while the follow-ups are looked at is not seen before the run ends."""
    guard(plant, Guard.HAS_STEERING, lambda state, _: bool(state.steering) and state.leaf is not Leaf.FOLLOW_UP)


def the_end_takes_what_waits(plant: Plant) -> None:
    """A run that ends forgets what was queued after its outcome had been decided."""
    after(plant, Action.END_RUN, lambda state, _: state.steering.clear())


# ---- G7 ----


def _begins_after_a_cancel(kind: str, name: str) -> Fault:
    def fault(plant: Plant) -> None:
        stop = Work.stop
        plant.setattr(Work, "stop", lambda work: None if work.kind == kind and not work.started else stop(work))
        plant.setattr(Core, "is_running", True)

    fault.__name__ = name
    fault.__doc__ = f"A {kind} that was asked for and had not begun begins though the run was cancelled."
    return fault


a_request_goes_out_after_a_cancel = _begins_after_a_cancel("model", "a_request_goes_out_after_a_cancel")
a_hook_begins_after_a_cancel = _begins_after_a_cancel("hook", "a_hook_begins_after_a_cancel")
a_tool_begins_after_a_cancel = _begins_after_a_cancel("tool", "a_tool_begins_after_a_cancel")


def a_batch_goes_on_after_a_cancel(plant: Plant) -> None:
    """The call that was announced when its run was cancelled is prepared all the same, hook included."""

    def go_on(state: Any, input: Any) -> None:
        if state.live.batch is not None:
            batches.advance_batch(state, input)
            state.works.clear()  # what it reports is late

    before(plant, Action.UNWIND, go_on)
    plant.setattr(Core, "is_running", True)


def a_completion_beats_the_cancel(plant: Plant) -> None:
    """A response that is complete when its run was cancelled completes the run."""

    def adopt(state: Any, input: Any) -> None:
        endings.release_work(state, input)
        if isinstance(input, ResponseCompleted):
            state.live.outcome = Outcome("completed")

    action(plant, Action.RELEASE_WORK, adopt)


def the_text_decides(plant: Plant) -> None:
    """A failure that speaks of a cancel is taken for one."""
    fail = turns._fail_with

    def fail_or_cancel(state: Any, work: int, failure: Failure) -> None:
        fail(state, work, failure)
        if "cancel" in failure.message:
            state.live.outcome = Outcome("cancelled")

    plant.setattr(turns, "_fail_with", fail_or_cancel)


# ---- G8 ----

PLACES = {
    "turn": (Leaf.OPENING, Leaf.PROJECTING, Leaf.REQUESTING, Leaf.STREAMING),
    "tools": (Leaf.TOOLS,),
    "steering": (Leaf.STEERING,),
    "follow_up": (Leaf.FOLLOW_UP,),
    "compaction": (Leaf.COMPACTION,),
    "retry": (Leaf.RETRY,),
}


def _forgets_a_cancel(phase: str) -> Fault:
    def fault(plant: Plant) -> None:
        deaf(plant, Command.CANCEL, *PLACES[phase])

    fault.__name__ = f"no_cancel_in_{phase}"
    fault.__doc__ = "A cancel while tools run does nothing." if phase == "tools" else f"A cancel in `{phase}` does nothing."
    return fault


NO_CANCEL = {phase: _forgets_a_cancel(phase) for phase in PLACES}


def each_cancel_starts_a_grace(plant: Plant) -> None:
    """A second cancel, while the run settles, gives what is deaf its whole time once more."""

    def start(state: Any, input: Any) -> None:
        state.start_timer(Fact.GRACE_ELAPSED, state.config.cancel_grace)

    action(plant, Action.START_GRACE, start)
    replace(plant, "start_grace", start, endings)


def the_grace_is_longer(plant: Plant) -> None:
    """What is deaf has more than `cancel_grace` seconds."""

    def start(state: Any, input: Any) -> None:
        state.start_timer(Fact.GRACE_ELAPSED, state.config.cancel_grace + 1)

    action(plant, Action.START_GRACE, start)
    replace(plant, "start_grace", start, endings)


def _is_waited_for(kind: str) -> Fault:
    def fault(plant: Plant) -> None:
        abandon = Shell.abandon

        def some(shell: Any, task: Any, run_id: str, what: str, *rest: Any) -> None:
            if what != kind:
                abandon(shell, task, run_id, what, *rest)

        plant.setattr(Shell, "abandon", some)

    fault.__name__ = f"a_deaf_{kind}_is_forgotten"
    fault.__doc__ = f"A {kind} that ignores its cancel is given up and not remembered."
    return fault


FORGOTTEN = {kind: _is_waited_for(kind) for kind in ("model", "tool", "hook", "compactor", "listener")}


def nothing_is_abandoned(plant: Plant) -> None:
    """When the grace is over, what is deaf is waited for all the same."""
    deaf(plant, Fact.GRACE_ELAPSED, Leaf.CANCELLING, Leaf.SETTLING)


def listeners_are_waited_for(plant: Plant) -> None:
    """A listener that never ends is not given up."""
    action(plant, Action.ABANDON_LISTENERS, nothing)


def a_late_word_is_progress(plant: Plant) -> None:
    """What an abandoned tool says is told as if it were still running."""
    publish = CoreState.publish

    def as_progress(state: Any, kind: type, *content: Any) -> None:
        if kind is UpdateDiscarded:
            publish(state, ToolUpdated, *content, "late")
        else:
            publish(state, kind, *content)

    plant.setattr(CoreState, "publish", as_progress)


def a_late_word_is_not_told(plant: Plant) -> None:
    """What an abandoned tool says is swallowed."""
    unsaid(plant, UpdateDiscarded)


def the_next_run_hears_nothing(plant: Plant) -> None:
    """What is said after its run has ended is dropped, though another run goes."""
    feed = workers.Workers.feed
    plant.setattr(workers.Workers, "feed", lambda self, told: None if self._intake.is_over else feed(self, told))


def settling_answers_true(plant: Plant) -> None:
    """A cancel that comes too late says that it was in time."""
    cancel = Shell.cancel

    def yes(shell: Any, *arguments: Any) -> bool:
        return cancel(shell, *arguments) or shell.core.state.leaf is Leaf.SETTLING

    plant.setattr(Shell, "cancel", yes)


def a_late_cancel_decides(plant: Plant) -> None:
    """A cancel while the run settles changes its outcome."""
    deaf(plant, Command.CANCEL, Leaf.SETTLING, do=(endings.accept_cancel, endings.start_grace))


def a_late_close_decides(plant: Plant) -> None:
    """A close while the run settles changes its outcome."""
    deaf(plant, Command.CLOSE, Leaf.SETTLING, do=(runs.request_close, endings.accept_cancel, endings.start_grace))


def settling_has_no_deadline(plant: Plant) -> None:
    """A cancel while the run settles does not hurry its listeners."""
    action(plant, Action.START_GRACE, nothing)


def threads_hold_the_process(plant: Plant) -> None:
    """Sync tools run in threads that the process waits for."""

    class Held(threading.Thread):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**{**arguments, "daemon": False})

    plant.setattr(threads, "threading", types.SimpleNamespace(Thread=Held))
