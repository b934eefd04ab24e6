"""G7 to G16, as far as a stream shows them: cancel, retry, compaction, failures, hooks."""

from collections.abc import Iterable, Iterator
from typing import Final

from kernel.trace.lines import (
    CUT,
    Breach,
    Line,
    Rule,
    Run,
    breach,
    calls_of,
    ends_message,
    opens_answer,
    status_of,
    turns_of,
)

# ---- G7 and G8: cancel ----

_NEW_WORK: Final = frozenset({"retry.scheduled", "compaction.started", "message.updated"})


def g7_nothing_starts_after_cancel(run: Run) -> Iterator[Breach]:
    """After an accepted cancel no answer is streamed, no attempt or summary is begun, and no tool is executed."""
    rest = _after_cancel(run)
    idle = {line["id"] for line in rest if line["type"] == "tool.ended" and not line.get("executed", True)}
    for line in rest:
        if line["type"] in _NEW_WORK:
            yield breach("G7", line, f"{line['type']} after the cancel")
        elif line["type"] == "tool.started" and line["id"] not in idle:
            yield breach("G7", line, f"{line['id']} was executed after the cancel")
        elif opens_answer(line) and status_of(run) == "cancelled":
            yield breach("G7", line, "an assistant message started after the cancel")
        elif line["type"] == "turn.started" and line["turn"] > 1 and status_of(run) == "cancelled":
            yield breach("G7", line, "a turn started after the cancel")


def g7_cancel_decides_the_outcome(run: Run) -> Iterator[Breach]:
    """A run that was in the phase `cancelling` is cancelled, or failed for a reason of its own."""
    if _after_cancel(run) and status_of(run) not in ("cancelled", "failed", None):
        yield breach("G7", run[-1], f"the run was {status_of(run)} although it had been cancelled")


def _after_cancel(run: Run) -> Run:
    for place, line in enumerate(run):
        if line["type"] == "phase.changed" and line["target"] == "cancelling":
            return run[place + 1 :]
    return ()


def g8_only_a_known_call_is_late(stream: Iterable[Line]) -> Iterator[Breach]:
    """Over all runs: what is discarded as late was said by a call that had been started."""
    known = set()
    for line in stream:
        if line["type"] == "tool.started":
            known.add(line["id"])
        elif line["type"] == "update.discarded" and line["id"] not in known:
            yield breach("G8", line, f"a late update of {line['id']}, which never started")


# ---- G9: retry ----


def g9_a_retry_is_the_same_turn(run: Run) -> Iterator[Breach]:
    """Attempts of a turn are counted from 1, by one; nothing enters the conversation between them."""
    for turn in turns_of(run):
        attempt = 0
        for line in turn:
            if line["type"] == "retry.scheduled":
                attempt += 1
                if line["attempt"] != attempt or line["delay"] < 0:
                    yield breach("G9", line, f"attempt {line['attempt']} in {line['delay']} s, where {attempt} is due")
            elif line["type"] == "message.accepted" and attempt:
                yield breach("G9", line, "a message entered between two attempts")


def g9_a_failed_attempt_leaves_nothing(run: Run) -> Iterator[Breach]:
    """The message of an attempt that is tried again ended as an error and did not enter the transcript."""
    for turn in turns_of(run):
        answer: Line | None = None
        for line in turn:
            if ends_message(line, "assistant"):
                answer = line
            elif line["type"] == "retry.scheduled" and answer is not None:
                if answer["stop"] != "error" or answer.get("kept", True):
                    yield breach("G9", line, "the attempt that failed left its message")
                answer = None


# ---- G10: compaction ----

_REASONS: Final = frozenset({"threshold", "overflow", "manual"})
_ENDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "compacted": {},
    "declined": {"overflow": ("failed", "cancelled")},
    "failed": {"overflow": ("failed", "cancelled"), "manual": ("failed", "cancelled")},
    "cancelled": dict.fromkeys(_REASONS, ("cancelled", "failed")),
}
"""For each outcome, how the run may then end, where the reason for the compaction says something about that."""


def g10_a_compaction_decides(run: Run) -> Iterator[Breach]:
    """Reasons and outcomes are known, and a compaction that the run can't do without decides how it ends."""
    reason = ""
    for line in run:
        if line["type"] == "compaction.started":
            reason = str(line.get("reason"))
            if reason not in _REASONS:
                yield breach("G10", line, f"a compaction for the reason {reason!r}")
        elif line["type"] == "compaction.ended":
            outcome = line.get("outcome")
            if outcome not in _ENDS:
                yield breach("G10", line, f"a compaction with the outcome {outcome!r}")
            elif status_of(run) not in _ENDS[outcome].get(reason, (status_of(run),)):
                yield breach("G10", line, f"a compaction for {reason} was {outcome}, and the run {status_of(run)}")


def g10_compaction_is_bounded(run: Run) -> Iterator[Breach]:
    """A turn recovers from an overflow once at most, and a compaction by hand is all that its run does."""
    for turn in turns_of(run):
        overflows = [line for line in turn if line["type"] == "compaction.started" and line.get("reason") == "overflow"]
        if len(overflows) > 1:
            yield breach("G10", overflows[1], "a second recovery from an overflow in one turn")
    by_hand = [line for line in run if line["type"] == "compaction.started" and line.get("reason") == "manual"]
    if by_hand and (len(by_hand) > 1 or any(turns_of(run))):
        yield breach("G10", by_hand[0], "a compaction by hand in a run that does something else")


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
        if any(line.get("stop") == "length" and calls_of(line) for line in turn):
            for line in turn:
                if line["type"] == "tool.ended" and line.get("executed", True):
                    yield breach("G11", line, f"{line['id']} of a truncated response was executed")


def g11_a_failure_is_told(run: Run) -> Iterator[Breach]:
    """A run whose last answer was cut did not complete."""
    answers = [line for line in run if ends_message(line, "assistant")]
    if answers and answers[-1].get("stop") in CUT and status_of(run) == "completed":
        yield breach("G11", run[-1], f"completed, with a last answer that ended with {answers[-1]['stop']}")


HOOKS: Final = frozenset(
    {
        "transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn",
        "estimator",
    }
)


def g15_hooks_are_named(run: Run) -> Iterator[Breach]:
    """A report of a failing hook names a hook that there is."""
    for line in run:
        if line["type"] == "hook.failed" and line.get("hook") not in HOOKS:
            yield breach("G15", line, f"there is no hook {line.get('hook')!r}")


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
