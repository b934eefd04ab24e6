"""The one place where the simulator looks inside an agent: for what it promises and does not show.

Everything else about the agent is asked of its public face.
"""

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any, final

from kernel.agent import Agent
from kernel.ports import Hooks
from kernel.testing.loop import SimulatedLoop


@final
class Inside:
    """What an agent does not show."""

    def __init__(self, agent: Agent) -> None:
        self._shell = agent._shell
        config = self._shell.core.state.config
        self.grace = config.cancel_grace
        self.observes = config.subscribers == "observe"

    def replace_hooks(self, wrap: Callable[[Hooks], Hooks]) -> None:
        """Have the hooks wrapped. Each is still there, or still is not."""
        self._shell.hooks = wrap(self._shell.hooks)

    def left(self, loop: SimulatedLoop) -> Iterator[str]:
        """G13: what the kernel made and has not ended, once the agent idles and nothing is ready any more."""
        abandoned = self._shell.abandoned
        for task in loop.unfinished():
            name = task.get_name()
            excused = self.observes and name.startswith("kernel listener")  # nobody waits for those
            if is_of_the_kernel(task) and task not in abandoned and not excused:
                yield f"the task {name!r} is alive though the agent idles"
        for future, work in abandoned.items():
            if future.done():
                yield f"the {work.kind} {work.name} has ended and is still listed as abandoned"
        if not abandoned:
            ours = [called for called in loop.timed() if _is_ours(called)]
            yield from (f"a timer for {called} is set though the agent idles" for called in ours)


def is_of_the_kernel(task: "asyncio.Task[Any]") -> bool:
    """Whether the kernel made it."""
    return task.get_name().startswith("kernel ")


def _is_ours(called: Any) -> bool:
    while isinstance(called, functools.partial):
        called = called.func
    module = getattr(type(getattr(called, "__self__", None)), "__module__", "")
    return module.startswith("kernel.") and not module.startswith(("kernel.testing", "kernel.toolbox", "kernel.models"))
