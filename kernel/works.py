"""What the shell does for the core: each effect that starts something, as a coroutine that reports exactly one end.

Whatever a callable of the user's does, its end is a report: an exception is a failure with its text, a cancellation that
we asked for is a cancellation, one that came from outside stops the run and goes on outwards.
"""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol, final

from kernel.effects import CallHook, CallModel, PrepareCall, Project, RunTool, Start, Summarize
from kernel.errors import Failure, ModelError, describe, failure_of
from kernel.frozen import thaw
from kernel.inputs import (
    CallPrepared,
    HookReturned,
    Input,
    ModelPart,
    Projected,
    ResponseCompleted,
    ResponseFailed,
    Summarized,
    SummaryFailed,
    ToolSettled,
    ToolUpdate,
)
from kernel.messages import (
    MESSAGE_TYPES,
    CustomMessage,
    Finished,
    Message,
    ReasoningDelta,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from kernel.ports import Block, Compactor, Hooks
from kernel.setup import Setup, ToolSpec
from kernel.tools import to_result

_PARTS: Final = (ReasoningDelta, ToolCallDelta, ToolCall, Usage)
CANCELLED: Final = "cancelled: the run was stopped while this call was running"


class Reporter(Protocol):
    """Where a work reports to."""

    def report(self, work: "Work", input: Input) -> None:
        """Hand in the one end of *work*."""
        ...

    def feed(self, input: Input) -> None:
        """Hand in something that is not an end: a part, an update."""
        ...

    def expire(self, work: "Work", verdict: Input) -> None:
        """The time of *work* is over: stop it, and take *verdict* as its end."""
        ...

    def free(self) -> Awaitable[None] | None:
        """None when a part may be fed now, else what to wait for: listeners are busy with what was published."""
        ...


@final
class Work:
    """Something that was started for the core, until its end is reported.

    `stops` counts how often the kernel cancelled its task, so that a cancellation from outside can be told apart;
    `verdict` is what is reported for it when its own time is over.
    """

    __slots__ = (
        "call_id", "kind", "last", "lingers", "name", "number", "reported", "started", "stops", "task", "verdict", "watch",
    )  # fmt: skip

    def __init__(self, number: int, kind: str, name: str, call_id: str | None = None) -> None:
        self.number = number
        self.kind = kind
        self.name = name
        self.call_id = call_id
        self.task: asyncio.Task[None] | None = None
        self.stops = 0
        self.started = False
        self.reported = False
        self.verdict: Input | None = None
        self.watch: asyncio.TimerHandle | None = None
        self.last = 0.0
        self.lingers: asyncio.Future[None] | None = None

    @property
    def stopping(self) -> bool:
        """Whether the kernel told it to stop."""
        return self.stops > 0

    def stop(self) -> None:
        """Tell it to stop. One that has not begun yet sees it when it would begin."""
        self.stops += 1
        if self.started and self.task is not None:
            self.task.cancel()

    def end_watch(self) -> None:
        """Its time does not run any more."""
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None


@final
class CallContext:
    """What a tool gets beside its arguments; see `kernel.ports.ToolContext`."""

    __slots__ = ("_loop", "_reporter", "_work", "call_id", "run_id")

    def __init__(self, work: Work, run_id: str, call_id: str, reporter: Reporter) -> None:
        self._work = work
        self._reporter = reporter
        self._loop = asyncio.get_running_loop()
        self.call_id = call_id
        self.run_id = run_id

    @property
    def cancelled(self) -> bool:
        """Whether the call was told to stop, or is over."""
        return self._work.stopping or self._work.reported

    def update(self, text: str) -> None:
        """Report progress. What is said after the call has ended is discarded."""
        if not isinstance(text, str):
            raise TypeError(f"update() takes a string, not {text!r}")
        update = ToolUpdate(self._work.number, self.call_id, text)
        if asyncio._get_running_loop() is self._loop:
            self._reporter.feed(update)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._reporter.feed, update)

    def hold(self, ended: "asyncio.Future[None]") -> None:
        """Say that the call was let go while something of it, such as a thread, is still busy until *ended*."""
        self._work.lingers = ended


def unstarted(work: Work, effect: Start) -> Input:
    """The end of a work that was told to stop before its first step. Nothing of it runs: no request, no hook, no tool."""
    why = "cancelled before it began"
    match effect:
        case CallModel():
            return ResponseFailed(work.number, Failure(why))
        case RunTool(call=call):
            return ToolSettled(work.number, call.id, (Text(why),), True, ended="cancelled", executed=False)
        case PrepareCall():
            return CallPrepared(work.number, error=why)
        case Project(messages=messages):
            return Projected(work.number, messages)
        case CallHook():
            return HookReturned(work.number, failure=why)
        case Summarize():
            return SummaryFailed(work.number, Failure(why))


