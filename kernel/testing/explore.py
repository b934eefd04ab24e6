"""Looks for a schedule in which an agent, or what an application put around it, breaks a promise.

Theory. The same scenario is simulated again and again, each time with a fresh agent and another schedule: another order of
the tasks, other faults, other cancels from outside. The first schedule is the plain one. A schedule that fails is made
smaller, by leaving out what it does not need to fail by the same claim, and told as text that does it again.

Weak points. What a scenario finds is what it does: give it the commands and the tools that matter. A schedule is the same
again only if the code around the agent is: lots are drawn from `random` (which is seeded) and time is the loop's, but
what asks the system's clock, `secrets` or a thread is beyond it; `explore` says so when it sees it.
"""

import asyncio
import importlib.metadata
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, final

from attrs import frozen

from kernel.agent import Agent
from kernel.events import Event, RunFinished
from kernel.testing.choosers import Exhaustive, Tape
from kernel.testing.faults import ALL_FAULTS, MENU, FaultKind
from kernel.testing.plans import ORDERS, Deviations, Driven, Replayed, Size, Source, Swarm, as_text, from_text
from kernel.testing.simulation import Simulation
from kernel.testing.trial import Check, Outcome, Problem, Scenario, Trial

ChooserName = Literal["mixed", "fifo", "random", "priorities", "exhaustive"]

SCHEDULES: Final = 200
"""Some hundred: less than two seconds for a short scenario, and most races that there are show in them."""

MAX_STEPS: Final = 20_000
"""Steps of one schedule. A run of ten turns takes some hundred."""

SHRINKS: Final = 300
"""Simulations spent on making a failing schedule smaller."""


async def prompt_and_wait(agent: Agent) -> Any:
    """The scenario by default: one prompt, and its result."""
    return await agent.prompt("Go.")


@final
@frozen(kw_only=True)
class Report:
    """What was tried. All of it was well, or `explore` would have raised.

    *schedules* were simulated, of which *different* were different from each other. *exhausted* says whether there are no
    others (None: nobody tried). *steps* were taken by the loops, in *seconds* of real time and *simulated* ones of theirs.
    *injected* counts the deviations by what they were, *ended* the runs by their status.
    """

    schedules: int
    different: int
    exhausted: bool | None
    steps: int
    seconds: float
    simulated: float
    injected: Mapping[str, int]
    ended: Mapping[str, int]
    seed: int

    def __str__(self) -> str:
        bound = {None: "", True: ", and there are no others", False: ", and there are more"}[self.exhausted]
        ended = ", ".join(f"{count} {status}" for status, count in sorted(self.ended.items()))
        return f"{self.schedules} schedules ({self.different} different{bound}), {self.steps} steps; runs: {ended}"


@final
class FailingScheduleError(AssertionError):
    """A schedule under which a claim does not hold.

    `problems` are the claims and how they were broken, `replay` is the schedule as text, `story` the same for people,
    `events` are what the agent told. Its text ends with a program that does it again.
    """

    def __init__(
        self, text: str, problems: Sequence[Problem], replay: str, story: Sequence[str], events: Sequence[Event]
    ) -> None:
        super().__init__(text)
        self.problems = problems
        self.replay = replay
        self.story = story
        self.events = events


def explore(
    make_agent: Callable[[], Agent],
    scenario: Scenario = prompt_and_wait,
    *,
    schedules: int = SCHEDULES,
    seed: int = 0,
    chooser: ChooserName = "mixed",
    deviations: int | None = None,
    faults: Iterable[FaultKind | str] | None = None,
    check: Check | None = None,
    sync_tools: Literal["refuse", "inline"] = "refuse",
    again: bool = True,
    max_steps: int = MAX_STEPS,
    replay: str | None = None,
    tape: Iterable[int] | None = None,
) -> Report:
    """Simulate *scenario* with a fresh agent under many *schedules*; raise `FailingScheduleError` for one that fails.

    *make_agent* makes an agent with all that belongs to it, listeners included, and shares nothing with the one before.
    *scenario* is an async function of that agent; by default one prompt that is awaited. *check* is a function (or an
    async one) of the agent, the events and what the scenario returned, and fails by raising, as with `assert`; the result
    is None where a fault, or the cancelling of the scenario's own task, kept the scenario from returning one.

    *faults* are the kinds that may be injected (`FaultKind`, or their texts): all by default, `()` for none. They meet the
    agent's model, tools and hooks, one more listener, and the tasks from outside.

    *chooser* says who orders the tasks: "fifo" as asyncio does, "random", "priorities" (few changes of rank), "mixed" one
    of these for each schedule, or "exhaustive": all schedules there are, with at most so many *deviations* from the plain
    one (None: any number). `Report.exhausted` tells whether *schedules* was enough; faults are tried only where they are
    named. *replay* is one schedule, as a failure printed it. *tape* is one schedule driven by numbers that were drawn
    beforehand (`tapes`); an empty one is the plain one.

    What must hold in each schedule: G1 to G16 as far as the trace shows them (`kernel.trace.check`), G12 and G14 of what a
    listener sees, requests that a provider takes, no start after a cancel (G7), an end within `cancel_grace` (G8), nothing
    left of the kernel's when the agent idles (G13), no report to the loop's exception handler, no deadlock, and (unless
    *again* is False) a next prompt that works. A scenario may fail with a `KernelError` only where something was injected.

    Tools that are ordinary functions are refused, or with *sync_tools* "inline" called on the loop in one step.

    Raises TypeError or ValueError for arguments that make no sense, RuntimeError inside a running loop.

    >>> from kernel import Agent
    >>> from kernel.testing import ScriptedModel, say
    >>> report = explore(lambda: Agent(ScriptedModel([say("Hello.")])), schedules=20)
    >>> report.schedules, report.ended["completed"] > 0
    (20, True)
    """
    _refuse(schedules, chooser, sync_tools)
    _refuse_others(make_agent, scenario, check, deviations, max_steps, replay, tape)
    kinds = _kinds(chooser, faults)
    trial = Trial(make_agent, scenario, check, kinds=kinds, max_steps=max_steps, sync_tools=sync_tools, again=again)
    search = _Search(trial, seed)
    if replay is not None:
        search.try_one(Replayed(from_text(replay)), "replay", shrink=False)
    elif tape is not None:
        search.try_one(Driven(Tape(tape), _menu(kinds), first=True), "tape", shrink=False)
    elif chooser == "exhaustive":
        search.try_all(schedules, deviations)
    else:
        search.try_many(schedules, ORDERS if chooser == "mixed" else (chooser,))
    return search.report()


