"""Scenarios that nobody thought of: whatever is done at whatever event, the guarantees hold and the run ends."""

import json
import random
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.scenario import parse, play
from kernel.testing import Chooser, Deadlock
from kernel.trace import breaches_of_lines
from tests.conformance.judge import Story, at_the_end

Data = dict[str, Any]
TYPES = [
    "run.started", "phase.changed", "turn.started", "message.accepted", "message.started", "message.updated",
    "message.ended", "tool.started", "tool.updated", "tool.ended", "turn.ended", "retry.scheduled", "retry.ended",
    "compaction.started", "compaction.ended", "queue.changed", "hook.failed", "subscriber.failed", "update.discarded",
    "run.finished",
]  # fmt: skip
GATES = st.sampled_from(["g", "g", "g", "never"])
TEXTS = st.sampled_from(["a", "b"])


def one(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


def actions() -> st.SearchStrategy[list[Data]]:
    plain = one(
        {"steer": "S"}, {"follow_up": "F"}, {"cancel": "user"}, {"prompt": "P"}, {"open": "g"}, {"reset": True},
        {"unqueue": "S"}, {"unqueue": "F"}, {"compact": True},
    )  # fmt: skip
    return st.lists(plain, min_size=1, max_size=3)


def responses() -> st.SearchStrategy[list[Data]]:
    call = st.fixed_dictionaries({"id": st.just(""), "name": one(*NAMES, "nobody")})
    fail = st.fixed_dictionaries({"message": st.just("boom"), "retryable": st.booleans(), "overflow": st.booleans()})
    part = st.one_of(
        st.builds(lambda text: {"text": text}, TEXTS),
        st.builds(lambda made: {"call": made}, call),
        st.builds(lambda made: {"call": made}, call),
        st.builds(lambda gate: {"wait": gate}, GATES),
        st.builds(lambda made: {"fail": made}, fail),
        one({"reasoning": "r"}, {"open": "g"}, {"usage": {"input": 950}}, {"eof": True}, {"end": "length"}),
        one({"wait_ignoring_cancel": "never"}),
    )
    return st.lists(part, max_size=4).map(_with_ids_of_their_own)


def _with_ids_of_their_own(response: list[Data]) -> list[Data]:
    return [
        {"call": {**part["call"], "id": f"c{place}"}} if "call" in part else part for place, part in enumerate(response)
    ]


def tools() -> st.SearchStrategy[list[Data]]:
    step = st.one_of(
        st.builds(lambda gate: {"wait": gate}, GATES),
        one({"update": "u"}, {"open": "g"}, {"late": {"after": "g", "update": "l"}}, {"wait_ignoring_cancel": "never"}),
    )
    end = one({"return": "A"}, {"return": "A", "terminate": True}, {"raise": "e"})
    script = st.builds(lambda steps, last: [*steps, last], st.lists(step, max_size=2), end)
    extra = one({}, {"mode": "sequential"}, {"resources": ["f"]}, {"timeout": 1})
    tool = st.builds(lambda made, more: {"script": made, **more}, script, extra)
    return st.tuples(*[tool] * len(NAMES)).map(
        lambda made: [{"name": name, **each} for name, each in zip(NAMES, made, strict=True)]
    )


NAMES = ("t", "u")


def configs() -> st.SearchStrategy[Data]:
    summary = st.fixed_dictionaries({"text": one("S", " "), "do": actions()}, optional={"wait": GATES})
    compaction = st.builds(lambda made: {"window": 1000, "reserve": 100, "keep_turns": 1, "summary": made}, summary)
    return st.fixed_dictionaries(
        {"profile": one("default", "chapter_06", "checkpoint_09", "pi")},
        optional={
            "tool_execution": one("parallel", "sequential"),
            "steering_mode": one("one", "all"),
            "follow_up_mode": one("one", "all"),
            "max_turns": st.integers(1, 3),
            "message_limit": st.integers(2, 8),
            "queue_limit": st.integers(1, 2),
            "run_deadline": one(0, 1),
            "cancel_grace": one(0, 0.05),
            "retry": st.fixed_dictionaries({"max_attempts": st.integers(1, 3), "base_delay": one(0, 3600)}),
            "compaction": compaction,
        },
    )


def scenarios() -> st.SearchStrategy[Data]:
    hook = one({}, {"raise": "h"}, {"wait": "g"}, {"wait": "never"})
    hooks = {
        "before_tool_call": st.fixed_dictionaries({"t": one({"block": "no"}, {"raise": "h"}, {"wait": "never"})}),
        "transform_context": hook,
        "after_tool_result": hook,
        "should_stop_after_turn": st.one_of(st.booleans(), hook),
    }
    listener = st.one_of(
        st.fixed_dictionaries({"raise_on": one(*TYPES), "nth": st.integers(1, 2)}),
        st.builds(lambda gate: {"slow": gate}, GATES),
    )
    rule = st.fixed_dictionaries(
        {"event": st.fixed_dictionaries({"type": one(*TYPES)}), "nth": st.integers(1, 3), "do": actions()}
    )
    step = st.one_of(
        one({"prompt": "P"}), one({"prompt": "P"}, {"continue": True}, {"compact": True}), actions().map(_first)
    )
    return st.fixed_dictionaries(
        {
            "config": configs(),
            "tools": tools(),
            "model": st.lists(responses(), max_size=5),
            "hooks": st.fixed_dictionaries({}, optional=hooks),
            "subscribers": st.lists(listener, max_size=2),
            "when": st.lists(rule, max_size=3),
            "drive": st.lists(step, min_size=1, max_size=4),
        }
    )


def _first(made: list[Data]) -> Data:
    return made[0]


def lines_of(scenario: Data, choose: Chooser | None = None) -> tuple[list[Data], bool]:
    """The lines of the scenario, and whether it came to its end."""
    lines: list[Data] = []
    try:
        play(parse(json.dumps(scenario)), "native", lines.append, choose=choose)
    except Deadlock:
        return lines, False
    return lines, True


def whole_runs(lines: list[Data]) -> list[Data]:
    """The lines up to the end of the last run that ended."""
    ends = [place for place, line in enumerate(lines) if line.get("type") == "run.finished"]
    return lines[: ends[-1] + 1] if ends else []


def is_cancelled(lines: list[Data]) -> bool:
    """Whether the run that did not end had been cancelled."""
    rest = lines[len(whole_runs(lines)) :]
    return any(line.get("did") == "cancel" and line["value"] for line in rest)


def assert_it_holds(scenario: Data, choose: Chooser | None = None) -> None:
    lines, ended = lines_of(scenario, choose)
    assert breaches_of_lines(lines if ended else whole_runs(lines)) == []
    if ended:
        assert list(at_the_end(Story(lines))) == []
    else:
        assert not is_cancelled(lines)
        assert '"g"' in json.dumps(scenario) or '"never"' in json.dumps(scenario)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios())
