"""The state machine of the tests: random commands and a random world around the real agent, in virtual time."""

import asyncio
import sys
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernel import Agent, CompactionPolicy, Event, Hooks, KernelConfig, RetryPolicy
from kernel.testing import SimulatedLoop
from statechart import Leaf
from tests.kernel.stateful.commands import BAD, Commands, core_of
from tests.kernel.stateful.listeners import DEEDS, EVENTS, KINDS
from tests.kernel.stateful.ports import WorldModel, WorldTool
from tests.kernel.stateful.promises import Promises
from tests.kernel.stateful.runs import enters
from tests.kernel.stateful.world import SITUATIONS, World

MAX_STEPS: Final = 20_000
"""Steps of one example. The longest take some thousand."""

TAPE: Final = st.binary(max_size=12) | st.binary(min_size=10, max_size=32)
THEN: Final = st.integers(0, 24)
KIND: Final = st.integers(0, 2)
SURE: Final = st.sampled_from((False, False, False, True))
"""For what would end most examples early if it came as often as the rest."""
TIMES: Final = st.integers(1, 3)
DEED: Final = st.sampled_from(("cancel", "cancel", "cancel", *DEEDS))
CATCH: Final = st.sampled_from(("acts", "acts", "acts", "acts_later", "raises", "slow"))
AT: Final = st.sampled_from(("*", *EVENTS))
BUSY: Final = tuple(leaf for leaf in Leaf if leaf not in (Leaf.IDLE, Leaf.CLOSED))
PASSED: Final = (Leaf.STEERING, Leaf.FOLLOW_UP, Leaf.SETTLING)
"""Places that a run only passes, unless somebody is slow: a listener catches it there."""
WISHES: Final = {
    Leaf.RETRY: "busy", Leaf.TOOLS: "call", Leaf.COMPACTION: "overflow", Leaf.STEERING: "say", Leaf.FOLLOW_UP: "say",
    "retry.scheduled": "busy", "retry.ended": "busy", "-> retry": "busy", "tool.started": "call", "tool.ended": "call",
    "compaction.started": "overflow", "compaction.ended": "overflow", "-> compaction": "overflow", "turn.ended": "say",
    "-> follow_up": "say",
}  # fmt: skip
"""What the next response must be for a run to come to a place, or to an event."""
WISH: Final = st.sampled_from((None, "call", "say", "busy"))
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
        "event_buffer": st.just(5),
    },
)
"""What differs from the default, so that a failing example shows what matters."""