def _kinds(chooser: str, faults: Iterable[FaultKind | str] | None) -> frozenset[FaultKind]:
    if faults is None:
        return frozenset() if chooser == "exhaustive" else ALL_FAULTS  # all orders alone are many enough
    if isinstance(faults, str):
        raise TypeError(f"faults must be a collection of kinds, such as [{faults!r}], not a string")
    kinds, known = list(faults), list(FaultKind)
    if unknown := [kind for kind in kinds if kind not in known]:
        raise ValueError(f"faults has {unknown[0]!r}, and the kinds are {', '.join(known)}")
    return frozenset(map(FaultKind, kinds))


def _refuse(schedules: int, chooser: str, sync_tools: str) -> None:
    """Raise where the arguments, or the place, make no sense."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("explore() runs loops of its own, and one is running here: call it from an ordinary function")
    _refuse_number("schedules", schedules, 1)
    if chooser not in ("mixed", "exhaustive", *ORDERS):
        raise ValueError(f"chooser must be mixed, fifo, random, priorities or exhaustive, not {chooser!r}")
    if sync_tools not in ("refuse", "inline"):
        raise ValueError(f"sync_tools must be 'refuse' or 'inline', not {sync_tools!r}")


def _refuse_others(
    make_agent: Any, scenario: Any, check: Any, deviations: Any, max_steps: Any, replay: Any, tape: Any
) -> None:
    for name, value in (("make_agent", make_agent), ("scenario", scenario), ("check", check)):
        if not callable(value) and not (name == "check" and value is None):
            raise TypeError(f"{name} must be a function, not {value!r}")
    _refuse_number("max_steps", max_steps, 1)
    if deviations is not None:
        _refuse_number("deviations", deviations, 0)
    if replay is not None and not isinstance(replay, str):
        raise TypeError(f"replay must be a text, as a failure printed it, not {replay!r}")
    if replay is not None and tape is not None:
        raise ValueError("replay and tape are one schedule each: give one of them")


def _refuse_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def _menu(kinds: Iterable[FaultKind]) -> list[Any]:
    return [fault for fault in MENU if fault.kind in set(kinds)]


@final
class _Search:
    """The simulations of one `explore`."""

    def __init__(self, trial: Trial, seed: int) -> None:
        self._trial = trial
        self._seed = seed
        self._began = time.perf_counter()
        self._schedules = self._steps = 0
        self._simulated = 0.0
        self._exhausted: bool | None = None
        self._seen: set[frozenset[tuple[str, str]]] = set()
        self._injected: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()

    def report(self) -> Report:
        """What was tried."""
        return Report(
            schedules=self._schedules, different=len(self._seen), exhausted=self._exhausted, steps=self._steps,
            seconds=time.perf_counter() - self._began, simulated=self._simulated, injected=dict(self._injected),
            ended=dict(self._ended), seed=self._seed,
        )  # fmt: skip

    def try_many(self, schedules: int, orders: Sequence[str]) -> None:
        """The plain one, and others that are drawn."""
        plain = self.try_one(Replayed({}), "the plain one")
        size = Size(plain.steps, plain.schedule.choices)
        for number in range(2, schedules + 1):
            source = Swarm(f"{self._seed}/{number}", self._trial.kinds, size, orders)
            self.try_one(source, f"number {number} of seed {self._seed}, ordered by {source.chooser}")

    def try_all(self, limit: int, deviations: int | None) -> None:
        """Every one, up to the limit."""
        every = Exhaustive(limit, deviations=deviations)
        for choose in every:
            self.try_one(Driven(choose, _menu(self._trial.kinds), first=False), f"number {every.schedules} of all")
        self._exhausted = every.exhausted

    def try_one(self, source: Source, called: str, *, shrink: bool = True) -> Outcome:
        """Simulate one schedule; raise when it fails."""
        outcome = Simulation(self._trial, source).run()
        schedule = outcome.schedule
        self._schedules += 1
        self._steps += outcome.steps
        self._simulated += outcome.seconds
        self._seen.add(frozenset(schedule.deviations.items()))
        self._injected.update("order" if what.isdigit() else what for what in schedule.deviations.values())
        self._ended.update(event.status for event in outcome.events if isinstance(event, RunFinished))
        if outcome.problems:
            raise self._failure(outcome, called, shrink=shrink)
        return outcome

    # ---- a schedule that fails ----

    def _failure(self, outcome: Outcome, called: str, *, shrink: bool) -> FailingScheduleError:
        before = len(outcome.schedule.taken)
        notes = []
        if shrink:
            smaller, same = self._shrunk(outcome)
            if same:
                outcome = smaller
            else:
                notes.append(
                    "Done again, this schedule does not fail in the same way: something draws lots, keeps real time or is "
                    "shared between the agents that make_agent makes."
                )
        schedule = outcome.schedule
        story = [deviation.story for deviation in schedule.taken]
        token = as_text(schedule.deviations)
        problem = outcome.problems[0]
        lines = [
            f"a schedule fails ({called}; phasekernel {_version()}, Python {sys.version.split()[0]})",
            *(f"  {each}" for each in dict.fromkeys(map(str, outcome.problems))),
            _told(len(story), before),
            *(f"  {each}" for each in story),
            *notes,
            "It is done again by",
            *(f"    {line}" for line in self._program(token)),
        ]
        error = FailingScheduleError("\n".join(lines), tuple(outcome.problems), token, story, tuple(outcome.events))
        error.__cause__ = problem.cause
        return error

    def _shrunk(self, outcome: Outcome) -> tuple[Outcome, bool]:
        """The smallest schedule found that fails by the same claim, and whether this one does so when it is done again."""
        claim = outcome.problems[0].claim
        left = SHRINKS

        def again(deviations: Deviations) -> Outcome | None:
            nonlocal left
            left -= 1
            found = Simulation(self._trial, Replayed(deviations)).run()
            return found if any(problem.claim == claim for problem in found.problems) else None

        best = again(outcome.schedule.deviations)
        if best is None:
            return outcome, False
        smaller: Outcome | None = best
        while smaller is not None and left > 0:
            best = smaller
            smaller = None
            for candidate in _smaller(best.schedule.deviations):
                smaller = again(candidate)
                if smaller is not None or left <= 0:
                    break
        return smaller or best, True

    def _program(self, token: str) -> list[str]:
        trial = self._trial
        given = {"check": trial.check} if trial.check is not None else {}
        plain = trial.scenario is prompt_and_wait
        named: dict[str, Any] = {"make_agent": trial.make_agent, **({} if plain else {"scenario": trial.scenario}), **given}
        lines = []
        for thing in named.values():
            module, where = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
            if where.isidentifier() and module not in (None, "__main__"):
                lines.append(f"from {module} import {where}")
        words = [_word(thing, name) for name, thing in named.items() if name != "check"]
        words += [f"{name}={_word(thing, name)}" for name, thing in given.items()]
        words += [] if trial.sync_tools == "refuse" else [f"sync_tools={trial.sync_tools!r}"]
        words += [] if trial.again else ["again=False"]
        words += [] if trial.max_steps == MAX_STEPS else [f"max_steps={trial.max_steps}"]
        words.append(f"replay={token!r}")
        return [*dict.fromkeys(lines), "from kernel.testing import explore", "", f"explore({', '.join(words)})"]


def _word(thing: Any, name: str) -> str:
    where = getattr(thing, "__name__", name)
    return where if where.isidentifier() else name


def _told(count: int, before: int) -> str:
    if not count:
        return "It is the plain schedule: first in, first out, and nothing goes wrong." + (
            f" ({before} deviations were not needed.)" if before else ""
        )
    shortened = f", of {before} that it had" if before != count else ""
    return f"It deviates from the plain schedule {'once' if count == 1 else f'{count} times'}{shortened}:"


def _smaller(deviations: Deviations) -> Iterator[dict[str, str]]:
    """Smaller schedules: with less and less left out, and with nearer choices."""
    places = list(deviations)
    size = len(places)
    while size:
        for start in range(0, len(places), size):
            gone = set(places[start : start + size])
            yield {place: what for place, what in deviations.items() if place not in gone}
        size = size // 2
    for place, what in deviations.items():
        if what.isdigit() and int(what) > 1:
            yield {**deviations, place: str(int(what) - 1)}


def _version() -> str:
    try:
        return importlib.metadata.version("phasekernel")
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree"
