"""What an agent shows of itself: frozen values, made when they are asked for, that never change afterwards."""

from typing import Any, Literal, final

from attrs import frozen

from kernel.messages import AssistantMessage, InputMessage, Message, StopReason
from kernel.setup import ToolSpec
from kernel.state import CallStatus, CoreState, ListenerFailure
from kernel.transcript import MessageView
from kernel.values import Value
from statechart import Leaf, Phase


@final
@frozen(eq=False, repr=False)
class Queued(Value):
    """The messages that wait."""

    steering: tuple[InputMessage, ...]
    follow_up: tuple[InputMessage, ...]


@final
@frozen(eq=False, repr=False)
class AbandonedWork(Value):
    """Something that ignored its cancellation and is still going: what of which run."""

    run_id: str
    kind: Literal["model", "tool", "hook", "compactor", "listener"]
    name: str
    call_id: str | None = None


@final
@frozen(eq=False, repr=False, kw_only=True)
class AgentState(Value):
    """All that chapter 06 lists, and the phase.

    `is_streaming` says whether a model request is in progress, and `streaming_message` what its response has said so far.
    `pending_tool_calls` are the ids of calls that were announced and have no result yet. `archive` holds what compactions
    replaced.
    `error_message` says why the last run failed.
    """

    phase: Phase
    messages: MessageView
    archive: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    system_prompt: str
    model: Any
    reasoning_effort: str | None
    is_running: bool
    is_streaming: bool
    streaming_message: AssistantMessage | None
    pending_tool_calls: tuple[str, ...]
    error_message: str | None
    queued: Queued
    subscriber_errors: tuple[ListenerFailure, ...]
    subscriber_error_count: int


def snapshot(state: CoreState) -> AgentState:
    """The state as a value."""
    run = state.run
    message = run.message if run is not None else None
    batch = run.batch if run is not None else None
    pending = () if batch is None else tuple(
        call.call.id for call in batch.calls if call.status not in (CallStatus.WAITING, CallStatus.DONE)
    )  # fmt: skip
    return AgentState(
        phase=state.phase,
        messages=state.transcript.messages,
        archive=state.archive,
        tools=tuple(state.setup.tools.values()),
        system_prompt=state.setup.system_prompt,
        model=state.setup.model,
        reasoning_effort=state.setup.reasoning_effort,
        is_running=run is not None,
        is_streaming=state.leaf in (Leaf.REQUESTING, Leaf.STREAMING),
        streaming_message=message.build(StopReason.STOP) if message is not None else None,
        pending_tool_calls=pending,
        error_message=state.error_message,
        queued=Queued(*state.queued),
        subscriber_errors=tuple(state.listener_failures),
        subscriber_error_count=state.listener_failure_count,
    )
