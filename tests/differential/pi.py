"""The real Pi agent core as a process that plays scenarios: found or installed, asked, and answered line by line.

The package is installed by name and exact version from `package-lock.json` beside this file into a cache folder:
`.cache/pi-agent-core` of the repository, or the folder that PHASEKERNEL_PI_CACHE names. Nothing is installed unless
PHASEKERNEL_PI_INSTALL=1 says so; who asks without it is told what to do.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, final

from attrs import frozen

from kernel.scenario import parse, play
from kernel.testing import Deadlock

Line = dict[str, Any]

HERE = Path(__file__).parent
PACKAGE, VERSION = "@earendil-works/pi-agent-core", "0.85.0"
CACHE = Path(os.environ.get("PHASEKERNEL_PI_CACHE") or HERE.parent.parent / ".cache" / "pi-agent-core")
COMMAND = "PHASEKERNEL_PI_INSTALL=1 .venv/bin/pytest -m pi tests/differential"


class NotHere(Exception):
    """Pi can't be run on this machine; the text says what is missing and what to do."""


@frozen
class Played:
    """What came of a scenario: its lines, and whether it stopped where nothing can go on."""

    lines: list[Line]
    stuck: bool


def plays(scenario: Line) -> Played:
    """What the kernel makes of *scenario*, in Pi's dialect and under Pi's profile."""
    lines: list[Line] = []
    try:
        play(parse(json.dumps(scenario)), "pi", lines.append)
    except Deadlock:
        return Played(lines, True)
    return Played(lines, False)


def found() -> Path:
    """The folder with the package in it. Raises NotHere."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NotHere(f"{program} is not installed, so Pi can't be run; install Node.js 20 or later, then: {COMMAND}")
    manifest = CACHE / "node_modules" / PACKAGE / "package.json"
    if not manifest.is_file() and os.environ.get("PHASEKERNEL_PI_INSTALL") == "1":
        _install()
    if not manifest.is_file():
        raise NotHere(f"{PACKAGE} is not in {CACHE}; this installs it there and runs the lane: {COMMAND}")
    installed = json.loads(manifest.read_text())["version"]
    if installed != VERSION:
        raise NotHere(f"{CACHE} has {PACKAGE} {installed} and not {VERSION}; remove that folder, then: {COMMAND}")
    return CACHE


def _install() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, CACHE / name)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotHere(f"npm could not install {PACKAGE} {VERSION} into {CACHE}: {done.stderr.strip()[-500:]}")


@final
class Pi:
    """A running Pi. `runs` names the versions of Node and of the package."""

    def __init__(self, folder: Path) -> None:
        command = ["node", str(HERE / "pi_runner.mjs"), str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.runs = self._read()

    def plays(self, scenario: Line) -> Played:
        """What Pi makes of *scenario*: its lines, marks included."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"scenario": scenario}) + "\n")
        self._process.stdin.flush()
        said = self._read()
        if "lines" not in said or "unexpected" in said:
            raise AssertionError(f"the player of Pi failed: {said.get('refused') or said.get('unexpected')}")
        return Played(said["lines"], said["stuck"])

    def _read(self) -> Line:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the process of Pi ended with status {self._process.wait()}")
        said: Line = json.loads(line)
        return said

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
