"""G1 to G5, each by a few directed cases through the public methods. The tags name the reported fault behind a case."""

import asyncio
from typing import Any

import pytest

from kernel import Block, Finished, Hooks, ModelError, ReasoningDelta, StopReason
from kernel.messages import TextDelta, ToolMessage
from kernel.testing import CUT_OFF, call
from tests.kernel.helpers import Act, Stage, play, said, ticks, turns

THREE_TURNS = (["one", call("c1", "act")], ["two", call("c2", "act"), call("c3", "act")], ["done"])


def three_turns(**arguments: Any) -> Stage:
    return Stage(*THREE_TURNS, tools=[Act()], **arguments)


class Fatal(BaseException):
    pass


def event_count() -> int:
    """How many events three turns have."""
    stage = three_turns()
    play(stage.run())
    return len(stage.heard.events)


class TestG1OneEnd:
    @pytest.mark.parametrize(
        ("response", "status"),
        [
            (["a"], "completed"),
            ([], "completed"),
            ([ModelError("boom")], "failed"),
            (["a", ValueError("boom")], "failed"),
            (["a", CUT_OFF], "failed"),
            (["a", TextDelta(5)], "failed"),  # type: ignore[arg-type]
            ([call("c1", "unknown")], "max_turns"),
        ],
        ids=str,
    )
    def test_each_way_out_has_one_run_finished(self, response: Any, status: str) -> None:
        """Whatever the response does, the run begins with `run.started` and ends with the one `run.finished` (TRM-2)."""
        stage = Stage(response, response, response, max_turns=3)
        result = play(stage.run())
        assert (stage.types[0], stage.types[-1]) == ("run.started", "run.finished")
        assert stage.types.count("run.finished") == 1
        assert (result.status, stage.heard.events[-1].result) == (status, result)

    def test_a_cancel_anywhere_gives_one_end(self) -> None:
        """A cancel at any event of three turns leads to one `run.finished`, and the run is cancelled (TRM-8, KEEP-8)."""
        for place in range(event_count() - 2):
            stage = three_turns()
            stage.agent.subscribe(lambda event, stage=stage, place=place: event.sequence == place and stage.agent.cancel())
            result = play(stage.run())
            late = stage.heard.events[place].type == "phase.changed" and stage.heard.events[place].target == "settling"
            assert result.status == ("completed" if late else "cancelled"), place
            assert stage.types.count("run.finished") == 1

    def test_nothing_follows_the_end(self) -> None:
        """Nothing is said after `run.finished`, whatever is commanded then (I6)."""
        stage = Stage(["a"])

        async def main() -> None:
            await stage.run()
            stage.agent.steer("left")
            stage.agent.cancel()
            stage.agent.clear_queues()
            await ticks()

        play(main())
        assert stage.types[-1] == "run.finished"

    def test_what_is_commanded_at_the_end_is_not_told(self) -> None:
        """A listener that hears the end may command, and nothing of it is told any more."""
        stage = Stage(["a"])
        stage.on("run.finished", lambda: stage.agent.unqueue(stage.agent.steer("left")))
        play(stage.run())
        assert stage.types[-1] == "run.finished"


