"""What stands for older messages: by default a summary by a model, or a mere word that something was left out.

Which messages are old is not theirs to say: `CompactionPolicy.keep_turns` turns stay whole, and what is before them is
handed in here.

The model gets the conversation as one text, and not as messages: there are no tools in this request, and some providers
refuse messages with tool calls then; and a model that is given a conversation goes on with it instead of summing it up.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from kernel.effects import ModelRequest
from kernel.errors import ModelError
from kernel.frozen import shown
from kernel.messages import (
    AssistantMessage,
    CustomMessage,
    Finished,
    Message,
    StopReason,
    SummaryMessage,
    TextDelta,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from kernel.ports import Model

PROMPT: Final = (
    "Summarise the conversation above for someone who has to go on with it: what was asked, what was found and done, "
    "which files and names matter, and what is still open. Be brief."
)
_LEFT_OUT: Final = re.compile(r"\[(\d+) older messages were left out\.\]")
RESULT_CHARACTERS: Final = 2_000
"""Characters of one tool result that the model is shown: what matters of it, the answers after it have said."""


@final
class ModelCompactor:
    """Asks *model* for the summary, without tools. An answer without text, or one that was cut off, is a failure.

    In an agent, so is a silence of `stream_idle_timeout`.
    """

    __slots__ = ("_prompt", "_stream")

    def __init__(self, model: Model, prompt: str = PROMPT) -> None:
        if isinstance(model, type) or not callable(getattr(model, "stream", None)):
            raise TypeError(f"model must be an object with a stream method, not {model!r}")
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be a string, not {prompt!r}")
        self._stream = model.stream
        self._prompt = prompt

    async def summarize(self, messages: Sequence[Message], heard: Callable[[], None] | None = None) -> str:
        """The model's summary of *messages*. *heard* is called at each part that the model says."""
        said = "\n\n".join(filter(None, map(_as_text, messages)))
        question = UserMessage(f"<conversation>\n{said}\n</conversation>\n\n{self._prompt}")
        stream: Any = self._stream(ModelRequest("summary", (question,), "", ()))
        if inspect.isawaitable(stream):
            stream = await stream
        try:
            text, end = await _read(stream, heard)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if end is None:
            raise ModelError("the stream of the summary ended without a terminal part", retryable=True)
        if end.stop in (StopReason.LENGTH, StopReason.ERROR, StopReason.ABORTED):
            raise ModelError(f"the summary was cut off: its stop reason is {end.stop}")
        if not text:
            raise ModelError("the model answered the request for a summary without any text")
        return text


@final
class TrimmingCompactor:
    """Leaves older messages out and asks nobody: only the last `keep_turns` turns stay, and one line says so.

    For models without room or money for summaries. What was left out is still in `state.archive`.

    >>> import asyncio
    >>> asyncio.run(TrimmingCompactor().summarize([UserMessage("Hi"), AssistantMessage("Hello.")]))
    '[2 older messages were left out.]'
    """

    __slots__ = ()

    async def summarize(self, messages: Sequence[Message]) -> str:
        """How many messages were left out; a line of an earlier time is counted on."""
        first = messages[0] if messages else None
        earlier = _LEFT_OUT.fullmatch(first.text) if isinstance(first, SummaryMessage) else None
        count = len(messages) if earlier is None else len(messages) - 1 + int(earlier[1])
        return f"[{count} older messages were left out.]"


async def _read(stream: Any, heard: Callable[[], None] | None) -> tuple[str, Finished | None]:
    pieces: list[str] = []
    async for part in stream:
        if heard is not None:
            heard()
        if isinstance(part, TextDelta):
            pieces.append(part.text)
        elif isinstance(part, Finished):
            return "".join(pieces).strip(), part
    return "", None


def _as_text(message: Message) -> str:
    match message:
        case UserMessage():
            return f"User: {message.text}{' [an image]' * len(message.images)}"
        case AssistantMessage():
            calls = (f"Assistant calls {call.name}({_arguments(call)})" for call in message.calls)
            return "\n".join([*([f"Assistant: {message.text}"] if message.text else []), *calls])
        case ToolMessage():
            return f"{'Error' if message.is_error else 'Result'} of {message.name}: {_shortened(message.text)}"
        case SummaryMessage(text=text):
            return f"Summary of what was said before: {text}"
        case CustomMessage():
            return ""


def _arguments(call: ToolCall) -> str:
    return shown(call.arguments) if call.malformed is None else call.malformed


def _shortened(text: str) -> str:
    if len(text) <= RESULT_CHARACTERS:
        return text
    return f"{text[:RESULT_CHARACTERS]} [{len(text) - RESULT_CHARACTERS} more characters]"
