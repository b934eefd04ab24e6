"""What must hold, whatever was done: the guarantees of the design, as far as the outside can see them.

`always` is asked after every step, `settled` when the agent has come to rest, `over` when an example is done. Each claim
is a function that yields what is wrong, and its name begins with the guarantee that it is about.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from kernel import AssistantMessage, KernelConfig, SummaryMessage
from kernel.events import MessageAccepted, MessageEnded, RunFinished
from kernel.trace import check
from tests.kernel.stateful.commands import Commands, core_of
from tests.kernel.stateful.world import SITUATIONS, RunStory, World

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
        self._hold(self.g13_nothing_is_left, self.g14_snapshots_never_change, self.waiters_got_the_result, self.whole_story)
        for story in self.world.runs[self.judged :]:
            self.judge(story)
        self.judged = len(self.world.runs)

    def over(self) -> None:
        """When the loop has gone, with whatever was going on: every run has its end."""
        for story in self.world.runs[self.judged :]:
            assert story.run.result is not None, f"{story.run} has no result"
            self.judge(story)

    def judge(self, story: RunStory) -> None:
        """A run that has ended."""
        events = [event for event in self.world.recorder.events if event.run_id == story.run.id]
        note_situations(events, story)
        for claim in (
            g1_to_g11_by_its_trace, run_ended_as_it_was_told, g4_bodies_are_told, g6_items_enter_in_order,
            g6_follow_ups_come_last, g9_attempts_are_bounded, g16_turns_are_bounded, result_has_the_messages,
            reader_read_the_events,
        ):  # fmt: skip
            insist(claim.__name__, claim(self.world, self.commands, self.config, story, events))

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


def insist(claim: str, wrong: Iterator[str]) -> None:
    """Raise the first thing that is wrong."""
    for said in wrong:
        raise AssertionError(f"{claim}: {said}")


def enters(event: Any) -> bool:
    """Whether a message enters the transcript here."""
    return isinstance(event, MessageAccepted) or (isinstance(event, MessageEnded) and event.kept)


# ---- one run ----

Claim = Iterator[str]


def g1_to_g11_by_its_trace(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """The trace checker finds nothing. That late updates belong to a known call can't be seen in one run alone."""
    yield from (str(breach) for breach in check(events) if breach.guarantee != "G8")
    if sum(isinstance(event, RunFinished) for event in events) != 1 or events[-1].result is not story.run.result:
        yield "run.finished is not there once, with the run's result"
    result = story.run.result
    if result is not None and result.failure is not None and result.failure.code == "AGENT_STATE_FAILED":
        yield f"the kernel says that it has a bug: {result.failure.message}"


