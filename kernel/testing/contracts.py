"""What a check of a port found: a line for each promise, and an error when one is broken."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, final

from attrs import frozen

SETTLING: Final = 1.0
"""Seconds for what was told to stop to be gone: enough for a socket to be closed, and no rest for a leak."""


@final
@frozen
class Finding:
    """A promise, and what was seen where it was broken (None: it was kept)."""

    promise: str
    problem: str | None = None

    def __str__(self) -> str:
        return f"ok    {self.promise}" if self.problem is None else f"FAIL  {self.promise}\n      {self.problem}"


class ContractBrokenError(AssertionError):
    """A port does not keep its contract; the text has a line for each promise."""


@final
@frozen
class ContractReport:
    """What came of a check: `findings`, one for each promise, in the order in which they were looked at."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The promises that are broken."""
        return tuple(finding for finding in self.findings if finding.problem is not None)

    @property
    def passed(self) -> bool:
        """Whether all are kept."""
        return not self.problems

    def unwrap(self) -> "ContractReport":
        """The report itself; ContractBrokenError with all of it when a promise is broken."""
        if self.problems:
            raise ContractBrokenError(str(self))
        return self

    def __str__(self) -> str:
        sums = f"{len(self.findings)} promises, {len(self.problems)} broken"
        return "\n".join([f"{self.subject}: {sums}", *map(str, self.findings)])


@final
class Examiner:
    """Looks at one promise after the other. A check that raises has found its promise broken; the next one is tried all
    the same.
    """

    def __init__(self, patience: float) -> None:
        self.findings: list[Finding] = []
        self.patience = patience

    async def look(self, promise: str, check: Callable[[], Awaitable[None]]) -> None:
        """Look whether *check* finds *promise* kept: it raises `Broken` where it is not."""
        problem: str | None = None
        try:
            async with asyncio.timeout(self.patience):
                await check()
        except Broken as broken:
            problem = str(broken)
        except TimeoutError:
            problem = f"it takes longer than {self.patience} s"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        self.findings.append(Finding(promise, problem))


class Broken(Exception):  # noqa: N818  # a finding, which never leaves the examiner
    """A promise is broken, and how."""


@contextmanager
def leaving_nothing() -> Iterator[Callable[[], Awaitable[None]]]:
    """A check that no task and no open file is left of what was done since."""
    tasks, files = asyncio.all_tasks(), open_files()

    async def look() -> None:
        left = {task for task in asyncio.all_tasks() - tasks if not task.done()}
        if left:
            await asyncio.wait(left, timeout=SETTLING)
        names = sorted(task.get_name() for task in left if not task.done())
        if names:
            raise Broken(f"tasks are left: {', '.join(names)}")
        for _ in range(100):
            if open_files() <= files:
                return
            await asyncio.sleep(SETTLING / 100)  # a socket that was told to close is closed a little later
        raise Broken(f"{open_files() - files} files or sockets are left open")

    yield look


def open_files() -> int:
    """File descriptors of the process; 0 where the system does not show them."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
