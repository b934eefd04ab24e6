"""Faults against G14 to G16: what never changes, what a failing hook does, and what is bounded."""

from typing import Any

import attrs

from kernel import calling, core, frozen, hooking, run, workers
from kernel.delivery import Delivery
from kernel.events import HookFailed
from kernel.frozen import FrozenDict
from kernel.inputs import CallPrepared
from kernel.messages import Text
from kernel.run import Run
from kernel.transcript import MessageView, Transcript
from kernel.work import run_hook
from statechart import Action, Guard
from tests.kernel.planted.kit import Plant, after, before, guard, unsaid

# ---- G14 ----


def old_views_grow(plant: Plant) -> None:
    """An old view of the transcript shows the messages that came after it."""
    plant.setattr(MessageView, "__iter__", lambda view: iter(view._storage))


def arguments_can_be_changed(plant: Plant) -> None:
    """A frozen dictionary takes new keys."""
    plant.setattr(FrozenDict, "__setitem__", dict.__setitem__)
    plant.setattr(FrozenDict, "update", dict.update)


def lists_stay_lists(plant: Plant) -> None:
    """Only the outermost dictionary is frozen."""
    freeze = frozen.freeze
    plant.setattr(frozen, "freeze", lambda value: value if isinstance(value, list) else freeze(value))


def blocks_can_be_changed(plant: Plant) -> None:
    """The text of a block may be set."""
    plant.setattr(Text, "__setattr__", object.__setattr__)


def all_get_the_same_arguments(plant: Plant) -> None:
    """Hooks and tools share one copy of a call's arguments."""
    copies: dict[int, Any] = {}
    thaw = frozen.thaw

    def shared(value: Any) -> Any:
        return copies.setdefault(id(value), thaw(value))

    for room in (calling, hooking):
        plant.setattr(room, "thaw", shared)


def what_is_handed_in_is_kept(plant: Plant) -> None:
    """The caller's own list becomes the transcript."""
    init = Transcript.__init__

    def take(transcript: Transcript, messages: Any = ()) -> None:
        init(transcript, messages)
        if isinstance(messages, list):
            transcript._all = transcript._context = transcript._plain = messages

    plant.setattr(Transcript, "__init__", take)
    plant.setattr(core, "adopt_history", lambda messages, _: messages)


# ---- G15 ----


def _falls_to_nothing(plant: Plant, hook: str) -> None:
    transformed = hooking._transformed

    async def lose(name: str, function: Any, messages: Any, failures: Any, work: Any) -> Any:
        told = len(failures)
        answer = await transformed(name, function, messages, failures, work)
        return () if name == hook and len(failures) > told else answer

    plant.setattr(hooking, "_transformed", lose)


def a_failed_transform_empties_the_context(plant: Plant) -> None:
    """A `transform_context` that fails leaves nothing to ask with."""
    _falls_to_nothing(plant, "transform_context")


def a_failed_conversion_empties_the_context(plant: Plant) -> None:
    """A `convert_to_llm` that fails leaves nothing to ask with."""
    _falls_to_nothing(plant, "convert_to_llm")


def _is_unsaid(plant: Plant, *hooks: str) -> None:
    unsaid(plant, HookFailed, lambda _, content: content[0] in hooks)


def a_failed_context_hook_is_not_told(plant: Plant) -> None:
    """A context hook that fails falls back in silence."""
    _is_unsaid(plant, "transform_context", "convert_to_llm")


def models_see_custom_messages(plant: Plant) -> None:
    """What no hook rewrote is sent as it is."""
    plant.setattr(hooking, "without_custom", tuple)
    plant.setattr(Transcript, "plain", property(lambda transcript: transcript.context))


def a_hook_that_raises_allows(plant: Plant) -> None:
    """A `before_tool_call` that raises has said nothing against the call."""

    async def ask(work: Any, effect: Any, to: Any, prepared: CallPrepared, hooks: Any) -> None:
        try:
            answer = await run_hook(hooks.before_tool_call, effect.call, frozen.thaw(effect.call.arguments))
            to.report(work, hooking._judged(prepared, answer))
        except Exception:
            to.report(work, prepared)

    plant.setattr(workers, "ask_before", ask)


