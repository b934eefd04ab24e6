"""What must hold for one run that has ended, whatever happened in it."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from attrs import frozen

from kernel import AssistantMessage, KernelConfig, RunResult, SummaryMessage
from kernel.events import MessageAccepted, MessageEnded, RunFinished
from kernel.trace import check
from tests.kernel.stateful.commands import Commands
from tests.kernel.stateful.oracle import core_of
from tests.kernel.stateful.world import SITUATIONS, RunStory, World


@frozen
class Case:
    """A run that has ended, and all that is known of it."""

    world: World
    commands: Commands
    config: KernelConfig
    story: RunStory
    result: RunResult
    events: list[Any]


def enters(event: Any) -> bool:
    """Whether a message enters the transcript here."""
    return isinstance(event, MessageAccepted) or (isinstance(event, MessageEnded) and event.kept)


def g1_to_g11_by_its_trace(case: Case) -> Iterator[str]:
    """The trace checker finds nothing. That late updates belong to a known call can't be seen in one run alone."""
    yield from (str(breach) for breach in check(case.events) if breach.guarantee != "G8")
    ends = [event for event in case.events if isinstance(event, RunFinished)]
    if len(ends) != 1 or ends[0].result is not case.result:
        yield f"run.finished came {len(ends)} times, or not with the run's result"
    if case.result.failure is not None and case.result.failure.code == "AGENT_STATE_FAILED":
        yield f"the kernel says that it has a bug: {case.result.failure.message}"


def g4_bodies_are_told(case: Case) -> Iterator[str]:
    """The calls whose bodies began are the ones that `tool.ended` calls executed."""
    began = Counter(body.call_id for body in case.world.bodies if body.run_id == case.result.run_id)
    told = Counter(event.call_id for event in case.events if event.type == "tool.ended" and event.executed)
    if began != told and not (case.story.killed and began <= told):
        yield f"bodies began for {began}, executed were {told}"


def g6_items_enter_in_order(case: Case) -> Iterator[str]:
    """Queued messages enter in the order in which they were queued, one at each boundary or all."""
    items = {id(item.receipt.message): item for item in case.commands.items}
    for queue, mode in (("steering", case.config.steering_mode), ("follow_up", case.config.follow_up_mode)):
        entered = [event for event in case.events if event.type == "message.accepted" and event.origin == queue]
        ids = [items[id(event.message)].receipt.id for event in entered]
        if ids != sorted(ids) or any(items[id(event.message)].queue != queue for event in entered):
            yield f"{queue} entered in the order {ids}"
        turns = Counter(_turn_of(event, case.events) for event in entered)
        if mode == "one" and any(count > 1 for count in turns.values()):
            yield f"{queue} entered so often in each turn: {turns}; one at a time is right"


def _turn_of(event: Any, events: list[Any]) -> int:
    return sum(each.type == "turn.started" for each in events[: event.sequence])


def g4_what_did_not_run_has_a_reason(case: Case) -> Iterator[str]:
    """Calls are left unexecuted or are interrupted only where the run was told to stop or the response was truncated."""
    stop = None
    stopped = _told_to_stop(case)
    for event in case.events:
        if event.type == "message.ended" and event.message.role == "assistant":
            stop = event.message.stop
        stopping = event.type == "tool.ended" and event.text.startswith(("not executed: the run", "interrupted"))
        truncated = event.type == "tool.ended" and event.text.startswith("not executed: the response")
        if (stopping and not stopped) or (truncated and stop != "length"):
            yield f"{event} after a response that ended with {stop}"


def _told_to_stop(case: Case) -> bool:
    return case.story.killed or any(event.type == "phase.changed" and event.target == "cancelling" for event in case.events)


def g6_the_prompt_enters_once(case: Case) -> Iterator[str]:
    """What the run was prompted with enters, once, and nothing else does as a prompt."""
    accepted = [event.message for event in case.events if event.type == "message.accepted" and event.origin == "prompt"]
    texts = [getattr(message, "kind", None) or message.text for message in accepted]
    if texts != ([] if case.story.text is None else [case.story.text]):
        yield f"prompted with {case.story.text!r}, and {texts} entered"


