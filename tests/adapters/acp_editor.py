"""An editor and an agent, joined by a socket, in one process; and a connection on which anything can be written."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp import schema

from kernel import Agent, Hooks, KernelConfig, ToolContext, tool
from kernel.adapters.acp import EditorAgent
from kernel.adapters.acp_sessions import SessionStore
from kernel.adapters.acp_transport import LineTransport
from kernel.testing import ScriptedModel, call


class Editor:
    """What the official library calls on the editor's side."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.answers: list[str | None] = []
        self.seen = asyncio.Event()
        self.blocked: asyncio.Event | None = None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self.blocked is not None:
            await self.blocked.wait()
        self.updates.append(update)
        self.seen.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((tool_call, [option.option_id for option in options]))
        self.seen.set()
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            await asyncio.Event().wait()
        outcome = schema.AllowedOutcome(outcome="selected", option_id=str(answer))
        return schema.RequestPermissionResponse(outcome=outcome)

    async def until(self, seen: Callable[[], bool]) -> None:
        while not seen():
            self.seen.clear()
            await self.seen.wait()

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.of(kind))

    def calls(self) -> dict[str, list[Any]]:
        """The statuses of each call, in order."""
        seen: dict[str, list[Any]] = {}
        for update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                seen.setdefault(update.tool_call_id, []).append(update.status)
        return seen


class Connected:
    """An editor and an agent, joined by a socket."""

    def __init__(self, editor: Editor, connection: Any, agent_side: EditorAgent, gate: asyncio.Event, root: Path) -> None:
        self.editor = editor
        self.connection = connection
        self.agent_side = agent_side
        self.gate = gate
        self.root = root

    async def begin(self) -> str:
        await self.connection.initialize(protocol_version=1)
        return str((await self.connection.new_session(cwd=str(self.root), mcp_servers=[])).session_id)

    async def ask(self, session: str, *blocks: Any) -> Any:
        said = [acp.text_block(block) if isinstance(block, str) else block for block in blocks]
        return await self.connection.prompt(prompt=said, session_id=session)

    def agent(self, session: str) -> Agent:
        return self.agent_side._sessions[session].agent


async def streams(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(sock=end, limit=2**16)


@asynccontextmanager
async def connected(
    script: list[Any], folder: Path, asks: frozenset[str] = frozenset(), config: KernelConfig | None = None
) -> AsyncIterator[Connected]:
    gate = asyncio.Event()

    @tool
    async def work(path: str, context: ToolContext) -> str:
        """Work until the gate opens."""
        context.update("half of it")
        await gate.wait()
        return f"worked on {path}"

    @tool
    async def write_file(path: str) -> str:
        """Write."""
        return f"wrote {path}"

    def make(*, root: Path, messages: Any, hooks: Hooks, more_tools: Any) -> Agent:
        tools = [work, write_file, *more_tools]
        return Agent(
            ScriptedModel(script), tools=tools, messages=messages, hooks=hooks, config=config or KernelConfig()
        )

    mine, theirs = socket.socketpair()
    agent_side = EditorAgent(make, SessionStore(folder / "sessions"), asks)
    editor = Editor()
    server = asyncio.create_task(acp.run_agent(agent_side, LineTransport(*await streams(theirs))))
    reader, writer = await streams(mine)
    client = acp.connect_to_agent(editor, writer, reader)
    root = folder / "project"
    root.mkdir(exist_ok=True)
    try:
        yield Connected(editor, client, agent_side, gate, root)
    finally:
        await client.close()
        writer.close()
        await server
        await agent_side.aclose()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


BUSY = [["Well. ", call("c1", "work", path="a.py")], ["Done."], ["More."]]


@asynccontextmanager
async def raw(folder: Path, script: list[Any]) -> AsyncIterator[tuple[Any, Any, EditorAgent]]:
    """A connection on which anything can be written."""

    def make(*, root: Path, messages: Any, hooks: Hooks, more_tools: Any) -> Agent:
        return Agent(ScriptedModel(script), messages=messages)

    mine, theirs = socket.socketpair()
    agent_side = EditorAgent(make, SessionStore(folder / "sessions"))
    server = asyncio.create_task(acp.run_agent(agent_side, LineTransport(*await streams(theirs))))
    reader, writer = await streams(mine)
    try:
        yield reader, writer, agent_side
    finally:
        writer.close()
        await server
        await agent_side.aclose()
