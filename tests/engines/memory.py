"""An engine in memory that can be made to crash at every commit, for the simulator."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import final

from kernel import Agent
from kernel.codec import Codec
from kernel.engines.hosting import Batch, Host, Kept, replay
from kernel.engines.port import Order
from kernel.events import Event
from kernel.jsonl import from_line
from kernel.messages import Message
from kernel.state import CoreState
from kernel.testing import Gates


@final
class Room:
    """A world in memory."""

    def __init__(self) -> None:
        self.gates = Gates()
        self.happened: list[tuple[str, str]] = []

    def note(self, what: str, key: str) -> None:
        self.happened.append((what, key))

    async def gate(self, name: str) -> None:
        await self.gates.wait(name)

    def ran(self) -> Counter[str]:
        """How often each execution began."""
        return Counter(key for what, key in self.happened if what == "ran")


@final
class Memory:
    """One session. Its process dies at the commits *crashes*: before it where that is true, else right after it. A commit
    takes *slow* turns of the loop, in which the agent goes on.
    """

    def __init__(
        self, make: Callable[[], Agent], crashes: Mapping[int, bool] = MappingProxyType({}), *, slow: int = 0
    ) -> None:
        self.make = make
        self.kept: Kept | None = None
        self.events: list[Event] = []
        self.orders: list[Order] = []
        self.outcomes: dict[int, tuple[str, str | None]] = {}
        self.commits = 0
        self.crashes = 0
        self.quiet = 0
        """How often nothing happened for a second."""
        self._crashes, self._slow = crashes, slow
        self._given = 0
        self._dirty = asyncio.Event()
        self._host: Host | None = None

    async def live(self, orders: Sequence[Order], more: Callable[["Memory"], None] = lambda memory: None) -> None:
        """Carry out *orders* until nothing is left. *more* is called after each commit, and when all is quiet."""
        self.orders = list(orders)
        self._open()
        while True:
            host = self._host
            assert host is not None
            for number in range(self._given + 1, len(self.orders) + 1):
                self._given = number
                if number not in self.outcomes:
                    host.give(number, self.orders[number - 1])
            if host.is_dirty:
                await self._commit(host)
                more(self)
            elif host.is_idle and self._given == len(self.orders):
                return
            self._dirty.clear()
            waiting = asyncio.ensure_future(self._dirty.wait())
            heard, _ = await asyncio.wait({waiting}, timeout=1)
            waiting.cancel()
            if not heard:
                self.quiet += 1
                more(self)

    def _open(self) -> None:
        self._given = 0
        self._host = Host("s", self.make(), self.kept, lambda host: self._dirty.set(), lambda session, event: None, 40)

    async def _commit(self, host: Host) -> None:
        batch = host.take()
        for _ in range(self._slow):
            await asyncio.sleep(0)
        self.commits += 1
        dies = self.commits in self._crashes
        if not (dies and self._crashes[self.commits]):
            self._store(batch)
        if dies:
            self.crashes += 1
            host.lose()
            self._open()
        else:
            host.stored()

    def _store(self, batch: Batch) -> None:
        kept = self.kept
        base = batch.base or (kept.base if kept else "")
        batches = () if batch.base or kept is None else kept.batches
        self.kept = Kept(base, (*batches, batch.inputs) if batch.inputs else batches)
        self.events += [Codec().load_event(from_line(line)) for line in batch.events]
        for number, status, code, _ in batch.outcomes:
            assert number not in self.outcomes, f"order {number} was done twice"
            self.outcomes[number] = (status, code)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript as it is stored."""
        return tuple(self.state.transcript.messages)

    @property
    def state(self) -> CoreState:
        """The core as it is stored."""
        assert self.kept is not None
        return replay(self.kept).core.state
