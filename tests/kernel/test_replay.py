"""Recordings and the model that plays them; the demo's recording among them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, AssistantMessage, ModelError, ModelRequest, ToolMessage
from kernel.cli.setting import QUESTION, SAMPLE, SYSTEM_PROMPT
from kernel.messages import Finished, Part, StopReason, TextDelta
from kernel.models.replay import DEMO, FORMAT, ReplayModel, read_recording
from kernel.testing import simulate
from kernel.toolbox import files

HEADER = {"format": FORMAT, "model": "m", "source": "s", "date": "d", "licence": "l", "scripted": "all"}


def chunk(t: Any, content: str = "", finish_reason: str | None = None) -> dict[str, Any]:
    return {"t": t, "data": {"choices": [{"delta": {"content": content}, "finish_reason": finish_reason}]}}


def lines(*entries: Any) -> list[str]:
    return [json.dumps(entry) for entry in entries]


TWO = lines(
    HEADER, {"request": 1}, chunk(0, "a"), chunk(2000, "b"), chunk(2000, "", "stop"), {"request": 2}, chunk(5, "c", "stop")
)


async def answer(model: ReplayModel) -> list[Part]:
    return [part async for part in model.stream(ModelRequest("r", (), "", ()))]


def test_each_request_gets_its_answer():
    """The n-th request is answered with the n-th recorded answer."""
    model = ReplayModel(TWO)
    assert simulate(answer(model)) == [TextDelta("a"), TextDelta("b"), Finished(StopReason.STOP)]
    assert simulate(answer(model)) == [TextDelta("c"), Finished(StopReason.STOP)]


def test_a_request_past_the_end_is_told():
    """When the recording is over, the request fails with a sentence."""
    model = ReplayModel(lines(HEADER, {"request": 1}, chunk(0, "a", "stop")))
    simulate(answer(model))
    with pytest.raises(
        ModelError, match="the recording of m is over: request 1 was its last, and this is request 2"
    ) as caught:
        simulate(answer(model))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("options", "seconds"), [({}, 0), ({"timing": True}, 2), ({"timing": True, "speed": 4}, 0.5)], ids=str
)
def test_the_times_are_kept_when_asked_for(options: dict[str, Any], seconds: float):
    """With `timing` the chunks come when they came, `speed` times as fast; without, there is no waiting."""

    async def main() -> float:
        await answer(ReplayModel(TWO, **options))
        return asyncio.get_running_loop().time()

    assert simulate(main()) == seconds


def test_others_run_between_chunks():
    """Also without timing, each chunk lets the rest of the program run, as a network does."""
    seen: list[str] = []

    async def main() -> None:
        stream: AsyncIterator[Part] = ReplayModel(TWO).stream(ModelRequest("r", (), "", ()))
        asyncio.get_running_loop().call_soon(seen.append, "other")
        await anext(stream)
        seen.append("chunk")

    simulate(main())
    assert seen == ["other", "chunk"]


def test_a_recorded_error_is_played():
    """A chunk that tells of an error is part of a recording, and raised when it is played."""
    model = ReplayModel(lines(HEADER, {"request": 1}, {"t": 0, "data": {"error": {"message": "slow down", "code": 429}}}))
    with pytest.raises(ModelError, match="slow down"):
        simulate(answer(model))


def test_a_recording_is_read_from_a_file(tmp_path: Path):
    """A recording is given by its path, as text or as a path; empty lines in it do not matter."""
    path = tmp_path / "r.jsonl"
    path.write_text("\n\n".join(TWO) + "\n\n")
    assert ReplayModel(path).recording == ReplayModel(str(path)).recording == read_recording(TWO)


@pytest.mark.parametrize(
    ("entries", "number", "words"),
    [
        (["{"], 1, "not JSON"),
        ([b"\xff"], 1, "not JSON"),
        (["[1]"], 1, "a JSON object is expected"),
        (lines({"request": 1}), 1, '"format": "phasekernel.recording/1"'),
        (lines({**HEADER, "format": "phasekernel.recording/2"}), 1, "phasekernel.recording/2"),
        (lines({"format": FORMAT, "model": "m", "source": "s", "date": "d"}), 1, "has no licence, scripted"),
        (lines({**HEADER, "model": 3}), 1, "model"),
        (lines(HEADER, chunk(0)), 2, "expected before the first chunk"),
        (lines(HEADER, {"request": 2}), 2, "request 1 is expected, not 2"),
        (lines(HEADER, {"request": 1}, {"request": 1}), 3, "request 2 is expected, not 1"),
        (lines(HEADER, {"request": 1}, chunk(-1)), 3, '"t" must be'),
        (lines(HEADER, {"request": 1}, chunk(None)), 3, '"t" must be'),
        (lines(HEADER, {"request": 1}, chunk(True)), 3, '"t" must be'),
        ([*lines(HEADER, {"request": 1}), '{"t": NaN, "data": {}}'], 3, '"t" must be'),
        (lines(HEADER, {"request": 1}, chunk(5), chunk(4)), 4, "goes back from 5 to 4"),
        (lines(HEADER, {"request": 1}, {"t": 1}), 3, '"data" must be a chunk, not None'),
        (lines(HEADER, {"request": 1}, {"t": 1, "data": {"choices": 3}}), 3, "malformed chunk"),
        (["", *lines(HEADER, {"request": 1}), "", "x"], 5, "not JSON"),
    ],
)
def test_a_malformed_recording_is_refused_with_its_line(entries: list[Any], number: int, words: str):
    """What is no recording is a ValueError that names the first wrong line and says what is wrong."""
    with pytest.raises(ValueError, match=f"^line {number} of the recording: ") as caught:
        ReplayModel(entries)
    assert words in str(caught.value)


@pytest.mark.parametrize("entries", [[], lines(HEADER)], ids=["nothing", "a header"])
def test_an_empty_recording_is_refused(entries: list[str]):
    """A recording has a header and at least one request."""
    with pytest.raises(ValueError, match="the recording is empty"):
        ReplayModel(entries)


@pytest.mark.parametrize(
    ("speed", "error"), [(0, ValueError), (-1, ValueError), (float("inf"), ValueError), ("1", TypeError), (True, TypeError)]
)
def test_the_speed_is_checked(speed: Any, error: type[Exception]):
    """A speed that is no positive number is refused, by its name."""
    with pytest.raises(error, match="speed"):
        ReplayModel(TWO, speed=speed)


# ---- the demo ----


def demo() -> Any:
    agent = Agent(ReplayModel(), tools=files(SAMPLE), system_prompt=SYSTEM_PROMPT)
    return agent.run_sync(QUESTION)


def test_the_demo_reads_real_files_and_answers():
    """The demo's run completes: a text with two calls, their real results, an answer."""
    result = demo()
    assert result.status == "completed"
    assert [message.name for message in result.messages if isinstance(message, ToolMessage)] == ["list_files", "read_file"]
    assert "tide readings of a small harbour" in result.final_text


