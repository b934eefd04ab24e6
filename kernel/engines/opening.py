"""An engine by its name, as the command line and the suite have it: `sqlite:FILE`."""

from typing import TYPE_CHECKING

from kernel.engines.port import EngineError

if TYPE_CHECKING:
    from kernel.engines.sqlite import SqliteEngine


def open_engine(name: str) -> "SqliteEngine":
    """The engine called *name*. Raises EngineError for a name of none, and what the engine itself raises."""
    kind, _, detail = name.partition(":")
    if kind == "sqlite" and detail:
        from kernel.engines.sqlite import SqliteEngine

        return SqliteEngine(detail)
    raise EngineError(f"there is no engine {name!r}; there is sqlite:FILE")
