"""The tools of a turn: prepared one by one in source order, run together or in turn, ended as they complete, and recorded
in source order.

The calls of one response are a *batch*. Whatever happens to it, each call ends with exactly one `tool.started`, one
`tool.ended` and one result message (G4). Nothing starts but in `advance_batch`, so that a cancel from a listener of what
was published is seen first (G7).
"""

from typing import Any

from kernel.effects import CallHook, PrepareCall, RunTool
from kernel.events import HookFailed, MessageEnded, MessageStarted, ToolEnded, ToolStarted
from kernel.guards import hook_follows
from kernel.inputs import CallPrepared, HookReturned, ToolSettled
from kernel.messages import AssistantMessage, StopReason, Text, ToolMessage
from kernel.state import Batch, CallStatus, CoreState, HeldCall, OpenCall

TRUNCATED = "not executed: the response was cut off at the output limit, so its calls may be incomplete; ask again"
UNAFFORDABLE = "not executed: with the calls of this response the run would have more tool calls than usage_limit allows"
UNEXECUTED = "not executed: the run ended before this call could run"
INTERRUPTED = "interrupted: the run ended while this call was running; what it did is unknown"
UNSAID = "failed, and did not say why"


def open_batch(state: CoreState, input: Any) -> None:
    run = state.live
    calls = _last_calls(state)
    run.batch = Batch(calls, _one_by_one(state, calls))
    announce_next(state)


def _one_by_one(state: CoreState, calls: list[OpenCall]) -> bool:
    """Whether the calls run one after the other: the policy or one of the tools says so, or two calls have one id, and
    only their order tells whose result is whose.
    """
    specs = state.setup.tools
    return (
        state.config.tool_execution == "sequential"
        or any(specs[call.call.name].mode == "sequential" for call in calls if call.call.name in specs)
        or len({call.call.id for call in calls}) < len(calls)
    )


def _last_calls(state: CoreState) -> list[OpenCall]:
    message = state.live.messages[-1]
    assert isinstance(message, AssistantMessage)
    return [OpenCall(call) for call in message.calls]


def announce_next(state: CoreState) -> None:
    """Say which call is prepared next, and wait until everybody has heard it."""
    batch = _batch(state)
    if not batch.open_count:
        return
    if batch.announced < len(batch.calls):
        _announce(state, batch.calls[batch.announced])
    state.await_delivery()


def _announce(state: CoreState, call: OpenCall) -> None:
    batch = _batch(state)
    batch.announced += 1
    batch.current = call
    call.status = CallStatus.ANNOUNCED
    state.publish(ToolStarted, call.call.id, call.call.name, call.call.arguments)


def advance_batch(state: CoreState, input: Any) -> None:
    batch = _batch(state)
    if batch.hooks_due:
        due, batch.hooks_due = batch.hooks_due, []
        for call in due:
            call.status = CallStatus.HOOK
            state.effects.append(CallHook(state.start(call), "after_tool_result", _answered(call)))
    current = batch.current
    if current is None:
        if batch.ready:
            _run_ready(state, batch)
    elif current.status is CallStatus.ANNOUNCED:
        current.status = CallStatus.PREPARING
        state.effects.append(PrepareCall(state.start(current), current.call))


def _run_ready(state: CoreState, batch: Batch) -> None:
    """Run what may run now. Calls that share a resource key run in source order, so a call waits for each key that is
    held, and for each that a call before it waits for.
    """
    held = state.held_resources()
    ready, batch.ready = batch.ready, []
    for call in ready:
        if held.intersection(call.resources):
            batch.ready.append(call)
        else:
            call.status = CallStatus.RUNNING
            call.executed = True
            spec = state.setup.tools[call.call.name]
            timeout = spec.timeout if spec.timeout is not None else state.config.tool_timeout
            state.effects.append(RunTool(state.start(call), call.call, timeout))
        held.update(call.resources)


def take_prepared(state: CoreState, input: CallPrepared) -> None:
    call = _open_call(state, input.work)
    _batch(state).current = None
    if input.error is None:
        call.status = CallStatus.READY
        _batch(state).ready.append(call)
        call.resources = input.resources
        if _batch(state).sequential:
            state.await_delivery()
            return
    else:
        _end(state, call, input.error)
        if _batch(state).sequential:
            _record(state, call)
    announce_next(state)


