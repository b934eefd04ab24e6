"""Faults against G1 to G5: what a run says, and in which order."""

from typing import Any

import attrs

from kernel.actions import batches, endings, runs, turns
from kernel.events import MessageStarted, RunFinished, RunStarted, TurnEnded
from kernel.messages import Text
from kernel.open_message import OpenMessage
from kernel.state import CoreState
from statechart import Action
from tests.kernel.planted.kit import Plant, action, after, before, nothing, replace, unsaid

# ---- G1 ----


def a_run_begins_in_silence(plant: Plant) -> None:
    """No `run.started`."""
    unsaid(plant, RunStarted)


def a_phase_is_told_before_its_run(plant: Plant) -> None:
    """The first change of phase comes before `run.started`."""
    begin, announce = runs.begin_run, runs.announce_phase

    def early(state: Any, input: Any) -> None:
        begin(state, input)
        started = state.effects.pop(next(n for n, effect in enumerate(state.effects) if isinstance(effect, RunStarted)))
        state.run.sequence = 0
        announce(state, input)
        state.publish(type(started))

    action(plant, Action.BEGIN_RUN, early)


def a_cancelled_run_never_finishes(plant: Plant) -> None:
    """No `run.finished` where the run was cancelled."""
    unsaid(plant, RunFinished, lambda _, content: content[0].status == "cancelled")


def a_failed_run_never_finishes(plant: Plant) -> None:
    """No `run.finished` where the run failed."""
    unsaid(plant, RunFinished, lambda _, content: content[0].status == "failed")


def the_end_is_not_the_last_word(plant: Plant) -> None:
    """What is commanded while the listeners hear the end is told as well."""

    def publish(state: CoreState, kind: Any, *content: Any) -> None:
        if state.run is not None:
            state.effects.append(kind(state.run.id, state.run.sequence, *content))
            state.run.sequence += 1

    plant.setattr(CoreState, "publish", publish)


# ---- G2 ----


def a_turn_stays_open(plant: Plant) -> None:
    """A run that failed does not close its turn."""
    unsaid(plant, TurnEnded, lambda state, _: getattr(state.live.outcome, "status", "") == "failed")


def a_message_stays_open(plant: Plant) -> None:
    """A response that was cut does not close its message."""
    replace(plant, "cut_message", nothing, endings)


def tools_stay_open(plant: Plant) -> None:
    """Calls that were still going when the run ended are not closed."""
    replace(plant, "close_calls", nothing, endings)


def a_backoff_stays_open(plant: Plant) -> None:
    """A retry that was cancelled is not closed."""
    replace(plant, "end_backoff", nothing, endings)


def a_compaction_stays_open(plant: Plant) -> None:
    """A compaction that was cancelled is not closed."""
    replace(plant, "end_compaction", nothing, endings)


def the_turn_closes_first(plant: Plant) -> None:
    """What is open in a turn closes after it."""

    def early(state: Any, input: Any) -> None:
        run = state.live
        if run.turn_open:
            run.turn_open = False
            state.publish(TurnEnded, run.turn, tuple(run.results))

    before(plant, Action.UNWIND, early)


# ---- G3 ----


def a_message_starts_late(plant: Plant) -> None:
    """`message.started` comes after the pieces of its message."""
    unsaid(plant, MessageStarted, lambda _, content: content == ("assistant",))
    before(plant, Action.ADOPT_RESPONSE, lambda state, _: CoreState.publish(state, MessageStarted, "assistant", None))


def a_piece_is_lost(plant: Plant) -> None:
    """A message keeps only the first piece of its text."""
    add = OpenMessage.add_text
    plant.setattr(OpenMessage, "add_text", lambda message, text: None if message._pieces else add(message, text))


def reasoning_is_text(plant: Plant) -> None:
    """What a model thought is put into what it said."""
    plant.setattr(OpenMessage, "add_reasoning", lambda message, delta: message.add_text(delta.text))


# ---- G4 ----


def a_result_comes_twice(plant: Plant) -> None:
    """The end of a batch records what was recorded already."""
    record = batches._record

    def again(state: Any, call: Any) -> None:
        call.recorded = False
        record(state, call)

    plant.setattr(batches, "_record", again)


def steering_comes_before_the_results(plant: Plant) -> None:
    """An item that waits enters between calls and results."""
    before(plant, Action.CLOSE_BATCH, turns.accept_steering)


