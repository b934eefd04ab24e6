"""What the sides of the peers share."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, final

from tests.benchmarks.plans import Plan, Turn

ENDLESS = 100_000
"""Turns that a peer is allowed."""


async def pieces(turn: Turn) -> AsyncIterator[str]:
    """The text of *turn*, at its pace."""
    for text in turn.texts:
        if turn.pace == "yielding":
            await asyncio.sleep(0)
        yield text
    if turn.pace == "stuck":
        await asyncio.Event().wait()


@final
class Conversation:
    """A peer's agent with the plan of its model, and what it leaves of a run: its own form of the transcript."""

    __slots__ = ("agent", "left", "turns")

    def __init__(self, plan: Plan) -> None:
        self.turns: Iterator[Turn] = iter(plan)
        self.agent: Any = None
        self.left: Any = None
