"""Summaries of older messages. The default asks a model."""

from collections.abc import Sequence
from typing import Final, final

from kernel.effects import ModelRequest
from kernel.errors import ModelError
from kernel.messages import Finished, Message, TextDelta, UserMessage
from kernel.ports import Model

PROMPT: Final = (
    "Summarise the conversation above for someone who has to go on with it: what was asked, what was found and done, which "
    "files and names matter, and what is still open. Be brief."
)


@final
class ModelCompactor:
    """Asks *model* for the summary, without tools. An answer without text is a failure."""

    __slots__ = ("_model", "_prompt")

    def __init__(self, model: Model, prompt: str = PROMPT) -> None:
        self._model = model
        self._prompt = prompt

    async def summarize(self, messages: Sequence[Message]) -> str:
        """The model's summary of *messages*."""
        request = ModelRequest("summary", (*messages, UserMessage(self._prompt)), "", (), None)
        pieces: list[str] = []
        async for part in self._model.stream(request):
            if isinstance(part, TextDelta):
                pieces.append(part.text)
            elif isinstance(part, Finished):
                break
        text = "".join(pieces).strip()
        if not text:
            raise ModelError("the model answered the request for a summary without any text")
        return text
