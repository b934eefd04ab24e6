"""G9 to G16: what is kept, what is bounded, what never changes. The tags name the reported fault behind a case."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

from kernel import (
    Agent,
    CustomMessage,
    EventsLostError,
    Finished,
    Hooks,
    ModelError,
    ReasoningDelta,
    StopReason,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    UserMessage,
)
from kernel.messages import TextDelta
from kernel.testing import CUT_OFF, ScriptedModel, call, collect
from tests.kernel.helpers import Act, Stage, play, said, ticks, turns


def with_hook(name: str, hook: Any, *responses: Any, **arguments: Any) -> Stage:
    return Stage(*responses or ([call("c1", "act")], ["done"]), hooks=Hooks(**{name: hook}), tools=[Act()], **arguments)


def boom(*_: Any) -> None:
    raise RuntimeError("boom")


class TestG9Retry:
    def test_a_retry_is_the_same_request_in_the_same_turn(self) -> None:
        """A failure that may pass is asked again with the same content, and leaves nothing behind (RET-1, RET-5)."""
        stage = Stage(["ab", ToolCallDelta(0, "c1", "act", "{ha"), ModelError("busy", retryable=True)], ["abc"])
        result = play(stage.run())
        first, second = stage.model.requests
        assert (first.messages, first.tools) == (second.messages, second.tools)
        assert (result.turns, stage.said, result.partial) == (1, [("user", "Hi"), ("assistant", "abc")], None)


class TestG10Compaction:
    def test_an_overflow_is_recovered_once(self) -> None:
        """A context that still does not fit after a compaction fails the run (CMP-10)."""
        full = ModelError("too long", overflow=True)
        stage = Stage([full], ["short"], [full], messages=turns(5))
        result = play(stage.run())
        assert (result.status, len(stage.model.requests)) == ("failed", 3)
        assert stage.types.count("compaction.started") == 1

    def test_the_old_history_stays_until_the_summary_is_there(self) -> None:
        """While the compactor works, and when it fails, the transcript is what it was (CMP-13)."""

        class Compactor:
            async def summarize(self, messages: Any) -> str:
                seen.append(len(stage.agent.messages))
                raise RuntimeError("boom")

        seen: list[int] = []
        stage = Stage(["a"], messages=turns(5), compactor=Compactor())

        async def main() -> str:
            return (await stage.agent.compact()).status

        assert (play(main()), seen, stage.agent.messages) == ("failed", [10], turns(5))


BROKEN: dict[str, Any] = {
    "text": lambda: "no part",
    "nothing": lambda: None,
    "a delta of no text": lambda: TextDelta(5),  # type: ignore[arg-type]
    "reasoning of no text": lambda: ReasoningDelta(5),  # type: ignore[arg-type]
    "a signature of no text": lambda: ReasoningDelta("a", 5),  # type: ignore[arg-type]
    "an id of no text": lambda: ToolCallDelta(0, 5, "act"),  # type: ignore[arg-type]
    "a name of no text": lambda: ToolCallDelta(0, "c1", 5),  # type: ignore[arg-type]
    "arguments of no text": lambda: ToolCallDelta(0, "c1", "act", {"a": 1}),  # type: ignore[arg-type]
    "an index of no number": lambda: ToolCallDelta([], "c1", "act"),  # type: ignore[arg-type]
    "an unknown stop reason": lambda: Finished("whatever"),  # type: ignore[arg-type]
}


class TestG11Streams:
    def test_a_stream_without_an_end_is_a_failure(self) -> None:
        """A stream that just ends is retried, and fails in the end; it is never a completed answer (RET-2)."""
        stage = Stage(*[["par", CUT_OFF]] * 3)
        result = play(stage.run())
        assert (result.status, len(stage.model.requests)) == ("failed", 3)
        assert "without a terminal part" in str(result.error)

    def test_a_stalled_stream_is_a_failure(self) -> None:
        """A model that says nothing for `stream_idle_timeout` has failed (LAT-9)."""
        stage = Stage(*[["par", asyncio.Event().wait]] * 3, stream_idle_timeout=20)
        result = play(stage.run())
        assert (result.status, len(stage.model.requests)) == ("failed", 3)
        assert "stream_idle_timeout" in str(result.error)

    @pytest.mark.parametrize("part", BROKEN.values(), ids=BROKEN)
    def test_a_part_that_is_none_is_the_models_fault(self, part: Any) -> None:
        """A model that breaks the protocol fails the run with its own code, with all events of a failure."""

        async def broken(_: Any) -> Any:
            yield TextDelta("par")
            yield part()
            yield Finished()

        result = play(Stage(broken).run())
        assert (result.status, result.error.code) == ("failed", "MODEL_FAILED")

    @pytest.mark.parametrize("depth", [300, 600, 100_000])
    def test_arguments_of_any_depth_are_the_models_fault(self, depth: int) -> None:
        """Arguments that are nested without end are at most a call that is answered with an error."""
        text = '{"a":' + "[" * depth + "]" * depth + "}"
        stage = Stage([ToolCallDelta(0, "c1", "act", text)], ["done"], tools=[Act()])
        assert play(stage.run()).status == "completed"

    def test_a_truncated_response_runs_no_tool(self) -> None:
        """The calls of a response that was cut at the output limit are answered, and not executed."""
        act = Act()
        stage = Stage(["a", call("c1", "act"), Finished(StopReason.LENGTH)], ["done"], tools=[act])
        play(stage.run())
        (result,) = [message for message in stage.agent.messages if isinstance(message, ToolMessage)]
        assert (act.ran, result.is_error, result.executed) == ([], True, False)

    def test_calls_decide_and_not_the_stop_reason(self) -> None:
        """A response that says `stop` and asks for tools gets them."""
        act = Act()
        play(Stage([call("c1", "act"), Finished(StopReason.STOP)], ["done"], tools=[act]).run())
        assert act.ran == ["c1"]


class TestG12ToldAfterwards:
    def test_a_listener_sees_what_it_is_told_of(self) -> None:
        """At the event of a message that enters, the message is the transcript's last; the queue is as it is told."""
        stage = Stage([call("c1", "act")], ["b"], tools=[Act()])
        seen: list[bool] = []

        def listener(event: Any) -> None:
            if event.type in ("message.ended", "message.accepted"):
                seen.append(event.message in tuple(stage.agent.messages))
            if event.type == "queue.changed":
                seen.append(event.steering == stage.agent.queued.steering)

        stage.agent.subscribe(listener)
        stage.on("tool.started", lambda: stage.agent.steer("left"))
        play(stage.run())
        assert seen == [True] * 7

    def test_what_a_listener_saw_is_there_after_a_cancel(self) -> None:
        """The last message that was told of is in the transcript, whatever came then (KEEP-10)."""
        stage = Stage([call("c1", "act")], ["b"], tools=[Act()])
        stage.on("message.ended", stage.agent.cancel, nth=2)
        play(stage.run())
        assert stage.agent.messages[-1] == stage.heard.of("message.ended")[-1].message


