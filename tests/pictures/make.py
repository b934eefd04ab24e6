"""`python -m tests.pictures.make` writes the pictures of the documentation that are drawn from simulated runs."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from kernel.cli.live import View
from kernel.pictures import path, timeline
from tests.pictures.stories import as_trace, three_hours, three_seconds

_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that would be fetched from elsewhere."""


def terminal(trace: str, now: float) -> str:
    """What the live view shows of a run at *now*, 80 columns wide."""
    view = View(typed="and mind the tests")
    for heard in as_trace(trace).heard:
        if heard.at <= now:
            view.take(heard.event, heard.at)
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line, style in view.lines:
        console.print(Text(line, style))
    for row in view.rows(80, now):
        console.print(Text.assemble(*row))
    return _FONTS.sub("", console.export_svg(title="python -m kernel", unique_id="terminal"))


FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES: Final[dict[str, Callable[[], str]]] = {
    "timeline.svg": lambda: timeline(as_trace(three_seconds())),
    "timeline-long.svg": lambda: timeline(as_trace(three_hours())),
    "path.svg": lambda: path(as_trace(three_seconds())),
    "terminal.svg": lambda: terminal(three_seconds(), 0.72),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8", newline="\n")
        print(f"wrote {FOLDER / name}")