def a_hook_can_not_block(plant: Plant) -> None:
    """What `before_tool_call` answers does not count."""
    plant.setattr(hooking, "_judged", lambda prepared, _: prepared)


def a_failed_hook_spoils_the_result(plant: Plant) -> None:
    """An `after_tool_result` that raises makes an error of the result."""

    def spoil(state: Any, input: Any) -> None:
        if input.failure is not None:
            call = state.works[input.work]
            call.answer = attrs.evolve(call.answer, content=(Text(input.failure),), is_error=True)

    before(plant, Action.TAKE_HOOK, spoil)


def a_failed_after_hook_is_not_told(plant: Plant) -> None:
    """An `after_tool_result` that raises does so in silence."""
    _is_unsaid(plant, "after_tool_result")


def a_failed_stop_hook_stops(plant: Plant) -> None:
    """A `should_stop_after_turn` that raises ends the run."""

    def stop(state: Any, input: Any) -> None:
        if input.failure is not None:
            state.live.stop_answer = True

    after(plant, Action.TAKE_STOP_ANSWER, stop)


def a_failed_stop_hook_is_not_told(plant: Plant) -> None:
    """A `should_stop_after_turn` that raises does so in silence."""
    _is_unsaid(plant, "should_stop_after_turn")


# ---- G16 ----


def queues_are_not_bounded(plant: Plant) -> None:
    """`queue_limit` is not looked at."""
    guard(plant, Guard.QUEUE_HAS_ROOM, lambda *_: True)


def the_transcript_is_not_bounded(plant: Plant) -> None:
    """`message_limit` is not looked at when a message comes."""
    guard(plant, Guard.PROMPT_FITS, lambda *_: True)
    guard(plant, Guard.ITEM_FITS, lambda *_: True)


def turns_are_not_bounded(plant: Plant) -> None:
    """`max_turns` is not looked at."""
    guard(plant, Guard.TURN_LEFT, lambda *_: True)


def retries_are_not_bounded(plant: Plant) -> None:
    """`max_attempts` is not looked at."""
    guard(plant, Guard.RETRYABLE, lambda state, told: state.config.retry is not None and told.failure.retryable)


def calls_are_not_bounded(plant: Plant) -> None:
    """`call_limit` is not looked at."""
    guard(plant, Guard.RESPONSE_FITS, lambda *_: True)


def deltas_are_kept_apart(plant: Plant) -> None:
    """Nothing is put together for a reader that lags."""
    plant.setattr(run, "_joins", lambda *_: False)


def joined_pieces_are_not_counted(plant: Plant) -> None:
    """An event that stands for many says that it is one."""
    joined = run._joined
    plant.setattr(run, "_joined", lambda group: attrs.evolve(joined(group), count=1))


def a_reader_holds_everything(plant: Plant) -> None:
    """`event_buffer` is not looked at."""

    def put(self: Run, event: Any) -> None:
        self._buffer.append(event)
        if self._reader is not None:
            run._wake(self._reader)

    plant.setattr(Run, "put", put)


def the_missing_range_is_wrong(plant: Plant) -> None:
    """What is said of the missing events leaves out the last of them."""
    put = Run.put

    def put_less(self: Run, event: Any) -> None:
        lost = self._lost
        put(self, event)
        self._lost = lost or self._lost

    plant.setattr(Run, "put", put_less)


def a_lagging_reader_ends_the_run(plant: Plant) -> None:
    """A run whose reader lost events is cancelled."""
    put = Run.put

    def put_or_end(self: Run, event: Any) -> None:
        put(self, event)
        if self._lost is not None:
            self.cancel("nobody reads")

    plant.setattr(Run, "put", put_or_end)


def a_lagging_reader_silences_listeners(plant: Plant) -> None:
    """Once a reader has lost events, the listeners are not told either."""
    lost: list[Run] = []
    put, tell = Run.put, Delivery.tell

    def put_and_note(self: Run, event: Any) -> None:
        put(self, event)
        lost[:] = [self] if self._lost is not None else []

    plant.setattr(Run, "put", put_and_note)
    plant.setattr(Delivery, "tell", lambda self, event: None if lost else tell(self, event))
