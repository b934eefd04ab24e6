"""Agents that outlive their process: sessions, the orders they are given, and the engines that carry them out.

The same agent definition runs on each engine: streaming, steering, cancel, retry and parallel tools are the core's, and an
engine only stores what enters it. `kernel.engines.sqlite` is for one machine.
"""

from kernel.engines.port import (
    Answer,
    Engine,
    EngineError,
    EventsGoneError,
    Order,
    SessionState,
    Told,
    WrongVersionError,
)

__all__ = [
    "Answer", "Engine", "EngineError", "EventsGoneError", "Order", "SessionState", "Told", "WrongVersionError",
]  # fmt: skip
