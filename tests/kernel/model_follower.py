"""The tie between the model of the lifecycle and the real core: a follower is told of each step that a core decides, takes
the same step in the model, and compares.

It hangs on a core as its *shadow*: it sees the state, the input and the decision before anything is done. What the model
would pick it reads off them (`READ`); what only the step itself shows is read when the next step, or `catch_up`, comes.
"""

import functools
from collections.abc import Callable
from typing import Any

from attrs import define

from kernel.core import BoundStep
from kernel.guards import (
    GUARDS,
    compactable,
    compaction_due,
    fails_run,
    hook_follows,
    prompt_fits,
    response_fits,
    summary_shrinks,
    usage_left,
)
from kernel.state import CallStatus, CoreState
from statechart import Ask, Command, Fact, Leaf, Refuse, decisions
from statechart.model import SAYS, USES, Model, Way
from statechart.world import (
    ANSWERED,
    CHECK,
    EMPTY,
    GO_ON,
    ILL,
    LARGEST,
    MANUAL,
    NO_TIMER,
    NOTHING,
    OVER,
    OVERFLOW,
    OWED,
    PROJECTION,
    REQUEST,
    RIGHT,
    STOP,
    STOP_HOOK,
    SUMMARY,
    THRESHOLD,
    TICKING,
    UNASKED,
    UNCHECKED,
    VECTOR,
    WELL,
    WRONG,
    Bounds,
    Free,
    Picks,
    World,
    forget,
)

COMPARED = tuple(name for name in VECTOR if name != "budget")
REASONS = {"manual": MANUAL, "threshold": THRESHOLD, "overflow": OVERFLOW}
SINGLE = {
    Leaf.PROJECTING: PROJECTION,
    Leaf.REQUESTING: REQUEST,
    Leaf.STREAMING: REQUEST,
    Leaf.STEERING: STOP_HOOK,
    Leaf.FOLLOW_UP: CHECK,
    Leaf.COMPACTION: SUMMARY,
}
"""What goes on where it is no call of a batch."""
CLOSED = (CallStatus.HOOK_DUE, CallStatus.HOOK, CallStatus.DONE)


def abstract(state: CoreState, beside: World) -> World:
    """What the model keeps of a core's state. What the core does not remember comes from *beside*: which barrier has come
    back, whether the grace is over and the loop is gone, and what kind of work it is that was told to stop.
    """
    w = World(state.leaf, len(state.steering), len(state.follow_up), _tail(state), int(state.close_wanted))
    w.pending = beside.pending
    run = state.run
    if run is None:
        return w
    w.run = 1
    if run.outcome is not None:
        w.outcome = ILL if run.outcome.status in ("cancelled", "failed") else WELL
    w.finished = int(run.result is not None)
    w.grace = (OVER if beside.grace == OVER else TICKING) if Fact.GRACE_ELAPSED in run.timers else NO_TIMER
    limited = state.config.run_deadline is not None
    w.deadline = int(Fact.DEADLINE_ELAPSED in run.timers) if limited else beside.deadline
    w.halted = beside.halted
    w.turn, w.drained, w.turn_open = run.turn, int(run.steering_drained), int(run.turn_open)
    w.attempts, w.overflow_tried, w.threshold_tried = run.attempts, int(run.overflow_tried), int(run.threshold_tried)
    w.stop = UNASKED if run.stop_answer is None else STOP if run.stop_answer else GO_ON
    w.answer = UNCHECKED if run.output is None else RIGHT if run.output.error is None else WRONG
    w.message = int(run.message is not None)
    w.backoff = (TICKING if Fact.BACKOFF_ELAPSED in run.timers else OVER) if run.backing_off else NO_TIMER
    w.compaction = REASONS[run.compaction.reason] if run.compaction is not None else 0
    singles = sum(call is None for call in state.works.values())
    w.going = [NOTHING, SINGLE.get(state.leaf, beside.going)][singles]
    at_work = [call.status for call in state.works.values() if call is not None]
    w.preparing, w.running = at_work.count(CallStatus.PREPARING), at_work.count(CallStatus.RUNNING)
    w.hooks = at_work.count(CallStatus.HOOK)
    w.owed = int(run.owed)
    if run.batch is not None:
        calls = [call.status for call in run.batch.calls]
        w.waiting, w.announced = calls.count(CallStatus.WAITING), calls.count(CallStatus.ANNOUNCED)
        w.ready, w.hooks_due = calls.count(CallStatus.READY), calls.count(CallStatus.HOOK_DUE)
        w.sequential = int(run.batch.sequential and len(calls) > 1)
        w.owed = int(any(call.status in CLOSED and not call.terminate for call in run.batch.calls))
    forget(w)
    return w


