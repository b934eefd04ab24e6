"""A turn up to its response: what opens it, what is asked, and what comes back."""

from collections.abc import Callable
from typing import Any, Literal

from attrs import evolve

from kernel.actions.runs import adopt_staged
from kernel.effects import CallModel, ModelRequest, Project
from kernel.errors import Failure
from kernel.events import MessageAccepted, MessageEnded, MessageStarted, TurnEnded, TurnStarted
from kernel.frozen import shown
from kernel.guards import response_fault, spent, tail_owed
from kernel.inputs import QueuedItem
from kernel.messages import NO_USAGE, AssistantMessage, StopReason, UserMessage
from kernel.open_message import OpenMessage
from kernel.state import CoreState, Outcome
from statechart import Leaf


def open_turn(state: CoreState, input: Any) -> None:
    adopt_staged(state)
    run = state.live
    run.turn += 1
    begin_turn(state)
    state.publish(TurnStarted, run.turn)


def begin_turn(state: CoreState) -> None:
    """Forget what belonged to the turn before."""
    run = state.live
    run.turn_open = True
    run.owed = run.backing_off = run.overflow_tried = run.threshold_tried = False
    run.results = []
    run.attempts = 0
    run.turn_usage = NO_USAGE
    run.failure = run.stop_answer = run.batch = run.message = None


def accept_prompt(state: CoreState, input: Any) -> None:
    state.add_message(input.message)
    state.publish(MessageAccepted, input.message, "prompt")


def accept_steering(state: CoreState, input: Any) -> None:
    state.live.steering_drained = True
    _deliver(state, state.steering, state.config.steering_mode, "steering")


def accept_follow_up(state: CoreState, input: Any) -> None:
    _deliver(state, state.follow_up, state.config.follow_up_mode, "follow_up")


def accept_correction(state: CoreState, input: Any) -> None:
    checked, wanted = state.live.output, state.setup.output
    assert checked is not None
    schema = "" if wanted is None else f" that fits this schema: {shown(wanted.schema)}"
    why = f"Your answer is not what was asked for: {checked.error}"
    correction = UserMessage(f"{why}\nAnswer again, with nothing but JSON{schema}")
    state.add_message(correction)
    state.publish(MessageAccepted, correction, "correction")


def _deliver(
    state: CoreState, queue: list[QueuedItem], mode: Literal["one", "all"], origin: Literal["steering", "follow_up"]
) -> None:
    items = queue[:1] if mode == "one" else queue[:]
    del queue[: len(items)]
    for item in items:
        state.add_message(item.message)
    state.leave_queue(items, "delivered")
    for item in items:
        state.publish(MessageAccepted, item.message, origin)


def await_delivery(state: CoreState, input: Any) -> None:
    sizing = state.leaf is Leaf.OPENING and state.window is not None
    state.await_delivery(state.context[state.counted :] if sizing else ())


def project(state: CoreState, input: Any) -> None:
    state.live.steering_drained = True
    state.count_context(state.context_tokens + input.tokens)
    state.effects.append(Project(state.start(), state.context))


def prepare_request(state: CoreState, input: Any) -> None:
    del state.works[input.work]
    state.live.request_messages = state.transcript.plain if input.messages is None else input.messages
    state.tell_hook_failures(input.failures)


def send_request(state: CoreState, input: Any) -> None:
    run, setup = state.live, state.setup
    run.requests += 1
    request = ModelRequest(
        f"{run.id}:{run.requests}",
        run.request_messages,
        setup.system_prompt,
        tuple(setup.tools.values()),
        setup.reasoning_effort,
        None if setup.output is None else setup.output.schema,
    )
    state.effects.append(CallModel(state.start(), request))


def open_message(state: CoreState, input: Any) -> None:
    run = state.live
    run.message = OpenMessage(f"{run.id}:{run.requests}")
    state.publish(MessageStarted, "assistant")


