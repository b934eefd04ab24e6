"""Executing a tool call: is it right by itself, and what came of it."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Iterable
from typing import Any, Final, Literal, final

from kernel.effects import PrepareCall, RunTool
from kernel.errors import describe
from kernel.frozen import thaw
from kernel.inputs import CallPrepared, ToolSettled, ToolUpdate
from kernel.messages import Text, ToolCall
from kernel.setup import Setup, ToolSpec
from kernel.tools import to_result
from kernel.work import NOT_EXECUTED, Reporter, Work, end_with, ended_from_outside

CANCELLED: Final = "cancelled: the run was stopped while this call was running"


@final
class CallContext:
    """What a tool gets beside its arguments; see `kernel.ports.ToolContext`."""

    __slots__ = ("_loop", "_reporter", "_work", "call_id", "key", "run_id")

    def __init__(self, work: Work, run_id: str, call_id: str, reporter: Reporter) -> None:
        self._work = work
        self._reporter = reporter
        self._loop = asyncio.get_running_loop()
        self.call_id = call_id
        self.run_id = run_id
        self.key = f"{run_id}:{work.number}"

    @property
    def cancelled(self) -> bool:
        """Whether the call was told to stop, or is over."""
        return self._work.stopping or self._work.reported

    def update(self, text: str) -> None:
        """Report progress. What is said after the call has ended is discarded."""
        if not isinstance(text, str):
            raise TypeError(f"update() takes a string, not {text!r}")
        update = ToolUpdate(self._work.number, self.call_id, text)
        if asyncio._get_running_loop() is self._loop:
            self._reporter.feed(update)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(self._reporter.feed, update)

    def hold(self, ended: "asyncio.Future[None]", thread: threading.Thread | None = None) -> None:
        """Say that the call was let go while something of it, such as a thread, is still busy until *ended*."""
        self._work.lingers = ended
        self._work.thread = thread


def prepare(effect: PrepareCall, setup: Setup) -> tuple[ToolSpec | None, CallPrepared]:
    """Check a call by itself: is there such a tool, and are these its arguments?"""
    call = effect.call
    spec = setup.tools.get(call.name)
    if spec is None:
        known = ", ".join(setup.tools) or "none"
        return None, CallPrepared(effect.work, error=f"unknown tool {call.name!r}; the tools are: {known}")
    if call.malformed is not None:
        error = f"the arguments of {call.name} are not a JSON object: {call.malformed}"
        return None, CallPrepared(effect.work, error=error)
    try:
        spec.validate(thaw(call.arguments))
        resources = _keys(spec, call)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            # It ends the program, but from the loop: here it would leave the run without the call's answer.
            asyncio.get_running_loop().call_soon(_raise, error)
        return None, CallPrepared(effect.work, error=describe(error))
    return spec, CallPrepared(effect.work, resources)


def _raise(error: BaseException) -> None:
    raise error


def _keys(spec: ToolSpec, call: ToolCall) -> tuple[str, ...]:
    if spec.resources is None:
        return ()
    answer: Any = spec.resources(thaw(call.arguments))
    # Read once: what is an iterator has no keys the second time, and the call would run without any.
    keys = tuple(answer) if isinstance(answer, Iterable) and not isinstance(answer, str) else None
    if keys is None or not all(isinstance(key, str) for key in keys):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"resources() of {call.name} must return a sequence of strings, not {answer!r}")
    return keys


async def run_tool(work: Work, effect: RunTool, to: Reporter, spec: ToolSpec, run_id: str) -> None:
    """Execute a tool."""
    call = effect.call
    if effect.timeout is not None:
        text = f"timed out: {call.name} took longer than {effect.timeout} s and was stopped"
        verdict = ToolSettled(work.number, call.id, (Text(text),), is_error=True, ended="timeout")
        work.watch = asyncio.get_running_loop().call_later(effect.timeout, to.expire, work, verdict)
    try:
        arguments = spec.validate(thaw(call.arguments))
        if work.stopping:  # the check of the arguments may have cancelled the run
            to.report(work, end_with(work, effect, NOT_EXECUTED))
            return
        value = spec.execute(arguments, CallContext(work, run_id, call.id, to))
        if inspect.isawaitable(value):
            value = await value
        result = to_result(value)
        end = ToolSettled(work.number, call.id, result.content, result.is_error, result.terminate)
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        end = _failed(work, call, CANCELLED if work.stopping else describe(error))
    except Exception as error:
        end = _failed(work, call, describe(error))
    work.end_watch()
    if work.verdict is not None:
        assert isinstance(work.verdict, ToolSettled)
        end = work.verdict
    to.report(work, _lingering(work, end))


def _failed(work: Work, call: ToolCall, text: str) -> ToolSettled:
    ended: Literal["cancelled", "returned"] = "cancelled" if work.stopping else "returned"
    return ToolSettled(work.number, call.id, (Text(text),), is_error=True, ended=ended)


def _lingering(work: Work, end: ToolSettled) -> ToolSettled:
    if work.lingers is None or work.lingers.done():
        return end
    return ToolSettled(end.work, end.call_id, end.content, end.is_error, end.terminate, end.ended, abandoned=True)
