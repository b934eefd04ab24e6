"""A synchronous function in a thread of its own, for a task that may stop waiting for it.

A daemon thread for each call, and not the loop's executor: the executor joins its threads when the loop and the
interpreter end, so one function that never returns would keep the process alive.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from kernel.errors import describe

R = TypeVar("R")


def _harmless(error: BaseException) -> Exception:
    """What the awaiting task may be told: SystemExit would end the loop, CancelledError would look like its own."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__} was raised in the thread: {describe(error)}")
    wrapped.__cause__ = error
    return wrapped


def _settle(future: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


async def in_thread(
    function: Callable[[], R],
    *,
    name: str,
    left: Callable[["asyncio.Future[None]", threading.Thread], object] | None = None,
) -> R:
    """What *function* returns or raises in a daemon thread called *name*, with the context variables of this task.

    A cancelled task returns at once and leaves the thread; what the thread says later is dropped. *left* is then called
    with a future that is done when the thread is, unless its loop has gone, and with the thread.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    ended: asyncio.Future[None] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: Any, error: Exception | None) -> None:
        _settle(answer, value, error)
        _settle(ended, None, None)

    def body() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:  # whatever it is, somebody waits for it
            error = _harmless(raised)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, value, error)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    try:
        return await answer  # type: ignore[no-any-return]
    except asyncio.CancelledError:
        if left is not None and not ended.done():
            left(ended, thread)
        raise
