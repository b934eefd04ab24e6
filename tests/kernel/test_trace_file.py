"""Traces as files: what is written comes back, what is wrong is refused by its line, and nothing is guessed."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import Agent, CustomMessage, tool
from kernel.testing import ScriptedModel, call
from kernel.trace.file import FORMAT, Heard, TraceError, TraceWriter, read_trace

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


@tool
async def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


def traced(script: list[Any], *, question: Any = "Go") -> tuple[list[str], list[Any], TraceWriter]:
    """A run with a clock that goes a quarter of a second between two looks at it."""
    ticks = iter(range(10_000))
    lines: list[str] = []
    writer = TraceWriter(lines.append, clock=lambda: next(ticks) / 4, now=lambda: BEGAN)
    agent = Agent(ScriptedModel(script), tools=[add])
    agent.subscribe(writer)
    events: list[Any] = []
    agent.subscribe(events.append)
    asyncio.run(_whole(agent, question))
    return lines, events, writer


async def _whole(agent: Agent, question: Any) -> None:
    await agent.prompt(question)


RUN = [[call("c1", "add", left=2, right=3)], ["It is 5."]]


def test_what_is_written_comes_back():
    """Each event, whole and in order, with the time at which it was heard."""
    lines, events, _ = traced(RUN)
    trace = read_trace(lines)
    assert trace.began == BEGAN
    assert list(trace.heard) == [Heard(number / 4, event) for number, event in enumerate(events, start=1)]


def test_lines_are_ascii_and_whole():
    lines, _, _ = traced([["é\n\u2028\ud83d"]])
    assert all(line.isascii() and line.endswith("\n") and line.count("\n") == 1 for line in lines)
    assert json.loads(lines[0]) == {"format": FORMAT, "began": "2026-01-02T03:04:05+00:00"}


def test_what_json_can_not_say_ends_the_trace_and_not_the_run(caplog: pytest.LogCaptureFixture):
    """No event is left out between two others: after the hole nothing is written."""
    lines, events, writer = traced([["Hi."]], question=CustomMessage("text", {"at": object()}))
    assert isinstance(writer.error, TypeError)
    assert "the trace ends here" in caplog.text
    assert events[-1].type == "run.finished"
    assert [heard.event for heard in read_trace(lines).heard] == events[: len(lines) - 1]


def test_a_disk_that_is_full_ends_the_trace_and_not_the_run(caplog: pytest.LogCaptureFixture):
    def full(line: str) -> None:
        raise OSError(28, "No space left on device")

    writer = TraceWriter(full)
    agent = Agent(ScriptedModel([["Hi."]]))
    agent.subscribe(writer)
    assert agent.run_sync("Go").status == "completed"
    assert agent.subscriber_errors == ()
    assert isinstance(writer.error, OSError)
    assert caplog.text.count("No space left") == 1


@given(cut=st.integers(1, 10_000))
def test_a_torn_last_line_is_dropped(cut: int):
    """Wherever a crash tore the file after its header, what is whole before it is read."""
    lines, _, _ = traced(RUN)
    data = "".join(lines).encode()
    place = len(lines[0]) + cut % (len(data) - len(lines[0]))
    trace = read_trace(data[:place].splitlines(keepends=True))
    whole = data[:place].count(b"\n") - 1
    assert trace.heard[:whole] == read_trace(lines).heard[:whole]
    assert len(trace.heard) - whole <= 1  # a last line may be whole but for its newline


def damaged(line: int, **changes: Any) -> list[str]:
    lines, _, _ = traced(RUN)
    data = json.loads(lines[line - 1]) | changes
    lines[line - 1] = json.dumps({name: value for name, value in data.items() if value is not ...}) + "\n"
    return lines


@pytest.mark.parametrize(
    ("line", "changes", "why"),
    [
        (1, {"format": "phasekernel.trace/0"}, "this version reads 'phasekernel.trace/1'"),
        (1, {"format": "phasekernel.journal/3"}, "not the header of a trace"),
        (1, {"began": "yesterday"}, "the header is wrong"),
        (1, {"began": 5}, "the header is wrong"),
        (1, {"more": 1}, "the header is wrong"),
        (3, {"at": ...}, "its time is None"),
        (3, {"at": "0.5"}, "its time is '0.5'"),
        (3, {"at": True}, "its time is True"),
        (3, {"at": float("nan")}, "its time is nan"),
        (3, {"at": 0.1}, "its time is 0.1, and the line before has 0.25"),
        (2, {"at": -1}, "its time is -1, and the line before has 0.0"),
        (3, {"is": "Nothing"}, "'Nothing' is not known here"),
        (3, {"sequence": "1"}, "'1' is no int"),
        (3, {"sequence": ...}, "has no sequence"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(line: int, changes: dict[str, Any], why: str):
    with pytest.raises(TraceError) as caught:
        read_trace(damaged(line, **changes))
    assert caught.value.line == line
    assert why in str(caught.value)


@pytest.mark.parametrize("lines", [[], ["\n"], ["not JSON\n"], ["[]\n"], [b"\xff\xfe\n"], ['{"type": "run.started"}\n']])
def test_another_file_is_no_trace(lines: list[Any]):
    with pytest.raises(TraceError, match="line 1 of the trace: is not the header of a trace"):
        read_trace(lines)


def test_the_checker_of_streams_reads_a_trace(tmp_path: Path):
    """A sound one has no breach; one without its end has one, at its line in the file."""
    lines, _, _ = traced(RUN)
    path = tmp_path / "run.jsonl"
    for kept, status, last in ((lines, 0, "0 breaches"), (lines[:-1], 1, f"line {len(lines) - 1}: G1")):
        path.write_text("".join(kept))
        done = subprocess.run(
            [sys.executable, "-m", "kernel", "check", str(path)], capture_output=True, text=True, cwd=ROOT, timeout=100
        )
        assert (done.returncode, last in done.stdout) == (status, True), done.stdout


def test_a_trace_beside_what_is_shown(tmp_path: Path):
    """`--trace FILE` writes one while the run is shown as ever."""
    path = tmp_path / "run.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "kernel", "--fast", "--trace", str(path)],
        capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=100,
    )  # fmt: skip
    assert "phase: idle -> turn" in done.stdout
    trace = read_trace(path.read_bytes().splitlines(keepends=True))
    assert (done.returncode, trace.heard[-1].event.type) == (0, "run.finished")


def test_a_trace_that_can_not_be_written_is_said_before_the_run(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "kernel", "--fast", "--trace", str(tmp_path / "nowhere" / "run.jsonl")],
        capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr
