"""Each question that the lifecycle asks, answered yes and answered no, on a bare core."""

from collections.abc import Callable
from typing import Any

import pytest

from kernel import CompactionPolicy, RetryPolicy, Usage, UsageLimit
from kernel.guards import GUARDS
from kernel.inputs import (
    Advance,
    CallPrepared,
    Cancel,
    Close,
    Compact,
    FollowUp,
    HookReturned,
    ModelPart,
    OutputChecked,
    QueuedItem,
    ResponseCompleted,
    ResponseFailed,
    SubscriberFailure,
    Summarized,
    ToolSettled,
)
from kernel.messages import AssistantMessage, StopReason, SummaryMessage, Text, TextDelta, UserMessage
from kernel.open_message import OpenMessage
from kernel.testing import call
from statechart import Guard, Leaf
from tests.kernel.helpers import Act, Bench, failure, turns

HISTORY = turns(4)
ANSWERED = HISTORY[:2]
ASKED = HISTORY[:1]
Case = Callable[[], tuple[Bench, Any]]


def still(**arguments: Any) -> Case:
    """An idle core, and no input in particular."""
    return lambda: (Bench(**arguments), None)


def queued(steering: int = 0, follow_up: int = 0, **arguments: Any) -> Case:
    def case() -> tuple[Bench, Any]:
        bench = Bench(**arguments)
        for number in range(steering):
            bench.steer(id=-number)
        for number in range(follow_up):
            bench.put(FollowUp(QueuedItem(-100 - number, UserMessage("then"))))
        return bench, None

    return case


def opened(input: Any = None, steering: int = 0, **arguments: Any) -> Case:
    def case() -> tuple[Bench, Any]:
        bench = Bench(**arguments)
        bench.prompt()
        for number in range(steering):
            bench.steer(id=-number)
        return bench, input

    return case


def requested(input: Any = None, *parts: Any, **arguments: Any) -> Case:
    def case() -> tuple[Bench, Any]:
        bench = Bench(**arguments)
        bench.prompt()
        work = bench.to_request()
        for part in parts:
            bench.put(ModelPart(work, part))
        return bench, input

    return case


def answered(*parts: Any, stop: bool | None = None, **arguments: Any) -> Case:
    """A turn that is over; *stop* is the answer of should_stop_after_turn."""

    def case() -> tuple[Bench, Any]:
        bench = Bench(**arguments)
        bench.prompt()
        bench.to_request()
        bench.respond(*parts)
        if stop is not None:
            bench.advance()
            bench.put(HookReturned(bench.work, stop))
        return bench, None

    return case


def compacting(reason: str, text: str = "short") -> Case:
    def case() -> tuple[Bench, Any]:
        bench = Bench(messages=HISTORY, compaction=CompactionPolicy(reserve=0, window=10))
        if reason == "manual":
            bench.put(Compact("r1"))
        else:
            bench.prompt()
            if reason == "threshold":
                bench.state.context_tokens = 11
                bench.advance()
            else:
                bench.to_request()
                bench.put(ResponseFailed(bench.work, failure(overflow=True)))
        bench.advance()
        return bench, Summarized(bench.work, text)

    return case


def batch(make: Callable[[int], Any], *, calls: int = 1, run: bool = True, hooks: tuple[str, ...] = ()) -> Case:
    """A batch whose first call is prepared, and run unless it says otherwise; *make* gives the input for its work."""

    def case() -> tuple[Bench, Any]:
        bench = Bench(tools=[Act()], hooks=hooks, tool_execution="sequential")
        bench.to_tools(*(call(f"c{number}", "act") for number in range(calls)))
        bench.advance()
        if run:
            bench.put(CallPrepared(bench.work))
            bench.advance()
        return bench, make(bench.work)

    return case


def failed(code: str, event: str = "turn.started", run: str = "r1") -> Case:
    return opened(SubscriberFailure(run, event, 3, failure()), subscriber_failure=code)


