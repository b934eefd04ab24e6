"""What listeners hear: one ordered stream for each run, numbered from 0 without a gap, ended by one `run.finished`.

Events are frozen values with a dotted `type`. They tell what has happened: when a listener hears of a message, the
message is already in the transcript.
"""

from typing import Any, ClassVar, Literal, final

from attrs import field, frozen

from kernel.errors import UNWRITTEN, Failure, KernelError, error_of
from kernel.frozen import FrozenDict
from kernel.messages import NO_USAGE, AssistantMessage, InputMessage, Message, ToolMessage, Usage
from kernel.values import Value

RunStatus = Literal["completed", "cancelled", "failed", "max_turns", "stopped"]


@final
@frozen(eq=False, repr=False, kw_only=True)
class RunResult(Value):
    """How a run ended. A value, not an exception: `unwrap` raises.

    `messages` are the run's new ones; `final_text` is the last answer's text; `partial` is a response that was cut, as it
    was streamed; `usage` is summed over all `requests`, retried and cut ones included; `tool_calls` counts the calls that
    were asked for and not cut off; `turns` counts the turns; `output` is the value of the answer where the agent has an
    `output` type and the run is `completed` by one (None in what was read from a journal); `error` says why a run `failed`;
    `reason` is what `cancel` was given.
    """

    run_id: str
    status: RunStatus
    final_text: str
    messages: tuple[Message, ...]
    partial: AssistantMessage | None
    usage: Usage
    turns: int
    requests: int = 0
    tool_calls: int = 0
    failure: Failure | None = None
    reason: str | None = None
    output: Any = field(default=None, eq=False, metadata=UNWRITTEN)

    @property
    def error(self) -> KernelError | None:
        """Why the run failed, as the exception that `unwrap` raises; None when it did not fail."""
        return None if self.failure is None else error_of(self.failure)

    def unwrap(self) -> "RunResult":
        """The result itself, or its error raised when the run failed."""
        error = self.error
        if error is not None:
            raise error
        return self


@frozen(eq=False, repr=False)
class Event(Value):
    """What all events have: the run they tell of, and their place in it."""

    type: ClassVar[str]
    immediate: ClassVar[bool] = False
    run_id: str
    sequence: int


@final
@frozen(eq=False, repr=False)
class RunStarted(Event):
    """A run began."""

    type = "run.started"


@final
@frozen(eq=False, repr=False)
class PhaseChanged(Event):
    """The visible phase changed."""

    type = "phase.changed"
    source: str
    target: str


@final
@frozen(eq=False, repr=False)
class TurnStarted(Event):
    """A turn began: one response and all tool results that it asks for. `turn` counts from 1."""

    type = "turn.started"
    turn: int


@final
@frozen(eq=False, repr=False)
class MessageAccepted(Event):
    """A user's (or an application's) message entered the transcript; a `correction` asks for an answer that fits."""

    type = "message.accepted"
    message: InputMessage
    origin: Literal["prompt", "steering", "follow_up", "correction"]


@final
@frozen(eq=False, repr=False)
class MessageStarted(Event):
    """An assistant message or a tool result began. `call_id` is set for tool results."""

    type = "message.started"
    role: Literal["assistant", "tool"]
    call_id: str | None = None


@final
@frozen(eq=False, repr=False)
class MessageUpdated(Event):
    """A piece of the assistant message came: of its text, its reasoning, or of the tool call `call_id`.

    `count` tells how many pieces this event stands for, when a slow reader had some of them put together.
    """

    type = "message.updated"
    channel: Literal["text", "reasoning", "call"]
    delta: str
    call_id: str | None = None
    count: int = 1


@final
@frozen(eq=False, repr=False)
class MessageEnded(Event):
    """A message is whole. `kept` is False when it does not enter the transcript."""

    type = "message.ended"
    message: AssistantMessage | ToolMessage
    kept: bool = True


@final
@frozen(eq=False, repr=False)
class ToolStarted(Event):
    """A tool call is about to be prepared and executed."""

    type = "tool.started"
    call_id: str
    name: str
    arguments: FrozenDict


@final
@frozen(eq=False, repr=False)
class ToolUpdated(Event):
    """A running tool reported progress. `count` as in `MessageUpdated`; then `text` is the newest one."""

    type = "tool.updated"
    call_id: str
    text: str
    count: int = 1


@final
@frozen(eq=False, repr=False)
class ToolEnded(Event):
    """A tool call has its result. `executed` is False when the tool's body did not run."""

    type = "tool.ended"
    call_id: str
    name: str
    text: str
    is_error: bool
    executed: bool


@final
@frozen(eq=False, repr=False)
class TurnEnded(Event):
    """A turn is over, and with it all its tool events and results.

    `results` are their call ids, in source order; `usage` is that of all its responses, retried and cut ones included.
    """

    type = "turn.ended"
    turn: int
    results: tuple[str, ...]
    usage: Usage = NO_USAGE


@final
@frozen(eq=False, repr=False)
class RetryScheduled(Event):
    """A request failed, and the same one is sent again after `delay` seconds. `attempt` counts the failed ones from 1."""

    type = "retry.scheduled"
    attempt: int
    delay: float
    error: str


@final
@frozen(eq=False, repr=False)
class RetryEnded(Event):
    """The backoff is over, or was cancelled."""

    type = "retry.ended"
    attempt: int


@final
@frozen(eq=False, repr=False)
class CompactionStarted(Event):
    """Older messages are about to become a summary."""

    type = "compaction.started"
    reason: Literal["threshold", "overflow", "manual"]


@final
@frozen(eq=False, repr=False)
class CompactionEnded(Event):
    """The compaction is over; unless it is `compacted`, the history is as it was."""

    type = "compaction.ended"
    outcome: Literal["compacted", "declined", "failed", "cancelled"]


@final
@frozen(eq=False, repr=False)
class QueueChanged(Event):
    """What waits now in the two queues, and what was dropped from them without being delivered."""

    type = "queue.changed"
    steering: tuple[InputMessage, ...]
    follow_up: tuple[InputMessage, ...]
    dropped: tuple[InputMessage, ...] = ()


@final
@frozen(eq=False, repr=False)
class HookFailed(Event):
    """A hook raised; what happens then is told by guarantee G15."""

    type = "hook.failed"
    hook: str
    error: str
    call_id: str | None = None


@final
@frozen(eq=False, repr=False)
class SubscriberFailed(Event):
    """A listener raised while it was told of the event number `event` of type `event_type`."""

    type = "subscriber.failed"
    event_type: str
    event: int
    error: str


@final
@frozen(eq=False, repr=False)
class UpdateDiscarded(Event):
    """Something was said too late: by a tool that had ended, or that was abandoned."""

    type = "update.discarded"
    call_id: str


@final
@frozen(eq=False, repr=False)
class RunFinished(Event):
    """The run is over. Nothing follows."""

    type = "run.finished"
    result: RunResult = field()

    @property
    def status(self) -> RunStatus:
        """How it ended."""
        return self.result.status
