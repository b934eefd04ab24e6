"""A provider on the loopback interface that does what a test says, and remembers what was asked and when a client left.

It runs in a thread of its own, as a provider does: a test may have any event loop, several of them, or none.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

from attrs import field, frozen


class Deed(Enum):
    """What a server can do besides sending bytes."""

    STALL = "say nothing more, until the client is gone"
    DROP = "reset the connection"
    CLOSE = "close the connection without the end of the body"


STALL, DROP, CLOSE = Deed.STALL, Deed.DROP, Deed.CLOSE
Step = bytes | Deed


@frozen
class Answer:
    """A response: its head, and the pieces of its body. *early* is done before the head is sent."""

    steps: tuple[Step, ...] = field(default=(), converter=tuple)
    status: int = 200
    headers: dict[str, str] = field(factory=dict)
    content_type: str = "text/event-stream"
    early: Deed | None = None
    silent_end: bool = False
    """The connection is closed when the next request comes over it, as by a server that has just given it up."""


@frozen
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Server:
    """Answers the n-th request with the n-th answer; the last one stays. Use it with `with`."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.connections = 0
        self.left = threading.Event()
        """Set when a client closed its connection while it was being answered."""
        self.left_at = 0.0
        """When that was, by `time.perf_counter`."""
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="a provider", daemon=True)
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        """The address, up to the port."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def __enter__(self) -> "Server":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._server.close()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.close()
            asyncio.set_event_loop(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                asked = await self._read(reader)
                self.asked.append(asked)
                answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
                if not await self._answer(answer, reader, writer):
                    return
                if answer.silent_end:
                    await reader.read(1)
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self._see_it_leave()
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Asked(head[0].split(" ")[1], headers, json.loads(body or b"{}"))

    async def _answer(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may be used again."""
        if answer.early is not None:
            return await self._do(answer.early, reader, writer)
        lines = [f"HTTP/1.1 {answer.status} Whatever", f"Content-Type: {answer.content_type}", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for step in answer.steps:
            if isinstance(step, Deed):
                await writer.drain()
                return await self._do(step, reader, writer)
            writer.write(b"%x\r\n%s\r\n" % (len(step), step))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _see_it_leave(self) -> None:
        self.left_at = time.perf_counter()
        self.left.set()

    async def _do(self, deed: Deed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if deed is STALL:
            await reader.read(1)
            self._see_it_leave()
        elif deed is CLOSE:
            writer.close()
        return False


def json_answer(body: Any, status: int, **headers: str) -> Answer:
    """A whole response in JSON."""
    return Answer((json.dumps(body).encode(),), status, {key.replace("_", "-"): value for key, value in headers.items()},
                  "application/json")  # fmt: skip


def event(data: Any, name: str | None = None) -> bytes:
    """A server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {text}\n\n".encode()


KEEP_ALIVE: Final = b": keep-alive\n\n"


@contextmanager
def nothing_leaks() -> Iterator[None]:
    """Nothing that was opened within is still open."""
    before = open_files()
    yield
    assert open_files() <= before, f"left open: {open_files() - before}"


def open_files() -> int:
    """How many file descriptors the process has; 0 where that can't be seen."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def split(data: Iterable[bytes], size: int) -> list[bytes]:
    """The same bytes, cut anew into pieces of *size*: through lines, events and characters."""
    whole = b"".join(data)
    return [whole[place : place + size] for place in range(0, len(whole), size)]
