"""The journal of inputs: all that must be durable of an agent is the ordered list of what entered its core.

A journal is JSON Lines: a header with the format's version, the configuration, what there is to know of model and tools,
the hooks' names and the conversation that the agent began with; then one input a line. Replaying the inputs gives the same
state and the same effects. A last line that is torn, as a crash leaves it, is dropped; anything else that is wrong is
refused with its line number.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, final

from attrs import frozen

from kernel.codec import Codec
from kernel.config import KernelConfig
from kernel.core import Core
from kernel.effects import Effect
from kernel.errors import KernelError, describe
from kernel.inputs import Input
from kernel.messages import Message
from kernel.setup import Setup

FORMAT: Final = "phasekernel.journal/1"


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
        self._codec = Codec()
        header = {
            "format": FORMAT,
            "config": self._codec.dump_config(config),
            "setup": self._codec.dump_setup(setup),
            "hooks": sorted(hooks),
            "messages": self._codec.dump_messages(messages),
        }
        self._put(header)

    def record(self, input: Input) -> None:
        """Write *input*."""
        if self.error is None:
            self._put(self._codec.dump_input(input))

    def _put(self, data: dict[str, Any]) -> None:
        try:
            self._write(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
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

    def replay(self) -> Iterator[list[Effect]]:
        """The effects of each input, one after the other."""
        core = self.core()
        for input in self.inputs:
            yield core.receive(input)


def read_journal(lines: Iterable[str], setup: Setup | None = None) -> Journal:
    """Read a journal, with the model and the tools of *setup*, or for a replay without any. Raises `JournalError`."""
    codec = Codec(setup)
    numbered = list(enumerate(lines, 1))
    header = _header(codec, numbered[0] if numbered else (1, ""))
    inputs: list[Input] = []
    for number, line in numbered[1:]:
        try:
            data = json.loads(line)
        except ValueError as error:
            if number == len(numbered) and not line.endswith("\n"):
                break
            raise JournalError(number, f"is not JSON: {error}") from error
        try:
            inputs.append(codec.load_input(data))
        except Exception as error:
            raise JournalError(number, f"is not an input: {describe(error)}") from error
    return Journal(*header, tuple(inputs))


def _header(codec: Codec, first: tuple[int, str]) -> tuple[KernelConfig, Setup, frozenset[str], tuple[Message, ...]]:
    number, line = first
    try:
        data = json.loads(line)
        said = data["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(number, "is not the header of a journal") from error
    if said != FORMAT:
        raise JournalError(number, f"the format is {said!r}, and this version reads {FORMAT!r}")
    try:
        return (
            codec.load_config(data["config"]),
            codec.load_setup(data["setup"]),
            frozenset(data["hooks"]),
            tuple(codec.load_messages(data["messages"])),
        )
    except Exception as error:
        raise JournalError(number, f"the header is wrong: {describe(error)}") from error
