"""Recording a model, and playing what was recorded: the same events, or a sentence about where they part."""

import asyncio
import doctest
import json
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel import Agent, Model, ModelError, ModelRequest, UserMessage, tool
from kernel.dialects import project
from kernel.messages import CustomMessage, Finished, Part, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from kernel.models import recording as room
from kernel.models.recording import RecordingModel
from kernel.models.replay import ReplayModel
from kernel.testing import CUT_OFF, ScriptedModel, call, collect, say, simulate
from tests.kernel.strategies import TEXTS, values_of

REQUEST = ModelRequest("r", (), "", ())


@tool
def look(path: str = "") -> str:
    """Look."""
    return f"saw {path}"


def recorded(*responses: Any) -> tuple[RecordingModel, list[str]]:
    lines: list[str] = []
    return RecordingModel(ScriptedModel(responses), lines.append), lines


def events_of(model: Model, *prompts: str, cancel_at: int | None = None, **options: Any) -> list[Any]:
    """The lines of the runs' events, in the kernel's own words but without the ids that it makes up for calls."""

    async def main() -> list[Any]:
        random.seed(1)  # the jitter of retries
        agent = Agent(model, tools=[look], **options)
        events: list[Any] = []

        def listener(event: Any) -> None:
            events.append(event)
            if len(events) == cancel_at:
                agent.cancel("enough")

        agent.subscribe(listener)
        for prompt in prompts:
            await collect(agent.prompt(prompt))
        ids: dict[str, str] = {}
        text = json.dumps(list(project(events)))
        return json.loads(re.sub(r'"[0-9a-f]{8}-[^"]*"', lambda m: ids.setdefault(m[0], f'"id{len(ids)}"'), text))  # type: ignore[no-any-return]

    return simulate(main())


def failure_in(lines: list[Any]) -> str:
    """What the last message of a failed run says."""
    assert lines[-1]["status"] == "failed"
    return str([line["error"] for line in lines if isinstance(line.get("error"), str)][-1])


async def read(model: Any, request: ModelRequest = REQUEST) -> list[Part]:
    return [part async for part in model.stream(request)]


# ---- the same again ----

ERRORS = st.builds(
    ModelError,
    st.sampled_from(["boom", "long"]),
    retryable=st.booleans(),
    retry_after=st.none() | st.floats(0, 9),
    overflow=st.booleans(),
)
CALLS = st.builds(
    ToolCallDelta, st.integers(0, 2), st.sampled_from([None, "c1"]), st.sampled_from([None, "look"]),
    st.sampled_from(["", "{", '{"path": "x"}']),
)  # fmt: skip
PARTS = st.one_of(
    st.builds(TextDelta, TEXTS),
    st.builds(ReasoningDelta, TEXTS, st.none() | TEXTS),
    CALLS,
    st.builds(call, st.sampled_from(["", "a", "b"]), st.sampled_from(["look", "nothing"]), path=TEXTS),
    values_of(Usage),
)
ENDS = st.one_of(st.just([]), st.just([CUT_OFF]), ERRORS.map(lambda error: [error]), st.just([ValueError("odd")]))
RESPONSES = st.builds(lambda parts, end: [*parts, *end], st.lists(PARTS, max_size=5), ENDS)


def as_a_network(response: list[Any]) -> list[Any]:
    """*response*, with a trip through the loop before each part and before its end: there a cancel reaches it."""
    trip = lambda: asyncio.sleep(0)  # noqa: E731
    lines = [line for part in response for line in (trip, part)]
    return lines if response and (response[-1] is CUT_OFF or isinstance(response[-1], Exception)) else [*lines, trip]


