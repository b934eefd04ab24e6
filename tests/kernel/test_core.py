"""The bare core: scripted inputs in, effects out. No event loop anywhere."""

from typing import Any

import pytest

from kernel.effects import (
    Barrier,
    RunEnded,
    RunTool,
    StartTimer,
)
from kernel.errors import AgentBusyError, AgentClosedError, KernelBug
from kernel.events import MessageEnded, UpdateDiscarded
from kernel.inputs import (
    Advance,
    CallPrepared,
    Cancel,
    Close,
    Halted,
    HookReturned,
    ModelPart,
    Projected,
    ResponseCompleted,
    ResponseFailed,
    Settled,
    Summarized,
    SummaryFailed,
    TimerDue,
    ToolSettled,
    ToolUpdate,
    WaitForIdle,
)
from kernel.messages import Finished, ReasoningDelta, StopReason, Text, TextDelta, ToolCallDelta, Usage
from kernel.testing import call
from statechart import Command, Leaf
from tests.kernel.helpers import Act, Bench, failure, said


def settled(work: int, id: str = "c1", text: str = "ok", **fields: Any) -> ToolSettled:
    return ToolSettled(work, id, (Text(text),), **fields)


class TestOneRun:
    def test_a_prompt_says_all_it_has_to_say_and_then_waits(self) -> None:
        """A prompt starts the run, its turn and its message in one step, and asks for nothing before that was heard."""
        effects = Bench().prompt("Hi")
        assert [getattr(effect, "type", type(effect)) for effect in effects] == [
            "run.started", "phase.changed", "turn.started", "message.accepted", Barrier,
        ]  # fmt: skip

    def test_a_run_from_its_prompt_to_idle(self) -> None:
        """The plainest run says these events, in this order."""
        bench = Bench()
        bench.prompt()
        bench.to_request()
        bench.respond(TextDelta("a"), TextDelta("b"))
        bench.end()
        assert bench.types() == [
            "run.started", "turn.started", "message.accepted", "message.started", "message.updated", "message.updated",
            "message.ended", "turn.ended", "run.finished",
        ]  # fmt: skip
        assert bench.state.leaf is Leaf.IDLE
        assert said(bench.state.transcript.messages) == [("user", "Hi"), ("assistant", "ab")]

    def test_sequences_have_no_gap(self) -> None:
        """All events of a run are numbered from 0 without a gap."""
        bench = Bench(tools=[Act()])
        bench.to_tools(call("c1", "act"))
        events = [effect for effect in bench.effects if hasattr(effect, "sequence")]
        assert [event.sequence for event in events] == list(range(len(events)))

    def test_an_empty_delta_opens_the_message_and_says_nothing(self) -> None:
        """An empty piece of text or reasoning starts the message without an update."""
        bench = Bench()
        bench.prompt()
        bench.to_request()
        assert bench.types(bench.put(ModelPart(bench.work, TextDelta("")))) == ["message.started"]
        assert bench.types(bench.put(ModelPart(bench.work, ReasoningDelta("")))) == []

    def test_an_empty_response_is_an_empty_message(self) -> None:
        """A response that ends without a part is opened and completed all the same."""
        bench = Bench()
        bench.prompt()
        bench.to_request()
        assert bench.types(bench.respond()) == ["message.started", "message.ended", "turn.ended"]
        assert bench.last(MessageEnded).message.content == ()

    def test_a_piece_of_a_call_tells_its_id(self) -> None:
        """Updates of a call carry its id, whether it is whole or in pieces."""
        bench = Bench()
        bench.prompt()
        bench.to_request()
        bench.put(ModelPart(bench.work, ToolCallDelta(0, "c1", "act", "{")))
        bench.put(ModelPart(bench.work, call("c2", "act")))
        updates = [effect for effect in bench.effects if getattr(effect, "type", "") == "message.updated"]
        assert [(update.channel, update.call_id, update.delta) for update in updates] == [
            ("call", "c1", "{"),
            ("call", "c2", ""),
        ]

    def test_usage_is_summed_over_the_run(self) -> None:
        """The result's usage is the sum over all responses."""
        bench = Bench(tools=[Act()])
        bench.to_tools(Usage(10, 1), call("c1", "act"))
        bench.advance()
        bench.put(CallPrepared(bench.work))
        bench.advance()
        bench.put(settled(bench.work))
        bench.advance()
        bench.to_request()
        bench.respond(Usage(20, 2), TextDelta("done"))
        bench.end()
        assert bench.last(RunEnded).result.usage == Usage(30, 3)

    def test_a_stop_reason_that_is_not_told_follows_from_the_calls(self) -> None:
        """Without a stop reason a response stops for its tools when it has calls, and simply stops when it has none."""
        bench = Bench(tools=[Act()])
        bench.to_tools(call("c1", "act"))
        assert bench.last(MessageEnded).message.stop is StopReason.TOOL_USE

    def test_a_terminal_part_is_no_part_of_the_core(self) -> None:
        """A part that says nothing to the core changes nothing."""
        bench = Bench()
        bench.prompt()
        bench.to_request()
        bench.put(ModelPart(bench.work, TextDelta("a")))
        assert bench.put(ModelPart(bench.work, Finished())) == []