def g6_follow_ups_come_last(case: Case) -> Iterator[str]:
    """A follow-up enters only where the run would otherwise end: no result of the turn before waits for the model."""
    before: list[Any] = []
    said: list[Any] = []
    for event in case.events:
        if event.type == "turn.started":
            before, said = said, []
        elif isinstance(event, MessageEnded) and event.kept:
            said.append(event.message)
        elif isinstance(event, MessageAccepted) and event.origin == "follow_up":
            owed = [m for m in before if m.role == "tool" and m.call_id not in case.world.terminated]
            if owed:
                yield f"{event.message} entered, and the model has not seen {owed}"


def g6_waiting_steering_joins_the_prompt(case: Case) -> Iterator[str]:
    """Steering that was queued before a prompt is there when the model is first asked."""
    story, was_asked = case.story, any(each.id.startswith(f"{case.result.run_id}:") for each in case.world.requests)
    if story.text is None or not story.steering or not was_asked or story.takings != case.commands.takings:
        return
    answer = next((place for place, event in enumerate(case.events) if event.type == "message.started"), None)
    before = [event for event in case.events[:answer] if event.type == "message.accepted"]
    if not any(event.origin == "steering" for event in before):
        yield f"{story.steering} messages steered, and the model was asked with {before}"


def g6_turns_have_a_cause(case: Case) -> Iterator[str]:
    """A turn begins with a message that entered, or with results that the model has not seen; or it tells a failure."""
    turns: list[list[Any]] = []
    for event in case.events:
        if event.type == "turn.started":
            turns.append([])
        if turns:
            turns[-1].append(event)
    for before, turn in pairwise(turns):
        entered = any(event.type == "message.accepted" for event in turn)
        owed = any(event.type == "tool.ended" for event in before)
        told = turn is turns[-1] and case.result.status == "failed"
        if not (entered or owed or told):
            yield f"{turn[0]} began for nothing"


def g6_nothing_is_left_behind(case: Case) -> Iterator[str]:
    """A run completes only when nothing waits: what was queued before that was decided is not there any more."""
    number = case.world.runs.index(case.story) + 1
    if case.result.status != "completed" or case.story.by == "compact":
        return
    for item in case.commands.queued_items():
        if item.runs < number or (item.runs == number and item.leaf.startswith("running.")):
            yield f"{item} waits although run {number} has completed"


def g7_run_ended_as_it_was_told(case: Case) -> Iterator[str]:
    """An accepted cancel decides the outcome, and nothing else is called one."""
    story, result = case.story, case.result
    if story.cancelled is not None and (result.status, result.reason) != ("cancelled", story.reason):
        yield f"cancelled for {story.reason}, and the result is {result.status} for {result.reason}"
    if story.cancelled is None and not story.killed and result.status == "cancelled":
        yield f"nobody cancelled a run that is cancelled: {result}"


def g9_attempts_are_bounded(case: Case) -> Iterator[str]:
    """A turn asks the model `max_attempts` times at most, and as often again after an overflow."""
    requests = [request for request in case.world.requests if request.id.startswith(f"{case.result.run_id}:")]
    limit = 1 if case.config.retry is None else case.config.retry.max_attempts
    if len(requests) > 2 * limit * case.result.turns:
        yield f"{len(requests)} requests in {case.result.turns} turns"
    late = [event for event in case.events if event.type == "retry.scheduled" and event.attempt >= limit]
    if late:
        yield f"{late[0]}, where {limit} requests are all"
    prompts = [int(request.system_prompt.removeprefix("p")) for request in requests]
    if prompts != sorted(prompts) or (prompts and prompts[0] < case.story.prompts):
        yield f"the system prompts were {prompts}, and {case.story.prompts} was set when the run began"


def g10_a_threshold_ends_no_run(case: Case) -> Iterator[str]:
    """After a compaction near the window the run goes on, whatever came of it."""
    reason = None
    for event in case.events:
        reason = event.reason if event.type == "compaction.started" else reason
        moved = (event.source, event.target) if event.type == "phase.changed" else None
        if moved == ("compaction", "settling") and reason == "threshold" and not case.story.killed:
            yield "the run ended with a compaction that it could do without"


