"""What the kernel needs from the world, as protocols: anything of the right shape will do.

A fake for each of them is in `kernel.testing`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, final, runtime_checkable

from attrs import field, frozen

from kernel.checks import each_is_a, is_a
from kernel.effects import ModelRequest
from kernel.events import Event
from kernel.messages import Message, Part, Text
from kernel.values import Value

__all__ = [
    "Block", "Compactor", "Estimator", "Hooks", "Listener", "Model", "ModelRequest", "Part", "Tool", "ToolContext",
    "ToolResult",
]  # fmt: skip


@runtime_checkable
class Model(Protocol):
    """A language model.

    `stream` is an async generator function, or anything that returns an async iterator: it yields parts and ends with
    `Finished`. It raises `ModelError`; anything else that it raises counts as a failure that does not pass. When the run
    is cancelled, the task that reads it is. `context_window` is in tokens; None: only an overflow tells that it is full.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The response to *request*, part by part."""
        ...


class ToolContext(Protocol):
    """What a tool gets beside its arguments."""

    @property
    def call_id(self) -> str:
        """The id of the call that is being executed."""
        ...

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    @property
    def key(self) -> str:
        """Names this execution of the tool, and no other one: what to hand to a service as idempotency key. A call that is
        executed again after its process was killed (`replay="safe"`) has the same key.
        """
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the call was told to stop. For tools in threads, which no exception reaches."""
        ...

    def update(self, text: str) -> None:
        """Report progress. Said after the tool has ended, it is discarded. May be called from the tool's thread."""
        ...

    def hold(self, ended: "asyncio.Future[None]", thread: "threading.Thread | None" = None) -> None:
        """Say that something of the call goes on until *ended*, though the call is let go; *thread*, if it is one."""
        ...


def _content(value: Any) -> Any:
    if type(value) is tuple:
        return value
    if isinstance(value, str):
        return (Text(value),)
    return tuple(value) if isinstance(value, Iterable) else value


@final
@frozen(eq=False, repr=False)
class ToolResult(Value):
    """What a tool returns when a string is not enough.

    `terminate`: when all tools of the turn say so, their results need no answer, and the run completes.
    """

    content: tuple[Text, ...] = field(converter=_content, validator=each_is_a(Text))
    is_error: bool = field(default=False, validator=is_a(bool))
    terminate: bool = field(default=False, validator=is_a(bool))


@runtime_checkable
class Tool(Protocol):
    """Something that a model may call. `kernel.tool` makes one of a function.

    Optional attributes, with their defaults: `mode` ("parallel"; "sequential" runs the whole batch one by one), `timeout`
    (seconds, None), `replay` ("never"; "safe" may be executed again after a crash), `resources(arguments)` (keys of what
    it touches, such as a file to write: calls that share a key run in source order), `validate(arguments)` (the
    arguments as `execute` takes them, or a ValueError from whose text a model can mend the call).
    """

    @property
    def name(self) -> str:
        """How a model calls it: letters, digits, `_` and `-`, 64 at most."""
        ...

    @property
    def description(self) -> str:
        """What it does, told to a model."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON Schema of its arguments, an object."""
        ...

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Do it. Returns (or its coroutine does) a string, a `ToolResult`, or anything that JSON can say."""
        ...


class Compactor(Protocol):
    """Makes one text of older messages. Cancellable; not counted in model requests. Only a cancel and `run_deadline` bound
    how long it takes: one that asks something that may stall needs a timeout of its own (`ModelCompactor` has one).
    """

    def summarize(self, messages: Sequence[Message]) -> Awaitable[str]:
        """The summary of *messages*, shorter than they are: of what a model was shown, so `convert_to_llm` has rewritten
        custom messages, or they are left out. Empty text is a failure.
        """
        ...


class Estimator(Protocol):
    """Guesses the tokens of what no model has counted yet, for the threshold of compaction.

    Asked before each request for the messages that came since the newest usage, and for all of them when there is none. An
    ordinary function, and a fast one: it runs on the event loop. When it raises or returns rubbish, the length of the text
    is taken and `hook.failed` tells of the hook `estimator`. `kernel.estimators` has two.
    """

    def estimate(self, messages: Sequence[Message]) -> int:
        """The tokens of *messages*, 0 or more."""
        ...


@final
@frozen(eq=False, repr=False)
class Block(Value):
    """What `before_tool_call` returns to keep a call from being executed; `reason` is the call's error result."""

    reason: str = field(default="blocked", validator=is_a(str))


Listener = Callable[[Event], Awaitable[object] | object]
_Hook = Callable[..., Any] | None


def _callable(instance: Any, attribute: Any, value: Any) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"the hook {attribute.name} must be callable, not {value!r}")


@final
@frozen(eq=False, repr=False, kw_only=True)
class Hooks(Value):
    """Where an application takes part in a run. Each may be an ordinary or an async function; none must be there.

    Source: chapter 06, "A hook surface, not an inheritance tree". No hook starts after an accepted cancel.
    """

    transform_context: _Hook = field(default=None, validator=_callable)
    """`(messages) -> messages` before each request that is not a retry. Raises: its input is used, `hook.failed`."""
    convert_to_llm: _Hook = field(default=None, validator=_callable)
    """`(messages) -> messages` after it, and of what is to be summarized; rewrites custom messages. Raises: they are left
    out, `hook.failed`.
    """
    before_tool_call: _Hook = field(default=None, validator=_callable)
    """`(call, arguments) -> None | Block | str` before each execution. Blocks or raises: the call's error result."""
    after_tool_result: _Hook = field(default=None, validator=_callable)
    """`(result) -> None` after each execution. Raises: `hook.failed`, the result stays."""
    should_stop_after_turn: _Hook = field(default=None, validator=_callable)
    """`(state) -> bool` after each turn. True: the run is `stopped`. Raises: `hook.failed`, counts as False."""
