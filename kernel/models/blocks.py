"""Events of an Anthropic message stream as parts of a response.

A response ends when its stream does: what is left to say is made by `end`, and a stream that broke off before its
`message_stop` has nothing, which the kernel reports as a failure. Signatures are marked as Anthropic's.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from kernel.errors import ModelError
from kernel.messages import Finished, Part, ReasoningDelta, StopReason, TextDelta, ToolCallDelta, Usage
from kernel.models.failures import error_from

SIGNED: Final = "anthropic:"
"""Before a signature of a thought."""
REDACTED: Final = "anthropic-redacted:"
"""Before the data of a thought that is not shown."""
_STOPS: Final = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "pause_turn": StopReason.STOP,
}


@final
class EventReader:
    """Reads the events of one response. It has an end only when the provider said `message_stop`."""

    __slots__ = ("_stop", "_told", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._told: dict[str, Any] = {}
        self._stop: str | None = None

    def parts(self, event: Any) -> list[Part]:
        """What *event* says. ModelError when it tells of an error, or is no event."""
        try:
            return list(self._parts(event))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"the model sent a malformed event: {str(event)[:200]}", retryable=True) from error

    def _parts(self, event: Mapping[str, Any]) -> Iterator[Part]:
        match event["type"]:
            case "message_start":
                yield TextDelta("")
                yield self._counted(event["message"].get("usage"))
            case "content_block_start":
                yield from self._begun(event["index"], event["content_block"])
            case "content_block_delta":
                yield from self._continued(event["index"], event["delta"])
            case "message_delta":
                self._stop = event["delta"].get("stop_reason") or self._stop
                yield self._counted(event.get("usage"))
            case "message_stop":
                self.is_over = True
            case "error":
                raise error_from(event)
            case _:
                pass  # pings, ends of blocks, and what may come in a later version

    def _begun(self, index: int, block: Mapping[str, Any]) -> Iterator[Part]:
        match block["type"]:
            case "text" if block["text"]:
                yield TextDelta(block["text"])
            case "thinking" if block["thinking"]:
                yield ReasoningDelta(block["thinking"])
            case "redacted_thinking":
                yield ReasoningDelta("", f"{REDACTED}{block['data']}")
            case "tool_use":
                given = block.get("input")
                yield ToolCallDelta(index, block["id"], block["name"], json.dumps(given) if given else "")
            case _:
                pass

    def _continued(self, index: int, delta: Mapping[str, Any]) -> Iterator[Part]:
        match delta["type"]:
            case "text_delta":
                yield TextDelta(_string(delta["text"]))
            case "thinking_delta":
                yield ReasoningDelta(delta["thinking"])
            case "signature_delta":
                yield ReasoningDelta("", f"{SIGNED}{_string(delta['signature'])}")
            case "input_json_delta":
                yield ToolCallDelta(index, arguments=delta["partial_json"])
            case _:
                pass

    def _counted(self, usage: Mapping[str, Any] | None) -> Usage:
        """What was used so far. Counts are cumulative: one that comes later stands for all before, and what is not told
        again stays. Told at the beginning too, so that a response which is cancelled is not free.
        """
        told = self._told
        told |= {name: value for name, value in (usage or {}).items() if value is not None}
        read, written = told.get("cache_read_input_tokens", 0), told.get("cache_creation_input_tokens", 0)
        details = told.get("output_tokens_details") or {}
        return Usage(
            input=told.get("input_tokens", 0) + read + written,
            output=told.get("output_tokens", 0),
            cache_read=read,
            cache_write=written,
            reasoning=details.get("thinking_tokens") or 0,
        )

    def end(self) -> list[Part]:
        """What is left to say when the stream has ended; nothing when the provider had not said that it was over."""
        if self._stop == "refusal":
            raise ModelError("the provider's content filter refused")
        return [Finished(_STOPS.get(self._stop))] if self.is_over and self._stop is not None else []


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {value!r}")
    return value
