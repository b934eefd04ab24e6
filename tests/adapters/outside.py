"""Programs that nobody here wrote, for the lane `views`: packages from npm, and a browser."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PREFIX: Final = Path(os.environ.get("PHASEKERNEL_VIEWS", ROOT / ".proof"))
PACKAGES: Final = {
    "@ag-ui/client": "@ag-ui/client@1.0.0",
    "@agentclientprotocol/sdk": "@agentclientprotocol/sdk@2.4.0",
    "acpx": "acpx@0.1.15",  # the newest that runs on Node.js 20
}
INSTALL: Final = f"npm install --prefix .proof {' '.join(PACKAGES.values())}"


class NotHere(Exception):
    """It can't be run here, and why."""


def package(name: str) -> Path:
    """Where a package from npm is. With `PHASEKERNEL_VIEWS_INSTALL` all are installed when it is not there."""
    if shutil.which("node") is None:
        raise NotHere("Node.js is not installed")
    folder = PREFIX / "node_modules" / name
    if not folder.exists() and os.environ.get("PHASEKERNEL_VIEWS_INSTALL"):
        subprocess.run(
            ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(PREFIX), *PACKAGES.values()],
            check=False, capture_output=True, timeout=300,
        )  # fmt: skip
    if not folder.exists():
        raise NotHere(f"install it: {INSTALL}")
    return folder


def run_node(script: str, given: str, *arguments: str, timeout: float = 100) -> "subprocess.CompletedProcess[str]":
    """Run a script of this folder, with the packages in its reach and *given* on its standard input."""
    return subprocess.run(
        ["node", str(Path(__file__).parent / script), *arguments], input=given, capture_output=True, text=True,
        timeout=timeout, env={**os.environ, "PHASEKERNEL_NODE_MODULES": str(PREFIX / "node_modules")},
    )  # fmt: skip


def verified(streams: list[list[dict[str, Any]]]) -> list[str | None]:
    """What `verifyEvents` of `@ag-ui/client` says of each stream: None, or its complaint."""
    package("@ag-ui/client")
    done = run_node("verify.mjs", "".join(json.dumps(stream) + "\n" for stream in streams))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def chromium() -> str:
    """The browser's program."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise NotHere("install it: apt-get install chromium")
    return found
