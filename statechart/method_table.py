"""The method × phase table as Markdown: what each public method and each fact does wherever the machine may be.

It is read off the compiled decisions, so it says what will happen and not what a row hopes for. A guard is shown in the
shortest condition that is true in exactly the same cases; the last answer of a cell, without brackets, is for all other
cases. A cell with several answers that occurs more than once is said once, in a note.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Final

from attrs import frozen

from statechart.decisions import Ask, Decision, Decisions, Refuse, Step
from statechart.vocabulary import Command, Fact, Guard, Leaf, Phase, phase_of

Literals = frozenset[tuple[Guard, bool]]
"""Guards and the answers that they must give, all of them at once."""

NOTHING: Final = "–"
PAGE: Final = """\
# What each method and each fact does

Written by `python -m statechart draw`; do not edit.

`→ turn` moves there. `internal` does something and stays. `no-op` is allowed and leaves the lifecycle as it is.
`✗ CODE` raises the error with that code and changes nothing. Brackets hold the condition (`∧` and, `∨` or, `¬` not); an
answer without brackets is for all other cases.

## Methods × phases

{methods}

## Facts × leaves

`–`: the shell can't report the fact there. If it does, that is a bug of the kernel.

{facts}
"""


@frozen
class Answer:
    """One thing that a cell says, and the condition under which it is said; empty when that is all other cases."""

    word: str
    condition: str = ""

    def __str__(self) -> str:
        return f"{self.word} [{self.condition}]" if self.condition else self.word


def document(table: Decisions) -> str:
    """The whole page, with both tables."""
    return PAGE.format(methods=methods(table), facts=facts(table))


def methods(table: Decisions) -> str:
    """Commands × visible phases."""
    rows = {str(command): [_phase_cell(table, command, phase) for phase in Phase] for command in Command}
    return _markdown("method", list(map(str, Phase)), rows)


def _phase_cell(table: Decisions, command: Command, phase: Phase) -> tuple[Answer, ...]:
    """The answers in a phase; when its leaves differ, each leaf with its own."""
    cells = {leaf: cell(leaf, table[leaf].get(command)) for leaf in Leaf if phase_of(leaf) is phase}
    if len(set(cells.values())) == 1:
        return next(iter(cells.values()))
    return tuple(
        Answer(f"{_last(leaf)}: {answer.word}", answer.condition) for leaf, answers in cells.items() for answer in answers
    )


def facts(table: Decisions) -> str:
    """Facts × leaves."""
    rows = {str(fact): [cell(leaf, table[leaf].get(fact)) for leaf in Leaf] for fact in Fact}
    return _markdown("fact", [leaf.removeprefix("running.") for leaf in Leaf], rows)


def cell(leaf: Leaf, decision: Decision) -> tuple[Answer, ...]:
    """What *decision* does to somebody in *leaf*: what is allowed first, then the refusals."""
    cases: dict[str, list[Literals]] = {}
    for literals, outcome in _paths(decision):
        cases.setdefault(_word(leaf, outcome), []).append(literals)
    words = sorted(cases, key=lambda word: word.startswith(("✗", NOTHING)))
    return (*(Answer(word, condition(cases[word])) for word in words[:-1]), Answer(words[-1]))


def _paths(decision: Decision, so_far: Literals = frozenset()) -> list[tuple[Literals, Decision]]:
    if not isinstance(decision, Ask):
        return [(so_far, decision)]
    return [
        *_paths(decision.yes, so_far | {(decision.guard, True)}),
        *_paths(decision.no, so_far | {(decision.guard, False)}),
    ]


def _word(leaf: Leaf, outcome: Decision) -> str:
    match outcome:
        case Step(target, do) if target is leaf:
            return "internal" if do else "no-op"
        case Step(target, _) if phase_of(leaf) is phase_of(target):
            return f"→ {_last(target)}"
        case Step(target, _):
            return f"→ {phase_of(target)}"
        case Refuse(refusal):
            return f"✗ {refusal}"
        case _:
            return NOTHING


def _last(leaf: Leaf) -> str:
    return leaf.rpartition(".")[2]


def _markdown(corner: str, head: list[str], rows: dict[str, list[tuple[Answer, ...]]]) -> str:
    seen = Counter(answers for cells in rows.values() for answers in cells if len(answers) > 1)
    repeated = [answers for answers, count in seen.items() if count > 1]
    notes = {answers: number for number, answers in enumerate(repeated, start=1)}
    lines = [
        f"| {corner} | {' | '.join(head)} |",
        f"| --- | {' | '.join('---' for _ in head)} |",
        *(f"| `{name}` | {' | '.join(_cell_text(answers, notes) for answers in cells)} |" for name, cells in rows.items()),
    ]
    said = [f"{number}. {'; '.join(map(str, answers))}" for answers, number in notes.items()]
    return "\n".join([*lines, "", *said] if said else lines)


def _cell_text(answers: tuple[Answer, ...], notes: dict[tuple[Answer, ...], int]) -> str:
    if answers not in notes:
        return "<br>".join(map(str, answers))
    words = dict.fromkeys("✗" if answer.word.startswith("✗") else answer.word for answer in answers)
    return f"{' or '.join(words)} (note {notes[answers]})"


def condition(alternatives: Iterable[Literals]) -> str:
    """The shortest text that is true when any of *alternatives* is; empty when that is always."""
    terms = _minimal(set(alternatives))
    if frozenset() in terms:
        return ""
    shared = frozenset.intersection(*terms)
    if len(terms) == 1:
        return _conjunction(shared)
    either = sorted((_conjunction(term - shared) for term in terms), key=lambda text: (len(text.split()), text))
    text = " ∨ ".join(f"({term})" if " " in term else term for term in either)
    return f"{_conjunction(shared)} ∧ ({text})" if shared else text


def _conjunction(literals: Literals) -> str:
    ordered = sorted(literals, key=lambda literal: (not literal[1], list(Guard).index(literal[0])))
    return " ∧ ".join(str(guard) if answer else f"¬{guard}" for guard, answer in ordered)


def _minimal(terms: set[Literals]) -> set[Literals]:
    """The prime implicants of *terms*, found by consensus, without those that the others cover."""
    primes = _without_absorbed(terms)
    while (grown := _without_absorbed(primes | _consensus(primes))) != primes:
        primes = grown
    for term in sorted(primes, key=lambda term: (-len(term), sorted(term))):
        if _covered(term, primes - {term}):
            primes = primes - {term}
    return primes


def _consensus(terms: set[Literals]) -> set[Literals]:
    """What two terms say together that differ in the answer of exactly one guard."""
    found = set()
    for one, other in itertools.combinations(terms, 2):
        opposed = [(guard, answer) for guard, answer in one if (guard, not answer) in other]
        if len(opposed) == 1:
            guard, answer = opposed[0]
            found.add((one - {(guard, answer)}) | (other - {(guard, not answer)}))
    return found


def _without_absorbed(terms: set[Literals]) -> set[Literals]:
    return {term for term in terms if not any(other < term for other in terms)}


def _covered(term: Literals, others: set[Literals]) -> bool:
    """Whether *others* are true wherever *term* is, over all answers of the guards that they ask besides."""
    free = sorted({guard for other in others for guard, _ in other} - {guard for guard, _ in term})
    worlds = (frozenset(zip(free, yes, strict=True)) for yes in itertools.product((True, False), repeat=len(free)))
    return all(any(other <= term | world for other in others) for world in worlds)
