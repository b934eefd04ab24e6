"""What the contract tests share: a simulated world in which nothing may escape, listeners that keep, and short lines."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from kernel import Agent, Event, Finished, Hooks, KernelConfig, Run, RunResult, tool
from kernel.dialects import message_summary, project
from kernel.profiles import CHAPTER_06, CHECKPOINT_09, DEFAULT, PI_0_85
from kernel.testing import Recorder, ScriptedModel, SimulatedLoop
from kernel.trace import check

PROFILES = {"default": DEFAULT, "chapter_06": CHAPTER_06, "checkpoint_09": CHECKPOINT_09, "pi": PI_0_85}
every_profile = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An async test as a plain one. No exception may reach the loop, and no task may be left (rule 1; G13)."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        loop = SimulatedLoop()
        try:
            loop.run_until_complete(test(*args, **kwargs))
            loop.drain()
        finally:
            left = loop.shutdown()
        assert loop.exceptions == []
        assert left == []

    return run


@tool
async def read(path: str = "notes.txt") -> str:
    """Read a file."""
    return f"text of {path}"


@tool
async def fail() -> str:
    """Never works."""
    raise OSError("disk on fire")


def heard(agent: Agent) -> Recorder:
    """A listener of *agent* that keeps what it hears."""
    recorder = Recorder()
    agent.subscribe(recorder)
    return recorder


def on(agent: Agent, type: str, act: Callable[[], object], *, nth: int = 1) -> None:
    """Have *agent* do *act* inside a listener, at the nth event of this type."""
    left = nth

    def listener(event: Event) -> None:
        nonlocal left
        if event.type == type:
            left -= 1
            if left == 0:
                act()

    agent.subscribe(listener)


async def passing(seconds: float) -> None:
    """Return when so much simulated time is over."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


async def ended(run: Run) -> tuple[list[Event], RunResult]:
    """All events of a run, read to the end, and its result."""
    return [event async for event in run], await run


async def told(agent: Agent, prompt: str = "Hi") -> tuple[Recorder, RunResult]:
    """Prompt, and wait; what listeners heard, and the result. The guarantees hold for what was heard."""
    recorder = heard(agent)
    result = await agent.prompt(prompt)
    assert check(recorder.events) == []
    return recorder, result


def roles(messages: Iterable[Any]) -> list[str]:
    """The messages in a word each: `user:Hi`, `assistant:Hello`, `tool:c1`."""
    return [message_summary(message) for message in messages]


def requests(model: ScriptedModel) -> list[list[str]]:
    """What each request to *model* carried."""
    return [roles(request.messages) for request in model.requests]


def phases(recorder: Recorder, *, only: str = "") -> list[str]:
    """The path of visible phases; *only* names those to keep."""
    path = ["idle", *(event.target for event in recorder.of("phase.changed")), "idle"]
    return [phase for phase in path if not only or phase in only.split()]


def lines(events: Iterable[Event], dialect: str) -> list[str]:
    """The events in a dialect, each line in a few words."""
    return [_short(line) for line in project(events, dialect)]


def types(events: Iterable[Event], dialect: str) -> list[str]:
    """The names of the events in a dialect."""
    return [str(line["type"]) for line in project(events, dialect)]


def _short(line: dict[str, Any]) -> str:
    words = [line["type"], line.get("role"), line.get("id"), line.get("delta"), line.get("call"), line.get("text")]
    words += [line.get("stop"), line.get("status"), "!" if line.get("error") is True else None]
    words += [f"({line['error']})" if isinstance(line.get("error"), str) else None]
    words += [f"[{','.join(line[key])}]" for key in ("calls", "results") if line.get(key)]
    return " ".join(str(word) for word in words if word)


__all__ = [
    "PROFILES",
    "Agent",
    "Event",
    "Finished",
    "Hooks",
    "KernelConfig",
    "Run",
    "RunResult",
    "check",
    "ended",
    "every_profile",
    "fail",
    "heard",
    "lines",
    "on",
    "passing",
    "phases",
    "read",
    "requests",
    "roles",
    "simulated",
    "told",
    "types",
]  # fmt: skip