class TestG13NothingLeft:
    def test_after_a_run_no_task_and_no_timer_is_alive(self) -> None:
        """When the run is awaited, the loop has nothing of it: tasks, timers, threads (I3, EXT-13)."""
        stage = Stage(
            [call("c1", "act")], ["a", ModelError("busy", retryable=True)], ["b"], tools=[Act(timeout=60)], run_deadline=600
        )

        async def main() -> tuple[int, int, int]:
            threads = threading.active_count()
            await stage.run()
            await ticks(1)
            loop: Any = asyncio.get_running_loop()
            return loop.timers(), len(asyncio.all_tasks()) - 1, threading.active_count() - threads

        assert play(main()) == (0, 0, 0)

    def test_what_was_abandoned_leaves_no_timer(self) -> None:
        """A call that is given up is watched by nobody any more."""
        stage = Stage([call("c1", "act")], cancel_grace=1)
        stage.agent.configure(tools=[Act(body=stage.deaf("end"), timeout=600)])

        async def main() -> int:
            run = stage.agent.prompt("Hi")
            await ticks()
            stage.agent.cancel()
            await run
            loop: Any = asyncio.get_running_loop()
            timers = loop.timers()
            stage.gates.open("end")
            await ticks()
            return timers

        assert play(main()) == 0

    def test_a_reader_that_waits_for_idle_finds_nothing_left(self) -> None:
        """Whoever has read a run to its end and waited for idle finds no task of it alive."""
        stage = Stage(["a"])

        async def main() -> int:
            await collect(stage.agent.prompt("Hi"))
            await stage.agent.wait_for_idle()
            return len(asyncio.all_tasks()) - 1

        assert play(main()) == 0

    def test_an_agent_that_is_dropped_is_gone(self) -> None:
        """Nothing of the kernel keeps agent, model, tool or listener alive after a run (MEM-1, SUB-9)."""

        def listener(_: Any) -> None:
            return None

        async def main() -> Any:
            model, act = ScriptedModel([[call("c1", "act")], ["done"]]), Act()
            agent = Agent(model, tools=[act])
            agent.subscribe(local := lambda event: listener(event))
            result = await agent.prompt("Hi")
            references.extend(map(weakref.ref, (agent, model, act, local)))
            return result

        references: list[Any] = []
        result = play(main())
        gc.collect()
        assert [reference() for reference in references] == [None] * 4
        assert result.final_text == "done"

    def test_a_thousand_runs_leave_no_more_than_ten(self) -> None:
        """The kernel's own objects do not grow with the number of runs (MEM-2)."""
        stage = Stage(*[["a"]] * 60, message_limit=None)
        stage.heard.clear()

        def count() -> int:
            gc.collect()
            names = ("Drive", "Run", "RunState", "Workers", "Work", "Delivery", "Receipt")
            return sum(type(thing).__name__ in names for thing in gc.get_objects())

        async def main() -> list[int]:
            counts = []
            for _ in range(6):
                for _ in range(10):
                    stage.agent.steer("and")
                    await stage.agent.prompt("Hi")
                    stage.heard.clear()
                counts.append(count())
            return counts

        counts = play(main())
        assert len(set(counts)) == 1


