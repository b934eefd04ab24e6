"""The pictures: well formed whatever the trace says, bounded whatever its length, and showing what happened."""

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.events import Event, MessageAccepted, PhaseChanged, RunStarted, ToolEnded, ToolStarted
from kernel.frozen import EMPTY
from kernel.messages import UserMessage
from kernel.pictures import path, timeline
from kernel.pictures.lanes import LANES, ROWS, condensed, lanes_of, rows_of
from kernel.pictures.story import Span, tell
from kernel.pictures.svg import Scale, duration, step_of
from kernel.pictures.timeline import GUTTER, WIDTH, scale_of
from kernel.trace.file import Heard, Trace
from statechart import Ask, Decision, Leaf, Phase, Step, compile_table
from statechart.phases import drawing, place_id, way_id, ways_between
from statechart.vocabulary import phase_of
from tests.kernel.strategies import EVENTS
from tests.pictures.make import PICTURES
from tests.pictures.stories import BEGAN, as_trace, three_hours, three_seconds

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
LONG = three_hours()


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]


class TestTimeline:
    def test_it_tells_what_happened(self) -> None:
        """The whole, and by the pointer each span, message and mark."""
        said = titles(timeline(as_trace(three_seconds())))
        assert said[0].startswith("cancelled (enough for today) · 3.0 s · 4 turns · 4 tool calls · 4,400 tokens in")
        for expected in (
            "retry, 250 ms", "run_tests, 550 ms, failed: 3 failed", "model, 550 ms, cut off: aborted",
            "steering, waited 250 ms: Leave b.py alone.", "follow-up, waited 750 ms: Then write documentation.",
            "cancel at 3.0 s", "retry at 1.1 s: attempt 1 failed, next in 0.2 s: overloaded",
        ):  # fmt: skip
            assert expected in said

    def test_a_long_run_is_as_small_as_a_short_one_is_wide(self) -> None:
        """Bars are bounded by the width: ten times the turns do not make them more than some."""
        bars = re.findall("<rect", timeline(as_trace(LONG)))
        rows = 3 + ROWS * 2
        assert 400 < len(bars) < rows * WIDTH

    def test_a_night_is_cut_short(self) -> None:
        assert "nothing ran for 8:00:00 h" in titles(timeline(as_trace(LONG)))

    @given(st.text(), st.text(), st.text())
    def test_any_text_is_well_formed(self, said: str, name: str, answer: str) -> None:
        """Control characters, halves of characters and markup are text."""
        events = [
            RunStarted("r", 0), MessageAccepted("r", 1, UserMessage(said or "x"), "prompt"),
            ToolStarted("r", 2, "c", name, EMPTY), ToolEnded("r", 3, "c", name, answer, False, True),
        ]  # fmt: skip
        svg = timeline(Trace(BEGAN, tuple(Heard(at, event) for at, event in enumerate(events))))
        assert ElementTree.fromstring(svg.encode()).tag == f"{SVG}svg"

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(EVENTS, st.lists(st.floats(0, 1e9), min_size=12, max_size=12).map(sorted))
    def test_any_trace_can_be_drawn(self, events: list[Event], times: list[float]) -> None:
        """Of another version, damaged or cut off: any events in any order, with any text in them."""
        trace = Trace(BEGAN, tuple(Heard(at, event) for at, event in zip(times, events, strict=False)))
        story = tell(trace)
        for draw, drawable in ((timeline, story.runs), (path, len(story.phases) > 1)):
            if drawable:
                assert ElementTree.fromstring(draw(trace).encode()).tag == f"{SVG}svg"

    def test_a_run_without_any_time(self) -> None:
        """All at once, as in a test with a clock that stands still."""
        events = [RunStarted("r", 0), PhaseChanged("r", 1, "idle", "turn")]
        assert "turn" in timeline(Trace(BEGAN, tuple(Heard(0.0, event) for event in events)))

    def test_nothing_to_draw(self) -> None:
        with pytest.raises(ValueError, match="the trace has no run"):
            timeline(Trace(BEGAN, ()))


