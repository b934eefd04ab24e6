"""The server in this process, with a scripted agent, and a client on the loopback interface."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn

from kernel import Agent, tool
from kernel.testing import ScriptedModel, call
from kernel.web.app import application
from kernel.web.threads import RecordedThread, Threads
from tests.adapters.viewer import Viewer
from tests.pictures.stories import as_trace, three_seconds

TRACE = as_trace(three_seconds())
JSON = {"content-type": "application/json"}


class Served:
    """A server with a scripted agent, and a client."""

    def __init__(
        self, threads: Threads, client: httpx2.AsyncClient, port: int, gate: asyncio.Event, server: uvicorn.Server
    ) -> None:
        self._server = server
        self.threads = threads
        self.client = client
        self.port = port
        self.gate = gate

    @property
    def server_connections(self) -> int:
        """How many connections the server has."""
        return len(self._server.server_state.connections)

    @property
    def agent(self) -> Agent:
        agent = self.threads.get("main").agent
        assert isinstance(agent, Agent)
        return agent

    async def post(self, path: str, said: Any = None, **more: Any) -> httpx2.Response:
        return await self.client.post(path, json={} if said is None else said, **more)

    async def refused(self, status: int, path: str, said: Any = None, **more: Any) -> dict[str, str]:
        answered = await self.client.request(more.pop("method", "POST"), path, **({"json": said} | more))
        assert answered.status_code == status, answered.text
        return answered.json()["error"]  # type: ignore[no-any-return]

    @asynccontextmanager
    async def watching(self, thread: str = "main", headers: dict[str, str] | None = None) -> AsyncIterator["Watching"]:
        async with self.client.stream("GET", f"/threads/{thread}/events", headers=headers or {}) as answered:
            assert answered.headers["content-type"].startswith("text/event-stream")
            yield Watching(answered)


class Watching:
    """One that reads the stream."""

    def __init__(self, answered: httpx2.Response) -> None:
        self._pieces = answered.aiter_text()
        self._rest = ""
        self.viewer = Viewer()

    async def until(self, seen: Callable[[Viewer], bool]) -> Viewer:
        while not seen(self.viewer):
            *whole, self._rest = (self._rest + await anext(self._pieces)).split("\n\n")
            for frame in whole:
                self.viewer.feed(frame)
        return self.viewer


@asynccontextmanager
async def serving(script: list[Any], **threads: RecordedThread) -> AsyncIterator[Served]:
    gate = asyncio.Event()

    @tool
    async def work(on: str) -> str:
        """Work until the gate opens."""
        await gate.wait()
        return f"worked on {on}"

    def make(history: Any) -> Agent:
        return Agent(ScriptedModel(script), tools=[work], messages=history)

    all_threads = Threads(make)
    for name, thread in threads.items():
        all_threads.add(name, thread)
    server = uvicorn.Server(
        uvicorn.Config(application(all_threads), log_level="error", lifespan="on", port=0, timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
            yield Served(all_threads, client, port, gate, server)
    finally:
        server.should_exit = True
        await task


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def finished(viewer: Viewer) -> bool:
    return bool(viewer.ends)


BUSY = [[call("c1", "work", on="x")], ["Done."], ["Steered."], ["Later."]]