@settings(max_examples=150, deadline=None)
@given(st.lists(RESPONSES, min_size=1, max_size=5), st.none() | st.integers(1, 20), st.booleans())
def test_what_was_recorded_plays_the_same(responses: list[Any], cancel_at: int | None, timing: bool):
    """Whatever a model says, fails with or is cut off in: the replay of its recording gives the same events."""
    model, lines = recorded(*map(as_a_network, responses))
    first = events_of(model, "Hi", "More", cancel_at=cancel_at)
    again = events_of(ReplayModel(lines, timing=timing), "Hi", "More", cancel_at=cancel_at)
    assert again == first


@given(st.lists(values_of(Part), max_size=6))
def test_each_part_comes_back_equal(parts: list[Any]):
    """Parts of any content, with halves of characters and large numbers in them, are read as they were."""
    model, lines = recorded(parts)
    first = simulate(read(model))
    assert simulate(read(ReplayModel(lines))) == first


def test_the_example_is_true(tmp_path: Path):
    """Wrapped, run and played back by a path: the same text, and the file is closed."""
    path = tmp_path / "run.jsonl"
    with RecordingModel(ScriptedModel([[call("c1", "look", path="x")], say("It is ", "x")]), path) as model:
        first = Agent(model, tools=[look]).run_sync("Hi")
    again = Agent(ReplayModel(path), tools=[look]).run_sync("Hi")
    assert again.final_text == first.final_text == "It is x"
    assert again.messages == first.messages


def test_the_times_are_those_of_the_model():
    """With timing, a replay takes as long as the model did."""

    async def main() -> tuple[float, float]:
        model, lines = recorded(["a", lambda: asyncio.sleep(1.5), "b"])
        clock = asyncio.get_running_loop().time
        await read(model)
        half = clock()
        await read(ReplayModel(lines, timing=True))
        return half, clock() - half

    assert simulate(main()) == (1.5, 1.5)


def test_two_agents_at_once_are_recorded_and_played_in_another_order():
    """Lines of requests that go on at once are told apart, and each agent gets its own answers again."""

    def answer(request: ModelRequest) -> AsyncIterator[Part]:
        async def parts() -> AsyncIterator[Part]:
            for _ in range(3):
                await asyncio.sleep(0)
                yield TextDelta(request.messages[0].text)
            yield Finished()

        return parts()

    async def both(model: Any, *order: str) -> list[str]:
        runs = {name: Agent(model).prompt(name) for name in order}
        return [(await runs[name]).final_text for name in ("a", "b")]

    model, lines = recorded(answer, answer)
    assert simulate(both(model, "a", "b")) == ["aaa", "bbb"]
    assert [json.loads(line)["request"] for line in lines if '"part"' in line][:4] == [1, 2, 1, 2]
    assert simulate(both(ReplayModel(lines), "b", "a")) == ["aaa", "bbb"]


def test_ids_that_the_kernel_made_up_do_not_part_a_replay():
    """A call without an id gets one of the run's; the replay's run has another, and matches all the same."""
    model, lines = recorded([call("", "look", path="x")], say("done"))
    events_of(model, "Hi")
    assert events_of(ReplayModel(lines), "Hi")[-1]["status"] == "completed"


def test_what_requests_share_is_written_once():
    """A conversation of n turns does not cost n squared."""
    model, lines = recorded(*[say(str(turn)) for turn in range(5)])
    events_of(model, *"abcde")
    kinds = [next(iter(json.loads(line))) for line in lines]
    assert (kinds.count("setup"), kinds.count("message")) == (1, 9)


# ---- a replay that does not match ----


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        (("a", "X"), {}, "at request 2, .* request 2: message 3, UserMessage, content[0].text: 'b' was recorded, 'X' was"),
        (("X",), {}, "at request 1, .* request 1: message 1, UserMessage, content[0].text: 'a' was recorded, 'X' was"),
        (("a",), {"system_prompt": "P"}, "system_prompt: '' was recorded, 'P' was asked"),
        (("a",), {"reasoning_effort": "high"}, "reasoning_effort: None was recorded, 'high' was asked"),
        (("a",), {"messages": [UserMessage("0")]}, "message 1, UserMessage, content[0].text: 'a' was recorded, '0' was"),
    ],
)
def test_a_replay_says_where_it_parted(prompts: tuple[str, ...], options: dict[str, Any], words: str):
    """A request that was not recorded is no answer to another one: it fails, with the number and the first difference."""
    model, lines = recorded(say("1"), say("2"))
    events_of(model, "a", "b")
    replay = ReplayModel(lines)
    said = failure_in(events_of(replay, *prompts, **options))
    pattern = ".*".join(map(re.escape, words.split(".*")))
    assert re.search(f"the replay diverged .*{pattern}", said)


