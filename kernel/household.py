"""What of an agent outlives its runs, as a run sees it. The shell is that; a run never needs to know more of it."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from kernel.core import Core
from kernel.counting import Counting
from kernel.effects import ItemsLeft
from kernel.errors import Failure
from kernel.events import Event, RunResult
from kernel.inputs import Input, ToolSettled
from kernel.listeners import Listeners
from kernel.ports import Compactor, Hooks
from kernel.snapshot import AgentState
from kernel.work import Work


class Household(Protocol):
    """The agent between and around its runs."""

    core: Core
    counting: Counting
    hooks: Hooks
    listeners: Listeners

    @property
    def compactor(self) -> Compactor:
        """What makes summaries."""
        ...

    @property
    def awaits_listeners(self) -> bool:
        """Whether the policy is to await what listeners begin."""
        ...

    def snapshot(self) -> AgentState:
        """The agent's state as a value."""
        ...

    def report(self, input: Input) -> None:
        """Take a late report."""
        ...

    def observe(self, answer: Awaitable[Any], event: Event) -> "asyncio.Future[Any]":
        """Let a listener's answer run on its own."""
        ...

    def abandon(
        self, task: "asyncio.Future[Any]", run_id: str, kind: str, name: str, call_id: str | None = None
    ) -> None:
        """Remember something that goes on though it was told to stop."""
        ...

    def linger(self, work: Work, run_id: str, settled: ToolSettled) -> None:
        """Remember a call whose thread goes on."""
        ...

    def settle_receipts(self, effect: ItemsLeft) -> None:
        """Let the receipts of messages that left the queues say so."""
        ...

    def stored(self) -> Awaitable[None] | None:
        """What to wait for before anything begins that the world could notice: the inputs that led to it are being stored.
        None where there is nothing to wait for.
        """
        ...

    def run_over(self) -> None:
        """The run has settled."""
        ...

    def broken_result(self, run_id: str, failure: Failure) -> RunResult:
        """The result of a run that even the kernel's own failure path could not end."""
        ...
