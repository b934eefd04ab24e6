"""`python -m kernel serve --engine ENGINE` carries sessions out; `python -m kernel sessions` asks for them."""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kernel.cli.options import AgentMaker, add_agent_options
from kernel.codec import Codec
from kernel.engines import EngineError, Order
from kernel.engines.opening import open_engine
from kernel.events import RunFinished
from kernel.jsonl import to_line

if TYPE_CHECKING:
    from kernel.engines.sqlite import SqliteEngine

_ENGINE: Final = "where the sessions are: sqlite:FILE"


def serve_sessions(argv: Sequence[str]) -> int:
    """The command `serve --engine`: until Ctrl-C or SIGTERM. 2 when it is wrongly called or can't begin."""
    parser = argparse.ArgumentParser(
        prog="python -m kernel serve",
        description="Carry the sessions of an engine out with one agent. Start as many as there are processors: they share "
        "the sessions, and what one leaves when it is killed another one goes on with.",
    )
    parser.add_argument("--engine", required=True, help=_ENGINE)
    parser.add_argument("--slots", type=int, default=64, help="sessions at a time; default: 64")
    add_agent_options(parser)
    options = parser.parse_args(argv)
    if options.slots < 1:
        parser.error(f"--slots must be 1 or more, not {options.slots}")
    try:
        make_agent = AgentMaker(options, timing=False)
    except (ImportError, OSError, TypeError, ValueError) as error:
        parser.error(str(error))

    shown = logging.StreamHandler()  # to the standard error: a session that can't be served must not be silent
    shown.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("kernel.engines").addHandler(shown)

    async def serve() -> None:
        async with open_engine(options.engine) as engine:
            serving = asyncio.create_task(engine.serve(lambda session: make_agent(), slots=options.slots))
            with contextlib.suppress(NotImplementedError):  # where there are no signals, Ctrl-C is all there is
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
            print(f"serving {options.engine}", flush=True)
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    try:
        with contextlib.suppress(KeyboardInterrupt):  # which is how it is meant to end
            asyncio.run(serve())
    except EngineError as error:
        parser.error(str(error))
    finally:
        make_agent.close()
    print("stopped", file=sys.stderr)
    return 0


def sessions(argv: Sequence[str]) -> int:
    """The command `sessions`: 0, 1 when the engine refuses what is asked, 2 when it is wrongly called."""
    options = _parser().parse_args(argv)

    async def ask() -> int:
        async with open_engine(options.engine) as engine:
            return await _COMMANDS[options.what](engine, options)  # type: ignore[no-any-return]

    try:
        return asyncio.run(ask())
    except EngineError as error:
        print(f"python -m kernel sessions: error: {error}", file=sys.stderr)
        return 1
    except (TypeError, ValueError) as error:
        print(f"python -m kernel sessions: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kernel sessions", description="Ask for sessions, and tell of them. Somebody must serve them."
    )
    parser.add_argument("--engine", required=True, help=_ENGINE)
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    commands.add_parser("list", help="all sessions, the ones that changed last first")
    for name, told in (
        ("show", "its state and its conversation"),
        ("prompt", "say something to it; it waits while a run is going"),
        ("steer", "say something to the run that is going, or start one"),
        ("resume", "go on from where it stands, without saying anything"),
        ("cancel", "stop its run"),
        ("watch", "its events, until a run has finished"),
        ("export", "all that is stored of what entered its core, as JSON Lines"),
        ("delete", "forget it, when it rests"),
    ):
        command = commands.add_parser(name, help=told)
        command.add_argument("session")
        if name in ("prompt", "steer"):
            command.add_argument("text")
            command.add_argument("--key", help="the same key twice is one order")
        if name == "cancel":
            command.add_argument("--reason")
        if name == "watch":
            command.add_argument("--after", type=int, default=0, help="the position of the last event that was seen")
    return parser


async def _list(engine: "SqliteEngine", options: Any) -> int:
    for row in await engine.sessions():
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.changed))
        does = "at work" if row.live else "at rest"
        waiting = f", {row.waiting} waiting" if row.waiting else ""
        print(f"{row.session}\t{does}{waiting}\t{row.position} events\t{when}")
    return 0


async def _show(engine: "SqliteEngine", options: Any) -> int:
    state = await engine.state(options.session)
    print(f"{state.session}: {state.phase}, {state.position} events, {state.waiting} orders waiting")
    if state.error_message is not None:
        print(f"the last run failed: {state.error_message}")
    for message in state.messages:
        print(f"{message.role}: {message.text}")
    return 0


async def _order(engine: "SqliteEngine", options: Any) -> int:
    order = {
        "prompt": lambda: Order("prompt", options.text),
        "steer": lambda: Order("steer", options.text),
        "resume": lambda: Order("continue"),
        "cancel": lambda: Order("cancel", reason=options.reason),
    }[options.what]()
    number = await engine.submit(options.session, order, getattr(options, "key", None))
    print(f"order {number} of {options.session} is stored")
    return 0


async def _watch(engine: "SqliteEngine", options: Any) -> int:
    await engine.state(options.session)  # so that a session that never was is said to be none
    codec = Codec()
    async for told in engine.events(options.session, options.after):
        print(to_line({"position": told.position, **codec.dump_event(told.event)}), end="", flush=True)
        if isinstance(told.event, RunFinished):
            break
    return 0


async def _export(engine: "SqliteEngine", options: Any) -> int:
    print(await engine.log(options.session), end="")
    return 0


async def _delete(engine: "SqliteEngine", options: Any) -> int:
    await engine.delete(options.session)
    return 0


_COMMANDS: Final[dict[str, Any]] = {
    "list": _list, "show": _show, "prompt": _order, "steer": _order, "resume": _order, "cancel": _order, "watch": _watch,
    "export": _export, "delete": _delete,
}  # fmt: skip
