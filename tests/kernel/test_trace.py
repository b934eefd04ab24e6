"""The oracle itself: a good stream passes, and every rule finds the fault that was planted for it."""

from collections.abc import Iterable
from typing import Any

import pytest

from kernel.events import Event, RunStarted, TurnStarted
from kernel.trace import RULES as ALL
from kernel.trace import Breach, breaches_of_lines, check

Line = dict[str, Any]
RULES = {rule.__name__: rule for rule in ALL}


# ---- words to write streams with ----


def stream(*items: Line | Iterable[Line]) -> list[Line]:
    lines = [line for item in items for line in ([item] if isinstance(item, dict) else item)]
    return [{"sequence": number, **line, "place": number} for number, line in enumerate(lines)]


def placed(lines: list[Line]) -> list[Line]:
    return [{**line, "place": place} for place, line in enumerate(lines)]


def line(type: str, **details: Any) -> Line:
    return {"type": type, **details}


def phase(source: str, target: str) -> Line:
    return line("phase.changed", source=source, target=target)


def turn(number: int) -> Line:
    return line("turn.started", turn=number)


def accepted(text: str, origin: str = "prompt") -> Line:
    return line("message.accepted", origin=origin, text=text)


def answer(text: str = "", /, *calls: str, **details: Any) -> list[Line]:
    stop = "tool_use" if calls else "stop"
    if details.get("stop") == "error":
        details = {"error": "529"} | details
    return [
        line("message.started", role="assistant"),
        *([line("message.updated", delta=text)] if text else []),
        *(line("message.updated", call=call) for call in calls),
        line("message.ended", **{"role": "assistant", "text": text, "stop": stop, "calls": list(calls)} | details),
    ]


def tool(id: str, text: str = "A", error: bool = False, **details: Any) -> list[Line]:
    return [line("tool.started", id=id, name="read"), line("tool.ended", id=id, text=text, error=error, **details)]


def result(id: str, text: str = "A", error: bool = False) -> list[Line]:
    told = {"role": "tool", "id": id, "text": text, "error": error}
    return [line("message.started", role="tool", id=id), line("message.ended", **told)]


def ended(*results: str) -> Line:
    return line("turn.ended", results=list(results))


def queues(steering: Iterable[str] = (), follow_up: Iterable[str] = (), **details: Any) -> Line:
    return line("queue.changed", steering=list(steering), follow_up=list(follow_up), **details)


START = [line("run.started"), phase("idle", "turn")]
OPEN = [*START, turn(1), accepted("Hi")]


def finish(status: str = "completed", source: str = "turn") -> list[Line]:
    return [phase(source, "settling"), line("run.finished", status=status)]


CANCELLED = [phase("turn", "cancelling")]
RETRY = line("retry.scheduled", attempt=1, delay=0.0)
COMPACT = line("compaction.started", reason="overflow")
COMPACTED = line("compaction.ended", outcome="compacted")

