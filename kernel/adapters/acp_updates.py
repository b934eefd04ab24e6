"""The event stream in the words of ACP, the Agent Client Protocol: what an editor is told while a run goes on.

Text and reasoning stream as they come. A tool call is told when the response that asks for it is whole, then that it is
running, its progress, and how it ended. Phases, queues, retries and compactions have no words in ACP, and are left out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, final

from kernel.adapters.extras import missing

try:
    import acp
    from acp import schema
except ModuleNotFoundError as error:
    raise missing("acp", error) from error

from kernel import events
from kernel.adapters.letters import Letters, whole, whole_data
from kernel.frozen import thaw
from kernel.messages import (
    AssistantMessage,
    Image,
    Message,
    Reasoning,
    StopReason,
    SummaryMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

KINDS: Final[dict[str, Any]] = {
    "read_file": "read", "list_files": "read", "search_files": "search", "write_file": "edit", "run_command": "execute",
}  # fmt: skip
"""What an editor shows the standard tools as; others are `other`."""
_TITLES: Final = ("path", "command", "pattern", "query", "url")
"""Arguments that say best what a call is about."""


@final
class Updates:
    """Turns one kernel event after the other into updates of a session. *root* is where relative paths begin.

    Ids of calls are made unique in the session, since models use them again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0
        self._open: dict[str, deque[str]] = {}
        self._text, self._thought = Letters(), Letters()

    def of_event(self, event: events.Event) -> list[Any]:
        """What *event* is in ACP's words."""
        match event:
            case events.MessageUpdated(channel="text"):
                return _said(acp.update_agent_message_text, self._text.feed(event.delta))
            case events.MessageUpdated(channel="reasoning"):
                return _said(acp.update_agent_thought_text, self._thought.feed(event.delta))
            case events.MessageAccepted(message=UserMessage() as message) if event.origin != "prompt":
                return list(_of_user(message))
            case events.MessageEnded(message=AssistantMessage() as message):
                rest = _said(acp.update_agent_thought_text, self._thought.end())
                rest += _said(acp.update_agent_message_text, self._text.end())
                return rest + [self._asked(call) for call in message.calls if event.kept]
            case events.ToolStarted():
                return self._changed(event.call_id, status="in_progress")
            case events.ToolUpdated():
                return self._changed(event.call_id, content=_shown(event.text))
            case events.ToolEnded():
                failed = event.is_error or not event.executed
                return self._changed(event.call_id, **_result(event.text, failed))
            case events.MessageEnded(message=ToolMessage() as message):
                return self._answered(message)
            case _:
                return []

    def of_transcript(self, messages: Iterable[Message]) -> list[Any]:
        """A whole conversation, as if it had just been said."""
        return [update for message in messages for update in self._of_message(message)]

    def _of_message(self, message: Message) -> Iterator[Any]:
        match message:
            case AssistantMessage():
                for block in message.content:
                    if isinstance(block, Text):
                        yield from _said(acp.update_agent_message_text, whole(block.text))
                    elif isinstance(block, Reasoning):
                        yield from _said(acp.update_agent_thought_text, whole(block.text))
                    else:
                        yield self._asked(block)
            case ToolMessage():
                yield from self._answered(message)
            case UserMessage():
                yield from _of_user(message)
            case SummaryMessage():
                yield acp.update_agent_thought_text(f"Summary of what was said before: {whole(message.text)}")
            case _:
                pass

    # ---- tool calls ----

    def _asked(self, call: ToolCall) -> Any:
        self._count += 1
        id = whole(f"{call.id}.{self._count}")
        self._open.setdefault(call.id, deque()).append(id)
        return acp.start_tool_call(id, **self.described(call), status="pending")

    def described(self, call: ToolCall) -> dict[str, Any]:
        """What there is to say of a call, in ACP's words."""
        arguments = whole_data(thaw(call.arguments) if call.malformed is None else {"malformed": call.malformed})
        about = next((arguments[name] for name in _TITLES if isinstance(arguments.get(name), str)), "")
        path = arguments.get("path")
        locations = [schema.ToolCallLocation(path=str(self._root / path))] if isinstance(path, str) else None
        title = whole(f"{call.name} {about}").strip().replace("\n", " ")
        return {
            "title": title[:200], "kind": KINDS.get(call.name, "other"), "raw_input": arguments, "locations": locations,
        }  # fmt: skip

    def id_of(self, call_id: str) -> str | None:
        """The session's id of the call that is going; calls that share one go one by one."""
        waiting = self._open.get(call_id)
        return waiting[0] if waiting else None

    def _changed(self, call_id: str, **change: Any) -> list[Any]:
        id = self.id_of(call_id)
        return [] if id is None else [acp.update_tool_call(id, **change)]

    def _answered(self, message: ToolMessage) -> list[Any]:
        """The result is in the transcript: whatever was told of the call before, this is how it ended."""
        update = self._changed(message.call_id, **_result(message.text, message.is_error))
        if update:
            self._open[message.call_id].popleft()
        return update


def _result(text: str, failed: bool) -> dict[str, Any]:
    return {"status": "failed" if failed else "completed", "content": _shown(text)}


def _shown(text: str) -> list[Any]:
    return [acp.tool_content(acp.text_block(whole(text)))]


def _said(update: Callable[[str], Any], text: str) -> list[Any]:
    return [update(text)] if text else []


def _of_user(message: UserMessage) -> Iterator[Any]:
    for block in message.content:
        if isinstance(block, Text):
            yield acp.update_user_message_text(whole(block.text))
        elif block.carried is not None:
            media_type, data = block.carried
            yield acp.update_user_message(acp.image_block(data, media_type))
        else:
            yield acp.update_user_message_text(block.url)


def prompt_of(blocks: Iterable[Any]) -> UserMessage:
    """What a user said to the editor. Raises ValueError for what can't be read, and when nothing was said."""
    message = UserMessage(tuple(_block(block) for block in blocks))
    if not message.text.strip() and not message.images:
        raise ValueError("the prompt must not be empty")
    return message


def _block(block: Any) -> Text | Image:
    match block:
        case schema.TextContentBlock():
            return Text(block.text)
        case schema.ImageContentBlock():
            return Image(f"data:{block.mime_type};base64,{block.data}")
        case schema.ResourceContentBlock():
            return Text(f"[{block.name}]({block.uri})")
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
            return Text(f'\n<resource uri="{resource.uri}">\n{resource.text}\n</resource>\n')
        case _:
            raise ValueError(f"a block of the type {block.type!r} can't be read here: text, images and text resources can")


def stop_reason(status: str, last: Message | None) -> Any:
    """How a run ended, in ACP's words; None for a failure, which is an error there."""
    if status == "completed" and isinstance(last, AssistantMessage) and last.stop is StopReason.LENGTH:
        return "max_tokens"
    return {
        "completed": "end_turn", "stopped": "end_turn", "cancelled": "cancelled", "max_turns": "max_turn_requests",
    }.get(status)  # fmt: skip
