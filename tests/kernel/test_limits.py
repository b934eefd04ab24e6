"""The limits of `KernelConfig`: what each of them bounds, from when on, and what becomes of what meets it.

That none is forgotten, and each bites one past it, is in test_every_limit.py.
"""

import asyncio
import contextlib
import re
from typing import Any

import pytest

from kernel import (
    CompactionPolicy,
    Hooks,
    KernelConfig,
    MessageLimitError,
    ModelError,
    QueueFullError,
    RetryPolicy,
    ToolMessage,
)
from kernel.messages import Finished, TextDelta
from kernel.testing import call
from tests.kernel.helpers import Act, Stage, play, said, ticks, turns


def calls(count: int) -> list[Any]:
    return [call(f"c{number}", "act") for number in range(count)]


class TestMaxTurns:
    @pytest.mark.parametrize(("limit", "status"), [(1, "max_turns"), (2, "completed"), (None, "completed")])
    def test_n_means_n_responses(self, limit: int | None, status: str) -> None:
        """`max_turns` is the number of responses; one that is still owed is an outcome of its own (LIM-1, TRM-18)."""
        stage = Stage(calls(1), ["done"], tools=[Act()], max_turns=limit)
        result = play(stage.run())
        assert (result.status, result.turns, len(stage.model.requests)) == (status, limit or 2, limit or 2)
        assert stage.said[2] == ("tool", "ok")

    def test_a_last_turn_that_owes_nothing_completes(self) -> None:
        """A run that needs exactly its turns is `completed`."""
        assert play(Stage(["done"], max_turns=1).run()).status == "completed"

    def test_it_can_go_on(self) -> None:
        """After `max_turns` the conversation goes on with `continue_` (LIM-2)."""
        stage = Stage(calls(1), ["done"], tools=[Act()], max_turns=1)

        async def main() -> str:
            await stage.run()
            return (await stage.agent.continue_()).final_text

        assert play(main()) == "done"

    @pytest.mark.parametrize("method", ["steer", "follow_up"])
    def test_what_is_queued_at_the_limit_stays_queued(self, method: str) -> None:
        """An item for which no turn is left is not taken: the run says `max_turns` and the item waits (STE-5)."""
        stage = Stage(["a"], max_turns=1)
        stage.on("message.ended", lambda: getattr(stage.agent, method)("left"))
        result = play(stage.run())
        assert (result.status, said(getattr(stage.agent.queued, {"steer": "steering"}.get(method, method)))) == (
            "max_turns",
            [("user", "left")],
        )


class TestQueueLimit:
    @pytest.mark.parametrize("method", ["steer", "follow_up"])
    def test_both_queues_together(self, method: str) -> None:
        """`queue_limit` items wait in both queues together; one more is refused and nothing changes."""
        agent = Stage(queue_limit=3).agent
        agent.steer("one"), agent.follow_up("two"), agent.steer("three")
        before = agent.state
        with pytest.raises(QueueFullError, match=r"3 messages waiting, and queue_limit is 3") as caught:
            getattr(agent, method)("four")
        assert (caught.value.code, agent.state) == ("QUEUE_FULL", before)

    def test_room_comes_back(self) -> None:
        """What is delivered or taken out makes room."""
        stage = Stage(["a"], queue_limit=1)
        stage.agent.unqueue(stage.agent.steer("one"))
        stage.agent.steer("two")
        play(stage.run())
        stage.agent.steer("three")

    def test_none_is_no_limit(self) -> None:
        """Without a limit a thousand items wait."""
        agent = Stage(queue_limit=None).agent
        for number in range(1000):
            agent.steer(f"{number}")
        assert len(agent.queued.steering) == 1000


