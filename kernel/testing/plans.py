"""What one schedule decides: who goes next, what goes wrong where, and what is done from outside.

Theory. There is one plain schedule: first in, first out, and nothing goes wrong. Every other one is told by where it
deviates from that, and each deviation has a name: `order 12=1` (at the 12th choice among ready tasks the second one went
first), `tool add 1=tool raises` (the first execution of add), `step 40=outside cancels the run` (before step 40 of the
loop), `wait 2=…` (when everything waited for the second time). So a schedule is a small set of independent things,
written as a line of text that can be pasted; it is made smaller by leaving some of them out; and it is run again by doing
them again.

A `Source` says which deviations there are. It does not know what an agent is.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, Protocol, final

from attrs import field, frozen

from kernel.testing.choosers import Owner, Priorities, Seeded
from kernel.testing.faults import MENU, Fault, FaultKind
from kernel.testing.loop import Chooser

FORMAT: Final = "v1"
"""The first word of a schedule's text."""

Deviations = Mapping[str, str]


def as_text(deviations: Deviations) -> str:
    """A schedule as a line of text.

    >>> as_text({"order 3": "1", "tool add 1": "tool raises"})
    'v1, order 3=1, tool add 1=tool raises'
    """
    return ", ".join((FORMAT, *(f"{place}={what}" for place, what in deviations.items())))


def from_text(text: str) -> dict[str, str]:
    """The deviations that *text* names. ValueError when it is no schedule.

    >>> from_text("v1, order 3=1")
    {'order 3': '1'}
    """
    form, *entries = (entry.strip() for entry in text.split(","))
    if form != FORMAT:
        raise ValueError(f"replay must be a schedule that begins with {FORMAT!r}, as explore() prints it, not {text!r}")
    deviations = {}
    for entry in entries:
        place, sign, what = entry.partition("=")
        if not (place and sign and what):
            raise ValueError(f"replay: {entry!r} is no deviation; one is written place=what")
        if place.startswith("order "):
            int(what)
        else:
            Fault.parse(what)
        deviations[place] = what
    return deviations


class Source(Protocol):
    """Where a schedule's deviations come from."""

    def order(self, place: str, owners: Sequence[Owner], /) -> int:
        """Which of these goes next."""
        ...

    def fault(self, place: str, menu: Sequence[Fault], /) -> Fault | None:
        """What goes wrong there."""
        ...

    def act(self, place: str, step: int | None, menu: Sequence[Fault], /) -> Fault | None:
        """What is done from outside before that step, or (None) while everything waits."""
        ...


@final
class Replayed:
    """The deviations that are given, and no others."""

    def __init__(self, deviations: Deviations) -> None:
        self._deviations = deviations

    def order(self, place: str, owners: Sequence[Owner]) -> int:
        """As it was; the last one where there are fewer now."""
        return min(int(self._deviations.get(place, 0)), len(owners) - 1)

    def fault(self, place: str, _menu: Sequence[Fault]) -> Fault | None:
        """As it was."""
        what = self._deviations.get(place)
        return None if what is None else Fault.parse(what)

    def act(self, place: str, _step: int | None, menu: Sequence[Fault]) -> Fault | None:
        """As it was."""
        return self.fault(place, menu)


@final
class Driven:
    """Everything is read from one chooser. *first*: the one act from outside is chosen before the first step, as a tape
    can do it; otherwise each step is asked until there was one, as an exhaustive search needs it.
    """

    def __init__(self, choose: Chooser, menu: Sequence[Fault], *, first: bool) -> None:
        self._choose = choose
        acts = [fault for fault in menu if fault.kind.place == "outside"]
        self._step: int | None = None
        self._done = not acts
        if first and acts and (step := choose(256)):
            self._step = step - 1
        elif first:
            self._done = True

    def order(self, _place: str, owners: Sequence[Owner]) -> int:
        """The next answer."""
        return self._choose(len(owners))

    def fault(self, _place: str, menu: Sequence[Fault]) -> Fault | None:
        """The next answer; 0 is nothing."""
        return _pick(self._choose, menu) if menu else None

    def act(self, _place: str, step: int | None, menu: Sequence[Fault]) -> Fault | None:
        """At most one in a schedule. Each step was asked for already when everything waits."""
        if self._done or step is None or (self._step is not None and step < self._step):
            return None
        fault = menu[self._choose(len(menu))] if self._step is not None else _pick(self._choose, menu)
        self._done = fault is not None
        return fault


def _pick(choose: Chooser, menu: Sequence[Fault]) -> Fault | None:
    answer = choose(len(menu) + 1)
    return menu[answer - 1] if answer else None


@frozen
class Size:
    """How long the plain schedule is: steps of the loop, and choices among ready tasks."""

    steps: int
    choices: int


ORDERS: Final = ("fifo", "random", "priorities")
"""How a drawn schedule may order the tasks."""


RATES: Final = {"stream": 0.15, "tool": 0.15, "hook": 0.1, "listener": 0.01, "wait": 0.3}
"""How often something goes wrong at a fault point, or is done from outside while everything waits. There are many events,
and each of them is a fault point for a listener.
"""


INJECTED: Final = 50
"""Faults and acts of one drawn schedule, after which all is well: whoever is fed without end can't be asked to end."""


