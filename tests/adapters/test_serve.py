"""The command `serve`: it says where it is and ends on Ctrl-C; what it can't do it says in one sentence at once."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.adapters.outside import ROOT


def serve(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "kernel", "serve", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="a console's Ctrl-C can't be sent to one process there")
def test_it_serves_until_ctrl_c():
    """Also while a page is open, whose stream then ends."""
    process = serve("--port", 0)
    assert process.stdout is not None
    found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+/)\n", process.stdout.readline())
    assert found is not None
    with urllib.request.urlopen(f"{found[1]}threads/main/events", timeout=30) as stream:
        assert stream.readline() == b": connected\n"
        process.send_signal(signal.SIGINT)
        assert stream.read().endswith(b"\n\n")
    said, complaints = process.communicate(timeout=30)
    assert (process.returncode, said, complaints) == (0, "", "stopped\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--port", "70000"], "--port must be from 0 to 65535"),
        (["--port", "x"], "invalid int"),
        (["--speed", "0"], "--speed must be from"),
        (["--replay", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--replay", "README.md"], "not the header of a trace"),
        (["--model", "nothing"], "--model nothing is unknown"),
        (["--root", "/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_what_it_can_not_do_is_said(arguments: list[str], why: str):
    process = serve("--port", 0, *arguments)
    said, complaints = process.communicate(timeout=30)
    assert (process.returncode, said) == (2, "")
    assert why in complaints
    assert "Traceback" not in complaints


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = serve("--port", taken.getsockname()[1])
        _, complaints = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "in use" in complaints


def test_without_its_extra_it_says_what_to_install(tmp_path: Path):
    """The command is there in any case."""
    program = "import sys\nsys.modules['uvicorn'] = None\nfrom kernel.__main__ import main\nsys.exit(main(['serve']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert 'pip install "phasekernel[web]"' in done.stderr
