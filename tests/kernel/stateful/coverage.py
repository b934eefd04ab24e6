"""Which rows of the lifecycle the examples have taken, and which branches of its compiled table.

Steps are seen through the core's own shadow port, and refusals where a command is given. A row counts when the core has
taken it; a branch is one way through the questions of a leaf and a trigger.
"""

import functools
from collections import Counter
from typing import Any, Final

from kernel import Agent
from kernel.core import Shadow
from kernel.guards import GUARDS
from kernel.state import CoreState
from statechart import Ask, Decision, Leaf, decisions
from statechart.check import Declaration, describe, enabled
from statechart.table import ROWS

DECLARED: Final = Declaration()
Branch = tuple[Leaf, str, tuple[tuple[str, bool], ...]]


class Coverage:
    """What has been taken so far."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.branches: Counter[Branch] = Counter()

    def watch(self, agent: Agent) -> None:
        """Note each step of this agent's core, beside what its shadow does already."""
        core = agent._shell.core
        core._shadow = functools.partial(self._step, core._shadow)

    def note(self, state: CoreState, input: Any, trigger: Any) -> None:
        """The core is about to decide *trigger*."""
        asked = {guard for row in ROWS if row.trigger == trigger for guard in (*row.when, *row.unless)}
        node, path = decisions()[state.leaf].get(trigger), []
        answers = {}
        while isinstance(node, Ask):
            answers[node.guard] = yes = bool(GUARDS[node.guard](state, input))
            path.append((str(node.guard), yes))
            node = node.yes if yes else node.no
        self.branches[state.leaf, str(trigger), tuple(path)] += 1
        # A guard that was not asked decides nothing: any answer leads to the same row.
        rows = enabled(DECLARED, state.leaf, trigger, {guard: answers.get(guard, False) for guard in asked})
        self.rows.update(map(describe, rows))

    def missing_rows(self) -> list[str]:
        """The rows that no example has taken."""
        return [describe(row) for row in ROWS if not self.rows[describe(row)]]

    def report(self) -> str:
        """The sums, in one line."""
        branches = set(every_branch())
        return (
            f"{len(ROWS) - len(self.missing_rows())} of {len(ROWS)} rows, "
            f"{len(branches & self.branches.keys())} of {len(branches)} branches of the table, "
            f"{sum(self.branches.values())} decisions"
        )

    def _step(self, shadow: Shadow | None, state: CoreState, input: Any, trigger: Any, decided: Any) -> None:
        if shadow is not None:
            shadow(state, input, trigger, decided)
        self.note(state, input, trigger)


def every_branch() -> list[Branch]:
    """All branches of the compiled table that lead to a step or a refusal."""
    return [
        (leaf, str(trigger), path)
        for leaf, row in decisions().items()
        for trigger, node in row.items()
        for path in _paths(node)
    ]


def _paths(node: Decision) -> list[tuple[tuple[str, bool], ...]]:
    if isinstance(node, Ask):
        return [
            ((str(node.guard), yes), *rest)
            for yes, branch in ((True, node.yes), (False, node.no))
            for rest in _paths(branch)
        ]
    return [()] if node is not None else []


COVERAGE: Final = Coverage()
"""Of all examples of this process."""