GOOD = {
    "an answer": stream(OPEN, answer("Hello"), ended(), finish()),
    "tools out of order": stream(
        OPEN,
        answer("two", "c1", "c2"),
        line("tool.started", id="c1", name="read"),
        tool("c2", "B"),
        line("tool.updated", id="c1", text="50%"),
        line("tool.ended", id="c1", text="A", error=False),
        result("c1"),
        result("c2", "B"),
        ended("c1", "c2"),
        queues(["s"], ["f"]),
        turn(2),
        queues([], ["f"]),
        accepted("s", "steering"),
        answer("ok"),
        ended(),
        turn(3),
        queues(),
        accepted("f", "follow_up"),
        answer("ok"),
        ended(),
        finish(),
    ),
    "a retry": stream(
        OPEN,
        answer("par", stop="error", error="529", kept=False),
        RETRY,
        line("retry.ended"),
        line("retry.scheduled", attempt=2, delay=1.5),
        line("retry.ended"),
        answer("ok"),
        ended(),
        finish(),
    ),
    "a cancel in a batch": stream(
        OPEN,
        answer("", "c1", "c2"),
        line("tool.started", id="c1", name="read"),
        CANCELLED,
        line("tool.ended", id="c1", text="cancelled", error=True),
        tool("c2", "not executed", error=True, executed=False),
        result("c1", "cancelled", error=True),
        result("c2", "not executed", error=True),
        ended("c1", "c2"),
        finish("cancelled", "cancelling"),
    ),
    "an overflow": stream(OPEN, COMPACT, line("compaction.ended", outcome="compacted"), answer("c"), ended(), finish()),
    "a compaction by hand": stream(
        line("run.started"),
        phase("idle", "compaction"),
        line("compaction.started", reason="manual"),
        line("compaction.ended", outcome="compacted"),
        finish(source="compaction"),
    ),
    "a truncated answer": stream(
        OPEN,
        answer("", "c1", stop="length"),
        tool("c1", "truncated", error=True, executed=False),
        result("c1", "truncated", error=True),
        ended("c1"),
        turn(2),
        answer("ok"),
        ended(),
        finish(),
    ),
    "steering joins the follow-up that a run began with": stream(
        START, turn(1), accepted("f", "follow_up"), accepted("s", "steering"), answer("x"), ended(), finish()
    ),
    "two prompts of one agent": placed(
        stream(OPEN, answer("x"), ended(), finish()) + stream(OPEN, answer("x"), ended(), finish())
    ),
    "pieces that were joined": stream(
        OPEN,
        answer()[:1],
        {**line("message.updated", delta="Hello"), "count": 5},
        {"sequence": 10, **answer("Hello")[-1]},
        {"sequence": 11, **ended()},
        {"sequence": 12, **finish()[0]},
        {"sequence": 13, **finish()[1]},
    ),
    "a listener fails between two turns": stream(
        OPEN, answer("x"), ended(), CANCELLED, turn(2), answer(stop="error"), ended(), finish("failed", "cancelling")
    ),
    "a message limit": stream(OPEN, answer("x", stop="error"), ended(), finish("failed")),
}


@pytest.mark.parametrize("lines", GOOD.values(), ids=GOOD.keys())
def test_a_good_stream_has_no_breach(lines: list[Line]) -> None:
    """What the kernel promises passes every rule."""
    assert breaches_of_lines(lines) == []


# ---- one fault for each thing that a rule looks at ----


def executed_late(*before: Line | list[Line]) -> list[Line]:
    return stream(OPEN, *before, CANCELLED, tool("c1"), result("c1"), ended("c1"), finish("cancelled", "cancelling"))


def compaction(reason: str, outcome: str, status: str) -> list[Line]:
    pair = [line("compaction.started", reason=reason), line("compaction.ended", outcome=outcome)]
    return stream(OPEN, pair, ended(), finish(status))


