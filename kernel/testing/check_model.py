"""`check_model`: does a model keep the contract of `kernel.Model`?"""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from contextlib import aclosing
from typing import Any, Final, final

from kernel.errors import ModelError
from kernel.messages import (
    CUT,
    AssistantMessage,
    Finished,
    Image,
    Message,
    Part,
    Reasoning,
    SummaryMessage,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    Usage,
    UserMessage,
)
from kernel.ports import ModelRequest
from kernel.testing.contracts import Broken, ContractReport, Examiner, leaving_nothing
from kernel.tools import tool

PROMPT: Final = "Say hello."
PIXEL: Final = Image(
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return word


def history(*, images: bool) -> tuple[Message, ...]:
    """A conversation with everything that one can have."""
    shown = (Text("What is this?"), PIXEL) if images else (Text("What is this?"),)
    call = ToolCall("a.b:1", "look_up", {"word": "x"})
    broken = ToolCall("call_2", "look_up", malformed='{"word')
    return (
        SummaryMessage("They met."),
        UserMessage("Look it up."),
        AssistantMessage((Reasoning("I should.", "signed by somebody"), Text("I do."), call, broken)),
        ToolMessage("a.b:1", "look_up", ""),
        ToolMessage("call_2", "look_up", "the arguments are no JSON object", is_error=True),
        AssistantMessage("Nothing there."),
        UserMessage(shown),
        UserMessage(PROMPT),
    )


async def check_model(model: Any, *, prompt: str = PROMPT, images: bool = False, patience: float = 30.0) -> ContractReport:
    """Run *model* through its contract: some ten requests, of which *prompt* is the question in most.

    *images*: whether it takes images. *patience* is in seconds, for each promise. The report has a line for each promise;
    `unwrap` raises when one is broken. In a test of yours:

    >>> import asyncio
    >>> from kernel.testing import ScriptedModel, check_model, say
    >>> report = asyncio.run(check_model(ScriptedModel([say("Hel", "lo.")] * 12)))
    >>> report.unwrap().passed
    True
    """
    check = _Check(model, prompt, images)
    examiner = Examiner(patience)
    for promise, look in check.promises():
        await examiner.look(promise, look)
    return ContractReport(repr(model), tuple(examiner.findings))


@final
class _Check:
    def __init__(self, model: Any, prompt: str, images: bool) -> None:
        self._model = model
        self._prompt = prompt
        self._images = images
        self._asked = 0
        self._parts: list[Any] = []

    def promises(self) -> Iterable[tuple[str, Any]]:
        """Each promise in words, and how to look at it."""
        return (
            ("context_window is None or a positive number of tokens", self.window),
            ("stream() returns an async iterator, and is not awaited for it", self.iterator),
            ("a response is parts, and nothing else", self.parts),
            ("it ends with Finished, once and last", self.end),
            ("calls are told apart, and named", self.calls),
            ("usage counts: what is cached or thought is part of what goes in or comes out", self.usage),
            ("a second request is answered as the first", self.again),
            ("two requests at once are both answered", self.together),
            ("a conversation with everything in it is taken, and not changed", self.everything),
            ("left after the first part, it lets go of all that it holds", self.left),
            ("cancelled in the middle, it is cancelled, and lets go", self.cancelled),
            ("cancelled before it has begun, it is cancelled, and lets go", self.cancelled_early),
        )

    def request(self, *messages: Message, **more: Any) -> ModelRequest:
        """The next request."""
        self._asked += 1
        return ModelRequest(f"check:{self._asked}", messages or (UserMessage(self._prompt),), "", (), **more)

    def _stream(self, request: ModelRequest) -> Any:
        stream = self._model.stream(request)
        if inspect.iscoroutine(stream):
            stream.close()
            raise Broken("it returns a coroutine: write it as `async def` with `yield`, or as a plain function")
        if not hasattr(stream, "__aiter__"):
            raise Broken(f"it returns {stream!r}")
        return stream

    async def window(self) -> None:
        """It may be missing."""
        window = getattr(self._model, "context_window", None)
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise Broken(f"it is {window!r}")

    async def iterator(self) -> None:
        """And reads it once, for the checks that follow."""
        self._parts = await _read(self._stream(self.request()))

    async def parts(self) -> None:
        """Of the first response."""
        for part in self._parts:
            if not isinstance(part, Part) or (type(part) is TextDelta and type(part.text) is not str):
                raise Broken(f"it yielded {part!r}")

    async def end(self) -> None:
        """Of the first response."""
        ends = [place for place, part in enumerate(self._parts) if isinstance(part, Finished)]
        if ends != [len(self._parts) - 1]:
            raise Broken(f"of {len(self._parts)} parts these are Finished: {ends}")
        if self._parts[-1].stop in CUT:
            raise Broken(f"it finished with {self._parts[-1].stop}: raise a ModelError instead")

    async def calls(self) -> None:
        """Of the first response, and of one that is asked to call."""
        asked = ModelRequest(
            "check:calls", (UserMessage("Call look_up with the words a and b, both at once."),), "", (look_up,)
        )
        names: dict[int, str] = {}
        ids: dict[int, set[str]] = {}
        for part in [*self._parts, *await _read(self._stream(asked))]:
            if isinstance(part, ToolCallDelta):
                names[part.index] = names.get(part.index) or part.name or ""
                ids.setdefault(part.index, set()).update({part.id} if part.id else ())
            elif isinstance(part, ToolCall) and not part.name:
                raise Broken(f"a call has no name: {part!r}")
        if nameless := [index for index, name in names.items() if not name]:
            raise Broken(f"the calls with these indexes have no name: {nameless}")
        if twice := [index for index, seen in ids.items() if len(seen) > 1]:
            raise Broken(f"under these indexes several calls are told: {twice}")

    async def usage(self) -> None:
        """Of the first response."""
        for part in self._parts:
            if isinstance(part, Usage) and (
                part.cache_read + part.cache_write > part.input or part.reasoning > part.output
            ):
                raise Broken(f"the parts are more than the whole: {part!r}")

    async def again(self) -> None:
        """It is not used up."""
        _finished(await _read(self._stream(self.request())))

    async def together(self) -> None:
        """Whether it keeps them apart shows in that both have their end."""
        streams = (self._stream(self.request()) for _ in range(2))
        for parts in await asyncio.gather(*map(_read, streams)):
            _finished(parts)

    async def everything(self) -> None:
        """And the request is as it was."""
        messages = history(images=self._images)
        request = self.request(*messages)
        before = repr(request)
        _finished(await _read(self._stream(request)))
        if repr(request) != before or any(now is not was for now, was in zip(request.messages, messages, strict=True)):
            raise Broken("the request is not what it was")

    async def left(self) -> None:
        """As the kernel does with a response that it does not want any more."""
        with leaving_nothing() as look:
            stream = self._stream(self.request())
            await anext(stream)
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
            await look()

    async def cancelled(self) -> None:
        """After its first part, while it makes the next one."""
        begun = asyncio.Event()
        await self._cancel(begun, begun.wait())

    async def cancelled_early(self) -> None:
        """In its first step."""
        await self._cancel(asyncio.Event(), asyncio.sleep(0))

    async def _cancel(self, begun: asyncio.Event, when: Awaitable[object]) -> None:
        async def read() -> None:
            stream = self._stream(self.request())
            try:
                async for _ in stream:
                    begun.set()
            finally:
                begun.set()
                if hasattr(stream, "aclose"):
                    await stream.aclose()

        with leaving_nothing() as look:
            task = asyncio.create_task(read())
            await when
            cancels = task.cancel()
            await asyncio.wait({task})
            if cancels and not task.cancelled():
                error = task.exception()
                raise Broken("the cancellation was swallowed" if error is None else f"it became {error!r}")
            await look()


async def _read(stream: Any) -> list[Any]:
    parts = []
    try:
        if hasattr(stream, "aclose"):
            async with aclosing(stream):
                parts = [part async for part in stream]
        else:
            parts = [part async for part in stream]
    except ModelError as error:
        raise Broken(f"it failed: {error}") from error
    except Exception as error:
        raise Broken(f"it raised {type(error).__name__}, and not a ModelError: {error}") from error
    return parts


def _finished(parts: list[Any]) -> None:
    if not parts or not isinstance(parts[-1], Finished):
        raise Broken(f"the response has no end: its last part is {parts[-1] if parts else None!r}")
