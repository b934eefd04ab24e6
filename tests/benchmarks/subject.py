"""The kernel as a side: its default profile, one synchronous listener beside the consumer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, final

from kernel import (
    Agent,
    AssistantMessage,
    Event,
    Finished,
    KernelConfig,
    ModelRequest,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolMessage,
    UserMessage,
    tool,
)
from kernel.events import MessageUpdated
from kernel.ports import Part
from tests.benchmarks.measure import Stopwatch, expect
from tests.benchmarks.plans import TOOL, Plan, Turn
from tests.benchmarks.sides import Counted, Seen, echo, rest

ECHO: Final = tool(name=TOOL)(echo)
DEFAULT: Final = KernelConfig()
ENDLESS: Final = KernelConfig(max_turns=None)
"""The default profile but for its 200 turns."""


@final
class FakeModel:
    """Plays a plan. An adapter of a provider would make the same parts of what it reads."""

    __slots__ = ("_turns",)

    def __init__(self, plan: Plan) -> None:
        self._turns = iter(plan)

    def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The next turn of the plan."""
        return _parts(next(self._turns))


async def _parts(turn: Turn) -> AsyncIterator[Part]:
    yielding = turn.pace == "yielding"
    for text in turn.texts:
        if yielding:
            await asyncio.sleep(0)
        yield TextDelta(text)
    for place, call in enumerate(turn.calls):
        yield ToolCallDelta(place, call.id, TOOL, call.arguments)
    if turn.pace == "stuck":
        await asyncio.Event().wait()
    yield Finished()


@final
class Ear:
    """A listener that counts."""

    __slots__ = ("heard",)

    def __init__(self) -> None:
        self.heard = 0

    def listen(self, event: Event) -> None:
        """Count *event*."""
        self.heard += 1

    async def listen_slowly(self, event: Event) -> None:
        """Count *event*, and be awaited for it."""
        self.heard += 1


@final
class Kernel:
    """The kernel as a side. *listen* gives an agent's listener from its ear; None: nobody listens."""

    def __init__(
        self, listen: Callable[[Ear], Callable[[Event], Any]] | None = lambda ear: ear.listen, *, endless: bool = False
    ) -> None:
        self._listen = listen
        self._config = ENDLESS if endless else DEFAULT

    def agent(self, plan: Plan) -> Agent:
        """An agent whose model plays *plan*."""
        return Agent(FakeModel(plan), tools=[ECHO], config=self._config)

    async def run(self, agent: Agent, seen: Seen) -> None:
        """Prompt it, and consume every event."""
        ear = Ear()
        if self._listen is not None:
            agent.subscribe(self._listen(ear))
        run = agent.prompt("go")
        async for event in run:
            seen.events += 1
            if type(event) is MessageUpdated and event.channel == "text":
                seen.text(event.delta)
        if run.result is None or run.result.status != "completed" or ear.heard != (seen.events if self._listen else 0):
            raise AssertionError(f"{run.result}; {seen.events} events seen, {ear.heard} heard")

    async def cancel(self, agent: Agent) -> float:
        """Cancel the run, and read it to its end."""
        run = agent.prompt("go")
        events: list[Event] = []

        async def consume() -> None:
            events.extend([event async for event in run])

        reader = asyncio.create_task(consume())
        while agent.state.streaming_message is None:
            await asyncio.sleep(0)
        await rest()
        with Stopwatch() as watch:
            run.cancel()
            await reader
        expect(run.result is not None and run.result.status, "cancelled", "the run's status")
        stop = getattr(agent.messages[-1], "stop", None)
        expect((events[-1].type, stop), ("run.finished", StopReason.ABORTED), "the end of the run")
        return watch.microseconds

    def counted(self, agent: Agent) -> Counted:
        """What its transcript holds."""
        messages = agent.messages
        wrong = [m for m in messages if isinstance(m, ToolMessage) and (m.text != "ok" or m.is_error)]
        expect(wrong, [], "results that are not ok")
        return Counted(
            sum(isinstance(message, UserMessage) for message in messages),
            sum(len(message.calls) for message in messages if isinstance(message, AssistantMessage)),
            sum(isinstance(message, ToolMessage) for message in messages),
            messages[-1].text,
        )
