"""The floor: an agent loop as one writes it by hand, without a kernel.

Messages are dictionaries, events are tuples. It checks nothing, and can neither be steered nor retried nor observed; a
cancel is the cancellation of the task that reads it. Tools of one response run in a task each, as `asyncio.gather` does
it, one call as well as many: a call must have a task of its own if it is to be abandoned.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, final

from tests.benchmarks.measure import cancel_reader, expect
from tests.benchmarks.plans import TOOL, Plan, Turn
from tests.benchmarks.sides import Counted, Seen, echo

Event = tuple[str, Any]


@final
class BareAgent:
    """What the loop works on."""

    __slots__ = ("messages", "tools", "turns")

    def __init__(self, plan: Plan) -> None:
        self.turns = iter(plan)
        self.tools = {TOOL: echo}
        self.messages: list[dict[str, Any]] = []


async def _response(turn: Turn) -> AsyncIterator[Event]:
    yielding = turn.pace == "yielding"
    for text in turn.texts:
        if yielding:
            await asyncio.sleep(0)
        yield "text", text
    for call in turn.calls:
        yield "call", call
    if turn.pace == "stuck":
        await asyncio.Event().wait()


async def _loop(agent: BareAgent, prompt: str, in_place: bool) -> AsyncIterator[Event]:
    agent.messages.append({"role": "user", "content": prompt})
    while True:
        texts, calls = [], []
        async for event in _response(next(agent.turns)):
            if event[0] == "text":
                texts.append(event[1])
            else:
                calls.append(event[1])
            yield event
        agent.messages.append({"role": "assistant", "content": "".join(texts), "calls": calls})
        if not calls:
            yield "end", None
            return
        running = [agent.tools[TOOL](**json.loads(call.arguments)) for call in calls]
        results = [await body for body in running] if in_place else await asyncio.gather(*running)
        for call, result in zip(calls, results, strict=True):
            agent.messages.append({"role": "tool", "id": call.id, "content": result})
            yield "result", result


@final
class Floor:
    """The bare loop as a side. *listener* is awaited with each event; *in_place* awaits tools without a task."""

    def __init__(self, listener: Callable[[Event], Awaitable[None]] | None = None, *, in_place: bool = False) -> None:
        self._listener = listener
        self._in_place = in_place

    def agent(self, plan: Plan) -> BareAgent:
        """An agent whose model plays *plan*."""
        return BareAgent(plan)

    async def run(self, agent: BareAgent, seen: Seen) -> None:
        """Prompt it, and consume every event."""
        listener = self._listener
        async for event in _loop(agent, "go", self._in_place):
            seen.events += 1
            if event[0] == "text":
                seen.text(event[1])
            if listener is not None:
                await listener(event)

    async def cancel(self, agent: BareAgent) -> float:
        """Cancel the task that reads the loop."""
        return await cancel_reader(self, agent)

    def counted(self, agent: BareAgent) -> Counted:
        """What its messages are."""
        messages = agent.messages
        expect([m for m in messages if m["role"] == "tool" and m["content"] != "ok"], [], "results that are not ok")
        return Counted(
            sum(message["role"] == "user" for message in messages),
            sum(len(message.get("calls", ())) for message in messages),
            sum(message["role"] == "tool" for message in messages),
            messages[-1]["content"],
        )
