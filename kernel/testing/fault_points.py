"""Fault points: a model, tool, hook or listener that is right, wrapped so that it goes wrong where it is told to.

Theory. A wrapper asks once for each call what goes wrong with it, and the answer is a value: a `Fault`, or None for
nothing. In a test that knows what it wants, a script answers: the first call raises, the second one is as it should be. In
`kernel.testing.explore` the schedule answers. Without a fault a wrapper adds no step to what the loop does, so that a
simulation without faults is what the agent does without the wrapper.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any, final

import attrs

from kernel.effects import ModelRequest
from kernel.errors import ModelError
from kernel.messages import Finished, Part
from kernel.ports import Hooks, Model, Tool
from kernel.setup import ToolSpec
from kernel.testing.faults import Aftermath, Decide, Fault, FaultKind, InjectedError, scripted
from kernel.tools import spec_of

# ---- ways to go wrong ----


async def _hang(aftermath: Aftermath) -> None:
    with aftermath.hang():
        await asyncio.get_running_loop().create_future()


async def _ignore_cancel(seconds: float, aftermath: Aftermath) -> None:
    """Take so many seconds, whoever says what."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    with aftermath.work():
        while loop.time() < end:
            try:
                await asyncio.sleep(end - loop.time())
            except asyncio.CancelledError:
                continue


# ---- models ----


