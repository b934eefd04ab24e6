"""The agent of the command line: which model, which directory, what it may do there. For all commands that run one."""

from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, Final, final

from kernel import Agent
from kernel.cli.setting import SAMPLE, SYSTEM_PROMPT
from kernel.commands import commands
from kernel.models.local import LocalModel
from kernel.models.replay import DEMO, ReplayModel
from kernel.ports import Model, ModelRequest, Part, Tool
from kernel.toolbox import files

SLOWED: Final = 0.1
"""How fast a recording is played to people: the model was too fast to be steered by hand."""
_PROVIDERS: Final = ("openai", "anthropic")


def add_agent_options(parser: ArgumentParser) -> None:
    """What there is to choose of an agent."""
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
    parser.add_argument("--fast", action="store_true", help="play a recording without its pauses")


@final
class AgentMaker:
    """Makes agents as the options say; they share their model. Close it at the end.

    *timing*: a recording is played at a pace at which it can be watched. Raises ImportError, OSError, TypeError or
    ValueError when the options can't be followed.
    """

    def __init__(self, options: Namespace, *, timing: bool) -> None:
        self._options = options
        self._model = _model(options, timing and not options.fast)
        self._root = Path(options.root) if options.root is not None else SAMPLE if options.model == "replay" else Path()
        self._tools(self._root)  # now, so that a wrong directory is told at once

    def __call__(self, *, root: Path | None = None, more_tools: Iterable[Tool] = (), **more: Any) -> Agent:
        """An agent on *root*, by default the directory of the options; *more* goes to `Agent`."""
        tools = (*self._tools(root or self._root), *more_tools)
        return Agent(self._model, tools=tools, system_prompt=SYSTEM_PROMPT, **more)

    def _tools(self, root: Path) -> tuple[Any, ...]:
        return (*files(root, write=self._options.write), *(commands(root) if self._options.run else ()))

    def close(self) -> None:
        """Let go of the model."""
        if isinstance(self._model, LocalModel):
            self._model.close()


def _model(options: Namespace, timing: bool) -> Model:
    kind, _, detail = options.model.partition(":")
    if options.base_url is not None and kind not in _PROVIDERS:
        raise ValueError(f"--base-url goes with --model openai:NAME or anthropic:NAME, not with {options.model}")
    match kind:
        case "replay":
            return _Recorded(lambda: ReplayModel(detail or DEMO, match=False, timing=timing, speed=SLOWED))
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


@final
class _Recorded:
    """A recording that begins anew with each run, so that a demo can be asked twice, and by two at a time."""

    def __init__(self, play: Callable[[], ReplayModel]) -> None:
        self._play = play
        self._first = play()  # now, so that a wrong file is told at once
        self._playing: dict[str, ReplayModel] = {}

    def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The next answer of the run's recording."""
        run_id = request.id.rpartition(".")[0]
        if run_id not in self._playing:
            while len(self._playing) >= _RUNS:
                del self._playing[next(iter(self._playing))]
            self._playing[run_id] = self._play()
        return self._playing[run_id].stream(request)


_RUNS: Final = 64
"""Runs that go on at a time, of which the recording is remembered."""
