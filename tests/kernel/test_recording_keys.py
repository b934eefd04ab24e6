"""What opens a provider's door does not get into a recording, also when the provider repeats all it was sent."""

import asyncio
import json
from typing import Any

import pytest

from kernel import Agent
from kernel.models.anthropic import AnthropicModel
from kernel.models.openai import OpenAIModel
from kernel.models.recording import RecordingModel


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An answer that says that the key is wrong, and repeats the head of the request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    data = json.dumps({"error": {"type": "authentication_error", "message": f"wrong: {head}"}}).encode()
    writer.write(
        b"HTTP/1.1 401 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
        % (len(data), data)
    )
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel])
@pytest.mark.parametrize("login", ["", "me:hunter22@"], ids=["key", "key and login"])
def test_neither_key_nor_login_nor_header_is_recorded(kind: Any, login: str):
    """Recorded is that the door stayed shut, and nothing that would open it."""
    lines: list[str] = []

    async def main() -> Any:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            model = kind("m", base_url=f"http://{login}127.0.0.1:{port}/v1", api_key="zz-Secret99")
            result = await Agent(RecordingModel(model, lines.append)).prompt("Hi")
            await model.aclose()
            return result

    assert asyncio.run(main()).status == "failed"
    written = "".join(lines)
    assert "401" in lines[-1]
    assert [secret for secret in ("Secret99", "hunter22", "bWU6aHVudGVyMjI") if secret in written] == []
