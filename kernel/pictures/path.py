"""The way of a run on the phase diagram: where it was is marked, how often it went which way, and how long it stayed.

The diagram is the one that the declaration drew (`statechart.phases`); nothing is laid out here, so no graphviz is needed.
"""

from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree

from kernel.pictures.story import Story, tell
from kernel.pictures.svg import Element, add, duration, to_text
from kernel.trace.file import Trace
from statechart import Phase
from statechart.phases import drawing, place_id, way_id

_SVG: Final = "{http://www.w3.org/2000/svg}"
_PALE: Final = "0.25"
_INK: Final = "#d84315"


def path(trace: Trace) -> str:
    """The picture of the way that *trace* went, as the text of an SVG file. Raises ValueError when it went nowhere."""
    story = tell(trace)
    went = story.spans_between()
    if not went:
        raise ValueError("no phase changes in the trace: nothing to mark")
    ElementTree.register_namespace("", _SVG.strip("{}"))
    root = ElementTree.fromstring(drawing().read_text(encoding="utf-8"))  # noqa: S314 - our own drawing
    groups = {group.get("id", ""): group for group in root.iter(f"{_SVG}g")}
    stayed = _stayed(story)
    for phase in Phase:
        _mark_place(groups[place_id(phase)], stayed.get(phase))
    for source in Phase:
        for target in Phase:
            arrow = groups.get(way_id(source, target))
            if arrow is not None:
                _mark_way(arrow, went.get((source, target), 0))
    if unknown := {way: count for way, count in went.items() if way_id(*way) not in groups}:
        said = ", ".join(f"{source} → {target} {count}×" for (source, target), count in unknown.items())
        _note(root, f"not in this lifecycle: {said}")
    return to_text(root)


def steps(trace: Trace) -> Iterator[tuple[str, float]]:
    """The phases in their order, each with the seconds that it lasted."""
    for span in tell(trace).phases:
        yield span.name, span.end - span.start


def _stayed(story: Story) -> dict[str, tuple[int, float]]:
    """How often each phase was entered, and how long it lasted in all."""
    stayed: dict[str, tuple[int, float]] = {}
    for span in story.phases:
        count, seconds = stayed.get(span.name, (0, 0.0))
        stayed[span.name] = (count + 1, seconds + span.end - span.start)
    return stayed


def _mark_place(group: Element, stayed: tuple[int, float] | None) -> None:
    if stayed is None:
        group.set("opacity", _PALE)
        return
    (name,) = group.iter(f"{_SVG}text")
    x, y = float(name.get("x", "0")), float(name.get("y", "0"))
    name.set("y", f"{y - 7:.2f}")
    name.set("font-weight", "bold")
    count, seconds = stayed
    said = f"{count}×, {duration(seconds)}"
    add(group, f"{_SVG}text", said, x=x, y=y + 10, text_anchor="middle", font_family="Arial", font_size=11)
    for shape in group.iter(f"{_SVG}path"):
        shape.set("stroke-width", "2.5")


def _note(root: Element, text: str) -> None:
    """What can't be marked: the trace is another version's, or damaged, or the kernel itself failed."""
    left, top, _, height = (float(part) for part in root.get("viewBox", "0 0 0 0").split())
    add(root, f"{_SVG}text", text, x=left + 20, y=top + height - 12, fill=_INK, font_family="Arial", font_size=12)


def _mark_way(group: Element, count: int) -> None:
    if not count:
        group.set("opacity", _PALE)
        return
    for shape in (*group.iter(f"{_SVG}path"), *group.iter(f"{_SVG}polygon")):
        shape.set("stroke", _INK)
        shape.set("stroke-width", "2.5")
        if shape.tag == f"{_SVG}polygon":
            shape.set("fill", _INK)
    for text in group.iter(f"{_SVG}text"):
        said = (text.text or "").strip("\N{NO-BREAK SPACE} ")
        text.text = f"{said} {count}×".strip()
        text.set("fill", _INK)
        text.set("font-weight", "bold")