def settling(policy: str = "fail_run", *, cancel: bool = False, finished: bool = False) -> Case:
    """A run that is about to end, and a listener that fails."""

    def case() -> tuple[Bench, Any]:
        bench = Bench(subscriber_failure=policy)
        bench.prompt()
        work = bench.to_request()
        if cancel:
            bench.put(Cancel())
            bench.put(ResponseFailed(work, failure()))
        else:
            bench.respond()
        while bench.state.leaf is not Leaf.SETTLING:
            bench.advance()
        if finished:
            bench.finish()
        return bench, SubscriberFailure("r1", "phase.changed", 3, failure())

    return case


def cancelled(*, close: bool = False, let_go: bool = False) -> Case:
    def case() -> tuple[Bench, Any]:
        bench = Bench()
        bench.prompt()
        work = bench.to_request()
        bench.put(Close() if close else Cancel())
        if let_go:
            bench.put(ResponseFailed(work, failure()))
        return bench, None

    return case


def settled(work: int, **fields: Any) -> ToolSettled:
    return ToolSettled(work, "c0", (Text("ok"),), **fields)


def hot(tokens: int, tried: bool = False, estimated: int = 0, **policies: Any) -> Case:
    """A turn with a context of so many tokens; window and reserve leave room for 90."""

    def case() -> tuple[Bench, Any]:
        arguments = {"messages": HISTORY, "window": 100, "compaction": CompactionPolicy(reserve=10)} | policies
        bench, _ = opened(**arguments)()
        bench.state.context_tokens = tokens
        bench.state.live.threshold_tried = tried
        return bench, Advance(1, estimated)

    return case


def fails(overflow: bool = False, retryable: bool = False, **arguments: Any) -> Case:
    return requested(ResponseFailed(0, failure(overflow=overflow, retryable=retryable)), **arguments)


def failed_before(times: int, **arguments: Any) -> Case:
    def case() -> tuple[Bench, Any]:
        bench, input = fails(retryable=True, **arguments)()
        bench.state.live.attempts = times
        return bench, input

    return case


def overflowed_before() -> tuple[Bench, Any]:
    bench, input = fails(overflow=True)()
    bench.state.live.overflow_tried = True
    return bench, input


def checked(error: str | None = None, **arguments: Any) -> Case:
    """An answer that was held against what was asked for."""

    def case() -> tuple[Bench, Any]:
        bench, _ = answered(TextDelta("a"), output=list[int], **arguments)()
        bench.advance()
        bench.advance()
        bench.put(OutputChecked(bench.work, error))
        return bench, None

    return case


def spending(*parts: Any, **limits: int) -> Case:
    """A response after one that had a call, under a limit of usage."""

    def case() -> tuple[Bench, Any]:
        bench = Bench(tools=[Act()], usage_limit=UsageLimit(**limits))
        bench.to_tools(CALLS[0])
        bench.state.live.usage = Usage(6, 3)
        for part in parts:
            bench.state.live.message = OpenMessage("r1:2")
            bench.state.live.message.usage = part
        return bench, None

    return case


def asking_for(count: int, stop: StopReason | None = None) -> Case:
    """A response of so many calls, in a run that has had one and may have three."""

    def case() -> tuple[Bench, Any]:
        bench, input = requested(ResponseCompleted(0, stop), *CALLS[:count], usage_limit=UsageLimit(tool_calls=3))()
        bench.state.live.tool_calls = 1
        return bench, input

    return case


CALLS = tuple(call(f"c{number}", "act") for number in range(3))

