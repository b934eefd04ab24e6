"""One run, carried out: the only loop of the kernel.

Theory. What the core asks for comes in two speeds (`kernel.effects`). Immediate effects are performed in `take`; events
and the marks between them wait in one queue, the *outbox*, and one pump empties it, in order, one event at a time to all
listeners. The pump is an ordinary function: it runs in whichever task of the kernel has just reported something, so an
event costs no trip through the event loop. Only a listener that gives back an awaitable stops it: then the run's own task
awaits that listener, and pumps on. Commands never pump; they wake the run's own task, so that a caller's `prompt()` or
`cancel()` returns before any listener has heard of it.

Weak point. A callable that blocks the loop can't be interrupted.
"""

import asyncio
import threading
from collections import deque
from typing import Any, Final, final

from kernel.delivery import Delivery, release
from kernel.effects import (
    AbandonListeners,
    AbandonWork,
    Barrier,
    CancelWork,
    Effect,
    ItemsLeft,
    RunEnded,
    Settle,
    StartTimer,
    StopTimer,
)
from kernel.errors import Failure, KernelBug, WrongLoopError, describe
from kernel.events import Event, MessageUpdated
from kernel.household import Household
from kernel.inputs import Advance, Halted, Input, Settled, TimerDue
from kernel.logs import log
from kernel.run import Run
from kernel.workers import Workers
from statechart import Leaf

_DEATH: Final = "the kernel broke its own rules"


