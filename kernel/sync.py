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
    """Cancel what is left. Who is deaf shows only when it was told to stop, and has `cancel_grace` for it, as ever."""
    tasks = {task for task in asyncio.all_tasks(loop) if task not in shell.abandoned}
    for task in tasks:
        task.cancel()
    if tasks:
        _, deaf = loop.run_until_complete(asyncio.wait(tasks, timeout=shell.core.state.config.cancel_grace))
    else:
        deaf = set()
    if not deaf and not shell.abandoned:
        loop.run_until_complete(loop.shutdown_asyncgens())
    for future in (*deaf, *shell.abandoned):
        future._log_destroy_pending = False  # type: ignore[attr-defined]  # it is known, and nothing can be done