class TestG14Snapshots:
    def test_a_tool_gets_its_own_arguments(self) -> None:
        """What a tool, a hook or a check does to its arguments reaches nobody else (OVL-9, I8)."""

        def spoil(arguments: Any) -> Any:
            arguments["list"].append("spoilt")
            arguments["more"] = 1
            return arguments

        hooks = Hooks(before_tool_call=lambda _, arguments: spoil(arguments) and None)
        act = Act(body=lambda arguments, _: str(spoil(arguments)), resources=lambda a: spoil(a) and ())
        stage = Stage([call("c1", "act", list=[1, {"a": []}])], ["done"], hooks=hooks, tools=[act])
        play(stage.run())
        assert stage.agent.messages[1].calls[0].arguments == {"list": (1, {"a": ()})}
        assert stage.said[2] == ("tool", "{'list': [1, {'a': []}, 'spoilt'], 'more': 1}")

    def test_what_was_handed_out_never_changes(self) -> None:
        """Old views, states, queues and requests are the same after more runs, a reset and a new configuration."""
        stage = Stage(["a"], ["b"])

        async def main() -> None:
            await stage.run()
            stage.agent.steer("left")
            agent = stage.agent
            views = agent.messages, agent.state, agent.queued, stage.model.requests[0]
            copies = tuple(agent.messages), agent.state, agent.queued, tuple(stage.model.requests[0].messages)
            await stage.run()
            agent.configure(system_prompt="Be kind.")
            agent.reset()
            assert (tuple(views[0]), views[1], views[2], tuple(views[3].messages)) == copies
            assert (len(views[1].messages), views[1].system_prompt) == (2, "")

        play(main())

    def test_what_was_handed_in_is_not_kept(self) -> None:
        """Changing the lists that were handed in changes nothing, and the kernel changes none of them."""
        given, acts, data = list(turns(1)), [Act()], {"a": [1]}
        custom = CustomMessage("note", data)
        stage = Stage(["a"], messages=given, tools=acts)
        given.clear()
        acts.clear()
        data["a"].append(2)
        assert (len(stage.agent.messages), len(stage.agent.state.tools)) == (2, 1)
        assert custom.data == {"a": (1,)}

    def test_model_and_tools_are_captured(self) -> None:
        """Replacing `model.stream` or a tool's fields after construction changes nothing."""
        act = Act()
        stage = Stage([call("c1", "act")], ["done"], tools=[act])
        stage.model.stream = None  # type: ignore[method-assign, assignment]
        act.execute = act.body = act.name = None  # type: ignore[method-assign, assignment]
        act.body = "captured"
        assert play(stage.run()).status == "completed"
        assert stage.said[2] == ("tool", "captured")


