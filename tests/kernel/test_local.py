"""The local model against a server that is only a socket: what it asks, how it reads, how it lets go."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernel import (
    AssistantMessage,
    CustomMessage,
    Message,
    ModelError,
    ModelRequest,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from kernel.messages import Finished, Part, StopReason, TextDelta, Usage
from kernel.models import local
from kernel.models.local import LocalModel

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SAID = (
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\ndata: {"choices":[{"delta":{"content":"l\xc3\xb6"}}]}\r\n\r\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)
PARTS = [TextDelta("Hel"), TextDelta("lö"), Usage(3, 2), Finished(StopReason.STOP)]


class Engine(ModuleType):
    """What stands for xllamacpp: its server has the address of the test's."""

    def __init__(self):
        super().__init__("xllamacpp")
        self.address = ""
        self.starts = 0

    def CommonParams(self) -> Any:
        return SimpleNamespace(model=SimpleNamespace())

    def Server(self, parameters: Any) -> Any:
        self.starts += 1
        assert parameters.hostnames == ["127.0.0.1"]
        return SimpleNamespace(listening_address=self.address)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setitem(sys.modules, "xllamacpp", engine)
    monkeypatch.setattr(local, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=["/weights"]))
    return engine


def serve(engine: Engine, answer: Answer, use: Callable[[LocalModel], Awaitable[Any]]) -> Any:
    """What *use* makes of a model whose server answers so."""

    async def main() -> Any:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await answer(reader, writer)
            finally:
                writer.close()

        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            engine.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return await use(LocalModel())

    return asyncio.run(main())


async def question(reader: asyncio.StreamReader) -> Any:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
    return json.loads(await reader.readexactly(length))


def chunked(data: bytes, size: int) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def saying(data: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await question(reader)
        writer.write(data)
        await writer.drain()

    return answer


async def ask(model: LocalModel, *messages: Message, system_prompt: str = "") -> list[Part]:
    return [part async for part in model.stream(ModelRequest("r", messages or (UserMessage("Hi"),), system_prompt, ()))]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_answer_is_read_however_it_is_cut(engine: Engine, size: int):
    """Chunks of HTTP may end anywhere, in the middle of a line or a character."""
    assert serve(engine, saying(HEAD + chunked(SAID, size)), ask) == PARTS


def test_an_answer_without_chunks_is_read_to_its_end(engine: Engine):
    """A body that ends with the connection is read as well."""
    assert serve(engine, saying(b"HTTP/1.0 200 OK\r\n\r\n" + SAID), ask) == PARTS


def test_the_conversation_is_told_in_three_roles(engine: Engine):
    """Results and summaries are a user's text, custom messages are left out, and roles alternate."""
    bodies: list[Any] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await question(reader))
        writer.write(HEAD + chunked(SAID, 99))
        await writer.drain()

    conversation = [
        SummaryMessage("S"),
        UserMessage("Q"),
        CustomMessage("ui"),
        AssistantMessage("A"),
        ToolMessage("c1", "one", "1"),
        ToolMessage("c2", "two", "2"),
    ]
    serve(engine, answer, lambda model: ask(model, *conversation, system_prompt="P"))
    assert bodies[0]["messages"] == [
        {"role": "system", "content": "P"},
        {"role": "user", "content": "What was said before, in short:\nS\n\nQ"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "one says:\n1\n\ntwo says:\n2"},
    ]


def test_a_cancelled_request_closes_its_socket(engine: Engine):
    """The server sees at once that nobody listens any more."""
    said: list[asyncio.Event] = []
    seen: list[asyncio.Future[bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await question(reader)
        writer.write(HEAD + chunked(SAID, 99)[:20])
        said[0].set()
        try:
            seen[0].set_result(await reader.read())
        except ConnectionResetError:
            seen[0].set_result(b"")

    async def use(model: LocalModel) -> bytes:
        said.append(asyncio.Event())
        seen.append(asyncio.get_running_loop().create_future())
        task = asyncio.ensure_future(ask(model))
        await said[0].wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await seen[0]

    assert serve(engine, answer, use) == b""


@pytest.mark.parametrize(
    ("data", "words", "retryable", "overflow"),
    [
        (
            b'HTTP/1.1 400 Bad\r\n\r\n{"error":{"type":"exceed_context_size_error","message":"long"}}',
            "HTTP 400: long",
            False,
            True,
        ),
        (
            b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"<html>", 3),
            "HTTP 503: <html>",
            True,
            False,
        ),
        (HEAD + chunked(SAID, 99)[:60], "broke off", True, False),
        (HEAD + b"zz\r\n", "broke off", True, False),
        (HEAD + chunked(b"data: {\n\n", 99), "broke off", True, False),
        (b"", "broke off", True, False),
    ],
    ids=["overflow", "busy", "cut", "no chunk", "no JSON", "nothing"],
)
def test_failures_are_model_errors(engine: Engine, data: bytes, words: str, retryable: bool, overflow: bool):
    """Whatever goes wrong with the server is a ModelError that says whether it may pass."""
    with pytest.raises(ModelError, match=words) as caught:
        serve(engine, saying(data), ask)
    assert (caught.value.retryable, caught.value.overflow) == (retryable, overflow)


def test_no_server_is_a_failure_that_may_pass(engine: Engine):
    """A connection that is refused is a ModelError."""
    engine.address = "http://127.0.0.1:1"
    with pytest.raises(ModelError, match="broke off") as caught:
        asyncio.run(ask(LocalModel()))
    assert caught.value.retryable


def test_the_server_starts_once_and_again_after_close(engine: Engine):
    """Requests share one server, also when they come together; after `close` the next one starts another."""

    async def use(model: LocalModel) -> None:
        assert engine.starts == 0
        await asyncio.gather(ask(model), ask(model))
        assert engine.starts == 1
        model.close()
        await ask(model)

    serve(engine, saying(HEAD + chunked(SAID, 99)), use)
    assert engine.starts == 2
