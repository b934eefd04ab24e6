"""The state machine of the tests: random commands and a random world around the real agent, in virtual time."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

from attrs import evolve
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kernel import Agent, CompactionPolicy, Event, Hooks, KernelConfig, RetryPolicy, UsageLimit
from kernel.frozen import FrozenDict
from kernel.inputs import Configure
from kernel.setup import OutputSpec
from kernel.testing import SimulatedLoop
from statechart import Leaf
from tests.kernel.stateful.commands import BAD, Commands
from tests.kernel.stateful.coverage import COVERAGE
from tests.kernel.stateful.listeners import DEEDS, EVENTS, KINDS
from tests.kernel.stateful.oracle import core_of
from tests.kernel.stateful.ports import TOOLS, WorldModel, WorldTool
from tests.kernel.stateful.promises import Promises
from tests.kernel.stateful.runs import enters
from tests.kernel.stateful.world import SITUATIONS, World

SETTINGS: Final = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
MAX_STEPS: Final = 20_000
"""Steps of one example. The longest take some thousand."""

HORIZON: Final = 2_000.0
"""Virtual seconds after which a run that still goes on is taken to hang: more than all retries with all stalls."""
TAPE: Final = st.binary(max_size=12) | st.binary(min_size=10, max_size=32)
THEN: Final = st.integers(0, 24)
KIND: Final = st.integers(0, 2)
SURE: Final = st.sampled_from((False, False, False, True))
"""For what would end most examples early if it came as often as the rest."""
TIMES: Final = st.integers(1, 3)
DEED: Final = st.sampled_from(("cancel", "cancel", "cancel", *DEEDS))
CATCH: Final = st.sampled_from(("acts", "acts", "acts", "raises", "raises", "acts_later", "slow"))
AT: Final = st.sampled_from(("*", *EVENTS))
BUSY: Final = tuple(leaf for leaf in Leaf if leaf not in (Leaf.IDLE, Leaf.CLOSED))
PLACES: Final = st.sampled_from((*BUSY, Leaf.FOLLOW_UP, Leaf.SETTLING, Leaf.RETRY))
"""Places to do something at; those that are hard to come to are tried more often."""
PASSED: Final = (Leaf.STEERING, Leaf.FOLLOW_UP, Leaf.SETTLING)
"""Places that a run only passes, unless somebody is slow: a listener catches it there."""
WISHES: Final = {
    Leaf.RETRY: "busy", Leaf.TOOLS: "call", Leaf.COMPACTION: "overflow", Leaf.STEERING: "say", Leaf.FOLLOW_UP: "say",
    "retry.scheduled": "busy", "retry.ended": "busy", "-> retry": "busy", "tool.started": "call", "tool.ended": "call",
    "compaction.started": "overflow", "compaction.ended": "overflow", "-> compaction": "overflow", "turn.ended": "say",
    "-> follow_up": "say", "-> steering": "say", "-> settling": "say", "run.finished": "say", Leaf.SETTLING: "say",
}  # fmt: skip
"""What the next response must be for a run to come to a place, or to an event."""
WISH: Final = st.sampled_from((None, "call", "say", "busy", "writers"))
HOOKS: Final = (
    "transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn"
)  # fmt: skip
CONFIGS: Final = st.fixed_dictionaries(
    {},
    optional={
        "subscribers": st.just("observe"),
        "subscriber_failure": st.just("fail_run"),
        "steering_mode": st.just("all"),
        "follow_up_mode": st.just("all"),
        "tool_execution": st.just("sequential"),
        "interrupted_message": st.just("discard"),
        "failure_message": st.just("result_only"),
        "retry": st.sampled_from((None, RetryPolicy(max_attempts=2))),
        "compaction": st.sampled_from((None, CompactionPolicy(keep_turns=1, reserve=0))),
        "max_turns": st.sampled_from((1, 2, None)),
        "queue_limit": st.sampled_from((2, None)),
        "message_limit": st.sampled_from((10, None)),
        "call_limit": st.just(2),
        "cancel_grace": st.sampled_from((1.0, 0.0)),
        "tool_timeout": st.just(2.5),
        "stream_idle_timeout": st.sampled_from((2.0, None)),
        "run_deadline": st.just(6.0),
        "usage_limit": st.sampled_from((UsageLimit(requests=2), UsageLimit(tokens=250), UsageLimit(tool_calls=1))),
        "event_buffer": st.just(5),
    },
)
"""What differs from the default, so that a failing example shows what matters."""


class SeeingRecorder:
    """The first listener: keeps all events, and looks whether the agent knows what it is told (G12)."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __call__(self, event: Event) -> None:
        world, before = self.world, self.world.recorder.events[-1:]
        right = before[0].sequence + 1 if before and before[0].run_id == event.run_id else 0
        if event.sequence != right:
            world.note(f"event {event.sequence} came where {right} is next")
        world.recorder(event)
        if enters(event) and not any(message is event.message for message in world.agent.messages):
            world.note(f"G12: {event} was told before it was in the transcript")


