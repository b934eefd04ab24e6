"""Two ways to keep what a run says: `collect` reads a run to its end, a `Recorder` listens."""

from collections.abc import AsyncIterable
from typing import final

from kernel.events import Event


async def collect(run: AsyncIterable[Event]) -> list[Event]:
    """All events of *run*, in order."""
    return [event async for event in run]


@final
class Recorder:
    """A listener that keeps what it hears: `agent.subscribe(recorder)`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        """The type of each event, in order."""
        return [event.type for event in self.events]

    def of(self, *types: str) -> list[Event]:
        """The events of these types, in order."""
        return [event for event in self.events if event.type in types]

    def clear(self) -> None:
        """Forget what was heard so far."""
        self.events.clear()