def adopt_response(state: CoreState, input: Any) -> None:
    del state.works[input.work]
    run = state.live
    assert run.message is not None
    default = StopReason.TOOL_USE if run.message.call_count else StopReason.STOP
    message = run.message.build(input.stop or default)
    run.message = None
    run.attempts = 0
    run.output = None
    run.owed = bool(message.calls)
    run.final_text = message.text
    if message.stop is not StopReason.LENGTH:  # those of a truncated response are asked for again
        run.tool_calls += len(message.calls)
    state.count_usage(message.usage)
    state.add_message(message)
    if message.usage is not None:
        state.count_context(message.usage.total)
    if not message.calls:
        state.transcript.end_turn()
    state.publish(MessageEnded, message)


def refuse_response(state: CoreState, input: Any) -> None:
    _fail_with(state, input.work, response_fault(state) or Failure("the response does not fit"))


def fail_response(state: CoreState, input: Any) -> None:
    failure, why = input.failure, spent(state)
    if why is not None and (failure.retryable or failure.overflow):
        failure = evolve(failure, message=f"{failure.message} (not asked again: {why})")
    _fail_with(state, input.work, failure)


def _fail_with(state: CoreState, work: int, failure: Failure) -> None:
    del state.works[work]
    state.live.outcome = Outcome("failed", failure)
    cut_message(state)
    synthesize_failure(state)


def discard_response(state: CoreState, input: Any) -> None:
    del state.works[input.work]
    run = state.live
    run.failure = input.failure
    if run.message is not None:
        message = run.message.build(StopReason.ERROR, input.failure.message)
        run.message = None
        state.count_usage(message.usage)
        state.publish(MessageEnded, message, False)


def end_turn(state: CoreState, input: Any) -> None:
    run = state.live
    if run.turn_open:
        run.turn_open = False
        state.publish(TurnEnded, run.turn, tuple(run.results), run.turn_usage)
        run.batch = None


def cut_message(state: CoreState) -> None:
    """Close the message that is open, as the outcome has it: aborted, or failed."""
    run = state.live
    if run.message is None:
        return
    failure = run.outcome.failure if run.outcome is not None else None
    stop, error = (StopReason.ERROR, failure.message) if failure else (StopReason.ABORTED, None)
    run.partial = run.message.build(stop, error)
    said = run.message.build(stop, error, cut=True)
    run.message = None
    state.count_usage(said.usage)
    keeps = state.config.interrupted_message == "keep"
    kept = (keeps if said.content else failure is not None and _synthesizes(state)) and _has_room(state)
    if kept:
        state.add_message(said)
    state.publish(MessageEnded, said, kept)


def synthesize_failure(state: CoreState, open_a_turn: Callable[[CoreState], None] | None = None) -> None:
    """Make a failed run's message, unless the policy has none or the message that was cut says it already."""
    run = state.live
    failure = run.outcome.failure if run.outcome is not None else None
    if failure is None or not _synthesizes(state) or not _has_room(state):
        return
    last = run.messages[-1] if run.messages else None
    if isinstance(last, AssistantMessage) and last.stop is StopReason.ERROR:
        return
    if not run.turn_open:
        if open_a_turn is None:
            return
        open_a_turn(state)
    message = AssistantMessage((), StopReason.ERROR, None, failure.message)
    state.publish(MessageStarted, "assistant")
    state.add_message(message)
    state.publish(MessageEnded, message)


def _synthesizes(state: CoreState) -> bool:
    return state.config.failure_message == "synthesize"


def _has_room(state: CoreState) -> bool:
    """Whether the message of a failure or of a cut response may be added: beside the answer that is still owed, and the
    two messages that each queued item was promised. Else a run that failed could never be gone on with.
    """
    limit = state.config.message_limit
    promised = tail_owed(state, None) + 2 * (len(state.steering) + len(state.follow_up))
    return limit is None or len(state.transcript) + promised < limit