class TestG15Hooks:
    @pytest.mark.parametrize(
        "wrong", [boom, lambda _: None, lambda _: ["text"], lambda _: 5], ids=["raise", "none", "text", "int"]
    )
    @pytest.mark.parametrize("name", ["transform_context", "convert_to_llm"])
    def test_a_context_hook_falls_back(self, name: str, wrong: Any) -> None:
        """A context hook that fails or answers nonsense is reported, and its input is used without custom messages."""
        note = CustomMessage("note")
        stage = with_hook(name, wrong, ["done"], messages=(*turns(1), note))
        play(stage.run())
        assert [event.hook for event in stage.heard.of("hook.failed")] == [name]
        assert stage.model.requests[0].messages == (*turns(1), UserMessage("Hi"))

    def test_a_hook_rewrites_custom_messages(self) -> None:
        """`convert_to_llm` decides what a model sees of an application's messages."""

        def convert(messages: Any) -> Any:
            return [UserMessage(m.text) if isinstance(m, CustomMessage) else m for m in messages]

        stage = with_hook("convert_to_llm", convert, ["done"], messages=(CustomMessage("note"),))
        play(stage.run())
        assert said(stage.model.requests[0].messages) == [("user", "[note]"), ("user", "Hi")]

    @pytest.mark.parametrize("name", ["transform_context", "convert_to_llm"])
    def test_a_custom_message_that_no_hook_rewrote_is_left_out(self, name: str) -> None:
        """A hook that hands custom messages on does not show them to the model."""
        stage = with_hook(name, lambda messages: [*messages, CustomMessage("added")], ["done"], messages=turns(1))
        play(stage.run())
        assert stage.model.requests[0].messages == (*turns(1), UserMessage("Hi"))

    @pytest.mark.parametrize(
        ("answer", "text"),
        [(boom, "boom"), (lambda *_: "not now", "not now"), (lambda *_: "", "blocked"), (lambda *_: 5, "5")],
    )
    def test_a_call_that_is_blocked_is_an_error_result(self, answer: Any, text: str) -> None:
        """`before_tool_call` that blocks, raises or answers nonsense keeps the call from running (SUB-6)."""
        stage = with_hook("before_tool_call", answer)
        play(stage.run())
        (result,) = [message for message in stage.agent.messages if isinstance(message, ToolMessage)]
        assert (result.is_error, result.executed, text in result.text) == (True, False, True)

    @pytest.mark.parametrize(("name", "call_id"), [("after_tool_result", "c1"), ("should_stop_after_turn", None)])
    def test_a_later_hook_that_fails_is_reported_and_no_more(self, name: str, call_id: str | None) -> None:
        """`after_tool_result` leaves the result and `should_stop_after_turn` counts as no (SUB-4, KEEP-13, PAR-12)."""
        stage = with_hook(name, boom)
        result = play(stage.run())
        assert {(event.hook, event.error, event.call_id) for event in stage.heard.of("hook.failed")} == {
            (name, "boom", call_id)
        }
        assert (result.status, stage.said[2]) == ("completed", ("tool", "ok"))

    def test_a_hook_may_stop_the_run(self) -> None:
        """`should_stop_after_turn` sees the state and ends the run as `stopped`, with what is queued still queued."""
        stage = with_hook("should_stop_after_turn", lambda state: len(state.messages) >= 3)
        stage.on("tool.started", lambda: stage.agent.steer("left"))
        result = play(stage.run())
        assert (result.status, result.turns, len(stage.agent.queued.steering)) == ("stopped", 1, 1)


class TestG16Bounded:
    def test_a_consumer_that_does_not_read_holds_a_bounded_number(self) -> None:
        """Past `event_buffer` the iterator tells what it misses; run and listeners are not disturbed (MEM-4, MEM-5)."""
        calls = [ToolCall(f"c{number}", "act") for number in range(20)]
        stage = Stage(calls, ["done"], tools=[Act()], event_buffer=10)

        async def main() -> list[Any]:
            run = stage.agent.prompt("Hi")
            assert (await run).status == "completed"
            events = [await anext(run) for _ in range(10)]
            with pytest.raises(EventsLostError) as lost:
                await anext(run)
            assert (lost.value.first, lost.value.last) == (10, len(stage.heard.events) - 1)
            return events

        assert play(main()) == stage.heard.events[:10]

    def test_one_reader_that_reads_misses_nothing(self) -> None:
        """A reader that keeps up sees every event once, however small the buffer (TRM-17)."""
        pauses = [line for number in range(200) for line in (f"{number} ", ticks)]
        stage = Stage(pauses, event_buffer=10)

        async def main() -> list[Any]:
            events = await collect(stage.agent.prompt("Hi"))
            await ticks(1)
            return events

        assert play(main()) == stage.heard.events
