"""A probe: one scripted conversation in simulated time, after which the ten invariants must hold.

The invariants are what every fault that agents have had breaks in one way or another:

* I1 pairing: each call has one result, in order, before any other message; in the transcript and in each request.
* I2 terminal: each run has one end, which is its last event, with a known outcome.
* I3 nothing left: when it is idle, no task and no timer of the kernel is there, and nothing was reported to the loop.
* I4 reusable: the next prompt is answered.
* I5 conservation: each message that was queued is waiting, or in the transcript, or dropped, and says so; once.
* I6 nothing late: after the end no event comes and no message, until the next run.
* I7 work kept: what a tool had done when it was told of is in the transcript.
* I8 snapshots: what was handed out stays what it was.
* I9 parity: a run that is iterated, awaited, only listened to, or run without a loop, says and leaves the same.
* I10 balanced: what is started is ended, and nests.

`hold` has a probe run in each of the four ways, for which all that happens must come out of its own listeners, tools and
model; a probe that needs a hand from outside is played by `Probe.play`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final
from unittest.mock import patch

from kernel import Finished, Run, RunResult
from kernel.dialects import native_line
from kernel.messages import TextDelta
from kernel.testing import SimulatedLoop, collect
from tests.kernel.helpers import Stage, play, said, ticks, unpaired

WAYS: Final = ("iterate", "await", "listen", "sync")
OUTCOMES: Final = frozenset({"completed", "cancelled", "failed", "max_turns", "stopped"})


class Obliging:
    """A model that answers whatever it is asked."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        yield TextDelta("again")
        yield Finished()


