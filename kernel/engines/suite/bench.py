"""Where scenarios are played: an engine, its workers, and the world in which their tools leave traces."""

import asyncio
import contextlib
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, final

from kernel.engines.opening import open_engine
from kernel.engines.port import Engine, Order
from kernel.engines.suite.plans import Folder
from kernel.events import RunFinished
from kernel.messages import AssistantMessage, Message, ToolMessage, UserMessage

PATIENCE: Final = 60.0
"""Seconds after which something that should happen does not."""


@final
class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def kill(self) -> None:
        """End it at once, whatever it is doing."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to end."""
        await self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Have it stand still."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)

    async def _end(self, how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        await self._process.wait()

    def cpu_seconds(self) -> float:
        """The CPU time that it has taken."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@final
class Bench:
    """An engine by the name that `open_engine` knows, and *folder* for what is left of the scenario."""

    def __init__(self, engine_name: str, folder: Path) -> None:
        self.name = engine_name
        self.folder = folder
        self.world = Folder(folder / "world")
        self.engine: Engine = open_engine(engine_name)
        self._workers: list[WorkerProcess] = []

    async def worker(self, slots: int = 64, *, bare: bool = False) -> WorkerProcess:
        """Start a worker, and wait until it serves. *bare*: with an agent of another version, which has no tools."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kernel.engines.suite.worker", self.name, str(self.folder / "world"), str(slots),
            *(["bare"] if bare else []), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        if await process.stdout.readline() != b"serving\n":
            raise AssertionError("the worker did not begin to serve")
        made = WorkerProcess(process)
        self._workers.append(made)
        return made

    async def close(self) -> None:
        """End what is left."""
        for worker in self._workers:
            worker.go_on()
            await worker.kill()
        await self.engine.aclose()

    # ---- what scenarios say ----

    async def prompt(self, session: str, text: str) -> int:
        """Order a prompt."""
        return await self.engine.submit(session, Order("prompt", text))

    async def until(self, what: Any) -> None:
        """Wait until *what()* is true."""
        deadline = time.monotonic() + PATIENCE
        while not what():
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing happened for {PATIENCE} s")
            await asyncio.sleep(0.005)

    async def ran(self, tool: str, times: int = 1) -> None:
        """Wait until executions of *tool* have begun so many times."""
        await self.until(lambda: self.runs_of(tool).total() >= times)

    def runs_of(self, tool: str) -> Counter[str]:
        """How often each execution of *tool* began."""
        return Counter(execution for execution in self.world.happened("ran") if execution.startswith(f"{tool} "))

    async def finished(self, session: str, runs: int = 1) -> list[RunFinished]:
        """Wait for the ends of the first *runs* runs."""
        found: list[RunFinished] = []
        async with asyncio.timeout(PATIENCE):
            async for told in self.engine.events(session):
                if isinstance(told.event, RunFinished):
                    found.append(told.event)
                    if len(found) == runs:
                        return found
        raise AssertionError("the events ended")

    async def messages(self, session: str) -> tuple[Message, ...]:
        """The transcript, once nothing is left to be done; every call in it has one result."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state = await self.engine.state(session)
            if not state.is_running and not state.waiting:
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"session {session} does not come to rest")
            await asyncio.sleep(0.01)
        calls = [call.id for m in state.messages if isinstance(m, AssistantMessage) for call in m.calls]
        results = [m.call_id for m in state.messages if isinstance(m, ToolMessage)]
        expect(sorted(results), sorted(calls), "a result for each call")
        return state.messages

    async def said(self, session: str) -> list[str]:
        """What users have said to *session*."""
        return [message.text for message in await self.messages(session) if isinstance(message, UserMessage)]


def expect(actual: object, expected: object, what: str) -> None:
    """Not an `assert`, which `-O` would drop."""
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r}, expected {expected!r}")
