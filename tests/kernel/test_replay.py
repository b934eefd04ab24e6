"""Recordings and the model that plays them; the demo's recording among them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, AssistantMessage, ModelError, ModelRequest, ToolMessage
from kernel.cli.setting import QUESTION, SAMPLE, SYSTEM_PROMPT
from kernel.messages import Finished, Part, StopReason, TextDelta, ToolCallDelta
from kernel.models.replay import DEMO, ReplayModel
from kernel.models.tape import FORMAT, read_recording
from kernel.testing import simulate
from kernel.toolbox import files

HEADER = {"format": FORMAT, "about": {"model": "m"}}
FAILED = {"message": "slow down", "code": "MODEL_FAILED", "retryable": True, "retry_after": 7.5, "overflow": True}
SETUP = {"setup": 1, "system_prompt": "", "reasoning_effort": None, "output_schema": None, "tools": []}


def part(t: Any, text: str = "", request: int = 1) -> dict[str, Any]:
    return {"request": request, "t": t, "part": {"is": "TextDelta", "text": text}}


def end(t: Any, request: int = 1) -> dict[str, Any]:
    return {"request": request, "t": t, "part": {"is": "Finished", "stop": "stop"}}


def lines(*entries: Any) -> list[str]:
    return [json.dumps(entry) + "\n" for entry in entries]


TWO = lines(
    HEADER, {"request": 1}, part(0, "a"), part(2000, "b"), end(2000), {"request": 2}, part(5, "c", 2), end(5, 2)
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
    model = ReplayModel(lines(HEADER, {"request": 1}, part(0, "a"), end(0)))
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


def test_a_recorded_failure_is_raised_with_its_fields():
    """What the kernel decides by comes back: whether it may pass, when, and whether the context was too long."""
    model = ReplayModel(lines(HEADER, {"request": 1}, part(0, "a"), {"request": 1, "t": 0, "failed": FAILED}))
    with pytest.raises(ModelError, match=r"^slow down$") as caught:
        simulate(answer(model))
    assert (caught.value.retryable, caught.value.retry_after, caught.value.overflow) == (True, 7.5, True)


def test_a_stream_that_just_ended_does_so_again():
    """A stream without a terminal part is played as one; the kernel says what it thinks of it."""
    model = ReplayModel(lines(HEADER, {"request": 1}, part(0, "a"), {"request": 1, "t": 0, "end": "ended"}))
    assert simulate(answer(model)) == [TextDelta("a")]


def test_a_response_that_was_left_is_silent_from_there_on():
    """Nobody knows what would have come: it waits until it is left again, here by a limit of time."""
    model = ReplayModel(lines(HEADER, {"request": 1}, part(0, "a"), {"request": 1, "t": 0, "end": "left"}))

    async def main() -> None:
        stream = model.stream(ModelRequest("r", (), "", ()))
        assert await anext(stream) == TextDelta("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 1000)

    simulate(main())


@pytest.mark.parametrize("torn", ["", '{"request": 1, "t"'], ids=["between lines", "in a line"])
def test_a_recording_that_was_cut_off_is_played_up_to_there(torn: str):
    """What a program that was killed leaves is played, and the failure after it says so."""
    model = ReplayModel([*lines(HEADER, {"request": 1}, part(0, "a")), torn])
    seen: list[Part] = []

    async def each() -> None:
        async for part in model.stream(ModelRequest("r", (), "", ())):
            seen.append(part)  # noqa: PERF401  # what came before the failure is to be kept

    with pytest.raises(ModelError, match="is cut off here: request 1 has 1 parts and no end"):
        simulate(each())
    assert seen == [TextDelta("a")]


def test_a_recording_is_read_from_a_file(tmp_path: Path):
    """A recording is given by its path, as text or as a path; empty lines in it do not matter."""
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(TWO))
    assert ReplayModel(path).recording == ReplayModel(str(path)).recording == read_recording(TWO)


@pytest.mark.parametrize(
    ("entries", "number", "words"),
    [
        (["{"], 1, "not JSON"),
        ([b"\xff"], 1, "not JSON"),
        (["[1]"], 1, "a JSON object is expected"),
        (lines({"request": 1}), 1, f'"format": "{FORMAT}"'),
        (lines({**HEADER, "format": "phasekernel.recording/1"}), 1, "phasekernel.recording/1"),
        (lines({"format": FORMAT}), 1, "it has format, and about, format is right"),
        (lines({**HEADER, "about": 3}), 1, '"about" must be an object'),
        (lines(HEADER, part(0)), 2, "there is no request 1 before it"),
        (lines(HEADER, {"request": 2}), 2, "request 1 is expected, not 2"),
        (lines(HEADER, {"request": True}), 2, "request 1 is expected, not True"),
        (lines(HEADER, {"request": 1}, {"request": 1}), 3, "request 2 is expected, not 1"),
        (lines(HEADER, {"what": 1}), 2, "neither a setup nor a message"),
        (lines(HEADER, {"setup": 1}), 2, "it has setup, and"),
        (lines(HEADER, {"message": 1, "is": "UserMessage"}), 2, "UserMessage has no content"),
        (lines(HEADER, {"message": 2, "is": "SummaryMessage", "text": ""}), 2, "message 1 is expected, not 2"),
        (lines(HEADER, {"request": 1, "setup": 1, "messages": []}), 2, "there is no setup 1 before it"),
        (lines(HEADER, SETUP, {"request": 1, "setup": 1, "messages": [0]}), 3, "there is no message 0 before it"),
        (lines(HEADER, SETUP, {"request": 1, "setup": 1, "messages": 3}), 3, '"messages" must be a list'),
        (lines(HEADER, SETUP, {"request": 1, "setup": 1}), 3, "it has request, setup, and"),
        (lines(HEADER, {"request": 1}, part(-1)), 3, '"t" must be'),
        (lines(HEADER, {"request": 1}, part(None)), 3, '"t" must be'),
        (lines(HEADER, {"request": 1}, part(True)), 3, '"t" must be'),
        (lines(HEADER, {"request": 1}, part(float("nan"))), 3, '"t" must be'),
        (lines(HEADER, {"request": 1}, part(5), part(4)), 4, "goes back from 5 to 4"),
        (lines(HEADER, {"request": 1}, end(0), part(4)), 4, "request 1 has ended before"),
        (lines(HEADER, {"request": 1}, {**part(0), "end": "left"}), 3, "it has end, part, request, t, and"),
        (lines(HEADER, {"request": 1}, {"request": 1, "t": 0, "end": "so"}), 3, "'so' is not a valid Ending"),
        (lines(HEADER, {"request": 1}, {"request": 1, "t": 0, "part": {"is": "Text"}}), 3, "'Text' is not known here"),
        (lines(HEADER, {"request": 1}, {"request": 1, "t": 0, "part": 3}), 3, ""),
        (["\n", *lines(HEADER, {"request": 1}), "\n", "x\n"], 5, "not JSON"),
        ([*lines(HEADER, {"request": 1}), "x", *lines(part(0))], 3, "not JSON"),
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
    recording = read_recording(DEMO.read_text().splitlines(keepends=True))
    assert "tool calls" in recording.about["scripted"]
    calling = [any(isinstance(step.what, ToolCallDelta) for step in response.steps) for response in recording.responses]
    assert calling == [True, False, False]


def test_a_late_steering_is_answered_too():
    """Who steers while the last answer comes gets a recorded answer to that as well."""

    async def main() -> Any:
        agent = Agent(ReplayModel(match=False), tools=files(SAMPLE))
        run, turns = agent.prompt(QUESTION), 0
        async for event in run:
            turns += event.type == "turn.started"
            if event.type == "message.started" and turns == 2:
                agent.steer("in one sentence")
        return await run

    result = asyncio.run(main())
    assert result.status == "completed"
    assert sum(isinstance(message, AssistantMessage) for message in result.messages) == 3
