"""Tools of MCP servers that really run: as a command, over HTTP and in this process; and what happens when one dies."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer

from kernel import Agent, KernelConfig
from kernel.mcp import McpServer
from kernel.testing import Recorder, ScriptedModel, call, check_tool
from tests.mcp import program
from tests.providers.server import nothing_leaks

PROGRAM = Path(program.__file__)
COMMAND = [sys.executable, str(PROGRAM), "stdio"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def over_http() -> AsyncIterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A server that listens."""
    port = free_port()
    command = [sys.executable, str(PROGRAM), "http", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)  # another program: it says nothing when it is ready
                continue
            writer.close()
            await writer.wait_closed()
            break
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def connected(kind: str) -> AsyncIterator[McpServer]:
    """The same server, on each of the three ways."""
    if kind == "stdio":
        async with McpServer(COMMAND, env={"WORD": "hello"}, cwd=PROGRAM.parent) as server:
            yield server
    elif kind == "http":
        async with over_http() as (url, _), McpServer(url) as server:
            yield server
    else:
        async with McpServer(program.server) as server:
            yield server


ways = pytest.mark.parametrize("kind", ["stdio", "http", "in process"])


async def run(server: McpServer, *calls: Any, **config: Any) -> tuple[Any, Recorder]:
    """A run whose model asks for these calls, all in one response."""
    heard = Recorder()
    agent = Agent(ScriptedModel([list(calls), ["done"]]), tools=server.tools, config=KernelConfig(**config))
    agent.subscribe(heard)
    return await agent.prompt("Go"), heard


def results(result: Any) -> dict[str, tuple[str, bool]]:
    return {message.call_id: (message.text, message.is_error) for message in result.messages if message.role == "tool"}


@ways
def test_an_agent_calls_a_servers_tools(kind: str):
    """Several at once; arguments that are wrong, and a tool that raises, are error results; progress is told."""
    async def main() -> None:
        async with connected(kind) as server:
            names = {"add", "where", "count_to_three", "hang", "die", "fail", "show", "flood"}
            assert {tool.name for tool in server.tools} == names
            result, heard = await run(
                server, call("a", "add", left=2, right=3), call("b", "add", left=2), call("c", "add", left="x"),
                call("d", "fail"), call("e", "count_to_three"), call("f", "show"),
            )  # fmt: skip
        said = results(result)
        assert result.status == "completed"
        assert (said["a"], said["b"]) == (("5", False), ("3", False))
        assert said["c"][1]
        assert "left" in said["c"][0]
        assert said["d"][1]
        assert "no such thing" in said["d"][0]
        assert said["e"] == ("three", False)
        assert said["f"] == ("[an image, image/png, some 3 bytes]", False)
        assert [event.text for event in heard.of("tool.updated")] == ["at 1", "at 2", "at 3"]

    with nothing_leaks():
        asyncio.run(main())


@ways
def test_a_cancelled_call_is_cancelled_at_the_server(kind: str, tmp_path: Path):
    mark = tmp_path / "mark"

    async def main() -> str:
        async with connected(kind) as server:
            agent = Agent(ScriptedModel([[call("a", "hang", mark=str(mark))]]), tools=server.tools)
            run = agent.prompt("Go")
            while not mark.exists() or mark.read_text() != "begun":
                await asyncio.sleep(0.01)  # another process writes it
            agent.cancel()
            result = await run
            while mark.read_text() != "cancelled":
                await asyncio.sleep(0.01)
            again = await Agent(ScriptedModel([[call("b", "add", left=1)], ["ok"]]), tools=server.tools).prompt("Go")
            assert results(again)["b"] == ("2", False)
            return result.status

    with nothing_leaks():
        assert asyncio.run(main()) == "cancelled"


@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_a_server_that_dies_is_an_error_result(kind: str):
    """Of the call that it was in, and of each later one; the run goes on."""
    async def main() -> None:
        async with connected(kind) as server:
            result, _ = await run(server, call("a", "die"), call("b", "add", left=1), tool_timeout=20.0)
            assert result.status == "completed"
            text, is_error = results(result)["a"]
            assert is_error
            assert "MCP server" in text
            later, _ = await run(server, call("c", "add", left=1), tool_timeout=20.0)
            text, is_error = results(later)["c"]
            assert is_error
            assert "MCP server" in text

    with nothing_leaks():
        asyncio.run(main())


def test_a_server_that_is_killed_from_outside(tmp_path: Path):
    """While it works, and nothing of it is left."""
    mark = tmp_path / "mark"

    async def main() -> None:
        async with over_http() as (url, process), McpServer(url) as server:
            agent = Agent(
                ScriptedModel([[call("a", "hang", mark=str(mark))], ["done"]]), tools=server.tools,
                config=KernelConfig(tool_timeout=20.0),
            )  # fmt: skip
            run = agent.prompt("Go")
            while not mark.exists():
                await asyncio.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            result = await run
            text, is_error = results(result)["a"]
            assert (result.status, is_error) == ("completed", True)
            assert "MCP server" in text

    with nothing_leaks():
        asyncio.run(main())


