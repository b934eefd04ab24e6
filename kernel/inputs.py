"""What may enter the core: what a caller commands and what the world reports. `Core.receive` is their only road.

Each input names the trigger of the lifecycle that it pulls, but for deltas and late reports, which the core absorbs. A
report carries the number of the work it tells of; numbers are never used twice in the life of a core, so a report of
another run, or of work that was abandoned, can't be mistaken for one of now.

Ids, random numbers and failures enter here as data; the core makes none of them.
"""

from typing import Any, ClassVar, Literal, final

from attrs import define, field, frozen

from kernel.errors import UNWRITTEN, Failure
from kernel.messages import InputMessage, Message, Part, StopReason, Text
from kernel.setup import Setup
from kernel.values import Value
from statechart import Command, Fact


@final
@frozen(eq=False, repr=False)
class QueuedItem(Value):
    """A message that waits in a queue, and the number of its receipt."""

    id: int
    message: InputMessage


# ---- commands ----


@final
@frozen(eq=False, repr=False)
class Prompt(Value):
    """Start a run with this message."""

    trigger: ClassVar = Command.PROMPT
    run_id: str
    message: InputMessage


@final
@frozen(eq=False, repr=False)
class Continue(Value):
    """Start a run from what is there."""

    trigger: ClassVar = Command.CONTINUE
    run_id: str


@final
@frozen(eq=False, repr=False)
class Steer(Value):
    """Queue a message for the next boundary."""

    trigger: ClassVar = Command.STEER
    item: QueuedItem


@final
@frozen(eq=False, repr=False)
class FollowUp(Value):
    """Queue a message for when the run would end."""

    trigger: ClassVar = Command.FOLLOW_UP
    item: QueuedItem


@final
@frozen(eq=False, repr=False)
class Unqueue(Value):
    """Take one message out of the queues."""

    trigger: ClassVar = Command.UNQUEUE
    item_id: int


@final
@frozen(eq=False, repr=False)
class ClearQueues(Value):
    """Take all messages out of the queues."""

    trigger: ClassVar = Command.CLEAR_QUEUES


@final
@frozen(eq=False, repr=False)
class Cancel(Value):
    """Stop the run."""

    trigger: ClassVar = Command.CANCEL
    reason: str | None = None


@final
@frozen(eq=False, repr=False)
class Compact(Value):
    """Start a run that only compacts."""

    trigger: ClassVar = Command.COMPACT
    run_id: str


@final
@frozen(eq=False, repr=False)
class Reset(Value):
    """Forget the conversation."""

    trigger: ClassVar = Command.RESET


@final
@frozen(eq=False, repr=False)
class Configure(Value):
    """Replace model, tools, system prompt or reasoning effort."""

    trigger: ClassVar = Command.CONFIGURE
    setup: Setup


@final
@frozen(eq=False, repr=False)
class Subscribe(Value):
    """Ask whether a listener may be added."""

    trigger: ClassVar = Command.SUBSCRIBE


@final
@frozen(eq=False, repr=False)
class WaitForIdle(Value):
    """Ask whether one may wait."""

    trigger: ClassVar = Command.WAIT_FOR_IDLE


@final
@frozen(eq=False, repr=False)
class Close(Value):
    """Stop the run and refuse everything afterwards."""

    trigger: ClassVar = Command.CLOSE


# ---- facts ----


@final
@frozen(eq=False, repr=False)
class Advance(Value):
    """All that was published before the barrier `token` has been delivered; `tokens` is the estimate of its `unsent`."""

    trigger: ClassVar = Fact.ADVANCE
    token: int
    tokens: int = 0


@final
@frozen(eq=False, repr=False)
class Projected(Value):
    """The messages of the next request; None when no hook changed them, so that nobody has to copy a conversation.

    `failures` names the hooks that raised and what they said.
    """

    trigger: ClassVar = Fact.PROJECTED
    work: int
    messages: tuple[Message, ...] | None = None
    failures: tuple[tuple[str, str], ...] = ()


@final
@define
class ModelPart:
    """A part of a response. Absorbed, and not a trigger, unless it is the first one.

    Not frozen: it is made for each delta, lives for one call, and a frozen one costs more than all that is done with it.
    """

    work: int
    part: Part


