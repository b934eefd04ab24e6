"""What can go wrong around an agent, as values: the kinds, one fault of a kind, and what faults are still doing.

What is injected is what the world does: it fails, takes its time, never comes back, does not listen when it is told to
stop, or speaks when nobody listens any more. Times are seconds of the simulated clock. Where faults are injected is in
`kernel.testing.fault_points`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, final

import attrs
from attrs import frozen


class FaultKind(StrEnum):
    """What can go wrong. The first word says where."""

    STREAM_BREAKS = "stream breaks"
    STREAM_FAILS = "stream fails"
    STREAM_OVERFLOWS = "stream overflows"
    STREAM_ENDS_EARLY = "stream ends early"
    STREAM_STALLS = "stream stalls"
    STREAM_SLOW = "stream slow"
    STREAM_IGNORES_CANCEL = "stream ignores cancel"
    TOOL_RAISES = "tool raises"
    TOOL_RAISES_AFTERWARDS = "tool raises afterwards"
    TOOL_SLOW = "tool slow"
    TOOL_HANGS = "tool hangs"
    TOOL_IGNORES_CANCEL = "tool ignores cancel"
    TOOL_SPEAKS_LATE = "tool speaks late"
    HOOK_RAISES = "hook raises"
    HOOK_SLOW = "hook slow"
    HOOK_HANGS = "hook hangs"
    HOOK_IGNORES_CANCEL = "hook ignores cancel"
    LISTENER_RAISES = "listener raises"
    LISTENER_RAISES_LATER = "listener raises later"
    LISTENER_SLOW = "listener slow"
    LISTENER_HANGS = "listener hangs"
    LISTENER_CANCELS = "listener cancels"
    LISTENER_STEERS = "listener steers"
    LISTENER_FOLLOWS_UP = "listener follows up"
    LISTENER_PROMPTS = "listener prompts"
    LISTENER_WAITS = "listener waits"
    CANCEL_RUN = "outside cancels the run"
    CANCEL_AWAITING_TASK = "outside cancels the awaiting task"
    CANCEL_KERNEL_TASK = "outside cancels a task of the kernel"
    STEER = "outside steers"
    FOLLOW_UP = "outside follows up"

    @property
    def place(self) -> str:
        """Where it goes wrong: stream, tool, hook, listener or outside."""
        return self.partition(" ")[0]


@final
@frozen
class Fault:
    """Something that goes wrong. *amount* is how many parts of a stream come before it, or how many seconds it takes.

    >>> str(Fault(FaultKind.STREAM_BREAKS, 2)), Fault.parse("tool slow@0.5").amount
    ('stream breaks@2', 0.5)
    """

    kind: FaultKind = attrs.field(converter=FaultKind)
    amount: float = 0

    def __str__(self) -> str:
        return f"{self.kind}@{self.amount:g}" if self.amount else str(self.kind)

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """The fault that *text* names. ValueError when there is none of that name."""
        kind, _, amount = text.partition("@")
        return cls(FaultKind(kind), float(amount or 0))


def _menu(*entries: tuple[FaultKind, tuple[float, ...]]) -> tuple[Fault, ...]:
    return tuple(Fault(kind, amount) for kind, amounts in entries for amount in amounts)


MENU: Final[tuple[Fault, ...]] = _menu(
    (FaultKind.STREAM_BREAKS, (0, 1)),
    (FaultKind.STREAM_FAILS, (0, 1)),
    (FaultKind.STREAM_OVERFLOWS, (0,)),
    (FaultKind.STREAM_ENDS_EARLY, (0, 1)),
    (FaultKind.STREAM_STALLS, (0, 1)),
    (FaultKind.STREAM_SLOW, (0, 1, 3)),
    (FaultKind.STREAM_IGNORES_CANCEL, (1, 60)),
    (FaultKind.TOOL_RAISES, (0,)),
    (FaultKind.TOOL_RAISES_AFTERWARDS, (0,)),
    (FaultKind.TOOL_SLOW, (0, 1, 3)),
    (FaultKind.TOOL_HANGS, (0,)),
    (FaultKind.TOOL_IGNORES_CANCEL, (1, 60)),
    (FaultKind.TOOL_SPEAKS_LATE, (0, 1, 60)),
    (FaultKind.HOOK_RAISES, (0,)),
    (FaultKind.HOOK_SLOW, (0, 1)),
    (FaultKind.HOOK_HANGS, (0,)),
    (FaultKind.HOOK_IGNORES_CANCEL, (1, 60)),
    (FaultKind.LISTENER_RAISES, (0,)),
    (FaultKind.LISTENER_RAISES_LATER, (0,)),
    (FaultKind.LISTENER_SLOW, (0, 1)),
    (FaultKind.LISTENER_HANGS, (0,)),
    (FaultKind.LISTENER_CANCELS, (0,)),
    (FaultKind.LISTENER_STEERS, (0,)),
    (FaultKind.LISTENER_FOLLOWS_UP, (0,)),
    (FaultKind.LISTENER_PROMPTS, (0,)),
    (FaultKind.LISTENER_WAITS, (0,)),
    (FaultKind.CANCEL_RUN, (0,)),
    (FaultKind.CANCEL_AWAITING_TASK, (0,)),
    (FaultKind.CANCEL_KERNEL_TASK, (0, 1)),
    (FaultKind.STEER, (0,)),
    (FaultKind.FOLLOW_UP, (0,)),
)
"""What `explore` chooses from. A minute is longer than any grace; a second is shorter than most."""

ALL_FAULTS: Final = frozenset(FaultKind)
"""Every kind."""

Decide = Callable[[], Fault | None]


class InjectedError(Exception):
    """What an injected fault raises."""


@final
class Aftermath:
    """What injected faults are still doing: how many hang for ever, and how many end by themselves in their time."""

    def __init__(self) -> None:
        self.hanging = 0
        self.busy = 0

    @contextmanager
    def hang(self) -> Iterator[None]:
        """While somebody hangs."""
        self.hanging += 1
        try:
            yield
        finally:
            self.hanging -= 1

    @contextmanager
    def work(self) -> Iterator[None]:
        """While somebody takes a time that ends."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1


def scripted(script: tuple[Fault | str | None, ...]) -> Decide:
    """Answers with one entry of *script* after the other, and with None after its end."""
    faults = iter([Fault.parse(entry) if isinstance(entry, str) else entry for entry in script])
    return lambda: next(faults, None)
