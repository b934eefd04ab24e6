"""A deterministic asyncio event loop: virtual time, no selector, no threads, no sleeping.

Time stands still while anything is ready and jumps to the next timer when nothing is, so that an hour's backoff costs
nothing and the same program takes the same steps each time. The order is asyncio's own, first in first out; a *chooser*
may take another one, which is how tests look for orders that break something. When nothing is ready and no timer is set
while somebody still waits, nothing can ever happen again: that is a `Deadlock`, and it names who is stuck.

Weak points: a thread is not part of the simulation, so what it would report later counts as never; and a task that
spins for ever without waiting is stopped only by `max_steps`.
"""

import asyncio
import heapq
import sys
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import Context
from itertools import count
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, cast, final
from weakref import WeakValueDictionary

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Owner = asyncio.Task[Any] | None
Chooser = Callable[[int], int]
"""Which of *n* ready steps runs next: an index below n. Index 0 is the order of asyncio."""

MAX_STEPS: Final = 1_000_000
"""Steps of one simulation. A million: some seconds of work, hundreds of times more than a long scenario takes."""

SHUTDOWN_STEPS: Final = 10_000
"""Steps for cleaning up. What still goes on after them was never going to end."""


class SimulationError(RuntimeError):
    """A simulation that can't come to its end."""


class Deadlock(SimulationError):  # noqa: N818  # the word for it
    """Nothing is ready, no timer is set, and somebody still waits."""


class Livelock(SimulationError):  # noqa: N818  # the word for it
    """The simulation went on and on, past its limit of steps."""


