"""What the core asks the shell for. Events are effects too: to publish one is to hand it over.

There are two speeds. What is `immediate` is performed at once, in the same breath as the input that caused it: it stops
things, or it starts things that the core asks for only when all that was published before has been delivered. Events, and
the marks between them (`Barrier`, `Settle`, `RunEnded`), keep their order and wait for the listeners of what is before.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, final

from attrs import frozen

from kernel.events import Event, RunResult
from kernel.messages import Message, ToolCall, ToolMessage
from kernel.values import Value


@final
@frozen(eq=False, repr=False)
class ModelRequest(Value):
    """What a model is asked.

    `id` is the run's id and the number of the request in it. `messages` is a snapshot and never changes; cut messages are
    not in it. `tools` are in the order in which the agent was given them; each has `name`, `description` and `parameters`
    (a JSON Schema). `output_schema` is the JSON Schema that the final answer must fit; None: it is any text. A retry sends
    the same content under a new number.
    """

    id: str
    messages: Sequence[Message]
    system_prompt: str
    tools: tuple[Any, ...]
    reasoning_effort: str | None = None
    output_schema: Mapping[str, Any] | None = None


@final
@frozen(eq=False, repr=False)
class Barrier(Value):
    """Report `Advance(token)` when everything before this has been delivered.

    `unsent` are messages whose tokens nobody has counted yet, where what follows depends on the size of the context; the
    report has their estimate.
    """

    immediate: ClassVar = False
    token: int
    unsent: Sequence[Message] = ()


@final
@frozen(eq=False, repr=False)
class Project(Value):
    """Pass the messages through `transform_context` and `convert_to_llm`; report `Projected`."""

    immediate: ClassVar = True
    work: int
    messages: Sequence[Message]


@final
@frozen(eq=False, repr=False)
class CallModel(Value):
    """Send the request and feed its parts; report `ResponseCompleted` or `ResponseFailed`."""

    immediate: ClassVar = True
    work: int
    request: ModelRequest


@final
@frozen(eq=False, repr=False)
class PrepareCall(Value):
    """Check the arguments and ask `before_tool_call`; report `CallPrepared`."""

    immediate: ClassVar = True
    work: int
    call: ToolCall


@final
@frozen(eq=False, repr=False)
class RunTool(Value):
    """Run the tool; report `ToolUpdate` and `ToolSettled`."""

    immediate: ClassVar = True
    work: int
    call: ToolCall
    timeout: float | None = None


@final
@frozen(eq=False, repr=False)
class CallHook(Value):
    """Call `after_tool_result` with the result, or `should_stop_after_turn`; report `HookReturned`."""

    immediate: ClassVar = True
    work: int
    hook: Literal["after_tool_result", "should_stop_after_turn"]
    result: ToolMessage | None = None


@final
@frozen(eq=False, repr=False)
class CheckOutput(Value):
    """Hold the final answer against what was asked for; report `OutputChecked`."""

    immediate: ClassVar = True
    work: int
    text: str


@final
@frozen(eq=False, repr=False)
class Summarize(Value):
    """Pass these messages through `convert_to_llm` and ask the compactor for their summary; report `Summarized` or
    `SummaryFailed`.
    """

    immediate: ClassVar = True
    work: int
    messages: Sequence[Message]


@final
@frozen(eq=False, repr=False)
class CancelWork(Value):
    """Tell these works to stop. Each still reports its end."""

    immediate: ClassVar = True
    works: tuple[int, ...]


@final
@frozen(eq=False, repr=False)
class AbandonWork(Value):
    """Stop waiting for these works; what they report from now on is late."""

    immediate: ClassVar = True
    works: tuple[int, ...]


@final
@frozen(eq=False, repr=False)
class AbandonListeners(Value):
    """Stop waiting for listeners, now and for the rest of the run."""

    immediate: ClassVar = True


@final
@frozen(eq=False, repr=False)
class StartTimer(Value):
    """Report `TimerDue(timer)` after so many seconds."""

    immediate: ClassVar = True
    timer: int
    seconds: float


@final
@frozen(eq=False, repr=False)
class StopTimer(Value):
    """Forget the timer."""

    immediate: ClassVar = True
    timer: int


@final
@frozen(eq=False, repr=False)
class ItemsLeft(Value):
    """These messages left the queues: they were delivered, dropped, or taken out."""

    immediate: ClassVar = True
    ids: tuple[int, ...]
    status: Literal["delivered", "dropped"]


@final
@frozen(eq=False, repr=False)
class Settle(Value):
    """Report `Settled` when everything before this has been delivered and its listeners are done."""

    immediate: ClassVar = False


@final
@frozen(eq=False, repr=False)
class RunEnded(Value):
    """The run is settled: wake those who wait for it."""

    immediate: ClassVar = False
    result: RunResult


Start = Project | CallModel | PrepareCall | RunTool | CallHook | CheckOutput | Summarize
Effect = (
    Event | Start | Barrier | CancelWork | AbandonWork | AbandonListeners | StartTimer | StopTimer | ItemsLeft | Settle
    | RunEnded
)  # fmt: skip
__all__ = [
    "AbandonListeners", "AbandonWork", "Barrier", "CallHook", "CallModel", "CancelWork", "CheckOutput", "Effect",
    "ItemsLeft", "ModelRequest", "PrepareCall", "Project", "RunEnded", "RunTool", "Settle", "Start", "StartTimer",
    "StopTimer", "Summarize",
]  # fmt: skip
