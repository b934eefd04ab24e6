"""The settings of the live machine, each pinned."""

import pytest
from transitions.extensions.nesting import NestedState

from statechart import Command, Fact, Guard, Leaf
from statechart.machine import PhaseMachine, SealedError, ask, machine


class Model:
    """A model whose guards all answer the same, and which notes what was done."""

    def __init__(self, leaf: Leaf, answer: bool) -> None:
        self.state = str(leaf)
        self._answer = answer
        self.done: list[str] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return (lambda: self._answer) if name in set(Guard) else lambda: self.done.append(name)


def test_the_triggers_are_exactly_ours():
    """The machine knows our commands and facts and no other trigger, such as `to_idle`."""
    assert set(machine().events) == {*Command, *Fact}


def test_there_are_no_automatic_transitions():
    """Nothing leads around the guards."""
    assert machine().auto_transitions is False


def test_nothing_is_queued():
    """A trigger is decided when it is fired, not later."""
    assert machine().has_queue is False


def test_an_invalid_trigger_is_never_ignored():
    """An unknown trigger is an error of the library and not a silent False."""
    assert not machine().ignore_invalid_triggers


def test_no_model_is_kept():
    """The machine holds on to no agent."""
    assert machine().models == []


def test_names_are_separated_by_dots_on_our_own_class():
    """`follow_up` stays one state, and the library's own separator is as it was."""
    names = machine().get_nested_state_names()

    assert machine().state_cls.separator == "."
    assert NestedState.separator == "_"
    assert Leaf.FOLLOW_UP in names
    assert [name for name in names if name not in set(Leaf)] == ["running", "running.turn"]


def test_actions_run_only_after_the_decision():
    """No transition prepares or acts before, and no state has callbacks."""
    assert [each for each in machine().get_transitions() if each.prepare or each.before] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed.add_transition("prompt", "idle", "closed"),
        lambda sealed: sealed.add_states("elsewhere"),
        lambda sealed: sealed.remove_transition("prompt"),
    ],
    ids=["add a transition", "add a state", "remove a transition"],
)
def test_the_machine_is_sealed(change):
    """Nobody changes the machine after it was built, and the error says what to change instead."""
    with pytest.raises(SealedError, match="statechart"):
        change(PhaseMachine())


def test_a_refusing_guard_is_false_and_changes_nothing():
    """A trigger that a row knows but its guards refuse gives False."""
    model = Model(Leaf.IDLE, answer=False)

    assert ask(model, Command.PROMPT) is False
    assert (model.state, model.done) == (Leaf.IDLE, [])


def test_an_unknown_trigger_is_none_and_changes_nothing():
    """A trigger that no row knows in this leaf gives None."""
    model = Model(Leaf.CLOSED, answer=True)

    assert ask(model, Command.PROMPT) is None
    assert (model.state, model.done) == (Leaf.CLOSED, [])


def test_an_allowed_trigger_moves_and_acts():
    """A trigger that is allowed gives True; the model is where the row says and did what the row says, in that order."""
    model = Model(Leaf.RETRY, answer=True)

    assert ask(model, Fact.BACKOFF_ELAPSED) is True
    assert model.state == Leaf.REQUESTING
    assert model.done == ["end_backoff", "announce_phase", "await_delivery"]


def test_there_is_one_live_machine():
    """The machine is built once in a process."""
    assert machine() is machine()
