"""What goes on though no run waits for it: what ignored its cancellation, threads that outlive their call, and listeners
that are only observed. Most agents never have any, so this is made when the first one comes.
"""

import asyncio
import threading
from typing import Any, Final, final

from kernel.snapshot import AbandonedWork

Futures = dict["asyncio.Future[Any]", AbandonedWork]
NONE_LEFT: Final[Futures] = {}
"""What an agent without leftovers has abandoned."""


@final
class Leftovers:
    """The leftovers of one agent: `abandoned` by what tells of their end, `observed` to be held while they go on."""

    __slots__ = ("_threads", "abandoned", "observed")

    def __init__(self) -> None:
        self.abandoned: Futures = {}
        self.observed: set[asyncio.Future[Any]] = set()
        self._threads: dict[asyncio.Future[Any], threading.Thread] = {}

    def keep(self, task: "asyncio.Future[Any]", work: AbandonedWork, thread: threading.Thread | None = None) -> None:
        """Remember *work*, which was told to stop and goes on, until *task* is done. *thread*, if that is what goes on."""
        self.abandoned[task] = work
        if thread is not None:
            self._threads[task] = thread
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Future[Any]") -> None:
        self.abandoned.pop(task, None)
        self._threads.pop(task, None)
        if not task.cancelled():
            task.exception()  # so that nobody is told that it was never looked at

    def bury(self) -> tuple[list[AbandonedWork], list[threading.Thread]]:
        """Forget what was abandoned on a loop that is closed by now, which will never go on. Returns it, and the threads
        of closed loops that do go on.
        """
        dead: list[AbandonedWork] = []
        alive: list[threading.Thread] = []
        for task, work in list(self.abandoned.items()):
            if not task.get_loop().is_closed():
                continue
            thread = self._threads.get(task)
            if thread is not None and thread.is_alive():
                alive.append(thread)
            else:
                del self.abandoned[task]
                self._threads.pop(task, None)
                dead.append(work)
        return dead, alive
