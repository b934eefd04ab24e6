"""A tool that runs command lines in a directory: what a coding agent needs, and what should be given to few others.

    agent = Agent(model, tools=[*files(root, write=True), *commands(root)])

A command has a limit of time and of output, no input, and an environment without secrets; it is a group of processes of its
own, and when it ends, is cancelled or takes too long, all of the group is ended with it.

Weak point: nothing confines it. The directory is only where it begins: it may read and write whatever the user who runs the
agent may, and reach the network. Ask somebody before each call (`Hooks.before_tool_call`), or run the agent in a sandbox.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, final

from msgspec import Meta

from kernel.ports import Tool, ToolContext, ToolResult
from kernel.tools import tool

TIMEOUT: Final = 120.0
"""Seconds for a command unless it is given others: a build of some size, and not a server that never ends."""
OUTPUT_BYTES: Final = 60_000
"""Bytes of output that a model is shown, half from its beginning and half from its end: as much as of a file."""
GRACE: Final = 2.0
"""Seconds from the polite signal to the one that nobody can refuse; less than an agent's `cancel_grace`."""
INHERITED: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""Names of the environment that a command gets. Keys of providers are in others."""
_LINE_EVERY: Final = 0.5
"""Seconds between two updates: a build says thousands of lines, and nobody reads them one by one."""
_LINE_BYTES: Final = 400
"""Of an update."""


def commands(
    root: str | os.PathLike[str],
    *,
    timeout: float = TIMEOUT,
    output_bytes: int = OUTPUT_BYTES,
    env: Mapping[str, str] | None = None,
) -> tuple[Tool, ...]:
    """`run_command`, which runs command lines of `/bin/sh` that begin in *root*.

    *timeout* is the most seconds that a command may have, *output_bytes* how much of its output is shown, *env* what its
    environment has beside `INHERITED`. Calls of it run one after the other, and not beside other calls: a command may touch
    any file. Raises ValueError for a root that is no directory, NotImplementedError where there is no POSIX shell.
    """
    if os.name != "posix":
        raise NotImplementedError("commands() needs a POSIX system: it runs /bin/sh and ends whole groups of processes")
    directory = Path(root).resolve()
    if not directory.is_dir():
        raise ValueError(f"root must be an existing directory, not {os.fspath(root)!r}")
    if not timeout > 0 or output_bytes < 2:
        raise ValueError(f"timeout must be above 0 and output_bytes at least 2, not {timeout} and {output_bytes}")
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment = {**inherited, "TERM": "dumb", **(env or {})}

    @tool(mode="sequential")
    async def run_command(  # noqa: D417  # a model is not told of the context
        context: ToolContext, command: str, seconds: Annotated[float, Meta(gt=0, le=timeout)] = timeout
    ) -> ToolResult:
        """Run a command line with /bin/sh in the root directory, and return what it prints.

        Args:
            command: The command line. It has no input, and what it leaves in the background is ended with it.
            seconds: How long it may take.

        """
        if "\0" in command or not command.strip():
            return ToolResult("the command must be a text that is not empty, without NUL", is_error=True)
        output = _Output(output_bytes, context)
        ending = await _run(command, directory, environment, seconds, output)
        said = output.text()
        return ToolResult("\n".join(part for part in (said, ending) if part) or "(no output)", is_error=bool(ending))

    return (run_command,)


async def _run(command: str, directory: Path, environment: Mapping[str, str], seconds: float, output: "_Output") -> str:
    """How it ended, in words; nothing when it ended well."""
    loop = asyncio.get_running_loop()
    begin = loop.subprocess_exec(
        lambda: _Process(output), "/bin/sh", "-c", command.encode("utf-8", "surrogateescape"),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        cwd=directory, env=environment, start_new_session=True,
    )  # fmt: skip
    # In a task of its own, which is not cancelled with us: asyncio would then end the shell and leave its children alone.
    beginning = asyncio.create_task(begin, name="kernel command begins")
    try:
        await asyncio.wait({beginning})
        transport, process = beginning.result()
        async with asyncio.timeout(seconds):
            await process.exited.wait()
    except TimeoutError:
        return f"[stopped after {seconds:g} s; what it had printed until then is above]"
    finally:
        await asyncio.wait({beginning})
        if beginning.exception() is None:
            transport, process = beginning.result()
            await _end(transport.get_pid(), process)
            transport.close()
    status = transport.get_returncode()
    if status is None or status == 0:
        return ""
    return f"[exit status {status}]" if status > 0 else f"[ended by {_signal_name(-status)}]"


async def _end(group: int, process: "_Process") -> None:
    """Leave nothing of it running. What has ended by itself has no say for what it left behind."""
    try:
        if not process.exited.is_set():
            _tell(group, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.exited.wait(), GRACE)
    finally:
        _tell(group, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.over.wait(), GRACE)


def _tell(group: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left, or only what is not ours
        os.killpg(group, which)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@final
class _Process(asyncio.SubprocessProtocol):
    """`exited`: the shell has ended. `over`: and nobody can say anything more."""

    def __init__(self, output: "_Output") -> None:
        self.exited = asyncio.Event()
        self.over = asyncio.Event()
        self._output = output

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002  # there is one pipe
        self._output.add(data)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # its exit status says it
        self.exited.set()
        self.over.set()


@final
class _Output:
    """The beginning and the end of what is printed, and how much was between."""

    def __init__(self, size: int, context: ToolContext) -> None:
        self._half = size // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._context = context
        self._told = -_LINE_EVERY

    def add(self, data: bytes) -> None:
        """Keep *data*, or the part of it that is to be shown; tell its last line, not too often."""
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._half:  # cut now and then: cutting at each piece would be quadratic
            self._cut()
        now = asyncio.get_running_loop().time()
        if now - self._told >= _LINE_EVERY:
            lines = data[-_LINE_BYTES:].split(b"\n")
            line = lines[-2].decode(errors="replace").strip() if len(lines) > 1 else ""
            if line:
                self._told = now
                self._context.update(line)

    def _cut(self) -> None:
        extra = max(0, len(self._tail) - self._half)
        self._dropped += extra
        del self._tail[:extra]

    def text(self) -> str:
        """What a model is shown. Characters that were cut through become a replacement mark."""
        self._cut()
        between = f"\n[… {self._dropped} bytes are left out here …]\n" if self._dropped else ""
        shown: Any = (self._head.decode(errors="replace"), between, self._tail.decode(errors="replace"))
        return "".join(shown).removesuffix("\n") if not self._dropped else "".join(shown).rstrip("\n")
