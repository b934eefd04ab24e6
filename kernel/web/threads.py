"""Conversations by their name: an agent with its hub, or a recorded trace with one."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

from kernel.agent import Agent
from kernel.errors import KernelError
from kernel.messages import Message
from kernel.trace.file import Trace
from kernel.web.hub import Hub

THREADS: Final = 32
"""Conversations at a time. More than tabs that anyone has open; beyond, the oldest that nobody watches is closed."""
PAUSE: Final = 3.0
"""Seconds: the longest silence of a trace that is played; nobody waits for a night to pass."""

MakeAgent = Callable[[Sequence[Message]], Agent]
"""Makes an agent that goes on from these messages."""


class TooManyThreadsError(KernelError):
    """All conversations that there may be are going on."""

    code = "TOO_MANY_THREADS"


class RecordedError(KernelError):
    """A recorded trace is played: it can be watched, and not be talked to."""

    code = "RECORDED"


class Thread(Protocol):
    """What can be watched."""

    @property
    def hub(self) -> Hub:
        """Its stream."""
        ...

    @property
    def agent(self) -> Agent:
        """Who is talked to. Raises RecordedError when there is nobody."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether it must not be closed to make room."""
        ...

    async def aclose(self) -> None:
        """End it."""
        ...


@final
class LiveThread:
    """An agent that is talked to."""

    def __init__(self, name: str, agent: Agent) -> None:
        self.agent = agent
        self.hub = Hub(name, agent.messages, time.time)
        agent.subscribe(self.hub.take)

    @property
    def is_busy(self) -> bool:
        """Whether it runs or is watched."""
        return self.agent.is_running or self.hub.viewers > 0

    async def aclose(self) -> None:
        """Cancel what runs, and end the stream."""
        await self.agent.aclose()
        self.hub.close()


@final
class RecordedThread:
    """A trace that is played, with its own pauses up to `PAUSE`, as soon as somebody watches."""

    is_busy: Final = True

    def __init__(self, name: str, trace: Trace, speed: float = 1.0) -> None:
        self.trace = trace
        self.hub = Hub(name, (), time.time)
        self._speed = speed
        self._task: asyncio.Task[None] | None = None

    @property
    def agent(self) -> Agent:
        """There is none."""
        raise RecordedError("a recorded trace is played here: it can be watched and played again, not talked to")

    def play(self, speed: float | None = None) -> None:
        """Play it from the beginning, for all who watch."""
        if self._task is not None:
            self._task.cancel()
            self.hub.restart()
        self._speed = speed or self._speed
        self._task = asyncio.get_running_loop().create_task(self._play(), name="kernel playback")

    def begin(self) -> None:
        """Play it, unless that was begun already."""
        if self._task is None:
            self.play()

    async def _play(self) -> None:
        before = 0.0
        began = self.trace.began.timestamp()
        for heard in self.trace.heard:
            await asyncio.sleep(min(heard.at - before, PAUSE) / self._speed)
            before = heard.at
            self.hub.take(heard.event, began + heard.at)

    async def aclose(self) -> None:
        """Stop, and end the stream."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.hub.close()


@final
class Threads:
    """All conversations of a server."""

    def __init__(self, make_agent: MakeAgent) -> None:
        self._make_agent = make_agent
        self._all: dict[str, Thread] = {}
        self._closing: set[asyncio.Task[Any]] = set()

    def add(self, name: str, thread: Thread) -> None:
        """Put one in."""
        self._all[name] = thread

    def known(self, name: str) -> bool:
        """Whether there is one of this name."""
        return name in self._all

    def get(self, name: str, history: Sequence[Message] = ()) -> Thread:
        """The thread of this name; a new one goes on from *history*. Raises TooManyThreadsError."""
        thread = self._all.get(name)
        if thread is None:
            self._make_room()
            thread = self._all[name] = LiveThread(name, self._make_agent(history))
        return thread

    def _make_room(self) -> None:
        if len(self._all) < THREADS:
            return
        idle = next((name for name, thread in self._all.items() if not thread.is_busy), None)
        if idle is None:
            raise TooManyThreadsError(f"{THREADS} conversations are going on; close one, or wait until one ends")
        self.drop(idle)

    def drop(self, name: str) -> None:
        """End this one, and forget it."""
        task = asyncio.get_running_loop().create_task(self._all.pop(name).aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """End all of them."""
        threads, self._all = list(self._all.values()), {}
        await asyncio.gather(*(thread.aclose() for thread in threads), *self._closing)
