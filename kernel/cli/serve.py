"""`python -m kernel serve`: a page to talk to an agent and to watch it, or to watch a recorded trace, on this machine."""

import argparse
import contextlib
import logging
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kernel import Agent, Message
from kernel.cli.options import AgentMaker, add_agent_options
from kernel.trace.file import Trace, TraceError, read_trace

HOST: Final = "127.0.0.1"
PORT: Final = 8421
NEEDS: Final = 'python -m kernel serve needs the extra "web": pip install "phasekernel[web]"'


def main(argv: Sequence[str]) -> int:
    """The command `serve`: until Ctrl-C. 2 when it is wrongly called or can't begin."""
    parser = argparse.ArgumentParser(
        prog="python -m kernel serve",
        description=f"A page on http://{HOST}:PORT: talk to an agent, steer and cancel it, and see its phases and tools. "
        "Each page with another ?thread=NAME is another conversation; all browsers on one see the same.",
        epilog="AG-UI clients post to /agui; the AG-UI inspector is at /inspect/. Only this machine can reach it. With "
        "`--engine sqlite:FILE` sessions are carried out instead (`serve --engine sqlite:FILE --help`).",
    )
    add_agent_options(parser)
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0 takes any that is free")
    parser.add_argument("--replay", type=Path, metavar="TRACE", help="play a recorded trace instead of running an agent")
    parser.add_argument("--speed", type=float, default=1.0, help="of --replay; default: 1")
    options = parser.parse_args(argv)
    if not 0 <= options.port < 65536:
        parser.error(f"--port must be from 0 to 65535, not {options.port}")
    if not 0.01 <= options.speed <= 1e6:
        parser.error(f"--speed must be from 0.01 to 1,000,000, not {options.speed}")
    try:
        import uvicorn

        from kernel.web.app import application
        from kernel.web.threads import RecordedThread, Threads
    except ImportError as error:
        parser.error(f"{NEEDS} ({error.name} is missing)")
    try:
        trace = None if options.replay is None else _trace(options.replay)
        make_agent = AgentMaker(options, timing=True)
        listening = socket.create_server((HOST, options.port))
    except (ImportError, OSError, TraceError, TypeError, ValueError) as error:
        parser.error(str(error))

    def make(history: Sequence[Message]) -> Agent:
        return make_agent(messages=history)

    threads = Threads(make)
    where = f"http://{HOST}:{listening.getsockname()[1]}/"
    if trace is not None:
        threads.add("recorded", RecordedThread("recorded", trace, options.speed))
        where += "?thread=recorded"
    print(f"open {where}", flush=True)
    logging.getLogger("agui_inspector").setLevel(logging.ERROR)  # it warns of what is meant here
    config = uvicorn.Config(
        application(threads), log_level="warning", access_log=False, timeout_graceful_shutdown=5, lifespan="on"
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await threads.aclose()  # first, since it would wait for streams that only then end
            await super().shutdown(sockets)

    try:
        with contextlib.suppress(KeyboardInterrupt):  # which is how it is meant to end
            Server(config).run(sockets=[listening])
    finally:
        make_agent.close()
    print("stopped", file=sys.stderr)
    return 0


def _trace(path: Path) -> Trace:
    with path.open("rb") as file:
        return read_trace(file)
