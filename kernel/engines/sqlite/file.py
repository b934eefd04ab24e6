"""The file: made, opened, and refused when it is not one of ours, before anything in it is touched.

Theory. SQLite's own header says what a file is: the number of its application, the version of its schema, its length.
It is read by SQLite, as a file that never changes, so that nothing is written, locked or made beside it. (It must not be
opened in any other way: closing it would drop the locks that this process holds on it, and the next process that closes it
would take itself for the last one and delete the log under our feet.) Each version of the schema has the statements that
lead to it from the one before; a file of a newer version is refused.
"""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from kernel.engines.port import EngineError

APPLICATION: Final = 0x50686B31
"""`Phk1`, in SQLite's `application_id`."""
_LEFT: Final = ". It was left as it is"
_REASONS: Final = {
    "file is not a database": "{} is no session file: it does not begin as a file of SQLite does",
    "database disk image is malformed": "{} is torn: it is shorter than its head says",
}
"""What SQLite says, and what it means here."""
MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE session (
      sid TEXT PRIMARY KEY,
      epoch INTEGER NOT NULL DEFAULT 0,        -- raised whenever the owner changes: who has an older one writes nothing
      owner TEXT,                              -- a worker
      live INTEGER NOT NULL DEFAULT 0,         -- something is left to be done
      orders INTEGER NOT NULL DEFAULT 0,       -- the number of the last one
      batch INTEGER NOT NULL DEFAULT 0,        -- of the last one
      position INTEGER NOT NULL DEFAULT 0,     -- of the last event
      base TEXT,                               -- what the log begins with
      changed REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX session_live ON session(live, owner);
    CREATE TABLE worker (id TEXT PRIMARY KEY, lease REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE orders (
      sid TEXT NOT NULL, n INTEGER NOT NULL, key TEXT, body TEXT NOT NULL,
      status TEXT NOT NULL DEFAULT 'waiting', code TEXT, text TEXT,
      PRIMARY KEY (sid, n), UNIQUE (sid, key)
    ) WITHOUT ROWID;
    CREATE INDEX orders_waiting ON orders(sid, n) WHERE status = 'waiting';
    CREATE TABLE log (sid TEXT NOT NULL, n INTEGER NOT NULL, inputs TEXT NOT NULL, PRIMARY KEY (sid, n)) WITHOUT ROWID;
    CREATE TABLE event (
      sid TEXT NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (sid, position)
    ) WITHOUT ROWID;
    """,
)
"""What leads from each version of the schema to the next one. Never changed once released; only added to."""
VERSION: Final = len(MIGRATIONS)


def examine(path: Path) -> int:
    """The version of the schema in the file *path*; 0 when there is no file yet. Touches nothing.

    Raises EngineError for what is not a session file of ours, is torn, or is of a newer version.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    if not size:
        raise EngineError(f"{path} is no session file, but an empty one: delete it, or choose another name")
    try:
        application, version = _marks(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError as error:
        log = path.with_name(path.name + "-wal")
        if "malformed" not in str(error) or not (log.exists() and log.stat().st_size):
            raise EngineError(_REASONS.get(str(error), f"{{}} can't be read: {error}").format(path) + _LEFT) from error
        application, version = _marks(path, "mode=ro")  # somebody is writing, so the file alone does not say it all
    if application != APPLICATION:
        raise EngineError(f"{path} is a file of SQLite, but of another application{_LEFT}")
    if version > VERSION:
        raise EngineError(
            f"{path} has version {version} of the schema, and this phasekernel knows {VERSION}: use a newer one{_LEFT}"
        )
    return version


def _marks(path: Path, how: str) -> tuple[int, int]:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    finally:
        db.close()
    return application, version


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the file *path*, which is made, or brought to this version, when it has to be."""
    try:
        if not examine(path):
            _make(path)
        connection = _open(path)
        if examine(path) < VERSION:
            _migrate(connection)
    except (sqlite3.DatabaseError, OSError) as error:
        raise EngineError(f"{path} can't be opened: {error}") from error
    return connection


def _make(path: Path) -> None:
    """Make the file elsewhere, and give it its name when it is whole: others may be looking for it at this moment."""
    making = path.with_name(f"{path.name}-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        connection = _open(making)
        _migrate(connection)
        connection.close()
        with contextlib.suppress(FileExistsError):
            os.link(making, path)
    finally:
        for left in ("", "-wal", "-shm"):
            making.with_name(making.name + left).unlink(missing_ok=True)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk before anybody acts on it
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")  # two processes may make one file: the second finds it made
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in MIGRATIONS[version:]:
            for statement in step.split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the header in the file says what it is
