"""A model that says what a script tells it, for tests without a network.

Each response of the script answers one request, in order. It is a sequence of parts: a string is a piece of text, a
part of `kernel.messages` is itself, an exception is raised, a function is called and what it returns is awaited if it
can be. A response that does not end itself is ended with `Finished()`, unless it says `CUT_OFF`.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from enum import Enum
from typing import Any, Final, final

from kernel.effects import ModelRequest
from kernel.errors import ModelError
from kernel.messages import Finished, Part, TextDelta, ToolCall

Responder = Callable[[ModelRequest], AsyncIterator[Part]]
Line = str | Part | BaseException | Awaitable[object] | Callable[[], object]
Response = Iterable[Any] | Responder
"""A sequence of lines, or a function from the request to an async iterator of parts."""


class _Mark(Enum):
    CUT_OFF = "the stream just ends, with no terminal part"


CUT_OFF: Final = _Mark.CUT_OFF
"""As the last part of a response: its stream ends without a terminal part."""


@final
class ScriptedModel:
    """A model that plays a script.

    `requests` holds every request that it was sent. A request past the end of the script fails.

    >>> model = ScriptedModel([say("Hel", "lo"), [call("c1", "read", path="notes.txt")]])
    """

    def __init__(self, responses: Iterable[Response] = (), *, context_window: int | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self.context_window = context_window
        self._responses = [response if callable(response) else tuple(response) for response in responses]

    def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The next response of the script."""
        place = len(self.requests)
        self.requests.append(request)
        if place >= len(self._responses):
            return _play([ModelError("script exhausted")])
        response = self._responses[place]
        return response(request) if callable(response) else _play(response)


def say(*texts: str) -> tuple[TextDelta, ...]:
    """A response that is these pieces of text."""
    return tuple(TextDelta(text) for text in texts)


def call(id: str, name: str, **arguments: Any) -> ToolCall:
    """A part that asks for a tool."""
    return ToolCall(id, name, arguments)


async def _play(lines: Iterable[Any]) -> AsyncIterator[Part]:
    ended = False
    for line in lines:
        ended = ended or line is CUT_OFF or isinstance(line, Finished)
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, str):
            yield TextDelta(line)
        elif isinstance(line, Part):
            yield line
        elif line is not CUT_OFF:
            await _perform(line)
    if not ended:
        yield Finished()


async def _perform(line: Awaitable[object] | Callable[[], object]) -> None:
    outcome = line() if callable(line) else line
    if inspect.isawaitable(outcome):
        await outcome
