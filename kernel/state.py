"""What the core remembers. Plain data: nothing here decides, awaits, or knows the time.

`CoreState` is the agent's; it owns the conversation, the queues and the numbers that are given out. `RunState` is one
run's and is thrown away with it, so that nothing of a run can leak into the next. A step may assign fields after it was
decided; whatever leaves (events, effects, results, snapshots) is frozen.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Literal, final

from attrs import define, field, frozen

from kernel.config import KernelConfig
from kernel.effects import Barrier, Effect, ItemsLeft, StartTimer, StopTimer
from kernel.errors import Failure
from kernel.events import Event, HookFailed, QueueChanged, RunResult, RunStatus
from kernel.inputs import OutputChecked, QueuedItem
from kernel.messages import NO_USAGE, AssistantMessage, Message, ToolCall, ToolMessage, Usage
from kernel.open_message import OpenMessage
from kernel.setup import Setup
from kernel.transcript import MessageView, Transcript
from kernel.values import Value
from statechart import Fact, Leaf, Phase

NO_EFFECTS: Final[Any] = ()
ERRORS_KEPT: Final = 256
"""Listener failures kept, the newest; a listener that always fails must not fill the memory."""

HookName = Literal[
    "transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn"
]


class CallStatus(Enum):
    """How far a tool call has come. Calls of one batch are at different places, so this is data and not a phase."""

    WAITING = "waiting"
    ANNOUNCED = "announced"  # tool.started was published
    PREPARING = "preparing"
    READY = "ready"  # checked, and allowed by the hook
    RUNNING = "running"
    HOOK_DUE = "hook_due"  # has its result; after_tool_result comes next
    HOOK = "hook"
    DONE = "done"


@final
@define(eq=False)
class OpenCall:
    """One tool call of the turn, until its result is in the transcript."""

    call: ToolCall
    status: CallStatus = CallStatus.WAITING
    resources: tuple[str, ...] = ()
    executed: bool = False
    answer: ToolMessage | None = None
    terminate: bool = False
    recorded: bool = False


@final
@define(eq=False)
class Batch:
    """The tool calls of one response."""

    calls: list[OpenCall]
    sequential: bool
    announced: int = 0
    """How many calls, from the first, wait no longer. Kept up and not counted, since counting at each step is quadratic."""
    done: int = 0
    """How many calls have their final result."""
    current: OpenCall | None = None
    """The call that is announced or being prepared: one at a time."""
    ready: list[OpenCall] = field(factory=list)
    hooks_due: list[OpenCall] = field(factory=list)

    @property
    def open_count(self) -> int:
        """How many calls have no final result yet."""
        return len(self.calls) - self.done


@final
@define(eq=False)
class Compaction:
    """A compaction that is going on: why, and how many messages the summary will stand for."""

    reason: Literal["threshold", "overflow", "manual"]
    length: int


@final
@frozen(eq=False, repr=False)
class Outcome(Value):
    """How the run ends, once that is decided."""

    status: RunStatus
    failure: Failure | None = None
    reason: str | None = None


@final
@define(eq=False)
class RunState:
    """One run."""

    id: str
    sequence: int = 0
    turn: int = 0
    requests: int = 0
    tool_calls: int = 0
    usage: Usage = NO_USAGE
    turn_usage: Usage = NO_USAGE
    messages: list[Message] = field(factory=list)
    final_text: str = ""
    partial: AssistantMessage | None = None
    outcome: Outcome | None = None
    result: RunResult | None = None
    steering_drained: bool = False
    # of the turn
    turn_open: bool = False
    owed: bool = False
    results: list[str] = field(factory=list)
    attempts: int = 0
    failure: Failure | None = None
    backing_off: bool = False
    overflow_tried: bool = False
    threshold_tried: bool = False
    stop_answer: bool | None = None
    output: OutputChecked | None = None
    request_messages: Sequence[Message] = ()
    message: OpenMessage | None = None
    batch: Batch | None = None
    compaction: Compaction | None = None
    timers: dict[Fact, int] = field(factory=dict)


@final
@frozen(eq=False, repr=False)
class HeldCall(Value):
    """A tool call that ignored its cancellation and may still be going."""

    run_id: str
    call_id: str
    name: str
    resources: tuple[str, ...]


@final
@frozen(eq=False, repr=False)
class ListenerFailure(Value):
    """A listener that raised: while it was told of which event, and what it said."""

    run_id: str
    event_type: str
    event: int
    error: str


@final
@define(eq=False)
class CoreState:
    """All that an agent's core remembers."""

    config: KernelConfig
    setup: Setup
    hooks: frozenset[str]
    transcript: Transcript
    leaf: Leaf = Leaf.IDLE
    phase: Phase = Phase.IDLE
    staged: Setup | None = None
    steering: list[QueuedItem] = field(factory=list)
    follow_up: list[QueuedItem] = field(factory=list)
    archive: tuple[Message, ...] = ()
    context_tokens: int = 0
    """Tokens of the first `counted` messages of the context, as the newest usage told them or as they were estimated."""
    counted: int = 0
    error_message: str | None = None
    listener_failures: tuple[ListenerFailure, ...] = ()
    listener_failure_count: int = 0
    works: dict[int, OpenCall | None] = field(factory=dict)
    abandoned: dict[int, HeldCall] = field(factory=dict)
    close_wanted: bool = False
    run: RunState | None = None
    effects: list[Effect] = NO_EFFECTS
    """Of the step that is being taken; between two there is no place for any."""
    barrier: int = 0
    numbers: int = 0

    @property
    def live(self) -> RunState:
        """The run that is going. Asked only by steps that the lifecycle allows in a run."""
        assert self.run is not None
        return self.run

    def publish(self, kind: type[Event], *content: Any) -> None:
        """Publish an event of the run. Nothing follows run.finished, and while idle there is no one to tell."""
        run = self.run
        if run is not None and run.result is None:
            self.effects.append(kind(run.id, run.sequence, *content))
            run.sequence += 1

    def await_delivery(self, unsent: Sequence[Message] = ()) -> None:
        """Ask for `advance` when all that was published so far has been delivered. Only the newest one counts."""
        self.barrier += 1
        self.effects.append(Barrier(self.barrier, unsent))

    @property
    def context(self) -> MessageView:
        """What the next request is made of: the hooks get custom messages as well, a model never does."""
        hooked = "transform_context" in self.hooks or "convert_to_llm" in self.hooks
        return self.transcript.context if hooked else self.transcript.plain

    @property
    def window(self) -> int | None:
        """Tokens that the context may have before it is compacted; None: no threshold."""
        policy = self.config.compaction
        window = None if policy is None else policy.window or self.setup.context_window
        return None if policy is None or window is None else window - policy.reserve

    def count_usage(self, usage: Usage | None) -> None:
        """A response took so many tokens, as its model told."""
        if usage is not None:
            self.live.usage += usage
            self.live.turn_usage += usage

    def count_context(self, tokens: int) -> None:
        """The context as it is now has so many tokens."""
        self.context_tokens = tokens
        self.counted = len(self.context)

    def number(self) -> int:
        """A number that was never given out before."""
        self.numbers += 1
        return self.numbers

    def start(self, call: OpenCall | None = None) -> int:
        """The number of a new work, of which exactly one end will be reported."""
        work = self.number()
        self.works[work] = call
        return work

    def start_timer(self, fact: Fact, seconds: float) -> None:
        """Have *fact* reported after so many seconds."""
        timer = self.live.timers[fact] = self.number()
        self.effects.append(StartTimer(timer, seconds))

    def stop_timer(self, fact: Fact) -> None:
        """Forget the timer for *fact*, if there is one."""
        timer = self.live.timers.pop(fact, None)
        if timer is not None:
            self.effects.append(StopTimer(timer))

    def add_message(self, message: Message) -> None:
        """Record a message of the run."""
        self.transcript.append(message)
        self.live.messages.append(message)

    def tell_hook_failures(self, failures: Sequence[tuple[str, str]]) -> None:
        """Publish which hooks raised while messages were made ready for a model, and what they said."""
        for hook, error in failures:
            self.publish(HookFailed, hook, error)

    def leave_queue(self, items: Sequence[QueuedItem], status: Literal["delivered", "dropped"]) -> None:
        """Tell the receipts of *items*, and the listeners what waits now. The items are out of the queues already."""
        if not items:
            return
        self.effects.append(ItemsLeft(tuple(item.id for item in items), status))
        self.tell_queues(items if status == "dropped" else ())

    def tell_queues(self, dropped: Sequence[QueuedItem] = ()) -> None:
        """Publish what waits now, and what was given up."""
        steering, follow_up = self.queued
        self.publish(QueueChanged, steering, follow_up, tuple(item.message for item in dropped))

    @property
    def queued(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The messages that wait: steering, follow-ups."""
        return tuple(item.message for item in self.steering), tuple(item.message for item in self.follow_up)

    def free_messages(self) -> int | None:
        """Messages that the transcript still has room for, beyond what is promised already. None: no limit.

        Promised are two for each queued message (itself and its answer), and what the turn at hand may still add: a whole
        response with its calls' results while it is not adopted, the results still owed afterwards. Source: checkpoint 09.
        """
        limit = self.config.message_limit
        if limit is None:
            return None
        return limit - len(self.transcript) - 2 * (len(self.steering) + len(self.follow_up)) - self._promised()

    def _promised(self) -> int:
        run = self.run
        if run is None or not run.turn_open or run.result is not None:
            return 0
        if run.batch is not None:
            return sum(not call.recorded for call in run.batch.calls)
        return 1 + self.config.call_limit

    def held_resources(self) -> set[str]:
        """The resource keys that running calls hold, and abandoned ones that have not really ended."""
        held = {key for abandoned in self.abandoned.values() for key in abandoned.resources}
        for call in self.works.values():
            if call is not None and call.status is CallStatus.RUNNING:
                held.update(call.resources)
        return held
