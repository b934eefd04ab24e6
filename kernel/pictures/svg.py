"""Writing SVG: elements with attributes, text that no file can break, and a scale from seconds to places."""

import re
from collections.abc import Sequence
from typing import Any, Final, final
from xml.etree import ElementTree

from attrs import frozen

_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STEPS: Final = (1, 2, 5)
_MINUTES: Final = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
CHARACTER: Final = 0.6
"""The width of a letter, as a part of its size: enough for what is written here."""

Element = ElementTree.Element


def plain(text: str) -> str:
    """*text* with what XML can't say made visible."""
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)


def add(parent: Element, name: str, text: str | None = None, **attributes: Any) -> Element:
    """A new element in *parent*; `class_` and `font_size` are `class` and `font-size`."""
    named = {key.rstrip("_").replace("_", "-"): _number(value) for key, value in attributes.items()}
    element = ElementTree.SubElement(parent, name, named)
    element.text = None if text is None else plain(text)
    return element


def _number(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else plain(str(value))


def tip(element: Element, text: str) -> None:
    """What a browser shows when the pointer is on *element*."""
    add(element, "title", text)


def to_text(root: Element) -> str:
    """The file."""
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def fits(text: str, size: float, width: float) -> bool:
    """Whether *text* can be written within *width*."""
    return len(text) * size * CHARACTER <= width


def shortened(text: str, characters: int) -> str:
    """The first line of *text*, and no more than *characters* of it."""
    line = text.split("\n", 1)[0]
    return line if len(line) <= characters else line[: characters - 1] + "…"


def duration(seconds: float) -> str:
    """A time as people say it: `12 ms`, `1.5 s`, `2:05 min`, `3:02:05 h`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h"


def step_of(length: float, count: int) -> float:
    """A round step, so that *length* seconds have about *count* of them."""
    wanted = length / count
    if wanted >= 10:
        return float(next((step for step in _MINUTES if step >= wanted), 86400 * -(-wanted // 86400)))
    power = 1e-6
    while True:
        for step in _STEPS:
            if step * power >= wanted:
                return step * power
        power *= 10


@final
@frozen
class Piece:
    """A part of the time, and where it is drawn."""

    start: float
    end: float
    left: float
    right: float


@final
@frozen
class Scale:
    """From seconds to places, piece by piece: nights in which nothing ran are cut short."""

    pieces: Sequence[Piece]

    def place(self, at: float) -> float:
        """Where *at* is drawn."""
        for piece in self.pieces:
            if at <= piece.end:
                share = (max(at, piece.start) - piece.start) / ((piece.end - piece.start) or 1.0)
                return piece.left + share * (piece.right - piece.left)
        return self.pieces[-1].right
