"""The lifecycle with a meaning: chart × queues × flags × budget, small enough to be explored to the end.

`statechart.check` knows guards and actions as names. Here each has a meaning over a `World` (`statechart.world`), in
`statechart.guard_meaning` and `statechart.action_meaning`, a line or a few for each. Steps are taken through the *compiled*
decision table, so what is explored is what the core does, as far as these meanings are right.

What is abstracted. Messages are a `tail`: nothing, answered, or owed to the model. Room, sizes, contents and policies are
picked anew whenever they matter, so a promise holds for every policy, and for those that change in between. Items of a
queue are a number; calls of a batch are numbers by how far they came. A deadline may always come; no deadline is one that
never does. Events are not modelled, but for `run.finished`.

What ties it. Tests play paths of this model on the real core (to every cell of the table, to states all over the
exploration, and at random), and compare after each step everything that is in the vector, each guard that was asked, and
how much was started, said, taken and dropped; a meaning that is changed is found by them. Another test follows the real
shell through whole runs, and finds each of its reports among those that `SAYS` allows.

What is not tied: that a work reports its end, and that listeners come back (fairness of the world); keys held by calls that
were abandoned before, for which a ready call may wait as long as they like; which item of a queue, and which call of a
batch; texts, usage and numbers of messages; more than the bounds.

Instructions for exporters. The state vector is `VECTOR`, one byte each, all 0 at the start but `budget`, which is
`Bounds.commands`; the leaf, `place`, is its number in `LEAVES`. The rest of `World` is hidden: set to 0 at the beginning of
a step, in no state. A step is one atomic block: for a fact, `SAYS[fact]` must hold; for `PAID` triggers, budget > 0. Then,
in this order: (1) walk the cell of the table for (leaf, trigger), asking `GUARDS`; (2) where it ends in a refusal, or where
a `PAID` trigger stays in its leaf and none of its actions has a meaning (all are `nothing`), there is no step; (3) what the
step uses up (`USES`; one of the budget for `PAID`); (4) set the leaf; (5) the actions in their order; (6) `forget`. A pick
is a choice from low to high among what its place says; one that is picked twice in a step is picked once. The trigger is
known where the code is made, so `RELEASE_WORK`, `START_COMPACTION` and `BATCH_OVER` become one case each.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, final

from attrs import frozen

from statechart.action_meaning import ACTIONS, Effector, nothing
from statechart.decisions import Ask, Decision, Decisions, Refuse, Step
from statechart.guard_meaning import GUARDS, Question
from statechart.vocabulary import Action, Command, Fact, Guard, Leaf
from statechart.world import CHECK, OVER, PROJECTION, REQUEST, STOP_HOOK, SUMMARY, TICKING, Bounds, Picks, World, forget

PAID: Final = (*Command, Fact.SUBSCRIBER_FAILED)
"""What may come at any time, as long as the budget lasts."""

SAYS: Final[dict[Fact, Callable[[World], object]]] = {
    Fact.ADVANCE: lambda w: w.pending,
    Fact.PROJECTED: lambda w: w.going == PROJECTION,
    Fact.RESPONSE_STARTED: lambda w: w.going == REQUEST and w.place is Leaf.REQUESTING,
    Fact.RESPONSE_COMPLETED: lambda w: w.going == REQUEST and w.place is not Leaf.REQUESTING,
    Fact.RESPONSE_FAILED: lambda w: w.going == REQUEST,
    Fact.CALL_PREPARED: lambda w: w.preparing,
    Fact.TOOL_SETTLED: lambda w: w.running,
    Fact.HOOK_RETURNED: lambda w: w.hooks or w.going == STOP_HOOK,
    Fact.OUTPUT_CHECKED: lambda w: w.going == CHECK,
    Fact.SUMMARIZED: lambda w: w.going == SUMMARY,
    Fact.SUMMARY_FAILED: lambda w: w.going == SUMMARY,
    Fact.BACKOFF_ELAPSED: lambda w: w.backoff == TICKING,
    Fact.GRACE_ELAPSED: lambda w: w.grace == TICKING,
    Fact.DEADLINE_ELAPSED: lambda w: w.deadline,
    Fact.SUBSCRIBER_FAILED: lambda w: True,
    Fact.HALTED: lambda w: w.run and not w.halted,
    Fact.SETTLED: lambda w: w.finished,
}
"""When the shell may report a fact: only what is going on reports, and only what was asked for comes."""

USES: Final[dict[Fact, tuple[str, int]]] = {
    Fact.ADVANCE: ("pending", 0),
    Fact.BACKOFF_ELAPSED: ("backoff", OVER),
    Fact.GRACE_ELAPSED: ("grace", OVER),
    Fact.DEADLINE_ELAPSED: ("deadline", 0),
    Fact.HALTED: ("halted", 1),
}
"""What a fact uses up by coming, whatever is done about it: it comes once."""

DEPENDABLE: Final = frozenset(Fact) - {
    Fact.SUBSCRIBER_FAILED, Fact.HALTED, Fact.DEADLINE_ELAPSED, Fact.GRACE_ELAPSED,
}  # fmt: skip
"""Facts that a run may count on. The others come too, but a run that waits for one of them is stuck."""


@final
@frozen(eq=False)
class Way:
    """One end of a cell of the decision table: the answers of the guards that lead there, and what is decided.

    `moves` is False where the world stays as it is: a refusal, or a paid trigger that does nothing that has a meaning.
    """

    leaf: Leaf
    trigger: Command | Fact
    answers: tuple[tuple[Guard, bool], ...]
    decision: Decision
    moves: bool
    target: Leaf
    actions: tuple[Effector, ...]

    @property
    def name(self) -> str:
        """The way in words."""
        answers = " and ".join(guard if yes else f"not {guard}" for guard, yes in self.answers)
        return f"{self.trigger} in {self.leaf}" + (f" when {answers}" if answers else "")


@final
@frozen(eq=False)
class _Question:
    guard: Question
    yes: "_Question | Way"
    no: "_Question | Way"


@final
class Model:
    """The lifecycle of one agent over worlds: a decision table with the meaning of its guards and actions."""

    def __init__(
        self,
        table: Decisions,
        bounds: Bounds,
        guards: Mapping[Guard, Question] = GUARDS,
        actions: Mapping[Action, Effector] = ACTIONS,
    ) -> None:
        self.bounds = bounds
        self._guards = guards
        self._actions = actions
        self.ways: list[Way] = []
        """All ends of all cells."""
        self._cells = {
            leaf: {trigger: self._bind(leaf, trigger, (), table[leaf].get(trigger)) for trigger in (*Command, *Fact)}
            for leaf in Leaf
        }

    def _bind(
        self, leaf: Leaf, trigger: Command | Fact, answers: tuple[tuple[Guard, bool], ...], node: Decision
    ) -> _Question | Way:
        if isinstance(node, Ask):
            yes = self._bind(leaf, trigger, (*answers, (node.guard, True)), node.yes)
            no = self._bind(leaf, trigger, (*answers, (node.guard, False)), node.no)
            return _Question(self._guards[node.guard], yes, no)
        if isinstance(node, Step):
            actions = tuple(self._actions[action] for action in node.do if self._actions[action] is not nothing)
            moves = bool(actions) or node.target is not leaf or trigger not in PAID
            way = Way(leaf, trigger, answers, node, moves, node.target, actions)
        else:
            way = Way(leaf, trigger, answers, node, False, leaf, ())
        if node is not None or isinstance(trigger, Command):
            self.ways.append(way)
        return way

    def start(self) -> World:
        """An agent that was just made."""
        return World(budget=self.bounds.commands)

    def still(self, leaf: Leaf) -> Iterator[Way]:
        """The ways of commands that change nothing in *leaf*, whatever the guards say."""
        return (
            node for node in self._cells[leaf].values()
            if isinstance(node, Way) and not node.moves and isinstance(node.decision, Step | Refuse)
        )  # fmt: skip

    def possible(self, world: World) -> list[Command | Fact]:
        """What may come here, without what changes nothing anyway."""
        found: list[Command | Fact] = []
        if world.budget:
            cells = self._cells[world.place]
            found += [trigger for trigger in PAID if not isinstance(way := cells[trigger], Way) or way.moves]
        found += [fact for fact, says in SAYS.items() if fact not in PAID and says(world)]
        return found

    def decide(self, world: World, trigger: Command | Fact, pick: Picks) -> Way:
        """Ask the table. Changes nothing."""
        node = self._cells[world.place][trigger]
        while isinstance(node, _Question):
            node = node.yes if node.guard(world, pick) else node.no
        return node

    def carry_out(self, world: World, way: Way, pick: Picks) -> None:
        """Change *world* as *way* says."""
        uses = _USES.get(way.trigger)
        if uses is not None:
            setattr(world, *uses)
        elif way.trigger in _PAID:
            world.budget -= 1
        world.place = way.target
        for action in way.actions:
            action(world, pick)
        forget(world)


_PAID: Final = frozenset(PAID)
_USES: Final = {str(fact): uses for fact, uses in USES.items()}
