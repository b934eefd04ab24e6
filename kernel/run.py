"""A run as its caller holds it: something to iterate for the events, and to await for the result.

The reader and the run do not wait for each other. Events are kept for one reader, as many as `event_buffer` allows; a
reader that lags gets pieces of one message put together, and one that lags too far is told what it has missed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, final

import attrs

from kernel.errors import EventsLostError
from kernel.events import Event, MessageUpdated, RunResult, ToolUpdated


@final
class Run:
    """One run. Leaving its loop early, or cancelling a task that waits for it, leaves the run alone.

    *id* is its id. *result* is None until it has ended.
    """

    __slots__ = ("_buffer", "_canceller", "_dense", "_limit", "_lost", "_may_wait", "_reader", "_waiters", "id", "result")

    def __init__(
        self,
        id: str,
        limit: int,
        canceller: Callable[[str | None, "Run"], bool],
        may_wait: Callable[[str], None],
    ) -> None:
        self.id = id
        self.result: RunResult | None = None
        self._limit = limit
        self._canceller = canceller
        self._may_wait = may_wait
        self._buffer: deque[Event | list[Any]] = deque()
        self._dense = 0
        self._lost: tuple[int, int] | None = None
        self._reader: asyncio.Future[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def cancel(self, reason: str | None = None) -> bool:
        """As `Agent.cancel`, but of this run only: False when it has ended."""
        return self._canceller(reason, self)

    def put(self, event: Event) -> None:
        """Keep *event* for the reader. For the shell."""
        if self._lost is not None:
            self._lost = (self._lost[0], event.sequence)
            return
        if len(self._buffer) >= self._limit:
            self._make_room()
            if _joins(self._buffer, event):
                return
            if len(self._buffer) >= self._limit:
                self._lost = (event.sequence, event.sequence)
                return
        self._buffer.append(event)
        if self._reader is not None and not self._reader.done():
            _wake(self._reader)

    def _make_room(self) -> None:
        """Put pieces of one message together, and updates of one call. What was looked at once is not looked at again."""
        buffer = self._buffer
        fresh = [buffer.pop() for _ in range(len(buffer) - max(self._dense - 1, 0))]
        for item in reversed(fresh):
            if isinstance(item, list) or not _joins(buffer, item):
                buffer.append(item)
        self._dense = len(buffer)

    def end(self, result: RunResult) -> None:
        """Say that the run has settled. For the shell."""
        self.result = result
        for waiter in (*self._waiters, self._reader):
            if waiter is not None:
                _wake(waiter)
        self._waiters.clear()

    def __aiter__(self) -> "Run":
        return self

    async def __anext__(self) -> Event:
        while not self._buffer:
            if self._lost is not None:
                first, last = self._lost
                raise EventsLostError(first, last)
            if self.result is not None:
                raise StopAsyncIteration
            self._may_wait("the events of its own run")
            if self._buffer or self.result is not None:  # nobody carried it any more, and now it has ended
                continue
            if self._reader is not None:
                raise RuntimeError("the events of a run have one reader, and another one is waiting; use subscribe()")
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._dense:
            self._dense -= 1
        item = self._buffer.popleft()
        return _joined(item) if isinstance(item, list) else item

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._settled().__await__()

    async def _settled(self) -> RunResult:
        while self.result is None:
            self._may_wait("its own run")
            if self.result is not None:  # nobody carried it any more, and now it has ended
                break
            # A future for each waiter: cancelling one must not reach the others, or the run.
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return self.result

    def __repr__(self) -> str:
        return f"<Run {self.id} {'going' if self.result is None else self.result.status}>"


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done() and not waiter.get_loop().is_closed():
        waiter.set_result(None)


def _joins(buffer: "deque[Event | list[Any]]", event: Event) -> bool:
    """Whether *event* could be put together with the last one that waits. A group is a list, joined when it is read."""
    if not buffer:
        return False
    last = buffer[-1]
    if isinstance(last, list):
        if not _alike(last[0], event):
            return False
        last.append(event)
        return True
    if not _alike(last, event):
        return False
    buffer[-1] = [last, event]
    return True


def _alike(first: Event, event: Event) -> bool:
    if isinstance(first, MessageUpdated) and isinstance(event, MessageUpdated):
        return (first.channel, first.call_id) == (event.channel, event.call_id)
    return isinstance(first, ToolUpdated) and isinstance(event, ToolUpdated) and first.call_id == event.call_id


def _joined(group: list[Any]) -> Event:
    first = group[0]
    if len(group) == 1:
        return first  # type: ignore[no-any-return]
    count = sum(event.count for event in group)
    if isinstance(first, MessageUpdated):
        return attrs.evolve(first, delta="".join(event.delta for event in group), count=count)
    return attrs.evolve(first, text=group[-1].text, count=count)  # type: ignore[no-any-return]
