"""The sessions in the file. Each method is one transaction, and blocks: it is called in a thread.

Theory. A session has one owner, a worker, and an epoch that grows whenever the owner changes. A worker that was paused and
comes back still believes in an epoch of before: what it wants to store finds no row, so it is told that it has lost the
session and nothing is stored twice. A worker has one lease for all that it owns; when it is over, anybody may take them.
"""

import json
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, final

from attrs import frozen

from kernel.engines.hosting import Batch, Kept
from kernel.engines.port import Answer, EngineError, EventsGoneError
from kernel.engines.sqlite.file import connect

_ROWS: Final = (
    "SELECT sid, live, owner, position, "
    "(SELECT count(*) FROM orders o WHERE o.sid = s.sid AND status = 'waiting'), changed FROM session s "
)
_FREE: Final = (
    "SELECT sid FROM session s LEFT JOIN worker w ON w.id = s.owner WHERE s.live = 1 AND s.owner IS NOT ?1 "
    "AND (w.id IS NULL OR w.lease < ?2) AND sid NOT IN (SELECT value FROM json_each(?3)) LIMIT ?4"
)
_CLAIM: Final = f"UPDATE session SET owner = ?1, epoch = epoch + 1 WHERE sid IN ({_FREE}) RETURNING sid, epoch"  # noqa: S608
ORDERS_KEPT: Final = 1000
"""Orders that are done, for each session: so long a key is known."""


@final
@frozen
class Claimed:
    """A session that this worker owns from now on."""

    session: str
    epoch: int


@final
@frozen
class Row:
    """A session in a list."""

    session: str
    live: bool
    owner: str | None
    position: int
    waiting: int
    changed: float


