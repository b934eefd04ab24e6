"""Faults against G9 to G13: what a retry repeats, what a compaction keeps, what a stream may do, and what is left."""

from typing import Any

from kernel import guards, responding
from kernel.actions import detours, runs, turns
from kernel.drive import Drive
from kernel.errors import ModelError
from kernel.events import MessageEnded
from kernel.guards import GUARDS
from kernel.inputs import Compact, Summarized, SummaryFailed
from kernel.leftovers import Leftovers
from kernel.messages import StopReason, SummaryMessage, UserMessage
from kernel.transcript import Transcript
from kernel.work import Work
from kernel.workers import Workers
from statechart import Action, Guard
from tests.kernel.planted.kit import Plant, action, after, before, guard, later, nothing, replace

# ---- G9 ----


def a_retry_asks_with_what_was_said(plant: Plant) -> None:
    """The request that is sent again has the part of the answer that had come."""

    def add(state: Any, input: Any) -> None:
        run = state.live
        if run.message is not None:
            run.request_messages = (*run.request_messages, run.message.build(StopReason.STOP, cut=True))

    before(plant, Action.DISCARD_RESPONSE, add)


def a_retry_is_a_turn(plant: Plant) -> None:
    """Each attempt is counted as a turn."""

    def count(state: Any, input: Any) -> None:
        state.live.turn += 1

    after(plant, Action.START_BACKOFF, count)


def a_retry_leaves_its_message(plant: Plant) -> None:
    """What had been said before a retry stays in the transcript."""

    def keep(state: Any, input: Any) -> None:
        run = state.live
        message = run.message.build(StopReason.ERROR, input.failure.message, cut=True)
        del state.works[input.work]
        run.message, run.failure = None, input.failure
        state.add_message(message)
        state.publish(MessageEnded, message)

    action(plant, Action.DISCARD_RESPONSE, keep)


def attempts_are_counted_on(plant: Plant) -> None:
    """The turn after a retry has only the attempts that are left."""
    adopt, begin = turns.adopt_response, turns.begin_turn

    def adopt_and_count(state: Any, input: Any) -> None:
        attempts = state.live.attempts
        adopt(state, input)
        state.live.attempts = attempts

    def begin_and_count(state: Any) -> None:
        attempts = state.live.attempts
        begin(state)
        state.live.attempts = attempts

    action(plant, Action.ADOPT_RESPONSE, adopt_and_count)
    plant.setattr(turns, "begin_turn", begin_and_count)


# ---- G10 ----


def a_cut_parts_calls_and_results(plant: Plant) -> None:
    """A compaction cuts two messages after the end of a turn."""
    cut = Transcript.cut

    def too_late(transcript: Transcript, keep: int) -> int:
        place = cut(transcript, keep)
        return place and place + 2

    plant.setattr(Transcript, "cut", too_late)


def an_overflow_is_recovered_again(plant: Plant) -> None:
    """A turn may recover from any number of overflows."""
    guard(plant, Guard.OVERFLOW_RECOVERABLE, lambda state, told: told.failure.overflow)


def the_old_history_goes_first(plant: Plant) -> None:
    """What is summarized is taken away when the compactor is asked."""

    def take_away(state: Any, input: Any) -> None:
        state.transcript = state.transcript.compacted(state.live.compaction.length, SummaryMessage("…"))

    after(plant, Action.SUMMARIZE, take_away)


def a_compactor_is_not_told_to_stop(plant: Plant) -> None:
    """A cancel does not reach the compactor."""
    stop = Work.stop
    plant.setattr(Work, "stop", lambda work: None if work.kind == "compactor" else stop(work))


def a_summary_is_a_users_word(plant: Plant) -> None:
    """The summary enters as if a user had said it."""
    replace(plant, "SummaryMessage", UserMessage, detours)


def originals_are_thrown_away(plant: Plant) -> None:
    """What a summary stands for is gone."""

    def forget(state: Any, input: Any) -> None:
        state.archive = ()

    after(plant, Action.ADOPT_SUMMARY, forget)


def compact_opens_a_turn(plant: Plant) -> None:
    """`compact()` has a turn."""

    def open_turn(state: Any, input: Any) -> None:
        if isinstance(input, Compact):
            turns.open_turn(state, input)

    before(plant, Action.START_COMPACTION, open_turn)
    before(plant, Action.COMPLETE, turns.end_turn)


def a_declined_overflow_goes_on(plant: Plant) -> None:
    """After an overflow that no summary helped, the same is asked once more."""
    whole = GUARDS[Guard.COMPACTION_THRESHOLD]
    guard(plant, Guard.COMPACTION_THRESHOLD, lambda state, told: isinstance(told, Summarized) or whole(state, told))


def compact_does_with_nothing(plant: Plant) -> None:
    """`compact()` starts though nothing is older than what it keeps."""
    guard(plant, Guard.COMPACTABLE, lambda *_: True)


