"""Plays paths of the model on a bare core: for each step it lays what the step is to find out (limits, policies, keys, a
conversation that is long enough), hands in the input, and lets a follower compare.

What is laid is data that a core reads and never sets itself; only the older turns, which a summary can stand for, are put
in front of the conversation, and the keys of calls that are ready are given when it shows whether they meet.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from kernel import CompactionPolicy, RetryPolicy, UsageLimit
from kernel.config import KernelConfig
from kernel.core import Core
from kernel.effects import (
    AbandonListeners,
    AbandonWork,
    Barrier,
    CallHook,
    CallModel,
    CancelWork,
    CheckOutput,
    ItemsLeft,
    PrepareCall,
    Project,
    RunEnded,
    RunTool,
    Settle,
    StartTimer,
    Summarize,
)
from kernel.errors import Failure, KernelError
from kernel.events import RunFinished, RunStarted
from kernel.frozen import FrozenDict
from kernel.inputs import (
    Advance,
    CallPrepared,
    Cancel,
    ClearQueues,
    Close,
    Compact,
    Configure,
    Continue,
    FollowUp,
    Halted,
    HookReturned,
    ModelPart,
    OutputChecked,
    Projected,
    Prompt,
    QueuedItem,
    Reset,
    ResponseCompleted,
    ResponseFailed,
    Settled,
    Steer,
    Subscribe,
    SubscriberFailure,
    Summarized,
    SummaryFailed,
    TimerDue,
    ToolSettled,
    Unqueue,
    WaitForIdle,
)
from kernel.messages import StopReason, Text, TextDelta, UserMessage
from kernel.setup import OutputSpec, Setup
from kernel.state import CallStatus, OpenCall
from kernel.testing import call
from kernel.tools import specs_of
from kernel.transcript import Transcript
from statechart import Action, Command, Fact, Leaf, Refuse, Step
from statechart.explore import Label
from statechart.model import Way
from statechart.world import TICKING, Bounds, Free, World
from tests.kernel.helpers import Act, no_stream, turns
from tests.kernel.model_follower import TOLD_BY, Follower

STARTS = (Project, CallModel, PrepareCall, RunTool, CallHook, CheckOutput, Summarize)
KIND_AT = {
    Leaf.OPENING: Project,
    Leaf.REQUESTING: CallModel,
    Leaf.STEERING: CallHook,
    Leaf.FOLLOW_UP: CheckOutput,
    Leaf.COMPACTION: Summarize,
}
TIMERS = (Fact.BACKOFF_ELAPSED, Fact.GRACE_ELAPSED, Fact.DEADLINE_ELAPSED)
FOREVER = 10_000
ANY_OUTPUT = OutputSpec(FrozenDict(), str)
SETTLED_BY_THE_STATE = (Free.COMPACTABLE, Free.STEERS, Free.FOLLOWS)
"""What the model does not ask only where the state has the answer."""
Chosen = Callable[[Sequence[Any]], Any]


def first(of: Sequence[Any]) -> Any:
    """The first one."""
    return of[0]


class Player:
    """A core that goes where the model goes. *choose* says which call, when several could report, and what is laid where
    the model does not ask: it must not matter. *meanings* are other guards or actions for the model.
    """

    def __init__(self, bounds: Bounds, choose: Chosen = first, **meanings: Any) -> None:
        self.config = KernelConfig(
            max_turns=bounds.turns,
            queue_limit=bounds.queue,
            retry=RetryPolicy(max_attempts=bounds.attempts),
            compaction=CompactionPolicy(reserve=0, keep_turns=1, window=10),
            message_limit=None,
            run_deadline=60.0,
        )
        self.setup = Setup(None, no_stream, specs_of([Act()]))
        self.core = Core(self.config, self.setup)
        self.follower = Follower(self.core.state, **meanings)
        self.core._shadow = self.follower.shadow
        self.choose = choose
        self.numbers = 0
        self.token = 0
        self.heard = 0
        self.effects: list[Any] = []
        self.late: list[tuple[int, str]] = []
        self.queued: list[int] = []

    @property
    def state(self) -> Any:
        return self.core.state

    @property
    def world(self) -> World:
        return self.follower.world

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def step(self, label: Label) -> Way:
        """Take a step of the model on the core; the way that both took."""
        trigger, picks = label
        told = dict(picks)
        self._lay(laid := self._unasked(trigger) | told)
        working = dict(self.state.works)
        input = self._input(trigger, laid)
        refused = self._receive(input)
        self.follower.catch_up(self.state)
        assert self.follower.wrong == []
        way = self.follower.way
        assert way is not None
        assert way.trigger == trigger
        assert self.follower.told | told == self.follower.told, "the core found out what was laid"
        self._compare(way, refused)
        self._compare_stops(way, set(working))
        self.late += [
            (number, held.call.id)
            for number, held in working.items()
            if held is not None and number in self.state.abandoned
        ]
        return way

    def _receive(self, input: Any) -> KernelError | None:
        try:
            self.effects = self.core.receive(input)
        except KernelError as error:
            self.effects = []
            return error
        return None

    # ---- what the step did, beside the numbers that the follower compares ----

    def _compare(self, way: Way, refused: KernelError | None) -> None:
        if isinstance(way.decision, Refuse):
            assert refused is not None
            assert refused.code == way.decision.refusal
            return
        assert refused is None
        did = self.follower.did
        assert self._count(RunStarted) == did.begun
        assert self._count(RunFinished) == did.told
        assert self._count(RunEnded) == did.ended
        left = {"delivered": 0, "dropped": 0}
        for effect in self.effects:
            if isinstance(effect, ItemsLeft):
                left[effect.status] += len(effect.ids)
                self.queued = [item for item in self.queued if item not in effect.ids]
        assert left == {"delivered": did.steered + did.followed, "dropped": did.dropped}
        assert sorted(self.queued) == sorted(item.id for item in (*self.state.steering, *self.state.follow_up))
        starts = [type(effect) for effect in self.effects if isinstance(effect, STARTS)]
        assert len(starts) == did.started
        if way.leaf in KIND_AT:
            assert set(starts) <= {KIND_AT[way.leaf]}
        barriers = [effect.token for effect in self.effects if isinstance(effect, Barrier)]
        self.token = max([self.token, *barriers])
        assert bool(self.world.pending) == (self.token > self.heard)

    def _compare_stops(self, way: Way, working: set[int]) -> None:
        """What goes on is told to stop, or let go of, where the table says so, and timers start where the model's do."""
        do = way.decision.do if isinstance(way.decision, Step) else ()
        told = [set(effect.works) for effect in self.effects if isinstance(effect, CancelWork)]
        assert told == ([working] if Action.STOP_WORK in do and working else [])
        let_go = [set(effect.works) for effect in self.effects if isinstance(effect, AbandonWork)]
        assert let_go == ([working] if Action.ABANDON_WORK in do and working else [])
        assert self._count(AbandonListeners) == do.count(Action.ABANDON_LISTENERS)
        before, did = self.follower.before, self.follower.did
        timers = [(before.grace, did.grace), (before.backoff, did.backoff)]
        started = sum(was != TICKING and now == TICKING for was, now in timers) + (did.deadline > before.deadline)
        assert self._count(StartTimer) == started
        assert self._count(Settle) == did.told

    def _count(self, kind: type) -> int:
        return sum(isinstance(effect, kind) for effect in self.effects)

    # ---- what the step is to find out ----

    def _unasked(self, trigger: Command | Fact) -> dict[Free, int]:
        """Something for all that the trigger could find out; the first choice is yes, since no is what is there anyway."""
        return {free: self.choose((1, 0)) for free in TOLD_BY.get(trigger, ()) if free not in SETTLED_BY_THE_STATE}

    def _lay(self, told: dict[Free, int]) -> None:
        state = self.state
        hooks = {"after_tool_result": Free.RESULT_HOOK, "should_stop_after_turn": Free.STOP_HOOK}
        mode = "all" if told.get(Free.ALL) else "one"
        changes: dict[str, Any] = {
            "message_limit": None if told.get(Free.FITS, 1) else 1,
            "tool_execution": "sequential" if told.get(Free.SEQUENTIAL) else "parallel",
            "subscriber_failure": "fail_run" if told.get(Free.FAILS_RUN) else "record",
            "steering_mode": mode,
            "follow_up_mode": mode,
        }
        if told.get(Free.SPENT):
            changes["usage_limit"] = UsageLimit(requests=1)
            state.live.requests += 1
        state.setup = evolve(self.setup, output=ANY_OUTPUT if told.get(Free.OUTPUT) else None)
        if told.get(Free.COMPACTABLE) == 0:
            changes["compaction"] = evolve(self.config.compaction, keep_turns=FOREVER)
        state.config = evolve(self.config, **changes)
        state.hooks = frozenset(name for name, free in hooks.items() if told.get(free))
        if any(told.get(free) for free in (Free.COMPACTABLE, Free.DUE, Free.OVERFLOW)) and not state.transcript.cut(1):
            state.transcript = Transcript([*turns(3), *state.transcript.messages])
        if Free.DUE in told:
            state.context_tokens = 0
        if Free.STARTED in told:
            self._lay_keys(told[Free.STARTED])

    def _lay_keys(self, count: int) -> None:
        """Keys with which *count* of the calls that are ready may run, and the others wait for one that does."""
        ready: list[OpenCall] = self.state.live.batch.ready
        running = [held for held in self.state.works.values() if held.status is CallStatus.RUNNING]
        for place, each in enumerate(ready):
            each.resources = (f"own {place}",) if place < count else ("shared",)
        for each in running or ready[:1]:
            each.resources = ("shared",)

    def _input(self, trigger: Command | Fact, told: dict[Free, int]) -> Any:
        state = self.state
        if trigger in TIMERS:
            return TimerDue(state.live.timers[trigger])
        if trigger is Fact.ADVANCE:
            self.heard = self.token
            return Advance(self.token, 11 if told.get(Free.DUE) else 0)
        make = INPUTS[trigger]
        return make(self, told)

    def item(self) -> QueuedItem:
        number = self.number()
        if self.follower.model.bounds.queue > len(self.queued) and self.state.config.message_limit is None:
            self.queued.append(number)
        return QueuedItem(number, UserMessage(f"item {number}"))

    def single(self) -> int:
        """The work that is no call's."""
        return next(number for number, held in self.state.works.items() if held is None)

    def at(self, status: CallStatus) -> tuple[int, OpenCall]:
        """A work of a call that has come so far."""
        found = [(n, held) for n, held in self.state.works.items() if held is not None and held.status is status]
        return self.choose(found)  # type: ignore[no-any-return]

    def response(self, told: dict[Free, int]) -> ResponseCompleted:
        work = self.single()
        if self.state.leaf is Leaf.STREAMING:
            for place in range(told.get(Free.CALLS, 0)):
                self.core.receive(ModelPart(work, call(f"c{self.number()}-{place}", "act")))
        return ResponseCompleted(work, StopReason.LENGTH if told.get(Free.TRUNCATED) else None)

    def failed(self, told: dict[Free, int]) -> ResponseFailed:
        failure = Failure("boom", overflow=bool(told.get(Free.OVERFLOW)), retryable=bool(told.get(Free.PASSING)))
        return ResponseFailed(self.single(), failure)

    def settled(self, told: dict[Free, int]) -> ToolSettled:
        work, held = self.at(CallStatus.RUNNING)
        return ToolSettled(work, held.call.id, (Text("ok"),), terminate=bool(told.get(Free.TERMINATES)))

    def hook(self, told: dict[Free, int]) -> HookReturned:
        if self.state.leaf is Leaf.TOOLS or self.world.hooks:
            return HookReturned(self.at(CallStatus.HOOK)[0])
        return HookReturned(self.single(), bool(told.get(Free.STOPS)))

    def unqueue(self, told: dict[Free, int]) -> Unqueue:
        state = self.state
        if told.get(Free.STEERS):
            return Unqueue(self.choose(state.steering).id)
        if told.get(Free.FOLLOWS):
            return Unqueue(self.choose(state.follow_up).id)
        return Unqueue(-1)

    def subscriber_failure(self) -> SubscriberFailure:
        run = self.state.run
        return SubscriberFailure(run.id if run is not None else "r0", "turn.started", 1, Failure("heard wrong"))

    def speak_late(self) -> None:
        """Let everything that was abandoned report: no step is decided, and the numbers stay as they are."""
        if self.state.leaf is Leaf.TOOLS:
            return  # there a report may free a key that a call waits for, which the model does not know
        steps = self.follower.steps
        for work, call_id in self.late:
            self.core.receive(ToolSettled(work, call_id, (Text("late"),)))
        self.late.clear()
        self.follower.catch_up(self.state)
        assert self.follower.wrong == []
        assert self.follower.steps == steps