@final
class Store:
    """One connection to the file *path*."""

    def __init__(self, path: Path, retain_events: int) -> None:
        self._path = path
        self._retain_events = retain_events
        self._db = connect(path)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    # ---- for whoever asks ----

    def submit(self, session: str, body: str, key: str | None) -> int:
        """Store an order; its number, or the number of the one that has this key already."""
        with _Transaction(self._db):
            if key is not None:
                known = self._db.execute("SELECT n, body FROM orders WHERE sid = ? AND key = ?", (session, key)).fetchone()
                if known is not None:
                    if known[1] != body:
                        raise EngineError(f"session {session}: the key {key!r} was used for another order")
                    return int(known[0])
            (number,) = self._db.execute(
                "INSERT INTO session(sid, orders, live, changed) VALUES (?, 1, 1, ?) ON CONFLICT(sid) DO UPDATE SET "
                "orders = orders + 1, live = 1, changed = excluded.changed RETURNING orders",
                (session, time.time()),
            ).fetchone()
            self._db.execute("INSERT INTO orders(sid, n, key, body) VALUES (?, ?, ?, ?)", (session, number, key, body))
            return int(number)

    def answer(self, session: str, number: int) -> Answer:
        """What became of an order."""
        row = self._db.execute(
            "SELECT status, code, text FROM orders WHERE sid = ? AND n = ?", (session, number)
        ).fetchone()
        if row is None:
            raise EngineError(f"session {session} has no order {number}, or it is done long ago")
        return Answer(*row)

    def load(self, session: str) -> tuple[Kept | None, Row]:
        """The log of a session, and its row. Raises EngineError when there is no such session."""
        with _Transaction(self._db, "DEFERRED"):
            rows = self._rows("WHERE sid = ?", (session,))
            if not rows:
                raise EngineError(f"there is no session {session} in {self._path}")
            (base,) = self._db.execute("SELECT base FROM session WHERE sid = ?", (session,)).fetchone()
            batches = self._db.execute("SELECT inputs FROM log WHERE sid = ? ORDER BY n", (session,)).fetchall()
            return (None if base is None else Kept(base, tuple(inputs for (inputs,) in batches))), rows[0]

    def events(self, session: str, after: int, limit: int = 256) -> list[tuple[int, str]]:
        """The next events after a position."""
        found: list[tuple[int, str]] = self._db.execute(
            "SELECT position, body FROM event WHERE sid = ? AND position > ? ORDER BY position LIMIT ?",
            (session, after, limit),
        ).fetchall()
        if found and found[0][0] > after + 1:
            raise EventsGoneError(session, after, found[0][0])
        return found

    def sessions(self) -> list[Row]:
        """All of them, the ones that changed last first."""
        return self._rows("ORDER BY changed DESC, sid", ())

    def delete(self, session: str) -> bool:
        """Forget a session that nobody is working on; False when somebody may be."""
        with _Transaction(self._db):
            (gone,) = self._db.execute("SELECT count(*) FROM session WHERE sid = ? AND live = 0", (session,)).fetchone()
            if gone:
                for table in ("session", "orders", "log", "event"):
                    self._db.execute(f"DELETE FROM {table} WHERE sid = ?", (session,))  # noqa: S608  # no word of a user's
            return bool(gone)

    def _rows(self, where: str, values: tuple[object, ...]) -> list[Row]:
        return [Row(sid, bool(live), *rest) for sid, live, *rest in self._db.execute(_ROWS + where, values)]

    def version(self) -> int:
        """A number that is another one when somebody else has written."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        return int(version)

    # ---- for workers ----

    def renew(self, worker: str, lease: float) -> None:
        """Own what this worker owns for *lease* seconds more."""
        self._db.execute(
            "INSERT INTO worker VALUES (?, ?) ON CONFLICT(id) DO UPDATE SET lease = excluded.lease",
            (worker, time.time() + lease),
        )

    def claim(self, worker: str, limit: int, but: Iterable[str] = ()) -> list[Claimed]:
        """Take sessions that have something to be done and no living owner, *but* these."""
        given = (worker, time.time(), json.dumps(list(but)), limit)
        if self._db.execute(_FREE, given).fetchone() is None:  # without waiting for a turn to write
            return []
        with _Transaction(self._db):
            found = self._db.execute(_CLAIM, given).fetchall()
            self._db.execute(  # of workers that own nothing any more
                "DELETE FROM worker WHERE lease < ? AND id NOT IN (SELECT owner FROM session WHERE owner IS NOT NULL)",
                (time.time() - 60,),
            )
            return [Claimed(sid, epoch) for sid, epoch in found]

    def orders(self, worker: str) -> list[tuple[str, int, str]]:
        """The orders that wait in the sessions of a worker."""
        return self._db.execute(
            "SELECT o.sid, o.n, o.body FROM session s JOIN orders o ON o.sid = s.sid AND o.status = 'waiting' "
            "WHERE s.owner = ? AND s.live = 1 ORDER BY o.sid, o.n",
            (worker,),
        ).fetchall()

    def leave(self, worker: str) -> None:
        """Own nothing any more, whatever it was."""
        with _Transaction(self._db):
            self._db.execute("UPDATE session SET owner = NULL WHERE owner = ?", (worker,))
            self._db.execute("DELETE FROM worker WHERE id = ?", (worker,))

    def release(self, worker: str, sessions: Iterable[Claimed]) -> None:
        """Own these no longer."""
        with _Transaction(self._db):
            self._db.executemany(
                "UPDATE session SET owner = NULL WHERE sid = ? AND epoch = ? AND owner = ?",
                [(claimed.session, claimed.epoch, worker) for claimed in sessions],
            )

    def append(self, worker: str, batches: Iterable[tuple[Claimed, Batch]]) -> list[Claimed]:
        """Store what these sessions of a worker hand in, all in one transaction. Returns the ones that it has lost."""
        lost: list[Claimed] = []
        with _Transaction(self._db):
            for claimed, batch in batches:
                if not self._append(worker, claimed, batch):
                    lost.append(claimed)
        return lost

    def _append(self, worker: str, claimed: Claimed, batch: Batch) -> bool:
        sid, db = claimed.session, self._db
        row = db.execute(
            "UPDATE session SET batch = batch + 1, position = position + ?, base = coalesce(?, base), changed = ? "
            "WHERE sid = ? AND epoch = ? AND owner = ? RETURNING batch, position",
            (len(batch.events), batch.base, time.time(), sid, claimed.epoch, worker),
        ).fetchone()
        if row is None:
            return False
        number, position = row
        if batch.base is not None:
            db.execute("DELETE FROM log WHERE sid = ?", (sid,))
        if batch.inputs:
            db.execute("INSERT INTO log VALUES (?, ?, ?)", (sid, number, batch.inputs))
        first = position - len(batch.events) + 1
        db.executemany(
            "INSERT INTO event VALUES (?, ?, ?)", [(sid, first + place, body) for place, body in enumerate(batch.events)]
        )
        db.executemany(
            "UPDATE orders SET status = ?, code = ?, text = ? WHERE sid = ? AND n = ?",
            [(status, code, text, sid, order) for order, status, code, text in batch.outcomes],
        )
        if batch.idle:
            self._rest(sid, position)
        return True

    def _rest(self, sid: str, position: int) -> None:
        """Nothing is left to be done, unless an order came meanwhile; and what is too old is forgotten."""
        db = self._db
        db.execute(
            "UPDATE session SET live = EXISTS (SELECT 1 FROM orders WHERE sid = ?1 AND status = 'waiting') WHERE sid = ?1",
            (sid,),
        )
        db.execute("DELETE FROM event WHERE sid = ? AND position <= ?", (sid, position - self._retain_events))
        db.execute(
            "DELETE FROM orders WHERE sid = ?1 AND status <> 'waiting' AND n <= "
            "(SELECT orders FROM session WHERE sid = ?1) - ?2",
            (sid, ORDERS_KEPT),
        )


@final
class _Transaction:
    """All or nothing. `IMMEDIATE` waits for its turn at the beginning, where nothing has been read yet."""

    def __init__(self, db: sqlite3.Connection, kind: str = "IMMEDIATE") -> None:
        self._db = db
        self._kind = kind

    def __enter__(self) -> None:
        self._db.execute(f"BEGIN {self._kind}")

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error:  # the disk is full: the next one must not find this one open
                self._roll_back()
                raise
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite may have done so itself
            self._db.execute("ROLLBACK")
