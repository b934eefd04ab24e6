"""A run over time, as SVG: phases as bands, responses and tools as bars, messages as marks from when they came to when they
were delivered, cancellation and retries. It is one width for any length, so that three seconds and three hours are read
alike: what is narrower than a hair is drawn together with its neighbours and counted, and a pause between two runs is cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from xml.etree import ElementTree

from attrs import evolve

from kernel.pictures.lanes import HAIR, condensed, lanes_of, rows_of
from kernel.pictures.story import Span, Story, Wait, tell
from kernel.pictures.svg import (
    CHARACTER,
    Element,
    Piece,
    Scale,
    add,
    duration,
    fits,
    plain,
    shortened,
    step_of,
    tip,
    to_text,
)
from kernel.trace.file import Trace
from statechart import Phase

WIDTH, GUTTER, MARGIN = 1200, 150, 24
_PAUSE: Final = 46.0  # the width of a pause that was cut short
_LONG_PAUSE: Final = 0.1  # of all that is busy
_BAND, _BAR, _GAP, _SMALL = 24, 12, 10, 11
_TICKS: Final = 9
_UNKNOWN: Final = "#eeeeee"
"""A phase of another version."""
_PHASES: Final[dict[str, str]] = {
    Phase.IDLE: "#eceff1", Phase.TURN: "#90caf9", Phase.STEERING: "#ce93d8", Phase.FOLLOW_UP: "#b39ddb",
    Phase.COMPACTION: "#a5d6a7", Phase.RETRY: "#ffcc80", Phase.CANCELLING: "#ef9a9a", Phase.SETTLING: "#b0bec5",
    Phase.CLOSED: "#78909c",
}  # fmt: skip
_VERDICTS: Final = {
    "ok": "#1e88e5", "failed": "#d32f2f", "cut off": "#f57c00", "not executed": "#9e9e9e", "waiting": "#bbdefb",
}  # fmt: skip
_ORIGINS: Final = {"prompt": "#37474f", "steering": "#8e24aa", "follow_up": "#5e35b1", "correction": "#6d4c41"}
_TROUBLE: Final = {
    "cancel": "#d32f2f", "retry": "#ef6c00", "compaction": "#2e7d32", "hook failed": "#ad1457",
    "listener failed": "#6a1b9a", "too late": "#757575",
}  # fmt: skip
_STYLE: Final = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Arial,sans-serif;font-size:11px;fill:#263238}"
    ".title{font-size:15px;font-weight:600}.soft{fill:#607d8b}.on{fill:#102027}"
    ".grid{stroke:#cfd8dc;stroke-width:1}.end{text-anchor:end}.middle{text-anchor:middle}"
)


def timeline(trace: Trace) -> str:
    """The picture of *trace*, as the text of an SVG file. Raises ValueError when nothing happened in it."""
    story = tell(trace)
    if not story.runs:
        raise ValueError("the trace has no run: nothing to draw")
    return to_text(_Drawing(story, trace).draw())


class _Drawing:
    """One picture while it is drawn, from top to bottom."""

    def __init__(self, story: Story, trace: Trace) -> None:
        self._story = story
        self._trace = trace
        self._scale = scale_of(story.runs)
        self._root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
        self._y = 0.0

    def draw(self) -> Element:
        root = self._root
        summary = _summary(self._story)
        tip(root, summary)
        add(root, "style", _STYLE)
        paper = add(root, "rect", width="100%", height="100%", fill="white")
        add(root, "text", summary, x=MARGIN, y=28, class_="title")
        begun = self._trace.began.strftime("%Y-%m-%d %H:%M:%S %Z").strip()
        add(root, "text", f"begun {begun}", x=WIDTH - MARGIN, y=28, class_="soft end")
        self._y = 64.0
        grid = add(root, "g")
        self._phases()
        self._bars("model", self._story.responses)
        for name, spans in lanes_of(self._story.calls):
            self._bars(name, spans)
        self._messages()
        self._trouble()
        self._ticks(grid)
        self._legend()
        height = self._y + MARGIN
        root.set("viewBox", f"0 0 {WIDTH} {height:.0f}")
        root.set("width", str(WIDTH))
        root.set("height", f"{height:.0f}")
        paper.set("rx", "6")
        return root

    # ---- the lanes ----

    def _label(self, name: str, below: str = "") -> None:
        label = add(self._root, "text", shortened(name, 20), x=GUTTER - 10, y=self._y + _SMALL, class_="end")
        tip(label, name)
        if below:
            add(self._root, "text", below, x=GUTTER - 10, y=self._y + 2 * _SMALL + 2, class_="soft end")

    def _phases(self) -> None:
        self._label("phase")
        for span, count in condensed(self._inside(self._story.phases), self._scale.place):
            left, width = self._extent(span)
            fill = _PHASES.get(span.name, _UNKNOWN)
            band = add(self._root, "rect", x=left, y=self._y, width=width, height=_BAND, fill=fill)
            said = span.name.replace("_", "-")
            tip(band, f"{count} phases, mostly {said}" if count > 1 else f"{said}, {duration(span.end - span.start)}")
            if fits(said, _SMALL, width - 4):
                add(self._root, "text", said, x=left + width / 2, y=self._y + 16, class_="on middle")
        for run in self._story.runs:
            end = self._scale.place(run.end)
            add(
                self._root, "line", x1=end, x2=end, y1=self._y - 4, y2=self._y + _BAND + 4, stroke="#263238", stroke_width=2
            )  # fmt: skip
        self._y += _BAND + _GAP

    def _inside(self, spans: Iterable[Span]) -> Iterator[Span]:
        """The phases while something ran: of a pause nothing is drawn but its length."""
        first, last = self._scale.pieces[0].start, self._scale.pieces[-1].end
        for span in spans:
            start, end = max(span.start, first), min(span.end, last)
            if span.name != Phase.IDLE and end >= start:
                yield evolve(span, start=start, end=end)

    def _bars(self, name: str, spans: Sequence[Span]) -> None:
        if not spans:
            return
        rows = rows_of(spans)
        own = [span for span in spans if span.name != "waiting"]
        busy = sum(span.end - span.start for span in own)
        self._label(name, f"{len(own)}×, {duration(busy)}")
        for number, row in enumerate(rows):
            y = self._y + number * (_BAR + 2)
            for span, count in condensed(row, self._scale.place):
                left, width = self._extent(span)
                bar = add(
                    self._root, "rect", x=left, y=y, width=width, height=_BAR, rx=2, fill=_VERDICTS[span.verdict]
                )  # fmt: skip
                said = f"{span.name}, {duration(span.end - span.start)}, {span.verdict}"
                tip(bar, f"{count} in {duration(span.end - span.start)}" if count > 1 else _with(said, span.detail))
        self._y += max(len(rows) * (_BAR + 2), 2 * _SMALL + 6) + _GAP

    def _messages(self) -> None:
        waits = self._story.waits
        if not waits:
            return
        self._label("messages", f"{sum(wait.delivered is not None for wait in waits)} delivered")
        for wait in waits:
            self._message(wait)
        self._y += 2 * _BAR + _GAP

    def _message(self, wait: Wait) -> None:
        ink = _ORIGINS[wait.origin]
        mark = add(self._root, "g", stroke=ink, fill=ink)
        tip(mark, _with(_told(wait), wait.text))
        y = self._y + _BAR
        came = None if wait.came is None else self._scale.place(wait.came)
        delivered = None if wait.delivered is None else self._scale.place(wait.delivered)
        if came is not None and delivered is not None:
            add(mark, "line", x1=came, x2=delivered, y1=y, y2=y, stroke_width=1.5)
        if came is not None:
            add(mark, "circle", cx=came, cy=y, r=4, fill="white", stroke_width=1.5)
            if delivered is None:
                add(mark, "text", "…" if wait.end == "waiting" else "×", x=came + 7, y=y + 4, stroke="none")
        if delivered is not None:
            add(mark, "path", d=f"M{delivered - 4:.1f} {y - 6:.1f}h8l-4 10z", stroke="none")

    def _trouble(self) -> None:
        moments = self._story.moments
        if not moments:
            return
        self._label("marks")
        places = [self._scale.place(moment.at) for moment in moments]
        for moment, at, after in zip(moments, places, [*places[1:], WIDTH + GUTTER], strict=True):
            ink = _TROUBLE[moment.kind]
            mark = add(self._root, "g", fill=ink)
            tip(mark, _with(f"{moment.kind} at {duration(moment.at)}", moment.detail))
            add(mark, "path", d=f"M{at:.1f} {self._y:.1f}l5 10h-10z")
            if moment.kind == "cancel":
                add(mark, "line", x1=at, x2=at, y1=60, y2=self._y, stroke=ink, stroke_dasharray="4 3")
            end = at + 12 + _SMALL * CHARACTER * len(moment.kind)
            if end > WIDTH:
                add(mark, "text", moment.kind, x=at - 7, y=self._y + 10, class_="end")
            elif end < after:
                add(mark, "text", moment.kind, x=at + 7, y=self._y + 10)
        self._y += _BAND + _GAP

    # ---- around them ----

    def _ticks(self, grid: Element) -> None:
        first = self._scale.pieces[0].start
        length = sum(piece.end - piece.start for piece in self._busy()) or 1e-6
        step = step_of(length, _TICKS)
        for piece in self._busy():
            number = -(-(piece.start - first) // step)
            while (at := first + number * step) <= piece.end + step * 1e-9:
                x = self._scale.place(at)
                add(grid, "line", x1=x, x2=x, y1=56, y2=self._y - _GAP, class_="grid")
                add(grid, "text", duration(number * step) if number else "0", x=x, y=50, class_="soft middle")
                number += 1
        for pause in self._scale.pieces[1::2]:
            left, width, middle = pause.left + 4, pause.right - pause.left - 8, (pause.left + pause.right) / 2
            add(grid, "rect", x=left, y=56, width=width, height=self._y - 66, fill="#f5f7f8")
            said = add(grid, "text", "pause", x=middle, y=self._y - 14, class_="soft middle")
            tip(said, f"nothing ran for {duration(pause.end - pause.start)}")
            add(grid, "text", duration(pause.end - pause.start), x=middle, y=self._y - 2, class_="soft middle")

    def _busy(self) -> list[Piece]:
        return list(self._scale.pieces[::2])

    def _legend(self) -> None:
        self._y += 18
        x = float(MARGIN)
        used = {span.verdict for span in (*self._story.responses, *self._story.calls)}
        for word, ink in _VERDICTS.items():
            if word in used:
                add(self._root, "rect", x=x, y=self._y - 9, width=10, height=10, rx=2, fill=ink)
                add(self._root, "text", word, x=x + 14, y=self._y, class_="soft")
                x += 14 + 7 * len(word) + 16
        for origin in dict.fromkeys(wait.origin for wait in self._story.waits):
            word = origin.replace("_", "-")
            add(self._root, "path", d=f"M{x:.1f} {self._y - 8:.1f}h8l-4 10z", fill=_ORIGINS[origin])
            add(self._root, "text", word, x=x + 14, y=self._y, class_="soft")
            x += 14 + 7 * len(word) + 16
        add(self._root, "text", "circle: came, triangle: delivered", x=x, y=self._y, class_="soft")

    def _extent(self, span: Span) -> tuple[float, float]:
        left = self._scale.place(span.start)
        return left, max(self._scale.place(span.end) - left, HAIR)


def scale_of(runs: Sequence[Span]) -> Scale:
    """A scale with a piece for each stretch of runs, and one for each long pause between two of them."""
    busy = sum(run.end - run.start for run in runs)
    stretches = [(runs[0].start, runs[0].end)]
    for run in runs[1:]:
        start, end = stretches[-1]
        if run.start - end > busy * _LONG_PAUSE:
            stretches.append((run.start, run.end))
        else:
            stretches[-1] = (start, run.end)
    width = WIDTH - GUTTER - MARGIN
    pause = min(_PAUSE, width / (2 * len(stretches)))
    length = sum(end - start for start, end in stretches) or 1.0
    room = width - pause * (len(stretches) - 1)
    pieces: list[Piece] = []
    left = float(GUTTER)
    for number, (start, end) in enumerate(stretches):
        if number:
            pieces.append(Piece(pieces[-1].end, start, left, left + pause))
            left += pause
        right = left + room * ((end - start) / length)
        pieces.append(Piece(start, end, left, right))
        left = right
    return Scale(pieces)


def _summary(story: Story) -> str:
    runs, first = story.runs, story.runs[0]
    took = duration(sum(run.end - run.start for run in runs))
    how = first.name if len(runs) == 1 else f"{len(runs)} runs"
    if len(runs) == 1 and first.verdict == "cut off":
        how = "cut off"
    why = f" ({shortened(first.detail, 60)})" if len(runs) == 1 and first.detail else ""
    usage = f"{story.usage.input:,} tokens in, {story.usage.output:,} out"
    turns = f"{story.turns} turn{'' if story.turns == 1 else 's'}"
    calls = f"{len(story.calls)} tool call{'' if len(story.calls) == 1 else 's'}"
    return plain(f"{how}{why} · {took} · {turns} · {calls} · {usage}")


def _told(wait: Wait) -> str:
    who = wait.origin.replace("_", "-")
    if wait.delivered is None:
        return f"{who}, {'still waiting at the end' if wait.end == 'waiting' else wait.end}"
    if wait.came is None:
        return f"{who} at {duration(wait.delivered)}"
    return f"{who}, waited {duration(wait.delivered - wait.came)}"


def _with(text: str, detail: str) -> str:
    return f"{text}: {shortened(detail, 200)}" if detail else text


__all__ = ["scale_of", "timeline"]
