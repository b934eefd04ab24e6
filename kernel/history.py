"""A conversation that is handed in: checked, copied, and made whole, so that no request of ours is ever refused for it.

Calls without an answer get an interrupted result in their own place, and answers are put in the order of their calls;
answers without a call are refused, since nobody can know what they answered.
"""

from collections.abc import Iterable

from kernel.errors import MessageLimitError
from kernel.messages import MESSAGE_TYPES, AssistantMessage, Message, ToolCall, ToolMessage

INTERRUPTED = "interrupted: this call was still open when the conversation was taken up; whether it ran is unknown"


def adopt_history(messages: Iterable[Message], limit: int | None) -> list[Message]:
    """The messages as an agent may own them. TypeError, ValueError or MessageLimitError name what is wrong."""
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Iterable):
        raise TypeError(f"messages must be a sequence of messages, not {messages!r}")
    whole: list[Message] = []
    batch = _Batch(whole)
    for position, message in enumerate(messages):
        if not isinstance(message, MESSAGE_TYPES):
            raise TypeError(f"messages[{position}] must be a message of kernel.messages, not {message!r}")
        if isinstance(message, ToolMessage):
            batch.answer(message, position)
            continue
        batch.close()
        whole.append(message)
        if isinstance(message, AssistantMessage) and not message.is_cut:
            batch.open(message)
    batch.close()
    if limit is not None and len(whole) > limit:
        raise MessageLimitError(f"messages has {len(whole)} messages; message_limit is {limit}")
    return whole


class _Batch:
    """The calls that are open at a place of the history, and their answers, which are recorded in source order."""

    def __init__(self, whole: list[Message]) -> None:
        self._whole = whole
        self._calls: list[ToolCall] = []
        self._answers: list[ToolMessage | None] = []

    def open(self, message: AssistantMessage) -> None:
        self._calls = list(message.calls)
        self._answers = [None] * len(self._calls)

    def answer(self, message: ToolMessage, position: int) -> None:
        for place, call in enumerate(self._calls):
            if call.id == message.call_id and self._answers[place] is None:
                self._answers[place] = message
                return
        raise ValueError(f"messages[{position}] answers the call {message.call_id!r}, which is not open there")

    def close(self) -> None:
        for call, answer in zip(self._calls, self._answers, strict=True):
            self._whole.append(answer or ToolMessage(call.id, call.name, INTERRUPTED, is_error=True, executed=False))
        self._calls, self._answers = [], []
