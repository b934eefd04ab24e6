"""Scenario files: what they may say, what is done, and what is printed."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kernel.dialects import DIALECTS
from kernel.scenario import ScenarioError, main, parse, run

Data = dict[str, Any]
FULL: Data = {
    "name": "full",
    "why": "it has every object that a scenario may have",
    "config": {
        "profile": "chapter_06",
        "system_prompt": "Be brief.",
        "max_turns": 9,
        "retry": {"max_attempts": 2, "base_delay": 0.0},
        "compaction": {"window": 1000, "reserve": 100, "keep_turns": 1, "summary": {"text": "SUM", "do": []}},
    },
    "tools": [
        {"name": "read", "resources": ["f"], "script": {"*": [{"late": {"after": "g", "update": "x"}}, {"return": "A"}]}}
    ],
    "model": [
        [
            {"call": {"id": "c1", "name": "read"}},
            {"usage": {"input": 1}},
        ],
        [{"fail": {"message": "529", "retryable": True}}],
        [{"text": "ok"}],
    ],
    "hooks": {"before_tool_call": {"read": {"wait": "open"}}, "after_tool_result": {}},
    "subscribers": [{"raise_on": "nothing"}],
    "when": [{"event": {"type": "run.started"}, "do": [{"open": "open"}]}],
    "drive": [{"prompt": "Hi"}],
    "expect": {"anything": 1},
    "pi": [{}],
}


def write(tmp_path: Path, data: Any) -> str:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(data))
    return str(path)


def play(dialect: str = "native", **data: Any) -> list[Data]:
    return run(json.dumps({"drive": [{"prompt": "Hi"}], **data}), dialect)


def events(lines: list[Data], *types: str) -> list[Data]:
    return [line for line in lines if line.get("type") in types]


def call(name: str, id: str = "c1", **arguments: Any) -> list[Data]:
    return [{"call": {"id": id, "name": name, "arguments": arguments}}]


# ---- reading ----


def test_the_full_scenario_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A scenario with every object there is runs, and prints one JSON object a line."""
    assert main([write(tmp_path, FULL)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["type"] == "final"
    assert [line["status"] for line in events(lines, "run.finished")] == ["completed"]


@pytest.mark.parametrize(
    "place",
    [
        (),
        ("config",),
        ("config", "retry"),
        ("config", "compaction"),
        ("config", "compaction", "summary"),
        ("tools", 0),
        ("tools", 0, "script", "*", 0),
        ("tools", 0, "script", "*", 0, "late"),
        ("model", 0, 0),
        ("model", 0, 0, "call"),
        ("model", 0, 1, "usage"),
        ("model", 1, 0, "fail"),
        ("hooks",),
        ("hooks", "before_tool_call", "read"),
        ("hooks", "after_tool_result"),
        ("subscribers", 0),
        ("when", 0),
        ("when", 0, "do", 0),
        ("drive", 0),
    ],
    ids=lambda place: ".".join(map(str, place)) or "the whole",
)
def test_an_unknown_key_is_refused(
    place: tuple[str | int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At every level, a key that is not known ends with exit status 2 and a sentence that names it."""
    data = copy.deepcopy(FULL)
    there: Any = data
    for step in place:
        there = there[step]
    there["surprise"] = 1
    assert main([write(tmp_path, data)]) == 2
    said = capsys.readouterr()
    assert "surprise" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"config": {"profile": "best"}}, "no profile 'best'"),
        ({"config": {"steering_mode": "two"}}, "steering_mode"),
        ({"config": {"max_turns": 0}}, "max_turns must be at least 1"),
        ({"config": {"retry": {"base_delay": -1}}}, "base_delay"),
        ({"model": [[{"text": "x", "wait": "g"}]]}, "exactly one key must be given here, not text, wait"),
        ({"drive": [{}]}, "exactly one key must be given here, not none"),
        ({"when": [{"event": {}, "do": [], "nth": 0}]}, "nth"),
        ({"when": [{"event": {}, "do": [{"wait_for_idle": True}]}]}, "wait_for_idle"),
        ({"tools": [{"name": "two words", "script": []}]}, "'two words' can't be a tool's name"),
        ({"tools": [{"name": "read"}]}, "script"),
        ({"model": [[{"end": "whenever"}]]}, "whenever"),
        ([], "object"),
    ],
)
def test_a_wrong_value_is_refused(data: Any, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be run ends with exit status 2 and a sentence that says what is wrong."""
    assert main([write(tmp_path, data)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_no_json_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken JSON, bytes that are no text, and a missing file have exit status 2."""
    path = tmp_path / "broken.json"
    for content in (b"{", b"\xff\xfe"):
        path.write_bytes(content)
        assert main([str(path)]) == 2
    assert main([str(tmp_path / "missing.json")]) == 2
    assert "broken.json" in capsys.readouterr().err


def test_parse_raises_what_main_reports() -> None:
    """In a program, a wrong scenario is a ScenarioError."""
    with pytest.raises(ScenarioError, match="surprise"):
        parse('{"surprise": 1}')


def test_an_unknown_dialect_is_a_usage_error(tmp_path: Path) -> None:
    """The command line refuses a dialect that there is not."""
    with pytest.raises(SystemExit) as error:
        main([write(tmp_path, FULL), "--dialect", "klingon"])
    assert error.value.code == 2


# ---- running ----


@pytest.mark.parametrize("dialect", DIALECTS)
def test_twice_the_same(dialect: str) -> None:
    """The same file gives the same lines, in every dialect."""
    data = {**FULL, "config": {"retry": {"max_attempts": 3, "base_delay": 60.0}}}
    first, second = run(json.dumps(data), dialect), run(json.dumps(data), dialect)
    assert first == second
    assert first[-1]["type"] == "final"


def test_chance_is_left_as_it_was() -> None:
    """Running a scenario does not disturb the random numbers of the program."""
    random.seed(7)
    expected = random.random()
    random.seed(7)
    play(model=[[{"text": "x"}]])
    assert random.random() == expected


def test_a_deadlock_has_its_own_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing can go on, what came is printed, standard error says who is stuck, and the exit status is 3."""
    data = {"drive": [{"prompt": "Hi"}], "subscribers": [{"slow": "never"}], "model": [[{"text": "x"}]]}
    assert main([write(tmp_path, data)]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[0])["type"] == "run.started"
    assert "nothing can happen any more" in said.err


@pytest.mark.parametrize(
    "data",
    [
        {"subscribers": [{"slow": "never"}]},
        {"tools": [{"name": "t", "script": [{"wait": "never"}]}], "model": [[{"call": {"id": "c1", "name": "t"}}]]},
        {"hooks": {"transform_context": {"wait": "never"}}},
    ],
    ids=["listener", "tool", "hook"],
)
def test_a_deadlock_ends_what_is_told(data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the end of the loop does to a run that is stuck is no part of the scenario: no line tells that the run ended."""
    assert main([write(tmp_path, {**data, "drive": [{"prompt": "Hi"}]})]) == 3
    told = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert not {"turn.ended", "run.finished"}.intersection(told)


def test_a_profile_comes_from_the_dialect_or_from_the_scenario() -> None:
    """A dialect brings its profile, and a scenario that names one has the last word."""
    model = [[{"text": "par"}, {"fail": {"message": "boom"}}]]
    kept = [len(play(dialect, model=model)[-1]["messages"]) for dialect in ("native", "checkpoint_09")]
    named = play("checkpoint_09", model=model, config={"profile": "default"})
    assert (kept, len(named[-1]["messages"])) == ([2, 1], 2)


def test_refusals_are_told_where_they_happen() -> None:
    """A refused command has a line with its name and its code; in Pi's dialect without the code."""
    data = {"model": [[{"text": "x"}]], "when": [{"event": {"type": "run.started"}, "do": [{"prompt": "no"}]}]}
    lines = play(**data)
    assert lines[1] == {"refused": "prompt", "code": "AGENT_BUSY"}
    assert {"refused": "prompt"} in play("pi", **data)


def test_the_answer_of_cancel_is_told() -> None:
    """`did` says what cancel answered, but not in Pi's dialect."""
    data = {"model": [[{"text": "x"}]], "drive": [{"cancel": "no"}]}
    assert play(**data)[0] == {"did": "cancel", "value": False}
    assert [line["type"] for line in play("pi", **data)] == ["final"]


def test_a_rule_counts_what_it_matches() -> None:
    """Actions are done at the nth match, once; without a number at the first."""
    rules = [
        {"event": {"type": "message.updated"}, "nth": 2, "do": [{"follow_up": "second"}]},
        {"event": {"type": "message.accepted", "role": "user"}, "do": [{"follow_up": "first"}]},
    ]
    lines = play(when=rules, model=[[{"text": "a"}, {"text": "b"}]] * 3)
    assert [line["text"] for line in events(lines, "message.accepted")] == ["Hi", "first", "second"]


def test_a_listener_raises_at_its_nth_event() -> None:
    """`raise_on` raises at one event of the type: the first, or the one that is named."""
    model = [[{"text": "a"}, {"text": "b"}, {"text": "c"}]]
    lines = play(subscribers=[{"raise_on": "message.updated", "nth": 2}, {"raise_on": "turn.ended"}], model=model)
    assert lines[-1]["subscriber_errors"] == 2
    kinds = [line["type"] for line in events(lines, "message.updated", "subscriber.failed")]
    assert kinds[:4] == ["message.updated", "message.updated", "subscriber.failed", "message.updated"]


def test_a_slow_listener_waits_for_its_gate() -> None:
    """`slow` holds every event up until the gate is open."""
    lines = play(
        subscribers=[{"slow": "g"}],
        model=[[{"text": "x"}]],
        when=[{"event": {"type": "run.started"}, "do": [{"open": "g"}]}],
    )
    assert events(lines, "run.finished")


def test_unqueue_takes_the_message_out() -> None:
    """A queued message is taken out by its text; one that is not there changes nothing."""
    lines = play(drive=[{"steer": "s"}, {"follow_up": "f"}, {"unqueue": "s"}, {"unqueue": "nobody"}])
    assert lines[-1]["queued"] == {"steering": [], "follow_up": ["f"]}


def test_reset_forgets() -> None:
    """After a reset the transcript and the queues are empty."""
    lines = play(model=[[{"text": "x"}]], drive=[{"prompt": "Hi"}, {"steer": "s"}, {"reset": True}])
    assert (lines[-1]["messages"], lines[-1]["queued"]["steering"]) == ([], [])


def test_the_parts_of_a_response() -> None:
    """Reasoning, usage, gates, an explicit end and an early end of file are what they say."""
    response = [{"reasoning": "hm"}, {"open": "g"}, {"wait": "g"}, {"usage": {"output": 3}}, {"end": "stop"}]
    lines = play(model=[response])
    assert [line.get("reasoning") for line in events(lines, "message.updated")] == ["hm"]
    assert [line["status"] for line in events(lines, "run.finished")] == ["completed"]
    cut = play(model=[[{"text": "par"}, {"eof": True}]], config={"retry": None})
    assert [line["status"] for line in events(cut, "run.finished")] == ["failed"]


def test_waiting_opens_the_message() -> None:
    """A response that only waits has begun: it can be cancelled as a message."""
    lines = play(
        model=[[{"wait": "never"}]],
        when=[{"event": {"type": "message.started"}, "do": [{"cancel": "user"}]}],
    )
    assert [line["status"] for line in events(lines, "run.finished")] == ["cancelled"]


def test_a_request_past_the_script_fails() -> None:
    """A model without another response says so."""
    lines = play(config={"profile": "chapter_06"})
    assert [line["error"] for line in events(lines, "message.ended")] == ["script exhausted"]


def test_the_steps_of_a_tool() -> None:
    """A script for each call: updates, gates, an error, a result, and nothing at all."""
    script = {
        "c1": [{"update": "50%"}, {"wait": "g"}, {"return": "A"}],
        "c2": [{"open": "g"}, {"raise": "on fire"}],
        "*": [],
    }
    calls = call("t", "c1") + call("t", "c2") + call("t", "c3")
    lines = play(tools=[{"name": "t", "script": script}], model=[calls, [{"text": "ok"}]])
    results = [(line["text"], line["error"]) for line in lines[-1]["messages"] if line["role"] == "tool"]
    assert results == [("A", False), ("on fire", True), ("", False)]
    assert [line["text"] for line in events(lines, "tool.updated")] == ["50%"]


def test_a_late_update_comes_after_the_tool() -> None:
    """What is said after the tool has returned is reported as discarded."""
    script = [{"late": {"after": "g", "update": "LATE"}}, {"return": "A"}]
    second = [{"text": "x"}, {"open": "g"}, {"text": "y"}]
    lines = play(tools=[{"name": "t", "script": script}], model=[call("t"), second])
    assert [line["id"] for line in events(lines, "update.discarded")] == ["c1"]


def test_arguments_that_are_no_object_never_reach_the_tool() -> None:
    """A call whose arguments are a string is one that a model wrote badly."""
    bad = [{"call": {"id": "c1", "name": "t", "arguments": "{pth"}}]
    lines = play(tools=[{"name": "t", "script": [{"return": "A"}]}], model=[bad, [{"text": "ok"}]])
    assert [(line["error"], line["executed"]) for line in events(lines, "tool.ended")] == [(True, False)]


@pytest.mark.parametrize(
    ("hooks", "status", "failed"),
    [
        ({"should_stop_after_turn": True}, "stopped", []),
        ({"should_stop_after_turn": False}, "completed", []),
        ({"should_stop_after_turn": {"raise": "no"}}, "completed", ["should_stop_after_turn"]),
        ({"transform_context": {"raise": "no"}}, "completed", ["transform_context"]),
        ({"after_tool_result": {"raise": "no"}}, "completed", ["after_tool_result"]),
        ({"transform_context": {"wait": "g"}, "after_tool_result": {"wait": "g"}}, "completed", []),
    ],
)
def test_hooks(hooks: Data, status: str, failed: list[str]) -> None:
    """Hooks wait, raise and answer as they are told."""
    lines = play(
        hooks=hooks,
        tools=[{"name": "t", "script": [{"return": "A"}]}],
        model=[call("t"), [{"text": "ok"}]],
        when=[{"event": {"type": "run.started"}, "do": [{"open": "g"}]}],
    )
    assert [line["status"] for line in events(lines, "run.finished")] == [status]
    assert sorted({line["hook"] for line in events(lines, "hook.failed")}) == failed


@pytest.mark.parametrize(("script", "text"), [({"block": "not allowed"}, "not allowed"), ({"raise": "no"}, "no")])
def test_before_a_call(script: Data, text: str) -> None:
    """`before_tool_call` blocks or fails the calls of the tools that it names, and no others."""
    tools = [{"name": name, "script": [{"return": "A"}]} for name in ("t", "u")]
    lines = play(
        hooks={"before_tool_call": {"t": script}},
        tools=tools,
        model=[call("t", "c1") + call("u", "c2"), [{"text": "ok"}]],
    )
    assert [(line["id"], line["text"]) for line in events(lines, "tool.ended")] == [("c1", text), ("c2", "A")]


def test_a_deaf_tool_does_not_keep_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tool that ignores every cancellation is abandoned, and the command ends all the same."""
    data = {
        "tools": [{"name": "t", "script": [{"update": "in"}, {"wait_ignoring_cancel": "never"}]}],
        "model": [call("t")],
        "when": [{"event": {"type": "tool.updated"}, "do": [{"cancel": "user"}]}],
        "drive": [{"prompt": "Hi"}],
    }
    assert main([write(tmp_path, data)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["running"] is False


def test_a_summary_can_do_and_wait() -> None:
    """The compactor of a scenario does its actions and waits for its gate; it is not a model request."""
    summary = {"do": [{"steer": "s"}, {"open": "g"}], "wait": "g", "text": "SUM"}
    lines = play(
        config={"compaction": {"keep_turns": 1, "summary": summary}},
        model=[[{"text": text}] for text in "abc"],
        drive=[{"prompt": "one"}, {"prompt": "two"}, {"compact": True}],
    )
    assert [line["text"] for line in lines[-1]["messages"]] == ["SUM", "two", "b"]
    assert lines[-1]["queued"]["steering"] == ["s"]
    assert len(lines[-1]["requests"]) == 2


def test_the_last_line_in_pi() -> None:
    """In Pi's dialect the last line says only what Pi knows, and whether anything is queued."""
    last = play("pi", model=[[{"text": "x"}]], drive=[{"prompt": "Hi"}, {"steer": "s"}])[-1]
    assert last == {
        "type": "final",
        "running": False,
        "pending": [],
        "queued": True,
        "messages": [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "x", "stop": "stop", "calls": []}],
        "requests": [["user:Hi"]],
    }
