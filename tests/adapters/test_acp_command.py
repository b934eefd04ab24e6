"""The command `acp`, as an editor runs it: a process on pipes."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import pytest

from tests.adapters.acp_editor import Editor
from tests.adapters.outside import ROOT

QUESTION = "Please look at the files here. What are they about?"


def command(tmp_path: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "kernel", "acp", "--sessions", str(tmp_path / "sessions"), *more]


def talk(tmp_path: Path, *lines: Any, end: bool = True) -> tuple[int, list[Any], str]:
    """Write these lines, close, and read all that is answered."""
    given = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    done = subprocess.run(
        command(tmp_path), input=given, capture_output=True, text=True, timeout=100, cwd=ROOT, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_session_with_the_official_library(tmp_path: Path):
    """Asked, answered with tools that ran on real files, loaded by another process."""
    project = ROOT / "kernel" / "recordings" / "sample"

    async def main() -> None:
        editor = Editor()
        async with acp.spawn_agent_process(editor, *command(tmp_path, "--fast"), cwd=ROOT) as (connection, process):
            await connection.initialize(protocol_version=1)
            session = (await connection.new_session(cwd=str(project), mcp_servers=[])).session_id
            answered = await connection.prompt(prompt=[acp.text_block(QUESTION)], session_id=session)
            assert answered.stop_reason == "end_turn"
            assert editor.text()
            assert [update.kind for update in editor.of("tool_call")] == ["read", "read"]
            assert [statuses[-1] for statuses in editor.calls().values()] == ["completed", "completed"]
        assert process.returncode == 0
        again = Editor()
        async with acp.spawn_agent_process(again, *command(tmp_path), cwd=ROOT) as (connection, process):
            await connection.initialize(protocol_version=1)
            await connection.load_session(cwd=str(project), session_id=session, mcp_servers=[])
            assert (again.text("user_message_chunk"), again.text()) == (QUESTION, editor.text())
        assert process.returncode == 0

    asyncio.run(main())


def test_an_editor_that_closes_ends_it(tmp_path: Path):
    """At once, and with nothing on standard output that is not the protocol."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    status, answered, complaints = talk(tmp_path, "rubbish", hello)
    assert (status, complaints) == (0, "")
    assert [each["id"] for each in answered] == [None, 1]


def test_an_editor_that_is_killed_ends_it(tmp_path: Path):
    """In the middle of a run, with both pipes gone: it settles and exits."""
    process = subprocess.Popen(
        command(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    def send(number: int, method: str, **params: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        process.stdin.flush()

    send(1, "session/new", cwd=str(tmp_path), mcpServers=[])
    session = json.loads(process.stdout.readline())["result"]["sessionId"]
    send(2, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": QUESTION}])
    process.stdout.readline()
    process.stdout.close()
    process.stdin.close()
    assert process.wait(60) == 0
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--model", "nothing"], "--model nothing is unknown"),
        (["--root", "."], "the editor says which directory"),
        (["more"], "unrecognized arguments"),
    ],
)
def test_what_it_can_not_do_is_said(arguments: list[str], why: str, tmp_path: Path):
    done = subprocess.run(
        command(tmp_path, *arguments), capture_output=True, text=True, timeout=60, cwd=ROOT, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_streams_that_are_files(tmp_path: Path):
    """It is no terminal program: one sentence says what it needs."""
    with (tmp_path / "in").open("w+") as given:
        done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=60, cwd=ROOT, stdin=given)
    assert done.returncode == 2
    assert "must be pipes to an editor" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_its_extra_it_says_what_to_install():
    program = "import sys\nsys.modules['acp'] = None\nfrom kernel.__main__ import main\nsys.exit(main(['acp']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert 'pip install "phasekernel[acp]"' in done.stderr
