"""Listeners of all sorts: each keeps what it hears, and at the events that it waits for it does something."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from kernel import Event, ReentrancyError
from kernel.events import PhaseChanged
from tests.kernel.stateful.oracle import core_of
from tests.kernel.stateful.world import SITUATIONS, World

KINDS: Final = ("quiet", "raises", "acts", "slow", "raises_later", "waits", "hangs", "deaf", "acts_later")
EVENTS: Final = (
    "run.started", "turn.started", "message.accepted", "message.started", "message.updated", "message.ended",
    "tool.started", "tool.ended", "turn.ended", "retry.scheduled", "retry.ended", "compaction.started",
    "compaction.ended", "queue.changed", "subscriber.failed", "hook.failed", "update.discarded", "run.finished",
    "-> turn", "-> steering", "-> follow_up", "-> retry", "-> compaction", "-> cancelling", "-> settling",
)  # fmt: skip
"""What a listener may wait for: the type of an event, or the phase to which one tells that the agent has moved."""
DEEDS: Final = (
    "cancel", "steer", "follow_up", "prompt", "subscribe", "unsubscribe", "continue_", "compact", "reset", "configure",
    "unqueue", "clear_queues", "snapshot", "aclose", "await run", "wait_for_idle",
)  # fmt: skip


class WorldListener:
    """Hears everything from its subscription on; the first *times* events of the type *at* make it act by its *kind*."""

    def __init__(self, world: World, kind: str, at: str, deed: str, times: int) -> None:
        self.world = world
        self.kind = kind
        self.at = at
        self.deed = deed
        self.left = times
        self.heard: list[Event] = []
        self.since = len(world.recorder.events)
        self.until: int | None = None
        self.subscription: Any = None

    def __call__(self, event: Event) -> Awaitable[None] | None:
        self.heard.append(event)
        moved = f"-> {event.target}" if isinstance(event, PhaseChanged) else ""
        if self.at not in ("*", event.type, moved) or self.left <= 0:
            return None
        self.left -= 1
        SITUATIONS[f"a listener that {self.kind}"] += 1
        if self.kind == "raises":
            # Where nothing more can be told, or must not be told, the failure is only recorded.
            untold = event.type == "subscriber.failed" or core_of(self.world.agent).live.result is not None
            self.world.raised["perhaps" if untold else event.run_id] += 1
            raise ValueError("the listener broke")
        if self.kind == "acts":
            self._act()
        return None if self.kind in ("quiet", "acts") else self._later(event)

    def unsubscribe(self) -> None:
        """Stop listening, as often as one likes."""
        self.subscription()
        if self.until is None:
            self.until = len(self.world.recorder.events)

    def _act(self) -> None:
        if self.deed == "unsubscribe":
            self.unsubscribe()
        else:
            self.world.act(self.deed)

    async def _later(self, event: Event) -> None:
        self.world.listening[event.run_id] += 1
        self.world.delays += 1
        try:
            await self._go_on()
        finally:
            self.world.listening[event.run_id] -= 1

    async def _go_on(self) -> None:
        match self.kind:
            case "slow":
                await self.world.sleep(1)
            case "hangs":
                await self.world.hang()
            case "deaf":
                await self.world.ignore_cancel()
            case "acts_later":
                await self.world.sleep(0.5)
                self._act()
            case "raises_later":
                await asyncio.sleep(0)
                self.world.raised["perhaps"] += 1
                raise ValueError("the listener broke, later")
            case "waits":
                await self._wait()

    async def _wait(self) -> None:
        """Wait for what waits for this: refused, unless nobody waits for listeners (any more)."""
        world = self.world
        run = world.runs[-1]
        try:
            if self.deed == "await run":
                await run.run
            else:
                await world.agent.wait_for_idle()
        except ReentrancyError:
            SITUATIONS["a listener was kept from waiting for its own run"] += 1