class TestLateAndForeign:
    def test_an_old_barrier_is_ignored(self) -> None:
        """Only the newest token advances; an older one is nothing."""
        bench = Bench(tools=[Act()])
        bench.prompt()
        first = bench.last(Barrier).token
        bench.to_request()
        leaf = bench.state.leaf
        assert bench.put(Advance(first)) == []
        assert bench.state.leaf is leaf

    def test_a_token_that_never_was_is_ignored(self) -> None:
        """A token from nowhere advances nothing."""
        bench = Bench()
        bench.prompt()
        assert bench.put(Advance(99)) == []
        assert bench.state.leaf is Leaf.OPENING

    @pytest.mark.parametrize(
        "report",
        [
            Projected(99),
            ResponseCompleted(99),
            ResponseFailed(99, failure()),
            CallPrepared(99),
            HookReturned(99, True),
            Summarized(99, "short"),
            SummaryFailed(99, failure()),
            settled(99, ended="cancelled"),
            ModelPart(99, TextDelta("late")),
        ],
        ids=lambda report: type(report).__name__,
    )
    @pytest.mark.parametrize("busy", [False, True], ids=["idle", "in a run"])
    def test_a_report_of_foreign_work_never_reaches_the_state(self, report: Any, busy: bool) -> None:
        """What is reported under a number that is not open changes nothing and causes nothing."""
        bench = Bench()
        if busy:
            bench.prompt()
            bench.to_request()
        before = bench.state.leaf, len(bench.state.transcript), dict(bench.state.works)
        assert bench.put(report) == []
        assert (bench.state.leaf, len(bench.state.transcript), dict(bench.state.works)) == before

    @pytest.mark.parametrize("late", [settled(99), ToolUpdate(99, "c1", "half")], ids=["result", "update"])
    def test_what_a_tool_says_too_late_is_discarded_aloud(self, late: Any) -> None:
        """A late result or update of a tool is told as `update.discarded` in the run that is going."""
        bench = Bench()
        bench.prompt(run_id="r2")
        assert bench.put(late) == [UpdateDiscarded("r2", 4, "c1")]

    @pytest.mark.parametrize("late", [settled(99), ToolUpdate(99, "c1", "half")], ids=["result", "update"])
    def test_while_idle_nobody_hears_of_it(self, late: Any) -> None:
        """No event is published outside a run."""
        assert Bench().put(late) == []

    def test_an_update_before_the_body_runs_is_discarded(self) -> None:
        """Only a running call has updates."""
        bench = Bench(tools=[Act()])
        bench.to_tools(call("c1", "act"))
        bench.advance()
        assert bench.types(bench.put(ToolUpdate(bench.work, "c1", "early"))) == ["update.discarded"]

    def test_parts_after_a_cancel_are_not_taken(self) -> None:
        """A part that comes after the accepted cancel does not enter the message."""
        bench = Bench()
        bench.prompt()
        work = bench.to_request()
        bench.put(ModelPart(work, TextDelta("a")))
        bench.put(Cancel())
        assert bench.put(ModelPart(work, TextDelta("b"))) == []

    def test_a_timer_of_another_run_is_nothing(self) -> None:
        """A timer that is due after its run is ignored."""
        bench = Bench(run_deadline=60)
        bench.prompt()
        timer = bench.last(StartTimer).timer
        bench.to_request()
        bench.respond()
        bench.end()
        assert bench.put(TimerDue(timer)) == []
        bench.prompt(run_id="r2")
        assert bench.put(TimerDue(timer)) == []
        assert bench.state.leaf is Leaf.OPENING

    def test_a_late_end_frees_what_it_held(self) -> None:
        """A call that was given up by its timeout holds its keys until it reports again; then the next one runs."""
        acts = [Act("one", resources=lambda _: ("file",)), Act("two", resources=lambda _: ("file",))]
        bench = Bench(tools=acts)
        bench.to_tools(call("c1", "one"), call("c2", "two"))
        for _ in range(2):
            bench.advance()
            bench.put(CallPrepared(bench.work, ("file",)))
        bench.advance()
        deaf = bench.work
        bench.put(settled(deaf, is_error=True, ended="timeout", abandoned=True))
        bench.advance()
        assert bench.all(RunTool)[1:] == []
        bench.put(settled(deaf))
        bench.advance()
        assert [effect.call.id for effect in bench.all(RunTool)] == ["c1", "c2"]

    def test_a_late_end_that_held_nothing_moves_nothing(self) -> None:
        """The late word of an unknown call while tools run is only discarded."""
        bench = Bench(tools=[Act()])
        bench.to_tools(call("c1", "act"))
        assert [type(effect) for effect in bench.put(settled(99))] == [UpdateDiscarded]


