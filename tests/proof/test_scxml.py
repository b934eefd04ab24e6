"""A second opinion: python-statemachine runs the exported SCXML and does what the live machine does."""

import contextlib
import importlib
import importlib.metadata
import io
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from statechart.exports.scxml import scxml
from statechart.exports.structure import read
from statechart.machine import PhaseMachine
from statechart.vocabulary import Guard
from tests.proof.walks import FAULTS, SEED, Ground, Outcome, Walk, declaration, differences, shown, walk_over

pytestmark = [pytest.mark.second_opinion, pytest.mark.timeout(600)]
OTHERS = 10


@pytest.fixture(scope="session")
def version(say: Callable[[str], None]) -> str:
    """The version of python-statemachine that is here; else a skip that is seen."""
    try:
        found = importlib.metadata.version("python-statemachine")
    except importlib.metadata.PackageNotFoundError:
        found = ""
    if not found.startswith("3."):
        instead = f", but {found}" if found else ""
        missing = f"python-statemachine 3 is not installed{instead}; `pip install -e '.[proof]'` does that"
        say(f"python-statemachine: SKIPPED, nothing was compared: {missing}")
        pytest.skip(missing)
    return found


class Watch:
    """A listener that notes what a machine leaves and enters, and whether it had a transition."""

    def __init__(self) -> None:
        self.crossed: list[str] = []
        self.went = False

    def on_exit_state(self, state) -> None:
        self.crossed.append(f"-{state.id}")

    def on_enter_state(self, state) -> None:
        self.crossed.append(f"+{state.id}")

    def after_transition(self) -> None:
        self.went = True


def tell(text: str, walks: Iterable[Walk]) -> Iterator[list[Outcome]]:
    """What python-statemachine says to *walks* over the document *text*; an error in a guard is raised, not an event."""
    chart = importlib.import_module("statemachine.io").load(text, format="scxml")
    chart.catch_errors_as_events = False
    return (_tell(chart, walk) for walk in walks)


def _tell(chart, walk: Walk) -> list[Outcome]:
    watch = Watch()
    machine, outcomes = chart(listeners=[watch]), []
    for event in walk:
        watch.crossed, watch.went = [], False
        for guard in Guard:
            setattr(machine.model, guard, guard in event.yes)
        with contextlib.redirect_stdout(io.StringIO()) as done:
            machine.send(event.trigger)
        innermost = max(machine.configuration_values, key=len)
        outcomes.append(Outcome(innermost, tuple(done.getvalue().split()), watch.went, tuple(watch.crossed)))
    return outcomes


def test_python_statemachine_does_what_the_live_machine_does(version: str, ground: Ground, say: Callable[[str], None]):
    """State, ordered actions, whether there was a transition and what was left and entered are equal for each event."""
    began = time.perf_counter()
    found = list(differences(ground, tell(scxml(read()), ground.walks)))
    took = time.perf_counter() - began
    say(f"python-statemachine {version}: {len(ground)} events, {len(found)} differences, {took:.1f} s")

    assert found == [], shown(found)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_export_is_found(fault: str, version: str, ground: Ground):
    """The comparison sees what is wrong with an export into which a fault was planted."""
    assert any(differences(ground, tell(scxml(FAULTS[fault](read())), ground.walks)))


@pytest.mark.parametrize("number", range(OTHERS))
def test_other_declarations_are_exported_as_well(number: int, version: str):
    """The exporter is right for declarations at random, also for what ours does not have."""
    rows = declaration(SEED + number)
    over = walk_over(rows, SEED + number, 500)
    found = list(differences(over, tell(scxml(read(PhaseMachine(rows))), over.walks)))

    assert found == [], shown(found)
