"""The response while it streams: an append-only buffer of pieces, joined when it is read or when it ends."""

import json
from typing import Any, final

from kernel.frozen import EMPTY, FrozenDict, freeze
from kernel.messages import (
    AssistantMessage,
    Reasoning,
    ReasoningDelta,
    StopReason,
    Text,
    ToolCall,
    ToolCallDelta,
    Usage,
)


@final
class OpenMessage:
    """An assistant message in the making. `request_id` names calls for which the provider gave no id."""

    __slots__ = ("_blocks", "_calls", "_pieces", "_request_id", "call_count", "usage")

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._blocks: list[Any] = []
        self._pieces: list[str] | None = None
        self._calls: dict[int, _OpenCall] = {}
        self.call_count = 0
        self.usage: Usage | None = None

    def add_text(self, text: str) -> None:
        """A piece of text; pieces in a row make one block."""
        if self._pieces is None:
            self._pieces = []
            self._blocks.append(self._pieces)
        self._pieces.append(text)

    def add_reasoning(self, delta: ReasoningDelta) -> None:
        """A piece of reasoning; pieces in a row make one block, which a signature closes."""
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, _OpenReasoning) or last.signature is not None:
            last = _OpenReasoning()
            self._blocks.append(last)
            self._pieces = None
        last.pieces.append(delta.text)
        last.signature = delta.signature

    def add_call(self, call: ToolCall) -> str:
        """A whole call. Returns its id."""
        self._pieces = None
        self.call_count += 1
        if not call.id:
            call = ToolCall(f"{self._request_id}.{self.call_count}", call.name, call.arguments, call.malformed)
        self._blocks.append(call)
        return call.id

    def add_call_delta(self, delta: ToolCallDelta) -> str:
        """A piece of a call. Returns the call's id."""
        call = self._calls.get(delta.index)
        if call is None:
            self._pieces = None
            self.call_count += 1
            call = self._calls[delta.index] = _OpenCall(f"{self._request_id}.{self.call_count}")
            self._blocks.append(call)
        call.id = delta.id or call.id
        call.name = delta.name or call.name
        call.pieces.append(delta.arguments)
        return call.id

    def build(self, stop: StopReason, error: str | None = None, *, cut: bool = False) -> AssistantMessage:
        """The message so far. *cut* leaves its calls out, since nobody will answer them."""
        content = tuple(
            block for block in map(_built, self._blocks) if not (isinstance(block, ToolCall) and cut) and _says(block)
        )
        return AssistantMessage(content, stop, self.usage, error)


class _OpenReasoning:
    __slots__ = ("pieces", "signature")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.signature: str | None = None


class _OpenCall:
    __slots__ = ("id", "name", "pieces")

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.pieces: list[str] = []


def _built(block: Any) -> Text | Reasoning | ToolCall:
    match block:
        case list():
            return Text("".join(block))
        case _OpenReasoning():
            return Reasoning("".join(block.pieces), block.signature)
        case _OpenCall():
            arguments, malformed = parse_arguments("".join(block.pieces))
            return ToolCall(block.id, block.name, arguments, malformed)
        case _:
            return block  # type: ignore[no-any-return]


def _says(block: Text | Reasoning | ToolCall) -> bool:
    return isinstance(block, ToolCall) or bool(block.text) or getattr(block, "signature", None) is not None


def parse_arguments(text: str) -> tuple[FrozenDict, str | None]:
    """A call's arguments from the JSON text of a model; the text itself as well when it is not an object."""
    if not text.strip():
        return EMPTY, None
    try:
        value = json.loads(text)
        return (freeze(value), None) if isinstance(value, dict) else (EMPTY, text)
    except (ValueError, RecursionError):
        return EMPTY, text