class TestLayout:
    @given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20).map(sorted), st.data())
    def test_places_keep_the_order_of_time(self, times: list[float], data: st.DataObject) -> None:
        runs = [Span("completed", start, end) for start, end in zip(times[::2], times[1::2], strict=False)]
        scale = scale_of(runs)
        asked = sorted(data.draw(st.lists(st.floats(-1, 2e6), min_size=1)))
        places = [scale.place(at) for at in asked]
        assert all(before <= after + 1e-6 for before, after in itertools.pairwise(places))
        assert all(GUTTER - 1e-6 <= place <= WIDTH for place in places)

    @given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=40))
    def test_in_a_row_nothing_covers_another(self, pairs: list[tuple[float, float]]) -> None:
        spans = sorted((Span("t", min(pair), max(pair)) for pair in pairs), key=lambda span: span.start)
        rows = rows_of(spans)
        assert sorted((span for row in rows for span in row), key=id) == sorted(spans, key=id)
        assert len(rows) <= ROWS
        for row in rows[: ROWS - 1]:
            assert all(before.end <= after.start for before, after in itertools.pairwise(row))

    @given(st.lists(st.floats(0, 5), max_size=200), st.floats(0.001, 100))
    def test_neighbours_that_are_hairs_are_counted_together(self, lengths: list[float], factor: float) -> None:
        """None is lost, and there are never more bars than the width has room for."""
        spans, at = [], 0.0
        for length in lengths:
            spans.append(Span("t", at, at + length))
            at += length
        bars = list(condensed(spans, lambda place: place * factor))
        assert sum(count for _, count in bars) == len(spans)
        assert len(bars) <= 3 * at * factor + 2

    def test_the_worst_of_a_group_is_seen(self) -> None:
        spans = [Span("t", 0, 0.1), Span("t", 0.1, 0.2, "failed"), Span("t", 0.2, 0.3)]
        assert [(span.verdict, count) for span, count in condensed(spans, lambda at: at)] == [("failed", 3)]

    def test_tools_beyond_a_dozen_share_a_lane(self) -> None:
        spans = [Span(f"tool{number}", number, number + 1 + number / 100) for number in range(LANES + 5)]
        lanes = lanes_of(spans)
        assert [name for name, _ in lanes][-1] == "6 more tools"
        assert len(lanes) == LANES
        assert sum(len(of) for _, of in lanes) == len(spans)

    @pytest.mark.parametrize(
        ("seconds", "said"),
        [
            (0, "0 ms"), (0.0124, "12 ms"), (0.9996, "1.0 s"), (59.94, "59.9 s"), (59.96, "1:00 min"), (125, "2:05 min"),
            (3599.6, "1:00:00 h"), (10925, "3:02:05 h"), (90061, "25:01:01 h"),
        ],
    )  # fmt: skip
    def test_times_are_said_as_people_say_them(self, seconds: float, said: str) -> None:
        assert duration(seconds) == said

    @given(st.floats(1e-5, 1e7))
    def test_an_axis_has_some_round_steps(self, length: float) -> None:
        """Never too many to be read; two at least, where a day is not too long a step."""
        assert 2 <= length / step_of(length, 9) <= 9.001

    def test_a_place_beyond_the_last_piece(self) -> None:
        scale = scale_of([Span("completed", 1.0, 2.0)])
        assert isinstance(scale, Scale)
        assert scale.place(99.0) == scale.place(2.0) == pytest.approx(WIDTH - 24)


def targets(decision: Decision) -> Iterator[Leaf]:
    """Where a decision can lead."""
    match decision:
        case Ask():
            yield from targets(decision.yes)
            yield from targets(decision.no)
        case Step(target=Leaf() as target):
            yield target
        case _:
            pass


