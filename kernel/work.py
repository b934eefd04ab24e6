"""Something that was started for the core: it runs in a task of its own, and exactly one end of it is reported.

Whatever a callable of the user's does, its end is a report: an exception is a failure with its text, a cancellation that
we asked for is a cancellation, one that came from outside stops the run and goes on outwards.
"""

import asyncio
import inspect
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol, final

from kernel.effects import CallHook, CallModel, CheckOutput, PrepareCall, Project, RunTool, Start, Summarize
from kernel.errors import Failure
from kernel.inputs import (
    CallPrepared,
    HookReturned,
    Input,
    OutputChecked,
    Projected,
    ResponseFailed,
    SummaryFailed,
    ToolSettled,
)
from kernel.messages import Text


class Reporter(Protocol):
    """Where a work reports to."""

    def report(self, work: "Work", input: Input) -> None:
        """Hand in the one end of *work*."""
        ...

    @property
    def feed(self) -> Callable[[Input], None]:
        """Takes something that is not an end: a part, an update."""
        ...

    def expire(self, work: "Work", verdict: Input) -> None:
        """The time of *work* is over: stop it, and take *verdict* as its end."""
        ...

    @property
    def free(self) -> Callable[[], Awaitable[None] | None]:
        """None when a part may be fed now, else what to wait for: listeners are busy with what was published."""
        ...


@final
class Work:
    """Something that was started for the core, until its end is reported.

    `stops` counts how often the kernel cancelled its task, so that a cancellation from outside can be told apart;
    `verdict` is what is reported for it when its own time is over.
    """

    __slots__ = (
        "call_id", "kind", "last", "lingers", "name", "number", "reported", "started", "stops", "task", "thread", "verdict",
        "watch",
    )  # fmt: skip

    def __init__(self, number: int, kind: str, name: str, call_id: str | None = None) -> None:
        self.number = number
        self.kind = kind
        self.name = name
        self.call_id = call_id
        self.task: asyncio.Task[None] | None = None
        self.stops = 0
        self.started = False
        self.reported = False
        self.verdict: Input | None = None
        self.watch: asyncio.TimerHandle | None = None
        self.last = 0.0
        self.lingers: asyncio.Future[None] | None = None
        self.thread: threading.Thread | None = None

    @property
    def stopping(self) -> bool:
        """Whether the kernel told it to stop."""
        return self.stops > 0

    def stop(self) -> None:
        """Tell it to stop. One that has not begun yet sees it when it would begin."""
        self.stops += 1
        if self.started and self.task is not None:
            self.task.cancel()

    def end_watch(self) -> None:
        """Its time does not run any more."""
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None


NOT_EXECUTED: Final = "not executed: the run was stopped before this could begin"


def end_with(work: Work, effect: Start, why: str) -> Input:
    """The end of a work that has none of its own: it was told to stop before its first step, or was brought down."""
    match effect:
        case CallModel():
            return ResponseFailed(work.number, Failure(why))
        case RunTool(call=call):
            ended: Literal["cancelled", "returned"] = "cancelled" if work.stopping else "returned"
            executed = not work.stopping
            return ToolSettled(work.number, call.id, (Text(why),), is_error=True, ended=ended, executed=executed)
        case PrepareCall():
            return CallPrepared(work.number, error=why)
        case Project():
            return Projected(work.number, failures=() if work.stopping else ((work.name, why),))
        case CallHook():
            return HookReturned(work.number, failure=why)
        case CheckOutput():
            return OutputChecked(work.number, why)
        case Summarize():
            return SummaryFailed(work.number, Failure(why))


def ended_from_outside(work: Work) -> bool:
    """Whether the work's task was cancelled by someone beside the kernel: the loop's teardown, for one."""
    return work.task is not None and work.task.cancelling() > work.stops


async def run_hook(hook: Callable[..., Any], *arguments: Any) -> Any:
    """What the hook answers, whether it is async or not."""
    answer = hook(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


def watch_idle(work: Work, idle: float | None, to: Reporter, silent: Callable[[Failure], Input]) -> None:
    """Have *work* expire, with what *silent* makes of the failure, when no part of a stream comes for *idle* seconds.

    One timer for all parts: it looks how long ago the last one was (`work.last`; infinite while the silence is not the
    model's), since arming a timer for each part would cost more than all else that is done with it.
    """
    if idle is None:
        return
    loop = asyncio.get_running_loop()
    work.last = loop.time()
    work.watch = loop.call_later(idle, _look, work, idle, to, silent, loop)


def _look(
    work: Work, idle: float, to: Reporter, silent: Callable[[Failure], Input], loop: asyncio.AbstractEventLoop
) -> None:
    if work.last == math.inf:
        work.watch = None  # set again when the listeners are free: looking meanwhile would be spinning, for a short *idle*
        return
    left = work.last + idle - loop.time()
    if left > 0:
        work.watch = loop.call_later(left, _look, work, idle, to, silent, loop)
        return
    to.expire(work, silent(Failure(f"the model said nothing for {idle} s (stream_idle_timeout)", retryable=True)))
