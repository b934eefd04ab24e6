"""The bare core: how runs are cancelled and end, and that the same inputs make the same core."""

from typing import Any

import pytest

from kernel.core import Core
from kernel.effects import (
    AbandonListeners,
    AbandonWork,
    CancelWork,
    RunTool,
    StartTimer,
    StopTimer,
)
from kernel.errors import AgentBusyError
from kernel.events import RunFinished
from kernel.inputs import (
    CallPrepared,
    Cancel,
    FollowUp,
    ModelPart,
    Prompt,
    QueuedItem,
    ResponseFailed,
    Settled,
    Steer,
    TimerDue,
    ToolSettled,
    ToolUpdate,
)
from kernel.messages import Text, TextDelta, Usage, UserMessage
from kernel.testing import call
from statechart import Leaf
from tests.kernel.helpers import Act, Bench, failure


def settled(work: int, id: str = "c1", text: str = "ok", **fields: Any) -> ToolSettled:
    return ToolSettled(work, id, (Text(text),), **fields)


class TestCancel:
    def test_a_cancel_stops_the_work_and_starts_one_grace(self) -> None:
        """An accepted cancel tells all work to stop and starts `cancel_grace`; nothing else starts."""
        bench = Bench(cancel_grace=7)
        bench.prompt()
        work = bench.to_request()
        effects = bench.put(Cancel("enough"))
        assert [effect for effect in effects if effect.immediate] == [
            StartTimer(bench.last(StartTimer).timer, 7),
            CancelWork((work,)),
        ]
        assert bench.put(Cancel("again")) == []

    def test_the_run_ends_when_the_last_work_let_go(self) -> None:
        """What was going is waited for; the result has the reason."""
        bench = Bench()
        bench.prompt()
        work = bench.to_request()
        bench.put(Cancel("enough"))
        bench.advance()
        assert bench.state.leaf is Leaf.CANCELLING
        bench.put(ResponseFailed(work, failure("cancelled")))
        bench.finish()
        assert (bench.last(RunFinished).status, bench.last(RunFinished).result.reason) == ("cancelled", "enough")

    def test_grace_abandons_what_is_left(self) -> None:
        """When the grace is over, works and listeners are given up and the run ends."""
        bench = Bench()
        bench.prompt()
        work = bench.to_request()
        bench.put(Cancel())
        effects = bench.put(TimerDue(bench.last(StartTimer).timer))
        assert AbandonWork((work,)) in effects
        assert AbandonListeners() in effects
        bench.finish()
        assert bench.last(RunFinished).status == "cancelled"

    def test_a_second_grace_never_starts(self) -> None:
        """One deadline for the run: a cancel while settling, after the grace was spent, starts none."""
        bench = Bench()
        bench.prompt()
        bench.to_request()
        bench.put(Cancel())
        bench.put(TimerDue(bench.last(StartTimer).timer))
        assert bench.put(Cancel()) == []

    def test_a_cancel_while_settling_hurries_the_listeners(self) -> None:
        """In `settling` a cancel changes no outcome but starts the grace, which abandons listeners."""
        bench = Bench()
        bench.prompt()
        bench.to_request()
        bench.respond(TextDelta("a"))
        bench.finish()
        (timer,) = bench.put(Cancel())
        assert bench.put(TimerDue(timer.timer)) == [AbandonListeners()]
        assert bench.put(Settled())[-1].result.status == "completed"

    def test_a_cancel_in_the_backoff_ends_it(self) -> None:
        """The wait's timer is stopped and `retry.ended` is said."""
        bench = Bench()
        bench.prompt()
        work = bench.to_request()
        bench.put(ResponseFailed(work, failure(retryable=True), 0.5))
        backoff = bench.last(StartTimer)
        assert StopTimer(backoff.timer) in bench.put(Cancel())
        bench.finish()
        assert bench.types()[-3:] == ["retry.ended", "turn.ended", "run.finished"]
        assert bench.put(TimerDue(backoff.timer)) == []

    def test_a_cancelled_tool_keeps_its_place(self) -> None:
        """What finished before the cancel is kept, what ran is cancelled, what waited was not executed."""
        bench = Bench(tools=[Act()], tool_execution="sequential")
        bench.to_tools(call("c1", "act"), call("c2", "act"), call("c3", "act"))
        for _ in range(2):
            bench.advance()
            bench.put(CallPrepared(bench.work))
            bench.advance()
            if bench.last(RunTool).call.id == "c1":
                bench.put(settled(bench.work, "c1", "kept"))
        work = bench.work
        bench.put(Cancel())
        bench.put(settled(work, "c2", "stopped", is_error=True, ended="cancelled"))
        bench.finish()
        results = bench.last(RunFinished).result.messages[2:]
        assert [(message.call_id, message.text, message.executed) for message in results] == [
            ("c1", "kept", True),
            ("c2", "stopped", True),
            ("c3", "not executed: the run ended before this call could run", False),
        ]

    def test_what_a_cut_response_used_is_counted(self) -> None:
        """The usage of a response that was cut counts for the run; its message keeps it."""
        bench = Bench()
        bench.prompt()
        work = bench.to_request()
        bench.put(ModelPart(work, TextDelta("par")))
        bench.put(ModelPart(work, Usage(10, 1)))
        bench.put(Cancel())
        bench.put(ResponseFailed(work, failure("cancelled")))
        bench.finish()
        assert (bench.last(RunFinished).result.usage, bench.last(RunFinished).result.partial.usage) == (Usage(10, 1),) * 2


