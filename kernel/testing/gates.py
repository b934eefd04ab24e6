"""Named gates: how a test says when something may go on, without sleeping and without guessing.

A gate comes into being when it is first named. Once open it stays open.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import final


@final
class Gates:
    """Gates that are opened and waited for by name.

    >>> gates = Gates()
    >>> gates.open("go")
    >>> gates.is_open("go"), gates.is_open("stop")
    (True, False)
    """

    def __init__(self) -> None:
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def open(self, name: str) -> None:
        """Let everybody through who waits at this gate, now and later."""
        self._events[name].set()

    def is_open(self, name: str) -> bool:
        """Whether the gate was opened."""
        return name in self._events and self._events[name].is_set()

    async def wait(self, name: str) -> None:
        """Wait until the gate is open."""
        await self._events[name].wait()

    async def wait_ignoring_cancel(self, name: str) -> None:
        """Wait until the gate is open, as code does that swallows every cancellation."""
        while not self.is_open(name):
            try:
                await self.wait(name)
            except asyncio.CancelledError:
                continue

    def at(self, name: str) -> Callable[[], Awaitable[None]]:
        """A function that waits at the gate: a part for the script of a `ScriptedModel`."""
        return lambda: self.wait(name)

    def opening(self, name: str) -> Callable[[], None]:
        """A function that opens the gate: a part for the script of a `ScriptedModel`."""
        return lambda: self.open(name)
