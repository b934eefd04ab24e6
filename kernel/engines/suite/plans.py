"""The agent of the suite: its model says what the prompt tells it to, and its tools tell a world what they do.

A prompt is a plan: a JSON list of turns, each with what is said and which tools are called. The model keeps nothing: which
turn it is is seen on the request, so that it goes on the same in another process. Each execution of a tool is written down
outside of the engine by whoever executes it, which is how the suite knows what really ran.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol, final

from kernel.agent import Agent
from kernel.config import KernelConfig
from kernel.effects import ModelRequest
from kernel.messages import AssistantMessage, Finished, Part, TextDelta, ToolCall, UserMessage
from kernel.ports import ToolContext
from kernel.tools import tool

Turn = dict[str, Any]


class World(Protocol):
    """What is outside: where tools write down what they do, and the gates at which they wait."""

    def note(self, what: str, execution: str) -> None:
        """Write down that *what* happened to an execution: the tool's name, and the key of the call."""
        ...

    async def gate(self, name: str) -> None:
        """Wait until the gate is open."""
        ...


def turn(*texts: str, calls: Iterable[tuple[str, dict[str, Any]]] = ()) -> Turn:
    """A turn of a plan: pieces of text (`@name` is none, but waits at that gate), and calls by tool and arguments."""
    return {"say": list(texts), "call": [list(each) for each in calls]}


def plan(*turns: Turn) -> str:
    """A prompt that is this plan."""
    return json.dumps(turns)


@final
class PlanModel:
    """A model that plays the plan in the newest prompt that is one. To what is no plan it answers with an echo."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The turn that is due."""
        turns, done, heard = _where(request)
        if done >= len(turns):
            yield TextDelta(f"heard {heard}")
            yield Finished()
            return
        due = turns[done]
        for text in due["say"]:
            if text.startswith("@"):
                await self._world.gate(text[1:])
            else:
                yield TextDelta(text)
        for place, (name, arguments) in enumerate(due["call"]):
            yield ToolCall(f"{request.id}/{place}", name, arguments)
        yield Finished()


def _where(request: ModelRequest) -> tuple[list[Turn], int, str]:
    """The plan that is played, how many of its turns are done, and what was said last."""
    turns: list[Turn] = []
    done, heard = 0, ""
    for message in request.messages:
        if isinstance(message, UserMessage):
            heard = message.text
            if heard.startswith("["):
                turns, done = json.loads(heard), 0
        elif isinstance(message, AssistantMessage) and done < len(turns):
            done += 1
    return turns, done, heard


def agent(world: World, *, with_tools: bool = True) -> Agent:
    """The agent of every session of the suite."""

    @tool(replay="safe")
    async def note(text: str, context: ToolContext) -> str:
        """Write it down."""
        world.note("ran", f"note {context.key}")
        return f"noted {text}"

    @tool(replay="safe")
    async def wait(gate: str, context: ToolContext) -> str:
        """Wait at a gate; may be executed again."""
        return await _waited(world, gate, f"wait {context.key}")

    @tool(replay="never")
    async def once(gate: str, context: ToolContext) -> str:
        """Wait at a gate; must not be executed twice."""
        return await _waited(world, gate, f"once {context.key}")

    @tool(replay="safe")
    async def big(size: int) -> str:
        """So many characters."""
        return "x" * size

    tools = (note, wait, once, big) if with_tools else ()
    return Agent(PlanModel(world), tools=tools, config=KernelConfig(max_turns=None))


async def _waited(world: World, gate: str, execution: str) -> str:
    world.note("ran", execution)
    try:
        await world.gate(gate)
    except asyncio.CancelledError:
        world.note("cancelled", execution)
        raise
    return f"passed {gate}"


@final
class Folder:
    """A world in a folder, for several processes: a file for each gate, and one line for each thing that happened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    def note(self, what: str, execution: str) -> None:
        """As `World.note`."""
        with (self._path / "happened").open("a", encoding="utf-8") as file:  # short lines: appended as a whole
            file.write(f"{what} {execution}\n")

    async def gate(self, name: str) -> None:
        """As `World.gate`."""
        while not (self._path / f"gate-{name}").exists():  # noqa: ASYNC110  # another process opens it
            await asyncio.sleep(0.005)

    def open(self, name: str) -> None:
        """Open the gate *name*."""
        (self._path / f"gate-{name}").touch()

    def happened(self, what: str) -> list[str]:
        """The executions to which *what* happened, in order."""
        file = self._path / "happened"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [execution for said, _, execution in (line.partition(" ") for line in lines) if said == what]
