"""The compiled table is what the live machine does, and the shipped one is what is compiled."""

import importlib
import json
import pathlib

import pytest
from attrs import evolve

from statechart import ROWS, Command, Leaf, Step, compile_table, decisions
from statechart.check import Declaration, cells, resolve
from statechart.decisions import TRIGGERS, Ask, CannotCompileError, Probe, Refuse, dump, fingerprint, load
from statechart.machine import PhaseMachine, ask
from statechart.vocabulary import Action, Guard, Refusal

deciding = importlib.import_module("statechart.decisions")
"""The module; `statechart.decisions` is the function of that name, once the package is imported."""


class Answering:
    """A model whose guards answer from a valuation, and which notes what was done."""

    def __init__(self, leaf: Leaf, answers: dict[Guard, bool]) -> None:
        self.state = str(leaf)
        self.answers = answers
        self.done: list[str] = []

    def __getattr__(self, name: str) -> object:
        if name in set(Guard):
            return lambda: self.answers[Guard(name)]
        if name in set(Action):
            return lambda: self.done.append(name)
        raise AttributeError(name)


@pytest.fixture
def fresh():
    """`decisions()` without what it remembers, before and after."""
    decisions.cache_clear()
    yield
    decisions.cache_clear()


@pytest.mark.parametrize("leaf", Leaf)
def test_the_live_machine_agrees_with_the_table(leaf: Leaf):
    """For every trigger and every answer of the guards, the machine ends where the table says and did the same."""
    table = decisions()
    for _, trigger, answers in (cell for cell in cells(Declaration(), TRIGGERS) if cell[0] is leaf):
        model = Answering(leaf, dict(answers))
        went = ask(model, trigger)
        decision = resolve(table[leaf].get(trigger), answers)
        if isinstance(decision, Step):
            assert (went, model.state, model.done) == (True, decision.target, list(decision.do)), (trigger, answers)
        else:
            assert (bool(went), model.state, model.done) == (False, leaf, []), (trigger, answers)
            assert isinstance(decision, Refuse) == isinstance(trigger, Command), (trigger, answers)


def test_the_shipped_table_is_up_to_date():
    """What is shipped is what compiling gives now; else `python -m statechart draw` is due."""
    shipped = json.loads(pathlib.Path(deciding.__file__).with_name(deciding.SHIPPED).read_text())

    assert shipped["fingerprint"] == fingerprint()
    assert load(shipped) == compile_table()


def test_the_shipped_table_is_used(fresh, monkeypatch: pytest.MonkeyPatch):
    """While the fingerprint fits, nothing is compiled."""
    monkeypatch.setattr(deciding, "compile_table", lambda: pytest.fail("compiled"))

    assert set(decisions()) == set(Leaf)


def test_another_declaration_is_compiled_anew(fresh, monkeypatch: pytest.MonkeyPatch):
    """When the fingerprint does not fit, the live machine is asked and not the file."""
    monkeypatch.setattr(deciding, "fingerprint", lambda: "another")
    monkeypatch.setattr(deciding, "load", lambda text: pytest.fail("loaded"))

    assert decisions() == compile_table()


def test_without_a_shipped_table_it_is_compiled(fresh, monkeypatch: pytest.MonkeyPatch):
    """A missing file costs time and nothing else."""
    monkeypatch.setattr(deciding, "SHIPPED", "missing.json")

    assert decisions() == compile_table()


def test_dump_and_load_are_opposites():
    """A table survives the way to JSON and back."""
    table = compile_table()

    assert load(json.loads(json.dumps(dump(table)))) == table


def test_a_hole_survives_the_file():
    """A table with a hole is dumped and loaded as it is, so that the checks can find the hole."""
    table = {Leaf.RETRY: {"settled": Ask(Guard.UNWOUND, Refuse(Refusal.BUSY), None)}}

    assert load(json.loads(json.dumps(dump(table)))) == table


def test_a_command_without_its_refusal_is_refused():
    """A guard that keeps a command from happening needs an error that says so."""
    row = next(row for row in ROWS if row.trigger is Command.RESET)

    with pytest.raises(CannotCompileError, match="reset in idle has no refusal for when unwound says no"):
        compile_table(PhaseMachine((evolve(row, when=(Guard.UNWOUND,)), *(each for each in ROWS if each is not row))))


def test_the_fingerprint_sees_each_row():
    """A declaration with one row less, or in another order, has another fingerprint."""
    assert len({fingerprint(), fingerprint(ROWS[1:]), fingerprint(ROWS[::-1])}) == 3


@pytest.mark.parametrize("callbacks", ["before_state_change", "prepare_event", "finalize_event", "on_exception"])
def test_callbacks_of_the_machine_are_refused(callbacks: str):
    """A table can't say what a machine does around every step."""
    machine = PhaseMachine()
    setattr(machine, callbacks, ["announce_phase"])

    with pytest.raises(CannotCompileError, match="callbacks of its own"):
        compile_table(machine)


@pytest.mark.parametrize("callbacks", ["on_enter", "on_exit"])
def test_callbacks_of_a_state_are_refused(callbacks: str):
    """A table can't say what a state does when it is entered or left."""
    machine = PhaseMachine()
    setattr(machine.get_state(str(Leaf.TOOLS)), callbacks, ["announce_phase"])

    with pytest.raises(CannotCompileError, match=r"running\.turn\.tools has callbacks"):
        compile_table(machine)


@pytest.mark.parametrize("callbacks", ["prepare", "before"])
def test_actions_before_the_decision_are_refused(callbacks: str):
    """A transition acts after it was decided or not at all."""
    machine = PhaseMachine()
    setattr(machine.get_transitions("prompt")[0], callbacks, ["announce_phase"])

    with pytest.raises(CannotCompileError, match="acts before it is decided"):
        compile_table(machine)


def test_a_transition_onto_itself_is_refused():
    """The table has no word for leaving a state and entering it again."""
    machine = PhaseMachine()
    machine.get_transitions("prompt")[0].dest = "idle"

    with pytest.raises(CannotCompileError, match="leaves and enters it again"):
        compile_table(machine)


def test_a_probe_has_guards_and_actions_only():
    """A misspelt guard is an error and not a silent yes."""
    with pytest.raises(AttributeError):
        Probe("idle", ()).has_sterring  # noqa: B018
