"""`python -m tests.pictures.make` writes the pictures of the documentation that are drawn from simulated runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kernel.pictures import path, timeline
from tests.pictures.stories import as_trace, three_hours, three_seconds

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES: Final[dict[str, Callable[[], str]]] = {
    "timeline.svg": lambda: timeline(as_trace(three_seconds())),
    "timeline-long.svg": lambda: timeline(as_trace(three_hours())),
    "path.svg": lambda: path(as_trace(three_seconds())),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8", newline="\n")
        print(f"wrote {FOLDER / name}")
