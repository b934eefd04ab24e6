"""A second opinion: spin goes through the same states by the same steps, and finds the promises kept."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import asdict, evolve, frozen

from statechart import INTERNAL, NO_OP, ROWS, Action, Command, Decisions, Fact, Guard, Leaf, Row, compile_table
from statechart.explore import Exploration, explore, moves
from statechart.exports import promela_meaning
from statechart.exports.promela import TRIGGERS, promela
from statechart.exports.promela_promises import PROPERTIES
from statechart.machine import PhaseMachine
from statechart.world import VECTOR, Bounds, pack, unpack
from tests.statechart import test_model as plain

pytestmark = [pytest.mark.second_opinion, pytest.mark.timeout(1800)]
LEAST = Bounds(queue=1, commands=2, turns=1, attempts=1, calls=1)
MIDDLE = Bounds(queue=2, commands=4, turns=2, attempts=2, calls=2)
DEPTH = 2_000_000
A, C, F, G = Action, Command, Fact, Guard
Moved = tuple[str, bytes, bytes]
"""A trigger, and the states before and after it."""


@pytest.fixture(scope="session")
def version(say: Callable[[str], None]) -> str:
    """The version of spin that is here; else a skip that is seen."""
    lacking = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if lacking:
        missing = f"{' and '.join(lacking)} can't be found; `apt-get install spin gcc` installs what is needed"
        say(f"spin: SKIPPED, nothing was checked: {missing}")
        pytest.skip(missing)
    said = subprocess.run(["spin", "-V"], capture_output=True, text=True, check=True).stdout
    return said.split()[2]


@frozen
class Found:
    """What spin came to: errors, and states that it stored."""

    errors: int
    stored: int
    output: str


class Verifier:
    """A model as a program that goes through its states, built by spin and gcc in *folder*."""

    def __init__(self, text: str, folder: Path, *defined: str, flags: tuple[str, ...] = ()) -> None:
        self.folder = folder
        (folder / "lifecycle.pml").write_text(text)
        self._run("spin", "-o2", *(f"-D{name}" for name in defined), "-a", "lifecycle.pml")
        self._run("gcc", "-w", "-DNOREDUCE", *(f"-D{flag}" for flag in flags), "-o", "pan", "pan.c")

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def search(self, *options: str) -> Found:
        """Go through all states; a search that was cut short is no search."""
        output = self._run("./pan", f"-m{DEPTH}", *options)
        assert "max search depth too small" not in output
        assert "Search not completed" not in output or "errors: 0" not in output
        errors, stored = re.search(r"errors: (\d+)", output), re.search(r"(\d+) states, stored", output)
        assert errors is not None, output[-2000:]
        assert stored is not None, output[-2000:]
        return Found(int(errors[1]), int(stored[1]), output)

    def holds(self, name: str) -> Found:
        """Whether a formula holds."""
        return self.search("-a", "-N", name)


def bare(table: Decisions, bounds: Bounds, folder: Path) -> Verifier:
    return Verifier(promela(table, bounds), folder, "BARE", flags=("SAFETY",))


def steps_of_spin(table: Decisions, bounds: Bounds, folder: Path) -> set[Moved]:
    """Every step that spin makes."""
    traced = Verifier(promela(table, bounds), folder, "BARE", "TRACED", flags=("SAFETY", "PRINTF"))
    steps = set()
    for line in traced.search().output.splitlines():
        if line.startswith("step "):
            number, *numbers = map(int, line.split()[1:])
            steps.add((str(TRIGGERS[number - 1]), bytes(numbers[: len(VECTOR)]), bytes(numbers[len(VECTOR) :])))
    return steps


def steps_of(explored: Exploration) -> set[Moved]:
    """Every step that the exploration makes."""
    return {
        (str(way.trigger), state, pack(after))
        for state in explored.states
        for before in (unpack(state),)
        for way, after, _ in moves(explored.model, before)
        if after is not before
    }


def shown(steps: set[Moved]) -> list[str]:
    """The first steps that only one of them has, in words."""
    return [
        f"{trigger}: " + ", ".join(f"{n} {a} → {b}" for n, a, b in zip(VECTOR, before, after, strict=True) if a or b)
        for trigger, before, after in sorted(steps)[:5]
    ]


@pytest.mark.parametrize("bounds", [LEAST, MIDDLE, Bounds()], ids=["least", "middle", "default"])
def test_spin_stores_as_many_states_as_are_explored(
    bounds: Bounds, version: str, table: Decisions, say: Callable[[str], None], tmp_path: Path
):
    """Within the same bounds both come to the same number of states."""
    verifier = bare(table, bounds, tmp_path)
    began = time.perf_counter()
    found = verifier.search()
    took = time.perf_counter() - began
    explored = explore(table, bounds)
    say(f"spin {version}: {found.stored} states, explored {explored.summary}, {took:.1f} s")

    assert (found.stored, found.errors) == (len(explored.states), 0)


def test_spin_makes_the_same_steps(version: str, table: Decisions, say: Callable[[str], None], tmp_path: Path):
    """Each step of either is one of the other: the same trigger, from the same state to the same state."""
    ours, theirs = steps_of(explore(table, MIDDLE)), steps_of_spin(table, MIDDLE, tmp_path)
    say(f"spin {version}: {len(theirs)} different steps, {len(ours ^ theirs)} differences")

    assert (shown(ours - theirs), shown(theirs - ours)) == ([], [])


MEANINGS = [
    (promela_meaning.GUARDS, G.TURN_LEFT, "turn <= TURNS"),
    (promela_meaning.ACTIONS, A.TAKE_HOOK, "hooks--"),
    (promela_meaning.ACTIONS, A.START_GRACE, "grace = TICKING"),
    (promela_meaning.SAYS, F.HALTED, "has_run"),
]


@pytest.mark.parametrize(("meanings", "word", "text"), MEANINGS, ids=[word for _, word, _ in MEANINGS])
def test_another_meaning_makes_other_steps(
    meanings: dict, word: str, text: str, version: str, table: Decisions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The comparison sees it when a guard, an action or a fact means something else to spin."""
    bounds = evolve(plain.SMALL, calls=2)
    monkeypatch.setitem(meanings, word, text)

    assert steps_of_spin(table, bounds, tmp_path) != steps_of(explore(table, bounds))