def _tail(state: CoreState) -> int:
    if not len(state.transcript):
        return EMPTY
    context = state.transcript.context
    last: Any = context[-1] if len(context) else None
    return OWED if last is not None and (last.role != "assistant" or last.calls) else ANSWERED


def _due(state: CoreState, input: Any) -> bool:
    """Whether a compaction would be due in a turn that has not tried one."""
    run = state.live
    tried, run.threshold_tried = run.threshold_tried, False
    try:
        return compaction_due(state, input)
    finally:
        run.threshold_tried = tried


def _fits(state: CoreState, input: Any) -> bool:
    return response_fits(state, input) if input.trigger is Fact.RESPONSE_COMPLETED else prompt_fits(state, input)


def _passing(state: CoreState, input: Any) -> bool:
    return state.config.retry is not None and input.failure.retryable and not input.failure.overflow


def _mode(state: CoreState, input: Any) -> bool:
    return (state.config.steering_mode if state.steering else state.config.follow_up_mode) == "all"


READ: dict[Free, Callable[[CoreState, Any], int]] = {
    Free.FITS: _fits,
    Free.COMPACTABLE: compactable,
    Free.DUE: _due,
    Free.OVERFLOW: lambda state, said: said.failure.overflow and state.config.compaction is not None,
    Free.PASSING: _passing,
    Free.CALLS: lambda state, said: state.live.message.call_count if state.live.message is not None else 0,
    Free.TRUNCATED: lambda state, said: said.stop == "length",
    Free.UNFIT: lambda state, said: said.error is not None,
    Free.TERMINATES: lambda state, said: said.terminate,
    Free.RESULT_HOOK: hook_follows,
    Free.STOP_HOOK: lambda state, said: "should_stop_after_turn" in state.hooks,
    Free.STOPS: lambda state, said: said.answer,
    Free.SPENT: lambda state, said: not usage_left(state, said),
    Free.OUTPUT: lambda state, said: state.setup.output is not None,
    Free.WRONG: lambda state, said: said.error is not None,
    Free.SHRINKS: summary_shrinks,
    Free.ALL: _mode,
    Free.FAILS_RUN: fails_run,
    Free.STEERS: lambda state, said: any(item.id == said.item_id for item in state.steering),
    Free.FOLLOWS: lambda state, said: any(item.id == said.item_id for item in state.follow_up),
}
"""What a step finds out, read off the core before it and off its input."""

AFTERWARDS: dict[Free, Callable[[CoreState, World], int]] = {
    Free.SEQUENTIAL: lambda state, before: int(state.live.batch is not None and state.live.batch.sequential),
    Free.STARTED: lambda state, before: sum(call is not None and call.status is CallStatus.RUNNING
                                            for call in state.works.values()) - before.running,
}  # fmt: skip
"""What only shows when it was done."""

TOLD_BY: dict[Command | Fact, tuple[Free, ...]] = {
    Command.PROMPT: (Free.FITS,),
    Command.CONTINUE: (Free.ALL,),
    Command.STEER: (Free.FITS,),
    Command.FOLLOW_UP: (Free.FITS,),
    Command.COMPACT: (Free.COMPACTABLE,),
    Command.UNQUEUE: (Free.STEERS, Free.FOLLOWS),
    Fact.ADVANCE: (Free.DUE, Free.COMPACTABLE, Free.STOP_HOOK, Free.ALL, Free.SPENT, Free.OUTPUT, Free.FITS),
    Fact.RESPONSE_COMPLETED: (Free.FITS, Free.CALLS, Free.TRUNCATED),
    Fact.RESPONSE_FAILED: (Free.OVERFLOW, Free.PASSING),
    Fact.CALL_PREPARED: (Free.UNFIT,),
    Fact.TOOL_SETTLED: (Free.TERMINATES, Free.RESULT_HOOK),
    Fact.HOOK_RETURNED: (Free.STOPS,),
    Fact.OUTPUT_CHECKED: (Free.WRONG,),
    Fact.SUBSCRIBER_FAILED: (Free.FAILS_RUN,),
}
"""Which readings a trigger has; `summarized` has one that only a compaction can be asked for."""


