"""What a picture of a run is made of: spans and moments, read from the events of a trace in one pass.

A span that has no end, since the trace was cut off, ends with the trace and says so.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal, final

from attrs import define, field, frozen

from kernel import events
from kernel.messages import AssistantMessage, InputMessage, StopReason, Usage
from kernel.trace.file import Heard, Trace
from statechart import Phase

Verdict = Literal["ok", "failed", "not executed", "cut off", "waiting"]
_CUT = (StopReason.ERROR, StopReason.ABORTED)


@final
@frozen
class Span:
    """Something that lasted: from when to when, in seconds, and how it ended."""

    name: str
    start: float
    end: float
    verdict: Verdict = "ok"
    detail: str = ""


@final
@frozen
class Moment:
    """Something that happened at once."""

    kind: str
    at: float
    detail: str = ""


@final
@frozen
class Wait:
    """A message: when it came (None: with what began the run), when it was delivered (None: it was not), and from whom."""

    origin: str
    came: float | None
    delivered: float | None
    text: str
    end: Literal["delivered", "dropped", "taken out", "waiting"]


@define
class Story:
    """All that a trace tells."""

    end: float = 0.0
    runs: list[Span] = field(factory=list)
    phases: list[Span] = field(factory=list)
    responses: list[Span] = field(factory=list)
    calls: list[Span] = field(factory=list)
    waits: list[Wait] = field(factory=list)
    moments: list[Moment] = field(factory=list)
    usage: Usage = field(factory=Usage)
    turns: int = 0

    def spans_between(self) -> Counter[tuple[str, str]]:
        """How often each phase was followed by which."""
        pairs = zip(self.phases, self.phases[1:], strict=False)
        return Counter((before.name, after.name) for before, after in pairs)


def tell(trace: Trace) -> Story:
    """What *trace* tells."""
    reader = _Reader()
    for heard in trace.heard:
        reader.take(heard)
    return reader.finish()


@define
class _Reader:
    """What has begun and not ended yet."""

    story: Story = field(factory=Story)
    run: tuple[str, float] | None = None
    phase: tuple[str, float] = (Phase.IDLE, 0.0)
    asked: float | None = None
    """Since when a response is waited for."""
    response: float | None = None
    open_calls: dict[str, deque[tuple[events.ToolStarted, float]]] = field(factory=dict)
    waiting: list[tuple[str, InputMessage, float]] = field(factory=list)
    queued: dict[str, Sequence[InputMessage]] = field(factory=lambda: {"steering": (), "follow_up": ()})

    def take(self, heard: Heard) -> None:
        story, at, event = self.story, heard.at, heard.event
        story.end = at
        match event:
            case events.RunStarted():
                self.run = (event.run_id, at)
            case events.PhaseChanged():
                self._enter(event, at)
            case events.MessageStarted(role="assistant"):
                self._end_waiting(at, "waiting")
                self.response = at
            case events.MessageEnded(message=AssistantMessage() as message):
                cut = not event.kept or message.stop in _CUT
                self._end_response(at, "cut off" if cut else "ok", message.error or str(message.stop.value))
            case events.ToolStarted():
                self.open_calls.setdefault(event.call_id, deque()).append((event, at))
            case events.ToolEnded():
                self._end_call(event, at)
            case events.QueueChanged():
                self._queues(event, at)
            case events.MessageAccepted():
                self._accept(event, at)
            case events.TurnStarted():
                self.asked = at
            case events.TurnEnded():
                self._end_waiting(at, "cut off")
                story.turns += 1
                story.usage += event.usage
            case events.RunFinished():
                self._finish_run(event, at)
            case events.RetryScheduled() | events.CompactionStarted():
                self._end_waiting(at, "cut off")
                self._moment(event, at)
            case events.RetryEnded() | events.CompactionEnded():
                self.asked = at
                self._moment(event, at)
            case _:
                self._moment(event, at)

    def finish(self) -> Story:
        """The story, with all that is open ended where the trace ends."""
        story, end = self.story, self.story.end
        self._end_waiting(end, "cut off")
        self._end_response(end, "cut off", "the trace ends here")
        for begun in self.open_calls.values():
            story.calls += [Span(event.name, at, end, "cut off", "the trace ends here") for event, at in begun]
        self._leave(end)
        if self.run is not None:
            story.runs.append(Span(self.run[0], self.run[1], end, "cut off", "the trace ends here"))
        for origin, message, came in self.waiting:
            waits = message in self.queued[origin]
            story.waits.append(Wait(origin, came, None, message.text, "waiting" if waits else "taken out"))
        for spans in (story.calls, story.responses):
            spans.sort(key=lambda span: span.start)
        return story

    def _enter(self, event: events.PhaseChanged, at: float) -> None:
        if not self.story.phases:
            self.phase = (event.source, self.phase[1])
        self._leave(at)
        self.phase = (event.target, at)
        if event.target == Phase.CANCELLING:
            self.story.moments.append(Moment("cancel", at))

    def _leave(self, at: float) -> None:
        name, since = self.phase
        self.story.phases.append(Span(name, since, at))

    def _end_waiting(self, at: float, verdict: Verdict) -> None:
        if self.asked is not None:
            self.story.responses.append(Span("waiting", self.asked, at, verdict))
        self.asked = None

    def _end_response(self, at: float, verdict: Verdict, detail: str) -> None:
        if self.response is not None:
            self.story.responses.append(Span("model", self.response, at, verdict, detail))
        self.response = None

    def _end_call(self, event: events.ToolEnded, at: float) -> None:
        begun = self.open_calls.get(event.call_id)
        since = begun.popleft()[1] if begun else at
        verdict: Verdict = "not executed" if not event.executed else "failed" if event.is_error else "ok"
        self.story.calls.append(Span(event.name, since, at, verdict, event.text))

    def _queues(self, event: events.QueueChanged, at: float) -> None:
        for origin, now in (("steering", event.steering), ("follow_up", event.follow_up)):
            before = list(self.queued[origin])
            for message in now:
                if message in before:
                    before.remove(message)
                else:
                    self.waiting.append((origin, message, at))
            self.queued[origin] = now
        for message in event.dropped:
            self._leave_queue(message, None)

    def _leave_queue(self, message: InputMessage, origin: str | None) -> float | None:
        """The oldest message like this one waits no longer: since when it did, if it was seen to."""
        for place, (where, other, came) in enumerate(self.waiting):
            if other == message and origin in (None, where):
                del self.waiting[place]
                if origin is None:
                    self.story.waits.append(Wait(where, came, None, message.text, "dropped"))
                return came
        return None

    def _accept(self, event: events.MessageAccepted, at: float) -> None:
        waited = self._leave_queue(event.message, event.origin)
        self.story.waits.append(Wait(event.origin, waited, at, event.message.text, "delivered"))

    def _finish_run(self, event: events.RunFinished, at: float) -> None:
        result = event.result
        why = result.reason if result.failure is None else result.failure.message
        since = at if self.run is None else self.run[1]
        self.asked = None  # a compaction by itself, or the backoff of a cancelled run: nothing was asked
        verdict: Verdict = "failed" if event.status == "failed" else "ok"
        self.story.runs.append(Span(event.status, since, at, verdict, why or ""))
        self.run = None
        self._leave(at)  # nothing follows `run.finished`, but the agent is idle then
        self.phase = (Phase.IDLE, at)

    def _moment(self, event: events.Event, at: float) -> None:
        match event:
            case events.RetryScheduled():
                said = Moment("retry", at, f"attempt {event.attempt} failed, next in {event.delay:.1f} s: {event.error}")
            case events.CompactionEnded():
                said = Moment("compaction", at, event.outcome)
            case events.HookFailed():
                said = Moment("hook failed", at, f"{event.hook}: {event.error}")
            case events.SubscriberFailed():
                said = Moment("listener failed", at, event.error)
            case events.UpdateDiscarded():
                said = Moment("too late", at, f"call {event.call_id}")
            case _:
                return
        self.story.moments.append(said)
