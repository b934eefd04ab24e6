"""The world of the Pi tests: its tools, an agent under its profile, and its lines in a few words."""

from typing import Any

import attrs

from kernel import Agent, Hooks, RunResult, ToolResult, tool
from kernel.profiles import PI_0_85
from kernel.testing import ScriptedModel
from tests.contracts.support import fail, lines, passing, read, told

BEGIN, END = ["agent_start", "turn_start"], ["agent_end"]


def user(text: str) -> list[str]:
    """The lines of a user message."""
    return [f"message_start user {text}", f"message_end user {text}"]


def answer(text: str) -> list[str]:
    """The lines of an answer in one piece, and of the end of its turn."""
    return ["message_start assistant", f"message_update {text}", f"message_end assistant {text} stop", "turn_end"]


def calling(*ids: str) -> list[str]:
    """The lines of an answer that only calls."""
    ends = f"message_end assistant toolUse [{','.join(ids)}]"
    return ["message_start assistant", *(f"message_update {id}" for id in ids), ends]


def result(id: str, text: str) -> list[str]:
    """The lines of a result message."""
    return [f"message_start tool {id} {text}", f"message_end tool {id} {text}"]


@tool
async def quick() -> str:
    """End at once."""
    return "fast done"


@tool
async def slow() -> str:
    """End when the loop has nothing else to do."""
    await passing(1)
    return "slow done"


@tool
async def finish() -> ToolResult:
    """Say that no answer is needed."""
    return ToolResult("t", terminate=True)


def pi_agent(*answers: Any, hooks: Hooks | None = None, **changes: Any) -> Agent:
    """An agent under the profile; *changes* are to its policies."""
    tools = [read, fail, quick, slow, finish]
    return Agent(ScriptedModel(answers), tools=tools, hooks=hooks or Hooks(), config=attrs.evolve(PI_0_85, **changes))


async def said_by(agent: Agent, prompt: str = "hi") -> tuple[list[str], RunResult]:
    """Prompt *agent*, and wait: its lines, and the result."""
    recorder, result = await told(agent, prompt)
    return lines(recorder.events, "pi"), result