@final
class Drive:
    """The carrying out of one run, from its first input to `RunEnded`."""

    __slots__ = (
        "_broken",
        "_bug",
        "_core",
        "_delivery",
        "_household",
        "_inbox",
        "_outbox",
        "_pumping",
        "_settled",
        "_taking",
        "_thread",
        "_timers",
        "_wakeup",
        "_workers",
        "inside",
        "loop",
        "run",
        "task",
    )  # fmt: skip

    def __init__(self, household: Household, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self.run = run
        self.loop = loop
        self.inside: set[asyncio.Task[Any]] = set()
        self._household = household
        self._core = household.core
        self._thread = threading.get_ident()
        self._outbox: deque[Any] = deque()
        self._inbox: list[Input] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._pumping = self._taking = self._settled = self._broken = False
        self._bug: Failure | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self._delivery = Delivery(
            household.listeners,
            self.inside,
            self.receive,
            household.observe,
            household.abandon,
            patient=household.awaits_listeners,
        )
        self._workers = Workers(run.id, loop, self.inside, household, self, self._delivery)
        self.task = loop.create_task(self._carry(), name=f"kernel run {run.id}")
        self.task.add_done_callback(self._carried)
        self.inside.add(self.task)

    # ---- what goes to the core, and what comes from it ----

    def receive(self, input: Input) -> None:
        """Hand *input* to the core and perform what it asks for. Inputs that come up meanwhile wait their turn."""
        if self._taking or self._inbox or self._core.is_stepping:
            self._inbox.append(input)
            self.catch_up()
        else:
            self._hand_over(input)

    def feed(self, input: Input) -> None:
        """Hand in a part or an update, and deliver what it published. Once the run is over it is late."""
        if self._settled:
            self._household.report(input)
            return
        self.receive(input)
        self.pump()

    def catch_up(self) -> None:
        """Hand over the inputs that came up meanwhile, unless the core is in a step: a finalizer can come in the middle."""
        if self._inbox and not self._taking and not self._core.is_stepping:
            self._hand_over(self._inbox.pop(0))

    def _hand_over(self, input: Input) -> None:
        core, inbox = self._core, self._inbox
        self._taking = True
        try:
            while True:
                effects = core.receive(input)
                if len(effects) == 1 and not effects[0].immediate:  # a delta
                    self._outbox.append(effects[0])
                else:
                    self.take(effects)
                if not inbox:
                    return
                input = inbox.pop(0)
        except Exception as error:
            self.report_bug(error)
        finally:
            self._taking = False

    def take(self, effects: list[Effect]) -> None:
        """Keep what has its order, and perform the rest at once."""
        immediate: list[Effect] | None = None
        outbox = self._outbox
        for effect in effects:
            if not effect.immediate:
                outbox.append(effect)
            elif immediate is None:
                immediate = [effect]
            else:
                immediate.append(effect)
        for effect in immediate or ():
            self._perform(effect)

    def _perform(self, effect: Any) -> None:
        match effect:
            case StartTimer():
                self._timers[effect.timer] = self.loop.call_later(effect.seconds, self._timer_due, effect.timer)
            case StopTimer():
                timer = self._timers.pop(effect.timer, None)
                if timer is not None:
                    timer.cancel()
            case CancelWork():
                self._workers.cancel(effect.works)
            case AbandonWork():
                self._workers.abandon(effect.works)
            case AbandonListeners():
                self._delivery.abandon()
            case ItemsLeft():
                self._household.settle_receipts(effect)
            case _:
                self._workers.start(effect)

    def _timer_due(self, timer: int) -> None:
        self._timers.pop(timer, None)
        self.receive(TimerDue(timer))
        self.pump()

    def wake(self) -> None:
        """Have the run's own task look at the outbox."""
        release(self._wakeup)

    def pump(self, *, final: bool = False) -> None:
        """Deliver what waits in the outbox, until it is empty or a listener must be awaited.

        The last step of a run is left to the run's own task (*final*), so that nothing of the run is alive after it.
        """
        delivery, outbox = self._delivery, self._outbox
        if self._pumping or delivery.pending is not None or self._core.is_stepping:
            return
        self._pumping = True
        final = final or self._broken
        try:
            while outbox and delivery.pending is None:
                effect = outbox.popleft()
                if isinstance(effect, Event):
                    self.run.put(effect)
                    if type(effect) is not MessageUpdated:  # of which nothing is logged
                        log(effect)
                    delivery.tell(effect)
                elif type(effect) is Barrier:
                    unsent = effect.unsent
                    self.receive(Advance(effect.token, self._household.counting.tokens(unsent) if unsent else 0))
                elif type(effect) is Settle and not final:
                    outbox.appendleft(effect)
                    return
                elif type(effect) is Settle:
                    self.receive(Settled())
                else:
                    self._end(effect)
        except Exception as error:
            self.report_bug(error)
        finally:
            self._pumping = False
            if outbox or delivery.pending is not None:
                self.wake()
        if self._broken and not self._settled:
            self._end_in_any_case()

    # ---- the run's own task ----

    async def _carry(self) -> None:
        try:
            while True:
                self.pump(final=True)
                if self._settled:
                    return
                if self._delivery.pending is not None:
                    await self._delivery.wait()
                else:
                    self._wakeup = self.loop.create_future()
                    await self._wakeup
        except asyncio.CancelledError:
            self.halt()
            raise

    def _carried(self, task: "asyncio.Task[None]") -> None:
        """A task that was cancelled before its first step never ran, so it could not end the run itself."""
        if not task.cancelled() and isinstance(task.exception(), Exception):
            self.report_bug(task.exception() or KernelBug(_DEATH))
        self.halt()

    @property
    def is_over(self) -> bool:
        """Whether the run has settled."""
        return self._settled

    @property
    def is_dead(self) -> bool:
        """Whether nobody carries the run any more."""
        return not self._settled and (self.loop.is_closed() or self.task.done())

    def refuse_stranger(self, asked: str, instead: str = "call_soon_threadsafe() of that loop") -> None:
        """Refuse a command or a wait that comes from another thread or another loop."""
        running = asyncio._get_running_loop()
        if threading.get_ident() != self._thread or (running is not None and running is not self.loop):
            raise WrongLoopError(
                f"{asked} came from another thread or event loop than the one that carries run {self.run.id}; "
                f"use {instead}"
            )

    # ---- ends ----

    def _end(self, effect: RunEnded) -> None:
        self._settled = True
        if self._bug is not None and effect.result.failure is not self._bug:
            self._tell_bug(self._bug)  # the outcome had been decided before, so that the result can't tell
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._household.run_over()
        self._delivery.let_go(self.run.id, self._household.core.state.config.cancel_grace)
        self.wake()
        self.run.end(effect.result)

    def halt(self, failure: Failure | None = None) -> None:
        """The task or loop that carried the run is going away: end it here and now, without waiting for anyone."""
        if self._settled:
            return
        self._delivery.end_patience_for_good()
        self.receive(Halted(failure))
        self.pump(final=True)

    def report_bug(self, error: BaseException) -> None:
        """Something of ours went wrong: end the run with it."""
        self._bug = Failure(f"{_DEATH}: {describe(error)}", code=KernelBug.code, cause=error)
        self._inbox.clear()
        self._taking = False
        if not self._broken:
            self._broken = True
            self.halt(self._bug)

    def _end_in_any_case(self) -> None:
        """After a bug nothing is waited for any more: try once more to settle, and else end the run by hand."""
        if self._household.core.state.leaf is Leaf.SETTLING:
            self.receive(Settled())
        while self._outbox:
            effect = self._outbox.popleft()
            if type(effect) is RunEnded:
                self._end(effect)
        if not self._settled and self._bug is not None:
            self._tell_bug(self._bug)
            self._end(RunEnded(self._household.broken_result(self.run.id, self._bug)))

    def _tell_bug(self, bug: Failure) -> None:
        self.loop.call_exception_handler({"message": bug.message, "exception": bug.cause})