def test_tools_are_part_of_what_was_asked():
    """Another description of a tool is another question."""
    model, lines = recorded(say("1"))
    request = evolve(REQUEST, tools=(look,))
    simulate(read(model, request))
    with pytest.raises(ModelError, match=r"tools.* was recorded, nothing was asked|tool 1, look: .* nothing was asked"):
        simulate(read(ReplayModel(lines)))


def test_a_long_text_is_shown_where_it_differs():
    """Of a long text, what is around the first difference is told."""
    model, lines = recorded(say("1"))
    simulate(read(model, evolve(REQUEST, system_prompt="x" * 500 + "old")))
    with pytest.raises(ModelError) as caught:
        simulate(read(ReplayModel(lines), evolve(REQUEST, system_prompt="x" * 500 + "new")))
    assert "xold' was recorded" in str(caught.value)
    assert "xnew' was asked" in str(caught.value)
    assert len(str(caught.value)) < 350
    assert not caught.value.retryable


def test_one_and_true_are_two_questions():
    """Values that Python takes for equal are not the same in JSON."""
    model, lines = recorded(say("1"))
    ask = lambda value: evolve(REQUEST, output_schema={"const": value})  # noqa: E731
    simulate(read(model, ask(1)))
    with pytest.raises(ModelError, match=r"output_schema.const: 1 was recorded, True was asked"):
        simulate(read(ReplayModel(lines), ask(True)))


def test_without_match_anything_is_answered():
    """Played by hand, a recording answers its own questions."""
    model, lines = recorded(say("1"))
    events_of(model, "a")
    assert events_of(ReplayModel(lines, match=False), "X")[-1]["status"] == "completed"


# ---- what may not get in ----


@pytest.mark.parametrize(
    "secret",
    ["sk-proj-Abc123xyz", "sk-ant-a03-abc_DEF", "Bearer abc.def123", "Authorization: Basic dXNlcjpw", "api-key: abc123xyz"],
)
def test_what_looks_like_a_key_in_an_error_is_blotted_out(secret: str):
    """A provider may repeat the key in its error: it is not recorded, and the rest of the sentence is."""
    model, lines = recorded([ModelError(f"no access with {secret} at https://me:hunter22@example.org/v1")])
    with pytest.raises(ModelError):
        simulate(read(model))
    written = "".join(lines)
    assert secret.split()[-1] not in written
    assert "hunter22" not in written
    assert "no access with" in written
    assert "example.org/v1" in written


def test_the_model_itself_is_not_written():
    """Of the model, only the name of its class is: its attributes and its repr may hold a key."""

    class Keyed:
        key = "sk-secret"
        context_window = 77

        def __repr__(self) -> str:
            return f"Keyed({self.key})"

        async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
            yield Finished()

    lines: list[str] = []
    model = RecordingModel(Keyed(), lines.append)
    simulate(read(model))
    assert "secret" not in "".join(lines) + repr(model)
    assert json.loads(lines[0])["about"] == {"model": "Keyed"}
    assert model.context_window == 77


def test_the_docstring_of_the_blot_is_true():
    """The example in it gives what it says."""
    assert doctest.testmod(room).failed == 0


# ---- a recording that breaks ----


