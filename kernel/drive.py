"""One run, carried out: the only loop of the kernel.

Theory. What the core asks for comes in two speeds (`kernel.effects`). Immediate effects are performed in `take`; events
and the marks between them wait in one queue, the *outbox*, and one pump empties it, in order, one event at a time to all
listeners. The pump is an ordinary function: it runs in whichever task of the kernel has just reported something, so an
event costs no trip through the event loop. Only a listener that gives back an awaitable stops it: then the run's own task
awaits that listener, and pumps on. Commands never pump; they wake the run's own task, so that a caller's `prompt()` or
`cancel()` returns before any listener has heard of it.

Patience. Listeners are awaited until the core says `AbandonListeners`; from then on they are called and left alone.
What is told to stop and does not is abandoned: it is kept in `Shell.abandoned` until it ends, and what it says is late.

Weak point. A callable that blocks the loop can't be interrupted.
"""

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from kernel.effects import (
    AbandonListeners,
    AbandonWork,
    Barrier,
    CallHook,
    CallModel,
    CancelWork,
    Effect,
    ItemsLeft,
    PrepareCall,
    Project,
    RunEnded,
    RunTool,
    Settle,
    Start,
    StartTimer,
    StopTimer,
    Summarize,
)
from kernel.errors import Failure, KernelBug, WrongLoopError, describe
from kernel.events import Event
from kernel.inputs import Advance, Halted, Input, Projected, Settled, SubscriberFailure, TimerDue, ToolSettled
from kernel.ports import Listener
from kernel.run import Run
from kernel.works import Work, ask_before, call_hook, prepare, project, run_tool, stream_response, summarize, unstarted

if TYPE_CHECKING:
    from kernel.shell import Shell

_TOOL: Final = "tool"


class _Pending(NamedTuple):
    """A delivery that stopped at a listener whose answer must be awaited."""

    event: Event
    listeners: Sequence[Listener]
    next: int
    answer: Awaitable[Any]


