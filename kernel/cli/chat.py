"""`python -m kernel [QUESTION]`: an agent answers a question about the files of a directory.

By default a recording of a real model is played, so that it needs no account and no network; the tools are real and read
real files. In a terminal, a line that is typed steers the run, Ctrl-C cancels it, and a second Ctrl-C leaves at once.
"""

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn, final

from kernel import Agent, KernelError, Receipt
from kernel.cli.console import Console, TraceConsole, console_for, prepare
from kernel.cli.keyboard import edited_lines, interrupts, typed_lines
from kernel.cli.options import AgentMaker, add_agent_options
from kernel.cli.setting import QUESTION, SAMPLE
from kernel.trace.file import TraceWriter

COMMANDS: Final = ("scenario", "check", "journal", "timeline", "path", "serve", "acp", "doctor")
"""What stands in the place of a question when it is another command that is meant (`kernel.__main__`)."""
INTERRUPTED: Final = 130  # what shells expect of a command that Ctrl-C ended


def main(argv: Sequence[str]) -> int:
    """Ask, show the run, and return the exit status."""
    parser = _parser()
    if near := get_close_matches(argv[0] if argv else "", COMMANDS, 1, 0.75):
        parser.error(f"there is no command {argv[0]!r}; {near[0]} is meant? A question of one word needs a question mark")
    options = parser.parse_args(argv)
    if not options.question.strip():
        parser.error("QUESTION must not be empty")
    console = _console(options)
    try:
        # Nobody watches a pipe, and nobody steers through one.
        make_agent = AgentMaker(options, timing=sys.stdout.isatty())
        agent = make_agent()
        trace = None if options.trace is None else options.trace.open("w", encoding="ascii", newline="\n")
    except (ImportError, OSError, TypeError, ValueError) as error:
        parser.error(str(error))
    for remark in _remarks(options):
        console.note(remark)
    if trace is not None:
        agent.subscribe(TraceWriter(trace.write))
    try:
        return asyncio.run(Chat(agent, console).run(options.question))
    finally:
        if trace is not None:
            trace.close()
        make_agent.close()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m kernel",
        description="An agent answers a question about the files of a directory.",
        epilog=f"Other commands: python -m kernel {'|'.join(COMMANDS)}. "
        "Exit status: 0 completed, 1 failed or cancelled, 2 wrongly called, 130 left with a second Ctrl-C.",
    )
    parser.add_argument("question", nargs="?", default=QUESTION, metavar="QUESTION", help=f"default: {QUESTION!r}")
    add_agent_options(parser)
    parser.add_argument(
        "--plain", action="store_true", help='lines in a terminal too; its live view needs: pip install "phasekernel[cli]"'
    )
    parser.add_argument("--json", action="store_true", help="print a trace: events as lines of JSON; remarks on stderr")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a trace, for check, timeline, path, serve")
    return parser


def _console(options: Namespace) -> Console:
    """What the run is shown on: the live view where there is a terminal that can, and what draws it."""
    stream = prepare(sys.stdout)
    if options.json:
        return TraceConsole(stream, sys.stderr)
    can_draw = stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    if options.plain or not can_draw or find_spec("rich") is None:
        return console_for(stream)
    from kernel.cli.live import LiveConsole

    return LiveConsole(stream, color="NO_COLOR" not in os.environ)


def _remarks(options: Namespace) -> Iterator[str]:
    """What a user would otherwise take for more than it is."""
    if options.model != "replay":
        return
    yield "a recorded model answers (python -m kernel --model local runs a real one); the tools read real files"
    if options.question != QUESTION:
        yield f"the recording answers its own question: {QUESTION}"
    if options.root is not None:
        yield f"the recorded answer is about the files in {SAMPLE}"


@final
class Chat:
    """One run and the person who watches it."""

    def __init__(self, agent: Agent, console: Console) -> None:
        self._agent = agent
        self._console = console
        self._receipts: list[Receipt] = []
        self._interrupted = False
        self._held = ExitStack()

    async def run(self, question: str) -> int:
        """Ask, show what happens, and return the exit status."""
        with self._keyboard():
            async with self._agent:
                run = self._agent.prompt(question)
                async for event in run:
                    self._console.show(event)
                result = await run
        for receipt in self._receipts:
            if receipt.status != "delivered":
                self._console.note(f"came too late and was not delivered: {receipt.message.text}")
        return 0 if result.status == "completed" else 1

    @contextmanager
    def _keyboard(self) -> Iterator[None]:
        with self._held as stack:
            stack.enter_context(interrupts(self._interrupt))
            if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() and stack.enter_context(self._lines()):
                self._console.note("type a line to steer (+ first: a follow-up); Ctrl-C cancels, twice leaves")
            stack.enter_context(self._console.watch())
            yield

    def _lines(self) -> AbstractContextManager[bool]:
        if self._console.shows_input:
            return edited_lines(sys.stdin, self._steer, self._console.typed)
        return typed_lines(sys.stdin, self._steer)

    def _steer(self, text: str) -> None:
        later = text.removeprefix("+").strip() if text.startswith("+") else ""
        try:
            self._receipts.append(self._agent.follow_up(later) if later else self._agent.steer(text))
        except KernelError as error:
            self._console.note(str(error))

    def _interrupt(self) -> None:
        if self._interrupted:
            self._leave()
        self._interrupted = True
        if self._agent.cancel("Ctrl-C"):
            self._console.note("cancelling; Ctrl-C once more leaves at once")

    def _leave(self) -> NoReturn:
        """At once: without waiting for a tool that does not let go."""
        self._held.close()  # the terminal is put back as it was
        self._console.note("left")
        sys.stdout.flush()
        os._exit(INTERRUPTED)