def a_completed_answer_was_found_right(case: Case) -> Iterator[str]:
    """Where something is asked for, a run completes with an answer only when its check said so, and has its value then."""
    asked = core_of(case.world.agent).setup.output is not None
    last = case.result.messages[-1] if case.result.messages else None
    answered = isinstance(last, AssistantMessage) and case.result.status == "completed"
    if answered and asked and case.result.output != case.result.final_text:
        yield f"completed with {case.result.output!r}, and the answer is {case.result.final_text!r}"
    if not answered and case.result.output is not None:
        yield f"{case.result.status}, and the output is {case.result.output!r}"
    corrections = sum(event.type == "message.accepted" and event.origin == "correction" for event in case.events)
    if corrections > case.world.answers[case.result.run_id]:
        yield f"{corrections} corrections, and {case.world.answers[case.result.run_id]} answers were checked"


def g16_usage_is_bounded(case: Case) -> Iterator[str]:
    """No request is sent when `usage_limit` is reached, and no calls are executed beyond it."""
    limit, result = case.config.usage_limit, case.result
    sent = sum(request.id.startswith(f"{result.run_id}:") for request in case.world.requests)
    if result.requests < sent or sent < result.requests - 1:  # the last one may have been cancelled before it was sent
        yield f"{sent} requests were sent, and {result.requests} are told"
    executed = sum(event.type == "tool.ended" and event.executed for event in case.events)
    over = limit is not None and (
        (limit.requests is not None and sent > limit.requests)
        or (limit.tool_calls is not None and executed > limit.tool_calls)
    )
    if over:
        yield f"{sent} requests and {executed} calls under {limit}"
    turns = [event.usage for event in case.events if event.type == "turn.ended"]
    if sum((usage.total for usage in turns), 0) != result.usage.total:
        yield f"the turns used {turns}, and the run {result.usage}"


def g15_failed_hooks_are_told(case: Case) -> Iterator[str]:
    """Each hook that raised is told of, and no other; in a run that is told to stop, what came too late is not."""
    failed = Counter({hook: n for (run, hook), n in case.world.failed_hooks.items() if run == case.result.run_id})
    told = Counter(event.hook for event in case.events if event.type == "hook.failed")
    if told != failed and not (_told_to_stop(case) and told <= failed):
        yield f"hooks failed: {failed}, told: {told}"


def g15_stops_when_told(case: Case) -> Iterator[str]:
    """`should_stop_after_turn` is asked once after each completed turn, and its answer is what happens."""
    run, stopped = case.result.run_id, _told_to_stop(case)
    turns = sum(event.type == "phase.changed" and event.target == "steering" for event in case.events)
    asked, wanted = case.world.stop_asked[run], case.world.stop_wanted[run]
    if (
        "should_stop_after_turn" in core_of(case.world.agent).hooks
        and asked != turns
        and not (stopped and asked == turns - 1)
    ):
        yield f"asked {asked} times after {turns} turns"
    undone = stopped or case.result.status == "failed"  # by a listener that fails at the step into settling
    if (case.result.status == "stopped") != (wanted > 0) and not (undone and wanted):
        yield f"asked {asked} times, wanted {wanted} times, and the run is {case.result.status}"


def failed_listeners_are_told(case: Case) -> Iterator[str]:
    """Each listener that raised is told of, but for those that raised when they heard of that, or of the end."""
    told = sum(event.type == "subscriber.failed" for event in case.events)
    raised = case.world.raised[case.result.run_id]
    if not raised <= told <= raised + case.world.raised["perhaps"]:
        yield f"{raised} listeners raised, and {told} are told"
    fails = case.config.subscriber_failure == "fail_run"
    failed = case.result.failure is not None and case.result.failure.code == "SUBSCRIBER_FAILED"
    if (failed and not fails) or (fails and raised and case.result.status not in ("failed", "cancelled")):
        yield f"{raised} listeners raised, and the run is {case.result.status}"