def ended_from_outside(work: Work) -> bool:
    """Whether the work's task was cancelled by someone beside the kernel: the loop's teardown, for one."""
    return work.task is not None and work.task.cancelling() > work.stops


async def run_hook(hook: Callable[..., Any], *arguments: Any) -> Any:
    """What the hook answers, whether it is async or not."""
    answer = hook(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


# ---- the model ----


async def stream_response(work: Work, effect: CallModel, to: Reporter, setup: Setup, idle: float | None) -> None:
    """Read a model's stream to its end."""
    stream: Any = None
    try:
        _watch_idle(work, idle, to)
        stream = setup.stream(effect.request)
        if inspect.isawaitable(stream):
            stream = await stream
        stop = await _read(work, stream, to)
        end: Input = ResponseCompleted(work.number, stop)
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        end = work.verdict or ResponseFailed(work.number, failure_of(error), random.random())
    except Exception as error:
        end = work.verdict or ResponseFailed(work.number, failure_of(error), random.random())
    # From here on the response has its end, whatever closing the stream does; should that hang, its time runs too.
    work.verdict = end
    await _close(stream)
    work.end_watch()
    if work.task is not None and work.task.cancelling() > work.stops:
        raise asyncio.CancelledError
    to.report(work, end)


async def _read(work: Work, stream: Any, to: Reporter) -> StopReason | None:
    """Feed the parts of *stream*; its stop reason, once the terminal part came."""
    loop = asyncio.get_running_loop()
    async for part in stream:
        work.last = loop.time()
        if type(part) is Finished:
            return part.stop
        if type(part) is TextDelta:
            if type(part.text) is not str:
                raise ModelError(f"the model broke the protocol: the text of a TextDelta is {part.text!r}")
        elif not isinstance(part, _PARTS):
            raise ModelError(f"the model broke the protocol: it yielded {part!r}, which is no part of a response")
        to.feed(ModelPart(work.number, part))
        busy = to.free()
        if busy is not None:
            await busy
            work.last = loop.time()
    raise ModelError("the stream ended without a terminal part, so the response may be incomplete", retryable=True)


async def _close(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except (Exception, asyncio.CancelledError):
        # What a stream does after its end concerns nobody; a cancellation from outside is looked for afterwards.
        return


def _watch_idle(work: Work, idle: float | None, to: Reporter) -> None:
    """Fail the response when no part comes for *idle* seconds. One timer for all parts: it looks how long ago the last
    one was, since arming a timer for each part would cost more than all else that is done with it."""
    if idle is None:
        return
    loop = asyncio.get_running_loop()
    work.last = loop.time()

    def look() -> None:
        left = work.last + idle - loop.time()
        if left > 0:
            work.watch = loop.call_later(left, look)
            return
        failure = Failure(f"the model said nothing for {idle} s (stream_idle_timeout)", retryable=True)
        to.expire(work, ResponseFailed(work.number, failure, random.random()))

    work.watch = loop.call_later(idle, look)


# ---- tools ----


def prepare(effect: PrepareCall, setup: Setup) -> tuple[ToolSpec | None, CallPrepared]:
    """Check a call by itself: is there such a tool, and are these its arguments?"""
    call = effect.call
    spec = setup.tools.get(call.name)
    if spec is None:
        known = ", ".join(setup.tools) or "none"
        return None, CallPrepared(effect.work, error=f"unknown tool {call.name!r}; the tools are: {known}")
    if call.malformed is not None:
        error = f"the arguments of {call.name} are not a JSON object: {call.malformed}"
        return None, CallPrepared(effect.work, error=error)
    try:
        spec.validate(thaw(call.arguments))
        resources = tuple(spec.resources(thaw(call.arguments))) if spec.resources is not None else ()
    except Exception as error:
        return None, CallPrepared(effect.work, error=describe(error))
    return spec, CallPrepared(effect.work, resources)


async def ask_before(work: Work, effect: PrepareCall, to: Reporter, prepared: CallPrepared, hooks: Hooks) -> None:
    """Ask `before_tool_call` about a call that is right by itself."""
    assert hooks.before_tool_call is not None
    try:
        answer = await run_hook(hooks.before_tool_call, effect.call, thaw(effect.call.arguments))
        to.report(work, _judged(prepared, answer))
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        to.report(work, CallPrepared(work.number, error=describe(error)))
    except Exception as error:
        to.report(work, CallPrepared(work.number, error=describe(error)))


def _judged(prepared: CallPrepared, answer: Any) -> CallPrepared:
    if answer is None:
        return prepared
    if isinstance(answer, Block):
        return CallPrepared(prepared.work, error=answer.reason or "blocked")
    if isinstance(answer, str):
        return CallPrepared(prepared.work, error=answer or "blocked")
    raise TypeError(f"before_tool_call must return None, a Block or a reason, not {answer!r}")


async def run_tool(work: Work, effect: RunTool, to: Reporter, spec: ToolSpec, run_id: str) -> None:
    """Execute a tool."""
    call = effect.call
    if effect.timeout is not None:
        text = f"timed out: {call.name} took longer than {effect.timeout} s and was stopped"
        verdict = ToolSettled(work.number, call.id, (Text(text),), is_error=True, ended="timeout")
        work.watch = asyncio.get_running_loop().call_later(effect.timeout, to.expire, work, verdict)
    fatal: BaseException | None = None
    try:
        value = spec.execute(spec.validate(thaw(call.arguments)), CallContext(work, run_id, call.id, to))
        if inspect.isawaitable(value):
            value = await value
        result = to_result(value)
        end = ToolSettled(work.number, call.id, result.content, result.is_error, result.terminate)
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        end = _failed(work, call, CANCELLED if work.stopping else describe(error))
    except Exception as error:
        end = _failed(work, call, describe(error))
    except BaseException as error:
        end, fatal = _failed(work, call, describe(error)), error
    work.end_watch()
    if work.verdict is not None:
        assert isinstance(work.verdict, ToolSettled)
        end = work.verdict
    to.report(work, _lingering(work, end))
    if isinstance(fatal, (KeyboardInterrupt, SystemExit)):
        raise fatal


def _failed(work: Work, call: ToolCall, text: str) -> ToolSettled:
    ended: Literal["cancelled", "returned"] = "cancelled" if work.stopping else "returned"
    return ToolSettled(work.number, call.id, (Text(text),), is_error=True, ended=ended)


def _lingering(work: Work, end: ToolSettled) -> ToolSettled:
    if work.lingers is None or work.lingers.done():
        return end
    return ToolSettled(end.work, end.call_id, end.content, end.is_error, end.terminate, end.ended, abandoned=True)


# ---- hooks, compactor ----


async def project(work: Work, effect: Project, to: Reporter, hooks: Hooks) -> None:
    """Pass the context through the hooks. Each that fails falls back to its input (chapter 06)."""
    failures: list[tuple[str, str]] = []
    messages: Sequence[Message] = effect.messages
    try:
        if hooks.transform_context is not None:
            messages = await _transformed("transform_context", hooks.transform_context, messages, failures, work)
        if hooks.convert_to_llm is not None:
            messages = await _transformed("convert_to_llm", hooks.convert_to_llm, messages, failures, work)
    except asyncio.CancelledError:
        if ended_from_outside(work):
            raise
    to.report(work, Projected(work.number, without_custom(messages), tuple(failures)))


async def _transformed(
    name: str, hook: Callable[..., Any], messages: Sequence[Message], failures: list[tuple[str, str]], work: Work
) -> Sequence[Message]:
    try:
        answer = tuple(await run_hook(hook, messages))
        wrong = [message for message in answer if not isinstance(message, MESSAGE_TYPES)]
        if wrong:
            raise TypeError(f"{name} must return messages, not {wrong[0]!r}")
        return answer
    except asyncio.CancelledError as error:
        if work.stopping or ended_from_outside(work):
            raise
        failures.append((name, describe(error)))
    except Exception as error:
        failures.append((name, describe(error)))
    return messages


def without_custom(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages that an adapter may see. A custom one that no hook rewrote is left out."""
    if any(type(message) is CustomMessage for message in messages):
        return tuple(message for message in messages if type(message) is not CustomMessage)
    return messages


async def call_hook(work: Work, effect: CallHook, to: Reporter, hook: Callable[..., Any], argument: Any) -> None:
    """Call `after_tool_result` or `should_stop_after_turn`."""
    try:
        answer = await run_hook(hook, argument)
        to.report(work, HookReturned(work.number, answer is not None and bool(answer)))
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        to.report(work, HookReturned(work.number, failure=describe(error)))
    except Exception as error:
        to.report(work, HookReturned(work.number, failure=describe(error)))


async def summarize(work: Work, effect: Summarize, to: Reporter, compactor: Compactor) -> None:
    """Ask the compactor for a summary."""
    try:
        text = await compactor.summarize(effect.messages)
        if not isinstance(text, str):
            raise TypeError(f"a compactor must return a string, not {text!r}")
        if not text.strip():
            raise ValueError("the compactor returned an empty summary")
        to.report(work, Summarized(work.number, text))
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        to.report(work, SummaryFailed(work.number, failure_of(error)))
    except Exception as error:
        to.report(work, SummaryFailed(work.number, failure_of(error)))
