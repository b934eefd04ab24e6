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
from kernel.cli.setting import QUESTION, SAMPLE, SYSTEM_PROMPT
from kernel.commands import commands
from kernel.models.local import LocalModel
from kernel.models.replay import DEMO, ReplayModel
from kernel.ports import Model
from kernel.toolbox import files
from kernel.trace.file import TraceWriter

COMMANDS: Final = ("scenario", "check", "journal", "timeline", "path", "doctor")
"""What stands in the place of a question when it is another command that is meant (`kernel.__main__`)."""
INTERRUPTED: Final = 130  # what shells expect of a command that Ctrl-C ended
_PROVIDERS: Final = ("openai", "anthropic")
SLOWED: Final = 0.1
"""How fast a recording is played in a terminal: the model was too fast to be steered by hand."""


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
        model = _model(options)
        root = _root(options)
        tools = (*files(root, write=options.write), *(commands(root) if options.run else ()))
        agent = Agent(model, tools=tools, system_prompt=SYSTEM_PROMPT)
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
        if isinstance(model, LocalModel):
            model.close()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m kernel",
        description="An agent answers a question about the files of a directory.",
        epilog=f"Other commands: python -m kernel {'|'.join(COMMANDS)}. "
        "Exit status: 0 completed, 1 failed or cancelled, 2 wrongly called, 130 left with a second Ctrl-C.",
    )
    parser.add_argument("question", nargs="?", default=QUESTION, metavar="QUESTION", help=f"default: {QUESTION!r}")
    parser.add_argument(
        "--model",
        default="replay",
        metavar="MODEL",
        help="replay plays a recording of a real model (default), replay:FILE another one; local runs a small real model; "
        "openai:NAME and anthropic:NAME ask a provider, with the key in OPENAI_API_KEY or ANTHROPIC_API_KEY",
    )
    parser.add_argument(
        "--base-url", metavar="URL", help="for openai:NAME and anthropic:NAME: another server, such as http://127.0.0.1:8080/v1"
    )
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the directory; default: the current one, and for replay its sample"
    )
    parser.add_argument("--write", action="store_true", help="let the agent write files there")
    parser.add_argument("--run", action="store_true", help="let the agent run any command, as the user that you are")
    parser.add_argument(
        "--plain", action="store_true", help='lines in a terminal too; its live view needs: pip install "phasekernel[cli]"'
    )
    parser.add_argument("--json", action="store_true", help="print a trace: events as lines of JSON; remarks on stderr")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a trace, for check, timeline, path, serve")
    parser.add_argument("--fast", action="store_true", help="play a recording without its pauses")
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


def _model(options: Namespace) -> Model:
    kind, _, detail = options.model.partition(":")
    if options.base_url is not None and kind not in _PROVIDERS:
        raise ValueError(f"--base-url goes with --model openai:NAME or anthropic:NAME, not with {options.model}")
    # Nobody watches a pipe, and nobody steers through one.
    timing = sys.stdout.isatty() and not options.fast
    match kind:
        case "replay":
            return ReplayModel(detail or DEMO, match=False, timing=timing, speed=SLOWED)
        case "local" if not detail:
            return LocalModel()
        case "openai" if detail:
            from kernel.models.openai import OpenAIModel

            return OpenAIModel(detail, base_url=options.base_url)
        case "anthropic" if detail:
            from kernel.models.anthropic import AnthropicModel

            return AnthropicModel(detail, base_url=options.base_url)
        case _ if kind in _PROVIDERS:
            raise ValueError(f"--model {kind} needs the name of a model: --model {kind}:NAME")
        case _:
            raise ValueError(
                f"--model {options.model} is unknown; there are replay, replay:FILE, local, openai:NAME and anthropic:NAME"
            )


def _root(options: Namespace) -> Path:
    if options.root is not None:
        return Path(options.root)
    return SAMPLE if options.model == "replay" else Path()


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
