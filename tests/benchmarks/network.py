"""How long a provider goes on for nothing: from a cancel until its side of the connection is closed.

Wall time between two clocks of one process, over the loopback interface, while an answer streams. Beside it the SDK alone,
whose task is cancelled: what the kernel adds is what is between the two.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from kernel import Agent, KernelConfig
from tests.benchmarks.measure import Row, Spread, beside
from tests.providers.server import STALL, Answer, Server
from tests.providers.wires import WIRES, Wire

Cancelled = Callable[[str], Coroutine[Any, Any, float]]
"""Ask the server at this address, cancel when the first text has come; when that was, by `time.perf_counter`."""


def cancel_rows(times: int) -> list[Row]:
    """A row for each format."""
    sides = [(wire, _measured(wire, times, _alone), _measured(wire, times, _kernel)) for wire in WIRES]
    return [beside(f"cancel until the server sees it, {wire.name}", "ms", bare, ours) for wire, bare, ours in sides]


def _measured(wire: Wire, times: int, side: Callable[[Wire], Cancelled]) -> Spread:
    cancelled = side(wire)
    answer = Answer([*wire.pieces(("text", "Hel"), end=None), STALL])
    return Spread.of([_once(answer, cancelled) for _ in range(times)])


def _once(answer: Answer, cancelled: Cancelled) -> float:
    with Server(answer) as server:

        async def main() -> float:
            at = await cancelled(server.url)
            await asyncio.to_thread(server.left.wait)
            return (server.left_at - at) * 1000

        return asyncio.run(main())


def _kernel(wire: Wire) -> Cancelled:
    async def cancelled(url: str) -> float:
        agent = Agent(wire.make(url), config=KernelConfig(stream_idle_timeout=None))
        run = agent.prompt("Hi")
        at = 0.0
        async for event in run:
            if event.type == "message.updated":
                at = time.perf_counter()
                agent.cancel()
        return at

    return cancelled


def _alone(wire: Wire) -> Cancelled:
    async def cancelled(url: str) -> float:
        model = wire.make(url)
        client = await model._connection.client()
        create = client.chat.completions.create if wire.name == "openai" else client.messages.create
        more = {} if wire.name == "openai" else {"max_tokens": 100}
        heard = asyncio.Event()

        async def read() -> None:
            messages = [{"role": "user", "content": "Hi"}]
            async with await create(model="m", messages=messages, stream=True, **more) as stream:
                async for _ in stream:
                    heard.set()

        task = asyncio.create_task(read())
        await heard.wait()
        at = time.perf_counter()
        task.cancel()
        await asyncio.wait({task})
        return at

    return cancelled
