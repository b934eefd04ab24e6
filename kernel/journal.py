"""The journal of inputs: all that must be durable of an agent is the ordered list of what entered its core.

    with open("agent.journal", "w") as file:
        agent = Agent(model, journal=file.write)        # written while the agent goes on
    with open("agent.journal", "rb") as file:
        for effects in read_journal(file).replay(): ...  # in another process, without any model or tool

A journal is JSON Lines in ASCII: a header with the format's version, the configuration, what there is to know of model and
tools, the hooks' names and the conversation that the agent began with; then one input a line, with the number of its line,
so that a line that was left out, doubled or moved is seen. Replaying the inputs gives the same state and the same effects.
A last line that is torn, as a crash leaves it, is dropped; anything else that is wrong is refused with its line number.

Weak points. A value that was changed into another one that could be right is not seen: there is no checksum. A journal is
read only by the version of the kernel that knows the same fields of the same inputs; it must not be taken for an archive.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, final, get_args

from attrs import frozen

from kernel.codec import Codec, explain
from kernel.config import KernelConfig
from kernel.core import Core
from kernel.effects import Effect
from kernel.errors import KernelError, describe
from kernel.inputs import Input
from kernel.jsonl import entries_of, from_line, to_line
from kernel.messages import Message
from kernel.setup import Setup
from kernel.state import HookName

FORMAT: Final = "phasekernel.journal/3"
"""Raised whenever a journal of before would be read as something else."""
_HEADER: Final = ("format", "config", "setup", "hooks", "messages")
_HOOKS: Final = frozenset(get_args(HookName))
_LINE: Final = "line"


class JournalError(KernelError):
    """A journal that can't be read: which line, and why."""

    code = "JOURNAL"

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line} of the journal: {why}")
        self.line = line


@final
class JournalWriter:
    """Writes each input as a line; the header is written at once. `Agent(journal=…)` makes one.

    *write* is called with whole lines, newline included. When it raises, the error is logged and kept in `error`, and
    nothing more is written: a journal with a hole in it is worth nothing.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        config: KernelConfig,
        setup: Setup,
        hooks: Iterable[str] = (),
        messages: Iterable[Message] = (),
    ) -> None:
        self.error: BaseException | None = None
        self._write = write
        self._lines = 0
        self._codec = Codec()
        self._put(lambda: self._header(config, setup, hooks, messages))

    def _header(
        self, config: KernelConfig, setup: Setup, hooks: Iterable[str], messages: Iterable[Message]
    ) -> dict[str, Any]:
        codec = self._codec
        said = (codec.dump_config(config), codec.dump_setup(setup), sorted(hooks), codec.dump_messages(messages))
        return dict(zip(_HEADER, (FORMAT, *said), strict=True))

    def record(self, input: Input) -> None:
        """Write *input*."""
        if self.error is None:
            self._put(lambda: {_LINE: self._lines + 1, **self._codec.dump_input(input)})

    def _put(self, data: Callable[[], dict[str, Any]]) -> None:
        try:
            self._write(to_line(data()))
            self._lines += 1
        except Exception as error:
            self.error = error
            logging.getLogger("kernel.journal").error("the journal ends here: %s", describe(error))


@final
@frozen
class Journal:
    """A journal that was read."""

    config: KernelConfig
    setup: Setup
    hooks: frozenset[str]
    messages: tuple[Message, ...]
    inputs: tuple[Input, ...]

    def core(self) -> Core:
        """A core as the agent's was when the journal began."""
        return Core(self.config, self.setup, self.hooks, self.messages)

    def replay(self, core: Core | None = None) -> Iterator[list[Effect]]:
        """The effects of each input, one after the other. *core*, by default a new one, is one to watch meanwhile.

        Raises `JournalError` at an input that can't have been taken there.
        """
        core = self.core() if core is None else core
        for number, input in enumerate(self.inputs, start=2):
            try:
                effects = core.receive(input)
            except Exception as error:
                why = f"a {type(input).__name__} can't have been taken after the lines before it: {describe(error)}"
                raise JournalError(number, why) from error
            yield effects


def read_journal(lines: Iterable[str | bytes], setup: Setup | None = None) -> Journal:
    """Read a journal, with the model and the tools of *setup*, or for a replay without any.

    *lines* have their newlines, as those of a file have (best of one opened as binary: a crash may tear it anywhere).
    Raises `JournalError`.
    """
    codec = Codec(setup)
    given = list(lines)
    header = _header(codec, given[0] if given else "")
    inputs: list[Input] = []
    for number, data in entries_of(given, 2, JournalError):
        try:
            inputs.append(codec.load_input(_numbered(data, number)))
        except Exception as error:
            raise JournalError(number, f"is not an input: {explain(error)}") from error
    return Journal(*header, tuple(inputs))


def _numbered(data: Any, number: int) -> dict[str, Any]:
    """The input in *data*, which is of this line."""
    if not isinstance(data, dict):
        raise TypeError("it is no object")
    said = data.pop(_LINE, None)
    if type(said) is not int or said != number:
        raise ValueError(f"its number is {said!r}: lines were left out, doubled or moved")
    return data


def _header(codec: Codec, line: str | bytes) -> tuple[KernelConfig, Setup, frozenset[str], tuple[Message, ...]]:
    try:
        data = from_line(line)
        said = data["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(1, "is not the header of a journal") from error
    if said != FORMAT:
        raise JournalError(1, f"the format is {said!r}, and this version reads {FORMAT!r}")
    try:
        if data.keys() != set(_HEADER):
            raise ValueError(f"it has {', '.join(data)}, and {', '.join(_HEADER)} is right")
        hooks, messages = data["hooks"], tuple(codec.load_messages(data["messages"]))
        if not isinstance(hooks, list) or not _HOOKS.issuperset(hooks):
            raise ValueError(f"the hooks are {hooks!r}")
        config, setup = codec.load_config(data["config"]), codec.load_setup(data["setup"])
        Core(config, setup, frozenset(hooks), messages)  # whether an agent can have begun so
    except Exception as error:
        raise JournalError(1, f"the header is wrong: {explain(error)}") from error
    return config, setup, frozenset(hooks), messages
