"""The world of a scenario: a model, tools, hooks, a compactor and listeners that do what their scripts say."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from kernel.errors import ModelError
from kernel.events import Event
from kernel.messages import Finished, Message, ReasoningDelta, StopReason, TextDelta, ToolCall, ToolMessage, Usage
from kernel.ports import Block, Hooks, Listener, ToolContext, ToolResult
from kernel.scenario.format import (
    Action,
    BlockScript,
    HookScript,
    HookScripts,
    Part,
    Step,
    Subscriber,
    Summary,
    ToolScript,
)
from kernel.testing import CUT_OFF, Gates, ScriptedModel


def scripted_model(responses: Sequence[Sequence[Part]], gates: Gates) -> ScriptedModel:
    """The model of a scenario."""
    return ScriptedModel([line for part in response for line in _lines(part, gates)] for response in responses)


def _lines(part: Part, gates: Gates) -> list[Any]:
    """What a part is for a `ScriptedModel`. Waiting and opening say nothing, but open the message as any part does."""
    match part.said:
        case "text", text:
            return [TextDelta(text)]
        case "reasoning", text:
            return [ReasoningDelta(text)]
        case "call", call:
            if isinstance(call.arguments, str):
                return [ToolCall(call.id, call.name, malformed=call.arguments)]
            return [ToolCall(call.id, call.name, call.arguments)]
        case "wait", gate:
            return [TextDelta(""), gates.at(gate)]
        case "wait_ignoring_cancel", gate:
            return [TextDelta(""), lambda: gates.wait_ignoring_cancel(gate)]
        case "open", gate:
            return [TextDelta(""), gates.opening(gate), lambda: asyncio.sleep(0)]  # who waited there goes on first
        case "usage", usage:
            return [Usage(usage.input, usage.output)]
        case "fail", fail:
            return [
                ModelError(fail.message, retryable=fail.retryable, retry_after=fail.retry_after, overflow=fail.overflow)
            ]
        case "end", stop:
            return [Finished(StopReason(stop))]
        case _:
            return [CUT_OFF] if part.eof else []


@final
class ScriptedTool:
    """A tool of a scenario."""

    def __init__(self, script: ToolScript, gates: Gates) -> None:
        self.name = script.name
        self.description = f"the tool {script.name} of a scenario"
        self.parameters: Mapping[str, Any] = script.parameters
        self.mode = script.mode
        self.timeout = script.timeout
        self._resources = tuple(script.resources)
        self._script = script.script
        self._gates = gates
        self._late: set[asyncio.Task[None]] = set()

    def resources(self, _arguments: dict[str, Any]) -> Sequence[str]:
        """What every call of it touches."""
        return self._resources

    async def execute(self, _arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Take the steps of the call's script, to the first that ends it."""
        for step in self._steps(context.call_id):
            result = await self._take(step, context)
            if result is not None:
                return result
        return ToolResult("")

    def _steps(self, call_id: str) -> Sequence[Step]:
        if isinstance(self._script, list):
            return self._script
        return self._script.get(call_id) or self._script.get("*") or ()

    async def _take(self, step: Step, context: ToolContext) -> ToolResult | None:
        match step.said:
            case "wait", gate:
                await self._gates.wait(gate)
            case "wait_ignoring_cancel", gate:
                await self._gates.wait_ignoring_cancel(gate)
            case "open", gate:
                self._gates.open(gate)
            case "update", text:
                context.update(text)
            case "late", late:
                self._late.add(asyncio.create_task(self._say_late(late.after, late.update, context), name="late update"))
            case "return", text:
                return ToolResult(text, terminate=step.terminate)
            case "raise", text:
                raise RuntimeError(text)
        return None

    async def _say_late(self, gate: str, text: str, context: ToolContext) -> None:
        await self._gates.wait(gate)
        context.update(text)


def scripted_hooks(scripts: HookScripts, gates: Gates) -> Hooks:
    """The hooks of a scenario."""
    before, stop = scripts.before_tool_call, scripts.should_stop_after_turn
    transform, after = scripts.transform_context, scripts.after_tool_result
    return Hooks(
        before_tool_call=None if before is None else _before(before, gates),
        should_stop_after_turn=None if stop is None else _stop(stop, gates),
        transform_context=None if transform is None else _transform(transform, gates),
        after_tool_result=None if after is None else _after(after, gates),
    )


async def _perform(script: HookScript, gates: Gates) -> None:
    if script.wait is not None:
        await gates.wait(script.wait)
    if script.raise_ is not None:
        raise RuntimeError(script.raise_)


def _before(scripts: Mapping[str, BlockScript], gates: Gates) -> Callable[..., Any]:
    async def before_tool_call(call: ToolCall, arguments: dict[str, Any]) -> Block | None:
        script = scripts.get(call.name)
        if script is None:
            return None
        await _perform(script, gates)
        return None if script.block is None else Block(script.block)

    return before_tool_call


def _stop(answer: object, gates: Gates) -> Callable[..., Any]:
    async def should_stop_after_turn(state: Any) -> bool:
        if isinstance(answer, HookScript):
            await _perform(answer, gates)
        return answer is True

    return should_stop_after_turn


def _transform(script: HookScript, gates: Gates) -> Callable[..., Any]:
    async def transform_context(messages: Sequence[Message]) -> Sequence[Message]:
        await _perform(script, gates)
        return messages

    return transform_context


def _after(script: HookScript, gates: Gates) -> Callable[..., Any]:
    async def after_tool_result(result: ToolMessage) -> None:
        await _perform(script, gates)

    return after_tool_result


@final
class ScriptedCompactor:
    """The compactor of a scenario. *act* does the actions that are due when the summary is asked for."""

    def __init__(self, summary: Summary, gates: Gates, act: Callable[[Sequence[Action]], None]) -> None:
        self._summary = summary
        self._gates = gates
        self._act = act

    async def summarize(self, _messages: Sequence[Message]) -> str:
        """The text of the script, whatever the messages say."""
        self._act(self._summary.do)
        if self._summary.wait is not None:
            await self._gates.wait(self._summary.wait)
        return self._summary.text


def scripted_listener(script: Subscriber, gates: Gates) -> Listener:
    """A further listener of a scenario."""
    heard = 0

    def listener(event: Event) -> Any:
        nonlocal heard
        heard += event.type == script.raise_on
        if event.type == script.raise_on and heard == script.nth:
            raise RuntimeError(script.message)
        return None if script.slow is None else gates.wait(script.slow)

    return listener
