"""Listeners: their order, what they may do, what becomes of a run when they raise, wait, or never come back."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from kernel import AgentBusyError, ReentrancyError
from kernel.state import ERRORS_KEPT
from kernel.testing import Recorder, call
from tests.kernel.helpers import Act, Stage, play, turns


def boom(_: Any) -> None:
    raise RuntimeError("boom")


def at(type: str, do: Any) -> Any:
    """A listener that does *do* at an event."""
    return lambda event: do() if event.type == type else None


class TestOrder:
    def test_each_event_goes_to_all_before_the_next(self) -> None:
        """Listeners are told in the order of subscription, one event at a time; awaited ones are waited for (ORD-4)."""
        stage = Stage(["a"])
        told: list[tuple[str, int]] = []

        async def slow(event: Any) -> None:
            await asyncio.sleep(1)
            told.append(("slow", event.sequence))

        stage.agent.subscribe(slow)
        stage.agent.subscribe(lambda event: told.append(("fast", event.sequence)))
        play(stage.run())
        assert told == [(name, number) for number in range(len(stage.heard.events)) for name in ("slow", "fast")]

    def test_the_same_callable_twice_is_two(self) -> None:
        """One callable that subscribes twice hears everything twice, and once after one of them ended."""
        stage, recorder = Stage(["a"], ["b"]), Recorder()
        first = stage.agent.subscribe(recorder)
        stage.agent.subscribe(recorder)
        play(stage.run())
        assert len(recorder.events) == 2 * len(stage.heard.events)
        first()
        recorder.clear()
        stage.heard.clear()
        play(stage.run())
        assert recorder.events == stage.heard.events

    def test_one_that_comes_later_hears_from_the_next_event(self) -> None:
        """An event goes to those who listened when its delivery began (ORD-5)."""
        stage, late = Stage(["a"]), Recorder()
        stage.on("turn.started", lambda: stage.agent.subscribe(late))
        play(stage.run())
        assert late.events == stage.heard.events[3:]

    def test_one_that_leaves_in_a_delivery_is_told_this_once(self) -> None:
        """A listener that is unsubscribed while an event is delivered hears that event, and no other."""
        stage, leaving = Stage(["a"]), Recorder()
        stage.on("turn.started", lambda: unsubscribe())
        unsubscribe = stage.agent.subscribe(leaving)
        play(stage.run())
        assert leaving.types[-1] == "turn.started"

    def test_commands_come_back_before_anybody_hears(self) -> None:
        """`prompt` and `cancel` return before a listener is called."""
        stage = Stage(["a"])

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            assert stage.heard.events == []
            stage.agent.cancel()
            assert stage.heard.events == []
            await run

        play(main())


class TestUnsubscribe:
    def test_it_is_idempotent(self) -> None:
        """Ending a subscription twice does nothing the second time, also when another one is the same callable."""
        stage, recorder = Stage(["a"]), Recorder()
        unsubscribe, _ = stage.agent.subscribe(recorder), stage.agent.subscribe(recorder)
        unsubscribe()
        unsubscribe()
        play(stage.run())
        assert recorder.events == stage.heard.events

    def test_it_is_a_context_manager(self) -> None:
        """A subscription holds for its `with` block."""
        stage, recorder = Stage(["a"], ["b"]), Recorder()

        async def main() -> None:
            with stage.agent.subscribe(recorder):
                await stage.run()
            await stage.run()

        play(main())
        assert recorder.types.count("run.finished") == 1

    def test_it_lets_go_of_the_listener(self) -> None:
        """After unsubscribing, nothing of the agent keeps the listener alive (SUB-9)."""
        stage, recorder = Stage(["a"]), Recorder()

        class Listener:
            def __call__(self, event: Any) -> None:
                recorder(event)

        listener = Listener()
        unsubscribe = stage.agent.subscribe(listener)
        play(stage.run())
        reference = weakref.ref(listener)
        unsubscribe()
        del listener
        gc.collect()
        assert reference() is None
        assert recorder.events == stage.heard.events


class TestRaising:
    @pytest.mark.parametrize("error", [RuntimeError("boom"), asyncio.CancelledError("boom"), KeyError("boom")], ids=repr)
    def test_it_is_recorded_and_the_others_hear_all(self, error: BaseException) -> None:
        """A listener that raises is told of, once for each time, and neither run nor other listeners suffer (SUB-1)."""
        stage, after = Stage(["a"]), Recorder()

        def raises() -> None:
            raise error

        stage.agent.subscribe(at("turn.started", raises))
        stage.agent.subscribe(after)
        assert play(stage.run()).status == "completed"
        assert after.events == stage.heard.events
        (failed,) = stage.heard.of("subscriber.failed")
        assert (failed.event_type, failed.event, "boom" in failed.error) == ("turn.started", 2, True)
        (recorded,) = stage.agent.subscriber_errors
        assert (recorded.event_type, recorded.event, recorded.run_id) == ("turn.started", 2, failed.run_id)

    def test_an_awaited_one_is_recorded_too(self) -> None:
        """What an async listener raises is its failure."""
        stage = Stage(["a"])

        async def listener(event: Any) -> None:
            if event.type == "turn.started":
                await asyncio.sleep(1)
                raise RuntimeError("boom")

        stage.agent.subscribe(listener)
        play(stage.run())
        assert [event.error for event in stage.heard.of("subscriber.failed")] == ["boom"]

    def test_an_awaited_one_that_was_cancelled_by_its_own_doing_failed(self) -> None:
        """A listener that raises CancelledError though nobody cancelled it has failed."""
        stage = Stage(["a"])

        async def listener(event: Any) -> None:
            if event.type == "turn.started":
                raise asyncio.CancelledError

        stage.agent.subscribe(listener)
        play(stage.run())
        assert len(stage.agent.subscriber_errors) == 1

    def test_one_that_always_raises_goes_round_once(self) -> None:
        """A listener that raises at `subscriber.failed` too is recorded for it, and not told of it again."""
        stage = Stage(["a"])
        stage.agent.subscribe(boom)
        play(stage.run())
        assert len(stage.agent.subscriber_errors) == len(stage.heard.events)
        failed = stage.heard.of("subscriber.failed")
        assert [event.event_type for event in failed] == [
            event.type for event in stage.heard.events if event.type not in ("subscriber.failed", "run.finished")
        ]

    def test_the_newest_are_kept_and_all_are_counted(self) -> None:
        """`subscriber_errors` keeps the newest 256 and the state counts all (MEM-6)."""
        stage = Stage([f"{number}" for number in range(300)])
        stage.agent.subscribe(boom)
        play(stage.run())
        state = stage.agent.state
        assert (len(state.subscriber_errors), state.subscriber_error_count) == (ERRORS_KEPT, len(stage.heard.events))
        assert state.subscriber_errors[-1].event_type == "run.finished"

    def test_whatever_it_raises_the_run_ends(self) -> None:
        """A listener that raises no ordinary exception does not leave a run that never ends."""
        stage = Stage(["a"])

        class Fatal(BaseException):
            pass

        def raises(_: Any) -> None:
            raise Fatal

        stage.agent.subscribe(raises)
        play(stage.run())
        assert stage.types[-1] == "run.finished"


FAILING_PLACES = ["run.started", "turn.started", "message.accepted", "message.started", "message.updated", "message.ended",
                  "tool.started", "tool.ended", "turn.ended", "queue.changed"]  # fmt: skip


class TestFailRun:
    @pytest.mark.parametrize("place", FAILING_PLACES)
    @pytest.mark.parametrize("message", ["synthesize", "result_only"])
    def test_a_failing_listener_fails_the_run_anywhere(self, place: str, message: Any) -> None:
        """Under `fail_run` the run fails with the listener's error, whole and paired, wherever it raised."""
        stage = Stage(
            ["a", call("c1", "act")], ["b"], tools=[Act()], subscriber_failure="fail_run", failure_message=message
        )
        stage.agent.subscribe(at(place, lambda: boom(None)))
        stage.on("run.started", lambda: stage.agent.steer("left"))
        result = play(stage.run())
        assert (result.status, result.error.code, str(result.error)) == ("failed", "SUBSCRIBER_FAILED", "boom")
        assert result.messages[0].text == "Hi"
        wrote = [m for m in result.messages if m.role == "assistant" and m.error == "boom" and not m.text]
        assert len(wrote) == (message == "synthesize" and place not in ("message.started", "message.updated"))
        assert stage.agent.state.error_message == "boom"

    def test_it_fails_once(self) -> None:
        """A listener that always raises fails the run once, and is told of its end (SUB-1)."""
        stage = Stage(["a"], subscriber_failure="fail_run")
        stage.agent.subscribe(boom)
        assert play(stage.run()).status == "failed"
        assert stage.types.count("run.finished") == 1

    def test_the_failure_between_turns_opens_a_turn_that_does_not_count(self) -> None:
        """Outside a turn one turn more is opened for the failure's message, and `max_turns` does not count it."""
        stage = Stage([call("c1", "act")], tools=[Act()], subscriber_failure="fail_run", max_turns=1)
        stage.agent.subscribe(at("turn.ended", lambda: boom(None)))
        result = play(stage.run())
        assert (result.status, stage.types.count("turn.started")) == ("failed", 2)

    @pytest.mark.parametrize("place", ["run.finished", "subscriber.failed"])
    def test_the_last_words_are_only_recorded(self, place: str) -> None:
        """Failures at `run.finished` and `subscriber.failed` change no outcome."""
        stage = Stage(["a"], subscriber_failure="fail_run" if place == "run.finished" else "record")
        if place == "subscriber.failed":
            stage.agent.subscribe(at("turn.started", lambda: boom(None)))
        stage.agent.subscribe(at(place, lambda: boom(None)))
        assert play(stage.run()).status == "completed"
        assert stage.agent.subscriber_errors[-1].event_type == place

    def test_a_compaction_by_hand_has_its_failure_in_the_result_alone(self) -> None:
        """A failing listener in a `compact()` run opens no turn and writes no message."""
        stage = Stage(["short"], messages=turns(5), subscriber_failure="fail_run")
        stage.agent.subscribe(at("compaction.started", lambda: boom(None)))

        async def main() -> Any:
            return await stage.agent.compact()

        result = play(main())
        assert (result.status, result.messages, len(stage.agent.messages)) == ("failed", (), 10)
        assert "turn.started" not in stage.types