@final
class Drive:
    """The carrying out of one run, from its first input to `RunEnded`."""

    __slots__ = (
        "_blocked", "_broken", "_free", "_halted", "_inbox", "_listening", "_observed", "_outbox", "_patient", "_pumping", "_settled",
        "_shell", "_taking", "_thread", "_timers", "_wakeup", "_works", "inside", "loop", "run", "task",
    )  # fmt: skip

    def __init__(self, shell: "Shell", run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._shell = shell
        self.run = run
        self.loop = loop
        self.inside: set[asyncio.Task[Any]] = set()
        self._outbox: deque[Any] = deque()
        self._inbox: deque[Input] = deque()
        self._works: dict[int, Work] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._pumping = self._taking = self._settled = self._halted = self._broken = False
        self._thread = threading.get_ident()
        self._patient = shell.core.state.config.subscribers == "await"
        self._blocked: _Pending | None = None
        self._observed: list[asyncio.Future[Any]] = []
        self._listening: asyncio.Future[None] | None = None
        self._free: asyncio.Future[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self.task = loop.create_task(self._carry(), name=f"kernel run {run.id}")
        self.task.add_done_callback(self._carried)
        self.inside.add(self.task)

    # ---- what comes from the core ----

    def receive(self, input: Input) -> None:
        """Hand *input* to the core and perform what it asks for. Inputs that come up meanwhile wait their turn."""
        self._inbox.append(input)
        if self._taking:
            return
        self._taking = True
        try:
            while self._inbox:
                self.take(self._shell.core.receive(self._inbox.popleft()))
        except Exception as error:
            self._report_bug(error)
        finally:
            self._taking = False

    def take(self, effects: list[Effect]) -> None:
        """Keep what has its order, and perform the rest at once."""
        for effect in effects:
            if not effect.immediate:
                self._outbox.append(effect)
        for effect in effects:
            if effect.immediate:
                self._perform(effect)

    def wake(self) -> None:
        """Have the run's own task look at the outbox."""
        if not self.loop.is_closed():
            _release(self._wakeup)

    def pump(self) -> None:
        """Deliver what waits in the outbox, until it is empty or a listener must be awaited."""
        if self._pumping or self._blocked is not None:
            return
        self._pumping = True
        try:
            while self._outbox and self._blocked is None:
                effect = self._outbox.popleft()
                if isinstance(effect, Event):
                    self.run.put(effect)
                    self._blocked = self._tell(effect, self._shell.listeners.all, 0)
                elif type(effect) is Barrier:
                    self.receive(Advance(effect.token))
                elif type(effect) is Settle:
                    self.receive(Settled())
                else:
                    self._end(effect)
        except Exception as error:
            self._report_bug(error)
        finally:
            self._pumping = False
        if self._blocked is not None:
            self.wake()

    # ---- the run's own task ----

    async def _carry(self) -> None:
        try:
            while True:
                self.pump()
                if self._settled:
                    return
                if self._blocked is not None:
                    await self._await_listener(self._blocked)
                    continue
                self._wakeup = self.loop.create_future()
                await self._wakeup
        except asyncio.CancelledError:
            self.halt()
            raise

    async def _await_listener(self, pending: _Pending) -> None:
        """Await one listener's answer, in a task of its own so that it can be abandoned, and tell the next ones."""
        task = self.loop.create_task(_awaited(pending.answer), name="kernel listener")
        self.inside.add(task)
        self._listening = self.loop.create_future()
        task.add_done_callback(lambda _: _release(self._listening))
        try:
            await self._listening
        finally:
            self._listening = None
            self.inside.discard(task)
            if not task.done():
                task.cancel()
                self._shell.abandon(task, self.run.id, "listener", pending.event.type)
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                self._listener_failed(pending.event, error)
        self._blocked = self._tell(pending.event, pending.listeners, pending.next)
        if self._blocked is None:
            _release(self._free)
            self._free = None

    # ---- listeners ----

    def _tell(self, event: Event, listeners: Sequence[Listener], start: int) -> _Pending | None:
        for index in range(start, len(listeners)):
            try:
                answer = listeners[index](event)
            except (Exception, asyncio.CancelledError) as error:
                self._listener_failed(event, error)
                continue
            if answer is not None and isinstance(answer, Awaitable):
                if self._patient:
                    return _Pending(event, listeners, index + 1, answer)
                if self._halted:
                    _drop(answer)
                else:
                    self._observed.append(self._shell.observe(answer, event))
        return None

    def _listener_failed(self, event: Event, error: BaseException) -> None:
        self.receive(SubscriberFailure(event.run_id, event.type, event.sequence, Failure(describe(error), cause=error)))

    # ---- what works report (kernel.works.Reporter) ----

    def report(self, work: Work, input: Input) -> None:
        """Hand in the one end of *work*, or what it says after it was given up."""
        if work.reported:
            if isinstance(input, ToolSettled):
                self._shell.report(input)
            return
        self._close_work(work)
        if isinstance(input, ToolSettled) and input.abandoned and work.lingers is not None:
            self._shell.linger(work, self.run.id, input)
        self.receive(input)
        self.pump()

    def _close_work(self, work: Work) -> None:
        work.reported = True
        work.end_watch()
        self._works.pop(work.number, None)
        if work.task is not None:
            self.inside.discard(work.task)

    def feed(self, input: Input) -> None:
        """Hand in a part or an update."""
        if self._settled:
            self._shell.report(input)
            return
        self.receive(input)
        self.pump()

    def free(self) -> Awaitable[None] | None:
        """What to wait for before more is fed, when a listener is being awaited."""
        if self._blocked is None:
            return None
        if self._free is None or self._free.done():
            self._free = self.loop.create_future()
        return self._free

    def expire(self, work: Work, verdict: Input) -> None:
        """Stop *work*, whose time is over; take *verdict* for its end, at the latest after `cancel_grace`."""
        work.verdict = work.verdict or verdict
        work.stops += 1
        if work.task is not None:
            work.task.cancel()
        grace = self._shell.core.state.config.cancel_grace
        work.watch = self.loop.call_later(grace, self._give_up, work)

    def _give_up(self, work: Work) -> None:
        verdict = work.verdict
        if work.reported or verdict is None:
            return
        self._abandon(work)
        if isinstance(verdict, ToolSettled):
            verdict = ToolSettled(
                verdict.work, verdict.call_id, verdict.content, True, ended=verdict.ended, abandoned=True
            )
        self.receive(verdict)
        self.pump()

    # ---- effects ----

    def _perform(self, effect: Any) -> None:
        match effect:
            case CallModel():
                self._call_model(effect)
            case RunTool():
                self._run_tool(effect)
            case PrepareCall():
                self._prepare_call(effect)
            case Project():
                self._project(effect)
            case CallHook():
                self._call_hook(effect)
            case Summarize():
                self._start(Work(effect.work, "compactor", "summarize"), effect, summarize, self._shell.compactor)
            case StartTimer():
                self._timers[effect.timer] = self.loop.call_later(effect.seconds, self._timer_due, effect.timer)
            case StopTimer():
                timer = self._timers.pop(effect.timer, None)
                if timer is not None:
                    timer.cancel()
            case CancelWork():
                for number in effect.works:
                    if number in self._works:
                        self._works[number].stop()
            case AbandonWork():
                for number in effect.works:
                    if number in self._works:
                        self._abandon(self._works[number])
            case AbandonListeners():
                self._patient = False
                _release(self._listening)
            case ItemsLeft():
                self._shell.settle_receipts(effect)

    def _start(self, work: Work, effect: Start, body: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        self._works[work.number] = work
        work.task = self.loop.create_task(self._work(work, effect, body, args), name=f"kernel {work.kind} {work.name}")
        work.task.add_done_callback(functools.partial(self._work_ended, work))
        self.inside.add(work.task)

    async def _work(
        self, work: Work, effect: Start, body: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]
    ) -> None:
        work.started = True
        if work.stopping:
            self.report(work, unstarted(work, effect))
        else:
            await body(work, effect, self, *args)

    def _work_ended(self, work: Work, task: "asyncio.Task[None]") -> None:
        """A work that ends without a report was cancelled from outside, or has a bug of ours."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._report_bug(error)
        elif not work.reported:
            self.halt()

    def _call_model(self, effect: CallModel) -> None:
        state = self._shell.core.state
        work = Work(effect.work, "model", effect.request.id)
        self._start(work, effect, stream_response, state.setup, state.config.stream_idle_timeout)

    def _run_tool(self, effect: RunTool) -> None:
        spec = self._shell.core.state.setup.tools[effect.call.name]
        work = Work(effect.work, _TOOL, effect.call.name, effect.call.id)
        self._start(work, effect, run_tool, spec, self.run.id)

    def _prepare_call(self, effect: PrepareCall) -> None:
        hooks = self._shell.hooks
        spec, prepared = prepare(effect, self._shell.core.state.setup)
        if spec is None or hooks.before_tool_call is None:
            self.receive(prepared)
        else:
            work = Work(effect.work, "hook", "before_tool_call", effect.call.id)
            self._start(work, effect, ask_before, prepared, hooks)

    def _project(self, effect: Project) -> None:
        hooks = self._shell.hooks
        if hooks.transform_context is None and hooks.convert_to_llm is None:
            self.receive(Projected(effect.work, effect.messages))
        else:
            self._start(Work(effect.work, "hook", "transform_context"), effect, project, hooks)

    def _call_hook(self, effect: CallHook) -> None:
        argument = effect.result if effect.result is not None else self._shell.snapshot()
        work = Work(effect.work, "hook", effect.hook)
        self._start(work, effect, call_hook, getattr(self._shell.hooks, effect.hook), argument)

    def _abandon(self, work: Work) -> None:
        self._close_work(work)
        if work.task is not None and not work.task.done() and not self.loop.is_closed():
            work.stop()
            self._shell.abandon(work.task, self.run.id, work.kind, work.name, work.call_id)

    def _timer_due(self, timer: int) -> None:
        self._timers.pop(timer, None)
        self.receive(TimerDue(timer))
        self.pump()
        self.wake()

    # ---- ends ----

    def _end(self, effect: RunEnded) -> None:
        self._settled = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._shell.drive = None
        if self._shell.core.state.config.subscribers == "await":
            self._let_go_of_listeners()
        self.wake()
        self.run.end(effect.result)

    def _let_go_of_listeners(self) -> None:
        """Stop what listeners began after the deadline: nobody waits for it, and nothing of a run outlives it unknown."""
        for task in self._observed:
            if not task.done():
                task.cancel()
                self._shell.abandon(task, self.run.id, "listener", "")

    def _carried(self, task: "asyncio.Task[None]") -> None:
        """A task that was cancelled before its first step never ran, so it could not end the run itself."""
        self.halt()

    def halt(self, failure: Failure | None = None) -> None:
        """The task or loop that carried the run is going away: end it here and now, without waiting for anyone."""
        if self._settled:
            return
        self._patient = False
        self._halted = True
        pending, self._blocked = self._blocked, None
        if pending is not None:
            if self._listening is None:
                _drop(pending.answer)
            self._tell(pending.event, pending.listeners, pending.next)
        self.receive(Halted(failure))
        self.pump()

    @property
    def is_dead(self) -> bool:
        """Whether nobody carries the run any more."""
        return not self._settled and (self.loop.is_closed() or self.task.done())

    def refuse_stranger(self, asked: str) -> None:
        """Refuse a command that comes from another thread or another loop."""
        running = asyncio._get_running_loop()
        if threading.get_ident() != self._thread or (running is not None and running is not self.loop):
            raise WrongLoopError(
                f"{asked} was called from another thread or event loop than the one that carries the run {self.run.id}; "
                "use loop.call_soon_threadsafe() of that loop"
            )

    def _report_bug(self, error: BaseException) -> None:
        """Something of ours went wrong: end the run with it. A second time, there is nothing left but to say so."""
        bug = Failure(f"the kernel broke its own rules: {describe(error)}", code=KernelBug.code, cause=error)
        self._inbox.clear()
        self._taking = False
        if not self._broken:
            self._broken = True
            self.halt(bug)
        elif not self._settled:
            self.loop.call_exception_handler({"message": bug.message, "exception": error})
            self._outbox.clear()
            self._end(RunEnded(self._shell.broken_result(self.run.id, bug)))


def _drop(answer: Awaitable[Any]) -> None:
    """Let go of an answer that no loop is left to run."""
    if isinstance(answer, Coroutine):
        answer.close()


async def _awaited(answer: Awaitable[Any]) -> None:
    await answer


def _release(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)