class Probe(Stage):
    """A stage whose runs, queued messages and snapshots are kept, to be judged at the end.

    *abandons* are the kinds of work that ignore every cancellation here, and are still going at the end.
    """

    def __init__(self, *responses: Any, abandons: tuple[str, ...] = (), **arguments: Any) -> None:
        super().__init__(*responses, **arguments)
        self.abandons = abandons
        self.runs: list[Run] = []
        self.receipts: list[Any] = []
        self._seen: list[tuple[Any, str]] = []
        self._done: list[Any] = []
        self._at_end: list[Any] = []
        self._changed: list[Any] = []
        self.agent.subscribe(self._note)

    # ---- what a caller does ----

    def prompt(self, message: str = "Hi") -> Run:
        """As `Agent.prompt`; the run is judged at the end."""
        self.runs.append(run := self.agent.prompt(message))
        return run

    def continue_(self) -> Run:
        """As `Agent.continue_`; the run is judged at the end."""
        self.runs.append(run := self.agent.continue_())
        return run

    def steer(self, text: str) -> Any:
        """As `Agent.steer`; no two texts of a probe are the same."""
        self.receipts.append(receipt := self.agent.steer(text))
        return receipt

    def follow_up(self, text: str) -> Any:
        """As `Agent.follow_up`; no two texts of a probe are the same."""
        self.receipts.append(receipt := self.agent.follow_up(text))
        return receipt

    def at(self, place: int, do: Callable[[], object]) -> None:
        """Do *do* at the event number *place* of the first run."""
        self.agent.subscribe(lambda event: event.sequence == place and len(self.heard.of("run.started")) == 1 and do())

    # ---- how it is run ----

    def play(self, main: Coroutine[Any, Any, Any]) -> Any:
        """What *main* returns; afterwards the invariants hold."""

        async def whole() -> Any:
            value = await main
            await self.agent.wait_for_idle()
            await self._judge_the_loop()
            self.judge()
            await self.prompt("and again?") if self._oblige() else None
            await self._judge_the_loop()
            self.judge(again=True)
            return value

        return play(whole(), left=None if self.abandons else ())

    def use(self, way: str) -> RunResult:
        """One run, in one of the four *ways*; afterwards the invariants hold."""
        if way == "sync":
            return self._without_a_loop()

        async def main() -> Any:
            run = self.prompt()
            if way == "iterate":
                events = await collect(run)
                self.runs.remove(run)
                assert events == self.heard.events  # I9: of the reader
            elif way == "await":
                await run
            else:
                await self.agent.wait_for_idle()
            return run.result

        return self.play(main())

    def _without_a_loop(self) -> RunResult:
        loops: list[SimulatedLoop] = []

        def new_event_loop() -> SimulatedLoop:
            loops.append(SimulatedLoop())
            return loops[-1]

        with patch("asyncio.new_event_loop", new_event_loop):
            result = self.agent.run_sync("Hi")
            assert result == self.heard.events[-1].result, "I9: the result is another"
            self.judge()
            self._oblige()
            self.agent.run_sync("and again?")
            self.judge(again=True)
        assert [loop.exceptions for loop in loops] == [[], []]  # I3
        return result

    def _oblige(self) -> bool:
        self.agent.configure(model=Obliging())
        return True

    # ---- how it is judged ----

    def _note(self, event: Any) -> None:
        agent = self.agent
        views = (agent.messages, agent.queued, event)
        self._seen += [(view, repr(tuple(view) if view is views[0] else view)) for view in views]
        if event.type == "tool.ended":
            self._done.append(event)
        if event.type == "run.finished":
            self._at_end.append(agent.messages)
        elif event.type == "run.started" and self._at_end:
            before = self._at_end[-1]
            if agent.messages[: len(before)] != tuple(before) or len(agent.messages) > len(before) + 1:  # its own prompt
                self._changed.append(agent.messages)  # said later: what a listener raises is the run's affair

    async def _judge_the_loop(self) -> None:
        before = len(self.heard.events), tuple(self.agent.messages)
        await ticks()
        loop: Any = asyncio.get_running_loop()
        assert (len(self.heard.events), tuple(self.agent.messages)) == before, "I6: something came late"
        if not self.abandons:
            alive = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert (alive, loop.timers()) == ([], 0), "I3: something is left"
        assert sorted({work.kind for work in self.agent.abandoned}) == sorted(self.abandons), "I3"
        for run in self.runs:
            events = [event for event in self.heard.events if event.run_id == run.id]
            assert await collect(run) == events, "I9: the reader was told something else"
            assert (await run) == events[-1].result, "I9: the result is another"
        self.runs.clear()

    def judge(self, *, again: bool = False) -> None:
        """Fail when an invariant does not hold; with *again*, the last run was one more prompt, that had to work."""
        agent, events = self.agent, self.heard.events
        messages = (*agent.state.archive, *agent.messages)
        assert not agent.is_running
        assert self._changed == [], "I6: the transcript changed between two runs"
        assert self.breaches == [], "I2, I6, I10"
        assert unpaired(agent.messages) == [], "I1"
        assert [unpaired(request.messages) for request in self.model.requests if unpaired(request.messages)] == [], "I1"
        ends = [event.result for event in events if event.type == "run.finished"]
        assert {result.status for result in ends} <= OUTCOMES, "I2"
        if again:
            assert ends[-1].status in ("completed", "max_turns", "stopped"), "I4"
            assert ("user", "and again?") in said(messages), "I4"
        self._judge_the_queues(said(messages))
        answers = [(m.call_id, m.text, m.is_error, m.executed) for m in messages if m.role == "tool"]
        for done in self._done:
            assert (done.call_id, done.text, done.is_error, done.executed) in answers, "I7: the work is not kept"
        for view, shown in self._seen:
            assert repr(tuple(view) if type(view) is type(agent.messages) else view) == shown, "I8"

    def _judge_the_queues(self, there: list[tuple[str, str]]) -> None:
        waiting = said((*self.agent.queued.steering, *self.agent.queued.follow_up))
        for receipt in self.receipts:
            item = (receipt.message.role, receipt.message.text)
            expected = {"queued": (1, 0), "delivered": (0, 1), "dropped": (0, 0)}[receipt.status]
            assert (waiting.count(item), there.count(item)) == expected, f"I5: {receipt.status} {item}"

    def told(self) -> tuple[Any, ...]:
        """What a run said and left, without what differs by chance: its id, and how long a retry was drawn to wait."""
        lines = [line for line in map(native_line, self.heard.events) if line is not None]
        left = [
            (end.result.status, end.result.final_text, end.result.messages, end.result.partial, end.result.turns,
             end.result.reason, str(end.result.error))
            for end in self.heard.of("run.finished")
        ]  # fmt: skip
        return [{**line, "delay": 0} if "delay" in line else line for line in lines], tuple(self.agent.messages), left


def hold(build: Callable[[], Probe]) -> Probe:
    """Build a probe for each way of using a run; each keeps the invariants, and all four say the same. One of them."""
    told = []
    for way in WAYS:
        probe = build()
        probe.use(way)
        told.append((way, probe.told(), probe))
    for way, said_there, _ in told[1:]:
        assert said_there == told[0][1], f"I9: {way} is not {WAYS[0]}"
    return told[0][2]
