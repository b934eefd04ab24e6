"""Calling the function of a tool, whatever kind of function it is: async on the loop, all others in a thread.

A generator tells its progress: each string that it yields is an update of the call. The result of an ordinary generator
is what it returns; an async generator can't return anything, so its result is the `ToolResult` that it yields last. One
that ends without either is refused: the author may have meant the last text, or all of them together.

What kind it is is seen on what the call gives back, not on the function alone: a decorator hides a generator function.

An ordinary generator is advanced and closed by its own thread only, because `close()` from another one is an error while it
runs. So a cancel closes it, and its `finally` runs, when the step that it is in comes to its next `yield`.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import Any

from kernel.ports import ToolContext, ToolResult
from kernel.threads import in_thread


async def call_function(call: Callable[[], Any], name: str, context: ToolContext, *, on_loop: bool) -> Any:
    """What *call*, a call of the function of the tool *name*, comes to; *on_loop* as `starts_on_loop` says."""
    if on_loop:
        value = call()
    else:
        value = await _in_thread(call, name, context)
    if isinstance(value, AsyncGenerator):
        return await _told_async(value, name, context)
    return await value if inspect.isawaitable(value) else value


def starts_on_loop(function: Callable[..., Any]) -> bool:
    """Whether calling *function* does nothing yet but give something to be awaited or iterated."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


async def _in_thread(call: Callable[[], Any], name: str, context: ToolContext) -> Any:
    left = threading.Event()

    def body() -> Any:
        value = call()
        return _told(value, name, context, left.is_set) if inspect.isgenerator(value) else value

    try:
        return await in_thread(body, name=f"tool {name}", left=getattr(context, "hold", None))
    except asyncio.CancelledError:
        left.set()
        raise


def _told(generator: Generator[Any, Any, Any], name: str, context: ToolContext, is_left: Callable[[], bool]) -> Any:
    with closing(generator):
        while not is_left():
            try:
                item = next(generator)
            except StopIteration as end:
                if end.value is None:
                    raise TypeError(f"the generator of the tool {name} returned no result: return one, or ''") from None
                return end.value
            _tell(item, name, context)
    return None  # nobody waits for it any more


async def _told_async(generator: AsyncGenerator[Any, None], name: str, context: ToolContext) -> ToolResult:
    result: ToolResult | None = None
    async with aclosing(generator):
        async for item in generator:
            if result is not None:
                raise TypeError(f"the generator of the tool {name} yielded {item!r} after its result")
            if isinstance(item, ToolResult):
                result = item
            else:
                _tell(item, name, context)
    if result is None:
        raise TypeError(f"the generator of the tool {name} ended without a result: yield a ToolResult last")
    return result


def _tell(item: Any, name: str, context: ToolContext) -> None:
    if not isinstance(item, str):
        raise TypeError(f"the generator of the tool {name} yielded {item!r}: it yields strings, which are its progress")
    context.update(item)
