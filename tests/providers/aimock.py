"""The npm package `@copilotkit/aimock`, a provider that nobody here wrote, as a process on the loopback interface."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PREFIX = Path(os.environ.get("PHASEKERNEL_AIMOCK", ROOT / ".proof"))
PACKAGE = "@copilotkit/aimock@1.43.0"


class NotHere(Exception):
    """It can't be run here, and why."""


def found() -> Path:
    """Its command line. With `PHASEKERNEL_AIMOCK_INSTALL` it is installed when it is not there."""
    node = shutil.which("node")
    if node is None:
        raise NotHere("Node.js is not installed")
    command = PREFIX / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    if not command.exists() and os.environ.get("PHASEKERNEL_AIMOCK_INSTALL"):
        subprocess.run(
            ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(PREFIX), PACKAGE],
            check=False, capture_output=True, timeout=300,
        )  # fmt: skip
    if not command.exists():
        raise NotHere(f"install it: npm install --prefix .proof {PACKAGE}")
    return command


ERRORS = (
    (429, "rate_limit_error", "Slow down."),
    (401, "authentication_error", "Who are you?"),
    (404, "not_found_error", "No such model."),
    (500, "api_error", "Oops."),
    (529, "overloaded_error", "Busy."),
    (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
)
_CALLS = [{"name": "add", "arguments": {"left": left, "right": left + 1}} for left in (1, 3)]
FIXTURES: list[dict[str, Any]] = [
    *(
        {"match": {"userMessage": f"fail {code}"}, "response": {"error": {"message": text, "type": kind}, "status": code}}
        for code, kind, text in ERRORS
    ),
    {"match": {"userMessage": "add", "hasToolResult": True}, "response": {"content": "Three and seven."}},
    {"match": {"userMessage": "add", "hasToolResult": False}, "response": {"toolCalls": _CALLS}},
    {"match": {"userMessage": "think"}, "response": {"reasoning": "Let me think about it.", "content": "I thought."}},
    {"match": {"userMessage": "slowly"}, "response": {"content": "word " * 200}, "streamingProfile": {"tps": 20}},
    {"match": {}, "response": {"content": "Hello from somebody else, in several pieces."}},
]


@contextmanager
def running(tmp_path: Path) -> Iterator["Aimock"]:
    """A process of it, with the fixtures above."""
    command = found()
    fixtures = tmp_path / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    process = subprocess.Popen(
        ["node", str(command), "--port", "0", "--fixtures", str(fixtures), "--chunk-size", "7"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        yield Aimock(_address(process))
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    end = time.monotonic() + 60
    said = []
    while time.monotonic() < end and (line := process.stdout.readline()):
        said.append(line)
        if match := re.search(r"listening on (http://\S+)", line):
            return match[1]
    raise NotHere(f"it did not begin to listen: {''.join(said)}")


class Aimock:
    """A provider that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def chaos(self, **rates: float) -> None:
        """How often what goes wrong: `disconnectRate=1`."""
        data = json.dumps(rates).encode()
        method = "POST" if rates else "DELETE"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/__aimock/chaos", data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