def g16_turns_are_bounded(case: Case) -> Iterator[str]:
    """`max_turns` holds, but for the turn that tells of a failure."""
    limit, turns = case.config.max_turns, case.result.turns
    if limit is not None and turns > limit + (case.result.status == "failed"):
        yield f"{turns} turns"
    if case.result.status == "max_turns" and turns != limit:
        yield f"max_turns after {turns} turns"
    started = sum(event.type == "turn.started" for event in case.events)
    if started != turns:
        yield f"{started} turns started, and {turns} are told"


def result_has_the_messages(case: Case) -> Iterator[str]:
    """The result has the messages that entered in the run, and the last answer's text."""
    told = [event.message for event in case.events if enters(event)]
    if [message for message in case.result.messages if not isinstance(message, SummaryMessage)] != told:
        yield f"the result has {case.result.messages}, and told was {told}"
    answers = [m for m in told if isinstance(m, AssistantMessage) and not m.is_cut]
    if answers and case.result.final_text != answers[-1].text:
        yield f"the final text is {case.result.final_text!r}, and the last answer {answers[-1]}"


def reader_read_the_events(case: Case) -> Iterator[str]:
    """The run's iterator gives the same events, pieces put together or not, up to where it says that it lost some."""
    events, story = case.events, case.story
    place = 0
    for event in story.read:
        if event.sequence != place:
            yield f"read event {event.sequence} where {place} is next"
            return
        place += getattr(event, "count", 1)
        if getattr(event, "count", 1) == 1 and event is not events[event.sequence]:
            yield f"read {event}, told was {events[event.sequence]}"
    lost = story.lost
    if lost is not None and not (lost.first == place <= lost.last < len(events)):
        yield f"lost {lost.first} to {lost.last} after {place} of {len(events)}"
    reader = story.reader
    if lost is None and reader is not None and reader.done() and not reader.cancelled() and place != len(events):
        yield f"read {place} of {len(events)} events"


CLAIMS: Final = (
    g1_to_g11_by_its_trace,
    g4_bodies_are_told,
    g4_what_did_not_run_has_a_reason,
    g6_the_prompt_enters_once,
    g6_items_enter_in_order,
    g6_follow_ups_come_last,
    g6_waiting_steering_joins_the_prompt,
    g6_turns_have_a_cause,
    g6_nothing_is_left_behind,
    g7_run_ended_as_it_was_told,
    g9_attempts_are_bounded,
    g10_a_threshold_ends_no_run,
    a_completed_answer_was_found_right,
    g16_usage_is_bounded,
    g15_failed_hooks_are_told,
    g15_stops_when_told,
    failed_listeners_are_told,
    g16_turns_are_bounded,
    result_has_the_messages,
    reader_read_the_events,
)


def note_situations(events: list[Any], result: RunResult) -> None:
    """Count what is interesting in a run that has ended."""
    types = {event.type for event in events}
    SITUATIONS[f"a run {result.status}"] += 1
    if result.failure is not None:
        SITUATIONS[f"failed with {result.failure.code}"] += 1
    SITUATIONS["retry, then success"] += "retry.ended" in types and result.status == "completed"
    SITUATIONS["a late update was discarded"] += "update.discarded" in types
    SITUATIONS["steering and a follow-up in one run"] += {"steering", "follow_up"} <= {
        event.origin for event in events if event.type == "message.accepted"
    }
    SITUATIONS["an overflow, compacted, then success"] += result.status == "completed" and any(
        event.type == "compaction.started" and event.reason == "overflow" for event in events
    )
    detours = [event.type for event in events if event.type in ("retry.scheduled", "compaction.started")]
    SITUATIONS["compaction after a retry"] += ("retry.scheduled", "compaction.started") in pairwise(detours)
    calls = {event.call_id for event in events if event.type == "tool.started"}
    SITUATIONS["a late word in the next run"] += any(
        event.type == "update.discarded" and event.call_id not in calls for event in events
    )
    for event in events:
        if event.type == "compaction.started":
            SITUATIONS[f"compaction by {event.reason}"] += 1
        elif event.type == "compaction.ended":
            SITUATIONS[f"compaction {event.outcome}"] += 1
