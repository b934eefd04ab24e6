"""What is simulated, and what came of it: values that the simulator's parts hand to each other."""

from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, Literal, final

from attrs import field, frozen

from kernel.agent import Agent
from kernel.events import Event
from kernel.testing.faults import FaultKind
from kernel.testing.plans import Schedule

Scenario = Callable[[Agent], Awaitable[Any]]
Check = Callable[[Agent, Sequence[Event], Any], Any]


@final
@frozen
class Problem:
    """Something that must not be: which claim it breaks, and how."""

    claim: str
    text: str
    cause: BaseException | None = field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        return f"{self.claim}: {self.text}"


@final
@frozen
class Trial:
    """What is simulated, again and again."""

    make_agent: Callable[[], Agent]
    scenario: Scenario
    check: Check | None
    kinds: Set[FaultKind] = field(kw_only=True)
    max_steps: int = field(kw_only=True)
    sync_tools: Literal["refuse", "inline"] = field(kw_only=True)
    again: bool = field(kw_only=True)


@final
@frozen(kw_only=True)
class Outcome:
    """What came of one schedule."""

    schedule: Schedule
    problems: Sequence[Problem]
    events: Sequence[Event]
    steps: int
    seconds: float
