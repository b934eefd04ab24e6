"""ACP: what an editor can't have is said, and what it sends and leaves costs the runs nothing."""

import asyncio
import json
import warnings
from pathlib import Path

import acp
import pytest
from acp import schema

from kernel.adapters.acp_transport import LONGEST
from tests.adapters.acp_editor import BUSY, connected, raw, run


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
