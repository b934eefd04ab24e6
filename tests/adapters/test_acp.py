"""ACP: what an editor sees of a session, over real streams; what it can't have is said; what it leaves costs nothing."""

import asyncio
import json
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from kernel import Agent, Hooks, Image, KernelConfig, ModelError, ReasoningDelta, ToolContext, UserMessage, tool
from kernel.adapters.acp import EditorAgent
from kernel.adapters.acp_sessions import SessionStore
from kernel.adapters.acp_transport import LONGEST, LineTransport
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


class TestASession:
    def test_what_it_can_do_is_told(self, tmp_path: Path) -> None:
        """Version 1, whatever was asked for; sessions, images and embedded text; nothing to authenticate with."""

        async def main() -> None:
            async with connected([], tmp_path) as it:
                said = await it.connection.initialize(protocol_version=99)
                able = said.agent_capabilities
                assert (said.protocol_version, said.agent_info.name, said.auth_methods) == (1, "phasekernel", [])
                prompts = able.prompt_capabilities
                assert (able.load_session, prompts.image, prompts.embedded_context) == (True, True, True)
                assert not prompts.audio

        run(main)

    def test_a_prompt(self, tmp_path: Path) -> None:
        """Text and thoughts as they come; a call as it is asked for, runs, says something and ends."""

        async def main() -> None:
            script = [[ReasoningDelta("Hm."), "Well. ", call("c1", "work", path="a.py")], ["Do", "ne."]]
            async with connected(script, tmp_path) as it:
                session = await it.begin()
                it.gate.set()
                answered = await it.ask(session, "Go")
                assert answered.stop_reason == "end_turn"
                assert (it.editor.text(), it.editor.text("agent_thought_chunk")) == ("Well. Done.", "Hm.")
                (asked,) = it.editor.of("tool_call")
                assert (asked.title, asked.kind, asked.raw_input) == ("work a.py", "other", {"path": "a.py"})
                assert asked.locations[0].path == str(it.root / "a.py")
                ((id, statuses),) = it.editor.calls().items()
                assert id == asked.tool_call_id
                assert statuses == ["pending", "in_progress", None, "completed", "completed"]
                assert it.editor.of("tool_call_update")[1].content[0].content.text == "half of it"
                assert it.editor.of("tool_call_update")[-1].content[0].content.text == "worked on a.py"

        run(main)

    def test_ids_that_a_model_uses_again(self, tmp_path: Path) -> None:
        """Each call is its own in the session."""

        async def main() -> None:
            one = [call("c", "write_file", path="a"), call("c", "write_file", path="b")]
            async with connected([one, ["x"], [call("c", "write_file", path="c")], ["y"]], tmp_path) as it:
                session = await it.begin()
                for _ in range(2):
                    await it.ask(session, "Go")
                ends = {id: statuses[-1] for id, statuses in it.editor.calls().items()}
                assert ends == {"c.1": "completed", "c.2": "completed", "c.3": "completed"}

        run(main)

    @pytest.mark.parametrize(
        ("script", "config", "reason"),
        [
            ([["Hi."]], {}, "end_turn"),
            ([[call("c", "write_file", path="a")]] * 3, {"max_turns": 2}, "max_turn_requests"),
        ],
    )
    def test_how_it_ended(self, script: Any, config: dict[str, Any], reason: str, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(script, tmp_path, config=KernelConfig(**config)) as it:
                assert (await it.ask(await it.begin(), "Go")).stop_reason == reason

        run(main)

    def test_a_response_that_was_cut_off(self, tmp_path: Path) -> None:
        from kernel import Finished

        async def main() -> None:
            async with connected([["Hal", Finished("length")]], tmp_path) as it:
                assert (await it.ask(await it.begin(), "Go")).stop_reason == "max_tokens"

        run(main)

    def test_a_failed_run_is_an_error(self, tmp_path: Path) -> None:
        """With the kernel's words and code; the session goes on."""

        async def main() -> None:
            async with connected([[ModelError("the provider is down")], ["Hi."]], tmp_path) as it:
                session = await it.begin()
                with pytest.raises(acp.RequestError, match="the provider is down") as caught:
                    await it.ask(session, "Go")
                assert caught.value.data == {"code": "MODEL_FAILED"}
                assert (await it.ask(session, "Again")).stop_reason == "end_turn"

        run(main)

    def test_cancel(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                await it.connection.cancel(session_id=session)
                assert (await going).stop_reason == "cancelled"
                assert next(iter(it.editor.calls().values()))[-1] == "failed"

        run(main)

    def test_sessions_do_not_hear_each_other(self, tmp_path: Path) -> None:
        """Two at a time, each with its own conversation."""

        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                one, other = await it.begin(), await it.begin()
                going = asyncio.ensure_future(it.ask(one, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                it.gate.set()
                assert (await it.ask(other, "Go")).stop_reason == (await going).stop_reason == "end_turn"
                assert len(it.agent(one).messages) == len(it.agent(other).messages) == 4

        run(main)


class TestWhatIsSaid:
    def test_blocks(self, tmp_path: Path) -> None:
        """Text, links, embedded text and images are one message."""

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                session = await it.begin()
                await it.ask(
                    session, "Look:", acp.resource_link_block("a.py", "file:///a.py"),
                    acp.resource_block(acp.embedded_text_resource("file:///b.py", "b = 1")),
                    acp.image_block("aGk=", "image/png"),
                )  # fmt: skip
                message = it.agent(session).messages[0]
                assert isinstance(message, UserMessage)
                assert message.text == (
                    'Look:[a.py](file:///a.py)\n<resource uri="file:///b.py">\nb = 1\n</resource>\n'
                )
                assert message.images == (Image("data:image/png;base64,aGk="),)

        run(main)

    @pytest.mark.parametrize(
        ("blocks", "why"),
        [
            ([], "must not be empty"),
            ([acp.text_block("  ")], "must not be empty"),
            ([acp.audio_block("aGk=", "audio/wav")], "type 'audio' can't be read"),
            ([acp.image_block("aGk=", "text/plain")], "image"),
        ],
    )
    def test_what_can_not_be_read_is_said(self, blocks: list[Any], why: str, tmp_path: Path) -> None:
        """And no run is begun."""

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                session = await it.begin()
                with pytest.raises(acp.RequestError, match=why):
                    await it.ask(session, *blocks)
                assert len(it.agent(session).messages) == 0

        run(main)


WRITES = [[call("c1", "write_file", path="a")], [call("c2", "write_file", path="b")], ["Done."]]


class TestPermission:
    @pytest.mark.parametrize(
        ("answers", "asked", "results"),
        [
            (["once", "once"], 2, ["wrote a", "wrote b"]),
            (["always"], 1, ["wrote a", "wrote b"]),
            (["reject", "once"], 2, ["the user did not allow it", "wrote b"]),
        ],
    )
    def test_the_user_is_asked(self, answers: list[str | None], asked: int, results: list[str], tmp_path: Path) -> None:
        """Once, for ever, or not at all; the model reads a rejection."""

        async def main() -> None:
            async with connected(WRITES, tmp_path, frozenset({"write_file"})) as it:
                session = await it.begin()
                it.editor.answers = answers
                assert (await it.ask(session, "Go")).stop_reason == "end_turn"
                said = [message.text for message in it.agent(session).messages if message.role == "tool"]
                assert said == results
                assert len(it.editor.asked) == asked
                described, options = it.editor.asked[0]
                assert (described.title, options) == ("write_file a", ["once", "always", "reject"])
                assert described.tool_call_id in it.editor.calls()

        run(main)

    def test_a_cancel_while_the_user_thinks(self, tmp_path: Path) -> None:
        """The question is dropped, and nothing is written."""

        async def main() -> None:
            async with connected(WRITES, tmp_path, frozenset({"write_file"})) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.asked))
                await it.connection.cancel(session_id=session)
                assert (await going).stop_reason == "cancelled"
                assert "wrote" not in str(it.agent(session).messages)

        run(main)

    def test_what_needs_none_is_not_asked_for(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path, frozenset({"write_file"})) as it:
                it.gate.set()
                await it.ask(await it.begin(), "Go")
                assert it.editor.asked == []

        run(main)


class TestLoading:
    def test_a_session_goes_on(self, tmp_path: Path) -> None:
        """After the agent's process has ended: all of it is told, and the model is sent it."""

        async def main() -> None:
            async with connected([[ReasoningDelta("Hm."), *BUSY[0]], BUSY[1]], tmp_path) as it:
                session = await it.begin()
                it.gate.set()
                await it.ask(session, "Go")
            async with connected([["More."]], tmp_path) as it:
                await it.connection.initialize(protocol_version=1)
                await it.connection.load_session(cwd=str(it.root), session_id=session, mcp_servers=[])
                assert it.editor.text("user_message_chunk") == "Go"
                assert it.editor.text() == "Well. Done."
                assert list(it.editor.calls().values()) == [["pending", "completed"]]
                assert (await it.ask(session, "On")).stop_reason == "end_turn"
                assert [message.text for message in it.agent(session).messages][-2:] == ["On", "More."]

        run(main)

    def test_a_cancelled_run_is_stored(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                await it.connection.cancel(session_id=session)
                await going
                stored = SessionStore(tmp_path / "sessions").load(session)
                assert [message.role for message in stored.messages] == ["user", "assistant", "tool"]

        run(main)

    @pytest.mark.parametrize(
        ("id", "content", "why"),
        [
            ("0" * 32, None, "there is no session"),
            ("../../etc/passwd", None, "is no id of a session"),
            ("", None, "is no id of a session"),
            ("0" * 32, "", "can't be read"),
            ("0" * 32, '{"format": "another"}', "is no session of this version"),
            ("0" * 32, '{"format":"phasekernel.session/1","cwd":"/","messages":[{"is":"Nobody"}]}', "is damaged"),
        ],
    )
    def test_what_can_not_be_loaded_is_said(self, id: str, content: str | None, why: str, tmp_path: Path) -> None:
        """And changes nothing, the file included."""

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                path = tmp_path / "sessions" / f"{'0' * 32}.json"
                if content is not None:
                    path.parent.mkdir()
                    path.write_text(content)
                with pytest.raises(acp.RequestError, match=why):
                    await it.connection.load_session(cwd=str(it.root), session_id=id, mcp_servers=[])
                assert it.agent_side._sessions == {}
                assert content is None or path.read_text() == content

        run(main)

    def test_one_that_is_going_is_not_loaded(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                with pytest.raises(acp.RequestError, match="a run is going in it"):
                    await it.connection.load_session(cwd=str(it.root), session_id=session, mcp_servers=[])
                it.gate.set()
                assert (await going).stop_reason == "end_turn"

        run(main)

    def test_a_disk_that_is_full_costs_the_run_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It is logged; what was stored before stays."""
        (tmp_path / "sessions").write_text("a file, and no folder")

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                assert (await it.ask(await it.begin(), "Go")).stop_reason == "end_turn"

        run(main)
        assert "could not be stored" in caplog.text


class TestRefusals:
    def test_a_second_prompt(self, tmp_path: Path) -> None:
        """It is refused in the agent's words, and the run goes on as if nothing had been said."""

        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                before = it.agent(session).state
                with pytest.raises(acp.RequestError, match="steer") as caught:
                    await it.ask(session, "And?")
                assert caught.value.data == {"code": "AGENT_BUSY"}
                assert it.agent(session).state == before
                it.gate.set()
                assert (await going).stop_reason == "end_turn"

        run(main)

    @pytest.mark.parametrize("cwd", ["", "relative", "/nowhere/at/all", __file__])
    def test_a_directory_that_is_none(self, cwd: str, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected([], tmp_path) as it:
                with pytest.raises(acp.RequestError, match="absolute path of a directory"):
                    await it.connection.new_session(cwd=cwd, mcp_servers=[])

        run(main)

    def test_a_session_that_is_none(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected([], tmp_path) as it:
                with pytest.raises(acp.RequestError, match="there is no open session 'x'"):
                    await it.ask("x", "Go")
                await it.connection.cancel(session_id="x")  # nothing to cancel, and nobody to answer

        run(main)

    def test_a_server_of_tools_that_does_not_answer(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It is left out, and said so in the log; the session begins."""

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                server = schema.McpServerStdio(name="gone", command="/nowhere/at/all", args=[], env=[])
                session = (await it.connection.new_session(cwd=str(it.root), mcp_servers=[server])).session_id
                assert (await it.ask(session, "Go")).stop_reason == "end_turn"

        run(main)
        assert "the MCP server gone is left out" in caplog.text


RUBBISH = [
    (b"not JSON", None, -32700, "not JSON"),
    (b"\xff\xfe\x00", None, -32700, "not JSON"),
    (b"[" * 100_000, None, -32700, "not JSON"),
    (b'"text"', None, -32600, "a JSON object is expected"),
    (b"[]", None, -32600, "a JSON object is expected"),
    (b"{}", None, -32600, "neither a request"),
    (b'{"id": [], "result": 1}', None, -32600, "id must be"),
    (b'{"id": {}, "method": "x"}', None, -32600, "id must be"),
    (b'{"id": 7, "method": 5}', 7, -32600, "method must be a string"),
    (b'{"id": 7, "method": "session/new", "params": [1]}', 7, -32600, "params must be an object"),
    (b'{"id": 7}', 7, -32600, "neither a request"),
    (b'{"id": 7, "error": "x"}', 7, -32600, "error must be an object"),
    (b'{"id": 7, "method": "no/such"}', 7, -32601, "Method not found"),
    (b'{"id": 7, "method": "session/new", "params": {}}', 7, -32602, "Invalid params"),
    (b'{"id": 7, "method": "session/prompt", "params": {"sessionId": 5, "prompt": "x"}}', 7, -32602, "Invalid params"),
    (b'{"id": 7, "method": "authenticate", "params": {"methodId": "key"}}', 7, -32602, "no method 'key'"),
]


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


class TestAClientThatSendsRubbish:
    def test_it_is_told_so_and_the_connection_stays(self, tmp_path: Path) -> None:
        """Each line has its answer, with the id that it had if that can be read."""

        async def main() -> None:
            async with raw(tmp_path, [["Hi."]]) as (reader, writer, _):
                for line, id, code, why in RUBBISH:
                    writer.write(line + b"\n")
                    answered = json.loads(await reader.readline())
                    assert (answered["id"], answered["error"]["code"]) == (id, code), line
                    assert why in answered["error"]["message"], line
                writer.write(b'\n\n{"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}\n')
                assert json.loads(await reader.readline())["result"]["protocolVersion"] == 1

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            run(main)

    def test_a_line_that_is_too_long(self, tmp_path: Path) -> None:
        """It is passed over, without being held, and what comes next is read."""

        async def main() -> None:
            async with raw(tmp_path, [["Hi."]]) as (reader, writer, _):
                piece = b"x" * 2**20
                for _ in range(LONGEST // len(piece) + 1):
                    writer.write(piece)
                    await writer.drain()
                writer.write(b'\n{"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}\n')
                assert "bytes at most" in json.loads(await reader.readline())["error"]["message"]
                assert json.loads(await reader.readline())["id"] == 1

        run(main)


class TestAClientThatLeaves:
    def test_its_runs_are_cancelled_and_settled(self, tmp_path: Path) -> None:
        """In the middle of a run, with its connection gone."""

        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                agent = it.agent(session)
                await it.connection.close()
                await asyncio.wait({going})
                await it.agent_side.aclose()
                assert agent.phase == "closed"
                assert agent.messages[-1].text.startswith("cancelled")

        run(main)

    def test_one_that_never_reads_holds_nothing_up(self, tmp_path: Path) -> None:
        """The run ends, though nothing that it says is taken; what waits is bounded by the run's own buffer."""
        flood = ["word " * 400] * 20_000

        async def main() -> None:
            async with raw(tmp_path, [flood]) as (reader, writer, agent_side):
                params = {"cwd": str(tmp_path), "mcpServers": []}
                writer.write(json.dumps({"id": 1, "method": "session/new", "params": params}).encode() + b"\n")
                session = json.loads(await reader.readline())["result"]["sessionId"]
                params = {"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]}
                writer.write(json.dumps({"id": 2, "method": "session/prompt", "params": params}).encode() + b"\n")
                agent = agent_side._sessions[session].agent
                while not agent.is_running:
                    await asyncio.sleep(0)
                await agent.wait_for_idle()
                assert agent.messages[-1].text == "".join(flood)

        run(main)
