"""Tools of a server that speaks MCP (the Model Context Protocol), as an agent's own.

    async with McpServer(["python", "server.py"]) as server:        # or "http://127.0.0.1:8000/mcp"
        agent = Agent(model, tools=[*server.tools, my_tool])

The official SDK connects, lists and calls. A server that dies, or breaks off in the middle of a call, is that call's error
result and of each later one, never a dead run. A cancelled call is cancelled at the server, and what it says of its
progress are the call's updates.

The SDK's connection must be entered and left in one task, and calls come from many, so a task of its own keeps it.

Weak point: what the server's tools are is asked once, at the beginning. When a server tells that they have changed, nobody
listens: `refresh` asks anew, and `agent.configure(tools=…)` takes what it answers.
"""

import asyncio
import functools
import hashlib
import importlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, final

from attrs import field, frozen

from kernel.errors import describe
from kernel.ports import ToolContext, ToolResult
from kernel.tools import spec_of

RESULT_CHARACTERS: Final = 100_000
"""Characters of one result: a large bite of a model's context but not all of it, whatever a server sends."""
PAGES: Final = 1_000
"""Pages of a server's list of tools: one that never ends is a fault of the server's."""
_LAST_WORD: Final = 0.1
"""Seconds to find out why a call failed: because of the call, or because the connection is no more."""
_NAME_CHARACTERS: Final = 64
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")


@final
@frozen(eq=False, kw_only=True)
class McpTool:
    """A tool of a server. `remote_name` is what the server calls it."""

    name: str
    remote_name: str
    description: str = field(repr=False)
    parameters: Mapping[str, Any] = field(repr=False)
    timeout: float | None = None
    replay: Literal["never", "safe"] = "never"
    validate: Callable[[dict[str, Any]], dict[str, Any]] | None = field(default=None, repr=False)
    _call: Callable[[str, dict[str, Any], ToolContext], Any] = field(repr=False)

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """What the server answers."""
        return await self._call(self.remote_name, arguments, context)  # type: ignore[no-any-return]


