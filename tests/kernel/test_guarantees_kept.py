"""More of G8 to G16: a cancel reaches everywhere, what is kept is whole, what is handed out stays so, each limit is one."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest

from kernel import (
    Agent,
    EventsLostError,
    Hooks,
    KernelConfig,
    MessageLimitError,
    ModelError,
    QueueFullError,
    RetryPolicy,
    tool,
)
from kernel.testing import CUT_OFF, ScriptedModel, call
from tests.kernel.helpers import Act, Stage, play, said, ticks, turns

BUSY = ModelError("busy", retryable=True)


class Summary:
    """A compactor that answers *text*."""

    def __init__(self, text: str = "short") -> None:
        self.text = text

    async def summarize(self, messages: Any) -> str:
        return self.text


class TestG8Bounded:
    @pytest.mark.parametrize("phase", ["turn", "tools", "steering", "follow_up", "compaction", "retry"])
    def test_it_reaches_every_phase(self, phase: str) -> None:
        """A cancel is accepted in every phase of a run, and its run is cancelled."""
        failures = [ModelError("full", overflow=True)], [ModelError("busy", retryable=True)]
        stage = Stage(*failures, [call("c1", "act")], ["done"], tools=[Act()], messages=turns(3), compactor=Summary())
        answers: list[tuple[str, bool]] = []

        def cancel(event: Any) -> None:
            if not answers and phase in (getattr(event, "target", ""), event.type.replace("tool.started", "tools")):
                answers.append((stage.agent.phase, stage.agent.cancel()))

        stage.agent.subscribe(cancel)
        assert play(stage.run()).status == "cancelled"
        assert answers == [("turn" if phase == "tools" else phase, True)]

    @pytest.mark.parametrize("command", ["cancel", "aclose"])
    def test_what_comes_when_the_outcome_is_decided_does_not_change_it(self, command: str) -> None:
        """Between the decision and `run.finished` neither a cancel nor a close makes another outcome of it."""
        stage = Stage(["a"])

        async def listener(event: Any) -> None:
            if event.type == "phase.changed" and event.target == "settling":
                if command == "cancel":
                    answers.append(stage.agent.cancel())
                else:
                    closing.append(asyncio.create_task(stage.agent.aclose()))
                    await ticks()

        async def main() -> str:
            result = await stage.run()
            await asyncio.gather(*closing)
            return result.status

        answers: list[bool] = []
        closing: list[Any] = []
        stage.agent.subscribe(listener)
        assert play(main()) == "completed"
        assert (answers, len(closing)) == (([False], 0) if command == "cancel" else ([], 1))

    def test_there_is_one_deadline(self) -> None:
        """A second cancel, and a close, do not give what is deaf any time more: the grace began with the first."""
        stage = Stage([call("c1", "act")], cancel_grace=5)
        stage.agent.configure(tools=[Act(body=stage.waiting())])

        async def listener(event: Any) -> None:
            if event.type == "run.finished":
                await stage.gates.wait("never")

        stage.agent.subscribe(listener)

        async def main() -> float:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(1)
            assert stage.agent.cancel() is True
            await asyncio.sleep(3)
            assert (stage.agent.phase, stage.agent.cancel()) == ("settling", False)
            await run
            return asyncio.get_running_loop().time()

        assert play(main()) == 1 + 5

    def test_a_function_that_blocks_is_left_in_its_thread(self) -> None:
        """A sync tool runs in a daemon thread, so a cancel does not wait for it, and the process does not either."""
        blocked, threads = threading.Event(), []

        @tool
        def block() -> str:
            """Block."""
            threads.append(threading.current_thread())
            blocked.wait()
            return "at last"

        async def main() -> list[Any]:
            agent = Agent(ScriptedModel([[call("c1", "block")]]), tools=[block], config=KernelConfig(cancel_grace=5))
            run = agent.prompt("Hi")
            while not threads:
                await asyncio.sleep(0)
            agent.cancel()
            status = (await run).status
            there = [work.kind for work in agent.abandoned]
            blocked.set()
            while agent.abandoned:
                await asyncio.sleep(0)
            return [status, there, threads[0] is threading.main_thread(), threads[0].daemon]

        assert asyncio.run(main()) == ["cancelled", ["tool"], False, True]


class TestG9Retry:
    def test_the_counter_restarts_after_a_success(self) -> None:
        """Each turn has all its attempts, however many the turn before needed."""
        stage = Stage([BUSY], [BUSY], [call("c1", "act")], [BUSY], [BUSY], ["a"], tools=[Act()])
        assert play(stage.run()).status == "completed"
        assert [event.attempt for event in stage.heard.of("retry.scheduled")] == [1, 2, 1, 2]


class TestG11Streams:
    @pytest.mark.parametrize("broken", [["par", CUT_OFF], [CUT_OFF], ["par", ValueError("no")]], ids=repr)
    def test_a_broken_stream_is_told_as_a_failure(self, broken: list[Any]) -> None:
        """Whatever a stream does, its message ends as an error before the run does, with a text that says why."""
        stage = Stage(broken, retry=None)
        result = play(stage.run())
        (ended,) = stage.heard.of("message.ended")
        assert (ended.message.stop, ended.message.error) == ("error", str(result.error))
        assert stage.types[-3:] == ["message.ended", "turn.ended", "run.finished"]


class TestG12ToldAfterwards:
    def test_the_queues_are_as_they_are_told(self) -> None:
        """Whoever hears of a change of the queues finds them so, though nothing else happens in between."""
        stage = Stage([call("c1", "act")], ["b"], ["c"])
        seen: list[Any] = []

        async def body(*_: Any) -> str:
            receipt = stage.agent.steer("left")
            await ticks()
            stage.agent.unqueue(receipt)
            await ticks()
            return "ok"

        def listener(event: Any) -> None:
            if event.type == "queue.changed":
                seen.append((said(event.steering), said(stage.agent.queued.steering)))

        stage.agent.configure(tools=[Act(body=body)])
        stage.agent.subscribe(listener)
        play(stage.run())
        assert seen == [([("user", "left")], [("user", "left")]), ([], [])]


def parts_of(value: Any) -> Iterator[Any]:
    """*value* and all that can be reached from it by fields, members and keys."""
    yield value
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from parts_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from parts_of(member)
    elif isinstance(value, tuple):
        for member in value:
            yield from parts_of(member)


def changes_of(value: Any) -> Iterator[Any]:
    """Ways to change *value*, if only it let itself be changed."""
    if attrs.has(type(value)) and attrs.fields(type(value)):
        yield lambda: setattr(value, attrs.fields(type(value))[0].name, "spoilt")
    if isinstance(value, dict):
        yield lambda: value.update(spoilt=1)
        yield lambda: value.__setitem__("spoilt", 1)


class TestG14Snapshots:
    def test_all_that_is_handed_out_is_immutable(self) -> None:
        """Messages, blocks, arguments, schemas and results refuse to be changed, however deep one looks."""
        schema = {"type": "object", "properties": {"list": {"type": "array", "enum": [[1], [{"a": 2}]]}}}
        stage = Stage([call("c1", "act", list=[1, {"a": []}])], ["done"], tools=[Act(parameters=schema)])
        result = play(stage.run())
        things: list[Any] = [result, *stage.heard.events, *stage.agent.messages, stage.agent.queued]
        things += [spec.parameters for spec in stage.agent.state.tools]
        parts = [part for thing in things for part in parts_of(thing)]
        assert [part for part in parts if isinstance(part, (list, set, bytearray))] == []
        for part in parts:
            for change in changes_of(part):
                with pytest.raises((AttributeError, TypeError)):
                    change()

    def test_what_was_handed_in_is_not_changed(self) -> None:
        """After turns, a compaction and a reset, what the caller handed in is what it was."""
        given, acts, schema = list(turns(4)), [Act()], {"type": "object", "properties": {"a": {"type": "string"}}}
        acts[0].parameters = schema
        stage = Stage([call("c1", "act")], ["done"], messages=given, tools=acts, compactor=Summary())

        async def main() -> None:
            await stage.run()
            await stage.agent.compact()
            stage.agent.reset()

        play(main())
        assert (given, len(acts)) == (list(turns(4)), 1)
        assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}


class TestG15Hooks:
    def test_after_a_result_nothing_the_hook_does_changes_it(self) -> None:
        """`after_tool_result` that raises is told with its call, and the result is what the tool returned."""

        def boom(*_: Any) -> None:
            raise RuntimeError("boom")

        stage = Stage([call("c1", "act")], ["done"], tools=[Act()], hooks=Hooks(after_tool_result=boom))
        play(stage.run())
        (ended,) = stage.heard.of("tool.ended")
        assert (ended.text, ended.is_error, stage.said[2]) == ("ok", False, ("tool", "ok"))
        assert [event.call_id for event in stage.heard.of("hook.failed")] == ["c1"]


class TestG16Bounded:
    def test_the_queues_are(self) -> None:
        """Both queues together hold `queue_limit`, and the error says the number."""
        stage = Stage(queue_limit=2)
        stage.agent.steer("one")
        stage.agent.follow_up("two")
        with pytest.raises(QueueFullError, match="queue_limit is 2"):
            stage.agent.steer("three")
        assert said([*stage.agent.queued.steering, *stage.agent.queued.follow_up]) == [("user", "one"), ("user", "two")]

    def test_the_transcript_is(self) -> None:
        """A prompt whose answer would not fit is refused, and so is a queued item."""
        stage = Stage(["a"], messages=turns(2), message_limit=5)

        async def main() -> None:
            for ask in (stage.agent.prompt, stage.agent.steer):
                with pytest.raises(MessageLimitError, match="message_limit is 5"):
                    ask("Hi")

        play(main())
        assert len(stage.agent.messages) == 4

    def test_the_turns_are(self) -> None:
        """A run has `max_turns` turns at most."""
        stage = Stage(*[[call("c1", "act")]] * 4, tools=[Act()], max_turns=3)
        result = play(stage.run())
        assert (result.status, result.turns, len(stage.model.requests)) == ("max_turns", 3, 3)

    def test_the_retries_are(self) -> None:
        """A turn has `max_attempts` requests at most."""
        stage = Stage(*[[BUSY]] * 5, retry=RetryPolicy(max_attempts=2))
        assert (play(stage.run()).status, len(stage.model.requests)) == ("failed", 2)

    def test_the_calls_of_a_response_are(self) -> None:
        """A response that asks for more than `call_limit` calls is a failure, and none of them runs."""
        act = Act()
        stage = Stage([call(f"c{number}", "act") for number in range(3)], tools=[act], call_limit=2)
        result = play(stage.run())
        assert (result.status, act.ran) == ("failed", [])
        assert "call_limit allows 2" in str(result.error)

    async def unread(self, stage: Stage) -> list[Any]:
        """What a reader gets who comes when all is over."""
        run = stage.agent.prompt("Hi")
        await run
        return [event async for event in run]

    def test_deltas_for_one_who_does_not_read_become_one(self) -> None:
        """Deltas of one message coalesce into an event that says how many it stands for; nothing of the text is lost."""
        stage = Stage(list("abcdefgh"), event_buffer=12)
        updates = [event for event in play(self.unread(stage)) if event.type == "message.updated"]
        assert ("".join(event.delta for event in updates), sum(event.count for event in updates)) == ("abcdefgh", 8)
        assert len(updates) < 8

    def test_updates_for_one_who_does_not_read_become_one(self) -> None:
        """Updates of one call coalesce into the newest, with their number."""

        def body(_: Any, context: Any) -> str:
            for number in range(50):
                context.update(f"{number} done")
            return "ok"

        stage = Stage([call("c1", "act")], ["b"], tools=[Act(body=body)], event_buffer=40)
        updates = [event for event in play(self.unread(stage)) if event.type == "tool.updated"]
        assert (updates[-1].text, sum(event.count for event in updates)) == ("49 done", 50)

    def test_listeners_miss_nothing_of_what_a_reader_lost(self) -> None:
        """Past the buffer the run and its listeners go on: every event is told, in order."""
        stage = Stage([call(f"c{number}", "act") for number in range(9)], ["done"], tools=[Act()], event_buffer=3)
        with pytest.raises(EventsLostError):
            play(self.unread(stage))
        stage.keeps_its_word()
        assert [event.sequence for event in stage.heard.events] == list(range(len(stage.heard.events)))
        assert stage.types[-1] == "run.finished"
