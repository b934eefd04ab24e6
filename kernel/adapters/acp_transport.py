"""Lines of JSON over the standard streams, which survive whatever comes: rubbish is answered, and the connection stays.

The library's own transport passes over lines that are no JSON without an answer, takes lines of any length into memory, and
dies of some requests that are no objects.
"""

import asyncio
import json
from typing import Any, Final, final

LONGEST: Final = 50 * 2**20
"""Bytes of a line: a prompt with some pictures."""
_PIECE: Final = 2**16


@final
class LineTransport:
    """What `acp` sends and receives by. One reader, any number of senders."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message; it waits until the other side has taken most of what was sent before.

        When the other side is gone, nobody is left to tell: what it wrote before is still read, and that is the end.
        """
        line = json.dumps(message, separators=(",", ":"), default=str) + "\n"
        async with self._sending:
            if self._writer.is_closing():
                return
            try:
                self._writer.write(line.encode())
                await self._writer.drain()
            except ConnectionError:
                self._reader.feed_eof()

    async def receive(self) -> dict[str, Any] | None:
        """The next request or answer that is one; None at the end."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError) as error:
                await self._complain(None, -32700, f"the line is not JSON: {error}")
                continue
            fault = _fault_of(message)
            if fault is None:
                return message  # type: ignore[no-any-return]
            id = message.get("id") if isinstance(message, dict) else None
            await self._complain(id if isinstance(id, (int, str)) else None, -32600, fault)
        return None

    async def close(self) -> None:
        """Let go, also of what the other side never took."""
        if not self._writer.is_closing():
            self._writer.transport.abort()

    async def _complain(self, id: int | str | None, code: int, message: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    async def _line(self) -> bytes | None:
        """The next line; one that is too long is passed over and complained of."""
        pieces: list[bytes] = []
        length = 0
        while True:
            try:
                piece = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                piece = await self._reader.readexactly(max(error.consumed, 1))
            except asyncio.IncompleteReadError as error:
                if not error.partial and not pieces:
                    return None
                piece = error.partial
            except ConnectionError:
                return None
            length += len(piece)
            if length <= LONGEST:
                pieces.append(piece)
            elif pieces:
                pieces.clear()
            if piece.endswith(b"\n") or self._reader.at_eof():
                if length <= LONGEST:
                    return b"".join(pieces)
                await self._complain(None, -32600, f"a line has {LONGEST} bytes at most")
                length = 0


def _fault_of(message: Any) -> str | None:
    """What keeps *message* from being JSON-RPC 2.0; None when nothing does."""
    if not isinstance(message, dict):
        return "a JSON object is expected (a request, a notification or an answer)"
    id, method = message.get("id"), message.get("method")
    if "id" in message and (isinstance(id, bool) or not isinstance(id, (int, str, type(None)))):
        return "id must be a number, a string or null"
    if "method" in message:
        if not isinstance(method, str):
            return "method must be a string"
        if not isinstance(message.get("params", {}), (dict, type(None))):
            return "params must be an object"
        return None
    if "id" not in message or not ("result" in message or "error" in message):
        return "neither a request (it has no method) nor an answer (it has no id with a result or an error)"
    return None if isinstance(message.get("error", {}), (dict, type(None))) else "error must be an object"