class TestCommands:
    @pytest.mark.parametrize("place", ["run.started", "message.updated", "tool.started", "turn.ended", "run.finished"])
    def test_a_listener_may_command_and_is_refused_as_anybody(self, place: str) -> None:
        """Commands in a listener do what they do anywhere in that phase (OVL-1)."""
        stage = Stage(["a", call("c1", "act")], ["b"], ["c"], ["d"], tools=[Act()])
        refused: list[str] = []

        def commands() -> None:
            receipt = stage.agent.steer("left")
            stage.agent.follow_up("then")
            stage.agent.unqueue(receipt)
            for command in (lambda: stage.agent.prompt("no"), stage.agent.reset, stage.agent.compact):
                with pytest.raises(AgentBusyError) as caught:
                    command()
                refused.append(caught.value.code)

        stage.on(place, commands)
        result = play(stage.run())
        assert (result.status, refused) == ("completed", ["AGENT_BUSY"] * 3)
        assert ("user", "left") not in stage.said
        assert (("user", "then") in stage.said) == (place != "run.finished")

    def test_a_listener_may_not_wait_for_its_own_run(self) -> None:
        """Awaiting the run, its events or idle where the run awaits the listener is refused at once (TRM-17)."""
        stage = Stage(["a"])
        refused: list[str] = []

        async def listener(event: Any) -> None:
            if event.type == "turn.started":
                for wait in (stage.agent.wait_for_idle(), settled(), drained(), stage.agent.aclose()):
                    with pytest.raises(ReentrancyError) as caught:
                        await wait
                    refused.append(caught.value.code)

        async def settled() -> None:
            await run[0]

        async def drained() -> None:
            async for _ in run[0]:
                pass

        run: list[Any] = []
        stage.agent.subscribe(listener)

        async def main() -> str:
            run.append(stage.agent.prompt("Hi"))
            return (await run[0]).status

        assert play(main()) == "completed"
        assert refused == ["REENTRANT"] * 4

    def test_a_task_that_a_listener_starts_may_wait(self) -> None:
        """A task that is only started by a listener waits for the run like anybody."""
        stage = Stage(["a"])
        tasks: list[Any] = []
        stage.on("turn.started", lambda: tasks.append(asyncio.ensure_future(stage.agent.wait_for_idle())))

        async def main() -> None:
            await stage.run()
            await tasks[0]

        play(main())