def take_result(state: CoreState, input: ToolSettled) -> None:
    call = _settle(state, input)
    if hook_follows(state, input):
        call.status = CallStatus.HOOK_DUE
        _batch(state).hooks_due.append(call)
        state.await_delivery()
    else:
        _done(state, call)
        _move_on(state, call)


def take_hook(state: CoreState, input: HookReturned) -> None:
    call = _open_call(state, input.work)
    _done(state, call)
    if input.failure is not None:
        state.publish(HookFailed, "after_tool_result", input.failure, call.call.id)
    _move_on(state, call)


def _move_on(state: CoreState, done: OpenCall) -> None:
    """After a call is done: let go on what waited for it."""
    batch = _batch(state)
    if batch.sequential:
        _record(state, done)
        announce_next(state)
    elif batch.ready:
        state.await_delivery()


def _settle(state: CoreState, input: ToolSettled) -> OpenCall:
    call = _open_call(state, input.work)
    if input.abandoned:
        state.abandoned[input.work] = held_call(state, call)
    # A model can't learn from an error that says nothing, and providers refuse empty text.
    said = not input.is_error or any(block.text.strip() for block in input.content)
    call.terminate = input.terminate
    call.executed = input.executed
    _answer(state, call, input.content if said else (Text(UNSAID),), input.is_error)
    return call


def release_tool(state: CoreState, input: ToolSettled) -> None:
    _done(state, _settle(state, input))


def close_batch(state: CoreState, input: Any) -> None:
    """Answer what has no answer yet, and record all results in source order."""
    run = state.live
    message = run.messages[-1] if run.messages else None
    if run.batch is None and isinstance(message, AssistantMessage) and message.calls:
        run.batch = Batch(_last_calls(state), sequential=False)
    if run.batch is not None:
        truncated = isinstance(message, AssistantMessage) and message.stop is StopReason.LENGTH
        close_calls(state, run.batch, TRUNCATED if truncated else UNAFFORDABLE)
        run.owed = not all(call.terminate for call in run.batch.calls)
        state.transcript.end_turn()


def close_calls(state: CoreState, batch: Batch, unexecuted: str) -> None:
    """Give each open call of *batch* its one result."""
    for call in batch.calls:
        if call.status in (CallStatus.HOOK_DUE, CallStatus.HOOK):
            _done(state, call)
        if call.status is CallStatus.WAITING:
            _announce(state, call)
        if call.status is not CallStatus.DONE:
            _end(state, call, INTERRUPTED if call.executed else unexecuted)
    for call in batch.calls:
        _record(state, call)


def _end(state: CoreState, call: OpenCall, error: str) -> None:
    _done(state, call)
    _answer(state, call, (Text(error),), is_error=True)


def _done(state: CoreState, call: OpenCall) -> None:
    call.status = CallStatus.DONE
    _batch(state).done += 1


def _answer(state: CoreState, open_call: OpenCall, content: tuple[Text, ...], is_error: bool) -> None:
    """Make the one answer to the call, and tell of it. It is recorded later, in source order."""
    call = open_call.call
    answer = open_call.answer = ToolMessage(call.id, call.name, content, is_error, open_call.executed)
    state.publish(ToolEnded, call.id, call.name, answer.text, is_error, open_call.executed)


def _record(state: CoreState, call: OpenCall) -> None:
    if not call.recorded:
        call.recorded = True
        message = _answered(call)
        state.publish(MessageStarted, "tool", call.call.id)
        state.add_message(message)
        state.live.results.append(call.call.id)
        state.publish(MessageEnded, message)


def _answered(call: OpenCall) -> ToolMessage:
    assert call.answer is not None
    return call.answer


def held_call(state: CoreState, call: OpenCall) -> HeldCall:
    """What is remembered of a call that ignores its cancellation."""
    return HeldCall(state.live.id, call.call.id, call.call.name, call.resources)


def _open_call(state: CoreState, work: int) -> OpenCall:
    call = state.works.pop(work)
    assert call is not None
    return call


def _batch(state: CoreState) -> Batch:
    batch = state.live.batch
    assert batch is not None
    return batch