INPUTS: dict[Command | Fact, Callable[[Player, dict[Free, int]], Any]] = {
    Command.PROMPT: lambda player, told: Prompt(f"r{player.number()}", UserMessage("Hi")),
    Command.CONTINUE: lambda player, told: Continue(f"r{player.number()}"),
    Command.STEER: lambda player, told: Steer(player.item()),
    Command.FOLLOW_UP: lambda player, told: FollowUp(player.item()),
    Command.UNQUEUE: Player.unqueue,
    Command.CLEAR_QUEUES: lambda player, told: ClearQueues(),
    Command.CANCEL: lambda player, told: Cancel(),
    Command.COMPACT: lambda player, told: Compact(f"r{player.number()}"),
    Command.RESET: lambda player, told: Reset(),
    Command.CONFIGURE: lambda player, told: Configure(player.setup),
    Command.SUBSCRIBE: lambda player, told: Subscribe(),
    Command.WAIT_FOR_IDLE: lambda player, told: WaitForIdle(),
    Command.CLOSE: lambda player, told: Close(),
    Fact.PROJECTED: lambda player, told: Projected(player.single()),
    Fact.RESPONSE_STARTED: lambda player, told: ModelPart(player.single(), TextDelta("")),
    Fact.RESPONSE_COMPLETED: Player.response,
    Fact.RESPONSE_FAILED: Player.failed,
    Fact.CALL_PREPARED: lambda player, told: CallPrepared(
        player.at(CallStatus.PREPARING)[0], error="no" if told.get(Free.UNFIT) else None
    ),
    Fact.TOOL_SETTLED: Player.settled,
    Fact.HOOK_RETURNED: Player.hook,
    Fact.OUTPUT_CHECKED: lambda player, told: OutputChecked(
        player.single(), "it does not fit" if told.get(Free.WRONG) else None
    ),
    Fact.SUMMARIZED: lambda player, told: Summarized(player.single(), "s" if told.get(Free.SHRINKS, 1) else " "),
    Fact.SUMMARY_FAILED: lambda player, told: SummaryFailed(player.single(), Failure("no summary")),
    Fact.SUBSCRIBER_FAILED: lambda player, told: player.subscriber_failure(),
    Fact.HALTED: lambda player, told: Halted(),
    Fact.SETTLED: lambda player, told: Settled(),
}