@final
class Swarm:
    """A schedule that is drawn, in the manner of a swarm: first *which* kinds of fault there are in it at all, how often,
    and who orders the tasks, and only then where. A mean schedule has a few kinds of fault, each of them often enough.

    Source: Groce et al., "Swarm Testing", ISSTA 2012.
    """

    def __init__(self, seed: str, kinds: Set[FaultKind], size: Size, orders: Sequence[str] = ORDERS) -> None:
        self._lots = lots = random.Random(seed)
        self.chooser = lots.choice(orders)
        self._left = INJECTED
        self._order = _chooser(self.chooser, seed, lots, size)
        calm = lots.random() < 0.25  # a race that needs no fault is told best without one
        kinds_in_order = sorted(kinds)
        drawn = {kind for kind in kinds_in_order if lots.random() < 0.4}
        if any(kind.endswith("ignores cancel") for kind in drawn):  # it shows only when there is one
            drawn |= kinds & {FaultKind.CANCEL_RUN}
        self._kinds = frozenset() if calm else frozenset(drawn or lots.sample(kinds_in_order, min(1, len(kinds))))
        self._rates = {place: lots.choice((0.2, 1, 3)) * usual for place, usual in RATES.items()}
        self._acts = {lots.randrange(size.steps * 3 // 2 + 1) for _ in range(lots.choice((0, 1, 1, 2, 3)))}

    def order(self, _place: str, owners: Sequence[Owner]) -> int:
        """As the chooser says."""
        return self._order(owners)

    def fault(self, _place: str, menu: Sequence[Fault]) -> Fault | None:
        """One of the kinds that are in this schedule, at its rate."""
        mine = [fault for fault in menu if fault.kind in self._kinds]
        return self._one_of(mine) if mine and self._lots.random() < self._rates[mine[0].kind.place] else None

    def act(self, _place: str, step: int | None, menu: Sequence[Fault]) -> Fault | None:
        """At the steps that were drawn before; and now and then while everything waits: few steps, but most of the time."""
        mine = [fault for fault in menu if fault.kind in self._kinds]
        due = self._lots.random() < self._rates["wait"] if step is None else step in self._acts
        return self._one_of(mine) if due and mine else None

    def _one_of(self, mine: Sequence[Fault]) -> Fault | None:
        self._left -= 1
        return self._lots.choice(mine) if self._left >= 0 else None


def _chooser(name: str, seed: str, lots: random.Random, size: Size) -> Callable[[Sequence[Owner]], int]:
    if name == "fifo":
        return lambda _: 0
    if name == "priorities":
        return Priorities(seed, changes=lots.choice((1, 2, 3)), steps=size.choices).among
    choose = Seeded(seed)
    return lambda owners: choose(len(owners))


@final
@frozen
class Deviation:
    """One deviation that took place, and how to tell of it."""

    place: str
    what: str
    story: str = field(eq=False)


@final
class Schedule:
    """The decisions of one simulation, as its loop, its fault points and its driver ask for them; it keeps what deviated.

    It is the chooser of the loop. `mute` ends it: from then on everything is plain.
    """

    def __init__(self, source: Source, kinds: Set[FaultKind]) -> None:
        self.taken: list[Deviation] = []
        self.choices = 0
        self.muted = False
        self.injected = False
        self._source = source
        self._times: Counter[str] = Counter()
        self._menus = {
            place: [fault for fault in MENU if fault.kind in kinds and fault.kind.place == place]
            for place in ("stream", "tool", "hook", "listener", "outside")
        }

    @property
    def deviations(self) -> dict[str, str]:
        """What deviated, by place."""
        return {deviation.place: deviation.what for deviation in self.taken}

    def mute(self) -> None:
        """Nothing deviates any more."""
        self.muted = True

    # ---- for the loop ----

    def __call__(self, _count: int) -> int:
        return 0

    def among(self, owners: Sequence[Owner]) -> int:
        """Which of these goes next."""
        if self.muted:
            return 0
        self.choices += 1
        place = f"order {self.choices}"
        answer = self._source.order(place, owners)
        if answer:
            story = f"{_name(owners[answer])} went before {_name(owners[0])}"
            self.taken.append(Deviation(place, str(answer), story))
        return answer

    # ---- for the fault points ----

    def fault(self, kind: str, what: str) -> Fault | None:
        """What goes wrong at *what*, which is a fault point of this kind."""
        if self.muted:
            return None
        self._times[what] += 1
        place = f"{what} {self._times[what]}"
        fault = self._source.fault(place, self._menus[kind])
        if fault is not None:
            self._inject(place, fault, f"{what}, call {self._times[what]}: {fault}")
        return fault

    # ---- for the driver ----

    def act(self, place: str, step: int | None) -> Fault | None:
        """What is done from outside at *place*: before this step, or (None) while everything waits."""
        return None if self.muted else self._source.act(place, step, self._menus["outside"])

    def acted(self, place: str, fault: Fault, where: str) -> None:
        """It was done."""
        self._inject(place, fault, f"at {place}, {where}: {fault}")

    def _inject(self, place: str, fault: Fault, story: str) -> None:
        self.injected = True
        self.taken.append(Deviation(place, str(fault), story))


def _name(owner: "asyncio.Task[Any] | None") -> str:
    return "a callback" if owner is None else repr(owner.get_name())
