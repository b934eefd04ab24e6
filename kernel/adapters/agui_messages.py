"""Messages between the kernel and AG-UI: what a client sends, and a transcript as a client sees it."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kernel.adapters.extras import missing

try:
    from ag_ui import core as agui
except ModuleNotFoundError as error:
    raise missing("web", error) from error

from kernel.adapters.letters import whole, whole_data
from kernel.frozen import thaw
from kernel.messages import (
    AssistantMessage,
    Image,
    Message,
    StopReason,
    SummaryMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)


def arguments_of(call: ToolCall) -> str:
    """The arguments as JSON; where they were no JSON object, what the model wrote, as one."""
    value = thaw(call.arguments) if call.malformed is None else {"malformed": call.malformed}
    return json.dumps(whole_data(value))


def snapshot_of(messages: Iterable[Message], prefix: str) -> list[Any]:
    """A transcript as AG-UI messages, with ids that begin with *prefix*. Cut answers are shown as far as they came."""
    return [said for number, message in enumerate(messages) for said in _said(message, f"{prefix}:{number}")]


def _said(message: Message, id: str) -> Iterator[Any]:
    match message:
        case AssistantMessage():
            calls = [
                agui.ToolCall(
                    id=whole(call.id), function=agui.FunctionCall(name=whole(call.name), arguments=arguments_of(call))
                )
                for call in message.calls
            ]
            text, reasoning = whole(message.text), whole(message.reasoning)
            if reasoning:
                yield agui.ReasoningMessage(id=f"{id}.reasoning", role="reasoning", content=reasoning)
            if text or calls:
                yield agui.AssistantMessage(id=id, role="assistant", content=text, tool_calls=calls or None)
        case ToolMessage():
            text = whole(message.text)
            error = text if message.is_error else None
            yield agui.ToolMessage(id=id, role="tool", tool_call_id=whole(message.call_id), content=text, error=error)
        case SummaryMessage():
            yield agui.SystemMessage(id=id, role="system", content=whole(message.text))
        case _:
            yield agui.UserMessage(id=id, role="user", content=whole(message.text))


def prompt_of(messages: Sequence[Any]) -> UserMessage:
    """The user's message at the end of what a client sent. Raises ValueError when there is none, or nothing in it."""
    last = messages[-1] if messages else None
    if not isinstance(last, agui.UserMessage):
        raise ValueError("the last of the messages must be the user's: it is what the agent is asked")
    message = _from_user(last)
    if not message.text.strip() and not message.images:
        raise ValueError("the last message must not be empty")
    return message


def history_of(messages: Iterable[Any]) -> list[Message]:
    """What went before, as a client remembers it. Reasoning and activities are left out: no provider wants them back.

    Raises ValueError for what can't be read.
    """
    names: dict[str, str] = {}
    return [message for said in messages if (message := _from_client(said, names)) is not None]


def _from_client(said: Any, names: dict[str, str]) -> Message | None:
    match said:
        case agui.UserMessage():
            return _from_user(said)
        case agui.AssistantMessage():
            calls = [_call(call) for call in said.tool_calls or ()]
            names |= {call.id: call.name for call in calls}
            text = [Text(said.content)] if said.content else []
            return AssistantMessage((*text, *calls), StopReason.TOOL_USE if calls else StopReason.STOP)
        case agui.ToolMessage():
            if said.tool_call_id not in names:
                raise ValueError(f"the result of {said.tool_call_id!r} answers no call before it")
            text_of = said.content if isinstance(said.content, str) else _text(said.content)
            return ToolMessage(said.tool_call_id, names[said.tool_call_id], text_of, said.error is not None)
        case _:
            return None


def _call(call: Any) -> ToolCall:
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(call.id, call.function.name, malformed=call.function.arguments)
    return ToolCall(call.id, call.function.name, arguments)


def _from_user(said: Any) -> UserMessage:
    if isinstance(said.content, str):
        return UserMessage(said.content)
    return UserMessage(tuple(_part(part) for part in said.content))


def _part(part: Any) -> Text | Image:
    match part:
        case agui.TextPart():
            return Text(part.text)
        case agui.ImagePart(source=agui.DataSource() as source):
            return Image(f"data:{source.mime_type};base64,{source.value}")
        case agui.ImagePart(source=agui.UrlSource() as source):
            return Image(source.value)
        case _:
            raise ValueError(f"a part of the type {part.type!r} can't be read here: text and images can")


def _text(parts: Iterable[Any]) -> str:
    return "".join(part.text for part in parts if isinstance(part, agui.TextPart))
