"""The declaration keeps its promises, and a declaration that breaks one is told so by name."""

from collections.abc import Callable

import pytest
from attrs import evolve

import statechart.check as checking
from statechart import (
    INTERNAL,
    NO_OP,
    ROWS,
    Action,
    Command,
    Decisions,
    Fact,
    Guard,
    Leaf,
    Phase,
    Refuse,
    Row,
    Step,
    phase_of,
)
from statechart.check import CHECKS, Check, Declaration, check, enabled, leaves_of, levels, report, valuations
from statechart.vocabulary import RUNNING

Rows = tuple[Row, ...]


def found(rows: Rows, name: str) -> str:
    """What the check of that name says about *rows*."""
    (result,) = (result for result in check(Declaration(rows)) if result.check.name == name)
    return "\n".join(result.violations)


def rows_of(trigger: Command | Fact, source: str) -> list[Row]:
    return [row for row in ROWS if row.trigger is trigger and source in row.source]


def without(*gone: Row) -> Rows:
    return tuple(row for row in ROWS if row not in gone)


def changed(row: Row, **changes: object) -> Rows:
    return tuple(evolve(each, **changes) if each is row else each for each in ROWS)


def never_settled() -> Rows:
    return tuple(evolve(row, target=INTERNAL) if row.trigger is Fact.SETTLED else row for row in ROWS)


@pytest.mark.parametrize("each", CHECKS, ids=lambda each: each.name)
def test_the_declaration_keeps_its_promises(each: Check):
    """Every promise holds in every one of its cases, and there are cases."""
    verdicts = list(each.verdicts(Declaration()))

    assert [verdict for verdict in verdicts if verdict is not None] == []
    assert verdicts


CANCEL, SETTLED = rows_of(Command.CANCEL, RUNNING)[0], rows_of(Fact.SETTLED, Leaf.SETTLING)[0]
PROJECTED, RETRY = rows_of(Fact.PROJECTED, Leaf.PROJECTING)[0], rows_of(Fact.BACKOFF_ELAPSED, Leaf.RETRY)[0]
LISTENER = rows_of(Fact.SUBSCRIBER_FAILED, RUNNING)
FINISHING = rows_of(Fact.ADVANCE, Leaf.SETTLING)[0]
UNWOUND = rows_of(Fact.ADVANCE, Leaf.CANCELLING)[0]
BOUNDARY = next(row for row in rows_of(Fact.ADVANCE, Leaf.STEERING) if row.target == Leaf.FOLLOW_UP)

FAULTS: list[tuple[str, Callable[[], Rows], str]] = [
    ("words", lambda: changed(PROJECTED, target="running.turn.nowhere"), "there is no leaf running.turn.nowhere"),
    ("words", lambda: changed(PROJECTED, source="running.turn.nowhere"), "there is no state running.turn.nowhere"),
    ("words", lambda: without(RETRY), "no row uses the fact backoff_elapsed"),
    ("words", lambda: without(PROJECTED), "no row uses the action prepare_request"),
    ("words", lambda: changed(PROJECTED, target=Leaf.PROJECTING), "leaves a state and enters it again"),
    ("words", lambda: changed(PROJECTED, target=NO_OP), "it does something"),
    ("words", lambda: changed(rows_of(Command.SUBSCRIBE, RUNNING)[0], target=INTERNAL), "so it is a no-op"),
    ("words", lambda: changed(rows_of(Command.COMPACT, Leaf.IDLE)[0], when=()), "no row of compact asks compactable"),
    ("total", lambda: without(*rows_of(Command.CANCEL, Leaf.IDLE)), "cancel in idle has no row and no refusal"),
    ("unambiguous", lambda: without(LISTENER[1]), "in running.retry when not fails_run: no row is enabled"),
    ("unambiguous", lambda: (*ROWS, RETRY), "row backoff_elapsed in running.retry to running.turn.requesting and"),
    ("unambiguous", lambda: changed(LISTENER[1], unless=()), "when fails_run: both row subscriber_failed in running to"),
    ("reachable", lambda: without(PROJECTED), "no way leads from idle to running.turn.requesting"),
    ("reachable", never_settled, "no way leads from settling to idle or closed"),
    ("refused", lambda: changed(rows_of(Command.RESET, Leaf.IDLE)[0], source=("idle", "settling")), "reset in settling"),
    ("refused", lambda: changed(rows_of(Command.UNQUEUE, Leaf.IDLE)[0], source=tuple(Leaf)), "unqueue in closed"),
    ("allowed", lambda: without(*rows_of(Command.CANCEL, Leaf.SETTLING)), "cancel in settling: refused"),
    ("announced", lambda: changed(CANCEL, do=(Action.ACCEPT_CANCEL, Action.STOP_WORK)), "row cancel in running to"),
    ("announced", lambda: changed(PROJECTED, do=(Action.ANNOUNCE_PHASE,)), "row projected in running.turn.projecting"),
    ("outcomes", lambda: changed(CANCEL, do=(Action.STOP_WORK,)), "row cancel in running to cancelling: 0 times"),
    ("outcomes", lambda: changed(CANCEL, do=(*CANCEL.do, Action.FAIL)), "row cancel in running to cancelling: 2 times"),
    ("outcomes", lambda: changed(UNWOUND, do=(*UNWOUND.do, Action.COMPLETE)), "row advance in cancelling to settling"),
    ("brackets", lambda: changed(FINISHING, do=(Action.START_GRACE,)), "row advance in settling stays: 0 times finish"),
    ("brackets", lambda: changed(SETTLED, do=(Action.CLOSE, Action.END_RUN)), "end_run is not at its end of the row"),
    ("one way", lambda: changed(UNWOUND, target=Leaf.OPENING), "advance leads from cancelling to running.turn.opening"),
    ("one way", lambda: changed(SETTLED, trigger=Fact.PROJECTED), "projected leads into idle, and only settled may"),
    ("starts", lambda: changed(PROJECTED, do=(Action.SEND_REQUEST,)), "send_request may only be"),
    ("starts", lambda: changed(UNWOUND, do=(Action.SUMMARIZE, *UNWOUND.do)), "row advance in cancelling to settling"),
    ("accepts", lambda: changed(BOUNDARY, do=(Action.ACCEPT_FOLLOW_UP, *BOUNDARY.do)), "outside of a drain point"),
    ("waits", lambda: changed(RETRY, do=RETRY.do[:-1]), "nothing would lead on from running.turn.requesting"),
]


