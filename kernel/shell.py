"""What stands between an agent's core and the world while no run is going and across runs.

It owns what outlives a run: the core, the listeners, the receipts of queued messages, and whatever was abandoned and is
still going. While a run goes, its `Drive` carries it out.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, final

from attrs import define

from kernel.compactors import ModelCompactor
from kernel.core import Core
from kernel.counting import Counting
from kernel.delivery import failure_of
from kernel.drive import Drive
from kernel.effects import Effect, ItemsLeft
from kernel.errors import Failure, ReentrancyError, WrongLoopError, describe
from kernel.events import Event, RunResult
from kernel.inputs import Cancel, CommandInput, Compact, Continue, Input, Prompt, SubscriberFailure, ToolSettled
from kernel.leftovers import NONE_LEFT, Futures, Leftovers
from kernel.listeners import Listeners
from kernel.logs import log_abandoned
from kernel.messages import InputMessage, Usage
from kernel.ports import Compactor, Estimator, Hooks
from kernel.run import Run
from kernel.snapshot import AbandonedWork, AgentState, snapshot
from kernel.work import Work
from statechart import Command


@final
@define(eq=False)
class Receipt:
    """What `steer` and `follow_up` return: whether the message still waits, has entered the transcript, or never will."""

    id: int
    message: InputMessage
    status: Literal["queued", "delivered", "dropped"] = "queued"


@final
class Shell:
    """The part of an agent that is there while it idles."""

    __slots__ = (
        "_compactor", "_late", "_leftovers", "_stored", "core", "counting", "drive", "hooks", "listeners", "receipts",
    )  # fmt: skip

    def __init__(
        self, core: Core, hooks: Hooks, compactor: Compactor | None = None, estimator: Estimator | None = None
    ) -> None:
        self.core = core
        self.counting = Counting(estimator)
        self.hooks = hooks
        self._compactor = compactor
        self.listeners = Listeners()
        self.receipts: dict[int, Receipt] = {}
        self.drive: Drive | None = None
        self._late: tuple[Input, ...] = ()
        self._leftovers: Leftovers | None = None
        self._stored: Callable[[], Awaitable[None] | None] | None = None

    # ---- commands ----

    def command(self, input: CommandInput, name: str) -> None:
        """Carry out a command that starts no run. Raises what the lifecycle refuses it with, and then nothing happened."""
        drive = self.check(name)
        try:
            effects = self.core.receive(input)
            if drive is None:
                self._settle_alone(effects)
            else:
                drive.take(effects)
                drive.wake()
        finally:
            self._catch_up()

    def forget_the_dead(self) -> None:
        """What was abandoned on a loop that is closed by now will never go on, and holds nothing any more; a thread does
        until it ends, which somebody has to tell the loop of now.
        """
        if self._leftovers is None:
            return
        dead, alive = self._leftovers.bury()
        for thread in alive:
            self._wait_for(thread)
        for work in dead:
            for number, held in list(self.core.state.abandoned.items()):
                if (held.run_id, held.call_id) == (work.run_id, work.call_id):
                    self.report(ToolSettled(number, held.call_id, (), ended="cancelled"))

    def _wait_for(self, thread: threading.Thread) -> None:
        loop = asyncio._get_running_loop()

        def wait() -> None:
            thread.join()
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # that loop is closed too: the next run looks again
                    loop.call_soon_threadsafe(self.forget_the_dead)

        threading.Thread(target=wait, name="kernel waits for a thread", daemon=True).start()

    def begin(self, input: Prompt | Continue | Compact, name: str) -> Run:
        """Carry out a command that starts a run."""
        self.check(name)
        loop = asyncio._get_running_loop()
        if loop is None:
            raise WrongLoopError(f"{name}() needs a running event loop; in a script or a notebook use run_sync()")
        self.forget_the_dead()
        try:
            effects = self.core.receive(input)
            run = Run(input.run_id, self.core.state.config.event_buffer, self.cancel, self.refuse_reentry)
            self.drive = Drive(self, run, loop)
            self.drive.take(effects)
            self.drive.wake()  # its task has looked at the outbox already where tasks start eagerly
        finally:
            self._catch_up()
        return run

    def restore(self, core: Core, stored: Callable[[], Awaitable[None] | None] | None = None) -> None:
        """Go on with *core*, which has been replayed from a journal; *stored* as `Household` has it."""
        self.core = core
        self._stored = stored

    def resume(self, effects: list[Effect], answers: Iterable[Input]) -> Run:
        """Go on with the run of the core that was restored: what must be asked again, and what is answered instead."""
        run_id = self.core.state.live.id
        run = Run(run_id, self.core.state.config.event_buffer, self.cancel, self.refuse_reentry)
        self.drive = drive = Drive(self, run, asyncio.get_running_loop())
        drive.take(effects)
        for answer in answers:
            drive.receive(answer)
        drive.wake()
        return run

    def check(self, name: str) -> Drive | None:
        """The run that is going, if one is, once it is clear that it is alive and that the caller may speak to it."""
        drive = self.drive
        if drive is None:
            return None
        if drive.is_dead:
            drive.halt()
            return self.drive  # it is still there where a listener asks who is just being told of this end
        drive.refuse_stranger(f"{name}()")
        return drive

    def guard(self, command: Command, name: str) -> None:
        """Raise where the phase refuses *command* whatever its arguments are: who may not ask is told so first."""
        self.check(name)
        refusal = self.core.refusal(command)
        if refusal is not None:
            raise refusal

    def refuse_reentry(self, what: str) -> None:
        """Raise where whoever is about to wait would wait for ever: a task that the run itself waits for, or one of another
        loop, which the run's loop can't wake. A run that nobody carries any more is ended first.
        """
        drive = self.drive
        if drive is not None and drive.is_dead:
            drive.halt()
        elif drive is not None:
            drive.refuse_stranger(f"waiting for {what}", "asyncio.run_coroutine_threadsafe() with that loop")
        if self.drive is not None and asyncio.current_task() in self.drive.inside:
            raise ReentrancyError(
                f"a tool, hook, model or awaited listener waited for {what}, which waits for it; do it in a task of your "
                "own, or after the run"
            )

    def cancel(self, reason: str | None, run: Run | None = None) -> bool:
        """Stop the run (only *run*, when it is given). True when this call did it."""
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"reason must be a string, not {reason!r}")
        drive = self.check("cancel")
        if run is not None and (drive is None or drive.run is not run):
            return False
        before = self.core.state.leaf
        self.command(Cancel(reason), "cancel")
        return self.core.state.leaf is not before

    # ---- what comes back ----

    def report(self, input: Input) -> None:
        """Hand in something that belongs to no work of the run that is going, which hears of it in its turn."""
        if self.drive is None:
            self._late = (*self._late, input)
        else:
            self.drive.receive(input)
            self.drive.wake()
        self._catch_up()

    def _catch_up(self) -> None:
        """Hand over what came late, unless the core is in a step."""
        if self.core.is_stepping:
            return
        while self._late:
            first, *rest = self._late
            self._late = tuple(rest)
            self._settle_alone(self.core.receive(first))
        if self.drive is not None:
            self.drive.catch_up()

    def _settle_alone(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ItemsLeft):
                self.settle_receipts(effect)

    def stored(self) -> Awaitable[None] | None:
        """What to wait for before anything begins that the world could notice."""
        return None if self._stored is None else self._stored()

    def run_over(self) -> None:
        """The run has settled: there is none any more."""
        self.drive = None

    def settle_receipts(self, effect: ItemsLeft) -> None:
        """Let the receipts of messages that left the queues say so."""
        for number in effect.ids:
            receipt = self.receipts.pop(number, None)
            if receipt is not None:
                receipt.status = effect.status

    def observe(self, answer: Awaitable[Any], event: Event) -> "asyncio.Future[Any]":
        """Let a listener's answer run on its own; record its failure when it comes."""
        task = asyncio.ensure_future(answer)
        if isinstance(task, asyncio.Task) and task is not answer:
            task.set_name(f"kernel listener of {event.type}")
        observed = self._aside().observed
        observed.add(task)

        def done(task: "asyncio.Future[Any]") -> None:
            observed.discard(task)
            error = failure_of(task)
            if error is not None:
                failure = Failure(describe(error), cause=error)
                self.report(SubscriberFailure(event.run_id, event.type, event.sequence, failure))

        task.add_done_callback(done)
        return task

    def abandon(
        self,
        task: "asyncio.Future[Any]",
        run_id: str,
        kind: Any,
        name: str,
        call_id: str | None = None,
    ) -> None:
        """Remember something that goes on though it was told to stop, until it ends."""
        self._aside().keep(task, AbandonedWork(run_id, kind, name, call_id))
        log_abandoned(run_id, kind, name, call_id)

    def linger(self, work: Work, run_id: str, settled: ToolSettled) -> None:
        """Remember a call whose task is over while its thread is not; report it again when that ends."""
        assert work.lingers is not None
        left = AbandonedWork(run_id, "tool", work.name, work.call_id)
        self._aside().keep(work.lingers, left, work.thread)
        log_abandoned(run_id, "tool", work.name, work.call_id)
        late = ToolSettled(settled.work, settled.call_id, (), ended="returned")
        work.lingers.add_done_callback(lambda _: self.report(late))

    def _aside(self) -> Leftovers:
        if self._leftovers is None:
            self._leftovers = Leftovers()
        return self._leftovers

    @property
    def abandoned(self) -> Futures:
        """What was told to stop and goes on, by what tells of its end."""
        return NONE_LEFT if self._leftovers is None else self._leftovers.abandoned

    @property
    def compactor(self) -> Compactor:
        """What makes summaries: the one that was given, else the model that the agent works with now."""
        return self._compactor or ModelCompactor(self.core.state.setup)

    # ---- snapshots ----

    @property
    def awaits_listeners(self) -> bool:
        """Whether the policy is to await what listeners begin."""
        return self.core.state.config.subscribers == "await"

    def snapshot(self) -> AgentState:
        """The agent's state as a value."""
        return snapshot(self.core.state)

    def broken_result(self, run_id: str, failure: Failure) -> RunResult:
        """The result of a run that even the kernel's own failure path could not end."""
        return RunResult(
            run_id=run_id,
            status="failed",
            final_text="",
            messages=(),
            partial=None,
            usage=Usage(),
            turns=0,
            failure=failure,
        )