YES: dict[Guard, list[Case]] = {
    Guard.PROMPT_FITS: [still(message_limit=2), still(message_limit=None), still(messages=ANSWERED, message_limit=4)],
    Guard.ITEM_FITS: [queued(steering=1, message_limit=4), queued(message_limit=2)],
    Guard.QUEUE_HAS_ROOM: [queued(1, 1, queue_limit=3), queued(1, queue_limit=None)],
    Guard.HAS_MESSAGES: [still(messages=ASKED)],
    Guard.HAS_STEERING: [queued(steering=1)],
    Guard.HAS_FOLLOW_UP: [queued(follow_up=1)],
    Guard.TAIL_OWED: [
        still(messages=ASKED),
        still(messages=(SummaryMessage("before"),)),
        still(messages=(*ASKED, AssistantMessage("par", StopReason.ABORTED))),
    ],
    Guard.COMPACTABLE: [still(messages=HISTORY), still(messages=HISTORY[:6])],
    Guard.STEERING_JOINS: [opened(steering=1)],
    Guard.COMPACTION_DUE: [
        hot(91), hot(60, estimated=31), hot(91, window=None, compaction=CompactionPolicy(reserve=10, window=100)),
    ],
    Guard.OVERFLOW_RECOVERABLE: [fails(overflow=True)],
    Guard.RETRYABLE: [fails(retryable=True), failed_before(1), failed_before(2, retry=RetryPolicy(max_attempts=4))],
    Guard.RESPONSE_FITS: [
        requested(None, *CALLS, call_limit=3),
        requested(None, *CALLS, message_limit=5, call_limit=3),
        requested(None, *CALLS, message_limit=None),
        requested(),
    ],
    Guard.CALLS_RUNNABLE: [
        requested(ResponseCompleted(0), CALLS[0]),
        requested(ResponseCompleted(0, "stop"), CALLS[0]),
        asking_for(2),
    ],
    Guard.USAGE_LEFT: [
        opened(), spending(tokens=10), spending(requests=2), spending(tool_calls=1), spending(Usage(1, 0), tokens=11),
    ],
    Guard.OUTPUT_DUE: [answered(TextDelta("a"), output=list[int])],
    Guard.OUTPUT_WRONG: [checked("no")],
    Guard.CORRECTION_FITS: [checked("no", message_limit=4), checked("no", message_limit=None)],
    Guard.BATCH_OVER: [
        batch(lambda work: CallPrepared(work, error="no"), run=False),
        batch(settled),
        batch(lambda work: settled(work, ended="cancelled"), hooks=("after_tool_result",)),
        batch(lambda work: HookReturned(work), hooks=("after_tool_result",)),
    ],
    Guard.STOP_UNASKED: [answered(hooks=["should_stop_after_turn"])],
    Guard.STOP_WANTED: [answered(hooks=["should_stop_after_turn"], stop=True)],
    Guard.TURN_LEFT: [answered(max_turns=2), answered(max_turns=None)],
    Guard.TURN_OWED: [answered(CALLS[0], tools=[Act()])],
    Guard.COMPACTION_MANUAL: [compacting("manual")],
    Guard.COMPACTION_THRESHOLD: [compacting("threshold")],
    Guard.SUMMARY_SHRINKS: [compacting("manual")],
    Guard.FAILS_RUN: [failed("fail_run")],
    Guard.UNDOES_OUTCOME: [settling()],
    Guard.UNWOUND: [cancelled(let_go=True)],
    Guard.CLOSE_WANTED: [cancelled(close=True)],
}