class TestMessageLimit:
    """free = message_limit − messages − 2 × queued − (a response not yet adopted: 1 + call_limit; tools: results owed)."""

    @pytest.mark.parametrize(("limit", "fits"), [(3, False), (4, True), (None, True)])
    def test_a_prompt_needs_two(self, limit: int | None, fits: bool) -> None:
        """A prompt fits when it and its answer do."""
        stage = Stage(["a"], messages=turns(1), message_limit=limit)
        if fits:
            assert play(stage.run()).status == "completed"
            return
        with pytest.raises(MessageLimitError, match=r"2 messages and 0 queued, 1 free and 2 needed"):
            play(stage.run())
        assert len(stage.agent.messages) == 2

    def test_a_history_at_the_limit_is_taken(self) -> None:
        """`messages=` may be as long as the limit, and no longer."""
        assert len(Stage(messages=turns(2), message_limit=4).agent.messages) == 4
        with pytest.raises(MessageLimitError, match=r"messages has 4 messages; message_limit is 3"):
            Stage(messages=turns(2), message_limit=3)

    def test_each_queued_item_needs_two(self) -> None:
        """While idle, `steer` is refused when 2 for each item and 2 more do not fit."""
        agent = Stage(message_limit=5).agent
        agent.steer("one"), agent.follow_up("two")
        with pytest.raises(MessageLimitError, match=r"0 messages and 2 queued, 1 free and 2 needed"):
            agent.steer("three")

    @pytest.mark.parametrize(("limit", "fits"), [(1 + 1 + 3 + 2, True), (1 + 1 + 3 + 1, False)])
    def test_a_response_that_is_still_to_come_is_promised_its_room(self, limit: int, fits: bool) -> None:
        """Before a response is adopted 1 + call_limit are promised to it."""
        stage = Stage(["a"], ["b"], message_limit=limit, call_limit=3)
        assert self.steered(stage, "turn.started") is fits

    @pytest.mark.parametrize(("limit", "fits"), [(2 + 3 + 2, True), (2 + 3 + 1, False)])
    def test_open_calls_are_promised_their_results(self, limit: int, fits: bool) -> None:
        """While tools run, as many as there are results owed are promised."""
        stage = Stage(calls(3), ["b"], tools=[Act()], message_limit=limit, call_limit=3)
        assert self.steered(stage, "tool.started") is fits

    def steered(self, stage: Stage, place: str) -> bool:
        """Whether `steer` is accepted at this event."""
        refused: list[MessageLimitError] = []

        def steer() -> None:
            try:
                stage.agent.steer("left")
            except MessageLimitError as error:
                refused.append(error)

        stage.on(place, steer)
        play(stage.run())
        return not refused

    @pytest.mark.parametrize(("limit", "status"), [(6, "max_turns"), (5, "max_turns"), (4, "failed")])
    def test_a_response_that_does_not_fit_is_not_adopted(self, limit: int, status: str) -> None:
        """A response enters with all its results or not at all; then the run fails with AGENT_MESSAGE_LIMIT."""
        act = Act()
        stage = Stage(["a", *calls(3)], tools=[act], message_limit=limit, max_turns=1)
        result = play(stage.run())
        assert result.status == status
        assert len(act.ran) == (3 if status == "max_turns" else 0)
        if status == "failed":
            assert (result.error.code, type(result.error)) == ("AGENT_MESSAGE_LIMIT", MessageLimitError)
            assert (result.partial.text, len(result.partial.calls)) == ("a", 3)
            assert not any(isinstance(message, ToolMessage) for message in stage.agent.messages)

    def test_the_transcript_is_never_longer(self) -> None:
        """Whatever is accepted on the way, the transcript stays within the limit and each item is answered."""
        for limit in range(2, 24):
            stage = Stage(calls(2), ["b"], ["c"], calls(2), ["d"], tools=[Act()], message_limit=limit, call_limit=2)
            for place in ("run.started", "tool.started", "tool.ended", "turn.ended", "message.started"):
                stage.on(place, lambda stage=stage: self.try_to_steer(stage))
            play(stage.run())
            assert len(stage.agent.messages) <= limit

    def try_to_steer(self, stage: Stage) -> None:
        with contextlib.suppress(MessageLimitError):
            stage.agent.steer("left")

    def test_failures_do_not_take_the_room_of_what_is_queued(self) -> None:
        """What was accepted into a queue can be answered, however often a run fails or is cancelled before."""
        for script in ([ModelError("boom")], ["par", ModelError("boom")]):
            stage = Stage(*[script] * 5, ["a"], ["b"], message_limit=5)
            play(self.persevere(stage))
            assert stage.said[-3:] == [("assistant", "a"), ("user", "then"), ("assistant", "b")]
            assert len(stage.agent.messages) == 5
            stage.keeps_its_word()

    async def persevere(self, stage: Stage) -> None:
        """Ask until it works, with an item in the queue."""
        stage.agent.follow_up("then")
        result = await stage.agent.prompt("Hi")
        while result.status == "failed":
            result = await stage.agent.continue_()
        assert (result.status, stage.agent.queued.follow_up) == ("completed", ())

    @pytest.mark.parametrize("method", ["steer", "follow_up"])
    @pytest.mark.parametrize("mode", ["one", "all"])
    def test_what_was_accepted_can_be_answered(self, mode: Any, method: str) -> None:
        """Wherever an item is accepted, it enters and has its answer: nothing is accepted and stranded at the cap.

        A follow-up that comes while results are open needs one more message than is promised, the answer to them.
        """
        first = ["answer"] if method == "follow_up" else calls(2)
        places = ("run.started", "turn.started", "message.started", "message.updated", "message.ended", "tool.started",
                  "tool.ended", "turn.ended", "phase.changed")  # fmt: skip
        modes = {"steering_mode": mode, "follow_up_mode": mode}
        for limit in range(5, 16):
            for place in places:
                answers = [["answer"] for _ in range(9)]
                stage = Stage(first, *answers, tools=[Act()], message_limit=limit, call_limit=2, **modes)
                accepted: list[Any] = []
                for nth in range(1, 4):
                    stage.on(place, lambda stage=stage, taken=accepted: self.offer(stage, method, taken), nth)
                assert play(stage.run()).status == "completed"
                assert [receipt.status for receipt in accepted] == ["delivered"] * len(accepted)
                assert stage.said[-1][0] == "assistant"

    def offer(self, stage: Stage, method: str, taken: list[Any]) -> None:
        with contextlib.suppress(MessageLimitError):
            taken.append(getattr(stage.agent, method)("more"))

    def test_the_error_has_the_numbers(self) -> None:
        """A refusal says what is there, what waits, what is free and what would be needed; nothing has changed."""
        agent = Stage(messages=turns(2), message_limit=7).agent
        agent.steer("one")
        before = agent.state
        numbers = r"4 messages and 1 queued, 1 free and 2 needed; message_limit is 7"
        for command in (agent.steer, agent.follow_up):
            with pytest.raises(MessageLimitError, match=numbers):
                command("two")
        assert (agent.state, MessageLimitError.code) == (before, "AGENT_MESSAGE_LIMIT")

    @pytest.mark.parametrize("way", ["reset", "compact", "continue_"])
    def test_after_it_the_agent_is_usable_again(self, way: str) -> None:
        """A run that met the cap in spite of all settles as AGENT_MESSAGE_LIMIT, and each way out of it works."""

        class Summary:
            async def summarize(self, messages: Any) -> str:
                return "short"

        stage = Stage(calls(3), ["b"], ["c"], tools=[act := Act()], messages=turns(4), message_limit=11, call_limit=3,
                      compaction=CompactionPolicy(keep_turns=1), compactor=Summary())  # fmt: skip

        async def main() -> Any:
            failed = await stage.agent.prompt("Hi")
            assert (failed.status, failed.error.code, act.ran) == ("failed", "AGENT_MESSAGE_LIMIT", [])
            assert re.search(r"3 tool results do not fit: .* 9 messages, message_limit is 11", str(failed.error))
            if way == "continue_":
                return await stage.agent.continue_()
            done = getattr(stage.agent, way)()
            if done is not None:
                assert (await done).status == "completed"
            return await stage.agent.prompt("again")

        assert (play(main()).status, stage.said[-1]) == ("completed", ("assistant", "b"))
        stage.keeps_its_word()

    def test_no_room_for_the_message_of_a_failure(self) -> None:
        """A failure in a full transcript is told by the result alone."""
        stage = Stage([ModelError("boom")], messages=turns(1)[:1], message_limit=1)

        async def main() -> Any:
            return await stage.agent.continue_()

        result = play(main())
        assert (result.status, len(stage.agent.messages)) == ("failed", 1)


