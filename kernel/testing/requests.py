"""What a provider would refuse in the messages of a request, or must never see."""

from collections.abc import Iterable, Iterator

from kernel.messages import AssistantMessage, CustomMessage, Message, ToolMessage


def faults_of(messages: Iterable[Message]) -> Iterator[str]:
    """Results that are out of place or missing (G4), cut messages, custom messages."""
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id in owed[:1]:
                del owed[0]
            else:
                yield f"the result of {message.call_id} is out of place"
            continue
        if owed:
            yield f"a message of role {message.role} comes before the results of {', '.join(owed)}"
        owed = []
        if isinstance(message, AssistantMessage):
            owed = [call.id for call in message.calls]
            if message.is_cut:
                yield "it has a message that was cut"
        elif isinstance(message, CustomMessage):
            yield "it has a custom message"
    if owed:
        yield f"it has no result of {', '.join(owed)}"