def attack(kind: type[RuleBasedStateMachine], settings: settings, missing: Callable[[], object], rounds: int = 6) -> int:
    """Run the examples of *settings*, and as many again, up to *rounds* times, while something is *missing*; how often.

    Which examples a seed gives depends on the constants in all modules that are loaded, so a fixed number of them may miss
    today what it found yesterday.
    """
    for number in range(rounds):
        run_state_machine_as_test(seed(number)(type(kind.__name__, (kind,), {})), settings=settings)
        if not missing():
            return number + 1
    return rounds


class AgentMachine(RuleBasedStateMachine):
    """Random commands at a real agent."""

    shuffled = False
    journal: Callable[[str], object] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.loop = SimulatedLoop(choose=self._choose if self.shuffled else None, max_steps=MAX_STEPS)
        self.loop.set_task_factory(self._task)
        self.world = World(self.loop)

    def _choose(self, count: int) -> int:
        return self.order.pop() % count if self.order else 0

    def _task(self, loop: Any, body: Any, **options: Any) -> "asyncio.Task[Any]":
        """A task, remembered in the order in which tasks are made: a set of them has no order that comes again."""
        task = asyncio.Task(body, loop=loop, **options)
        self.tasks.append(task)
        return task

    @initialize(
        config=CONFIGS,
        hooks=st.sets(st.sampled_from(HOOKS)),
        window=st.sampled_from((None, 100)),
        order=st.binary(max_size=64),
        turns=st.integers(0, 3),
        output=st.booleans(),
    )
    def build(
        self, config: dict[str, Any], hooks: set[str], window: int | None, order: bytes, turns: int, output: bool = False
    ) -> None:
        """Make the agent, with the recorder as its first listener and a few turns behind it."""
        world, chosen = self.world, KernelConfig(**config)
        self.order = list(reversed(order))
        self.commands = Commands(world, chosen)
        self.promises = Promises(world, self.commands, chosen)
        with self.loop.active():
            world.agent = Agent(
                WorldModel(world, window),
                tools=[WorldTool(world, name) for name in TOOLS],
                system_prompt="p0",
                hooks=Hooks(**{name: getattr(world, name) for name in hooks}),
                config=chosen,
                compactor=world,
                journal=self.journal,
            )
            world.agent.subscribe(SeeingRecorder(world))
            if output:
                spec = OutputSpec(FrozenDict(), world.judge)
                world.agent._shell.command(Configure(evolve(core_of(world.agent).setup, output=spec)), "configure")
        COVERAGE.watch(world.agent)
        for _ in range(turns):
            self.converse(0, None, b"")

    # ---- time ----

    def give(self, command: Callable[..., object], *arguments: Any, tape: bytes = b"", then: int = 0) -> None:
        """Give a command from outside of all tasks, and let the world go on a little."""
        self.world.tape.numbers.extend(tape)
        with self.loop.active():
            command(*arguments)
            for _ in range(then):
                if not self.loop.step() and not self.loop.advance():
                    break

    @rule(steps=st.integers(1, 40), tape=TAPE)
    def step(self, steps: int, tape: bytes) -> None:
        """Let the world go on a little."""
        self.give(lambda: None, tape=tape, then=steps)

    def go_on(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let the world go on to a certain place, or until the run has ended or nothing more will happen."""
        agent, horizon = self.world.agent, self.loop.time() + HORIZON
        self.loop.drain(until=lambda: until() or not agent.is_running or self.loop.time() > horizon, time=True)

    @rule(tape=TAPE)
    def settle(self, tape: bytes) -> None:
        """Let the world go on until the run is over; what hangs for good is cancelled, and then it must end."""
        agent = self.world.agent
        self.world.tape.numbers.extend(tape)
        self.go_on()
        if agent.is_running:
            assert self.world.hanging or self.world.deaf, f"stuck in {agent.phase}: {self.loop.unfinished()}"
            SITUATIONS["a run hung until it was cancelled"] += 1
            self.give(self.commands.cancel, "stuck")
            self.promises.always()
            self.go_on()
        assert not agent.is_running, f"stuck in {agent.phase} after a cancel: {self.loop.unfinished()}"
        self.loop.drain()
        if not agent.is_running:
            SITUATIONS["something was abandoned"] += bool(agent.abandoned)
            self.promises.settled()

    @rule()
    def release(self) -> None:
        """Those who ignored their cancellation go on at last."""
        self.world.release()

    # ---- runs ----

    @rule(kind=KIND, tape=TAPE, then=THEN)
    def prompt(self, kind: int, tape: bytes, then: int) -> None:
        self.give(self.commands.prompt, kind, tape=tape, then=then)

    @rule(tape=TAPE, then=THEN)
    def continue_(self, tape: bytes, then: int) -> None:
        self.give(self.commands.continue_, tape=tape, then=then)

    @rule(queue=st.sampled_from(("steer", "follow_up")), then=THEN)
    def start_over(self, queue: str, then: int) -> None:
        """Go on from an empty transcript, with a message queued."""
        self.give(self.commands.reset)
        self.give(self.commands.act, queue)
        self.give(self.commands.continue_, then=then)

    @rule(tape=TAPE, then=THEN)
    def compact(self, tape: bytes, then: int) -> None:
        self.give(self.commands.compact, tape=tape, then=then)

    @rule(kind=KIND, wish=WISH, tape=TAPE)
    def converse(self, kind: int, wish: str | None, tape: bytes) -> None:
        """A whole run."""
        self.world.wish = wish
        self.prompt(kind, tape, 0)
        self.settle(b"")

    @rule(where=PLACES, kind=CATCH, deed=DEED, tape=TAPE, then=THEN)
    def interrupt(self, where: Leaf, kind: str, deed: str, tape: bytes, then: int) -> None:
        """Let a run come to a certain place, if it ever does, and do something there."""
        agent = self.world.agent
        self.world.wish = WISHES.get(where)
        if not agent.is_running:
            self.prompt(0, tape, 0)
        if where in PASSED:
            self.give(self.commands.subscribe, kind, f"-> {where.rpartition('.')[2]}", deed, 1, then=then)
        else:
            self.go_on(until=lambda: core_of(agent).leaf is where)
            self.give(self.commands.act, deed, then=then)

    @rule(kind=st.sampled_from(KINDS), at=AT, deed=st.sampled_from(DEEDS), tape=TAPE)
    def ambush(self, kind: str, at: str, deed: str, tape: bytes) -> None:
        """A whole run with a listener that waits for it."""
        self.subscribe(kind, at, deed, 1)
        self.converse(0, WISHES.get(at), tape)

    @rule(reason=st.sampled_from((None, "enough")), by_run=st.booleans(), then=THEN)
    def cancel(self, reason: str | None, by_run: bool, then: int) -> None:
        self.give(self.commands.cancel, reason, by_run, then=then)

    @rule()
    def wait_for_idle(self) -> None:
        self.give(self.commands.wait_for_idle)

    @precondition(lambda self: len(self.world.runs) > 2)
    @rule(sure=SURE, then=THEN)
    def aclose(self, sure: bool, then: int) -> None:
        if sure:
            self.give(self.commands.aclose, then=then)

    @precondition(lambda self: self.world.agent.is_running)
    @rule(sure=SURE, which=st.integers(0, 5), then=THEN)
    def kill(self, sure: bool, which: int, then: int) -> None:
        """A task of the kernel's is cancelled from outside: the run may end by that, but it ends."""
        tasks = [task for task in self.tasks if not task.done() and task.get_name().startswith("kernel")]
        if sure and tasks:
            self.world.runs[-1].killed = True
            self.give(tasks[which % len(tasks)].cancel, then=then)

    @precondition(lambda self: self.world.runs)
    @rule(reader=st.booleans())
    def leave(self, reader: bool) -> None:
        """Somebody who waits for the run, or reads it, is cancelled: the run does not care."""
        story = self.world.runs[-1]
        task = story.reader if reader else story.waiters[1]
        if task is not None:
            self.give(task.cancel)

    # ---- the rest ----

    @rule(kind=KIND, times=TIMES, then=THEN)
    def steer(self, kind: int, times: int, then: int) -> None:
        self.give(lambda: [self.commands.steer(kind) for _ in range(times)], then=then)

    @rule(kind=KIND, times=TIMES, then=THEN)
    def follow_up(self, kind: int, times: int, then: int) -> None:
        self.give(lambda: [self.commands.follow_up(kind) for _ in range(times)], then=then)

    @rule(which=st.integers(0, 5))
    def unqueue(self, which: int) -> None:
        self.give(self.commands.unqueue, which)

    @rule()
    def clear_queues(self) -> None:
        self.give(self.commands.clear_queues)

    @rule()
    def reset(self) -> None:
        self.give(self.commands.reset)

    @rule(what=st.integers(0, 1))
    def configure(self, what: int) -> None:
        self.give(self.commands.configure, what)

    @rule(kind=st.sampled_from(KINDS), at=AT, deed=st.sampled_from(DEEDS), times=st.integers(1, 2))
    def subscribe(self, kind: str, at: str, deed: str, times: int) -> None:
        self.give(self.commands.subscribe, kind, at, deed, times)

    @rule(which=st.integers(0, 3))
    def unsubscribe(self, which: int) -> None:
        self.give(self.commands.unsubscribe, which)

    @rule()
    def snapshot(self) -> None:
        self.give(self.commands.snapshot)

    @rule(which=st.sampled_from(BAD))
    def bad_input(self, which: str) -> None:
        self.give(self.commands.bad_input, which)

    # ---- promises ----

    @invariant()
    def promises_hold(self) -> None:
        self.promises.always()

    def teardown(self) -> None:
        """The loop goes away in the middle of whatever was going on: every run is told its end all the same."""
        failed = sys.exc_info()[0] is not None
        self.world.tape.numbers.clear()
        for story in self.world.runs:
            story.killed = story.killed or story.run.result is None
        self.loop.drain()
        self.world.release()
        self.loop.shutdown()
        if not failed:
            self.promises.over()
