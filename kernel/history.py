"""A conversation that is handed in: checked, copied, and made whole, so that no request of ours is ever refused for it.

Calls without an answer get an interrupted result in their own place; results without a call are refused, since nobody can
know what they answered.
"""

from collections.abc import Iterable

from kernel.errors import MessageLimitError
from kernel.messages import MESSAGE_TYPES, AssistantMessage, Message, ToolMessage

INTERRUPTED = "interrupted: this call was still open when the conversation was taken up; whether it ran is unknown"


def adopt_history(messages: Iterable[Message], limit: int | None) -> list[Message]:
    """The messages as an agent may own them. TypeError, ValueError or MessageLimitError name what is wrong."""
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Iterable):
        raise TypeError(f"messages must be a sequence of messages, not {messages!r}")
    whole: list[Message] = []
    open_ids: list[tuple[str, str]] = []
    for position, message in enumerate(messages):
        if not isinstance(message, MESSAGE_TYPES):
            raise TypeError(f"messages[{position}] must be a message of kernel.messages, not {message!r}")
        if isinstance(message, ToolMessage):
            _answer(whole, open_ids, message, position)
            continue
        _close(whole, open_ids)
        whole.append(message)
        if isinstance(message, AssistantMessage) and not message.is_cut:
            open_ids.extend((call.id, call.name) for call in message.calls)
    _close(whole, open_ids)
    if limit is not None and len(whole) > limit:
        raise MessageLimitError(f"messages has {len(whole)} messages; message_limit is {limit}")
    return whole


def _answer(whole: list[Message], open_ids: list[tuple[str, str]], message: ToolMessage, position: int) -> None:
    ids = [call_id for call_id, _ in open_ids]
    if message.call_id not in ids:
        raise ValueError(f"messages[{position}] answers the call {message.call_id!r}, which is not open there")
    index = ids.index(message.call_id)
    # Source order: what was called before it and has no answer here is answered first.
    _close(whole, open_ids, index)
    del open_ids[0]
    whole.append(message)


def _close(whole: list[Message], open_ids: list[tuple[str, str]], count: int | None = None) -> None:
    for call_id, name in open_ids[:count]:
        whole.append(ToolMessage(call_id, name, INTERRUPTED, is_error=True, executed=False))
    del open_ids[:count]