def test_the_promises_hold(version: str, table: Decisions, say: Callable[[str], None], tmp_path: Path):
    """Every formula holds in every run of the model."""
    verifier = Verifier(promela(table, MIDDLE), tmp_path)
    began = time.perf_counter()
    found = {each.name: verifier.holds(each.name) for each in PROPERTIES}
    took = time.perf_counter() - began
    bounds = ", ".join(f"{name} {value}" for name, value in asdict(MIDDLE).items())
    most = max(each.stored for each in found.values())
    broken = [name for name, each in found.items() if each.errors]
    say(f"spin {version}: {len(found)} LTL formulas, {len(broken)} broken, up to {most} states ({bounds}), {took:.1f} s")

    assert broken == []


LOOP = plain.the(F.SUMMARY_FAILED, Leaf.COMPACTION, Leaf.OPENING)
FAULTS: dict[str, tuple[Row, ...]] = {
    "ends": plain.changed(LOOP, target=INTERNAL, do=(A.FAIL_COMPACTION, A.START_COMPACTION, A.AWAIT_DELIVERY)),
    "finished_once": plain.changed(plain.FINISH, do=(A.FINISH, A.AWAIT_DELIVERY)),
    "decided_once": plain.changed(plain.UNWOUND, do=(A.COMPLETE, *plain.UNWOUND.do)),
    "begins": (*ROWS, evolve(plain.PROMPT, source=Leaf.STEERING)),
    "drain_points": plain.changed(plain.BATCH, do=(A.ADVANCE_BATCH, A.ACCEPT_STEERING)),
    "follow_ups": tuple(row for row in plain.changed(plain.FOLLOWED, unless=()) if row is not plain.STEERED),
    "conserved": plain.changed(plain.STEER, Row(C.STEER, Leaf.CANCELLING, NO_OP), source=plain.ELSEWHERE),
    "cancel_answered": (*ROWS, Row(C.CANCEL, Leaf.TOOLS, NO_OP)),
    "cancel_settles": plain.changed(plain.CANCEL, do=(A.ACCEPT_CANCEL, *plain.CANCEL.do[2:])),
    "stays_stopped": plain.changed(plain.WAITING, target=INTERNAL, do=(A.SEND_REQUEST,)),
    "delivered_first": plain.changed(plain.PROJECTED, do=(*plain.PROJECTED.do[:-1], A.SEND_REQUEST)),
    "one_thing": plain.changed(plain.ASK_STOP, do=(A.ASK_STOP, A.AWAIT_DELIVERY)),
    "outcome_held": plain.changed(plain.COMPLETE, do=plain.COMPLETE.do[1:]),
    "nothing_open": tuple(row for row in plain.changed(plain.UNWOUND, when=()) if row is not plain.WAITING),
    "closes": tuple(row for row in plain.changed(plain.TO_IDLE, unless=()) if row is not plain.TO_CLOSED),
    "answered": plain.without(plain.LATE),
    "relies": plain.changed(plain.BACKOFF, do=plain.BACKOFF.do[:-1]),
}
"""Declarations with a fault, by the formula that it breaks."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_breaks_its_promise(name: str, version: str, tmp_path: Path):
    """Spin finds the fault of a declaration that was broken for it, and so does the exploration."""
    table = compile_table(PhaseMachine(FAULTS[name]))
    found = Verifier(promela(table, plain.SMALL), tmp_path).holds(name)

    assert found.errors > 0
    assert explore(table, plain.SMALL).broken != {}


def test_each_promise_has_a_planted_fault(version: str, say: Callable[[str], None]):
    """No formula is believed that was never seen to be broken."""
    say(f"spin {version}: {len(FAULTS)} planted faults, each by the formula that it breaks")

    assert set(FAULTS) == {each.name for each in PROPERTIES}