def run_ended_as_it_was_told(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """G7: an accepted cancel decides the outcome, and nothing else is called one."""
    result: Any = story.run.result
    if story.cancelled is not None and (result.status, result.reason) != ("cancelled", story.reason):
        yield f"cancelled for {story.reason}, and the result is {result.status} for {result.reason}"
    if story.cancelled is None and not story.killed and result.status == "cancelled":
        yield f"nobody cancelled a run that is cancelled: {result}"


def g4_bodies_are_told(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """The calls whose bodies began are the ones that `tool.ended` calls executed."""
    began = Counter(body.call_id for body in world.bodies if body.run_id == story.run.id)
    told = Counter(event.call_id for event in events if event.type == "tool.ended" and event.executed)
    if began != told and not (story.killed and began <= told):
        yield f"bodies began for {began}, executed were {told}"


def g6_items_enter_in_order(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """Queued messages enter in the order in which they were queued, one at each boundary or all."""
    numbers = {id(item.receipt.message): (item.queue, item.receipt.id) for item in commands.items}
    for queue, mode in (("steering", config.steering_mode), ("follow_up", config.follow_up_mode)):
        entered = [event for event in events if event.type == "message.accepted" and event.origin == queue]
        ids = [numbers[id(event.message)] for event in entered]
        if ids != sorted(ids) or any(kind != queue for kind, _ in ids):
            yield f"{queue} entered in the order {ids}"
        turns = Counter(turn_of(event, events) for event in entered)
        if mode == "one" and any(count > 1 for count in turns.values()):
            yield f"{queue} entered in turns {turns}, and one at a time is right"


def turn_of(event: Any, events: list[Any]) -> int:
    """The number of turns that had started when *event* came."""
    return sum(each.type == "turn.started" for each in events[: event.sequence])


def g6_follow_ups_come_last(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """A follow-up enters only where the run would otherwise end: no result waits for the model, and nothing steers."""
    said: list[Any] = []
    for event in events:
        if event.type == "message.accepted" and event.origin == "follow_up" and said:
            owed = [m for m in said if m.role == "tool" and m.call_id not in world.terminated] if said[-1].role == "tool" else []
            if owed or said[-1].role not in ("assistant", "tool"):
                yield f"{event} entered after {said[-1]}"
        if event.type == "turn.started":
            said = []
        elif isinstance(event, MessageEnded) and event.kept:
            said.append(event.message)


def g9_attempts_are_bounded(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """A turn asks the model `max_attempts` times at most, and as often again after an overflow; its prompt is its own."""
    requests = [request for request in world.requests if request.id.startswith(f"{story.run.id}:")]
    limit = 1 if config.retry is None else config.retry.max_attempts
    turns = max(1, story.run.result.turns if story.run.result is not None else 1)
    if len(requests) > 2 * limit * turns:
        yield f"{len(requests)} requests in {turns} turns"
    told = [int(request.system_prompt[1:]) for request in requests]
    if told != sorted(told) or (told and told[0] < story.prompts):
        yield f"the system prompts were {told}, and {story.prompts} was set when the run began"


def g16_turns_are_bounded(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """`max_turns` holds, but for the turn that tells of a failure."""
    result: Any = story.run.result
    if config.max_turns is not None and result.turns > config.max_turns:
        yield f"{result.turns} turns"
    started = sum(event.type == "turn.started" for event in events)
    if started - result.turns not in ((0, 1) if result.status == "failed" else (0,)):
        yield f"{started} turns started, {result.turns} are told, and the run is {result.status}"


def result_has_the_messages(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """The result has the messages that entered in the run, and their usage and last text."""
    result: Any = story.run.result
    told = [event.message for event in events if enters(event)]
    if [message for message in result.messages if not isinstance(message, SummaryMessage)] != told:
        yield f"the result has {result.messages}, and told was {told}"
    answers = [m for m in told if isinstance(m, AssistantMessage) and not m.is_cut]
    if answers and result.final_text != answers[-1].text:
        yield f"the final text is {result.final_text!r}, and the last answer {answers[-1]}"


def reader_read_the_events(world: World, commands: Commands, config: Any, story: RunStory, events: list[Any]) -> Claim:
    """The run's iterator gives the same events, pieces put together or not, up to where it says that it lost some."""
    place = 0
    for event in story.read:
        if event.sequence != place:
            yield f"read event {event.sequence} where {place} is next"
            return
        place += getattr(event, "count", 1)
        if getattr(event, "count", 1) == 1 and event is not events[event.sequence]:
            yield f"read {event}, told was {events[event.sequence]}"
    if story.lost is not None and not (story.lost.first == place and place <= story.lost.last < len(events)):
        yield f"lost {story.lost.first} to {story.lost.last} after {place} of {len(events)}"
    reader = story.reader
    if reader is not None and reader.done() and not reader.cancelled() and story.lost is None and place != len(events):
        yield f"read {place} of {len(events)} events"


def note_situations(events: list[Any], story: RunStory) -> None:
    """Count what is interesting in a run that has ended."""
    result: Any = story.run.result
    types = [event.type for event in events]
    SITUATIONS[f"a run {result.status}"] += 1
    if result.failure is not None:
        SITUATIONS[f"failed with {result.failure.code}"] += 1
    if "retry.ended" in types and result.status == "completed":
        SITUATIONS["retry, then success"] += 1
    SITUATIONS["a late update was discarded"] += "update.discarded" in types
    for event in events:
        if event.type == "compaction.started":
            SITUATIONS[f"compaction by {event.reason}"] += 1
        elif event.type == "compaction.ended":
            SITUATIONS[f"compaction {event.outcome}"] += 1
