"""G7 to G15, as far as a stream shows them: cancel, retry, compaction, failures, hooks."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

from kernel.trace.lines import Breach, Line, Rule, Run, breach, calls_of, ends_message, is_cut, opens_answer, turns_of

# ---- G7 and G8: cancel ----

_NEW_WORK: Final = frozenset({"retry.scheduled", "compaction.started", "message.updated"})


def g7_nothing_starts_after_cancel(run: Run) -> Iterator[Breach]:
    """After an accepted cancel no answer is streamed or adopted, no attempt or summary is begun, no tool that was not
    running is executed, nothing but the prompt enters, and the run settles.
    """
    idle = set[str]()
    for line in _after_cancel(run):
        kind = line["type"]
        if kind == "tool.started":
            idle.add(line["id"])
        if kind in _NEW_WORK:
            yield breach("G7", line, f"{kind} after the cancel")
        elif kind == "tool.ended" and line.get("executed", True) and line["id"] in idle:
            yield breach("G7", line, f"{line['id']} started after the cancel and was executed")
        elif ends_message(line, "assistant") and not is_cut(line):
            yield breach("G7", line, "an answer was adopted after the cancel")
        elif kind == "message.accepted" and line["origin"] != "prompt":
            yield breach("G7", line, f"{line['origin']} entered after the cancel")
        elif kind == "phase.changed" and line["target"] != "settling":
            yield breach("G7", line, f"from cancelling to {line['target']}")


def g7_cancel_decides_the_outcome(run: Run) -> Iterator[Breach]:
    """A run that was in the phase `cancelling` is cancelled, or failed for a reason of its own; then alone a turn or a
    message may have been opened after it, to tell the failure.
    """
    rest, end = _after_cancel(run), run[-1]
    if not rest or end["type"] != "run.finished":
        return
    if end["status"] not in ("cancelled", "failed"):
        yield breach("G7", end, f"the run was {end['status']} although it had been cancelled")
    elif end["status"] == "cancelled":
        for line in rest:
            if opens_answer(line) or (line["type"] == "turn.started" and line["turn"] > 1):
                yield breach("G7", end, f"the run was cancelled, and {line['type']} came after that")


def _after_cancel(run: Run) -> Run:
    for place, line in enumerate(run):
        if line["type"] == "phase.changed" and line["target"] == "cancelling":
            return run[place + 1 :]
    return ()


def g8_only_an_ended_call_is_late(stream: Iterable[Line]) -> Iterator[Breach]:
    """Over all runs: what is discarded as late was said by a call that had ended."""
    ended = set()
    for line in stream:
        if line["type"] == "tool.ended":
            ended.add(line["id"])
        elif line["type"] == "update.discarded" and line["id"] not in ended:
            yield breach("G8", line, f"a late update of {line['id']}, which never ended")


# ---- G9: retry ----


def g9_a_retry_is_the_same_turn(run: Run) -> Iterator[Breach]:
    """Attempts of a turn are counted from 1, by one; nothing enters the conversation between them."""
    for turn in turns_of(run):
        attempt = 0
        for line in turn:
            if line["type"] == "retry.scheduled":
                attempt += 1
                if line["attempt"] != attempt or not 0 <= line["delay"] < math.inf:
                    yield breach("G9", line, f"attempt {line['attempt']} in {line['delay']} s, where {attempt} is due")
            elif line["type"] == "message.accepted" and attempt:
                yield breach("G9", line, "a message entered between two attempts")


def g9_a_failed_attempt_leaves_nothing(run: Run) -> Iterator[Breach]:
    """The message of an attempt that is made again, after a backoff or with less context, ended as an error and did not
    enter the transcript.
    """
    for turn in turns_of(run):
        answer: Line | None = None
        for line in turn:
            if ends_message(line, "assistant"):
                answer = line
            elif line["type"] == "retry.scheduled" or line.get("reason") == "overflow":
                if answer is not None and (answer["stop"] != "error" or answer.get("kept", True)):
                    yield breach("G9", line, "the attempt that failed left its message")
                answer = None


# ---- G10: compaction ----

_REASONS: Final = frozenset({"threshold", "overflow", "manual"})
_FATAL: Final = frozenset(
    {
        ("declined", "overflow"),
        ("failed", "overflow"),
        ("failed", "manual"),
        *(("cancelled", reason) for reason in _REASONS),
    }
)
"""Outcomes, and the reason for the compaction, after which a run can but fail or be cancelled."""
_OUTCOMES: Final = frozenset({"compacted", "declined", "failed", "cancelled"})


def g10_a_compaction_decides(run: Run) -> Iterator[Breach]:
    """Reasons and outcomes are known, and after a compaction that the run can't do without it fails or is cancelled."""
    reason = fatal = ""
    for line in run:
        if line["type"] == "compaction.started":
            reason = line["reason"]
            if reason not in _REASONS:
                yield breach("G10", line, f"a compaction for the reason {reason!r}")
        if fatal and _goes_on(line):
            yield breach("G10", line, f"{line['type']} after {fatal}")
        if line["type"] == "compaction.ended":
            if line["outcome"] not in _OUTCOMES:
                yield breach("G10", line, f"a compaction with the outcome {line['outcome']!r}")
            if (line["outcome"], reason) in _FATAL:
                fatal = f"a compaction for {reason} was {line['outcome']}"