class TestCallLimit:
    @pytest.mark.parametrize(("count", "status"), [(3, "completed"), (4, "failed")])
    def test_at_the_limit_and_one_past_it(self, count: int, status: str) -> None:
        """`call_limit` calls run; with one more none of them does and the run fails (LIM-4)."""
        act = Act()
        stage = Stage(calls(count), ["done"], tools=[act], call_limit=3)
        assert play(stage.run()).status == status
        assert len(act.ran) == (count if status == "completed" else 0)

    def test_calls_in_pieces_count_as_well(self) -> None:
        """A hundred calls are counted as a hundred (LIM-5)."""
        act = Act()
        play(Stage(calls(100), ["done"], tools=[act], call_limit=100).run())
        assert act.ran == [f"c{number}" for number in range(100)]


class TestToolTimeout:
    async def timed(self, stage: Stage) -> tuple[float, str]:
        await stage.agent.prompt("Hi")
        took = asyncio.get_running_loop().time()
        (result,) = [message for message in stage.agent.messages if isinstance(message, ToolMessage)]
        await ticks()
        return took, result.text

    @pytest.mark.parametrize(("seconds", "text"), [(9.9, "done"), (10.1, "timed out: act took longer than 10 s")])
    @pytest.mark.parametrize("own", [False, True])
    def test_at_the_limit_and_past_it(self, seconds: float, text: str, own: bool) -> None:
        """A body that is done in time is heard; one that is not is stopped. A tool's own timeout goes first."""

        async def body(*_: Any) -> str:
            await asyncio.sleep(seconds)
            return "done"

        act = Act(body=body, timeout=10) if own else Act(body=body)
        stage = Stage(calls(1), ["b"], tools=[act], tool_timeout=3 if own else 10)
        took, said = play(self.timed(stage))
        assert said.startswith(text)
        assert took == min(seconds, 10)

    def test_a_deaf_tool_is_given_up_and_the_run_goes_on(self) -> None:
        """A body that ignores its timeout has `cancel_grace`; then it is abandoned and the turn goes on (LAT-6, LAT-2)."""
        stage = Stage(calls(1), ["b"], tool_timeout=10, cancel_grace=5)
        stage.agent.configure(tools=[Act(body=stage.deaf("end"))])

        async def main() -> None:
            took, text = await self.timed(stage)
            assert (took, text.startswith("timed out")) == (15, True)
            assert [(work.kind, work.name, work.call_id) for work in stage.agent.abandoned] == [("tool", "act", "c0")]
            stage.gates.open("end")
            await ticks()
            assert stage.agent.abandoned == ()

        play(main())
        assert stage.said[-1] == ("assistant", "b")

    def test_what_a_stopped_body_still_answers_does_not_count(self) -> None:
        """A body that swallows its timeout and returns has timed out all the same (SIG-9)."""

        async def body(*_: Any) -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return "done"

        took, text = play(self.timed(Stage(calls(1), ["b"], tools=[Act(body=body)], tool_timeout=10)))
        assert (took, text.startswith("timed out")) == (10, True)

    def test_the_time_begins_with_the_body(self) -> None:
        """Hooks and listeners before the body do not count (LAT-4)."""

        async def slow(*_: Any) -> None:
            await asyncio.sleep(60)

        stage = Stage(calls(1), ["b"], tools=[Act()], hooks=Hooks(before_tool_call=slow), tool_timeout=10)
        assert play(self.timed(stage)) == (60, "ok")


