"""Sessions in a file of SQLite: see `engine`."""

from kernel.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
