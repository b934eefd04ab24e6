"""The promises of the declaration, each proved by looking at every case there is.

A check goes through its cases and gives for each one either None, when the promise holds, or the sentence that says which
row or cell breaks it. The rows are evaluated here a second time, by ten lines of our own that know nothing of the library;
what `transitions` does with them has to be the same for every leaf, trigger and answer of the guards.

Weak point: a guard is a name here. That two guards can't both be true, or that a guard turns false in the end, is not
known to these checks; `statechart.explore` gives them a meaning.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from attrs import frozen

from statechart.decisions import (
    TRIGGERS,
    Ask,
    CannotCompileError,
    Decision,
    Decisions,
    Refuse,
    Step,
    compile_table,
)
from statechart.machine import PhaseMachine
from statechart.table import INTERNAL, NO_OP, REFUSED_BY_GUARD, REFUSED_BY_PHASE, ROWS, Row
from statechart.vocabulary import RUNNING, Action, Command, Fact, Guard, Leaf, Phase, Refusal, phase_of

LEAVES: Final = frozenset(map(str, Leaf))

Verdict = str | None
Valuation = Mapping[Guard, bool]


@frozen
class Declaration:
    """What is checked: the rows, and the table that the machine of `transitions` makes of them."""

    rows: tuple[Row, ...] = ROWS

    @functools.cached_property
    def table(self) -> Decisions:
        """The compiled table; an error says what could not be compiled."""
        try:
            return compile_table(PhaseMachine(self.rows))
        except (ValueError, AttributeError) as problem:  # how the library speaks of unknown states and triggers
            raise CannotCompileError(str(problem)) from problem

    def rows_at(self, state: str, trigger: Command | Fact) -> list[Row]:
        """The rows for *trigger* that are written for this very state."""
        return [row for row in self.rows if row.trigger is trigger and state in row.source]


class Promise(Protocol):
    """A promise by its name, and in a sentence."""

    @property
    def name(self) -> str: ...
    @property
    def promise(self) -> str: ...


@frozen
class Check:
    """A promise, and how to find out for each of its cases whether it holds."""

    name: str
    promise: str
    verdicts: Callable[[Declaration], Iterator[Verdict]]


@frozen
class Result:
    """What a check found."""

    check: Promise
    cases: int
    violations: tuple[str, ...]


def check(declaration: Declaration | None = None) -> list[Result]:
    """Run all checks on the declaration of the package (or on *declaration*)."""
    given = declaration if declaration is not None else Declaration()
    return [_run(each, given) for each in CHECKS]


def _run(each: Check, given: Declaration) -> Result:
    try:
        verdicts = list(each.verdicts(given))
    except CannotCompileError as problem:
        verdicts = [f"can't be checked, since the table can't be compiled: {problem}"]
    return Result(each, len(verdicts), tuple(verdict for verdict in verdicts if verdict is not None))


def report(results: Iterable[Result]) -> str:
    """The results as text: a line for each check, a line for each violation, and the sums."""
    found = list(results)
    lines = []
    for result in found:
        mark = "FAIL" if result.violations else "ok"
        lines.append(f"{mark:4} {result.check.name:18} {result.cases:6} cases  {result.check.promise}")
        lines += [f"     - {violation}" for violation in result.violations]
    broken = sum(len(result.violations) for result in found)
    lines.append(f"{len(found)} checks, {sum(result.cases for result in found)} cases, {broken} violations")
    return "\n".join(lines)


# How rows decide, said without the library.


def levels(leaf: Leaf) -> list[str]:
    """The leaf and the states around it, from the inside out."""
    parts = leaf.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def leaves_of(row: Row) -> list[Leaf]:
    """The leaves in which a row may be taken."""
    return [leaf for leaf in Leaf if any(state in row.source for state in levels(leaf))]


def valuations(guards: Iterable[Guard]) -> Iterator[Valuation]:
    """All answers that *guards* can give."""
    names = sorted(set(guards))
    return (dict(zip(names, answers, strict=True)) for answers in itertools.product((True, False), repeat=len(names)))


def first_no(row: Row, answers: Valuation) -> Guard | None:
    """The first guard that keeps a row from being taken; None when it is enabled."""
    refusing = [guard for guard in row.when if not answers[guard]] + [guard for guard in row.unless if answers[guard]]
    return refusing[0] if refusing else None


def enabled(given: Declaration, leaf: Leaf, trigger: Command | Fact, answers: Valuation) -> list[Row]:
    """The enabled rows of the innermost level that has one."""
    for state in levels(leaf):
        if rows := [row for row in given.rows_at(state, trigger) if first_no(row, answers) is None]:
            return rows
    return []


def expected(given: Declaration, leaf: Leaf, trigger: Command | Fact, answers: Valuation) -> Decision:
    """What the rows say happens."""
    if rows := enabled(given, leaf, trigger, answers):
        target = leaf if rows[0].target in (INTERNAL, NO_OP) else Leaf(str(rows[0].target))
        return Step(target, rows[0].do)
    if isinstance(trigger, Fact):
        return None
    if rows := _all_rows(given, leaf, trigger):
        guard = first_no(rows[-1], answers)
        assert guard is not None
        return Refuse(REFUSED_BY_GUARD[trigger, guard])
    return Refuse(next(REFUSED_BY_PHASE[state] for state in levels(leaf) if state in REFUSED_BY_PHASE))


def resolve(decision: Decision, answers: Valuation) -> Decision:
    """Where a compiled decision ends when the guards answer so."""
    while isinstance(decision, Ask):
        decision = decision.yes if answers[decision.guard] else decision.no
    return decision


def _all_rows(given: Declaration, leaf: Leaf, trigger: Command | Fact) -> list[Row]:
    return [row for state in levels(leaf) for row in given.rows_at(state, trigger)]


def cells(given: Declaration, triggers: Iterable[Command | Fact]) -> Iterator[tuple[Leaf, Command | Fact, Valuation]]:
    """Every leaf, trigger and answer of the guards that the rows there ask."""
    for leaf, trigger in itertools.product(Leaf, triggers):
        asked = {guard for row in _all_rows(given, leaf, trigger) for guard in (*row.when, *row.unless)}
        for answers in valuations(asked):
            yield leaf, trigger, answers


def steps(given: Declaration) -> Iterator[tuple[Leaf, Command | Fact, Step]]:
    """Every step that the compiled table can take."""
    for leaf, trigger, answers in cells(given, TRIGGERS):
        outcome = resolve(given.table[leaf].get(trigger), answers)
        if isinstance(outcome, Step):
            yield leaf, trigger, outcome


def describe(row: Row) -> str:
    """A row in one line, so that it can be found."""
    where = ", ".join(row.source)
    guards = [*row.when, *(f"not {guard}" for guard in row.unless)]
    way = {INTERNAL: "stays", NO_OP: "does nothing"}.get(row.target, f"to {row.target}")
    return f"row {row.trigger} in {where} {way}" + (f" when {' and '.join(guards)}" if guards else "")


def _saying(answers: Valuation) -> str:
    return f" when {' and '.join(g if yes else f'not {g}' for g, yes in answers.items())}" if answers else ""


# The table as a whole.


def _words(given: Declaration) -> Iterator[Verdict]:
    states = {state for leaf in Leaf for state in levels(leaf)}
    targets = {INTERNAL, NO_OP, *LEAVES}
    for row in given.rows:
        yield from (None if s in states else f"{describe(row)}: there is no state {s}" for s in row.source)
        yield None if row.target in targets else f"{describe(row)}: there is no leaf {row.target}"
        yield None if row.target != NO_OP or not row.do else f"{describe(row)}: it does something"
        yield None if row.target is not INTERNAL or row.do else f"{describe(row)}: it does nothing, so it is a no-op"
        yield None if row.target not in row.source else f"{describe(row)}: it leaves a state and enters it again"
    used = {word for row in given.rows for word in (row.trigger, *row.when, *row.unless, *row.do)}
    for word in (*TRIGGERS, *Guard, *Action):
        yield None if word in used else f"no row uses the {type(word).__name__.lower()} {word}"
    for (command, guard), refusal in REFUSED_BY_GUARD.items():
        asked = any(guard in (*row.when, *row.unless) for row in given.rows if row.trigger is command)
        yield None if asked else f"{refusal} is for {command} when {guard} says no, and no row of {command} asks {guard}"


def _total(given: Declaration) -> Iterator[Verdict]:
    for leaf, command, answers in cells(given, Command):
        outcome = resolve(given.table[leaf].get(command), answers)
        answered = isinstance(outcome, Step | Refuse)
        yield None if answered else f"{command} in {leaf}{_saying(answers)}: no step and no refusal"


def _unambiguous(given: Declaration) -> Iterator[Verdict]:
    for leaf, trigger, answers in cells(given, TRIGGERS):
        rows = enabled(given, leaf, trigger, answers)
        if len(rows) > 1:
            yield f"in {leaf}{_saying(answers)}: both {' and '.join(map(describe, rows))} are enabled"
        elif not rows and isinstance(trigger, Fact) and _all_rows(given, leaf, trigger):
            yield f"{trigger} in {leaf}{_saying(answers)}: no row is enabled, although rows know it"
        else:
            yield None


def _compiled(given: Declaration) -> Iterator[Verdict]:
    for leaf, trigger, answers in cells(given, TRIGGERS):
        is_so, should = resolve(given.table[leaf].get(trigger), answers), expected(given, leaf, trigger, answers)
        yield None if is_so == should else f"{trigger} in {leaf}{_saying(answers)}: {is_so} and not {should}"


def _reachable(given: Declaration) -> Iterator[Verdict]:
    ways: dict[Leaf, set[Leaf]] = {leaf: set() for leaf in Leaf}
    for leaf, _, step in steps(given):
        ways[leaf].add(step.target)
    reached = _reach(ways, Leaf.IDLE)
    for leaf in Leaf:
        yield None if leaf in reached else f"no way leads from idle to {leaf}"
        yield None if _reach(ways, leaf) & {Leaf.IDLE, Leaf.CLOSED} else f"no way leads from {leaf} to idle or closed"


def _reach(ways: Mapping[Leaf, set[Leaf]], start: Leaf) -> set[Leaf]:
    reached, waiting = {start}, [start]
    while waiting:
        found = ways[waiting.pop()] - reached
        reached |= found
        waiting += found
    return reached


# What commands may rely on.

BEGINNING: Final = (Command.PROMPT, Command.CONTINUE, Command.COMPACT, Command.RESET)
ALWAYS: Final = (Command.CANCEL, Command.WAIT_FOR_IDLE, Command.CLOSE)
WHILE_OPEN: Final = (Command.UNQUEUE, Command.CLEAR_QUEUES, Command.CONFIGURE, Command.SUBSCRIBE)


def _refused(given: Declaration) -> Iterator[Verdict]:
    for leaf, command, answers in cells(given, Command):
        outcome, refusal = resolve(given.table[leaf].get(command), answers), None
        if leaf is Leaf.CLOSED and command not in ALWAYS:
            refusal = Refusal.CLOSED
        elif leaf not in (Leaf.IDLE, Leaf.CLOSED) and command in BEGINNING:
            refusal = Refusal.BUSY
        if refusal is not None:
            yield None if outcome == Refuse(refusal) else f"{command} in {leaf}{_saying(answers)}: not {refusal}"


def _allowed(given: Declaration) -> Iterator[Verdict]:
    for leaf, command, answers in cells(given, (*ALWAYS, *WHILE_OPEN)):
        if command in ALWAYS or leaf is not Leaf.CLOSED:
            outcome = resolve(given.table[leaf].get(command), answers)
            yield None if isinstance(outcome, Step) else f"{command} in {leaf}{_saying(answers)}: refused"


# What a run may rely on.

ENDS: Final = frozenset({Leaf.CANCELLING, Leaf.SETTLING})
OUTCOMES: Final = frozenset(
    {
        Action.COMPLETE, Action.STOP, Action.EXHAUST_TURNS, Action.FAIL, Action.FAIL_RESPONSE, Action.REFUSE_RESPONSE,
        Action.ACCEPT_CANCEL, Action.FAIL_BY_DEADLINE, Action.FAIL_BY_LISTENER, Action.FAIL_BY_USAGE,
        Action.FAIL_BY_OUTPUT, Action.HALT,
    }
)  # fmt: skip
STARTS: Final = {
    Action.PROJECT: Leaf.OPENING,
    Action.SEND_REQUEST: Leaf.REQUESTING,
    Action.ADVANCE_BATCH: Leaf.TOOLS,
    Action.ASK_STOP: Leaf.STEERING,
    Action.CHECK_OUTPUT: Leaf.FOLLOW_UP,
    Action.SUMMARIZE: Leaf.COMPACTION,
}
ACCEPTS: Final = frozenset(action for action in Action if action.startswith("accept_")) - {Action.ACCEPT_CANCEL}
WAITING: Final = frozenset(Leaf) - {Leaf.IDLE, Leaf.PROJECTING, Leaf.STREAMING, Leaf.TOOLS, Leaf.RETRY, Leaf.CLOSED}
EXITS: Final = {
    Leaf.CANCELLING: {Leaf.CANCELLING, Leaf.SETTLING},
    Leaf.SETTLING: {Leaf.SETTLING, Leaf.IDLE, Leaf.CLOSED},
    Leaf.CLOSED: {Leaf.CLOSED},
}


def _from_running(row: Row) -> bool:
    return any(leaf.startswith(f"{RUNNING}.") for leaf in leaves_of(row))


def _counted(row: Row, actions: frozenset[Action], count: int) -> Verdict:
    """Whether a row has exactly *count* of *actions*."""
    found = [action for action in row.do if action in actions]
    names = " or ".join(sorted(actions)) if len(actions) < 4 else "action that decides an outcome"
    return None if len(found) == count else f"{describe(row)}: {len(found)} times {names} and not {count}"


def _announced(given: Declaration) -> Iterator[Verdict]:
    for row in given.rows:
        for leaf in leaves_of(row):
            target = leaf if row.target in (INTERNAL, NO_OP) else row.target
            moves = target not in LEAVES or phase_of(Leaf(target)) not in (phase_of(leaf), Phase.IDLE, Phase.CLOSED)
            yield _counted(row, frozenset({Action.ANNOUNCE_PHASE}), int(moves))


def _outcomes(given: Declaration) -> Iterator[Verdict]:
    for row in given.rows:
        undoes = Guard.UNDOES_OUTCOME in row.when
        yield _counted(row, OUTCOMES, int(undoes or (_from_running(row) and row.target in ENDS)))


def _brackets(given: Declaration) -> Iterator[Verdict]:
    for row in given.rows:
        begins = row.source == (Leaf.IDLE,) and str(row.target).startswith(f"{RUNNING}.")
        yield _counted(row, frozenset({Action.BEGIN_RUN}), int(begins))
        finishes = row.source == (Leaf.SETTLING,) and row.trigger is Fact.ADVANCE
        yield _counted(row, frozenset({Action.FINISH}), int(finishes))
        yield _counted(row, frozenset({Action.END_RUN}), int(row.source == (Leaf.SETTLING,) and row.target in LEAVES))
        yield _counted(row, frozenset({Action.STOP_WORK}), int(row.target == Leaf.CANCELLING))
        for action, place in ((Action.BEGIN_RUN, 0), (Action.END_RUN, 0), (Action.FINISH, -1)):
            if action in row.do:
                yield None if row.do[place] is action else f"{describe(row)}: {action} is not at its end of the row"


def _one_way(given: Declaration) -> Iterator[Verdict]:
    for leaf, trigger, step in steps(given):
        allowed = EXITS.get(leaf, set(Leaf) - {Leaf.IDLE})
        if leaf is Leaf.IDLE:
            allowed = set(Leaf) - ENDS
        yield None if step.target in allowed else f"{trigger} leads from {leaf} to {step.target}"
        if step.target is Leaf.IDLE and leaf is not Leaf.IDLE:
            yield None if trigger is Fact.SETTLED else f"{trigger} leads into idle, and only settled may"


def _starts(given: Declaration) -> Iterator[Verdict]:
    for row in given.rows:
        for action in STARTS.keys() & set(row.do):
            alone = row.trigger is Fact.ADVANCE and row.do == (action,) and row.source == (STARTS[action],)
            yield None if alone else f"{describe(row)}: {action} may only be, and be alone, in advance in {STARTS[action]}"


def _accepts(given: Declaration) -> Iterator[Verdict]:
    for row in given.rows:
        found = [action for action in row.do if action in ACCEPTS]
        opens = row.target == Leaf.OPENING or (row.target is INTERNAL and row.source == (Leaf.OPENING,))
        yield None if len(found) <= opens else f"{describe(row)}: {' and '.join(found)}, outside of a drain point"


def _waits(given: Declaration) -> Iterator[Verdict]:
    for row in given.rows:
        if row.target in WAITING:
            last = row.do[-1] if row.do else None
            yield None if last is Action.AWAIT_DELIVERY else f"{describe(row)}: nothing would lead on from {row.target}"


CHECKS: Final = (
    Check("words", "every word is used, every state exists, nothing leaves a state only to enter it again", _words),
    Check("total", "every command has a step or a typed refusal, everywhere and for all answers of guards", _total),
    Check("unambiguous", "at most one row is enabled; exactly one for a fact that is known there", _unambiguous),
    Check("compiled", "the machine of transitions does what the rows say", _compiled),
    Check("reachable", "every leaf can be reached, and from each one idle or closed", _reachable),
    Check("refused", "what begins something is AGENT_BUSY during a run, and a closed agent is AGENT_CLOSED", _refused),
    Check("allowed", "cancel, wait_for_idle and close are never refused; lesser commands only when closed", _allowed),
    Check("announced", "a change of phase is announced once, but for those into idle and closed", _announced),
    Check("outcomes", "whatever ends a run decides its outcome exactly once, and nothing else does", _outcomes),
    Check("brackets", "a run begins, stops its work, finishes and ends exactly where it should", _brackets),
    Check("one way", "cancelling leads to settling, settling to idle or closed, and only settled into idle", _one_way),
    Check("starts", "hooks, requests, tools and summaries start alone, after advance, in their own leaf", _starts),
    Check("accepts", "messages enter at drain points only, from one source at a time", _accepts),
    Check("waits", "a row into a leaf that only advance leads on from asks for it, last of all", _waits),
)
"""All checks, in the order of the report. A new one is a line here."""
