"""A second opinion: XState 5 runs the exported machine and does what the live machine does."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from statechart.exports.structure import read
from statechart.exports.xstate import xstate
from statechart.machine import PhaseMachine
from tests.proof.walks import FAULTS, SEED, Ground, Outcome, Told, Walk, declaration, differences, shown, walk_over

pytestmark = [pytest.mark.second_opinion, pytest.mark.timeout(600)]
ROOT = Path(__file__).parent.parent.parent
PROGRAM = Path(__file__).with_name("xstate.mjs")
OTHERS = 10
FOLDER = Path(os.environ.get("PHASEKERNEL_XSTATE") or ROOT / ".proof")
HOW = f"`npm install --prefix {os.path.relpath(FOLDER)} xstate@5` puts it there"


def answer(request: str) -> dict:
    """What the program in Node answers; FileNotFoundError without Node, CalledProcessError when it fails."""
    done = subprocess.run(
        ["node", str(PROGRAM), str(FOLDER)], input=request, capture_output=True, text=True, check=True, timeout=600
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def version(say: Callable[[str], None]) -> str:
    """The version of XState that is here; else a skip that is seen."""
    missing, found = None, ""
    if shutil.which("node") is None:
        missing = "Node is not installed"
    elif not (FOLDER / "node_modules" / "xstate").is_dir():
        missing = f"{FOLDER} has no xstate (PHASEKERNEL_XSTATE names another folder); {HOW}"
    elif not (found := answer("")["version"]).startswith("5."):
        missing = f"{FOLDER} has XState {found} and not 5; {HOW}"
    if missing:
        say(f"XState: SKIPPED, nothing was compared: {missing}")
        pytest.skip(missing)
    return found


def tell(text: str, walks: Sequence[Walk]) -> Told:
    """What XState says to *walks* over the export *text*."""
    plain = [[{"trigger": event.trigger, "yes": event.yes} for event in walk] for walk in walks]
    told = answer(json.dumps({"config": text, "walks": plain}))["told"]
    return [
        [Outcome(each["state"], tuple(each["did"]), each["went"], tuple(each["crossed"])) for each in walk] for walk in told
    ]


def test_xstate_does_what_the_live_machine_does(version: str, ground: Ground, say: Callable[[str], None]):
    """State, ordered actions, whether there was a transition and what was left and entered are equal for each event."""
    began = time.perf_counter()
    found = list(differences(ground, tell(xstate(read()), ground.walks)))
    took = time.perf_counter() - began
    say(f"XState {version}: {len(ground)} events, {len(found)} differences, {took:.1f} s")

    assert found == [], shown(found)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_export_is_found(fault: str, version: str, ground: Ground):
    """The comparison sees what is wrong with an export into which a fault was planted."""
    assert any(differences(ground, tell(xstate(FAULTS[fault](read())), ground.walks)))


@pytest.mark.parametrize("number", range(OTHERS))
def test_other_declarations_are_exported_as_well(number: int, version: str):
    """The exporter is right for declarations at random, also for what ours does not have."""
    rows = declaration(SEED + number)
    over = walk_over(rows, SEED + number, 500)
    found = list(differences(over, tell(xstate(read(PhaseMachine(rows))), over.walks)))

    assert found == [], shown(found)