@final
@frozen(eq=False, repr=False)
class ResponseCompleted(Value):
    """The terminal part of a response came."""

    trigger: ClassVar = Fact.RESPONSE_COMPLETED
    work: int
    stop: StopReason | None = None


@final
@frozen(eq=False, repr=False)
class ResponseFailed(Value):
    """A request failed, or its stream broke. `jitter` is a random number from 0 to 1 for the backoff."""

    trigger: ClassVar = Fact.RESPONSE_FAILED
    work: int
    failure: Failure
    jitter: float = 1.0


@final
@frozen(eq=False, repr=False)
class CallPrepared(Value):
    """A call may run, or has its error result already: its arguments were wrong, or a hook kept it from running."""

    trigger: ClassVar = Fact.CALL_PREPARED
    work: int
    resources: tuple[str, ...] = ()
    error: str | None = None


@final
@frozen(eq=False, repr=False)
class ToolUpdate(Value):
    """A tool reported progress. Absorbed, not a trigger."""

    work: int
    call_id: str
    text: str


@final
@frozen(eq=False, repr=False)
class ToolSettled(Value):
    """A tool is done. `ended` tells how: it returned or raised, it was cancelled, or its time was over.

    `abandoned`: it was told to stop and did not; what it holds stays held until it reports again. `executed` is False
    when its body never began.
    """

    trigger: ClassVar = Fact.TOOL_SETTLED
    work: int
    call_id: str
    content: tuple[Text, ...]
    is_error: bool = False
    terminate: bool = False
    ended: Literal["returned", "cancelled", "timeout"] = "returned"
    abandoned: bool = False
    executed: bool = True


@final
@frozen(eq=False, repr=False)
class HookReturned(Value):
    """`after_tool_result` or `should_stop_after_turn` came back, with an answer or a failure."""

    trigger: ClassVar = Fact.HOOK_RETURNED
    work: int
    answer: bool = False
    failure: str | None = None


@final
@frozen(eq=False, repr=False)
class OutputChecked(Value):
    """The final answer was checked: `error` says what is wrong with it; None: `value` is what it is.

    The value is of any type, so a journal does not have it.
    """

    trigger: ClassVar = Fact.OUTPUT_CHECKED
    work: int
    error: str | None = None
    value: Any = field(default=None, eq=False, metadata=UNWRITTEN)


@final
@frozen(eq=False, repr=False)
class Summarized(Value):
    """The compactor's summary. `failures` as in `Projected`: `convert_to_llm` is asked for what is summarized too."""

    trigger: ClassVar = Fact.SUMMARIZED
    work: int
    text: str
    failures: tuple[tuple[str, str], ...] = ()


@final
@frozen(eq=False, repr=False)
class SummaryFailed(Value):
    """The compactor failed."""

    trigger: ClassVar = Fact.SUMMARY_FAILED
    work: int
    failure: Failure
    failures: tuple[tuple[str, str], ...] = ()


@final
@frozen(eq=False, repr=False)
class TimerDue(Value):
    """A timer that the core asked for has elapsed; which one decides the trigger."""

    timer: int


@final
@frozen(eq=False, repr=False)
class SubscriberFailure(Value):
    """A listener raised while it was told of an event."""

    trigger: ClassVar = Fact.SUBSCRIBER_FAILED
    run_id: str
    event_type: str
    event: int
    failure: Failure


@final
@frozen(eq=False, repr=False)
class Halted(Value):
    """The task or the loop that carried the run is gone, or (with a failure) the kernel has a bug."""

    trigger: ClassVar = Fact.HALTED
    failure: Failure | None = None


@final
@frozen(eq=False, repr=False)
class Settled(Value):
    """`run.finished` was delivered, and its listeners are done."""

    trigger: ClassVar = Fact.SETTLED


CommandInput = (
    Prompt | Continue | Steer | FollowUp | Unqueue | ClearQueues | Cancel | Compact | Reset | Configure | Subscribe
    | WaitForIdle | Close
)  # fmt: skip
WorkReport = (
    Projected | ResponseCompleted | ResponseFailed | CallPrepared | ToolSettled | HookReturned | OutputChecked
    | Summarized | SummaryFailed
)  # fmt: skip
Input = CommandInput | WorkReport | Advance | ModelPart | ToolUpdate | TimerDue | SubscriberFailure | Halted | Settled
