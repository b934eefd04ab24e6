"""What must hold, whatever was done: the guarantees of the design, as far as the outside can see them.

`always` is asked after every step, `settled` when the agent has come to rest, `over` when an example is done. Each claim
is a function that yields what is wrong, and its name begins with the guarantee that it is about.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from kernel import KernelConfig, SummaryMessage
from tests.kernel.stateful.commands import Commands
from tests.kernel.stateful.oracle import core_of
from tests.kernel.stateful.runs import CLAIMS, Case, enters, note_situations
from tests.kernel.stateful.world import RunStory, World

EPSILON: Final = 1e-6


class Promises:
    """The claims about one agent."""

    def __init__(self, world: World, commands: Commands, config: KernelConfig) -> None:
        self.world = world
        self.commands = commands
        self.config = config
        self.judged = 0

    def always(self) -> None:
        """After every step."""
        self._hold(
            self.world_saw_nothing_wrong, self.g6_each_item_is_in_one_place, self.g8_cancel_is_bounded,
            self.g16_limits_hold, self.phase_and_state_agree, self.listeners_hear_everything,
        )  # fmt: skip

    def settled(self) -> None:
        """When no run is going and nothing is ready."""
        self.always()
        self._hold(
            self.g13_nothing_is_left, self.g14_snapshots_never_change, self.waiters_got_the_result,
            self.whole_story, self.last_failure_is_shown,
        )  # fmt: skip
        for story in self.world.runs[self.judged :]:
            self.judge(story)
        self.judged = len(self.world.runs)

    def over(self) -> None:
        """When the loop has gone, with whatever was going on: every run has its end."""
        for story in self.world.runs[self.judged :]:
            self.judge(story)

    def judge(self, story: RunStory) -> None:
        """A run that has ended."""
        result = story.run.result
        assert result is not None, f"{story.run} has no result"
        events = [event for event in self.world.recorder.events if event.run_id == result.run_id]
        note_situations(events, result)
        case = Case(self.world, self.commands, self.config, story, result, events)
        for claim in CLAIMS:
            insist(claim.__name__, claim(case))

    def _hold(self, *claims: Any) -> None:
        for claim in claims:
            insist(claim.__name__, claim())

    # ---- always ----

    def world_saw_nothing_wrong(self) -> Iterator[str]:
        """No callable was called where it must not be, no command answered wrongly, and the loop heard of no error."""
        yield from self.world.problems
        yield from (str(context) for context in self.world.loop.exceptions)

    def g6_each_item_is_in_one_place(self) -> Iterator[str]:
        """A queued message waits, or has entered the transcript once, or was dropped; its receipt says which."""
        agent = self.world.agent
        waiting = Counter(map(id, (*agent.queued.steering, *agent.queued.follow_up)))
        entered = Counter(map(id, (*core_of(agent).archive, *agent.messages)))
        for item in self.commands.items:
            kept = item.resets == self.commands.resets
            right = {"queued": (1, 0), "delivered": (0, int(kept)), "dropped": (0, 0)}[item.receipt.status]
            key = id(item.receipt.message)
            if (waiting[key], entered[key]) != right and (kept or waiting[key] or entered[key]):
                yield f"{item.receipt} waits {waiting[key]} times and is {entered[key]} times in the transcript"
            if (item.receipt.status == "dropped") != item.taken:
                yield f"{item.receipt} was taken out: {item.taken}"

    def g8_cancel_is_bounded(self) -> Iterator[str]:
        """What was told to stop has ended `cancel_grace` later."""
        for story in self.world.runs[self.judged :]:
            told = story.cancelled if story.cancelled is not None else story.told_to_settle
            ended = story.ended if story.ended is not None else self.world.loop.time()
            if told is not None and ended > told + self.config.cancel_grace + EPSILON:
                yield f"told to stop at {told} and not at rest at {ended}"

    def g16_limits_hold(self) -> Iterator[str]:
        """Queues and transcript stay within their limits."""
        agent, config = self.world.agent, self.config
        waiting = len(agent.queued.steering) + len(agent.queued.follow_up)
        if config.queue_limit is not None and waiting > config.queue_limit:
            yield f"{waiting} messages wait"
        if config.message_limit is not None and len(agent.messages) > config.message_limit:
            yield f"the transcript has {len(agent.messages)} messages"

    def phase_and_state_agree(self) -> Iterator[str]:
        """What the snapshot says of the run fits the phase."""
        state = self.world.agent.state
        busy = state.phase not in ("idle", "closed")
        if state.is_running != busy:
            yield f"is_running is {state.is_running} in {state.phase}"
        if state.phase == "closed" and not self.commands.closing:
            yield "closed, and nobody asked for that"
        if state.is_streaming and state.phase != "turn":
            yield f"streaming in {state.phase}"
        if (state.streaming_message or state.pending_tool_calls) and state.phase not in ("turn", "cancelling"):
            yield f"open are {state.streaming_message} and {state.pending_tool_calls} in {state.phase}"

    def listeners_hear_everything(self) -> Iterator[str]:
        """A listener hears each event from its subscription to its end, in order; one delivery may be under way."""
        events = self.world.recorder.events
        for listener in self.commands.listeners:
            right = events[listener.since : listener.until]
            if listener.heard != right and listener.heard != right[:-1]:
                yield f"a listener heard {len(listener.heard)} events where {len(right)} are right"

    # ---- settled ----

    def g13_nothing_is_left(self) -> Iterator[str]:
        """No task and no timer of the kernel is alive, but for what is listed as abandoned."""
        world, agent = self.world, self.world.agent
        if agent.is_running:
            yield f"a run is going in {agent.phase}"
        abandoned = agent._shell.abandoned
        for task in world.loop.unfinished():
            name = task.get_name()
            # Under `observe` nobody waits for listeners, and what they do goes on by itself.
            watched = self.config.subscribers == "await" or not name.startswith("kernel listener")
            if name.startswith("kernel") and watched and task not in abandoned:
                yield f"{name} is alive"
        if any(task.done() for task in abandoned):
            yield "something that has ended is still listed as abandoned"
        held = {work.call_id for work in core_of(agent).abandoned.values()}
        if lost := held - {work.call_id for work in agent.abandoned}:
            yield f"keys are held for {sorted(lost)}, which nothing is left of"
        late = sum(work.kind == "listener" for work in agent.abandoned)
        if not 0 <= world.loop.timers() - world.timers <= late:
            yield f"{world.loop.timers()} timers are set, {world.timers} are the world's, {late} listeners are abandoned"

    def g14_snapshots_never_change(self) -> Iterator[str]:
        """States and requests look as they did when they were taken."""
        for kept in self.commands.kept:
            if repr(kept.state) != kept.copy:
                yield f"a snapshot changed from {kept.copy} to {kept.state}"
        for request, copy in zip(self.world.requests, self.world.request_copies, strict=True):
            if repr(request) != copy:
                yield f"request {request.id} changed"

    def last_failure_is_shown(self) -> Iterator[str]:
        """`error_message` is the last run's, until a reset."""
        state, runs = self.world.agent.state, self.world.runs
        failure = runs[-1].run.result.failure if runs and runs[-1].run.result is not None else None
        if state.error_message not in ((failure.message, None) if failure is not None else (None,)):
            yield f"error_message is {state.error_message!r} after {failure}"

    def waiters_got_the_result(self) -> Iterator[str]:
        """Everybody who waited for a run has its one result."""
        for story in self.world.runs:
            for waiter in story.waiters:
                if not waiter.done() or (not waiter.cancelled() and waiter.result() is not story.run.result):
                    yield f"{waiter} has another result than {story.run.result}"
        for task in self.commands.tasks:
            if not task.done() or (not task.cancelled() and task.exception() is not None):
                yield f"{task} did not come back well"

    def whole_story(self) -> Iterator[str]:
        """G10, G12: transcript and archive are, in order, what was said to enter, and summaries."""
        events = self.world.recorder.events[self.commands.forgotten :]
        told = [event.message for event in events if enters(event)]
        core = core_of(self.world.agent)
        there = [m for m in (*core.archive, *self.world.agent.messages) if not isinstance(m, SummaryMessage)]
        if there[self.commands.history :] != told:
            yield f"the transcript has {there}, and told was {told}"
        if any(message.role == "summary" and message.text != "S" for message in self.world.agent.messages):
            yield "a summary was taken that makes the context no smaller"


def insist(claim: str, wrong: Iterator[str]) -> None:
    """Raise the first thing that is wrong."""
    for said in wrong:
        raise AssertionError(f"{claim}: {said}")