def results_come_as_they_complete(plant: Plant) -> None:
    """The result of a fast call is recorded before that of a slow one."""
    move = batches._move_on

    def record_first(state: Any, done: Any) -> None:
        batches._record(state, done)
        move(state, done)

    plant.setattr(batches, "_move_on", record_first)


def a_cancel_leaves_calls_open(plant: Plant) -> None:
    """After a cancel, calls that had not begun have no result."""
    _forget_waiting(plant, lambda outcome: outcome.status == "cancelled")


def a_failure_leaves_calls_open(plant: Plant) -> None:
    """After a failing listener, calls that had not begun have no result."""
    _forget_waiting(plant, lambda outcome: outcome.failure is not None and outcome.failure.code == "SUBSCRIBER_FAILED")


def a_limit_leaves_calls_open(plant: Plant) -> None:
    """After the deadline of the run, calls that had not begun have no result."""
    _forget_waiting(plant, lambda outcome: outcome.failure is not None and outcome.failure.code == "RUN_DEADLINE")


def _forget_waiting(plant: Plant, when: Any) -> None:
    def forget(state: Any, input: Any) -> None:
        if state.live.batch is not None and when(state.live.outcome):
            for call in state.live.batch.calls:
                call.recorded = call.recorded or call.status is batches.CallStatus.WAITING

    before(plant, Action.UNWIND, forget)


def synthesized_results_are_not_marked(plant: Plant) -> None:
    """The result of a call that did not run says that it ran."""
    answer = batches._answer

    def marked(state: Any, call: Any, *content: Any, **rest: Any) -> None:
        call.executed = True
        answer(state, call, *content, **rest)

    plant.setattr(batches, "_answer", marked)


def interrupted_is_not_executed(plant: Plant) -> None:
    """The result of a call that was interrupted says that it never ran."""
    plant.setattr(batches, "INTERRUPTED", batches.UNEXECUTED)


def tools_end_in_source_order(plant: Plant) -> None:
    """`tool.ended` is told when the result is recorded."""
    answer, record = batches._answer, batches._record
    owed: dict[Any, Any] = {}

    def answer_later(state: Any, call: Any, *content: Any, **rest: Any) -> None:
        answer(state, call, *content, **rest)
        owed[call] = state.effects.pop()
        state.live.sequence -= 1

    def tell_and_record(state: Any, call: Any) -> None:
        if not call.recorded:
            told = owed.pop(call)
            state.publish(type(told), told.call_id, told.name, told.text, told.is_error, told.executed)
        record(state, call)

    plant.setattr(batches, "_answer", answer_later)
    plant.setattr(batches, "_record", tell_and_record)


def finished_work_is_lost(plant: Plant) -> None:
    """A cancel replaces the results that were there already."""

    def lose(state: Any, input: Any) -> None:
        for call in state.live.batch.calls if state.live.batch else ():
            if call.answer is not None:
                call.answer = attrs.evolve(call.answer, content=(Text(batches.INTERRUPTED),))

    before(plant, Action.UNWIND, lose)


# ---- G5 ----


def _end_turn_early(state: Any, input: Any) -> None:
    state.live.turn_open = False
    state.publish(TurnEnded, state.live.turn, ())


def a_turn_ends_before_its_tools(plant: Plant) -> None:
    """`turn.ended` comes when the response is complete."""
    after(plant, Action.ADOPT_RESPONSE, _end_turn_early)


def a_turn_ends_before_its_results(plant: Plant) -> None:
    """`turn.ended` comes when the last tool has ended."""
    before(plant, Action.CLOSE_BATCH, _end_turn_early)


def results_are_not_listed(plant: Plant) -> None:
    """`turn.ended` says that its turn had no results."""
    before(plant, Action.END_TURN, lambda state, _: state.live.results.clear())


# ---- what a stream says wrongly ----


def a_failure_looks_like_a_cancel(plant: Plant) -> None:
    """The message of a response that failed says that it was aborted, with no error."""
    cut, synthesize = turns.cut_message, turns.synthesize_failure

    def aborted(state: Any) -> None:
        outcome, state.live.outcome = state.live.outcome, None
        cut(state)
        state.live.outcome = outcome

    def empty(state: Any, open_a_turn: Any = None) -> None:
        if state.live.messages[-1].role == "user":
            synthesize(state, open_a_turn)

    replace(plant, "cut_message", aborted, turns)
    replace(plant, "synthesize_failure", empty, turns)


def a_failure_has_no_message(plant: Plant) -> None:
    """A failure that came before anything was said leaves no message."""
    replace(plant, "synthesize_failure", nothing, turns)