def a_threshold_starts_with_nothing(plant: Plant) -> None:
    """A threshold announces a compaction though there is nothing to compact."""
    plant.setattr(guards, "compactable", lambda *_: True)


def an_overflow_is_declined_in_silence(plant: Plant) -> None:
    """An overflow with nothing to summarize announces no compaction."""
    whole = GUARDS[Guard.OVERFLOW_RECOVERABLE]
    fits = GUARDS[Guard.COMPACTABLE]
    guard(plant, Guard.OVERFLOW_RECOVERABLE, lambda state, told: whole(state, told) and fits(state, told))


def a_failed_summary_goes_on(plant: Plant) -> None:
    """After a summary that failed, the run goes on whatever it was for."""
    whole = GUARDS[Guard.COMPACTION_THRESHOLD]
    guard(plant, Guard.COMPACTION_THRESHOLD, lambda state, told: isinstance(told, SummaryFailed) or whole(state, told))


def a_threshold_fails_the_run(plant: Plant) -> None:
    """A run can't go on without the summary that a threshold asked for."""
    guard(plant, Guard.COMPACTION_THRESHOLD, lambda *_: False)


# ---- G11 ----


def _read_but(plant: Plant, said: str) -> None:
    read = responding._read

    async def forgiving(*arguments: Any) -> Any:
        try:
            return await read(*arguments)
        except ModelError as error:
            if said in str(error):
                return None
            raise

    plant.setattr(responding, "_read", forgiving)


def a_stream_may_just_end(plant: Plant) -> None:
    """A stream without a terminal part is a completed response."""
    _read_but(plant, "without a terminal part")


def a_stream_may_stall(plant: Plant) -> None:
    """Nobody looks how long a model says nothing."""
    plant.setattr(responding, "watch_idle", nothing)


def a_broken_protocol_is_an_end(plant: Plant) -> None:
    """What is no part of a response ends it well."""
    _read_but(plant, "broke the protocol")


def truncated_calls_run(plant: Plant) -> None:
    """The calls of a response that was cut off are executed."""
    guard(plant, Guard.CALLS_RUNNABLE, lambda state, _: state.live.message.call_count > 0)


# ---- G12 ----


def _recorded_later(plant: Plant, role: str) -> None:
    waiting = later(plant)
    append, init = Transcript.append, Transcript.__init__

    def make(transcript: Transcript, messages: Any = ()) -> None:
        init(transcript, messages)
        while waiting:
            waiting.pop(0)()

    def delayed(transcript: Transcript, message: Any) -> None:
        if message.role == role:
            waiting.append(lambda: append(transcript, message))
        else:
            append(transcript, message)

    plant.setattr(Transcript, "append", delayed)
    plant.setattr(Transcript, "__init__", make)


def answers_are_told_first(plant: Plant) -> None:
    """Listeners hear of an answer before it is in the transcript."""
    _recorded_later(plant, "assistant")


def results_are_told_first(plant: Plant) -> None:
    """Listeners hear of a result before it is in the transcript."""
    _recorded_later(plant, "tool")


def users_are_told_first(plant: Plant) -> None:
    """Listeners hear of a user message before it is in the transcript."""
    _recorded_later(plant, "user")


def queues_are_told_first(plant: Plant) -> None:
    """Listeners hear of a queued item before it is in its queue."""
    waiting = later(plant)

    def enqueue(state: Any, input: Any) -> None:
        runs.enqueue_steering(state, input)
        item = state.steering.pop()
        waiting.append(lambda: state.steering.append(item))

    action(plant, Action.ENQUEUE_STEERING, enqueue)


# ---- G13 ----


def work_leaves_a_task(plant: Plant) -> None:
    """Beside each work a task is made that nobody ends."""
    begin = Workers._begin

    def begin_and_leave(workers: Workers, work: Any, *rest: Any) -> None:
        begin(workers, work, *rest)
        future = workers._loop.create_future()

        async def wait() -> None:
            await future

        workers._loop.create_task(wait(), name="left")

    plant.setattr(Workers, "_begin", begin_and_leave)


def work_leaves_its_timer(plant: Plant) -> None:
    """The time of a work runs on when the work has ended."""
    plant.setattr(Work, "end_watch", nothing)


def runs_are_remembered(plant: Plant) -> None:
    """Somebody keeps each run that there was, and with it its agent."""
    kept: list[Any] = []
    end = Drive._end

    def keep(drive: Any, effect: Any) -> None:
        kept.append(drive)
        end(drive, effect)

    plant.setattr(Drive, "_end", keep)


def what_was_abandoned_is_listed_for_ever(plant: Plant) -> None:
    """`agent.abandoned` names what has ended long ago."""
    plant.setattr(Leftovers, "_forget", nothing)


def a_cancelled_agent_is_used_up(plant: Plant) -> None:
    """After an agent gave something up it takes no prompt any more."""

    def close(state: Any, input: Any) -> None:
        state.close_wanted = True

    after(plant, Action.ABANDON_WORK, close)
    after(plant, Action.ABANDON_LISTENERS, close)
