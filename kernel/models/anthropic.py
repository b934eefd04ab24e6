"""Models of Anthropic, and of servers that speak its messages format.

The official SDK asks and reads the stream; it never asks twice, since to try again is the kernel's phase `retry`. A stream
is closed on every way out, and a cancelled run closes its connection.

Thinking is kept with its signature and sent back as it came, which the provider wants between tool calls. Each signature is
marked as Anthropic's, so that a conversation which other models took part in is not refused for one that is foreign.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any, Final, final

from kernel.frozen import thaw
from kernel.messages import (
    AssistantMessage,
    CustomMessage,
    Image,
    Message,
    Part,
    Reasoning,
    SummaryMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from kernel.models.blocks import REDACTED, SIGNED, EventReader
from kernel.models.connection import Connection, HostedModel, Provider
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


@final
class AnthropicModel(HostedModel):
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
        connection = Connection(ANTHROPIC, base_url=base_url, api_key=api_key, client=client, timeout=timeout)
        super().__init__(name, connection, context_window, options, _OURS)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError(f"max_tokens must be a positive int, not {max_tokens!r}")
        self._max_tokens = max_tokens

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        """The model's answer."""
        reader = EventReader()
        try:
            client = await self._connection.client()
            async with await client.messages.create(**self._body(request)) as events:
                self._connection.check(events)
                async for event in events:
                    for part in reader.parts(event.to_dict(warnings=False)):
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
        case Reasoning(signature=str() as signature) if signature.startswith(REDACTED):
            yield {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}
        case Reasoning(signature=str() as signature) if signature.startswith(SIGNED):
            yield {"type": "thinking", "thinking": block.text, "signature": signature.removeprefix(SIGNED)}
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
