"""How spans are laid out: a lane for each tool, rows for what ran side by side, and one bar for what is too narrow."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from attrs import evolve

from kernel.pictures.story import Span, Verdict

HAIR: Final = 1.0
"""The narrowest bar, in pixels."""
LANES: Final = 12
"""Tools with a lane of their own; those that took the least time share the last one."""
ROWS: Final = 8
"""Rows of a lane; what runs beside even more is drawn over the last one."""
_WORST: Final[tuple[Verdict, ...]] = ("failed", "cut off", "ok", "not executed", "waiting")


def lanes_of(calls: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    """The calls of each tool, in the order in which the tools were first called."""
    lanes: dict[str, list[Span]] = {}
    for span in calls:
        lanes.setdefault(span.name, []).append(span)
    if len(lanes) <= LANES:
        return list(lanes.items())
    longest = sorted(lanes, key=lambda name: -sum(span.end - span.start for span in lanes[name]))
    shown = set(longest[: LANES - 1])
    rest = [span for span in calls if span.name not in shown]
    own = [(name, spans) for name, spans in lanes.items() if name in shown]
    return [*own, (f"{len(lanes) - len(shown)} more tools", rest)]


def rows_of(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans in as few rows as they need, so that in a row none covers another, unless there are too many."""
    rows: list[list[Span]] = []
    for span in spans:
        free = next((row for row in rows if row[-1].end <= span.start), None)
        if free is None and len(rows) == ROWS:
            free = rows[-1]
        if free is None:
            rows.append([span])
        else:
            free.append(span)
    return rows


def condensed(spans: Iterable[Span], place: Callable[[float], float]) -> Iterator[tuple[Span, int]]:
    """What is drawn: each span with 1, or one span for a group of neighbours of which each alone would be a hair.

    So the number of bars is bounded by the width of the picture. A group has the name that took the longest in it, and the
    worst that happened in it.
    """
    group: list[Span] = []
    for span in spans:
        narrow = place(span.end) - place(span.start) < HAIR
        near = bool(group) and place(span.end) - place(group[0].start) < 2 * HAIR
        if group and not (narrow and near):
            yield _together(group)
            group = []
        if narrow:
            group.append(span)
        else:
            yield span, 1
    if group:
        yield _together(group)


def _together(group: Sequence[Span]) -> tuple[Span, int]:
    if len(group) == 1:
        return group[0], 1
    times: dict[str, float] = {}
    for span in group:
        times[span.name] = times.get(span.name, 0.0) + span.end - span.start
    name = max(times, key=lambda name: times[name])
    verdict = min((span.verdict for span in group), key=_WORST.index)
    end = max(span.end for span in group)
    return evolve(group[0], name=name, end=end, verdict=verdict, detail=""), len(group)