def test_what_is_too_long_is_cut():
    """A result of any size would fill the model's context, and be in each later request."""
    async def main() -> str:
        async with McpServer(program.server) as server:
            return results((await run(server, call("a", "flood")))[0])["a"][0]

    text = asyncio.run(main())
    assert len(text) < 100_100
    assert text.endswith("[900000 more characters are left out]")


def test_the_command_gets_its_directory_and_environment():
    """And no more of ours than the SDK gives."""
    async def main() -> str:
        async with connected("stdio") as server:
            return results((await run(server, call("a", "where")))[0])["a"][0]

    assert asyncio.run(main()) == "mcp hello"


def test_a_call_may_take_so_long_and_no_longer(tmp_path: Path):
    async def main() -> tuple[str, bool]:
        async with McpServer(program.server, timeout=0.2) as server:
            return results((await run(server, call("a", "hang", mark=str(tmp_path / "mark"))))[0])["a"]

    text, is_error = asyncio.run(main())
    assert is_error
    assert "timed out" in text
    assert (tmp_path / "mark").read_text() == "cancelled"


def test_what_a_server_says_of_a_tool_is_kept():
    """What reads only may be repeated after a crash; two servers can be kept apart."""
    async def main() -> None:
        async with McpServer(program.server, prefix="one-") as one, McpServer(program.server, prefix="two-") as two:
            tools = {tool.name: tool for tool in (*one.tools, *two.tools)}
            assert len(tools) == 16
            assert tools["one-where"].replay == "safe"
            assert tools["two-add"].replay == "never"
            assert tools["two-add"].description == "Add two numbers."
            (await check_tool(tools["one-add"], good=[{"left": 1}])).unwrap()

    asyncio.run(main())


def test_names_are_ones_that_providers_take():
    """Foreign characters, too long, and two that become one."""
    server = MCPServer("names")
    for name in ("a.b", "a/b", "x" * 100, "x" * 101, "ünïcode"):
        server.add_tool(lambda: "ok", name=name, description="d")

    async def main() -> tuple[str, ...]:
        async with McpServer(server) as source:
            Agent(ScriptedModel(), tools=source.tools)
            return tuple(tool.name for tool in source.tools)

    names = asyncio.run(main())
    assert len(set(names)) == 5
    assert all(len(name) <= 64 for name in names)


def test_refresh_takes_what_has_changed():
    server = MCPServer("changing")
    server.add_tool(lambda: "one", name="one", description="d")

    async def main() -> tuple[int, Any]:
        async with McpServer(server) as source:
            before = len(source.tools)
            server.add_tool(lambda: "two", name="two", description="d")
            await source.refresh()
            result, _ = await run(source, call("a", "two"))
            return before, results(result)["a"]

    assert asyncio.run(main()) == (1, ("two", False))


class TestConnecting:
    @pytest.mark.parametrize(
        ("server", "words"),
        [
            (["/nowhere/at/all"], "all can't be used"),
            ([sys.executable, "-c", "raise SystemExit(3)"], "can't be used"),
            ([sys.executable, str(PROGRAM), "silent"], "did not answer within"),
        ],
        ids=["no such command", "ends at once", "says nothing"],
    )
    def test_a_command_that_is_no_server(self, server: Any, words: str) -> None:
        """One sentence, and nothing of it is left running."""
        async def main() -> None:
            async with McpServer(server, connect_timeout=3.0):
                raise AssertionError("it was connected")

        with nothing_leaks(), pytest.raises(ConnectionError, match=words):
            asyncio.run(main())

    def test_an_address_where_nobody_listens(self) -> None:
        async def main() -> None:
            async with McpServer(f"http://me:secret@127.0.0.1:{free_port()}/mcp?key=secret", connect_timeout=10.0):
                raise AssertionError("it was connected")

        with nothing_leaks(), pytest.raises(ConnectionError, match="can't be used") as caught:
            asyncio.run(main())
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("server", "more"),
        [("server.py", {}), ([], {}), ([""], {}), ([3], {}), ("http://x", {"env": {}}), (["x"], {"prefix": "a.b"})],
    )
    def test_bad_arguments_are_refused(self, server: Any, more: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            McpServer(server, **more)

    def test_it_is_entered_once(self) -> None:
        async def main() -> None:
            server = McpServer(program.server)
            async with server:
                with pytest.raises(RuntimeError, match="once only"):
                    await server.__aenter__()

        asyncio.run(main())

    def test_after_its_end_calls_say_so(self) -> None:
        async def main() -> tuple[str, bool]:
            async with McpServer(program.server) as server:
                pass
            return results((await run(server, call("a", "add", left=1)))[0])["a"]

        text, is_error = asyncio.run(main())
        assert is_error
        assert "is gone (it is closed)" in text

    def test_without_the_sdk_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "mcp", None)
        with pytest.raises(ModuleNotFoundError, match=r'pip install "phasekernel\[mcp\]"'):
            McpServer("http://127.0.0.1:1")

    def test_importing_it_brings_no_sdk(self) -> None:
        code = "import sys, kernel.mcp; print([name for name in ('mcp', 'anyio', 'pydantic') if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == "[]"
