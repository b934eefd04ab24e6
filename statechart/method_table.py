"""The method × phase table as Markdown: what each public method and each fact does wherever the machine may be.

It is read off the compiled decisions, so it says what will happen and not what a row hopes for. Guards are shown as the
shortest condition that is true in exactly the same cases; the last answer of a cell says `otherwise`.
"""

import itertools
from collections.abc import Iterable
from typing import Final

from statechart.decisions import Ask, Decision, Decisions, Refuse, Step
from statechart.vocabulary import Command, Fact, Guard, Leaf, Phase, phase_of

Literals = frozenset[tuple[Guard, bool]]
"""Guards and the answers that they must give, all of them at once."""

NOTHING: Final = "–"
OTHERWISE: Final = "otherwise"
INTRODUCTION: Final = """\
# What each method and each fact does in each phase

Written by `python -m statechart draw`; do not edit. `→ turn` moves to that phase, `internal` does something and stays,
`no-op` does nothing, `✗ CODE` raises the error with that code and changes nothing. Brackets hold the condition:
`∧` and, `∨` or, `¬` not.
"""


def condition(alternatives: Iterable[Literals]) -> str:
    """The shortest text that is true when any of *alternatives* is; empty when that is always."""
    terms = _minimal(set(alternatives))
    if not terms or frozenset() in terms:
        return ""
    shared = frozenset.intersection(*terms)
    rest = [term - shared for term in terms]
    if not all(rest):
        return _conjunction(shared)
    either = sorted((_conjunction(term) for term in rest), key=lambda text: (text.count("∧"), text.count("¬"), text))
    if not shared:
        return " ∨ ".join(f"({text})" if "∧" in text and len(either) > 1 else text for text in either)
    grouped = " ∨ ".join(f"({text})" if "∧" in text else text for text in either)
    return f"{_conjunction(shared)} ∧ ({grouped})"


def _conjunction(literals: Literals) -> str:
    ordered = sorted(literals, key=lambda literal: (not literal[1], list(Guard).index(literal[0])))
    return " ∧ ".join(str(guard) if answer else f"¬{guard}" for guard, answer in ordered)


def _minimal(terms: set[Literals]) -> set[Literals]:
    """The prime implicants of *terms*, by consensus, without those that the others already cover."""
    primes = _without_absorbed(terms)
    while (grown := _without_absorbed(primes | _consensus(primes))) != primes:
        primes = grown
    for term in sorted(primes, key=lambda term: (-len(term), sorted(term))):
        if _covered(term, primes - {term}):
            primes = primes - {term}
    return primes


def _consensus(terms: set[Literals]) -> set[Literals]:
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
    for answers in itertools.product((True, False), repeat=len(free)):
        world = term | frozenset(zip(free, answers, strict=True))
        if not any(other <= world for other in others):
            return False
    return True


def cell(leaf: Leaf, decision: Decision) -> str:
    """What *decision* does to somebody in *leaf*, one answer after another."""
    answers: dict[str, list[Literals]] = {}
    for literals, outcome in _paths(decision):
        answers.setdefault(_word(leaf, outcome), []).append(literals)
    words = sorted(answers, key=lambda word: word.startswith(("✗", NOTHING)))
    if len(words) == 1:
        return words[0]
    said = [f"{word} [{condition(answers[word])}]" for word in words[:-1]]
    return "<br>".join([*said, f"{words[-1]} [{OTHERWISE}]"])


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
        case Step(target, _):
            return f"→ {_place(leaf, target)}"
        case Refuse(refusal):
            return f"✗ {refusal}"
        case _:
            return NOTHING


def _place(leaf: Leaf, target: Leaf) -> str:
    """The phase that a step leads to; its leaf, when the phase stays the same."""
    return str(phase_of(target)) if phase_of(leaf) is not phase_of(target) else target.rpartition(".")[2]


def methods(table: Decisions) -> str:
    """Commands × visible phases."""
    rows = [
        [f"`{command}`", *(_phase_cell(table, command, phase) for phase in Phase)]
        for command in Command
    ]
    return _markdown(["method", *map(str, Phase)], rows)


def _phase_cell(table: Decisions, command: Command, phase: Phase) -> str:
    leaves = [leaf for leaf in Leaf if phase_of(leaf) is phase]
    cells = {leaf.rpartition(".")[2]: cell(leaf, table[leaf].get(command)) for leaf in leaves}
    if len(set(cells.values())) == 1:
        return next(iter(cells.values()))
    return "<br>".join(f"{leaf}: {text}" for leaf, text in cells.items())


def facts(table: Decisions) -> str:
    """Facts × leaves. A fact where the table has a dash can't be reported there: the kernel treats it as a bug."""
    rows = [[f"`{fact}`", *(cell(leaf, table[leaf].get(fact)) for leaf in Leaf)] for fact in Fact]
    return _markdown(["fact", *(leaf.removeprefix("running.") for leaf in Leaf)], rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def document(table: Decisions) -> str:
    """The whole page: both tables, each with its sentence."""
    return "\n".join(
        [
            INTRODUCTION,
            "## Methods × phases",
            "",
            methods(table),
            "",
            "## Facts × leaves",
            "",
            f"`{NOTHING}` means that the fact can't be reported there; if it is, that is a bug of the kernel.",
            "",
            facts(table),
            "",
        ]
    )
