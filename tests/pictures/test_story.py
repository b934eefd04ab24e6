"""What a picture is made of is what the trace tells: each span, message and mark, also when the trace was cut off."""

import asyncio
from typing import Any

import pytest

from kernel import Agent
from kernel.events import MessageAccepted, PhaseChanged, QueueChanged, RunStarted, ToolEnded, ToolStarted
from kernel.frozen import EMPTY
from kernel.messages import UserMessage
from kernel.pictures.story import Moment, Span, Story, Wait, tell
from kernel.trace.file import Heard, Trace
from tests.pictures.stories import BEGAN, as_trace, three_hours, three_seconds, traced, wait

A, B = UserMessage("a"), UserMessage("b")


def told(*events: Any) -> Story:
    """The story of events that are a second apart."""
    return tell(Trace(BEGAN, tuple(Heard(float(at), event) for at, event in enumerate(events))))


@pytest.fixture(scope="module")
def short() -> Story:
    return tell(as_trace(three_seconds()))


def test_the_run(short: Story):
    assert short.runs == [Span("cancelled", 0.0, 3.0, "ok", "enough for today")]
    assert (short.turns, short.usage.input, short.usage.output) == (4, 4400, 170)


def test_calls(short: Story):
    """Each with its tool, from its start to its end, and how it ended."""
    seen = [(span.name, round(span.start, 3), round(span.end, 3), span.verdict) for span in short.calls]
    assert seen == [
        ("read_file", 0.4, 0.6, "ok"), ("read_file", 0.4, 0.75, "ok"), ("run_tests", 0.4, 0.95, "failed"),
        ("run_tests", 1.7, 2.0, "ok"),
    ]  # fmt: skip


def test_responses(short: Story):
    """How long each was waited for, how long it took, and that the one before the retry and the cancelled one were cut."""
    seen = [(span.name, round(span.start, 3), round(span.end, 3), span.verdict) for span in short.responses]
    assert seen == [
        ("waiting", 0.0, 0.25, "waiting"), ("model", 0.25, 0.4, "ok"), ("waiting", 0.95, 1.05, "cut off"),
        ("waiting", 1.3, 1.6, "waiting"), ("model", 1.6, 1.7, "ok"), ("waiting", 2.0, 2.25, "waiting"),
        ("model", 2.25, 2.25, "ok"), ("waiting", 2.25, 2.45, "waiting"), ("model", 2.45, 3.0, "cut off"),
    ]  # fmt: skip


def test_messages(short: Story):
    """When each came and when it was delivered."""
    seen = [(wait.origin, wait.came, wait.delivered and round(wait.delivered, 3)) for wait in short.waits]
    assert seen == [("prompt", None, 0.0), ("steering", 0.7, 0.95), ("follow_up", 1.5, 2.25)]


def test_marks(short: Story):
    assert [(moment.kind, round(moment.at, 3)) for moment in short.moments] == [("retry", 1.05), ("cancel", 3.0)]


def test_phases_cover_the_time_without_a_hole(short: Story):
    for story in (short, tell(as_trace(three_hours()))):
        assert all(before.end == after.start for before, after in zip(story.phases, story.phases[1:], strict=False))
        assert (story.phases[0].start, story.phases[-1].end) == (0.0, story.end)


def test_after_a_run_the_agent_is_idle():
    """No event says so, since nothing follows `run.finished`."""
    names = [span.name for span in tell(as_trace(three_hours())).phases]
    assert names.count("idle") == 3
    assert names[-2:] == ["settling", "idle"]


def test_a_trace_that_was_cut_off_ends_all_that_is_open():
    """With the last line that there is, and said to be cut off."""
    text = three_seconds().splitlines(keepends=True)
    place = next(number for number, line in enumerate(text) if '"ToolStarted"' in line)
    story = tell(as_trace("".join(text[: place + 3])))
    assert [(span.verdict, span.end) for span in (*story.runs, *story.calls)] == [("cut off", story.end)] * 4
    cut = tell(as_trace("".join(text[:place])))
    assert (cut.calls, cut.runs[0].verdict) == ([], "cut off")