class Told(Picks):
    """Picks that were made already: what is asked and not told fails, and so does what the model would not pick."""

    __slots__ = ("told",)

    def __init__(self, trigger: Command | Fact, bounds: Bounds, told: dict[Free, int]) -> None:
        super().__init__(trigger, bounds)
        self.told = told

    def __call__(self, free: Free, low: int = 0, high: int = 1) -> int:
        value = int(self.told[free])
        assert low <= value <= high, f"{free} is {value}, and the model picks from {low} to {high}"
        return value


@define
class Seen:
    """A step that a core has decided, and the model not yet."""

    trigger: Command | Fact
    answers: tuple[Any, ...]
    decision: Any
    told: dict[Free, int]


@functools.cache
def model_of(bounds: Bounds) -> Model:
    """The model with our own meanings."""
    return Model(decisions(), bounds)


class Follower:
    """Takes each step of a core in the model too. `wrong` says where they part; after that nothing is compared."""

    def __init__(self, state: CoreState, **meanings: Any) -> None:
        bounds = bounds_of(state)
        self.model = Model(decisions(), bounds, **meanings) if meanings else model_of(bounds)
        self.world = abstract(state, World())
        self.world.budget = LARGEST
        self.steps = 0
        self.ways: set[Any] = set()
        self.wrong: list[str] = []
        self.before = self.did = World()
        self.way: Way | None = None
        self.told: dict[Free, int] = {}
        self._seen: Seen | None = None

    def shadow(self, state: CoreState, input: Any, trigger: Any, decided: BoundStep | Refuse | None) -> None:
        """Called by the core before it carries out what was decided."""
        try:
            self.catch_up(state, trigger)
            if not self.wrong:
                self._see(state, input, trigger, decided)
        except Exception as problem:
            self.wrong.append(f"{trigger} in {state.leaf}: {type(problem).__name__}: {problem}")

    def _see(self, state: CoreState, input: Any, trigger: Any, decided: BoundStep | Refuse | None) -> None:
        answers, node = [], decisions()[state.leaf].get(trigger)
        while isinstance(node, Ask):
            answers.append((node.guard, GUARDS[node.guard](state, input)))
            node = node.yes if answers[-1][1] else node.no
        assert (decided.step if isinstance(decided, BoundStep) else decided) == node
        assert isinstance(trigger, Command) or SAYS[trigger](self.world), f"the shell may not say {trigger}: {self.world}"
        told = {}
        if trigger is Fact.SUMMARIZED and state.leaf is Leaf.COMPACTION:
            told[Free.SHRINKS] = READ[Free.SHRINKS](state, input)
        for free in TOLD_BY.get(trigger, ()):
            if state.run is not None or free not in (Free.DUE, Free.SPENT):
                told[free] = READ[free](state, input)
        self._seen = Seen(trigger, tuple(answers), node, told)

    def catch_up(self, state: CoreState, coming: str | None = None) -> None:
        """Take the step that was seen last, and compare the model with *state*, in which it was carried out.

        A timer that is *coming* was used up already when the core decides about it.
        """
        seen, self._seen = self._seen, None
        world = self.world
        if self.wrong:
            return
        if seen is not None:
            self._take(seen, state)
            world = self.world
        expected = abstract(state, world)
        differ = [
            f"{name} is {getattr(expected, name)} and not {getattr(world, name)}"
            for name in COMPARED
            if name not in USES.get(coming, ()) and getattr(expected, name) != getattr(world, name)
        ]
        if differ:
            self.wrong.append(f"after {seen}: {', '.join(differ)}")

    def _take(self, seen: Seen, state: CoreState) -> None:
        before = self.world
        for free, read in AFTERWARDS.items():
            if state.run is not None:
                seen.told[free] = read(state, before)
        picks = Told(seen.trigger, self.model.bounds, seen.told)
        way = self.model.decide(before, seen.trigger, picks)
        assert (way.answers, way.decision) == (seen.answers, seen.decision), f"{way.name}, and not {seen}"
        self.steps += 1
        self.ways.add(way.name)
        self.way, self.told, self.before = way, picks.told, before
        self.did = World(**{name: getattr(before, name) for name in VECTOR})
        if way.moves:
            self.model.carry_out(self.did, way, picks)
            self.did.budget = LARGEST
        self.world = self.did


def bounds_of(state: CoreState) -> Bounds:
    """The limits that a core has, as the model's."""
    config = state.config
    return Bounds(
        queue=config.queue_limit or LARGEST,
        commands=LARGEST,
        turns=config.max_turns or LARGEST,
        attempts=config.retry.max_attempts if config.retry is not None else LARGEST,
        calls=LARGEST,
    )