BAD: dict[str, list[list[Line]]] = {
    "g1_the_end_has_a_status": [
        stream(OPEN, ended(), finish("fine")),
    ],
    "g1_numbers_have_no_gap": [
        [{**each, "sequence": number * 2} for number, each in enumerate(GOOD["an answer"])],
        [{**each, "run": number // 3} for number, each in enumerate(GOOD["an answer"])],
    ],
    "g16_only_pieces_are_joined": [
        stream(OPEN, answer()[:1], {**line("message.updated", delta="x"), "count": 0}, ended(), finish()),
        stream(OPEN, {**turn(2), "count": 2}, ended(), finish()),
    ],
    "g2_phases_follow_one_another": [
        stream(OPEN, ended(), phase("turn", "nowhere"), phase("nowhere", "settling"), line("run.finished", status="x")),
        stream(OPEN, ended(), phase("turn", "settling"), phase("settling", "turn"), finish()),
        stream(OPEN, ended(), phase("retry", "settling"), line("run.finished", status="x")),
        stream(OPEN, ended(), phase("turn", "turn"), finish()),
        stream(OPEN, ended(), line("run.finished", status="completed")),
    ],
    "g2_everything_closes": [
        stream(OPEN, turn(2), ended(), finish()),
        stream(START, accepted("Hi"), turn(1), ended(), finish()),
        stream(OPEN, answer("x")[:-1], ended(), finish()),
        stream(OPEN, answer("x"), finish()),
        stream(OPEN, answer("x"), ended(), ended(), finish()),
        stream(OPEN, answer("x")[1:], ended(), finish()),
        stream(OPEN, tool("c1")[1:], ended(), finish()),
        stream(OPEN, tool("c1")[:1], ended(), finish()),
        stream(OPEN, tool("c1")[:1], result("c2"), tool("c1")[1:], ended(), finish()),
        stream(OPEN, RETRY, answer("x"), line("retry.ended"), ended(), finish()),
        stream(OPEN, RETRY, ended(), finish()),
        stream(OPEN, line("retry.ended"), ended(), finish()),
        stream(OPEN, COMPACT, ended(), finish()),
        stream(OPEN, answer("x")[:1], COMPACT, COMPACTED, answer("x")[2:], ended()),
    ],
    "g2_updates_belong_to_an_open_call": [
        stream(OPEN, tool("c1"), line("tool.updated", id="c1", text="late"), ended()),
    ],
    "g2_turns_are_counted": [
        stream(START, turn(2), accepted("Hi"), ended(), finish()),
    ],
    "g3_a_message_is_its_pieces": [
        stream(OPEN, answer("x", text="y"), ended(), finish()),
        stream(OPEN, answer("x", calls=["c1"]), ended(), finish()),
        stream(OPEN, answer("", "c1", calls=[]), ended(), finish()),
        stream(OPEN, answer("", "c1", "c2", calls=["c2", "c1"]), ended(), finish()),
        stream(OPEN, answer("x", stop="because"), ended(), finish()),
    ],
    "g3_only_answers_are_streamed": [
        stream(OPEN, result("c1")[0], line("message.updated", delta="x"), result("c1")[1]),
        stream(OPEN, result("c1")[0], answer("x")[-1], ended(), finish()),
        stream(OPEN, line("message.started", role="user"), line("message.ended", role="user", text=""), ended()),
        stream(OPEN, {**result("c1")[0], "text": "A"}, result("c1", "B")[1], ended()),
    ],
    "g4_each_call_is_answered": [
        stream(OPEN, answer("", "c1"), tool("c1"), ended(), finish()),
        stream(OPEN, answer("", "c1"), tool("c1"), answer("x"), result("c1"), ended()),
        stream(OPEN, answer("", "c1", "c2"), tool("c1"), tool("c2"), result("c2"), result("c1")),
        stream(OPEN, answer("", "c1"), tool("c1"), result("c1"), result("c1"), ended("c1")),
        stream(OPEN, answer("x", kept=False, calls=["c1"]), tool("c1"), result("c1"), ended("c1")),
    ],
    "g4_a_cut_message_asks_for_nothing": [
        stream(OPEN, answer("", "c1", stop="aborted"), ended(), finish("cancelled")),
    ],
    "g4_each_call_is_executed_once": [
        stream(OPEN, answer("", "c1"), result("c1"), ended("c1"), finish()),
        stream(OPEN, answer("", "c1"), tool("c1"), tool("c1"), result("c1"), ended("c1")),
        stream(OPEN, answer("", "a", "b"), tool("b"), tool("a"), result("a"), result("b")),
    ],
    "g4_both_ends_say_the_same": [
        stream(OPEN, answer("", "c1"), tool("c1", "A"), result("c1", "B"), ended("c1"), finish()),
        stream(OPEN, answer("", "c1"), tool("c1", executed=False), result("c1"), ended("c1"), finish()),
        stream(OPEN, answer("", "c1"), result("c1"), tool("c1"), ended("c1"), finish()),
    ],
    "g4_a_whole_message_is_kept": [
        stream(OPEN, answer("x", kept=False), ended(), finish()),
    ],
    "g5_a_turn_ends_last": [
        stream(OPEN, answer("", "c1"), tool("c1"), result("c1"), ended(), finish()),
        stream(OPEN, answer("x"), ended("c1"), finish()),
    ],
    "g6_items_enter_at_boundaries": [
        stream(OPEN, answer("x"), accepted("s", "steering"), ended(), finish()),
        stream(OPEN, answer("x"), ended(), turn(2), accepted("again"), ended(), finish()),
        stream(OPEN, accepted("f", "follow_up"), answer("x"), ended(), finish()),
        stream(OPEN, accepted("again"), answer("x"), ended(), finish()),
        stream(OPEN, ended(), turn(2), accepted("f", "follow_up"), accepted("s", "steering"), ended(), finish()),
    ],
    "g6_steering_comes_first": [
        stream(OPEN, queues(["s"], ["f"]), ended(), turn(2), accepted("f", "follow_up"), ended()),
    ],
    "g6_nothing_queued_is_lost_or_doubled": [
        stream(OPEN, queues(["s"]), queues(), ended(), finish()),
        stream(OPEN, queues([], ["f", "f"]), queues(dropped=["f"]), ended(), finish()),
        stream(OPEN, queues(["a", "b"]), ended(), turn(2), queues(["a"]), accepted("b", "steering"), ended(), finish()),
        stream(OPEN, queues(["s"]), ended(), turn(2), accepted("s", "steering"), ended(), finish()),
        stream(OPEN, queues(["a"]), queues(), accepted("b", "steering"), answer("x"), ended(), finish()),
        stream(OPEN, queues(["a", "b", "c"]), queues(["c", "b"], dropped=["a"]), ended(), finish()),
        stream(OPEN, queues(["a"]), queues(["a"], dropped=["b"]), ended(), finish()),
    ],
    "g7_nothing_starts_after_cancel": [
        executed_late(answer("", "c1")),
        stream(OPEN, CANCELLED, answer(), ended(), finish("cancelled", "cancelling")),
        stream(OPEN, CANCELLED, answer("x"), ended(), finish("failed", "cancelling")),
        stream(OPEN, CANCELLED, RETRY, line("retry.ended"), ended(), finish("cancelled")),
        stream(OPEN, CANCELLED, COMPACT, COMPACTED, ended()),
        stream(OPEN, CANCELLED, phase("cancelling", "turn"), ended(), finish("cancelled")),
        stream(OPEN, ended(), CANCELLED, turn(2), queues(), accepted("s", "steering"), ended(), finish("cancelled")),
    ],
    "g7_cancel_decides_the_outcome": [
        stream(OPEN, ended(), CANCELLED, turn(2), ended(), finish("cancelled")),
        stream(OPEN, CANCELLED, answer(stop="aborted"), ended(), finish("cancelled")),
        stream(OPEN, CANCELLED, ended(), finish("completed", "cancelling")),
    ],
    "g9_a_retry_is_the_same_turn": [
        stream(OPEN, line("retry.scheduled", attempt=2, delay=0), line("retry.ended"), ended()),
        stream(OPEN, line("retry.scheduled", attempt=1, delay=-1), line("retry.ended"), ended()),
        stream(OPEN, RETRY, line("retry.ended"), accepted("s", "steering"), answer("x"), ended()),
    ],
    "g9_a_failed_attempt_leaves_nothing": [
        stream(OPEN, answer("par", stop="error"), RETRY, line("retry.ended"), ended()),
        stream(OPEN, answer("par", kept=False), RETRY, line("retry.ended"), ended()),
        stream(OPEN, answer("par", stop="error"), COMPACT, COMPACTED, ended()),
    ],
    "g10_a_compaction_decides": [
        compaction("boredom", "compacted", "completed"),
        compaction("overflow", "maybe", "completed"),
        compaction("overflow", "declined", "completed"),
        compaction("manual", "failed", "completed"),
        compaction("threshold", "cancelled", "completed"),
        stream(OPEN, COMPACT, line("compaction.ended", outcome="failed"), answer("x"), ended(), finish("failed")),
    ],
    "g10_compaction_is_bounded": [
        stream(OPEN, [COMPACT, line("compaction.ended", outcome="compacted")] * 2, ended()),
        compaction("manual", "compacted", "completed"),
        stream(START, [line("compaction.started", reason="manual"), COMPACTED] * 2, finish()),
        stream(START, line("compaction.started", reason="manual"), COMPACTED, turn(1), ended(), finish()),
        stream(START, line("compaction.started", reason="threshold"), COMPACTED, finish()),
    ],
    "g10_no_call_is_open": [
        stream(OPEN, answer("", "c1"), COMPACT, COMPACTED, result("c1"), ended("c1")),
    ],
    "g11_a_truncated_answer_runs_nothing": [
        stream(OPEN, answer("", "c1", stop="length"), tool("c1"), result("c1"), ended()),
    ],
    "g11_a_failure_is_told": [
        stream(OPEN, answer("par", stop="error"), ended(), finish()),
        stream(OPEN, answer("par", stop="error", error=""), ended(), finish("failed")),
    ],
    "g15_hooks_are_named": [
        stream(OPEN, line("hook.failed", hook="before_everything"), ended(), finish()),
        stream(OPEN, line("hook.failed", hook="before_tool_call"), ended(), finish()),
    ],
}

PLANTED = [(rule, lines) for rule, streams in BAD.items() for lines in streams]


@pytest.mark.parametrize(("rule", "lines"), PLANTED)
def test_a_planted_fault_is_found(rule: str, lines: list[Line]) -> None:
    """The rule finds the fault, names its own guarantee, and the whole check reports it."""
    found = list(RULES[rule](lines))
    assert found
    assert {breach.guarantee for breach in found} == {rule.split("_")[0].upper()}
    assert set(found) <= set(breaches_of_lines(lines))


def test_every_rule_has_a_planted_fault() -> None:
    """There is no rule of which nobody knows whether it can find anything."""
    assert BAD.keys() == RULES.keys()


def test_a_run_without_an_end_is_found() -> None:
    """The last run must end too, unless the stream was cut off."""
    open_run = stream(OPEN, answer("x"), ended())
    assert [str(breach) for breach in breaches_of_lines(open_run)] == [
        "G1 at 7: the run's last event is turn.ended, not run.finished"
    ]
    assert breaches_of_lines(open_run, whole=False) == []
    assert [breach.place for breach in breaches_of_lines(placed(open_run * 2), whole=False)] == [8]


def test_an_event_outside_a_run_is_found() -> None:
    """Nothing comes before the first run, between two, or after the last."""
    late = [*GOOD["an answer"], {"sequence": 9, **line("update.discarded", id="c1")}]
    assert "G1 at 9: update.discarded outside a run" in map(str, breaches_of_lines(late))


def test_a_run_inside_a_run_is_found() -> None:
    """A run that begins before the one before it has ended leaves that one without its end."""
    inside = [*GOOD["an answer"][:-1], *GOOD["an answer"]]
    assert "G1 at 8: the run's last event is phase.changed, not run.finished" in map(str, breaches_of_lines(inside))


def test_a_late_update_of_nobody_is_found() -> None:
    """What is discarded as late was said by a call that had started, in this run or an earlier one."""
    first = GOOD["tools out of order"]
    late = stream(OPEN, line("update.discarded", id="c2"), answer("x"), ended(), finish())
    assert breaches_of_lines(first + late) == []
    assert [breach.guarantee for breach in breaches_of_lines(late)] == ["G8"]


def test_lines_that_are_no_events_are_passed_over() -> None:
    """The answers of commands and the last line of a scenario are not judged."""
    extra = [line("final", phase="idle"), {"refused": "prompt"}, {"did": "cancel", "value": True}]
    assert breaches_of_lines([*GOOD["an answer"], *extra]) == []


def test_event_objects_are_judged_too() -> None:
    """`check` reads events, and sees that they are of one run."""
    events: list[Event] = [RunStarted("r1", 0), TurnStarted("r2", 1, 1)]
    assert Breach("G1", 1, "an event of run r2 inside run r1", 1) in check(events)


def test_a_breach_reads_as_a_sentence() -> None:
    """A breach says which guarantee, where, and how."""
    assert str(Breach("G3", 7, "it is so")) == "G3 at 7: it is so"
