"""The two formats that providers speak, so that each test can be held against both."""

from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from kernel.models.anthropic import AnthropicModel
from kernel.models.openai import OpenAIModel
from tests.providers.server import Answer, event, json_answer

Piece = tuple[Any, ...]
"""`("text", "a")`, `("reasoning", "b")`, `("call", id, name, *pieces of arguments)`."""


def openai_chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more})


def openai_pieces(*pieces: Piece, end: str | None = "stop", usage: tuple[int, int] | None = (10, 3)) -> Iterator[bytes]:
    """The body of a response; without *end* it breaks off."""
    calls = 0
    for kind, *said in pieces:
        if kind == "text":
            yield openai_chunk({"content": said[0]})
        elif kind == "reasoning":
            yield openai_chunk({"reasoning_content": said[0]})
        else:
            call_id, name, *arguments = said
            function = {"name": name, "arguments": ""}
            head = {"index": calls, "id": call_id, "type": "function", "function": function}
            yield openai_chunk({"tool_calls": [head]})
            for text in arguments:
                yield openai_chunk({"tool_calls": [{"index": calls, "function": {"arguments": text}}]})
            calls += 1
    if end is None:
        return
    names = {"stop": "tool_calls" if calls else "stop", "length": "length", "refusal": "content_filter"}
    yield openai_chunk({}, names[end])
    if usage is not None:
        counts = {
            "prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage),
            "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 1},
        }  # fmt: skip
        told = {"usage": counts}
        yield event({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], **told})
    yield event("[DONE]")


def _anthropic(name: str, **data: Any) -> bytes:
    return event({"type": name, **data}, name)


def anthropic_pieces(*pieces: Piece, end: str | None = "stop", usage: tuple[int, int] | None = (10, 3)) -> Iterator[bytes]:
    """The same in the other format. Of ten input tokens four were read from a cache, and one was written to it."""
    counts = {"input_tokens": (usage or (0, 0))[0] - 5, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1}
    start = {
        "id": "x", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {**counts, "output_tokens": 1},
    }  # fmt: skip
    yield _anthropic("message_start", message=start)
    yield _anthropic("ping")
    has_calls = False
    for index, (kind, *said) in enumerate(pieces):
        if kind == "text":
            begun, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": said[0]}]
        elif kind == "reasoning":
            begun = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": said[0]}, {"type": "signature_delta", "signature": "sig"}]
        elif kind == "redacted":
            begun, deltas = {"type": "redacted_thinking", "data": said[0]}, []
        else:
            has_calls = True
            begun = {"type": "tool_use", "id": said[0], "name": said[1], "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": text} for text in said[2:]]
        yield _anthropic("content_block_start", index=index, content_block=begun)
        for delta in deltas:
            yield _anthropic("content_block_delta", index=index, delta=delta)
        if end is not None:
            yield _anthropic("content_block_stop", index=index)
    if end is None:
        return
    names = {"stop": "tool_use" if has_calls else "end_turn", "length": "max_tokens", "refusal": "refusal"}
    told = {"output_tokens": (usage or (0, 0))[1], "output_tokens_details": {"thinking_tokens": 1}}
    yield _anthropic("message_delta", delta={"stop_reason": names[end], "stop_sequence": None}, usage=told)
    yield _anthropic("message_stop")


@frozen
class Wire:
    """A format: how to make a model that speaks it, bodies of responses, and errors."""

    name: str
    path: str
    make: Callable[[str], Any]
    pieces: Callable[..., Iterator[bytes]]
    error: Callable[[str, str], dict[str, Any]]
    broken: Callable[[str, str], bytes]

    def says(self, *pieces: Piece, **more: Any) -> Answer:
        """A good response."""
        return Answer(self.pieces(*pieces, **more))

    def fails(self, status: int, name: str, text: str, **headers: str) -> Answer:
        """A response that tells of an error by its status."""
        return json_answer(self.error(name, text), status, **headers)


OPENAI = Wire(
    "openai",
    "/v1/chat/completions",
    lambda url: OpenAIModel("m", base_url=f"{url}/v1", api_key="sk-very-secret"),
    openai_pieces,
    lambda name, text: {"error": {"message": text, "type": name, "code": name, "param": None}},
    lambda name, text: event({"error": {"message": text, "type": name, "code": name}}),
)
ANTHROPIC = Wire(
    "anthropic",
    "/v1/messages",
    lambda url: AnthropicModel("m", base_url=url, api_key="sk-very-secret"),
    anthropic_pieces,
    lambda name, text: {"type": "error", "error": {"type": name, "message": text}},
    lambda name, text: event({"type": "error", "error": {"type": name, "message": text}}, "error"),
)
WIRES = (OPENAI, ANTHROPIC)
