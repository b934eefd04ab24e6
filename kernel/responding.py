"""Reading a model's response: one stream, from its request to its terminal part, closed on every way out."""

import asyncio
import inspect
import math
import random
from collections.abc import Callable
from typing import Any, Final

from kernel.effects import CallModel
from kernel.errors import Failure, ModelError, failure_of
from kernel.inputs import Input, ModelPart, ResponseCompleted, ResponseFailed
from kernel.messages import CUT, Finished, ReasoningDelta, StopReason, TextDelta, ToolCall, ToolCallDelta, Usage
from kernel.setup import Setup
from kernel.work import Reporter, Work, ended_from_outside, watch_idle

_PARTS: Final = (ReasoningDelta, ToolCallDelta, ToolCall, Usage)
_PART_NAMES: Final = ", ".join(part.__name__ for part in (TextDelta, *_PARTS))


async def stream_response(work: Work, effect: CallModel, to: Reporter, setup: Setup, idle: float | None) -> None:
    """Read a model's stream to its end."""
    stream: Any = None
    try:
        watch_idle(work, idle, to, _silent(work))
        stream = setup.stream(effect.request)
        if inspect.isawaitable(stream):
            stream = await stream
        if not hasattr(stream, "__aiter__"):
            raise ModelError(
                f"the model broke the protocol: stream() returned {stream!r}; write it as `async def` with `yield`, or "
                "return an async iterator"
            )
        stop = await _read(work, stream, to, idle)
        end: Input = work.verdict or ResponseCompleted(work.number, stop)
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


def _silent(work: Work) -> Callable[[Failure], Input]:
    return lambda failure: ResponseFailed(work.number, failure, random.random())


async def _read(work: Work, stream: Any, to: Reporter, idle: float | None) -> StopReason | None:
    """Feed the parts of *stream*; its stop reason, once the terminal part came."""
    loop = asyncio.get_running_loop()
    feed, free, time = to.feed, to.free, loop.time
    async for part in stream:
        work.last = time()
        if type(part) is Finished:
            if part.stop in CUT:
                raise ModelError(f"the model ended its response with the stop reason {part.stop}")
            return part.stop
        if type(part) is TextDelta:
            if type(part.text) is not str:
                raise ModelError(f"the model broke the protocol: the text of a TextDelta is {part.text!r}")
        elif not isinstance(part, _PARTS):
            raise ModelError(f"the model broke the protocol: it yielded {part!r}{_hint(part)}")
        feed(ModelPart(work.number, part))
        busy = free()
        if busy is not None:
            work.last = math.inf  # the silence is the listeners', not the model's
            await busy
            work.last = time()
            if work.watch is None and not work.reported:
                watch_idle(work, idle, to, _silent(work))
    raise ModelError(
        "the stream ended without a terminal part (Finished), so the response may be incomplete", retryable=True
    )


def _hint(part: Any) -> str:
    if isinstance(part, str):
        return "; text goes into a TextDelta"
    if isinstance(part, type) and (part is Finished or part is TextDelta or issubclass(part, _PARTS)):
        return f", a class; yield {part.__name__}(...)"
    return f", which is no part of a response: yield {_PART_NAMES} and, last, Finished"


async def _close(stream: Any) -> None:
    try:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    except (Exception, asyncio.CancelledError):
        # What a stream does after its end concerns nobody; a cancellation from outside is looked for afterwards.
        return
