"""Models of OpenAI, and of every server that speaks its chat completions: Ollama, vLLM, llama.cpp, LM Studio, OpenRouter…

The official SDK asks and reads the stream; it never asks twice, since to try again is the kernel's phase `retry`. A
stream is closed on every way out, and a cancelled run closes its connection.

Weak point: the format has no place for reasoning that is sent back. What a model thought is kept in the transcript and not
sent, but where *echo_reasoning* says that the server wants it.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final, final

from kernel.frozen import thaw
from kernel.messages import AssistantMessage, CustomMessage, Image, Message, Part, SummaryMessage, ToolMessage, UserMessage
from kernel.models.chunks import ChunkReader
from kernel.models.connection import Connection, HostedModel, Provider
from kernel.models.wire import (
    NO_OUTPUT,
    asked_schema,
    is_closed,
    is_object,
    sendable,
    sent_arguments,
    sent_id,
    summary_text,
)
from kernel.ports import ModelRequest

OPENAI: Final = Provider("openai", "AsyncOpenAI", "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY")
_OURS: Final = frozenset({"model", "messages", "tools", "stream", "stream_options", "reasoning_effort", "response_format"})


@final
class OpenAIModel(HostedModel):
    """A model behind an OpenAI-compatible server.

    *name* is the server's name for it. *base_url* is the server's address up to `/v1`, by default `OPENAI_BASE_URL` or
    OpenAI itself; *api_key* by default `OPENAI_API_KEY`. *client* is an `openai.AsyncOpenAI` of your own instead of those
    two; it is yours to close. *context_window*, in tokens, lets the kernel compact before the window is full. *timeout* is
    in seconds for each wait on the network, by default the SDK's. *echo_reasoning* sends a model's reasoning back with its
    answers, as `reasoning_content`, which some servers want between tool calls. *options* are further fields of each
    request (`temperature=0`, `max_completion_tokens=…`, `extra_body={…}`).

    Raises ModuleNotFoundError with what to install without the extra `openai`, ValueError without a key for OpenAI itself
    and for an address that is none, TypeError for options that are the kernel's.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        context_window: int | None = None,
        timeout: float | None = None,
        echo_reasoning: bool = False,
        **options: Any,
    ) -> None:
        connection = Connection(OPENAI, base_url=base_url, api_key=api_key, client=client, timeout=timeout)
        super().__init__(name, connection, context_window, options, _OURS)
        self._echo = echo_reasoning

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        """The model's answer."""
        reader = ChunkReader()
        try:
            client = await self._connection.client()
            async with await client.chat.completions.create(**self._body(request)) as chunks:
                self._connection.check(chunks)
                async for chunk in chunks:
                    for part in reader.parts(chunk.to_dict(warnings=False)):
                        yield part
            for part in reader.end():
                yield part
        except Exception as error:
            raise self._connection.error(error) from error

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        schema = request.output_schema
        prompt = sendable(request.system_prompt)
        body: dict[str, Any] = {"model": self.name, "stream": True, "stream_options": {"include_usage": True}}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if request.reasoning_effort is not None:
            body["reasoning_effort"] = request.reasoning_effort
        if schema is not None and is_object(schema):
            plain = thaw(schema)
            asked = {"name": "answer", "schema": plain, "strict": is_closed(plain)}
            body["response_format"] = {"type": "json_schema", "json_schema": asked}
        elif schema is not None:
            prompt = f"{prompt}\n\n{asked_schema(schema)}".strip()
        system = [{"role": "system", "content": prompt}] if prompt else []
        messages = [said for message in request.messages for said in self._said(message)]
        return {**body, **self._options, "messages": [*system, *messages]}

    def _said(self, message: Message) -> Iterator[dict[str, Any]]:
        match message:
            case UserMessage():
                yield {"role": "user", "content": _content(message)}
            case SummaryMessage():
                yield {"role": "user", "content": summary_text(message)}
            case ToolMessage():
                text = sendable(message.text) or NO_OUTPUT
                yield {"role": "tool", "tool_call_id": sent_id(message.call_id), "content": text}
            case AssistantMessage():
                yield from self._answer(message)
            case CustomMessage():
                pass  # the kernel has left it out already, unless somebody else asks

    def _answer(self, message: AssistantMessage) -> Iterator[dict[str, Any]]:
        said: dict[str, Any] = {"role": "assistant", "content": sendable(message.text) or None}
        if message.calls:
            said["tool_calls"] = [
                {
                    "id": sent_id(call.id),
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(sent_arguments(call))},
                }
                for call in message.calls
            ]
        if self._echo and message.reasoning:
            said["reasoning_content"] = sendable(message.reasoning)
        if said["content"] is not None or message.calls:  # an answer that says nothing is refused
            yield said


def _content(message: UserMessage) -> Any:
    if not message.images:
        return sendable(message.text)
    return [
        {"type": "image_url", "image_url": {"url": block.url}}
        if isinstance(block, Image)
        else {"type": "text", "text": sendable(block.text)}
        for block in message.content
        if isinstance(block, Image) or block.text
    ]


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": sendable(tool.description), "parameters": thaw(tool.parameters)}
    return {"type": "function", "function": function}
