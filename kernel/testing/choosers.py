"""Choosers: who goes next on a simulated loop, when several tasks are ready.

Theory. A chooser answers one question, again and again: which of *n* ready steps runs next. Answer 0 is what asyncio would
do itself, so a schedule is told apart from the plain one by where it answers something else. `fifo` never does; `Seeded`
draws each answer; `Priorities` gives each task a rank and changes ranks only a few times, since most races need no more
than two or three changes in the right places; `Tape` reads its answers from numbers that were drawn beforehand, which is
how Hypothesis drives a simulation; `Exhaustive` tries every sequence of answers there is.

Weak points. asyncio promises first in, first out: another order stands for what slow networks and disks do, and now and
then finds one that they can't do. `Exhaustive` knows nothing of steps that don't matter to each other, so that their
orders count as different: it is for small scenarios, and says honestly when it came to no end.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, final, runtime_checkable

from kernel.testing.loop import Chooser, SimulationError

Owner = asyncio.Task[Any] | None
"""Whose step it is: a task's, or nobody's, which is a plain callback's."""

LIMIT: Final = 10_000
"""Schedules of an exhaustive search. Ten thousand: some ten seconds for a scenario of a hundred steps."""


@runtime_checkable
class TaskChooser(Protocol):
    """A chooser that is told whose steps they are. `SimulatedLoop` asks `among` where there is one."""

    def __call__(self, count: int, /) -> int:
        """An index below *count*."""
        ...

    def among(self, owners: Sequence[Owner], /) -> int:
        """An index into *owners*, which are in the order of asyncio."""
        ...


def fifo(count: int) -> int:
    """First in, first out, as asyncio does it."""
    return 0


@final
class Seeded:
    """Draws each answer: the same seed, the same answers.

    >>> choose = Seeded(7)
    >>> again = Seeded(7)
    >>> [choose(5) for _ in range(9)] == [again(5) for _ in range(9)]
    True
    """

    def __init__(self, seed: int | str) -> None:
        self._lots = random.Random(seed)

    def __call__(self, count: int) -> int:
        return self._lots.randrange(count)


@final
class Priorities:
    """Each task has a rank, drawn when it is first seen, and the highest one runs; *changes* times within *steps* choices
    the one that would run falls below all others.

    A race that needs d orderings is found with a probability of at least 1 / (tasks × steps^(d-1)), where d = changes + 1.
    Source: Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.
    """

    def __init__(self, seed: int | str, *, changes: int = 2, steps: int = 100) -> None:
        self._lots = random.Random(seed)
        self._ranks: dict[Owner, float] = {}
        self._lowest = 0.0
        self._asked = 0
        self._changes = {self._lots.randrange(max(steps, 1)) for _ in range(changes)}

    def __call__(self, _count: int) -> int:
        return 0

    def among(self, owners: Sequence[Owner]) -> int:
        """The index of the highest rank."""
        for owner in owners:
            if owner not in self._ranks:
                self._ranks[owner] = 1 + self._lots.random()
        if self._asked in self._changes:
            self._lowest -= 1
            self._ranks[max(owners, key=self._ranks.__getitem__)] = self._lowest
        self._asked += 1
        return max(range(len(owners)), key=lambda place: self._ranks[owners[place]])


@final
class Tape:
    """Reads its answers from *numbers*, and where they end, answers 0.

    Draw the numbers before the simulation begins, never in a task: what a test library raises to end an example would be
    taken for the task's failure. An empty tape is first in, first out, so that shrinking ends there.

    >>> choose = Tape([4, 1])
    >>> choose(3), choose(2), choose(9)
    (1, 1, 0)
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = list(numbers)[::-1]
        for number in self._numbers:
            if not isinstance(number, int):
                raise TypeError(f"a tape must have whole numbers alone, not {number!r}")

    def __call__(self, count: int) -> int:
        return self._numbers.pop() % count if self._numbers else 0


def tapes(*, max_size: int = 200) -> Any:
    """A Hypothesis strategy for the numbers of a `Tape`. Needs the package `hypothesis`, which is imported only here."""
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise ImportError("tapes() needs Hypothesis: pip install hypothesis") from error
    return strategies.lists(strategies.integers(0, 255), max_size=max_size)


@final
class Exhaustive:
    """Every sequence of answers, by running the scenario again for each: iterate over the choosers.

    *limit* bounds how many; *deviations* bounds how many answers of one sequence may differ from 0 (None: any number).
    Afterwards `schedules` tells how many there were, and `exhausted` whether they were all.

    >>> seen = []
    >>> search = Exhaustive()
    >>> for choose in search:
    ...     seen.append((choose(2), choose(3)))
    >>> seen, search.schedules, search.exhausted
    ([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)], 6, True)

    Raises `SimulationError` when the scenario does not ask the same again: it draws lots of its own, or keeps real time.
    """

    def __init__(self, limit: int = LIMIT, *, deviations: int | None = None) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        self.schedules = 0
        self.exhausted = False
        self._limit = limit
        self._deviations = deviations

    def __iter__(self) -> Iterator[Chooser]:
        path: list[tuple[int, int]] | None = []
        self.schedules, self.exhausted = 0, False
        while path is not None and self.schedules < self._limit:
            replay = _Replay(path)
            self.schedules += 1
            yield replay
            path = self._after(replay.taken)
            self.exhausted = path is None

    def _after(self, taken: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """The next sequence: the last answer that can still grow grows, and what came after it begins anew."""
        for place in range(len(taken) - 1, -1, -1):
            answer, count = taken[place]
            others = sum(answer > 0 for answer, _ in taken[:place])
            if answer + 1 < count and (self._deviations is None or others < self._deviations):
                return [*taken[:place], (answer + 1, count)]
        return None


@final
class _Replay:
    """Answers as *path* says, and 0 after it; remembers all answers."""

    def __init__(self, path: list[tuple[int, int]]) -> None:
        self.taken: list[tuple[int, int]] = []
        self._path = path

    def __call__(self, count: int) -> int:
        place = len(self.taken)
        answer, before = self._path[place] if place < len(self._path) else (0, count)
        if before != count:
            raise SimulationError(
                f"choice {place} was among {before} and is among {count} now: the scenario does not do the same again. "
                "It draws lots of its own, keeps real time, or leaves something behind from one schedule to the next"
            )
        self.taken.append((answer, count))
        return answer
