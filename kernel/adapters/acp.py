"""An agent for editors that speak ACP 1, the Agent Client Protocol (https://agentclientprotocol.com). Extra: `acp`.

Each session is one kernel agent, and each prompt one run; what the editor asks is asked of the agent, and what the agent
refuses is answered with its own words. A second prompt while a run goes on is refused, and loses nothing.

An editor that does not read is waited for, since the protocol has no other way, but the run is not held up by it: events
wait in the run's own bounded buffer, in which pieces of one message are put together. One that falls behind even further
is not told the rest as it happened; the prompt is answered all the same, and the session can be loaded.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn, final

from kernel.adapters.extras import missing

try:
    import acp
    from acp import schema
except ModuleNotFoundError as error:
    raise missing("acp", error) from error

from kernel.adapters.acp_sessions import SessionStore
from kernel.adapters.acp_updates import Updates, prompt_of, stop_reason
from kernel.adapters.letters import whole
from kernel.agent import Agent
from kernel.errors import EventsLostError, KernelError, describe
from kernel.events import RunResult
from kernel.messages import Message, ToolCall
from kernel.ports import Block, Hooks, Tool
from kernel.run import Run

SESSIONS: Final = 32
"""Sessions at a time: more than threads that an editor has open."""
REFUSED: Final = -32600
FAILED: Final = -32603
_LOG: Final = logging.getLogger("kernel.acp")

MakeAgent = Callable[..., Agent]
"""`make(root=…, messages=…, hooks=…, more_tools=…)`: an agent on a directory."""


@final
class _Session:
    """One conversation with an editor."""

    def __init__(self, id: str, root: Path, servers: AsyncExitStack) -> None:
        self.id = id
        self.root = root
        self.servers = servers
        self.updates = Updates(root)
        self.allowed: set[str] = set()
        self.agent: Agent  # made with hooks that need the session


@final
class EditorAgent:
    """What `acp` calls for each request of the editor. *asks_before* are the tools that need the user's permission."""

    def __init__(self, make_agent: MakeAgent, store: SessionStore, asks_before: frozenset[str] = frozenset()) -> None:
        self._make_agent = make_agent
        self._store = store
        self._asks_before = asks_before
        self._sessions: dict[str, _Session] = {}
        self._client: Any = None

    def on_connect(self, client: Any) -> None:
        """The other side, to tell and to ask."""
        self._client = client

    async def initialize(self, **_: Any) -> schema.InitializeResponse:
        """What this agent can do. The version is 1, whatever the editor asked for; it decides whether that will do."""
        return schema.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True, audio=False),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
            ),
            agent_info=schema.Implementation(name="phasekernel", version=version("phasekernel")),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> NoReturn:
        """There is nothing to authenticate with: keys are in the environment."""
        raise _invalid(f"there is no method {method_id!r} to authenticate with: keys are taken from the environment")

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> schema.NewSessionResponse:
        """Begin a conversation in the directory *cwd*."""
        session = await self._made(self._store.new_id(), cwd, mcp_servers, ())
        await self._take_in(session)
        return schema.NewSessionResponse(session_id=session.id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> schema.LoadSessionResponse:
        """Go on with a stored conversation: tell all of it, then take prompts. One that is refused changes nothing."""
        self._refuse_going(session_id)
        stored = _asked(lambda: self._store.load(session_id))
        session = await self._made(session_id, cwd, mcp_servers, stored.messages)
        await self._take_in(session)
        await self._tell(session, session.updates.of_transcript(stored.messages))
        return schema.LoadSessionResponse()

    async def prompt(self, prompt: Sequence[Any], session_id: str, **_: Any) -> schema.PromptResponse:
        """One run: its events as updates, and in the end how it ended."""
        session = self._session(session_id)
        run = _asked(lambda: session.agent.prompt(prompt_of(prompt)))
        try:
            await self._follow(session, run)
            result = await run
        finally:
            self._save(session)
        reason = stop_reason(result.status, result.messages[-1] if result.messages else None)
        if reason is None:
            raise _failure(result)
        used = {"inputTokens": result.usage.input, "outputTokens": result.usage.output, "turns": result.turns}
        return schema.PromptResponse(stop_reason=reason, field_meta={"phasekernel": used})

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the run; its prompt is then answered with `cancelled`."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.agent.cancel("cancelled in the editor")

    async def aclose(self) -> None:
        """The editor is gone: cancel all runs, wait until they have settled, and let go of everything."""
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*map(self._close, sessions))

    # ---- sessions ----

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise _invalid(f"there is no open session {session_id!r}: begin one with session/new, or session/load")
        return session

    async def _made(self, id: str, cwd: str, servers: Sequence[Any] | None, messages: Sequence[Message]) -> _Session:
        """A session that nobody knows yet. Raises when there can't be one."""
        root = Path(cwd)
        if not root.is_absolute() or not await asyncio.to_thread(root.is_dir):
            raise _invalid(f"cwd must be the absolute path of a directory, not {cwd!r}")
        session = _Session(id, root, AsyncExitStack())
        tools = [tool for server in servers or () for tool in await self._tools_of(session, server)]
        hooks = Hooks(before_tool_call=lambda call, _: self._permit(session, call)) if self._asks_before else Hooks()
        try:
            session.agent = _asked(lambda: self._make_agent(root=root, messages=messages, hooks=hooks, more_tools=tools))
        except BaseException:
            await session.servers.aclose()
            raise
        return session

    async def _take_in(self, session: _Session) -> None:
        """Have *session* in the place of one of its id, or of an idle one when there are too many."""
        old = self._sessions.get(session.id)
        try:
            self._refuse_going(session.id)  # once more: MCP servers took their time to answer
            if old is None and len(self._sessions) >= SESSIONS:
                old = next((each for each in self._sessions.values() if not each.agent.is_running), None)
                if old is None:
                    raise _refusal(f"{SESSIONS} sessions are running; cancel one, or wait until one ends")
        except acp.RequestError:
            await self._close(session)
            raise
        if old is not None:
            del self._sessions[old.id]
        self._sessions[session.id] = session
        if old is not None:
            await self._close(old)

    def _refuse_going(self, session_id: str) -> None:
        old = self._sessions.get(session_id)
        if old is not None and old.agent.is_running:
            raise _refusal(f"session {session_id} is open, and a run is going in it; cancel it first")

    async def _tools_of(self, session: _Session, server: Any) -> Sequence[Tool]:
        """The tools of an MCP server of the editor's. One that does not answer is left out, and that is logged."""
        try:
            from kernel.mcp import McpServer

            prefix = f"{server.name}_"
            if isinstance(server, schema.McpServerStdio):
                env = {each.name: each.value for each in server.env or ()}
                made = McpServer([server.command, *server.args], env=env, cwd=session.root, prefix=prefix)
            elif isinstance(server, schema.HttpMcpServer):
                made = McpServer(server.url, prefix=prefix)
            else:
                raise TypeError("servers of this kind are not supported")
            return (await session.servers.enter_async_context(made)).tools
        except Exception as error:
            _LOG.warning("the MCP server %s is left out: %s", getattr(server, "name", "?"), describe(error))
            return ()

    async def _close(self, session: _Session) -> None:
        await session.agent.aclose()
        await session.servers.aclose()

    def _save(self, session: _Session) -> None:
        try:
            self._store.save(session.id, str(session.root), session.agent.messages)
        except (OSError, TypeError, ValueError) as error:
            _LOG.warning("session %s could not be stored: %s", session.id, describe(error))

    # ---- the editor ----

    async def _follow(self, session: _Session, run: Run) -> None:
        try:
            async for event in run:
                await self._tell(session, session.updates.of_event(event))
        except EventsLostError as error:
            _LOG.warning("session %s: the editor did not read, and was not told all: %s", session.id, error)
        except ConnectionError:
            return  # it is gone: `aclose` is on its way

    async def _tell(self, session: _Session, updates: Sequence[Any]) -> None:
        for update in updates:
            await self._client.session_update(session_id=session.id, update=update)

    async def _permit(self, session: _Session, call: ToolCall) -> Block | None:
        """Ask the user before a tool that changes something. Who asked for it reads a rejection as the call's result."""
        if call.name not in self._asks_before or call.name in session.allowed:
            return None
        described = session.updates.described(call)
        asked = schema.ToolCallUpdate(tool_call_id=session.updates.id_of(call.id) or call.id, **described)
        answer = await self._client.request_permission(session_id=session.id, tool_call=asked, options=_OPTIONS)
        chosen = getattr(answer.outcome, "option_id", None)
        if chosen == "always":
            session.allowed.add(call.name)
        return None if chosen in ("once", "always") else Block("the user did not allow it")


_OPTIONS: Final = [
    schema.PermissionOption(option_id="once", name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id="always", name="Always allow in this session", kind="allow_always"),
    schema.PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
]


# ---- refusals ----


def _invalid(message: str) -> acp.RequestError:
    return acp.RequestError(-32602, message)


def _refusal(message: str, code: str = "REFUSED") -> acp.RequestError:
    return acp.RequestError(REFUSED, message, {"code": code})


def _failure(result: RunResult) -> acp.RequestError:
    failure = result.failure
    data: Mapping[str, Any] = {"code": "FAILED" if failure is None else failure.code}
    return acp.RequestError(FAILED, result.status if failure is None else whole(failure.message), data)


def _asked(ask: Callable[[], Any]) -> Any:
    """What *ask* returns; what it refuses, as an error of the protocol."""
    try:
        return ask()
    except KernelError as error:
        raise _refusal(str(error), error.code) from error
    except (OSError, TypeError, ValueError) as error:
        raise _invalid(str(error)) from error
