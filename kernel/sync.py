"""Running an agent where no event loop is: for scripts and notebooks."""

import asyncio
from collections.abc import Callable

from kernel.errors import WrongLoopError
from kernel.events import RunResult
from kernel.run import Run
from kernel.shell import Shell


def run_to_end(start: Callable[[], Run], shell: Shell) -> RunResult:
    """Start a run in a loop of its own and return its result.

    Unlike `asyncio.run`, the end of the loop does not wait for what was abandoned: that ignores its cancellation, and
    waiting for it would hang the caller.
    """
    if asyncio._get_running_loop() is not None:
        raise WrongLoopError(
            "run_sync() was called inside a running event loop; there, await agent.prompt(...) instead"
        )
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_settled(start))
    finally:
        try:
            _wind_down(loop, shell)
        finally:
            loop.close()


async def _settled(start: Callable[[], Run]) -> RunResult:
    return await start()


def _wind_down(loop: asyncio.AbstractEventLoop, shell: Shell) -> None:
    deaf = set(shell.abandoned)
    tasks = [task for task in asyncio.all_tasks(loop) if task not in deaf]
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    if not deaf:
        loop.run_until_complete(loop.shutdown_asyncgens())
    for future in deaf:
        future._log_destroy_pending = False  # type: ignore[attr-defined]  # it is known, and nothing can be done