@pytest.mark.parametrize("at", [2, 3, 4, 5])
def test_a_recording_that_can_not_be_written_fails_the_request(at: int, caplog: pytest.LogCaptureFixture):
    """A full disk is told, by the run's error and in the log; after that the model is not asked any more."""
    count = 0

    def write(line: str) -> None:
        nonlocal count
        count += 1
        if count >= at:
            raise OSError("no space left on device")

    scripted = ScriptedModel([say("a", "b"), say("c")])
    model = RecordingModel(scripted, write)
    said = "the recording ends here, and the request with it: no space left on device"
    for _ in range(2):
        assert failure_in(events_of(model, "Hi")).startswith(said)
    assert len(scripted.requests) == (1 if at > 4 else 0)
    assert len([record for record in caplog.records if record.name == "kernel.recording"]) == 1


def test_a_write_that_fails_does_not_swallow_a_cancel():
    """When not even the leaving can be written, the cancel still ends the run as cancelled, and the log tells the rest."""

    def write(line: str) -> None:
        if "left" in line:
            raise OSError("full")

    model = RecordingModel(ScriptedModel([["a", lambda: asyncio.Event().wait()]]), write)

    async def bare() -> None:
        task = asyncio.ensure_future(read(model))
        await asyncio.sleep(1)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        simulate(bare())


def test_a_path_that_can_not_be_opened_is_told_at_once(tmp_path: Path):
    """Before anything is asked."""
    with pytest.raises(FileNotFoundError):
        RecordingModel(ScriptedModel(), tmp_path / "nowhere" / "r.jsonl")


def test_each_line_is_in_the_file_at_once(tmp_path: Path):
    """A program that is killed leaves all lines but the last."""
    path = tmp_path / "r.jsonl"
    with RecordingModel(ScriptedModel([say("a")]), path) as model:
        simulate(read(model))
        assert '"Finished"' in path.read_text().splitlines()[-1]


def test_what_can_not_be_said_in_json_is_refused():
    """A message with data that would not come back fails the request, and the model is not asked."""
    scripted = ScriptedModel([say("a")])
    with pytest.raises(ModelError, match="the request can't be written: JSON can't say <object"):
        simulate(read(RecordingModel(scripted, [].append), evolve(REQUEST, messages=(CustomMessage("c", object()),))))
    assert scripted.requests == []


@pytest.mark.parametrize("rubbish", ["text", 3, TextDelta(3), TextDelta])  # type: ignore[arg-type]
def test_a_model_that_breaks_the_protocol_is_recorded_as_a_failure(rubbish: Any):
    """What is no part is a failure of the model, in the run and in its replay."""

    async def broken(request: ModelRequest) -> AsyncIterator[Any]:
        yield rubbish

    model, lines = recorded(broken)
    errors = [failure_in(events_of(model, "Hi")), failure_in(events_of(ReplayModel(lines), "Hi"))]
    assert all(error.startswith("the model broke the protocol: it yielded") for error in errors)


def test_a_stream_is_closed_when_its_reader_leaves():
    """The wrapped model's stream ends with the recorder's, and the leaving is written down."""
    closed: list[str] = []

    async def endless() -> AsyncIterator[Part]:
        try:
            while True:
                yield TextDelta("a")
                await asyncio.sleep(1)
        finally:
            closed.append("closed")

    async def main() -> None:
        stream: Any = model.stream(REQUEST)
        await anext(stream)
        await stream.aclose()
        closed.append("left")

    held = endless()  # or the collector of garbage would close it
    model, lines = recorded(lambda request: held)
    simulate(main())
    assert closed == ["closed", "left"]
    assert json.loads(lines[-1])["end"] == "left"


@pytest.mark.parametrize(("model", "write", "word"), [(3, print, "model"), (ScriptedModel(), 3, "write")])
def test_wrong_arguments_are_refused_by_name(model: Any, write: Any, word: str):
    """Before anything is written."""
    with pytest.raises(TypeError, match=f"^{word} must"):
        RecordingModel(model, write)