class SeeingRecorder:
    """The first listener: keeps all events, and looks whether the agent knows what it is told (G12)."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __call__(self, event: Event) -> None:
        world = self.world
        if world.recorder.events and event.run_id == world.recorder.events[-1].run_id:
            right = world.recorder.events[-1].sequence + 1
        else:
            right = 0
        if event.sequence != right:
            world.note(f"event {event.sequence} came where {right} is next")
        world.recorder(event)
        if enters(event) and not any(message is event.message for message in world.agent.messages):
            world.note(f"G12: {event} was told before it was in the transcript")


class AgentMachine(RuleBasedStateMachine):
    """Random commands at a real agent."""

    shuffled = False

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        config=CONFIGS,
        hooks=st.sets(st.sampled_from(HOOKS)),
        window=st.sampled_from((None, 100)),
        order=st.binary(max_size=64),
        turns=st.integers(0, 3),
    )
    def build(self, config: dict[str, Any], hooks: set[str], window: int | None, order: bytes, turns: int) -> None:
        """Make the agent, with the recorder as its first listener and a few turns behind it."""
        left = list(reversed(order))
        choose = (lambda count: left.pop() % count if left else 0) if self.shuffled else None
        self.loop = SimulatedLoop(choose=choose, max_steps=MAX_STEPS)
        self.tasks: list[asyncio.Task[Any]] = []
        self.loop.set_task_factory(self._task)
        world = World(self.loop)
        world.sequential = "tool_execution" in config
        with self.loop.active():
            world.agent = Agent(
                WorldModel(world, window),
                tools=[WorldTool(world, name) for name in ("plain", "ordered", "writer", "timed")],
                system_prompt="p0",
                hooks=Hooks(**{name: getattr(world, name) for name in hooks}),
                config=KernelConfig(**config),
                compactor=world,
            )
            self.commands = Commands(world, patient=config.get("subscribers") != "observe")
            world.agent.subscribe(SeeingRecorder(world))
        self.promises = Promises(world, self.commands, KernelConfig(**config))
        self.world = world
        for _ in range(turns):
            self.converse(0, None, b"")

    def _task(self, loop: Any, body: Any, **options: Any) -> "asyncio.Task[Any]":
        """A task, remembered in the order in which tasks are made: a set of them has no order that comes again."""
        task = asyncio.Task(body, loop=loop, **options)
        self.tasks.append(task)
        return task

    # ---- time ----

    def go(self, steps: int, tape: Any = ()) -> None:
        """Some steps of the loop, time included."""
        assert self.world is not None
        self.world.tape.numbers.extend(tape)
        with self.loop.active():
            for _ in range(steps):
                if not self.loop.step() and not self.loop.advance():
                    break

    @rule(steps=st.integers(1, 40), tape=TAPE)
    def step(self, steps: int, tape: bytes) -> None:
        """Let the world go on a little."""
        self.go(steps, tape)

    @rule(tape=TAPE)
    def settle(self, tape: bytes) -> None:
        """Let the world go on until the run is over; what hangs for good is cancelled, and then it must end."""
        assert self.world is not None
        self.world.tape.numbers.extend(tape)
        agent = self.world.agent
        self.loop.drain(until=lambda: not agent.is_running, time=True)
        if agent.is_running:
            assert self.world.hanging or self.world.deaf, f"stuck in {agent.phase}: {self.loop.unfinished()}"
            SITUATIONS["a run hung until it was cancelled"] += 1
            with self.loop.active():
                self.commands.cancel("stuck")
            self.promises.always()
            self.loop.drain(until=lambda: not agent.is_running, time=True)
        assert not agent.is_running, f"stuck in {agent.phase}"
        self.loop.drain()
        if not agent.is_running:
            SITUATIONS["something was abandoned"] += bool(agent.abandoned)
            self.promises.settled()

    @rule()
    def release(self) -> None:
        """Those who ignored their cancellation go on at last."""
        assert self.world is not None
        self.world.release()

    # ---- commands ----

    @rule(kind=KIND, tape=TAPE, then=THEN)
    def prompt(self, kind: int, tape: bytes, then: int) -> None:
        assert self.world is not None
        self.world.tape.numbers.extend(tape)
        with self.loop.active():
            self.commands.prompt(kind)
        self.go(then)

    @rule(kind=KIND, wish=WISH, tape=TAPE)
    def converse(self, kind: int, wish: str | None, tape: bytes) -> None:
        """A whole run."""
        assert self.world is not None
        self.world.wish = wish
        self.prompt(kind, tape, 0)
        self.settle(b"")

    @rule(where=st.sampled_from((*BUSY, *PASSED)), kind=CATCH, deed=DEED, tape=TAPE, then=THEN)
    def interrupt(self, where: Leaf, kind: str, deed: str, tape: bytes, then: int) -> None:
        """Let a run come to a certain place, if it ever does, and do something there."""
        assert self.world is not None
        agent = self.world.agent
        if not agent.is_running:
            self.world.wish = WISHES.get(where)
            self.prompt(0, tape, 0)
        if where in PASSED:
            with self.loop.active():
                self.commands.subscribe(kind, f"-> {where.rpartition('.')[2]}", deed, 1)
        else:
            self.loop.drain(until=lambda: core_of(agent).leaf is where or not agent.is_running, time=True)
            with self.loop.active():
                self.commands.act(deed)
        self.go(then)

    @rule(kind=st.sampled_from(KINDS), at=AT, deed=st.sampled_from(DEEDS), tape=TAPE)
    def ambush(self, kind: str, at: str, deed: str, tape: bytes) -> None:
        """A whole run with a listener that waits for it."""
        self.subscribe(kind, at, deed, 1)
        self.converse(0, WISHES.get(at), tape)

    @rule(tape=TAPE, then=THEN)
    def continue_(self, tape: bytes, then: int) -> None:
        assert self.world is not None
        self.world.tape.numbers.extend(tape)
        with self.loop.active():
            self.commands.continue_()
        self.go(then)

    @rule(then=THEN, tape=TAPE)
    def compact(self, then: int, tape: bytes) -> None:
        assert self.world is not None
        self.world.tape.numbers.extend(tape)
        with self.loop.active():
            self.commands.compact()
        self.go(then)

    @rule(kind=KIND, times=TIMES, then=THEN)
    def steer(self, kind: int, times: int, then: int) -> None:
        with self.loop.active():
            for _ in range(times):
                self.commands.steer(kind)
        self.go(then)

    @rule(kind=KIND, times=TIMES, then=THEN)
    def follow_up(self, kind: int, times: int, then: int) -> None:
        with self.loop.active():
            for _ in range(times):
                self.commands.follow_up(kind)
        self.go(then)

    @rule(which=st.integers(0, 5))
    def unqueue(self, which: int) -> None:
        with self.loop.active():
            self.commands.unqueue(which)

    @rule()
    def clear_queues(self) -> None:
        with self.loop.active():
            self.commands.clear_queues()

    @rule(reason=st.sampled_from((None, "enough")), by_run=st.booleans(), then=THEN)
    def cancel(self, reason: str | None, by_run: bool, then: int) -> None:
        with self.loop.active():
            self.commands.cancel(reason, by_run=by_run)
        self.go(then)

    @rule()
    def reset(self) -> None:
        with self.loop.active():
            self.commands.reset()

    @rule(what=st.integers(0, 1))
    def configure(self, what: int) -> None:
        with self.loop.active():
            self.commands.configure(what)

    @rule(kind=st.sampled_from(KINDS), at=AT, deed=st.sampled_from(DEEDS), times=st.integers(1, 2))
    def subscribe(self, kind: str, at: str, deed: str, times: int) -> None:
        with self.loop.active():
            self.commands.subscribe(kind, at, deed, times)

    @rule(which=st.integers(0, 3))
    def unsubscribe(self, which: int) -> None:
        with self.loop.active():
            self.commands.unsubscribe(which)

    @rule()
    def wait_for_idle(self) -> None:
        self.commands.wait_for_idle()

    @precondition(lambda self: self.world is not None and len(self.world.runs) > 2)
    @rule(sure=SURE, then=THEN)
    def aclose(self, sure: bool, then: int) -> None:
        if sure:
            self.commands.aclose()
            self.go(then)

    @rule()
    def snapshot(self) -> None:
        self.commands.snapshot()

    @rule(which=st.sampled_from(BAD))
    def bad_input(self, which: str) -> None:
        with self.loop.active():
            self.commands.bad_input(which)

    @precondition(lambda self: self.world is not None and self.world.agent.is_running)
    @rule(sure=SURE, which=st.integers(0, 5), then=THEN)
    def kill(self, sure: bool, which: int, then: int) -> None:
        """A task of the kernel's is cancelled from outside: the run may end by that, but it ends."""
        assert self.world is not None
        tasks = [task for task in self.tasks if not task.done() and task.get_name().startswith("kernel")]
        if sure and tasks:
            self.world.runs[-1].killed = True
            tasks[which % len(tasks)].cancel()
            self.go(then)

    @precondition(lambda self: self.world is not None and self.world.runs)
    @rule(reader=st.booleans())
    def leave(self, reader: bool) -> None:
        """Somebody who waits for the run, or reads it, is cancelled: the run does not care."""
        assert self.world is not None
        story = self.world.runs[-1]
        task: asyncio.Task[Any] | None = story.reader if reader else story.waiters[1]
        if task is not None:
            task.cancel()

    # ---- promises ----

    @invariant()
    def promises_hold(self) -> None:
        if self.world is not None:
            self.promises.always()

    def teardown(self) -> None:
        """The loop goes away in the middle of whatever was going on: every run is told its end all the same."""
        world = self.world
        if world is None:
            return
        failed = sys.exc_info()[0] is not None
        world.tape.numbers.clear()
        for story in world.runs:
            story.killed = story.killed or story.run.result is None
        self.loop.drain()
        world.release()
        self.loop.shutdown()
        if not failed:
            self.promises.over()