def test_calls_of_one_id_run_one_after_the_other():
    """Each end belongs to the oldest start."""
    begun = [ToolStarted("r", 0, "c", "t", EMPTY), ToolStarted("r", 1, "c", "t", EMPTY)]
    ended = [ToolEnded("r", 2, "c", "t", "", False, True), ToolEnded("r", 3, "c", "t", "", True, False)]
    story = told(*begun, *ended)
    assert [(span.start, span.end, span.verdict) for span in story.calls] == [(0, 2, "ok"), (1, 3, "not executed")]


class TestQueues:
    def test_what_was_dropped(self) -> None:
        story = told(QueueChanged("r", 0, (A,), ()), QueueChanged("r", 1, (), (), (A,)))
        assert story.waits == [Wait("steering", 0.0, None, "a", "dropped")]

    def test_what_was_taken_out(self) -> None:
        """It left the queue and was never delivered."""
        story = told(QueueChanged("r", 0, (A, B), ()), QueueChanged("r", 1, (B,), ()))
        assert story.waits == [Wait("steering", 0.0, None, "a", "taken out"), Wait("steering", 0.0, None, "b", "waiting")]

    def test_one_that_was_taken_out_does_not_hide_the_next(self) -> None:
        story = told(
            QueueChanged("r", 0, (A,), ()), QueueChanged("r", 1, (), ()), QueueChanged("r", 2, (B,), ()),
            QueueChanged("r", 3, (), ()), MessageAccepted("r", 4, B, "steering"),
        )  # fmt: skip
        assert story.waits == [Wait("steering", 2.0, 4.0, "b", "delivered"), Wait("steering", 0.0, None, "a", "taken out")]

    def test_equal_messages_are_delivered_in_their_order(self) -> None:
        story = told(
            QueueChanged("r", 0, (A,), ()), QueueChanged("r", 1, (A, A), ()), QueueChanged("r", 2, (A,), ()),
            MessageAccepted("r", 3, A, "steering"), QueueChanged("r", 4, (), ()), MessageAccepted("r", 5, A, "steering"),
        )  # fmt: skip
        assert [(wait.came, wait.delivered) for wait in story.waits] == [(0, 3), (1, 5)]

    def test_the_same_text_in_both_queues(self) -> None:
        story = told(
            QueueChanged("r", 0, (), (A,)), QueueChanged("r", 1, (A,), (A,)), MessageAccepted("r", 2, A, "steering")
        )
        assert Wait("steering", 1.0, 2.0, "a", "delivered") in story.waits

    def test_what_waited_before_the_run(self) -> None:
        """Nothing told when it came."""
        story = told(RunStarted("r", 0), MessageAccepted("r", 1, A, "steering"))
        assert story.waits == [Wait("steering", None, 1.0, "a", "delivered")]


def test_a_compaction_has_its_outcome():
    async def act(agent: Agent) -> None:
        for _ in range(4):
            await agent.prompt("Say something of some length, so that there is something to make shorter.")
        await agent.compact()

    script: list[Any] = [[f"Well: {'word ' * 50}"]] * 4 + [[wait(2.0), "They talked."]]
    story = tell(as_trace(traced(act, script)))
    assert story.moments == [Moment("compaction", 2.0, "compacted")]
    assert [(span.start, span.end) for span in story.phases if span.name == "compaction"] == [(0.0, 2.0)]


def test_the_first_phase_is_where_the_trace_began():
    """Of an agent that was listened to in the middle of a run."""
    assert told(PhaseChanged("r", 5, "turn", "steering")).phases[0].name == "turn"


def test_asyncio_is_not_needed_to_read():
    """A trace is read where no loop runs."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    assert tell(as_trace(three_seconds())).runs
