"""What is said, as the GenAI conventions write it. Only for applications that asked for it."""

from collections.abc import Iterable, Iterator
from typing import Any

from kernel.adapters.extras import missing

try:
    from opentelemetry.util.genai.types import (
        FunctionToolDefinition,
        InputMessage,
        OutputMessage,
        ReasoningPart,
        TextPart,
        ToolCallRequestPart,
        ToolCallResponsePart,
    )
except ModuleNotFoundError as error:
    raise missing("otel", error) from error

from kernel.adapters.letters import whole, whole_data
from kernel.effects import ModelRequest
from kernel.frozen import thaw
from kernel.messages import AssistantMessage, Message, Reasoning, Text, ToolCall, ToolMessage


def plain(value: Any) -> Any:
    """A frozen value as JSON's."""
    return whole_data(thaw(value))


def input_of(messages: Iterable[Message]) -> list[InputMessage]:
    """What a model was sent."""
    return [InputMessage(_role(message), list(_parts(message))) for message in messages]


def output_of(message: AssistantMessage) -> list[OutputMessage]:
    """What it answered."""
    return [OutputMessage("assistant", list(_parts(message)), str(message.stop.value))]


def instructions_of(request: ModelRequest) -> list[Any]:
    """The system prompt."""
    return [TextPart(whole(request.system_prompt))] if request.system_prompt else []


def tools_of(request: ModelRequest) -> list[Any]:
    """The tools that it may call."""
    return [FunctionToolDefinition(tool.name, tool.description, thaw(tool.parameters)) for tool in request.tools]


def _role(message: Message) -> str:
    return message.role if message.role in ("assistant", "tool") else "user"


def _parts(message: Message) -> Iterator[Any]:
    if isinstance(message, ToolMessage):
        yield ToolCallResponsePart(whole(message.text), whole(message.call_id))
        return
    if not isinstance(message, AssistantMessage):
        yield TextPart(whole(message.text))
        return
    for block in message.content:
        match block:
            case Text():
                yield TextPart(whole(block.text))
            case Reasoning():
                yield ReasoningPart(whole(block.text))
            case ToolCall():
                yield ToolCallRequestPart(plain(block.arguments), whole(block.name), whole(block.id))
