"""Chunks of an OpenAI-compatible chat completion as parts of a response, for all who speak that format.

A response ends when its stream does, not with `finish_reason`: the usage comes after it. So the terminal part is made
by `end`, and a stream that broke off before its `finish_reason` has none, which the kernel reports as a failure.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from kernel.errors import ModelError
from kernel.messages import Finished, Part, ReasoningDelta, StopReason, TextDelta, ToolCallDelta, Usage
from kernel.models.failures import error_from

_STOPS: Final[dict[str, StopReason]] = {
    "stop": StopReason.STOP,
    "length": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
}

@final
class ChunkReader:
    """Reads the chunks of one response."""

    __slots__ = ("_finish_reason", "_ids", "_last_call", "_places", "_usage")

    def __init__(self) -> None:
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._places: dict[int | None, int] = {}
        self._ids: list[str | None] = []
        self._last_call = 0

    def parts(self, chunk: Any) -> list[Part]:
        """What *chunk* says. ModelError when it tells of an error, or is no chunk."""
        try:
            if chunk.get("error"):
                raise error_from(chunk)
            self._usage = _usage(chunk.get("usage")) or self._usage
            choices = chunk.get("choices") or ()
            return list(self._choice(choices[0])) if choices else []
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"the model sent a malformed chunk: {str(chunk)[:200]}", retryable=True) from error

    def end(self) -> list[Part]:
        """What is left to say when the stream has ended."""
        if self._finish_reason == "content_filter":
            raise ModelError("the provider's content filter ended the response")
        usage: list[Part] = [] if self._usage is None else [self._usage]
        return usage if self._finish_reason is None else [*usage, Finished(_STOPS.get(self._finish_reason))]

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[Part]:
        delta = choice.get("delta") or choice.get("message") or {}
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            yield ReasoningDelta(_text(reasoning))
        content = delta.get("content") or delta.get("refusal")
        if isinstance(content, list):  # Mistral's reasoning models
            yield from _blocks(content)
        elif content:
            yield TextDelta(_text(content))
        for call in delta.get("tool_calls") or ():
            yield self._call(call)
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        if self._finish_reason == "error":
            raise error_from(choice.get("error") or "the model broke off its answer")

    def _call(self, call: Mapping[str, Any]) -> ToolCallDelta:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        call_id = call.get("id") or None
        return ToolCallDelta(self._place(call.get("index"), call_id), call_id, function.get("name") or None, arguments)

    def _place(self, index: int | None, call_id: str | None) -> int:
        """Which call of the response is meant. Some providers number all calls 0, or none: then the id tells."""
        place = self._last_call if index is None and self._ids and not call_id else self._places.get(index)
        if place is None or (call_id and self._ids[place] not in (None, call_id)):
            place = len(self._ids)
            self._ids.append(None)
        self._ids[place] = call_id or self._ids[place]
        self._last_call = place
        self._places[index] = place
        return place


def _blocks(content: list[Any]) -> Iterator[Part]:
    for block in content:
        if block["type"] == "text":
            yield TextDelta(_text(block["text"]))
        elif block["type"] == "thinking":
            yield from (ReasoningDelta(_text(each["text"])) for each in block["thinking"])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {value!r}")
    return value


def _usage(value: Mapping[str, Any] | None) -> Usage | None:
    if not value:
        return None
    return Usage(
        input=_tokens(value.get("prompt_tokens")),
        output=_tokens(value.get("completion_tokens")),
        cache_read=_tokens((value.get("prompt_tokens_details") or {}).get("cached_tokens")),
        reasoning=_tokens((value.get("completion_tokens_details") or {}).get("reasoning_tokens")),
    )


def _tokens(value: Any) -> Any:
    """A count, which some servers write with a decimal point. What is none is refused by `Usage`."""
    return int(value) if isinstance(value, float) and value.is_integer() else value or 0