class TestPath:
    @pytest.mark.parametrize("text", [three_seconds(), LONG], ids=["short", "long"])
    def test_it_marks_the_ways_that_were_taken_and_no_others(self, text: str) -> None:
        trace = as_trace(text)
        went = tell(trace).spans_between()
        groups = {group.get("id"): group for group in ElementTree.fromstring(path(trace)).iter(f"{SVG}g")}
        for source, target in ways_between():
            arrow, count = groups[way_id(source, target)], went[source, target]
            assert (arrow.get("opacity") is None) == (count > 0)
            said = "".join(arrow.itertext())
            assert (f"{count}×" in said) == (count > 0)

    def test_places_tell_how_long(self) -> None:
        root = ElementTree.fromstring(path(as_trace(three_seconds())))
        groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
        assert "1×, 250 ms" in "".join(groups["phase-retry"].itertext())
        assert groups["phase-compaction"].get("opacity") is not None

    def test_a_way_that_there_is_not_is_said(self) -> None:
        """Of a damaged trace, or of another version of the lifecycle."""
        events = [PhaseChanged("r", 0, "idle", "turn"), PhaseChanged("r", 1, "retry", "idle")]
        svg = path(Trace(BEGAN, tuple(Heard(at, event) for at, event in enumerate(events))))
        assert "not in this lifecycle: turn → idle 1×" in svg

    def test_nothing_to_mark(self) -> None:
        with pytest.raises(ValueError, match="no phase changes"):
            path(Trace(BEGAN, ()))

    def test_the_drawing_has_each_way_of_the_declaration(self) -> None:
        """What the compiled table can do between phases is an arrow, and nothing else is."""
        possible = {
            (phase_of(leaf), phase_of(target))
            for leaf, row in compile_table().items()
            for decision in row.values()
            for target in targets(decision)
            if phase_of(leaf) is not phase_of(target)
        }
        ids = {str(group.get("id")) for group in ElementTree.parse(drawing()).iter(f"{SVG}g")}
        assert {name for name in ids if name.startswith("way-")} == {way_id(*pair) for pair in possible}
        assert {name for name in ids if name.startswith("phase-")} == {place_id(phase) for phase in Phase}


class TestCommand:
    def run(self, *arguments: object, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "kernel", *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=100
        )

    @pytest.mark.parametrize("command", ["timeline", "path"])
    def test_it_writes_a_picture_beside_the_trace(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "run.jsonl").write_text(three_seconds())
        done = self.run(command, tmp_path / "run.jsonl")
        picture = tmp_path / f"run.{command}.svg"
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == f"wrote {picture}"
        assert ElementTree.parse(picture).getroot().tag == f"{SVG}svg"

    def test_the_path_is_printed(self, tmp_path: Path) -> None:
        (tmp_path / "run.jsonl").write_text(three_seconds())
        said = self.run("path", tmp_path / "run.jsonl", "-o", tmp_path / "here.svg").stdout
        assert said.startswith("idle (0 ms) → turn (950 ms) → steering (0 ms) → turn (100 ms) → retry (250 ms) → turn")
        assert (tmp_path / "here.svg").is_file()

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (None, "No such file"),
            ("", "line 1 of the trace: is not the header of a trace"),
            ('{"type": "run.started"}\n', "line 1 of the trace: is not the header"),
            (three_seconds().splitlines(keepends=True)[0], "nothing to"),
        ],
    )
    @pytest.mark.parametrize("command", ["timeline", "path"])
    def test_what_can_not_be_drawn_is_said(self, command: str, content: str | None, why: str, tmp_path: Path) -> None:
        """One sentence, no picture, status 2."""
        source = tmp_path / "run.jsonl"
        if content is not None:
            source.write_text(content)
        done = self.run(command, source)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not list(tmp_path.glob("*.svg"))

    def test_a_picture_that_can_not_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "run.jsonl").write_text(three_seconds())
        done = self.run("timeline", tmp_path / "run.jsonl", "-o", tmp_path / "nowhere" / "x.svg")
        assert (done.returncode, "nowhere" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_documentation_are_up_to_date(name: str):
    """Else `python -m tests.pictures.make` is due."""
    assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == PICTURES[name]()