NO: dict[Guard, list[Case]] = {
    Guard.PROMPT_FITS: [still(message_limit=1), still(messages=ANSWERED, message_limit=3)],
    Guard.ITEM_FITS: [queued(steering=1, message_limit=3), opened(message_limit=67, call_limit=64)],
    Guard.QUEUE_HAS_ROOM: [queued(1, 1, queue_limit=2), queued(follow_up=1, queue_limit=1)],
    Guard.HAS_MESSAGES: [still()],
    Guard.HAS_STEERING: [queued(follow_up=1)],
    Guard.HAS_FOLLOW_UP: [queued(steering=1)],
    Guard.TAIL_OWED: [still(), still(messages=ANSWERED), still(messages=(AssistantMessage("par", StopReason.ERROR),))],
    Guard.COMPACTABLE: [still(messages=HISTORY[:4]), still(messages=HISTORY, compaction=None), still()],
    Guard.STEERING_JOINS: [opened(), requested(None, TextDelta("a"))],
    Guard.COMPACTION_DUE: [
        hot(90),
        hot(60, estimated=30),
        hot(91, tried=True),
        hot(91, window=None),
        hot(91, compaction=None),
        hot(91, messages=HISTORY[:4]),
    ],
    Guard.OVERFLOW_RECOVERABLE: [fails(), fails(overflow=True, compaction=None), overflowed_before],
    Guard.RETRYABLE: [fails(), fails(overflow=True, retryable=True), fails(retryable=True, retry=None), failed_before(2)],
    Guard.RESPONSE_FITS: [
        requested(None, *CALLS, call_limit=2),
        requested(None, *CALLS, message_limit=4, call_limit=3),
    ],
    Guard.CALLS_RUNNABLE: [
        requested(ResponseCompleted(0), TextDelta("a")),
        requested(ResponseCompleted(0, StopReason.LENGTH), CALLS[0]),
        asking_for(3),
        requested(ResponseCompleted(0)),
    ],
    Guard.USAGE_LEFT: [
        spending(tokens=9), spending(requests=1), spending(Usage(1, 0), tokens=10), spending(tokens=1, requests=9),
    ],
    Guard.OUTPUT_DUE: [
        answered(TextDelta("a")),
        checked(),
        checked("no"),
    ],
    Guard.OUTPUT_WRONG: [checked(), answered(TextDelta("a"), output=list[int])],
    Guard.CORRECTION_FITS: [checked("no", message_limit=3)],
    Guard.BATCH_OVER: [
        batch(lambda work: CallPrepared(work), run=False),
        batch(settled, calls=2),
        batch(settled, hooks=("after_tool_result",)),
        batch(lambda work: Advance(work)),
    ],
    Guard.STOP_UNASKED: [answered(), answered(hooks=["should_stop_after_turn"], stop=False)],
    Guard.STOP_WANTED: [answered(), answered(hooks=["should_stop_after_turn"], stop=False)],
    Guard.TURN_LEFT: [answered(max_turns=1)],
    Guard.TURN_OWED: [answered()],
    Guard.COMPACTION_MANUAL: [compacting("threshold"), compacting("overflow"), opened()],
    Guard.COMPACTION_THRESHOLD: [compacting("manual"), compacting("overflow"), opened()],
    Guard.SUMMARY_SHRINKS: [compacting("manual", "  "), compacting("manual", "long " * 99)],
    Guard.FAILS_RUN: [
        failed("record"),
        failed("fail_run", event="subscriber.failed"),
        failed("fail_run", event="run.finished"),
        failed("fail_run", run="r0"),
        lambda: (Bench(subscriber_failure="fail_run"), SubscriberFailure("r0", "turn.started", 3, failure())),
    ],
    Guard.UNDOES_OUTCOME: [settling("record"), settling(cancel=True), settling(finished=True), failed("fail_run"), still()],
    Guard.UNWOUND: [cancelled()],
    Guard.CLOSE_WANTED: [cancelled()],
}


def cases(table: dict[Guard, list[Case]]) -> list[Any]:
    return [
        pytest.param(guard, case, id=f"{guard}-{number}")
        for guard, cases in table.items()
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize(("guard", "case"), cases(YES))
def test_yes(guard: Guard, case: Case) -> None:
    """The guard says yes here."""
    bench, input = case()
    assert GUARDS[guard](bench.state, input) is True


@pytest.mark.parametrize(("guard", "case"), cases(NO))
def test_no(guard: Guard, case: Case) -> None:
    """The guard says no here."""
    bench, input = case()
    assert GUARDS[guard](bench.state, input) is False


def test_each_guard_is_seen_both_ways() -> None:
    """No guard of the lifecycle is left out of this file."""
    assert set(YES) == set(NO) == set(Guard)
