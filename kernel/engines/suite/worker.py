"""A worker of the suite: `python -m kernel.engines.suite.worker ENGINE WORLD SLOTS [bare]`. It says when it serves."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from kernel.engines.opening import open_engine
from kernel.engines.suite.plans import Folder, agent


async def serve(engine_name: str, world: Folder, slots: int, *, with_tools: bool) -> None:
    """Serve until SIGTERM."""
    async with open_engine(engine_name) as engine:
        serving = asyncio.create_task(engine.serve(lambda _: agent(world, with_tools=with_tools), slots=slots))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        sys.stdout.write("serving\n")
        sys.stdout.flush()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Folder(Path(sys.argv[2])), int(sys.argv[3]), with_tools="bare" not in sys.argv))
