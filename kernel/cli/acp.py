"""`python -m kernel acp`: an agent for editors, over the standard streams."""

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kernel import Agent
from kernel.adapters.acp_sessions import SessionStore, default_folder
from kernel.cli.options import AgentMaker, add_agent_options

NEEDS: Final = 'python -m kernel acp needs the extra "acp": pip install "phasekernel[acp]"'
ASKED_FOR: Final = frozenset({"write_file", "run_command"})
_BUFFER: Final = 2**20
_FAREWELL: Final = 10.0
"""Seconds for runs to settle when the editor has gone: twice the grace of a cancel."""


def main(argv: Sequence[str]) -> int:
    """The command `acp`: until the editor closes the connection. 2 when it is wrongly called or can't begin."""
    parser = argparse.ArgumentParser(
        prog="python -m kernel acp",
        description="An agent for editors that speak the Agent Client Protocol: run by the editor, not by hand. "
        "The editor's directory is the root of the tools. Before a file is written or a command run, the user is asked.",
        epilog="How to set it up: docs/editors.md. Exit status: 0 the editor has gone, 2 wrongly called.",
    )
    add_agent_options(parser)
    parser.add_argument("--no-ask", action="store_true", help="do what --write and --run allow without asking the user")
    parser.add_argument("--sessions", type=Path, metavar="DIR", help=f"where they are kept; default: {default_folder()}")
    options = parser.parse_args(argv)
    try:
        import acp

        from kernel.adapters.acp import EditorAgent
    except ImportError as error:
        parser.error(f"{NEEDS} ({error.name} is missing)")
    if options.root is not None:
        parser.error("--root has no meaning here: the editor says which directory it is about")
    try:
        make_agent = AgentMaker(options, timing=True)
    except (ImportError, OSError, TypeError, ValueError) as error:
        parser.error(str(error))

    def make(*, root: Path, more_tools: Sequence[Any], **more: Any) -> Agent:
        return make_agent(root=root, more_tools=more_tools, **more)

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    store = SessionStore(options.sessions or default_folder())
    editor = EditorAgent(make, store, frozenset() if options.no_ask else ASKED_FOR)
    try:
        return asyncio.run(_serve(acp, editor))
    except ValueError as error:  # the streams are files, say
        parser.error(f"the standard streams must be pipes to an editor: {error}")
    except KeyboardInterrupt:
        return 0
    finally:
        make_agent.close()


async def _serve(acp: Any, editor: Any) -> int:
    from kernel.adapters.acp_transport import LineTransport

    transport = LineTransport(*await _streams())
    try:
        with contextlib.suppress(ConnectionError):
            await acp.run_agent(editor, transport)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await editor.aclose()
    return 0


async def _streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The standard streams, for the protocol alone: whatever else is printed in this process goes to standard error."""
    loop = asyncio.get_running_loop()
    outgoing = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=_BUFFER)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, outgoing)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
