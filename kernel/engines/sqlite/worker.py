"""Carrying sessions out: one loop that looks for orders and sessions, one that stores, one that keeps the lease.

Theory. All that is to be stored of all sessions of this worker goes in one transaction, and while that is written the
next one gathers: so the cost of a commit is shared by as many sessions as are busy. Whoever waits for its inputs to be
stored waits for the transaction they are in, and for no other one.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, final

from kernel.agent import Agent
from kernel.codec import Codec
from kernel.engines.hosting import Batch, Host, Kept
from kernel.engines.orders import load_order
from kernel.engines.port import EngineError
from kernel.engines.sqlite.pieces import Pieces
from kernel.engines.sqlite.store import Claimed, Store
from kernel.errors import describe

IDLE_KEPT: Final = 256
"""Sessions at rest that stay in memory, so that the next order finds them open."""
CLAIMED_AT_ONCE: Final = 16
"""So that a worker that comes first does not take all."""
REFUSED_FOR: Final = 10
"""Leases after which a session that could not be gone on with is tried again."""
_LOG: Final = logging.getLogger("kernel.engines")


@contextlib.asynccontextmanager
async def _one_error() -> AsyncIterator[None]:
    """What ended a worker, and not the group that it is in."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


@final
class Worker:
    """One worker. *in_thread* runs what blocks; *wait* returns when there may be something new, and *wake* says so."""

    def __init__(
        self,
        store: Store,
        pieces: Pieces,
        in_thread: Callable[..., Awaitable[Any]],
        wait: Callable[[], Awaitable[bool]],
        wake: Callable[[], None],
        make_agent: Callable[[str], Agent],
        *,
        slots: int,
        lease: float,
        base_every: int,
    ) -> None:
        self.id = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        pieces.writer = self.id
        self._store, self._pieces = store, pieces
        self._in_thread, self._wait, self._wake = in_thread, wait, wake
        self._make_agent = make_agent
        self._slots, self._lease, self._base_every = slots, lease, base_every
        self._hosts: dict[Claimed, Host] = {}
        self._claims: dict[str, Claimed] = {}
        self._given: dict[str, int] = {}
        self._dirty: dict[Claimed, Host] = {}
        self._to_store = asyncio.Event()
        self._refused: dict[str, float] = {}
        self._codec = Codec()

    async def serve(self) -> None:
        """Until cancelled. Sessions that are not at rest then are taken up by others at once."""
        await self._in_thread(self._store.renew, self.id, self._lease)
        try:
            async with _one_error(), asyncio.TaskGroup() as group:
                for part in (self._keep_lease, self._keep_storing, self._keep_looking):
                    group.create_task(part(), name=f"kernel worker: {part.__name__[6:]}")
        finally:
            for host in self._hosts.values():
                host.lose()
            self._hosts.clear()
            await self._in_thread(self._store.leave, self.id)  # also what was being opened

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            await self._in_thread(self._store.renew, self.id, self._lease)

    # ---- looking ----

    async def _keep_looking(self) -> None:
        seen, due = -1, 0.0
        here = True
        while True:
            # Nothing is looked for when nobody has written, but for the leases of others, which end without a word.
            version, now = await self._in_thread(self._store.version), asyncio.get_running_loop().time()
            looking, here = here or version != seen or now >= due, False
            if looking:
                seen, due = version, now + self._lease / 3
                here = await self._look()
            await self._hand_pieces_on()
            here = here or await self._wait()

    async def _look(self) -> bool:
        """Take sessions that are free, as far as there is room, and give orders to those that are here. True when there may
        be more of them.
        """
        more = False
        free = self._slots - sum(not host.is_idle for host in self._hosts.values())
        if free > 0:
            limit, but = min(free, CLAIMED_AT_ONCE), self._still_refused()
            found = await self._in_thread(self._store.claim, self.id, limit, but)
            more = len(found) == limit
            for claimed in found:
                await self._open(claimed)
        for session, number, body in await self._in_thread(self._store.orders, self.id):
            self._give(session, number, body)
        await self._forget_some()
        return more

    async def _hand_pieces_on(self) -> None:
        if pieces := self._pieces.taken():
            await self._in_thread(self._pieces.write, pieces)

    async def _open(self, claimed: Claimed) -> None:
        session = claimed.session
        if session in self._claims:  # it was somebody else's meanwhile
            self._drop(self._claims[session])
        kept, _ = await self._in_thread(self._store.load, session)
        try:
            host = self._host(claimed, kept)
        except Exception as error:
            await self._refuse(claimed, error)
            return
        self._claims[session] = claimed
        self._hosts[claimed] = host
        self._given[session] = 0
        if host.is_dirty:
            self._note(host)

    async def _refuse(self, claimed: Claimed, error: Exception) -> None:
        """Leave a session to others."""
        _LOG.error("session %s is not served by this worker: %s", claimed.session, describe(error))
        self._refused[claimed.session] = asyncio.get_running_loop().time() + REFUSED_FOR * self._lease
        await self._in_thread(self._store.release, self.id, [claimed])

    def _still_refused(self) -> list[str]:
        """Sessions that this worker could not go on with a short while ago. Another one may."""
        now = asyncio.get_running_loop().time()
        self._refused = {session: until for session, until in self._refused.items() if until > now}
        return list(self._refused)

    def _host(self, claimed: Claimed, kept: Kept | None) -> Host:
        agent = self._make_agent(claimed.session)
        if not isinstance(agent, Agent):
            raise TypeError(f"make_agent must return a kernel.Agent, not {agent!r}")
        if agent.is_running:
            raise EngineError("make_agent returned an agent whose run is going; return a new one for each session")
        return Host(claimed.session, agent, kept, self._note, self._pieces.tell, self._base_every)

    def _give(self, session: str, number: int, body: str) -> None:
        claimed = self._claims.get(session)
        if claimed is None or number <= self._given[session]:
            return
        self._given[session] = number
        self._hosts[claimed].give(number, load_order(body, self._codec))

    async def _forget_some(self) -> None:
        """Let go of sessions at rest beyond those that are worth their memory."""
        idle = [claimed for claimed, host in self._hosts.items() if host.is_idle and claimed not in self._dirty]
        surplus = idle[: max(0, len(idle) - IDLE_KEPT)]
        if surplus:
            for claimed in surplus:
                self._drop(claimed)
            await self._in_thread(self._store.release, self.id, surplus)

    def _drop(self, claimed: Claimed) -> None:
        host = self._hosts.pop(claimed)
        self._dirty.pop(claimed, None)
        self._claims.pop(claimed.session, None)
        host.lose()

    # ---- storing ----

    def _note(self, host: Host) -> None:
        claimed = self._claims.get(host.session)
        if claimed is not None and self._hosts.get(claimed) is host:
            self._dirty[claimed] = host
            self._to_store.set()

    async def _take(self, dirty: dict[Claimed, Host]) -> list[tuple[Claimed, Batch]]:
        """What these hand in. One in which something can't be written down is left, and costs the others nothing."""
        batches: list[tuple[Claimed, Batch]] = []
        for claimed, host in dirty.items():
            try:
                batches.append((claimed, host.take()))
            except Exception as error:
                if claimed in self._hosts:
                    self._drop(claimed)
                    await self._refuse(claimed, error)
        return batches

    async def _keep_storing(self) -> None:
        while True:
            await self._to_store.wait()
            self._to_store.clear()
            dirty, self._dirty = self._dirty, {}
            batches = await self._take(dirty)
            await self._hand_pieces_on()  # before what they are pieces of
            lost = set(await self._in_thread(self._store.append, self.id, batches))
            for claimed, _ in batches:
                if claimed not in lost:
                    dirty[claimed].stored()
                elif claimed in self._hosts:
                    _LOG.warning("session %s: another worker has taken it", claimed.session)
                    self._drop(claimed)
            self._wake()
