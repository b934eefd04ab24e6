"""Wraps any model, and writes down what it is asked and what it answers: `kernel.models.replay` plays it.

    with RecordingModel(model, "run.jsonl") as recording:
        result = Agent(recording, tools=tools).run_sync("Hi")
    Agent(ReplayModel("run.jsonl"), tools=tools).run_sync("Hi")     # the same events, without a provider

It stands where the kernel meets the model (`kernel.ports.Model`): it sees requests and parts and nothing of how they are
sent, so no key and no header can get in. Two ways remain. A failure's text is a provider's; what has the shape of a key, of
a bearer's token or of a password in an address is blotted out in it. And the conversation is written as it is, for a
replay must be exact: what a user or a tool said there is in the recording, secrets too.

A recording that can't be written fails the request, with a sentence: a recording with a hole in it is worth nothing, and
who records wants it. Nothing more is written or asked after that.
"""

import asyncio
import inspect
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, Final, Self, final

from attrs import evolve

from kernel.codec import Codec
from kernel.errors import ModelError, describe, failure_of
from kernel.frozen import freeze
from kernel.jsonl import exact, to_line
from kernel.messages import Finished, Part, TextDelta
from kernel.models.tape import FORMAT, SETUP, Ending, asked_by
from kernel.ports import Model, ModelRequest

_SECRETS: Final = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|key)[-_][A-Za-z0-9_*.-]{6,}"
    r"|(?<=bearer )[^\s'\",;]+"
    r"|(?<=basic )[A-Za-z0-9+/=]{6,}"
    r"|(?<=api[-_]key: )[^\s'\",;]+|(?<=api[-_]key=)[^\s&'\",;]+"
    r"|(?<=://)[^\s/@]+(?=@)",
    re.IGNORECASE,
)
_BLOT: Final = "[…]"


@final
class RecordingModel:
    """*model*, recorded. *write* is a path, whose file is overwritten, or is called with whole lines, newline included.

    *about* goes into the header: `{"date": …, "licence": …}`; `model` is the model's class when it is not given. With a
    path, close it when all is over (it is a context manager); each line is in the file at once all the same. Raises
    OSError when the file can't be opened.
    """

    def __init__(
        self,
        model: Model,
        write: str | os.PathLike[str] | Callable[[str], object],
        *,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(getattr(model, "stream", None)):
            raise TypeError(f"model must have a method stream(request), not {model!r}")
        self._model = model
        self._codec = Codec()
        self._error: ModelError | None = None
        self._file = open(write, "w", encoding="ascii", buffering=1) if isinstance(write, (str, os.PathLike)) else None  # noqa: SIM115  # closed by close()
        self._write: Any = self._file.write if self._file is not None else write
        if not callable(self._write):
            raise TypeError(f"write must be a path or a callable that takes lines, not {write!r}")
        self._requests = 0
        self._known: dict[str, dict[str, int]] = {"setup": {}, "message": {}}
        self._put({"format": FORMAT, "about": exact(freeze({"model": type(model).__name__, **(about or {})}))})

    @property
    def context_window(self) -> int | None:
        """The model's."""
        return getattr(self._model, "context_window", None)

    def __repr__(self) -> str:
        return f"RecordingModel({type(self._model).__name__})"

    def close(self) -> None:
        """Close the file, if it was opened here. The model is its owner's to close."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The model's response, written down as it comes. It ends with its `Finished`."""
        number = self._ask(request)
        clock = asyncio.get_running_loop().time
        start = clock()

        def put(kind: str, data: Any) -> None:
            self._put({"request": number, "t": round((clock() - start) * 1000, 3), kind: data})

        part: Any = None
        try:
            async with AsyncExitStack() as stack:
                stream: Any = self._model.stream(request)
                if inspect.isawaitable(stream):
                    stream = await stream
                if hasattr(stream, "aclose"):
                    await stack.enter_async_context(aclosing(stream))
                async for part in stream:
                    put("part", self._part(part))
                    yield part
                    if type(part) is Finished:
                        return
            put("end", Ending.ENDED)
        except (GeneratorExit, asyncio.CancelledError):
            if type(part) is not Finished:
                with suppress(ModelError):  # it is logged, and told to the next request
                    put("end", Ending.LEFT)
            raise
        except Exception as error:
            if error is not self._error and type(part) is not Finished:
                failure = failure_of(error)
                put("failed", self._codec.dump_failure(evolve(failure, message=without_secrets(failure.message))))
            raise

    def _ask(self, request: ModelRequest) -> int:
        """Write down *request*; its number."""
        try:
            asked = asked_by(request, self._codec)
        except TypeError as error:
            raise self._broken(f"the request can't be written: {describe(error)}") from error
        setup = self._number_of("setup", {name: asked[name] for name in SETUP})
        messages = [self._number_of("message", message) for message in asked["messages"]]
        self._requests += 1
        number = self._requests
        self._put({"request": number, "setup": setup, "messages": messages})
        return number

    def _number_of(self, kind: str, data: dict[str, Any]) -> int:
        known = self._known[kind]
        line = to_line(data)  # equal as text: True == 1 would not do
        if line not in known:
            self._put({kind: len(known) + 1, **data})
            known[line] = len(known) + 1
        return known[line]

    def _part(self, part: Any) -> dict[str, Any]:
        if not isinstance(part, Part) or (type(part) is TextDelta and type(part.text) is not str):
            raise ModelError(f"the model broke the protocol: it yielded {part!r}, which is no part of a response")
        try:
            return self._codec.dump_part(part)
        except TypeError as error:
            raise self._broken(f"a part of the response can't be written: {describe(error)}") from error

    def _put(self, entry: dict[str, Any]) -> None:
        if self._error is not None:
            raise self._error
        try:
            self._write(to_line(entry))
        except Exception as error:
            raise self._broken(describe(error)) from error

    def _broken(self, why: str) -> ModelError:
        self._error = ModelError(f"the recording ends here, and the request with it: {why}. Record again, or not at all")
        logging.getLogger("kernel.recording").error("the recording ends here: %s", why)
        return self._error


def without_secrets(text: str) -> str:
    """*text* with what has the shape of a key, a token or a password blotted out.

    >>> without_secrets("Incorrect key sk-proj-abc123 for https://me:secret@host/v1")
    'Incorrect key […] for https://[…]@host/v1'
    """
    return _SECRETS.sub(_BLOT, text)
