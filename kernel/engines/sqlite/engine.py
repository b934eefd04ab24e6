"""Sessions in one file, for the processes of one machine: the standard library's SQLite, and nothing else.

    engine = SqliteEngine("sessions.db")
    await engine.submit("ada", Order("prompt", "Hi"), key="message-1")      # in any process
    await engine.serve(lambda session: Agent(model, tools=tools))           # in as many as there are cores

Whoever waits looks whether anybody has written, some fifty times a second (`poll`), which costs a few microseconds; within
one process nobody waits for that.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar, final

from kernel.agent import Agent
from kernel.codec import Codec
from kernel.engines.hosting import replay
from kernel.engines.orders import dump_order
from kernel.engines.port import Answer, EngineError, Order, SessionState, Told
from kernel.engines.sqlite.pieces import Pieces
from kernel.engines.sqlite.store import Row, Store
from kernel.engines.sqlite.worker import Worker
from kernel.events import Event
from kernel.jsonl import from_line
from kernel.snapshot import Queued
from statechart import Phase

T = TypeVar("T")
NAME_LIMIT: Final = 200
"""Characters of a session's name and of a key."""


@final
class SqliteEngine:
    """An `Engine` on the file *path*, which is made when it is not there.

    *lease*: seconds after which others may take the sessions of a worker that was killed or stands still. *poll*: seconds
    between two looks at what other processes have written. *base_every*: after so many inputs a session's log begins anew,
    when its agent is idle; opening a session replays no more than that, and the run that is going. *retain_events*: events
    that are kept for each session, the newest.

    Raises EngineError for a file that is not a session file, is torn, or is of a newer version; it is left as it is.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease: float = 3.0,
        poll: float = 0.02,
        base_every: int = 500,
        retain_events: int = 10_000,
    ) -> None:
        for name, value in (("lease", lease), ("poll", poll), ("base_every", base_every), ("retain_events", retain_events)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        self._lease, self._poll, self._base_every = lease, poll, base_every
        self._path = Path(path)
        self._store = Store(self._path, retain_events)
        self._pieces = Pieces(self._path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kernel sessions")
        self._changed = asyncio.Event()
        self._codec = Codec()
        self._closed = False

    async def submit(self, session: str, order: Order, key: str | None = None) -> int:
        """As `Engine.submit`."""
        _refuse_name("session", session)
        if key is not None:
            _refuse_name("key", key)
        if not isinstance(order, Order):
            raise TypeError(f"order must be a kernel.engines.Order, not {order!r}")
        body = dump_order(order, self._codec)
        number = await self._in_thread(self._store.submit, session, body, key)
        self._wake()
        return number

    async def answer(self, session: str, number: int) -> Answer:
        """As `Engine.answer`."""
        while True:
            answer = await self._in_thread(self._store.answer, session, number)
            if answer.status != "waiting":
                return answer
            await self._wait()

    async def state(self, session: str) -> SessionState:
        """As `Engine.state`."""
        kept, row = await self._in_thread(self._store.load, session)
        return state_of(row, None if kept is None else replay(kept).core)

    async def events(self, session: str, after: int = 0, *, pieces: bool = False) -> AsyncIterator[Told]:
        """As `Engine.events`."""
        _refuse_name("session", session)
        with self._pieces.listening(session, pieces) as heard:
            newest: Event | None = None
            while True:
                found = await self._in_thread(self._store.events, session, after)
                for piece in heard.take():
                    # One that comes after what it is a piece of would be heard twice.
                    if newest is None or piece.run_id != newest.run_id or piece.sequence > newest.sequence:
                        yield Told(None, piece)
                for position, body in found:
                    after, newest = position, self._codec.load_event(from_line(body))
                    yield Told(position, newest)
                if not found:
                    await self._wait()

    async def sessions(self) -> list[Row]:
        """All sessions, the ones that changed last first."""
        return await self._in_thread(self._store.sessions)

    async def log(self, session: str) -> str:
        """The log of a session as lines of JSON: what it begins with, and the inputs since."""
        kept, _ = await self._in_thread(self._store.load, session)
        return "" if kept is None else kept.base + "".join(kept.batches)

    async def delete(self, session: str) -> None:
        """Forget a session. Raises EngineError when something is still to be done in it."""
        await self.state(session)
        if not await self._in_thread(self._store.delete, session):
            raise EngineError(f"session {session} has something to do: cancel it first, and have it served until it rests")

    async def serve(self, make_agent: Callable[[str], Agent], *, slots: int = 64) -> None:
        """As `Engine.serve`."""
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise ValueError(f"slots must be a positive int, not {slots!r}")
        worker = Worker(
            self._store, self._pieces, self._in_thread, self._wait, self._wake, make_agent,
            slots=slots, lease=self._lease, base_every=self._base_every,
        )  # fmt: skip
        await worker.serve()

    async def aclose(self) -> None:
        """As `Engine.aclose`. Not to be called while `serve` goes on."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown()

    def _close(self) -> None:
        self._store.close()
        self._pieces.close()

    async def __aenter__(self) -> "SqliteEngine":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise EngineError("the engine is closed")
        # Shielded: what was begun in the thread is finished there, so a cancelled caller must not free it for another one.
        try:
            return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments))
        except sqlite3.Error as error:
            raise EngineError(f"{self._path} can't be used: {error}") from error

    def _wake(self) -> None:
        """Somebody of this process has written."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait(self) -> bool:
        """Until somebody of this process has written (True), or a look at what others have written is due."""
        changed = self._changed
        try:
            async with asyncio.timeout(self._poll):
                return await changed.wait()
        except TimeoutError:
            return False


def _refuse_name(argument: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be a string, not {name!r}")
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        raise ValueError(f"{argument} must have 1 to {NAME_LIMIT} printable characters, not {name!r}")


def state_of(row: Row, core: Any) -> SessionState:
    """A session, from its row and its replayed core; None: nothing of it was stored yet but orders."""
    known: dict[str, Any] = {
        "session": row.session, "position": row.position, "waiting": row.waiting, "owner": row.owner,
    }  # fmt: skip
    if core is None:
        return SessionState(
            **known, is_running=False, phase=str(Phase.IDLE), messages=(), archive=(), queued=Queued((), ()),
            error_message=None,
        )  # fmt: skip
    state = core.state
    return SessionState(
        **known,
        is_running=state.run is not None,
        phase=str(state.phase),
        messages=tuple(state.transcript.messages),
        archive=state.archive,
        queued=Queued(*state.queued),
        error_message=state.error_message,
    )