@final
class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose time is virtual and whose order is given.

    Use it whole, with `run_until_complete` (or the function `simulate`), or by hand: inside `active()` call what needs
    a running loop, and between these calls `step`, `advance` or `drain`.

    A *choose* that has a method `among` (`TaskChooser`) is told whose steps they are: the task of each, or None for a
    plain callback. `steps` counts what ran; `exceptions` holds what was reported to the loop's exception handler.
    """

    def __init__(self, *, choose: Chooser | None = None, max_steps: int = MAX_STEPS) -> None:
        super().__init__()
        self.steps = 0
        self.exceptions: list[dict[str, Any]] = []
        self._choose = choose
        self._among: Callable[[list[_Owner]], int] | None = getattr(choose, "among", None)
        self._max_steps = max_steps
        self._now = 0.0
        self._queue: deque[tuple[asyncio.Handle, _Owner]] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle, _Owner]] = []
        self._numbers = count()
        self._stop = False
        self._generators: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.set_exception_handler(lambda _, context: self.exceptions.append(context))

    # ---- what asyncio asks of a loop ----

    def time(self) -> float:
        """The virtual time, in seconds from the beginning."""
        return self._now

    def is_running(self) -> bool:
        """Whether code of this loop is running now."""
        return events._get_running_loop() is self  # asyncio's interface for those who write loops

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        """Make *callback* ready."""
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append((handle, _owner_of(callback)))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Make *callback* ready at that virtual time. Equal times keep their order."""
        self._check_open()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer, _owner_of(callback)))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Make *callback* ready after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def run_in_executor(self, _executor: Executor | None, func: Callable[[*Ts], T], *_args: *Ts) -> NoReturn:
        """Refused: threads have no place in a simulation."""
        raise RuntimeError(f"a simulated loop has no threads; call {func!r} directly or give a fake instead")

    def run_forever(self) -> None:
        """Run until `stop`. A `Deadlock` is raised when nothing can happen any more."""
        self._stop = False
        with self.active():
            while not self._stop:
                self._go_on()

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until *future* is done; what it returns or raises."""
        with self.active():
            main = asyncio.ensure_future(cast(Awaitable[T], future), loop=self)
            while not main.done():
                self._go_on()
            return main.result()

    def stop(self) -> None:
        """End `run_forever` after the present step."""
        self._stop = True

    async def shutdown_asyncgens(self) -> None:
        """Close the async generators that are still open."""
        left = list(self._generators.values())
        self._generators.clear()
        for generator in left:
            if not generator.ag_running:  # else it belongs to a task that ignored its cancellation
                await generator.aclose()

    def close(self) -> None:
        """Forget everything that is ready or timed; nothing can be scheduled afterwards."""
        super().close()
        self._queue.clear()
        self._timers.clear()

    # ---- driving by hand ----

    @contextmanager
    def active(self) -> Iterator["SimulatedLoop"]:
        """Make this the running loop of the block. Inside one of its own blocks it does nothing."""
        if self.is_running():
            yield self
            return
        self._check_open()
        if (other := events._get_running_loop()) is not None:
            raise RuntimeError(f"{other!r} is running here already")
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(self._generator_began, self._generator_dropped)
        try:
            yield self
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(None)

    def step(self) -> bool:
        """Run one thing that is ready; False when nothing is."""
        if self.is_running():
            return self._step()
        with self.active():
            return self._step()

    def advance(self) -> bool:
        """Jump to the next timer and make ready what is due then; False when there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            return False
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            _, _, timer, owner = heapq.heappop(self._timers)
            self._queue.append((timer, owner))
        return True

    def drain(self, until: Callable[[], object] | None = None, *, time: bool = False) -> None:
        """Step until nothing is ready, or *until* says so. With *time*, let time pass too, until no timer is set."""
        with self.active():
            while not (until and until()) and (self._step() or (time and self.advance())):
                pass

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """The tasks of this loop that have not ended, by name."""
        return sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())

    def timers(self) -> int:
        """How many timers are set."""
        return len(self.timed())

    def timed(self) -> list[Callable[..., object]]:
        """What the timers that are set will call."""
        return [_callback_of(timer) for _, _, timer, _ in self._timers if not timer.cancelled()]

    def stuck(self) -> str:
        """Who has not ended, and where each of them waits."""
        return ", ".join(f"{task.get_name()} in {_place_of(task)}" for task in self.unfinished()) or "nobody"

    def shutdown(self) -> list[asyncio.Task[Any]]:
        """End the simulation: let what is ready run, cancel what still waits, let it clean up, and close.

        Returns the tasks that had to be cancelled.
        """
        with self.active():
            self._settle(time=False)
            left = self.unfinished()
            for task in left:
                task.cancel()
            self._settle()
            self.create_task(self.shutdown_asyncgens())
            self._settle()
        self.close()
        return left

    # ---- inside ----

    def _check_open(self) -> None:
        if self.is_closed():
            raise RuntimeError("the simulated loop is closed")

    def _go_on(self) -> None:
        if not self._step() and not self.advance():
            raise Deadlock(f"nothing can happen any more at {self._now} s; still waiting: {self.stuck()}")

    def _step(self) -> bool:
        while self._queue:
            handle = self._take()
            if handle.cancelled():
                continue
            self.steps += 1
            if self.steps > self._max_steps:
                raise Livelock(f"no end after {self._max_steps} steps; still going: {self.stuck()}")
            handle._run()
            return True
        return False

    def _take(self) -> asyncio.Handle:
        if self._choose is None:
            return self._queue.popleft()[0]
        places = self._eligible()
        place = places[0]
        if len(places) > 1:
            among = self._among
            owners = [self._queue[place][1] for place in places] if among is not None else []
            place = places[self._choose(len(places)) if among is None else among(owners)]
        handle, _ = self._queue[place]
        del self._queue[place]
        return handle

    def _eligible(self) -> list[int]:
        """The first ready step of each task, and the first plain callback: what one owner does keeps its order."""
        seen: set[_Owner] = set()
        places = []
        for place, (handle, owner) in enumerate(self._queue):
            if owner not in seen and not handle.cancelled():
                seen.add(owner)
                places.append(place)
        return places or [0]

    def _settle(self, *, time: bool = True) -> None:
        self._max_steps = self.steps + SHUTDOWN_STEPS
        with suppress(Livelock):
            self.drain(time=time)

    def _generator_began(self, generator: Any) -> None:
        self._generators[next(self._numbers)] = generator

    def _generator_dropped(self, generator: Any) -> None:
        if not self.is_closed():
            self.call_soon(self.create_task, generator.aclose())


def simulate(main: Awaitable[T], *, choose: Chooser | None = None, max_steps: int = MAX_STEPS) -> T:
    """Run *main* to its end in a simulated loop of its own; what it returns or raises.

    >>> simulate(asyncio.sleep(3600, "an hour later"))
    'an hour later'
    """
    loop = SimulatedLoop(choose=choose, max_steps=max_steps)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.shutdown()


def _owner_of(callback: object) -> _Owner:
    owner = getattr(callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


def _callback_of(handle: Any) -> Callable[..., object]:
    return cast(Callable[..., object], handle._callback)  # no other way leads to it


def _place_of(task: asyncio.Task[Any]) -> str:
    place: Any = task.get_coro()
    while (inner := getattr(place, "cr_await", None) or getattr(place, "ag_await", None)) is not None:
        if not hasattr(inner, "__qualname__"):
            break
        place = inner
    return str(getattr(place, "__qualname__", place))