class TestG2Nesting:
    def test_all_that_opens_closes(self) -> None:
        """Run, turn, message and tool nest, wherever a listener fails the run (TRM-12, I10)."""
        for place in range(event_count() - 1):
            stage = three_turns(subscriber_failure="fail_run")

            def listener(event: Any, place: int = place) -> None:
                if event.sequence == place:
                    raise RuntimeError("boom")

            stage.agent.subscribe(listener)
            assert play(stage.run()).status == "failed", place
            for kind in ("turn", "message"):
                opened = [name for name in stage.types if name in (f"{kind}.started", f"{kind}.ended")]
                assert opened == [f"{kind}.started", f"{kind}.ended"] * (len(opened) // 2), place
            assert stage.types.count("tool.started") == stage.types.count("tool.ended")

    def test_a_turn_that_ends_is_the_one_that_began(self) -> None:
        """`turn.ended` has the number of its `turn.started`, in the turn of a failure too."""
        stage = three_turns(subscriber_failure="fail_run")
        stage.on("turn.ended", lambda: 1 / 0)
        play(stage.run())
        assert [event.turn for event in stage.heard.of("turn.started")] == [
            event.turn for event in stage.heard.of("turn.ended")
        ]

    @pytest.mark.parametrize(
        ("detour", "error"),
        [("retry", ModelError("busy", retryable=True)), ("compaction", ModelError("full", overflow=True))],
    )
    def test_a_detour_that_is_cancelled_closes_too(self, detour: str, error: ModelError) -> None:
        """A cancel while a retry waits or a compaction works closes it inside its turn."""
        stage = Stage([error], messages=turns(5), compactor=type("Deaf", (), {"summarize": asyncio.Event().wait})())
        started, ended = f"{detour}.{'scheduled' if detour == 'retry' else 'started'}", f"{detour}.ended"
        stage.on(started, stage.agent.cancel)
        assert play(stage.run()).status == "cancelled"
        assert stage.types[-4:] == [started, ended, "turn.ended", "run.finished"]


class TestG3Messages:
    def test_the_text_is_its_deltas(self) -> None:
        """A message's text and reasoning are its deltas put together (ORD-2)."""
        stage = Stage([ReasoningDelta("hm"), ReasoningDelta("…"), "a", "", "b"])
        play(stage.run())
        updates = [(event.channel, event.delta) for event in stage.heard.of("message.updated")]
        assert updates == [("reasoning", "hm"), ("reasoning", "…"), ("text", "a"), ("text", "b")]
        (ended,) = stage.heard.of("message.ended")
        assert (ended.message.reasoning, ended.message.text) == ("hm…", "ab")


class TestG4Pairing:
    @pytest.mark.parametrize("mode", ["parallel", "sequential"])
    def test_each_kind_of_call_has_one_result_in_source_order(self, mode: Any) -> None:
        """Six calls that go six ways have six results, in the order of the calls (PAIR-10, PAR-6)."""

        def raises(*_: Any) -> None:
            raise RuntimeError

        tools = [Act("ok"), Act("raises", raises), Act("none", None), Act("denied"), Act("wrong", validate=raises)]
        calls = [call(f"c{n}", name) for n, name in enumerate(("ok", "raises", "unknown", "none", "denied", "wrong"))]
        hooks = Hooks(before_tool_call=lambda call, _: Block("not you") if call.name == "denied" else None)
        stage = Stage(calls, ["done"], tools=tools, hooks=hooks, tool_execution=mode)
        result = play(stage.run())
        answers = [message for message in result.messages if isinstance(message, ToolMessage)]
        assert [(a.call_id, a.name, a.is_error, a.executed) for a in answers] == [
            ("c0", "ok", False, True),
            ("c1", "raises", True, True),
            ("c2", "unknown", True, False),
            ("c3", "none", False, True),
            ("c4", "denied", True, False),
            ("c5", "wrong", True, False),
        ]
        assert [a.text for a in answers][1:5:3] == ["RuntimeError", "not you"]

    def test_tools_end_in_the_order_in_which_they_end(self) -> None:
        """`tool.ended` comes in completion order, the results in source order."""
        stage = Stage([call("c1", "slow"), call("c2", "fast")], ["done"])

        async def slow(*_: Any) -> str:
            await asyncio.sleep(1)
            return "slow"

        stage.agent.configure(tools=[Act("slow", slow), Act("fast")])
        play(stage.run())
        assert [event.call_id for event in stage.heard.of("tool.ended")] == ["c2", "c1"]
        assert said(stage.agent.messages)[2:4] == [("tool", "slow"), ("tool", "ok")]

    def test_a_cancel_keeps_what_finished(self) -> None:
        """A result that was there before the cancel is kept; the sibling gets a cancelled one (KEEP-2, PAIR-9, I7)."""
        stage = Stage([call("c1", "waits"), call("c2", "act")])
        stage.agent.configure(tools=[Act("waits", stage.waiting()), Act()])
        stage.on("tool.ended", stage.agent.cancel)
        play(stage.run())
        assert stage.said[2:] == [
            ("tool", "cancelled: the run was stopped while this call was running"),
            ("tool", "ok"),
        ]

    @pytest.mark.parametrize("end", ["cancel", "failure", "limit"])
    def test_what_an_end_leaves_open_is_answered(self, end: str) -> None:
        """Whatever ends a run in the middle of a batch, each call has a result that says how far the call had come."""
        policies: Any = {"failure": {"subscriber_failure": "fail_run"}, "limit": {"run_deadline": 1}}.get(end, {})
        calls = [call("c1", "act"), call("c2", "deaf"), call("c3", "act")]
        stage = Stage(calls, tool_execution="sequential", cancel_grace=5, **policies)
        stage.agent.configure(tools=[act := Act(), Act("deaf", stage.deaf())])
        if end == "cancel":
            stage.on("tool.started", stage.agent.cancel, nth=2)
        elif end == "failure":
            stage.on("tool.started", lambda: 1 / 0, nth=2)
        expected = [("ok", False, True), ("interrupted", True, True), ("not executed", True, False)]
        if end != "limit":
            expected[1] = expected[2]  # the listener of its start came first

        play(stage.run(), left=None)
        answers = [message for message in stage.agent.messages if isinstance(message, ToolMessage)]
        assert [(a.text.partition(":")[0], a.is_error, a.executed) for a in answers] == expected
        assert act.ran == ["c1"]

    @pytest.mark.parametrize(
        "raised", [RuntimeError("boom"), asyncio.CancelledError(), type("Fatal", (BaseException,), {})()]
    )
    def test_one_that_raises_leaves_its_siblings_alone(self, raised: BaseException) -> None:
        """An exception of a tool is its own error result; the siblings go on (KEEP-4, KEEP-5, PAR-1)."""

        def raises(*_: Any) -> None:
            raise raised

        stage = Stage([call("c1", "act"), call("c2", "raises"), call("c3", "act")], ["done"])
        stage.agent.configure(tools=[Act(), Act("raises", raises)])
        result = play(stage.run())
        assert result.status == "completed"
        assert [message.is_error for message in result.messages[2:5]] == [False, True, False]

    def test_the_same_id_in_every_turn_is_no_repetition(self) -> None:
        """A provider that uses an id again in another turn gets a result each time (PAR-4)."""
        stage = Stage(*[[call("x", "act")]] * 3, ["done"], tools=[Act()])
        play(stage.run())
        assert [text for role, text in stage.said if role == "tool"] == ["ok"] * 3

    def test_a_response_that_says_that_it_failed_runs_no_tools(self) -> None:
        """A stream that ends with the stop reason `error` is a failed response: nothing is executed for it."""
        act = Act()
        stage = Stage(["a", call("c1", "act"), Finished(StopReason.ERROR)], ["done"], tools=[act])
        result = play(stage.run())
        assert (result.status, act.ran) == ("failed", [])


class TestG5EndOfTurn:
    def test_all_of_a_turn_is_said_before_it_ends(self) -> None:
        """Tool events and results come before the `turn.ended` of their turn, and none after it."""
        stage = three_turns()
        play(stage.run())
        open_turn = False
        for name in stage.types:
            open_turn = (open_turn or name == "turn.started") and name != "turn.ended"
            assert open_turn or not name.startswith(("tool.", "message."))
        assert [event.results for event in stage.heard.of("turn.ended")] == [("c1",), ("c2", "c3"), ()]
