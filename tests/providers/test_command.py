"""The command line with a provider, as a user calls it; and what it says without the SDK."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel.models.anthropic import AnthropicModel
from kernel.models.openai import OpenAIModel
from tests.providers.server import Answer, Server
from tests.providers.wires import ANTHROPIC, WIRES, Wire

ROOT = Path(__file__).parents[2]


def run(wire: Wire, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    address = url if wire is ANTHROPIC else f"{url}/v1"
    environment = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return subprocess.run(
        [sys.executable, "-m", "kernel", "What is here?", "--model", f"{wire.name}:m", "--base-url", address, *arguments],
        capture_output=True, text=True, encoding="utf-8", cwd=ROOT, timeout=100, stdin=subprocess.DEVNULL,
        env={**environment, "PYTHONWARNINGS": "error::ResourceWarning"},
    )  # fmt: skip


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_an_agent_with_real_tools_on_a_server(wire: Wire, tmp_path: Path):
    """It lists a real directory and says what the model makes of it."""
    (tmp_path / "notes.txt").write_text("hello")
    with Server(wire.says(("call", "c1", "list_files", "{}")), wire.says(("text", "One file."))) as server:
        done = run(wire, server.url, "--root", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "tool ended: list_files: notes.txt (5 bytes)" in done.stdout
    assert "text: One file." in done.stdout
    assert "notes.txt" in str(server.asked[1].body)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize(
    ("status", "name", "words"),
    [(401, "authentication_error", "check the key"), (404, "not_found_error", "check the model's name and base_url")],
)
def test_a_failure_is_one_sentence(wire: Wire, status: int, name: str, words: str):
    """And never a traceback."""
    with Server(wire.fails(status, name, "no")) as server:
        done = run(wire, server.url)
    assert (done.returncode, done.stderr) == (1, "")
    assert words in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_nobody_listens(wire: Wire):
    """A connection that is refused says whose it was."""
    with Server(Answer()) as server:
        url = server.url
    done = run(wire, url)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"no connection to {url}" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("make", "sdk"), [(OpenAIModel, "openai"), (AnthropicModel, "anthropic")])
def test_without_the_sdk_it_says_what_to_install(make, sdk: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, sdk, None)
    with pytest.raises(ModuleNotFoundError, match=rf'pip install "phasekernel\[{sdk}\]"'):
        make("m", base_url="http://127.0.0.1:1")


@pytest.mark.parametrize("module", ["kernel", "kernel.models.openai", "kernel.models.anthropic", "kernel.cli.chat"])
def test_importing_brings_no_sdk(module: str):
    """It takes a second or two, and is not everybody's."""
    names = ("openai", "anthropic", "httpx2", "pydantic")
    code = f"import sys, {module}; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == "[]"