class TestDecideFirst:
    ILLEGAL = (Settled(), HookReturned(1), Summarized(1, "x"), CallPrepared(1), Advance(0), Halted())

    @pytest.mark.parametrize("fact", [Settled(), Halted(), Advance(0)], ids=lambda fact: type(fact).__name__)
    def test_a_fact_that_can_not_be_is_a_bug_and_changes_nothing(self, fact: Any) -> None:
        """A fact that the lifecycle does not know here raises `KernelBug` that names it and the place."""
        bench = Bench()
        with pytest.raises(KernelBug, match=f"the fact {fact.trigger} has no answer in idle"):
            bench.put(fact)
        assert bench.state.leaf is Leaf.IDLE
        assert bench.prompt() != []

    def test_a_report_of_the_wrong_kind_is_a_bug(self) -> None:
        """The end of a model's work can't be the end of a hook."""
        bench = Bench()
        bench.prompt()
        work = bench.to_request()
        with pytest.raises(KernelBug, match="hook_returned"):
            bench.put(HookReturned(work))
        assert bench.state.works.keys() == {work}

    def test_a_refused_command_leaves_no_trace(self) -> None:
        """A refused command raises its typed error, names method and phase, and nothing has changed."""
        bench = Bench()
        bench.prompt()
        messages, numbers = len(bench.state.transcript), bench.state.numbers
        with pytest.raises(AgentBusyError, match=r"^Agent is already running: prompt\(\) was called in phase turn"):
            bench.prompt("again", "r2")
        assert (len(bench.state.transcript), bench.state.numbers, bench.state.live.id) == (messages, numbers, "r1")
        assert not bench.state.effects

    def test_a_closed_core_refuses_by_name(self) -> None:
        """The method is named as the caller knows it."""
        bench = Bench()
        bench.put(Close())
        with pytest.raises(AgentClosedError, match=r"steer\(\) was called in phase closed"):
            bench.steer()
        assert bench.put(Close()) == bench.put(Cancel()) == bench.put(WaitForIdle()) == []

    def test_a_refusal_can_be_asked_for(self) -> None:
        """`refusal` gives the error of the phase before anything is tried, and None where the phase allows it."""
        bench = Bench()
        assert bench.core.refusal(Command.PROMPT) is None
        bench.prompt()
        assert isinstance(bench.core.refusal(Command.PROMPT), AgentBusyError)
        assert bench.core.refusal(Command.CANCEL) is None
