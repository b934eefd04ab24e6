"""The two sides of each comparison: what a workload asks of them, and what it sees of a run.

Both have one consumer, which counts events and adds up text.
"""

import asyncio
import time
from typing import Any, Protocol, final

from attrs import frozen

from tests.benchmarks.plans import RESULT, Plan


@final
class Seen:
    """What the consumer of a run saw."""

    __slots__ = ("characters", "deltas", "events", "first_text")

    def __init__(self) -> None:
        self.events = self.deltas = self.characters = 0
        self.first_text = 0.0

    def text(self, delta: str) -> None:
        """A piece of text came."""
        if not self.deltas:
            self.first_text = time.process_time()
        self.deltas += 1
        self.characters += len(delta)


@final
@frozen
class Counted:
    """What a transcript holds in the end."""

    users: int
    calls: int
    results: int
    text: str


class Side(Protocol):
    """The bare loop, or the kernel."""

    def agent(self, plan: Plan) -> Any:
        """An agent whose model plays *plan*, with the one tool `echo`."""
        ...

    async def run(self, agent: Any, seen: Seen) -> None:
        """Prompt it, and consume every event."""
        ...

    async def cancel(self, agent: Any) -> float:
        """Prompt it, wait until its model is stuck, and cancel: CPU microseconds until the run has ended."""
        ...

    def counted(self, agent: Any) -> Counted:
        """What its transcript holds."""
        ...


@final
class Tally:
    """How often the tool was called, and when if somebody wants to know."""

    def __init__(self) -> None:
        self.calls = 0
        self.times: list[float] | None = None


TALLY = Tally()
"""One for both sides, which take turns."""


async def echo(number: int) -> str:
    """Echo a number."""
    TALLY.calls += 1
    if TALLY.times is not None:
        TALLY.times.append(time.process_time())
    return RESULT


async def rest() -> None:
    """Let everybody come to rest."""
    for _ in range(5):
        await asyncio.sleep(0)