def _goes_on(line: Line) -> bool:
    """Whether this can't come in a run whose failure or cancel is decided."""
    if line["type"] == "run.finished":
        return line["status"] not in ("failed", "cancelled")
    return line["type"] in _NEW_WORK or (ends_message(line, "assistant") and not is_cut(line))


def g10_compaction_is_bounded(run: Run) -> Iterator[Breach]:
    """A turn recovers from an overflow once at most; only a compaction by hand is outside of turns, and it is all that its
    run does.
    """
    turn_open = by_hand = any_turn = overflow = False
    for line in run:
        if line["type"] == "turn.started":
            if by_hand:
                yield breach("G10", line, "a turn in a run that compacts by hand")
            turn_open, any_turn, overflow = True, True, False
        elif line["type"] == "turn.ended":
            turn_open = False
        elif line["type"] == "compaction.started":
            reason = line["reason"]
            if by_hand or (reason == "manual") == turn_open or (reason == "manual" and any_turn):
                yield breach("G10", line, f"a compaction for {reason} in a run that does something else")
            elif reason == "overflow" and overflow:
                yield breach("G10", line, "a second recovery from an overflow in one turn")
            by_hand, overflow = by_hand or reason == "manual", overflow or reason == "overflow"


def g10_no_call_is_open(run: Run) -> Iterator[Breach]:
    """A compaction starts only when every call has its result."""
    owed: list[str] = []
    for line in run:
        owed += calls_of(line)
        if ends_message(line, "tool") and line["id"] in owed:
            owed.remove(line["id"])
        elif line["type"] == "compaction.started" and owed:
            yield breach("G10", line, f"a compaction while {owed} have no result")


# ---- G11 and G15: failures are explicit ----


def g11_a_truncated_answer_runs_nothing(run: Run) -> Iterator[Breach]:
    """No call of a response that was cut off by its length is executed."""
    for turn in turns_of(run):
        truncated = False
        for line in turn:
            truncated = truncated or (line.get("stop") == "length" and bool(calls_of(line)))
            if truncated and line["type"] == "tool.ended" and line.get("executed", True):
                yield breach("G11", line, f"{line['id']} of a truncated response was executed")


def g11_a_failure_is_told(run: Run) -> Iterator[Breach]:
    """A failed message says why, and a run whose last answer was cut has failed or was cancelled."""
    answer: Line | None = None
    for line in run:
        if ends_message(line, "assistant"):
            answer = line
            if line["stop"] == "error" and not line.get("error"):
                yield breach("G11", line, "a message that failed does not say why")
        elif line["type"] == "run.finished" and line["status"] not in ("failed", "cancelled") and answer and is_cut(answer):
            yield breach("G11", line, f"{line['status']}, with a last answer that ended with {answer['stop']}")


HOOKS: Final = frozenset(
    {"transform_context", "convert_to_llm", "after_tool_result", "should_stop_after_turn", "estimator"}
)


def g15_hooks_are_named(run: Run) -> Iterator[Breach]:
    """A report of a failing hook names one whose failure the run survives; `before_tool_call` is its call's result."""
    for line in run:
        if line["type"] == "hook.failed" and line["hook"] not in HOOKS:
            yield breach("G15", line, f"there is no hook {line['hook']!r} whose failure is reported")


RULES: Final[tuple[Rule, ...]] = (
    g7_nothing_starts_after_cancel,
    g7_cancel_decides_the_outcome,
    g9_a_retry_is_the_same_turn,
    g9_a_failed_attempt_leaves_nothing,
    g10_a_compaction_decides,
    g10_compaction_is_bounded,
    g10_no_call_is_open,
    g11_a_truncated_answer_runs_nothing,
    g11_a_failure_is_told,
    g15_hooks_are_named,
)