@pytest.mark.parametrize(("name", "rows", "sentence"), FAULTS, ids=[f"{name}: {said}" for name, _, said in FAULTS])
def test_a_planted_fault_is_named(name: str, rows: Callable[[], Rows], sentence: str):
    """A row that is dropped, doubled or wrong is found by the check whose promise it breaks, and named."""
    assert sentence in found(rows(), name)


def test_a_machine_that_does_not_do_what_the_rows_say_is_found(monkeypatch: pytest.MonkeyPatch):
    """A compiled step that differs from its row is a violation, whoever made it differ."""

    def forgetful(machine: object) -> Decisions:
        table = compile_table(machine)
        table[Leaf.RETRY][Fact.BACKOFF_ELAPSED] = Step(Leaf.IDLE, ())
        return table

    compile_table = checking.compile_table
    monkeypatch.setattr(checking, "compile_table", forgetful)

    assert "backoff_elapsed in running.retry: Step(target=<Leaf.IDLE" in found(ROWS, "compiled")


def test_each_check_has_a_planted_fault():
    """No check is believed that was never seen to fail."""
    assert {name for name, _, _ in FAULTS} | {"compiled"} == {each.name for each in CHECKS}


def test_a_declaration_that_can_not_be_compiled_fails_the_checks_that_need_the_table():
    """What can't be checked is no success."""
    rows = changed(PROJECTED, target="running.turn.nowhere")

    assert "can't be checked, since the table can't be compiled" in found(rows, "compiled")


def test_the_report_counts_and_names():
    """The report has a line for each check, a line for each violation, and the sums."""
    lines = report(check(Declaration(without(RETRY)))).splitlines()

    assert any(line.startswith("FAIL words") for line in lines)
    assert "     - no row uses the fact backoff_elapsed" in lines
    assert any(line.startswith("ok   starts") for line in lines)
    assert lines[-1].startswith(f"{len(CHECKS)} checks, ")


def test_a_row_of_a_leaf_hides_those_of_the_states_around_it():
    """The innermost level that has an enabled row decides; when none is enabled there, the next one does."""
    inner = Row(Fact.HALTED, Leaf.TOOLS, INTERNAL, (Action.HALT,), when=(Guard.UNWOUND,))
    given = Declaration((inner, *rows_of(Fact.HALTED, RUNNING)))

    assert enabled(given, Leaf.TOOLS, Fact.HALTED, {Guard.UNWOUND: True}) == [inner]
    assert enabled(given, Leaf.TOOLS, Fact.HALTED, {Guard.UNWOUND: False}) == rows_of(Fact.HALTED, RUNNING)


def test_a_row_of_a_region_is_taken_in_each_of_its_leaves():
    """A row for `running` is for all leaves inside it and for no other."""
    assert leaves_of(CANCEL) == [leaf for leaf in Leaf if leaf.startswith("running.")]
    assert levels(Leaf.TOOLS) == ["running.turn.tools", "running.turn", "running"]


def test_valuations_are_all_of_them():
    """Two guards have four ways to answer, and no guard has one."""
    assert len(list(valuations([Guard.UNWOUND, Guard.FAILS_RUN, Guard.UNWOUND]))) == 4
    assert list(valuations([])) == [{}]


def test_every_phase_is_the_phase_of_a_leaf():
    """What a user sees is where the machine is: no phase is without a leaf, and five leaves are one turn."""
    assert {phase_of(leaf) for leaf in Leaf} == set(Phase)
    assert sum(phase_of(leaf) is Phase.TURN for leaf in Leaf) == 5


@pytest.mark.parametrize("command", [Command.PROMPT, Command.CONTINUE, Command.COMPACT, Command.RESET])
@pytest.mark.parametrize("leaf", [leaf for leaf in Leaf if leaf not in (Leaf.IDLE, Leaf.CLOSED)])
def test_nothing_begins_during_a_run(command: Command, leaf: Leaf):
    """What begins a run or clears the conversation is refused as busy, without asking any guard."""
    assert isinstance(Declaration().table[leaf][command], Refuse)
