"""Models of Anthropic, and of servers that speak its messages format.

The official SDK asks and reads the stream; it never asks twice, since to try again is the kernel's phase `retry`. A stream
is closed on every way out, and a cancelled run closes its connection.

Thinking is kept with its signature and sent back as it came, which the provider wants between tool calls. Each signature is
marked as Anthropic's, so that a conversation which other models took part in is not refused for one that is foreign.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, final

from kernel.errors import ModelError
from kernel.frozen import thaw
from kernel.messages import (
    AssistantMessage,
    CustomMessage,
    Finished,
    Image,
    Message,
    Part,
    Reasoning,
    ReasoningDelta,
    StopReason,
    SummaryMessage,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    Usage,
    UserMessage,
)
from kernel.models.connection import Connection, Provider
from kernel.models.failures import error_from
from kernel.models.wire import (
    NO_OUTPUT,
    asked_schema,
    has_fixed_objects,
    is_object,
    sendable,
    sent_arguments,
    sent_id,
    summary_text,
)
from kernel.ports import ModelRequest

ANTHROPIC: Final = Provider(
    "anthropic", "AsyncAnthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"
)
DRAIN: Final = 0.5
"""Seconds for the end of a response's body, when all was said: a new connection costs no more than that."""
MAX_TOKENS: Final = 16_384
"""Tokens of an answer, thinking included. The provider wants to be told; a long answer with its thinking fits."""
_OURS: Final = frozenset({"model", "messages", "system", "tools", "stream", "max_tokens", "output_config"})
_SIGNED, _REDACTED = "anthropic:", "anthropic-redacted:"
_STOPS: Final = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "pause_turn": StopReason.STOP,
}


@final
class AnthropicModel:
    """A model of Anthropic's.

    *name* is the model's name. *max_tokens* is the most that one answer may have, thinking included. *base_url* is by
    default `ANTHROPIC_BASE_URL` or Anthropic itself; *api_key* by default `ANTHROPIC_API_KEY`. *client* is an
    `anthropic.AsyncAnthropic` of your own instead of those two; it is yours to close. *context_window*, in tokens, lets the
    kernel compact before the window is full. *timeout* is in seconds for each wait on the network, by default the SDK's.
    *options* are further fields of each request (`temperature=0`, `thinking={"type": "adaptive"}`). An agent's
    `reasoning_effort` is sent as the request's effort.

    Raises ModuleNotFoundError with what to install without the extra `anthropic`, ValueError without a key for Anthropic
    itself and for an address that is none, TypeError for options that are the kernel's.
    """

    def __init__(
        self,
        name: str,
        *,
        max_tokens: int = MAX_TOKENS,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        context_window: int | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        self._connection = Connection(ANTHROPIC, base_url=base_url, api_key=api_key, client=client, timeout=timeout)
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"name must be the name of a model, not {name!r}")
        if taken := sorted(_OURS & options.keys()):
            raise TypeError(f"{', '.join(taken)} can't be an option: the kernel says it with each request")
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError(f"max_tokens must be a positive int, not {max_tokens!r}")
        self.name = name
        self.context_window = context_window
        self._max_tokens = max_tokens
        self._options = options

    def __repr__(self) -> str:
        return f"AnthropicModel({self.name!r}, {self._connection.where})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        """The model's answer."""
        reader = EventReader()
        try:
            client = await self._connection.client()
            async with await client.messages.create(**self._body(request)) as events:
                self._connection.check(events)
                async for event in events:
                    for part in reader.parts(event.to_dict()):
                        yield part
                    if reader.is_over:
                        break
                # A connection can be used again only when its response was read to the end. What goes wrong there does not
                # concern an answer that is whole.
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(DRAIN):
                        async for _ in events:
                            pass
            for part in reader.end():
                yield part
        except Exception as error:
            raise self._connection.error(error) from error

    async def aclose(self) -> None:
        """Close the connections that this event loop has open. A client of your own stays open."""
        await self._connection.aclose()

    async def __aenter__(self) -> "AnthropicModel":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        schema = request.output_schema
        prompt = sendable(request.system_prompt)
        asked: dict[str, Any] = {}
        if request.reasoning_effort is not None:
            asked["effort"] = request.reasoning_effort
        told = self._told(schema) if schema is not None else None
        if told is not None:
            asked["format"] = {"type": "json_schema", "schema": told}
        elif schema is not None:
            prompt = f"{prompt}\n\n{asked_schema(schema)}".strip()
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": self._max_tokens,
            "messages": conversation(request.messages),
            "stream": True,
            **self._options,
        }
        if prompt.strip():
            body["system"] = prompt
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": sendable(tool.description), "input_schema": _input_schema(tool)}
                for tool in request.tools
            ]
        if asked:
            body["output_config"] = asked
        return body


    def _told(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """*schema* as the provider takes it: a part of JSON Schema, and its SDK makes descriptions of the rest. None where
        that does not do.
        """
        if not is_object(schema) or not has_fixed_objects(schema):
            return None
        try:
            return dict(self._connection.sdk.transform_schema(thaw(schema)))
        except (AssertionError, TypeError, ValueError):  # types that it does not know: several, or none
            return None


def _input_schema(tool: Any) -> dict[str, Any]:
    return {"type": "object", **thaw(tool.parameters)}


def conversation(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """*messages* in strict alternation, beginning with a user's: what stands side by side is joined, results of tools come
    first in theirs, and what says nothing is left out.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = list(_blocks(message))
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": "(the conversation goes on)"}]})
    return turns


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            for block in message.content:
                if isinstance(block, Image):
                    yield _image(block)
                else:
                    yield from _text(block.text)
        case SummaryMessage():
            yield from _text(summary_text(message))
        case ToolMessage():
            yield {
                "type": "tool_result",
                "tool_use_id": sent_id(message.call_id),
                "content": sendable(message.text) if message.text.strip() else NO_OUTPUT,
                "is_error": message.is_error,
            }
        case AssistantMessage():
            for each in message.content:
                yield from _answered(each)
        case CustomMessage():
            pass  # the kernel has left it out already, unless somebody else asks


def _answered(block: Text | Reasoning | ToolCall) -> Iterator[dict[str, Any]]:
    match block:
        case Text():
            yield from _text(block.text)
        case ToolCall():
            yield {"type": "tool_use", "id": sent_id(block.id), "name": block.name, "input": sent_arguments(block)}
        case Reasoning(signature=str() as signature) if signature.startswith(_REDACTED):
            yield {"type": "redacted_thinking", "data": signature.removeprefix(_REDACTED)}
        case Reasoning(signature=str() as signature) if signature.startswith(_SIGNED):
            yield {"type": "thinking", "thinking": block.text, "signature": signature.removeprefix(_SIGNED)}
        case Reasoning():
            pass  # another model's, or cut off before it was signed: it would be refused


def _text(text: str) -> Iterator[dict[str, Any]]:
    if text.strip():  # empty text is refused
        yield {"type": "text", "text": sendable(text)}


def _image(image: Image) -> dict[str, Any]:
    carried = image.carried
    if carried is None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    media_type, data = carried
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


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
                yield ReasoningDelta("", f"{_REDACTED}{block['data']}")
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
                yield ReasoningDelta("", f"{_SIGNED}{_string(delta['signature'])}")
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