@final
class FaultyModel:
    """*model*, whose streams go wrong as *decide* says. *asked* is told of each request before."""

    def __init__(
        self,
        model: Model,
        decide: Decide,
        aftermath: Aftermath | None = None,
        asked: Callable[[ModelRequest], object] = lambda _: None,
    ) -> None:
        self.context_window = getattr(model, "context_window", None)
        self._stream = model.stream
        self._decide = decide
        self._asked = asked
        self._aftermath = aftermath or Aftermath()

    def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The response to *request*, or what becomes of it."""
        self._asked(request)
        fault = self._decide()
        stream = self._stream(request)
        return stream if fault is None else self._spoiled(stream, fault)

    async def _spoiled(self, stream: AsyncIterator[Part], fault: Fault) -> AsyncIterator[Part]:
        place, due = 0, True
        slow = fault.kind is FaultKind.STREAM_SLOW
        after = 0 if fault.kind is FaultKind.STREAM_IGNORES_CANCEL else fault.amount
        async with aclosing(stream) if hasattr(stream, "aclose") else nullcontext(stream):  # type: ignore[type-var]
            async for part in stream:
                if slow:
                    await asyncio.sleep(fault.amount)
                elif due and (place >= after or isinstance(part, Finished)):
                    due = False
                    if await self._break(fault):
                        return
                place += 1
                yield part

    async def _break(self, fault: Fault) -> bool:
        """Go wrong here; whether the stream ends with it."""
        match fault.kind:
            case FaultKind.STREAM_BREAKS:
                raise InjectedError("the stream broke")
            case FaultKind.STREAM_FAILS:
                raise ModelError("the model is busy", retryable=True)
            case FaultKind.STREAM_OVERFLOWS:
                raise ModelError("the context is too long", overflow=True)
            case FaultKind.STREAM_STALLS:
                await _hang(self._aftermath)
            case FaultKind.STREAM_IGNORES_CANCEL:
                await _ignore_cancel(fault.amount, self._aftermath)
        return fault.kind is FaultKind.STREAM_ENDS_EARLY


def faulty_model(model: Model, *script: Fault | str | None) -> FaultyModel:
    """*model*, whose first response goes wrong as the first entry of *script* says, and so on; None is a good response.

    >>> from kernel.testing import ScriptedModel, say
    >>> model = faulty_model(ScriptedModel([say("a", "b"), say("c")]), "stream breaks@1", None)
    """
    return FaultyModel(model, scripted(script))


# ---- tools ----


def spoil_tool(tool: Tool, decide: Decide, aftermath: Aftermath | None = None) -> ToolSpec:
    """*tool*, whose executions go wrong as *decide* says."""
    spec = spec_of(tool)
    aftermath = aftermath or Aftermath()

    def execute(arguments: dict[str, Any], context: Any) -> Any:
        fault = decide()
        if fault is None:
            return spec.execute(arguments, context)
        if fault.kind is FaultKind.TOOL_RAISES:
            raise InjectedError(f"{spec.name} broke")
        return _spoiled_body(spec, fault, arguments, context, aftermath)

    return attrs.evolve(spec, execute=execute)


async def _spoiled_body(spec: ToolSpec, fault: Fault, arguments: dict[str, Any], context: Any, aftermath: Aftermath) -> Any:
    if fault.kind is FaultKind.TOOL_SLOW:
        await asyncio.sleep(fault.amount)
    if fault.kind is FaultKind.TOOL_HANGS:
        await _hang(aftermath)
    value = spec.execute(arguments, context)
    if inspect.isawaitable(value):
        value = await value
    match fault.kind:
        case FaultKind.TOOL_RAISES_AFTERWARDS:
            raise InjectedError(f"{spec.name} broke after its work was done")
        case FaultKind.TOOL_IGNORES_CANCEL:
            await _ignore_cancel(fault.amount, aftermath)
        case FaultKind.TOOL_SPEAKS_LATE:
            _speak_late(fault.amount, context, aftermath)
    return value


def _speak_late(seconds: float, context: Any, aftermath: Aftermath) -> None:
    aftermath.busy += 1

    def speak() -> None:
        aftermath.busy -= 1
        context.update("too late")

    asyncio.get_running_loop().call_later(seconds, speak)


def faulty_tool(tool: Tool, *script: Fault | str | None) -> ToolSpec:
    """*tool*, whose first execution goes wrong as the first entry of *script* says, and so on; None is a good one.

    >>> from kernel import tool
    >>> @tool
    ... async def read(path: str) -> str:
    ...     '''Read a file.'''
    ...     return "text"
    >>> faulty_tool(read, "tool raises", None, "tool ignores cancel@60").name
    'read'
    """
    return spoil_tool(tool, scripted(script))


# ---- hooks ----


def spoil_hook(hook: Callable[..., Any], decide: Decide, aftermath: Aftermath | None = None) -> Callable[..., Any]:
    """*hook*, whose calls go wrong as *decide* says."""
    aftermath = aftermath or Aftermath()

    def call(*arguments: Any) -> Any:
        fault = decide()
        if fault is None:
            return hook(*arguments)
        if fault.kind is FaultKind.HOOK_RAISES:
            raise InjectedError("the hook broke")
        return late(fault, arguments)

    async def late(fault: Fault, arguments: tuple[Any, ...]) -> Any:
        if fault.kind is FaultKind.HOOK_SLOW:
            await asyncio.sleep(fault.amount)
        elif fault.kind is FaultKind.HOOK_HANGS:
            await _hang(aftermath)
        answer = hook(*arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        if fault.kind is FaultKind.HOOK_IGNORES_CANCEL:
            await _ignore_cancel(fault.amount, aftermath)
        return answer

    return call


def spoil_hooks(hooks: Hooks, decide: Callable[[str], Fault | None], aftermath: Aftermath | None = None) -> Hooks:
    """The same for each hook that is there; *decide* is told which one."""
    there = {name: hook for name in attrs.fields_dict(Hooks) if (hook := getattr(hooks, name)) is not None}
    spoiled = {name: spoil_hook(hook, partial(decide, name), aftermath) for name, hook in there.items()}
    return attrs.evolve(hooks, **spoiled)


def faulty_hook(hook: Callable[..., Any], *script: Fault | str | None) -> Callable[..., Any]:
    """*hook*, whose first call goes wrong as the first entry of *script* says, and so on; None is a good one."""
    return spoil_hook(hook, scripted(script))


# ---- listeners ----


@final
class FaultyListener:
    """A listener that does at each event what *decide* says. *agent* is the one that it calls when it re-enters."""

    def __init__(self, agent: Any, decide: Decide, aftermath: Aftermath | None = None) -> None:
        self._agent = agent
        self._decide = decide
        self._aftermath = aftermath or Aftermath()

    def __call__(self, _event: Any) -> Awaitable[None] | None:
        fault = self._decide()
        match fault.kind if fault is not None else None:
            case FaultKind.LISTENER_RAISES:
                raise InjectedError("the listener broke")
            case FaultKind.LISTENER_CANCELS:
                self._agent.cancel("a listener cancelled")
            case FaultKind.LISTENER_STEERS:
                self._agent.steer("steered by a listener")
            case FaultKind.LISTENER_FOLLOWS_UP:
                self._agent.follow_up("followed up by a listener")
            case FaultKind.LISTENER_PROMPTS:
                self._agent.prompt("prompted by a listener")
            case FaultKind():
                assert fault is not None
                return self._later(fault)
        return None

    async def _later(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.LISTENER_SLOW:
                with self._aftermath.work():
                    await asyncio.sleep(fault.amount)
            case FaultKind.LISTENER_HANGS:
                await _hang(self._aftermath)
            case FaultKind.LISTENER_RAISES_LATER:
                await asyncio.sleep(0)
                raise InjectedError("the listener broke, later")
            case FaultKind.LISTENER_WAITS:
                await self._agent.wait_for_idle()


def faulty_listener(agent: Any, *script: Fault | str | None) -> FaultyListener:
    """A listener for *agent* that does at its first event what the first entry of *script* says, and so on.

    Subscribe it beside your own: `agent.subscribe(faulty_listener(agent, None, "listener raises"))`.
    """
    return FaultyListener(agent, scripted(script))