def test_the_guarantees_hold(scenario: Data) -> None:
    """Every run that ends holds the guarantees, and only what waits for a gate that never opens does not end."""
    assert_it_holds(scenario)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios(), st.integers(0, 2**16))
def test_the_guarantees_hold_in_any_order(scenario: Data, seed: int) -> None:
    """The same when the tasks that are ready take turns in whatever order."""
    assert_it_holds(scenario, random.Random(seed).randrange)


def test_calls_that_share_an_id_can_be_told_apart() -> None:
    """Two calls with one id end in source order: what the first end says is in the first message."""
    tools = [{"name": "t", "script": [{"return": "A"}]}]
    calls = [{"call": {"id": "c1", "name": "t"}}, {"call": {"id": "c1", "name": "nobody"}}]
    lines, _ = lines_of({"tools": tools, "model": [calls, [{"text": "ok"}]], "drive": [{"prompt": "P"}]})
    assert breaches_of_lines(lines) == []


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios())
def test_twice_the_same(scenario: Data) -> None:
    """The same scenario takes the same steps."""
    assert lines_of(scenario) == lines_of(scenario)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios())
def test_no_queued_message_is_lost_or_doubled(scenario: Data) -> None:
    """What was queued and not taken out again is in a queue or was accepted, and nothing was accepted twice."""
    for number, rule in enumerate(scenario["when"]):
        rule["do"] = [{"steer": f"S{number}"}, {"follow_up": f"F{number}"}, *(a for a in rule["do"] if "cancel" in a)]
    scenario["config"].get("compaction", {}).get("summary", {}).pop("do", None)
    scenario["drive"] = [step for step in scenario["drive"] if "reset" not in step and "unqueue" not in step]
    lines, ended = lines_of(scenario)
    if not ended:
        return
    story = Story(lines)
    places = Counter(line["text"] for line in story.events if line["type"] == "message.accepted")
    places.update(story.final["queued"]["steering"] + story.final["queued"]["follow_up"])
    shown = {text for line in story.events for queue in ("steering", "follow_up") for text in line.get(queue, ())}
    for text in shown - {"S", "F"}:
        assert places[text] == 1