def test_the_answer_is_about_what_the_tools_read():
    """The sample directory is still the one that the model was told of: each file that the answer names is in it."""
    listed, read = (message.text for message in demo().messages if isinstance(message, ToolMessage))
    named = [name for name in ("README.md", "readings.csv", "notes.txt") if name in listed]
    assert len(named) == 3
    assert read == (SAMPLE / "README.md").read_text().rstrip("\n")


def test_what_is_scripted_is_said_and_nothing_else_is():
    """The header says that the tool calls are scripted; they are in the first answer alone."""
    recording = read_recording(DEMO.read_text().splitlines())
    assert "tool_calls" in recording.header.scripted
    calling = [
        any(chunk.data["choices"][0]["delta"].get("tool_calls") for chunk in chunks if chunk.data["choices"])
        for chunks in recording.requests
    ]
    assert calling == [True, False, False]


def test_a_late_steering_is_answered_too():
    """Who steers while the last answer comes gets a recorded answer to that as well."""

    async def main() -> Any:
        agent = Agent(ReplayModel(), tools=files(SAMPLE))
        run, turns = agent.prompt(QUESTION), 0
        async for event in run:
            turns += event.type == "turn.started"
            if event.type == "message.started" and turns == 2:
                agent.steer("in one sentence")
        return await run

    result = asyncio.run(main())
    assert result.status == "completed"
    assert sum(isinstance(message, AssistantMessage) for message in result.messages) == 3
