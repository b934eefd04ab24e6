"""Starting what the core asks for, telling it to stop, and giving it up.

Each work runs in a task of its own and reports exactly one end. What is told to stop and does not is abandoned: its
end is late, and the agent remembers it until it ends.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, final

from kernel.calling import prepare, run_tool
from kernel.delivery import Delivery
from kernel.effects import CallHook, CallModel, CheckOutput, PrepareCall, Project, RunTool, Start, Summarize
from kernel.errors import describe
from kernel.hooking import ask_before, call_hook, project, summarize
from kernel.household import Household
from kernel.inputs import Input, Projected, ToolSettled
from kernel.outputs import check_output
from kernel.responding import stream_response
from kernel.work import NOT_EXECUTED, Work, end_with

Body = Callable[..., Coroutine[Any, Any, None]]


class Intake(Protocol):
    """Where reports go: the drive of the run."""

    def receive(self, input: Input) -> None:
        """Hand *input* to the core."""
        ...

    def pump(self) -> None:
        """Deliver what it published."""
        ...

    def feed(self, input: Input) -> None:
        """Hand in something that is not an end, and deliver what it published."""
        ...

    def halt(self) -> None:
        """The run was cancelled from outside."""
        ...

    def report_bug(self, error: BaseException) -> None:
        """Something of ours went wrong."""
        ...


@final
class Workers:
    """The works of one run."""

    __slots__ = ("_household", "_inside", "_intake", "_loop", "_run_id", "_works", "feed", "free")

    def __init__(
        self,
        run_id: str,
        loop: asyncio.AbstractEventLoop,
        inside: set["asyncio.Task[Any]"],
        household: Household,
        intake: Intake,
        delivery: Delivery,
    ) -> None:
        self._run_id = run_id
        self._loop = loop
        self._inside = inside
        self._household = household
        self._intake = intake
        self._works: dict[int, Work] = {}
        self.feed = intake.feed
        """Hand in a part or an update; once the run is over it is late, and another one may be going."""
        self.free = delivery.free
        """What to wait for before more is fed."""

    # ---- starting ----

    def start(self, effect: Start) -> None:
        """Start what *effect* asks for; what needs no waiting is done and reported at once."""
        _STARTERS[type(effect)](self, effect)

    def _call_model(self, effect: CallModel) -> None:
        state = self._household.core.state
        work = Work(effect.work, "model", effect.request.id)
        self._begin(work, effect, stream_response, state.setup, state.config.stream_idle_timeout)

    def _run_tool(self, effect: RunTool) -> None:
        spec = self._household.core.state.setup.tools[effect.call.name]
        work = Work(effect.work, "tool", effect.call.name, effect.call.id)
        self._begin(work, effect, run_tool, spec, self._run_id)

    def _prepare_call(self, effect: PrepareCall) -> None:
        hooks = self._household.hooks
        spec, prepared = prepare(effect, self._household.core.state.setup)
        if spec is None or hooks.before_tool_call is None:
            self._intake.receive(prepared)
        else:
            work = Work(effect.work, "hook", "before_tool_call", effect.call.id)
            self._begin(work, effect, ask_before, prepared, hooks)

    def _project(self, effect: Project) -> None:
        hooks, failures = self._household.hooks, self._household.counting.take_failures()
        if hooks.transform_context is None and hooks.convert_to_llm is None:
            self._intake.receive(Projected(effect.work, failures=failures))
        else:
            self._begin(Work(effect.work, "hook", "transform_context"), effect, project, hooks, failures)

    def _call_hook(self, effect: CallHook) -> None:
        argument = effect.result if effect.result is not None else self._household.snapshot()
        work = Work(effect.work, "hook", effect.hook)
        self._begin(work, effect, call_hook, getattr(self._household.hooks, effect.hook), argument)

    def _check_output(self, effect: CheckOutput) -> None:
        self._intake.receive(check_output(effect, self._household.core.state.setup))

    def _summarize(self, effect: Summarize) -> None:
        self._begin(Work(effect.work, "compactor", "summarize"), effect, summarize, self._household.compactor,
                    self._household.hooks, self._household.core.state.config.stream_idle_timeout)  # fmt: skip

    def _begin(self, work: Work, effect: Start, body: Body, *arguments: Any) -> None:
        self._works[work.number] = work
        name = f"kernel {work.kind} {work.name}"
        work.task = self._loop.create_task(self._carry(work, effect, body, arguments), name=name)
        work.task.add_done_callback(functools.partial(self._ended, work))
        self._inside.add(work.task)

    async def _carry(self, work: Work, effect: Start, body: Body, arguments: tuple[Any, ...]) -> None:
        if work.task is None:  # the loop starts tasks eagerly: begin when the step that asked for this is over
            await asyncio.sleep(0)
        stored = self._household.stored()
        if stored is not None:
            await stored
        if work.stopping or not self._household.core.is_running:
            work.stops = max(work.stops, 1)
            self.report(work, end_with(work, effect, NOT_EXECUTED))
            return
        work.started = True
        try:
            await body(work, effect, self, *arguments)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            if asyncio.current_task(self._loop) is not work.task:
                raise  # nobody runs it any more: it is being destroyed with its loop, and has nothing to report
            # What is raised to end a program ends it, but the run has its end before.
            self.report(work, end_with(work, effect, describe(error)))
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise

    def _ended(self, work: Work, task: "asyncio.Task[None]") -> None:
        """A work that ends without a report was cancelled from outside, or has a bug of ours."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._intake.report_bug(error)
        elif not work.reported:
            self._intake.halt()
        self._free_keys(work)

    def _free_keys(self, work: Work) -> None:
        """What an abandoned call held is free once nothing of it is left, whether it says so itself or not."""
        if work.call_id is not None and work.lingers is None and work.number in self._household.core.state.abandoned:
            self._household.report(ToolSettled(work.number, work.call_id, (), ended="cancelled"))

    # ---- what works report (kernel.work.Reporter) ----

    def report(self, work: Work, input: Input) -> None:
        """Hand in the one end of *work*, or what it says after it was given up."""
        if work.reported:
            if isinstance(input, ToolSettled):
                self._household.report(input)
            return
        self._close(work)
        if isinstance(input, ToolSettled) and input.abandoned and work.lingers is not None:
            self._household.linger(work, self._run_id, input)
        self._intake.receive(input)
        self._intake.pump()

    def expire(self, work: Work, verdict: Input) -> None:
        """Stop *work*, whose time is over; take *verdict* for its end, at the latest after `cancel_grace`."""
        work.verdict = work.verdict or verdict
        work.stop()
        grace = self._household.core.state.config.cancel_grace
        work.watch = self._loop.call_later(grace, self._give_up, work)

    def _give_up(self, work: Work) -> None:
        verdict = work.verdict
        if work.reported or verdict is None:
            return
        self._abandon(work)
        if isinstance(verdict, ToolSettled):
            verdict = ToolSettled(
                verdict.work, verdict.call_id, verdict.content, is_error=True, ended=verdict.ended, abandoned=True
            )
        self._intake.receive(verdict)
        self._intake.pump()

    # ---- stopping ----

    def cancel(self, numbers: tuple[int, ...]) -> None:
        """Tell these works to stop."""
        for number in numbers:
            if number in self._works:
                self._works[number].stop()

    def abandon(self, numbers: tuple[int, ...]) -> None:
        """Wait for these works no longer."""
        for number in numbers:
            if number in self._works:
                self._abandon(self._works[number])

    def _abandon(self, work: Work) -> None:
        self._close(work)
        if self._loop.is_closed():
            self._free_keys(work)
        elif work.task is not None and not work.task.done():
            work.stop()
            self._household.abandon(work.task, self._run_id, work.kind, work.name, work.call_id)

    def _close(self, work: Work) -> None:
        work.reported = True
        work.end_watch()
        self._works.pop(work.number, None)
        if work.task is not None:
            self._inside.discard(work.task)


_STARTERS: Final[dict[type, Callable[[Workers, Any], None]]] = {
    CallModel: Workers._call_model,
    RunTool: Workers._run_tool,
    PrepareCall: Workers._prepare_call,
    Project: Workers._project,
    CallHook: Workers._call_hook,
    CheckOutput: Workers._check_output,
    Summarize: Workers._summarize,
}