class TestReplay:
    def script(self, bench: Bench) -> None:
        bench.prompt()
        bench.steer("left", 1000)
        bench.advance()
        bench.to_request()
        bench.respond(TextDelta("a"), call("c1", "act"))
        bench.advance()
        bench.put(CallPrepared(bench.work))
        bench.advance()
        bench.put(ToolUpdate(bench.work, "c1", "half"))
        bench.put(settled(bench.work))
        bench.advance()
        bench.to_request()
        bench.put(ResponseFailed(bench.work, failure(retryable=True), 0.25))
        bench.put(TimerDue(bench.last(StartTimer).timer))
        bench.advance()
        bench.put(FollowUp(QueuedItem(1001, UserMessage("then"))))
        bench.put(Cancel("enough"))
        bench.put(ResponseFailed(bench.work, failure("cancelled")))
        bench.end()

    def test_the_same_inputs_give_the_same_effects(self) -> None:
        """Two cores that receive the same inputs ask for the same things, in the same order."""
        one, two = Bench(tools=[tool := Act()]), Bench(tools=[tool])
        self.script(one)
        for input in one.inputs:
            two.put(input)
        assert two.effects == one.effects

    def test_replay_rebuilds_the_state(self) -> None:
        """A core that is replayed from the inputs is where the first one was."""
        bench = Bench(tools=[Act()])
        self.script(bench)
        core = Core.replay(bench.inputs, *bench.arguments)
        assert core.state.transcript.messages == bench.state.transcript.messages
        assert core.state.queued == bench.state.queued == ((), (UserMessage("then"),))
        assert (core.state.leaf, core.state.numbers) == (bench.state.leaf, bench.state.numbers)

    def test_what_was_taken_is_recorded(self) -> None:
        """`record` is handed each input that was taken, in order, and none that was refused."""
        taken: list[Any] = []
        core = Core(*Bench().arguments, record=taken.append)
        prompt, steer = Prompt("r1", UserMessage("Hi")), Steer(QueuedItem(1, UserMessage("left")))
        core.receive(prompt)
        with pytest.raises(AgentBusyError):
            core.receive(Prompt("r2", UserMessage("again")))
        core.receive(steer)
        assert taken == [prompt, steer]

    def test_replay_stops_at_any_input(self) -> None:
        """Every prefix of the inputs gives the state that was there then."""
        bench = Bench(tools=[Act()])
        self.script(bench)
        leaves = []
        again = Core(*bench.arguments)
        for input in bench.inputs:
            again.receive(input)
            leaves.append(again.state.leaf)
        for length in range(len(bench.inputs)):
            assert Core.replay(bench.inputs[: length + 1], *bench.arguments).state.leaf is leaves[length]
