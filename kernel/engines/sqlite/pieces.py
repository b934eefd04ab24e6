"""Pieces of responses and of tools' progress, from the process that carries a session out to those who watch it.

They are kept nowhere, so they have a file of their own beside the sessions, which is written without waiting for the
disk, holds the newest pieces only, and may be deleted at any time. Within one process they do not go through it. Many
pieces go in one row, as many as came within one look of the worker's.
"""

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from kernel.codec import Codec
from kernel.engines.port import EngineError
from kernel.events import Event
from kernel.jsonl import from_line, to_line

ROWS_KEPT: Final = 2000
HELD: Final = 10_000
"""Pieces that wait for a reader of this process; of one that does not read, the oldest are dropped."""


@final
class Heard:
    """What a reader has not taken yet."""

    def __init__(self, session: str, pieces: "Pieces | None") -> None:
        self.session = session
        self.here: deque[Event] = deque(maxlen=HELD)
        self.row = 0 if pieces is None else pieces.newest()
        self._pieces = pieces

    def take(self) -> list[Event]:
        """The pieces since the last time: of this process, or of others."""
        if self._pieces is None:
            return []
        taken = [*self.here, *self._pieces.read(self)]
        self.here.clear()
        return taken


@final
class Pieces:
    """The pieces of the sessions in the file *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + "-pieces")
        self._db: sqlite3.Connection | None = None
        self._opening = threading.Lock()  # readers ask in the loop, and the worker writes in its thread
        self._readers: list[Heard] = []
        self._waiting: dict[str, list[Event]] = {}
        self._codec = Codec()
        self.writer = ""
        """Who writes in this process, whose rows its own readers have heard already."""

    @contextlib.contextmanager
    def listening(self, session: str, wanted: bool) -> Iterator[Heard]:
        """A reader of what is told of *session* from now on; of nothing, when it is not *wanted*."""
        heard = Heard(session, self if wanted else None)
        if wanted:
            self._readers.append(heard)
        try:
            yield heard
        finally:
            if wanted:
                self._readers.remove(heard)

    def tell(self, session: str, event: Event) -> None:
        """Tell a piece to the readers of this process, and let it wait until it is handed on."""
        for reader in self._readers:
            if reader.session == session:
                reader.here.append(event)
        self._waiting.setdefault(session, []).append(event)

    def taken(self) -> dict[str, list[Event]]:
        """What waits to be handed on to other processes, which is from now on the caller's to `write`."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def write(self, waiting: dict[str, list[Event]]) -> None:
        """Hand on to other processes what was taken."""
        db, dump = self._open(), self._codec.dump_event
        with contextlib.suppress(sqlite3.Error):  # nobody is owed a piece
            rows = [
                (self.writer, session, "".join(to_line(dump(event)) for event in events))
                for session, events in waiting.items()
            ]
            db.executemany("INSERT INTO piece(writer, sid, lines) VALUES (?, ?, ?)", rows)
            db.execute("DELETE FROM piece WHERE id <= (SELECT max(id) FROM piece) - ?", (ROWS_KEPT,))

    def read(self, heard: Heard) -> list[Event]:
        """What other processes have told a reader."""
        with contextlib.suppress(sqlite3.Error):
            rows = self._open().execute(
                "SELECT id, writer, lines FROM piece WHERE sid = ? AND id > ? ORDER BY id", (heard.session, heard.row)
            )
            found: list[Event] = []
            for row, writer, lines in rows.fetchall():
                heard.row = row
                if writer != self.writer:
                    found += [self._codec.load_event(from_line(line)) for line in lines.splitlines()]
            return found
        return []

    def newest(self) -> int:
        """The row after which a new reader begins."""
        with contextlib.suppress(sqlite3.Error):
            (newest,) = self._open().execute("SELECT coalesce(max(id), 0) FROM piece").fetchone()
            return int(newest)
        return 0

    def close(self) -> None:
        """Let go of the file."""
        if self._db is not None:
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        with self._opening:
            if self._db is None:
                self._db = self._connect()
            return self._db

    def _connect(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(self._path, timeout=1, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = OFF")
            db.execute(
                "CREATE TABLE IF NOT EXISTS piece "
                "(id INTEGER PRIMARY KEY AUTOINCREMENT, writer TEXT, sid TEXT, lines TEXT)"
            )
        except sqlite3.DatabaseError as error:
            raise EngineError(f"{self._path} can't be used: {error}; delete it, it holds nothing of worth") from error
        return db
