"""Chunks of chat completions as parts, with what providers do differently."""

from typing import Any

import pytest

from kernel.errors import ModelError
from kernel.messages import Finished, Part, ReasoningDelta, StopReason, TextDelta, ToolCallDelta, Usage
from kernel.models.chunks import ChunkReader
from kernel.models.failures import error_from


def delta(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def called(index: int | None, id: str | None = None, name: str | None = None, arguments: Any = "") -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return delta(tool_calls=[{**place, "id": id, "function": {"name": name, "arguments": arguments}}])


def parts(*chunks: Any) -> list[Part]:
    reader = ChunkReader()
    return [part for chunk in chunks for part in reader.parts(chunk)] + reader.end()


def places(*chunks: Any) -> list[int]:
    return [part.index for part in parts(*chunks) if isinstance(part, ToolCallDelta)]


def test_text_is_text():
    """The content of a delta is text; an empty or missing one says nothing."""
    chunks = [
        delta(role="assistant", content=None),
        delta(content=""),
        delta(content="Hel"),
        delta(content="lo"),
        delta("stop"),
    ]
    assert parts(*chunks) == [TextDelta("Hel"), TextDelta("lo"), Finished(StopReason.STOP)]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_has_two_names(field: str):
    """Both names of reasoning are read."""
    assert parts(delta(**{field: "hm"}), delta("stop"))[0] == ReasoningDelta("hm")


def test_reasoning_under_both_names_is_said_once():
    """A provider that sends both names does not think twice."""
    assert parts(delta(reasoning="hm", reasoning_content="hm")) == [ReasoningDelta("hm")]


def test_a_refusal_is_text():
    """What a model says when it refuses is its answer."""
    assert parts(delta(refusal="No.")) == [TextDelta("No.")]


def test_a_call_comes_in_pieces():
    """The id and name come first, then pieces of the arguments."""
    assert parts(
        called(0, "c1", "read", None), called(0, arguments='{"a"'), called(0, arguments=":1}"), delta("tool_calls")
    ) == [
        ToolCallDelta(0, "c1", "read", ""),
        ToolCallDelta(0, None, None, '{"a"'),
        ToolCallDelta(0, None, None, ":1}"),
        Finished(StopReason.TOOL_USE),
    ]


def test_arguments_that_are_an_object_become_text():
    """Some servers send the arguments as an object."""
    assert parts(called(0, "c1", "read", {"a": 1})) == [ToolCallDelta(0, "c1", "read", '{"a": 1}')]


def test_calls_are_told_apart_by_their_index():
    """Pieces of two calls may come interleaved."""
    assert places(called(0, "a", "x"), called(1, "b", "y"), called(0), called(1), called(0)) == [0, 1, 0, 1, 0]


def test_calls_of_one_index_are_told_apart_by_their_ids():
    """Some providers number every call 0: another id is another call, and what follows without an id belongs to it."""
    assert places(called(0, "a", "x"), called(0, "b", "y"), called(0), called(0, "b")) == [0, 1, 1, 1]


def test_calls_without_an_index_are_told_apart_by_their_ids():
    """Some providers give no index: an id begins a call, what has none belongs to the last."""
    assert places(called(None, "a", "x"), called(None), called(None, "b", "y"), called(None), called(None, "b")) == [
        0,
        0,
        1,
        1,
        1,
    ]


def test_an_id_that_comes_late_names_its_call():
    """A call may begin without its id."""
    assert places(called(0, None, "x"), called(0, "a"), called(0, "b", "y")) == [0, 0, 1]


def test_usage_comes_before_the_end():
    """The chunk of usage, which has no choices, comes after the stop reason and is told before the end."""
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert parts(delta("stop"), {"choices": [], "usage": usage}) == [
        Usage(7, 5, cache_read=3, reasoning=2), Finished(StopReason.STOP),
    ]  # fmt: skip


def test_usage_in_every_chunk_is_told_once():
    """Some servers count on in every chunk: the last count is the one."""
    chunks = [{**delta(content="a"), "usage": {"prompt_tokens": 1, "completion_tokens": n}} for n in (1, 2)]
    assert parts(*chunks, delta("stop"))[2:] == [Usage(1, 2), Finished(StopReason.STOP)]


def test_content_in_blocks():
    """Some models say their text and what they think as blocks."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    blocks = [thought, {"type": "text", "text": "a"}, {"type": "x"}]
    assert parts(delta(content=blocks)) == [ReasoningDelta("hm"), TextDelta("a")]


def test_a_whole_message_in_place_of_a_delta():
    """Some servers send one piece, and call it by its other name."""
    assert parts({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}) == [
        TextDelta("a"), Finished(StopReason.STOP),
    ]  # fmt: skip


def test_tokens_with_a_decimal_point():
    assert parts({"usage": {"prompt_tokens": 3.0, "completion_tokens": 1}}) == [Usage(3, 1)]


def test_usage_with_nulls_counts_as_nothing():
    """Details that are null, and counts that are missing, are no tokens."""
    assert parts({"usage": {"prompt_tokens": 1, "completion_tokens": None, "prompt_tokens_details": None}}) == [Usage(1)]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", StopReason.STOP), ("length", StopReason.LENGTH), ("tool_calls", StopReason.TOOL_USE), ("eos", None)],
)
def test_stop_reasons(reason: str, stop: StopReason | None):
    """Each finish reason has its stop reason; an unknown one leaves the choice to the kernel."""
    assert parts(delta(reason)) == [Finished(stop)]


def test_a_stream_that_broke_off_has_no_end():
    """Without a finish reason there is no terminal part, so the kernel sees that something is missing."""
    assert parts(delta(content="a"), {"usage": {"prompt_tokens": 1}}) == [TextDelta("a"), Usage(1)]


def test_a_filtered_response_is_a_failure():
    """A content filter is an error that does not pass."""
    with pytest.raises(ModelError, match="content filter") as caught:
        parts(delta("content_filter"))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "chunk", [{}, {"choices": []}, {"choices": None, "usage": None}, {"choices": [{"index": 0, "delta": None}]}], ids=str
)
def test_a_chunk_may_say_nothing(chunk: dict[str, Any]):
    """Chunks without choices or without a delta are allowed."""
    assert parts(chunk) == []


@pytest.mark.parametrize(
    "chunk",
    [
        3,
        "x",
        None,
        {"choices": 3},
        {"choices": [3]},
        delta(content=3),
        delta(tool_calls=[3]),
        {"usage": {"prompt_tokens": "1"}},
    ],
    ids=str,
)
def test_a_malformed_chunk_is_a_failure_that_may_pass(chunk: Any):
    """What is no chunk is a ModelError that shows it and can be tried again."""
    with pytest.raises(ModelError, match="malformed chunk") as caught:
        parts(chunk)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("payload", "status", "retryable", "overflow"),
    [
        ({"error": {"code": 429, "message": "slow down"}}, None, True, False),
        ({"error": {"code": 400, "message": "bad"}}, None, False, False),
        ({"error": {"type": "overloaded_error", "message": "busy"}}, None, True, False),
        ({"error": {"code": "context_length_exceeded", "message": "long"}}, 400, False, True),
        ({"error": {"code": 400, "type": "exceed_context_size_error", "message": "long"}}, 400, False, True),
        ({"error": "down"}, 503, True, False),
        ({"detail": "who are you"}, 401, False, False),
        ("teapot", 418, False, False),
    ],
)
def test_errors_are_told_apart(payload: Any, status: int | None, retryable: bool, overflow: bool):
    """Whether an error may pass, and whether the context was too long, is read from its status, code and type."""
    error = error_from(payload, status)
    assert (error.retryable, error.overflow) == (retryable, overflow)
    assert str(error).startswith(f"HTTP {status}: ") is (status is not None)


def test_an_error_in_the_stream_is_raised():
    """A chunk that tells of an error raises it, with its text."""
    with pytest.raises(ModelError, match=r"^slow down$"):
        parts(delta(content="a"), {"error": {"code": 429, "message": "slow down"}})