class TestStreamIdleTimeout:
    @pytest.mark.parametrize(("seconds", "status"), [(9.9, "completed"), (10.1, "failed")])
    def test_the_silence_between_parts_is_measured(self, seconds: float, status: str) -> None:
        """Parts that keep coming may take for ever; a silence past the limit is a failure."""
        parts = [part for _ in range(10) for part in (lambda: asyncio.sleep(seconds), "a")]
        assert play(Stage(parts, stream_idle_timeout=10, retry=None).run()).status == status

    def test_the_first_part_counts(self) -> None:
        """A model that never begins has failed too (LAT-9)."""
        stage = Stage([asyncio.Event().wait], stream_idle_timeout=10, retry=None)
        assert "said nothing for 10 s" in str(play(stage.run()).error)

    @pytest.mark.parametrize("idle", [10, 1e-9])
    def test_listeners_do_not_count(self, idle: float) -> None:
        """A listener that takes its time is not the model's silence, and nobody looks at the clock meanwhile."""
        stage = Stage(["a", "b"], stream_idle_timeout=idle, retry=None)
        stage.agent.subscribe(self.slow)
        assert play(stage.run()).status == "completed"

    @pytest.mark.parametrize(("seconds", "status"), [(9.9, "completed"), (10.1, "failed")])
    def test_after_listeners_the_silence_counts_again(self, seconds: float, status: str) -> None:
        """Its time begins when the listeners are done."""
        stage = Stage(["a", lambda: asyncio.sleep(seconds), "b"], stream_idle_timeout=10, retry=None)
        stage.agent.subscribe(self.slow)
        assert play(stage.run()).status == status

    async def slow(self, event: Any) -> None:
        if event.type == "message.updated":
            await asyncio.sleep(20)

    def test_a_stall_is_a_stall(self) -> None:
        """What a stalled model says after it was told to stop does not make its response complete."""

        async def swallows(_: Any) -> Any:
            yield TextDelta("a")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
            yield TextDelta("late")
            yield Finished()

        assert play(Stage(swallows, stream_idle_timeout=10, retry=None).run()).status == "failed"

    def test_a_deaf_model_is_given_up(self) -> None:
        """A stalled model that ignores everything is abandoned after the grace, and the attempt has failed."""
        stage = Stage(stream_idle_timeout=10, cancel_grace=5, retry=RetryPolicy(base_delay=0))
        stage.agent.configure(model=type(stage.model)([[stage.deaf("end")], ["b"]]))

        async def main() -> float:
            result = await stage.agent.prompt("Hi")
            took = asyncio.get_running_loop().time()
            assert (result.final_text, [work.kind for work in stage.agent.abandoned]) == ("b", ["model"])
            stage.gates.open("end")
            await ticks()
            return took

        assert play(main()) == 15

    def test_none_is_for_ever(self) -> None:
        """Without a limit a model may think for days."""
        stage = Stage([lambda: asyncio.sleep(300_000), "a"], stream_idle_timeout=None)
        assert play(stage.run()).status == "completed"


