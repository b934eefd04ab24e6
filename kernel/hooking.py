"""Calling the hooks and the compactor: what they answer, and what stands when they fail (G15)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from kernel.compactors import ModelCompactor
from kernel.effects import CallHook, PrepareCall, Project, Summarize
from kernel.errors import describe, failure_of
from kernel.frozen import thaw
from kernel.inputs import CallPrepared, HookReturned, Projected, Summarized, SummaryFailed
from kernel.messages import MESSAGE_TYPES, CustomMessage, Message
from kernel.ports import Block, Compactor, Hooks
from kernel.work import NOT_EXECUTED, Reporter, Work, end_with, ended_from_outside, run_hook, watch_idle


async def ask_before(work: Work, effect: PrepareCall, to: Reporter, prepared: CallPrepared, hooks: Hooks) -> None:
    """Ask `before_tool_call` about a call that is right by itself."""
    assert hooks.before_tool_call is not None
    try:
        answer = await run_hook(hooks.before_tool_call, effect.call, thaw(effect.call.arguments))
        to.report(work, _judged(prepared, answer))
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        to.report(work, CallPrepared(work.number, error=describe(error)))
    except Exception as error:
        to.report(work, CallPrepared(work.number, error=describe(error)))


def _judged(prepared: CallPrepared, answer: Any) -> CallPrepared:
    if answer is None:
        return prepared
    if isinstance(answer, Block):
        return CallPrepared(prepared.work, error=_reason(answer.reason))
    if isinstance(answer, str):
        return CallPrepared(prepared.work, error=_reason(answer))
    raise TypeError(f"before_tool_call must return None, a Block or a reason, not {answer!r}")


def _reason(said: str) -> str:
    return said if said.strip() else "blocked"


async def project(
    work: Work, effect: Project, to: Reporter, hooks: Hooks, known_failures: tuple[tuple[str, str], ...]
) -> None:
    """Pass the context through the hooks. Each that fails falls back to its input (chapter 06)."""
    failures = list(known_failures)
    messages: Sequence[Message] = effect.messages
    try:
        if hooks.transform_context is not None:
            messages = await _transformed("transform_context", hooks.transform_context, messages, failures, work)
        # The first hook may have cancelled the run itself, or have swallowed that it was.
        if hooks.convert_to_llm is not None and not work.stopping:
            messages = await _transformed("convert_to_llm", hooks.convert_to_llm, messages, failures, work)
    except asyncio.CancelledError:
        if ended_from_outside(work):
            raise
    changed = None if messages is effect.messages else without_custom(messages)
    to.report(work, Projected(work.number, changed, tuple(failures)))


async def _transformed(
    name: str, hook: Callable[..., Any], messages: Sequence[Message], failures: list[tuple[str, str]], work: Work
) -> Sequence[Message]:
    work.kind, work.name = "hook", name
    try:
        answer = tuple(await run_hook(hook, messages))
        wrong = [message for message in answer if not isinstance(message, MESSAGE_TYPES)]
        if wrong:
            raise TypeError(f"{name} must return messages, not {wrong[0]!r}")
        return answer
    except BaseException as error:
        ended = isinstance(error, asyncio.CancelledError) and (work.stopping or ended_from_outside(work))
        if ended or isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        failures.append((name, describe(error)))
    return messages


def without_custom(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages that an adapter may see. A custom one that no hook rewrote is left out."""
    return tuple(message for message in messages if type(message) is not CustomMessage)


async def call_hook(work: Work, effect: CallHook, to: Reporter, hook: Callable[..., Any], argument: Any) -> None:
    """Call `after_tool_result` or `should_stop_after_turn`."""
    try:
        answer = await run_hook(hook, argument)
        stops = effect.hook == "should_stop_after_turn" and bool(answer)  # what the other one answers does not matter
        to.report(work, HookReturned(work.number, stops))
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        to.report(work, HookReturned(work.number, failure=describe(error)))
    except Exception as error:
        to.report(work, HookReturned(work.number, failure=describe(error)))


async def summarize(
    work: Work, effect: Summarize, to: Reporter, compactor: Compactor, hooks: Hooks, idle: float | None
) -> None:
    """Ask the compactor for a summary of what a model would have been shown. A model that says nothing for *idle* seconds
    has failed, as with any other response; how long another compactor may take is its own business.
    """
    failures: list[tuple[str, str]] = []
    messages: Sequence[Message] = effect.messages
    try:
        if hooks.convert_to_llm is not None:
            messages = await _transformed("convert_to_llm", hooks.convert_to_llm, messages, failures, work)
            if work.stopping:  # the hook may have cancelled the run itself, or have swallowed that it was
                to.report(work, end_with(work, effect, NOT_EXECUTED))
                return
            work.kind, work.name = "compactor", "summarize"
        text = await _ask(work, to, compactor, without_custom(messages), idle, failures)
        if not isinstance(text, str):
            raise TypeError(f"a compactor must return a string, not {text!r}")
        if not text.strip():
            raise ValueError("the compactor returned an empty summary")
        to.report(work, work.verdict or Summarized(work.number, text, tuple(failures)))
    except asyncio.CancelledError as error:
        if ended_from_outside(work):
            raise
        to.report(work, work.verdict or SummaryFailed(work.number, failure_of(error), tuple(failures)))
    except Exception as error:
        to.report(work, work.verdict or SummaryFailed(work.number, failure_of(error), tuple(failures)))


async def _ask(
    work: Work,
    to: Reporter,
    compactor: Compactor,
    messages: Sequence[Message],
    idle: float | None,
    failures: list[tuple[str, str]],
) -> Any:
    if not isinstance(compactor, ModelCompactor):
        return await compactor.summarize(messages)
    loop = asyncio.get_running_loop()

    def heard() -> None:
        work.last = loop.time()

    watch_idle(work, idle, to, lambda failure: SummaryFailed(work.number, failure, tuple(failures)))
    return await compactor.summarize(messages, heard)
