"""Telling listeners: one event at a time, to those who listened when its delivery began, in the order in which they came.

A listener that gives back an awaitable stops the delivery: the run's own task awaits it and then tells the next ones.
Patience ends when the core says `AbandonListeners`: the listener that is being awaited is cancelled, and the rest of the
run is told without waiting. A listener still gets its events one after the other, and has `cancel_grace` once more to end.
Under `observe` there is no patience from the start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, final

from kernel.errors import Failure, describe
from kernel.events import Event
from kernel.inputs import SubscriberFailure
from kernel.listeners import Listeners
from kernel.ports import Listener

_NOTHING: tuple[tuple[int, Awaitable[Any]], ...] = ()
Abandon = Callable[["asyncio.Future[Any]", str, str, str], None]
Observe = Callable[[Awaitable[Any], Event], "asyncio.Future[Any]"]


class _Pending(NamedTuple):
    """A delivery that stopped at a listener whose answer must be awaited."""

    event: Event
    listeners: Sequence[Listener]
    next: int
    answer: Awaitable[Any]


@final
class Delivery:
    """The telling of one run's events. *failed* takes a listener's failure; *observe* and *abandon* take what goes on."""

    __slots__ = (
        "_abandon", "_awaits", "_began", "_failed", "_free", "_gone", "_inside", "_listeners", "_observe", "_patient",
        "_tails", "_waiting", "pending",
    )  # fmt: skip

    def __init__(
        self,
        listeners: Listeners,
        inside: set["asyncio.Task[Any]"],
        failed: Callable[[SubscriberFailure], None],
        observe: Observe,
        abandon: Abandon,
        *,
        patient: bool,
    ) -> None:
        self._listeners = listeners
        self._inside = inside
        self._failed = failed
        self._observe = observe
        self._abandon = abandon
        self._awaits = self._patient = patient
        self._gone = False
        self.pending: _Pending | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._free: asyncio.Future[None] | None = None
        self._tails: dict[int, asyncio.Future[Any]] = {}
        self._began: list[asyncio.Future[Any]] = []

    def tell(self, event: Event) -> None:
        """Tell the listeners of *event*. Afterwards `pending` is not None when one of them must be awaited first."""
        listeners = self._listeners.all
        if listeners:
            self.pending = self._tell(event, listeners, 0)

    def _tell(self, event: Event, listeners: Sequence[Listener], start: int) -> _Pending | None:
        unheard = _NOTHING
        try:
            for index in range(start, len(listeners)):
                try:
                    answer = listeners[index](event)
                except BaseException as error:
                    self._fail(event, error)
                    if isinstance(error, (KeyboardInterrupt, SystemExit)):
                        raise
                    continue
                if answer is None or not isinstance(answer, Awaitable):
                    continue
                if self._patient:
                    return _Pending(event, listeners, index + 1, answer)
                unheard = (*unheard, (index, answer))
            return None
        finally:
            for index, answer in unheard:  # when all others have heard, also where tasks start eagerly
                self._let_go_on(index, answer, event)

    def _let_go_on(self, index: int, answer: Awaitable[Any], event: Event) -> None:
        if self._gone:
            drop(answer)
        elif self._awaits:
            task = self._observe(_after(self._tails.get(index), answer), event)
            _drop_after(task, answer)
            self._tails[index] = task
            self._began.append(task)
        else:
            self._observe(answer, event)

    def _fail(self, event: Event, error: BaseException) -> None:
        failure = Failure(describe(error), cause=error)
        self._failed(SubscriberFailure(event.run_id, event.type, event.sequence, failure))

    async def wait(self) -> None:
        """Await the listener at which the delivery stopped, and tell the next ones."""
        pending = self.pending
        if pending is None:
            return
        loop = asyncio.get_running_loop()
        # A task of its own, so that it can be abandoned.
        name = f"kernel listener of {pending.event.type}"
        task = loop.create_task(_awaited(pending.answer, self._inside), name=name)
        waiting = self._waiting = loop.create_future()
        task.add_done_callback(lambda _: release(waiting))
        _drop_after(task, pending.answer)
        try:
            await waiting
        except asyncio.CancelledError:
            self._take_failure(pending.event, task)  # it may have failed in the very moment
            raise
        finally:
            self._waiting = None
            self._inside.discard(task)
            if not task.done() and not loop.is_closed():
                task.cancel()
                self._abandon(task, pending.event.run_id, "listener", pending.event.type)
        if task.cancelled() and task.cancelling() > 0:
            raise asyncio.CancelledError("a listener was cancelled from outside, and with it the run")
        self._take_failure(pending.event, task)
        if self.pending is pending:
            self.pending = self._tell(pending.event, pending.listeners, pending.next)
        if self.pending is None:
            release(self._free)

    def _take_failure(self, event: Event, task: "asyncio.Task[Any]") -> None:
        error = failure_of(task) if task.done() else None
        if error is not None:
            self._fail(event, error)

    def free(self) -> Awaitable[None] | None:
        """What to wait for before more is published; None when nothing is in the way."""
        if self.pending is None:
            return None
        if self._free is None or self._free.done():
            self._free = asyncio.get_running_loop().create_future()
        return self._free

    def abandon(self) -> None:
        """Have no patience from now on."""
        self._patient = False
        release(self._waiting)

    def end_patience_for_good(self) -> None:
        """Nobody is left to wait for anything: tell the rest at once, and let go of what listeners want to begin."""
        self._patient = False
        self._gone = True
        pending, self.pending = self.pending, None
        if pending is not None:
            if self._waiting is None:
                drop(pending.answer)
            self._tell(pending.event, pending.listeners, pending.next)

    def let_go(self, run_id: str, grace: float) -> None:
        """Give listeners that are still busy *grace* seconds to end, though nobody waits for them."""
        for task in self._began:
            if not task.done():
                self._abandon(task, run_id, "listener", "after the deadline")
                stop = task.get_loop().call_later(grace, task.cancel)
                task.add_done_callback(lambda _, stop=stop: stop.cancel())  # type: ignore[misc]


def failure_of(task: "asyncio.Future[Any]") -> BaseException | None:
    """What a listener's answer raised; a CancelledError that nobody sent it is as good as any other error."""
    if not task.cancelled():
        return task.exception()
    sent = isinstance(task, asyncio.Task) and task.cancelling() > 0
    return None if sent else asyncio.CancelledError("the listener cancelled itself")


async def _after(previous: "asyncio.Future[Any] | None", answer: Awaitable[Any]) -> None:
    if previous is not None:
        await asyncio.wait({previous})
    await answer


def _drop_after(task: "asyncio.Future[Any]", answer: Awaitable[Any]) -> None:
    """A task that is cancelled before its first step never gets to what it was to await."""
    task.add_done_callback(lambda _: drop(answer))


def drop(answer: Awaitable[Any]) -> None:
    """Let go of what will not be awaited any more, so that nobody is told that it never was."""
    if isinstance(answer, Coroutine):
        answer.close()


async def _awaited(answer: Awaitable[Any], inside: set["asyncio.Task[Any]"]) -> None:
    task = asyncio.current_task()
    assert task is not None
    inside.add(task)
    await answer


def release(future: "asyncio.Future[None] | None") -> None:
    """Let go on whoever waits for *future*."""
    if future is not None and not future.done() and not future.get_loop().is_closed():
        future.set_result(None)