class TestRunDeadline:
    @pytest.mark.parametrize(("seconds", "status"), [(9.9, "completed"), (10.1, "failed")])
    def test_at_the_deadline_and_past_it(self, seconds: float, status: str) -> None:
        """A run that takes longer than `run_deadline` fails with its code (LAT-1)."""
        stage = Stage(["a", lambda: asyncio.sleep(seconds), "b"], run_deadline=10)
        result = play(stage.run())
        assert result.status == status
        if status == "failed":
            assert (result.error.code, stage.said[1]) == ("RUN_DEADLINE", ("assistant", "a"))

    def test_it_is_bounded_by_the_grace(self) -> None:
        """What ignores the deadline is given up after `cancel_grace`, with its outcome."""
        stage = Stage(calls(1), run_deadline=10, cancel_grace=5)
        stage.agent.configure(tools=[Act(body=stage.deaf("end"))])

        async def main() -> tuple[float, str, bool]:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(12)
            cancelled = stage.agent.cancel()
            status = (await run).status
            took = asyncio.get_running_loop().time()
            stage.gates.open("end")
            await ticks()
            return took, status, cancelled

        assert play(main()) == (15, "failed", False)

    def test_the_backoff_counts(self) -> None:
        """The deadline is for the whole run, waits included."""
        stage = Stage([ModelError("busy", retryable=True, retry_after=50)], ["b"], run_deadline=10)
        assert play(stage.run()).error.code == "RUN_DEADLINE"


class TestCancelGrace:
    @pytest.mark.parametrize(("seconds", "text"), [(4.9, "cleaned up"), (5.1, "interrupted")])
    def test_cleaning_up_may_take_this_long(self, seconds: float, text: str) -> None:
        """What lets go within `cancel_grace` is waited for and its word is kept; past it, it is given up (EXT-4)."""

        async def body(*_: Any) -> str:
            try:
                await stage.gates.wait("never")
            finally:
                await asyncio.sleep(seconds)
                raise RuntimeError("cleaned up")

        stage = Stage(calls(1), cancel_grace=5)
        stage.agent.configure(tools=[Act(body=body)])

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            await ticks()
            stage.agent.cancel()
            await run
            assert asyncio.get_running_loop().time() == min(seconds, 5)
            await asyncio.sleep(1)

        play(main())
        assert stage.said[-1][1].startswith(text)

    def test_zero_waits_for_nobody(self) -> None:
        """With no grace a cancel ends the run at once."""
        stage = Stage(["a", lambda: stage.gates.wait("never")], cancel_grace=0)
        stage.on("message.started", stage.agent.cancel)
        assert play(stage.run()).status == "cancelled"


def test_the_numbers_are_those_of_the_contract() -> None:
    """The defaults are the ones that the documentation gives reasons for."""
    config = KernelConfig()
    assert (config.max_turns, config.queue_limit, config.message_limit, config.call_limit) == (200, 256, 4096, 64)
    assert (config.cancel_grace, config.stream_idle_timeout, config.event_buffer) == (5.0, 300.0, 4096)
    assert (config.tool_timeout, config.run_deadline) == (None, None)
