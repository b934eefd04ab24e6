"""ACP with what others wrote: the official TypeScript client, and `acpx`, a client for the command line."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.outside import PACKAGES, PREFIX, ROOT, package, run_node
from tests.adapters.test_acp_command import QUESTION, command

pytestmark = pytest.mark.views
PROJECT = ROOT / "kernel" / "recordings" / "sample"


def asked(then: str, tmp_path: Path, *more: str) -> dict[str, Any]:
    done = run_node("acp_client.mjs", "", then, str(PROJECT), QUESTION, *command(tmp_path, *more))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_official_client(tmp_path: Path, say: Callable[[str], None]):
    """It sees text and tool calls, cancels, is refused, and the process ends when it leaves."""
    package("@agentclientprotocol/sdk")
    said = asked("wait", tmp_path, "--fast")
    assert (said["hello"]["protocolVersion"], said["answered"]["stopReason"]) == (1, "end_turn")
    kinds = [update["sessionUpdate"] for update in said["updates"]]
    assert {"agent_message_chunk", "tool_call", "tool_call_update"} == set(kinds)
    assert kinds.count("tool_call") == 2
    assert "no open session" in said["refused"]
    assert said["status"] == 0
    assert asked("cancel", tmp_path)["answered"]["stopReason"] == "cancelled"
    say(f"ACP: {PACKAGES['@agentclientprotocol/sdk']} talks to it")


def test_a_client_for_the_command_line(tmp_path: Path, say: Callable[[str], None]):
    """It shows the answer and the tools, and that the turn has ended."""
    package("acpx")
    program = PREFIX / "node_modules" / ".bin" / "acpx"
    agent = " ".join(command(tmp_path, "--fast"))
    done = subprocess.run(
        [str(program), "--agent", agent, "--approve-all", "--cwd", str(PROJECT), "exec", QUESTION],
        capture_output=True, text=True, timeout=100, cwd=ROOT, stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "list_files" in done.stdout
    assert "end_turn" in done.stdout
    say(f"ACP: {PACKAGES['acpx']} talks to it")