@final
class McpServer:
    """A connection to an MCP server, open while its `async with` is; `tools` are the server's then.

    *server* is the address of one that listens (`http://…`), a command that is run and spoken to over its standard input
    and output (`["uvx", "some-server"]`), or what else `mcp.Client` takes, a server in this process say. *env* and *cwd*
    are the command's. *prefix* stands before the names of its tools, to keep those of two servers apart. *timeout* is in
    seconds for each call (None: the agent's `tool_timeout`), *connect_timeout* for connecting.

    Raises ModuleNotFoundError with what to install without the extra `mcp`; entering it raises ConnectionError with the
    reason when the server does not answer.
    """

    def __init__(
        self,
        server: Any,
        *,
        prefix: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = 30.0,
    ) -> None:
        self._sdk = _sdk()
        self._name = _shown(server)
        self._server = self._target(server, env, cwd)
        if not isinstance(prefix, str) or _FOREIGN.search(prefix):
            raise ValueError(f"prefix must be letters, digits, _ and -, not {prefix!r}")
        self._prefix = prefix
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._client: Any = None
        self._life: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        self._why = "it was not connected, or is closed"
        self.tools: tuple[McpTool, ...] = ()

    def __repr__(self) -> str:
        return f"McpServer({self._name})"

    def _target(self, server: Any, env: Mapping[str, str] | None, cwd: Any) -> Any:
        command = server if isinstance(server, Sequence) and not isinstance(server, str) else None
        if command is None:
            if env is not None or cwd is not None:
                raise TypeError("env and cwd are a command's: server must be a sequence of words then")
            if isinstance(server, str) and not server.startswith(("http://", "https://")):
                raise ValueError(f"server must be an address (http://…) or a command as a list of words, not {server!r}")
            return server
        if not command or not all(isinstance(word, str) and word for word in command):
            raise ValueError(f"the command must be words that are not empty, not {list(command)!r}")
        return self._sdk.StdioServerParameters(
            command=command[0], args=list(command[1:]), env=None if env is None else dict(env), cwd=cwd
        )

    async def __aenter__(self) -> Self:
        if self._life is not None:
            raise RuntimeError(f"{self!r} can be entered once only; make another one")
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(ready), name=f"mcp server {self._name}")
        try:
            async with asyncio.timeout(self._connect_timeout):
                await asyncio.wait({self._life, ready}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self._why = f"it did not answer within {self._connect_timeout} s"
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if not ready.done():
            await self._end()
            raise ConnectionError(f"the MCP server {self._name} can't be used: {self._why}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, and end the server when it is a command of ours."""
        self._leaving.set()
        if self._life is not None:
            await asyncio.wait({self._life})

    async def refresh(self) -> tuple[McpTool, ...]:
        """Ask for the server's tools anew, and return them: `agent.configure(tools=…)` takes them."""
        if self._client is None:
            raise ConnectionError(f"the MCP server {self._name} can't be asked: {self._why}")
        self.tools = tuple(self._made(await self._listed()))
        return self.tools

    # ---- the connection, in its own task ----

    async def _live(self, ready: "asyncio.Future[None]") -> None:
        try:
            async with self._sdk.Client(self._server) as client:
                self._client = client
                self.tools = tuple(self._made(await self._listed()))
                ready.set_result(None)
                await self._leaving.wait()
            self._why = "it is closed"
        except BaseException as error:
            self._why = _reason(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._client = None

    async def _end(self) -> None:
        """Stop what does not connect. It is cancelled, since nobody knows what it waits for."""
        assert self._life is not None
        self._life.cancel()
        why = self._why
        await asyncio.wait({self._life})
        if why.startswith("it did not answer"):
            self._why = why

    async def _listed(self) -> list[Any]:
        tools: list[Any] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                return tools
        raise ConnectionError(f"its list of tools has more than {PAGES} pages")

    # ---- its tools ----

    def _made(self, listed: Iterable[Any]) -> Iterable[McpTool]:
        names: set[str] = set()
        for told in listed:
            name = _valid(self._prefix + told.name, names)
            names.add(name)
            hints = told.annotations
            repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
            make = functools.partial(
                McpTool,
                name=name,
                remote_name=told.name,
                description=told.description or told.title or "",
                parameters={**told.input_schema, "type": "object"},
                timeout=self._timeout,
                replay="safe" if repeatable else "never",
                call=self._call,
            )
            yield _checked(make)

    async def _call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        life = self._life
        if self._client is None or life is None:
            return self._gone()
        if life.get_loop() is not asyncio.get_running_loop():
            return ToolResult(f"the MCP server {self._name} was connected in another event loop", is_error=True)

        async def told(progress: float, total: float | None, message: str | None) -> None:
            context.update(message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}"))

        try:
            return _result(await self._client.call_tool(name, arguments, progress_callback=told))
        except Exception as error:
            # A connection that breaks ends its calls a little before its own task.
            await asyncio.wait({life}, timeout=_LAST_WORD)
            if life.done() or self._client is None:
                return self._gone()
            return ToolResult(f"the MCP server {self._name} failed: {_reason(error)}", is_error=True)

    def _gone(self) -> ToolResult:
        return ToolResult(
            f"the MCP server {self._name} is gone ({self._why}); what it was doing is unknown, and its tools can't be "
            "called any more",
            is_error=True,
        )


def _sdk() -> Any:
    try:
        return importlib.import_module("mcp")
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise ModuleNotFoundError('McpServer needs the MCP SDK: pip install "phasekernel[mcp]"', name="mcp") from error


def _shown(server: Any) -> str:
    """How a server is called in sentences, without what may be secret in its address."""
    if isinstance(server, str):
        return re.sub(r"(?<=://)[^/@]*@|\?.*", "", server)
    if isinstance(server, Sequence) and server:
        return os.path.basename(str(server[0])) + (f" {os.path.basename(str(server[-1]))}" if len(server) > 1 else "")
    return str(getattr(server, "name", type(server).__name__))


def _reason(error: BaseException) -> str:
    """The first of what went wrong: groups of errors only say how many they are."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe(error)


def _valid(name: str, taken: set[str]) -> str:
    """A name that providers take, and that no other tool of the server has."""
    made = _FOREIGN.sub("_", name)
    if len(made) <= _NAME_CHARACTERS and made not in taken:
        return made
    return f"{made[: _NAME_CHARACTERS - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _checked(make: Callable[..., McpTool]) -> McpTool:
    """The tool. One whose schema nobody here can check (it refers to others, say) is left to the server's own check."""
    tool = make()
    try:
        spec_of(tool)
    except (ValueError, ModuleNotFoundError):
        return make(validate=lambda arguments: arguments)
    return tool


def _result(result: Any) -> ToolResult:
    said = [_text(block) for block in result.content]
    if not said and result.structured_content is not None:
        said = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(said)
    if len(text) > RESULT_CHARACTERS:
        text = f"{text[:RESULT_CHARACTERS]}\n[{len(text) - RESULT_CHARACTERS} more characters are left out]"
    return ToolResult(text, is_error=bool(result.is_error))


def _text(block: Any) -> str:
    """What a model is told of a block: its text, or what it is."""
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            article = "an image" if block.type == "image" else "audio"
            return f"[{article}, {block.mime_type}, some {len(block.data) * 3 // 4} bytes]"
        case "resource":
            text = getattr(block.resource, "text", None)
            return str(text) if text is not None else f"[a resource: {block.resource.uri}]"
        case "resource_link":
            return f"[a resource: {block.name}, {block.uri}]"
        case _:
            return f"[{block.type}]"
