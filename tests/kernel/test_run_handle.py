"""A run as its caller holds it: iterated for its events, awaited for its result, and left alone by both."""

import asyncio
import gc
from typing import Any

import pytest

from kernel import Agent, EventsLostError, ModelError, RunFailedError, ToolCall
from kernel.testing import call, collect
from tests.kernel.helpers import Act, Stage, play, ticks


def gated(*responses: Any, **arguments: Any) -> Stage:
    """A stage whose model says *a*, waits for the gate *go*, and says *b*."""
    stage = Stage(**arguments)
    stage.agent.configure(model=type(stage.model)([["a", stage.gates.at("go"), "b"], *responses]))
    return stage


class TestIterating:
    def test_it_gives_every_event_in_order(self) -> None:
        """Iterating a run gives what its listeners hear, from the first event to the last (I9)."""
        stage = Stage(["a", call("c1", "act")], ["b"], tools=[Act()])

        async def main() -> list[Any]:
            return await collect(stage.agent.prompt("Hi"))

        assert play(main(), left=None) == stage.heard.events

    def test_it_may_begin_when_all_is_over(self) -> None:
        """Events are kept for a reader that comes late (ORD-5)."""
        stage = Stage(["a"])

        async def main() -> list[Any]:
            run = stage.agent.prompt("Hi")
            await run
            return await collect(run)

        assert play(main()) == stage.heard.events

    @pytest.mark.parametrize("place", range(10))
    def test_leaving_early_leaves_the_run_alone(self, place: int) -> None:
        """Breaking out of the loop at any event neither stops the run nor says anything (EXT-1, EXT-5, OVL-6)."""
        stage = Stage(["a"], ["b"])

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            async for event in run:
                if event.sequence == place:
                    break
            assert (await run).status == "completed"
            assert (await stage.agent.prompt("again")).status == "completed"

        play(main())

    def test_going_on_after_a_break_misses_nothing(self) -> None:
        """Two loops over one run, one after the other, see each event once (EXT-2)."""
        stage = Stage(["a"])

        async def main() -> list[Any]:
            run = stage.agent.prompt("Hi")
            events = []
            async for event in run:
                events.append(event)
                if len(events) == 3:
                    break
            return events + await collect(run)

        assert play(main(), left=None) == stage.heard.events

    def test_a_reader_that_is_cancelled_loses_nothing(self) -> None:
        """A wait for the next event that is timed out, again and again, loses and doubles no event (EXT-2)."""
        stage = gated()

        async def main() -> list[Any]:
            run = stage.agent.prompt("Hi")
            events: list[Any] = []
            timeouts = 0
            while len(events) < len(stage.heard.events) or run.result is None:
                try:
                    async with asyncio.timeout(1):
                        events.append(await anext(run))
                except TimeoutError:
                    timeouts += 1
                    if timeouts == 3:
                        stage.gates.open("go")
                except StopAsyncIteration:
                    break
            await ticks(1)
            return events

        assert play(main()) == stage.heard.events

    def test_a_second_reader_is_told_to_subscribe(self) -> None:
        """Two tasks that wait for the events of one run: the second is refused, the first goes on."""
        stage = gated()

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            first = asyncio.create_task(collect(run))
            await ticks()
            with pytest.raises(RuntimeError, match=r"one reader.*subscribe\(\)"):
                await anext(run)
            stage.gates.open("go")
            assert await first == stage.heard.events
            await ticks(1)

        play(main())

    def test_a_run_that_is_dropped_goes_on(self) -> None:
        """A caller that keeps nothing of the run leaves neither a hanging run nor a warning (EXT-8)."""
        stage = Stage(["a"])

        async def main() -> None:
            stage.agent.prompt("Hi")
            gc.collect()
            await stage.agent.wait_for_idle()

        play(main())
        assert stage.types[-1] == "run.finished"


class TestAwaiting:
    def test_any_number_may_wait(self) -> None:
        """All who await a run, before and after its end, get the same result."""
        stage = gated()

        async def main() -> None:
            run = stage.agent.prompt("Hi")

            async def wait() -> Any:
                return await run

            waiting = [asyncio.create_task(wait()) for _ in range(5)]
            await ticks()
            stage.gates.open("go")
            results = await asyncio.gather(*waiting)
            after = await run
            assert all(result is after for result in results)

        play(main())

    def test_an_awaiter_that_is_cancelled_leaves_the_run_and_the_others_alone(self) -> None:
        """Cancelling one of those who wait reaches only that one (EXT-2)."""
        stage = gated()

        async def main() -> str:
            run = stage.agent.prompt("Hi")

            async def wait() -> Any:
                return await run

            one, two = asyncio.create_task(wait()), asyncio.create_task(wait())
            await ticks()
            one.cancel()
            await ticks()
            assert (one.cancelled(), two.done(), stage.agent.is_running) == (True, False, True)
            stage.gates.open("go")
            return (await two).status

        assert play(main()) == "completed"

    def test_the_task_that_prompted_may_be_cancelled(self) -> None:
        """The run belongs to its agent, and not to the task that started it."""
        stage = gated()

        async def prompts() -> None:
            await stage.agent.prompt("Hi")

        async def main() -> None:
            task = asyncio.create_task(prompts())
            await ticks()
            task.cancel()
            await ticks()
            assert (task.cancelled(), stage.agent.phase) == (True, "turn")
            stage.gates.open("go")
            await stage.agent.wait_for_idle()

        play(main())
        assert stage.said[-1] == ("assistant", "ab")

    def test_it_comes_back_when_the_run_has_settled(self) -> None:
        """Who awaited the run may prompt at once, a hundred times over (TRM-14, SIG-12)."""
        stage = Stage(*[["a"]] * 100)

        async def main() -> None:
            for _ in range(100):
                await stage.agent.prompt("Hi")
                await stage.agent.wait_for_idle()

        play(main())
        assert stage.types.count("run.finished") == 100

    def test_waiting_for_idle_waits_for_every_run(self) -> None:
        """A run that is started while somebody waits for idle is waited for as well; when idle it returns at once."""
        stage = gated(["c"])

        async def main() -> None:
            await stage.agent.wait_for_idle()
            stage.agent.prompt("Hi")
            waiting = asyncio.create_task(stage.agent.wait_for_idle())
            await ticks()
            assert not waiting.done()
            stage.gates.open("go")
            await waiting
            assert not stage.agent.is_running

        play(main())


class TestResult:
    def test_it_is_a_value(self) -> None:
        """A run that failed gives a result with its error; only `unwrap` raises it."""
        result = play(Stage([ModelError("boom")]).run())
        assert (result.status, str(result.error)) == ("failed", "boom")
        with pytest.raises(ModelError, match="boom"):
            result.unwrap()

    def test_unwrap_of_a_run_that_did_not_fail_is_the_result(self) -> None:
        """Only a failure is raised: a cancelled run is unwrapped to itself."""
        stage = gated()
        stage.on("message.started", lambda: stage.agent.cancel("enough"))
        result = play(stage.run())
        assert (result.unwrap(), result.error, result.reason) == (result, None, "enough")

    def test_an_error_of_the_model_is_itself(self) -> None:
        """The exception of a model is the error, or its cause (SUB-8)."""
        mine, foreign = ModelError("boom", overflow=True), ValueError("bad")
        assert play(Stage([mine], compaction=None).run()).error is mine
        assert play(Stage([foreign]).run()).error.__cause__ is foreign

    def test_the_error_of_a_limit_has_its_code(self) -> None:
        """Failures of a run's own have `RunFailedError` with their code."""
        stage = Stage([asyncio.Event().wait], run_deadline=5)
        result = play(stage.run())
        with pytest.raises(RunFailedError) as caught:
            result.unwrap()
        assert caught.value.code == "RUN_DEADLINE"

    def test_it_says_what_it_is(self) -> None:
        """A run and an agent tell in their repr how they are."""
        stage = gated()

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            assert repr(run) == f"<Run {run.id} going>"
            stage.gates.open("go")
            await run
            assert repr(run) == f"<Run {run.id} completed>"
            assert repr(stage.agent) == "<Agent idle, 2 messages>"

        play(main())


class TestCancelling:
    def test_a_run_cancels_itself_and_no_other(self) -> None:
        """`run.cancel` is False when the run has ended, also while the next one goes."""
        stage = gated([lambda: asyncio.sleep(1), "c"])

        async def main() -> list[Any]:
            first = stage.agent.prompt("one")
            await ticks()
            answers = [first.cancel("enough"), first.cancel()]
            await first
            second = stage.agent.prompt("two")
            answers.append(first.cancel())
            return [*answers, (await first).reason, (await second).status]

        assert play(main()) == [True, False, False, "enough", "completed"]


class TestBuffer:
    async def unread(self, stage: Stage) -> tuple[list[Any], tuple[int, int] | None]:
        """What a reader gets that comes when all is over, and what it is told that it missed."""
        run = stage.agent.prompt("Hi")
        await run
        events = []
        try:
            async for event in run:
                events.append(event)  # noqa: PERF401  # what came before the error counts
        except EventsLostError as error:
            return events, (error.first, error.last)
        return events, None

    def test_as_many_as_the_buffer_holds_are_kept(self) -> None:
        """A run of exactly `event_buffer` events loses none; with one place less, the last is missing."""
        stage = Stage(["a"])
        play(stage.run())
        count = len(stage.heard.events)
        for buffer, lost in ((count, None), (count - 1, (count - 1, count - 1)), (count - 3, (count - 3, count - 1))):
            stage = Stage(["a"], event_buffer=buffer)
            events, missing = play(self.unread(stage))
            assert (events, missing) == (stage.heard.events[:buffer], lost)

    def test_pieces_of_one_message_are_put_together(self) -> None:
        """Deltas coalesce before anything is lost: the text is whole and the event says how many it stands for."""
        stage = Stage(list("abcdefgh"), event_buffer=12)
        events, missing = play(self.unread(stage))
        updates = [event for event in events if event.type == "message.updated"]
        assert missing is None
        assert ("".join(update.delta for update in updates), sum(update.count for update in updates)) == ("abcdefgh", 8)
        assert len(updates) < 8

    def test_channels_and_calls_are_not_mixed(self) -> None:
        """Only pieces of the same channel and call are put together."""
        pieces = ["a", "b", ToolCall("c1", "act"), "c", "d"]
        stage = Stage(pieces, ["done"], tools=[Act()], max_turns=1, event_buffer=9)

        async def main() -> list[Any]:
            run = stage.agent.prompt("Hi")
            await run
            return [await anext(run) for _ in range(8)]

        updates = [event for event in play(main()) if event.type == "message.updated"]
        assert [(update.channel, update.call_id, update.delta, update.count) for update in updates] == [
            ("text", None, "ab", 2),
            ("call", "c1", "", 1),
            ("text", None, "cd", 2),
        ]

    def test_of_a_tools_updates_the_newest_stays(self) -> None:
        """Updates of one call coalesce to the newest text and their number."""

        def body(_: Any, context: Any) -> str:
            for number in range(50):
                context.update(f"{number} done")
            return "ok"

        stage = Stage([call("c1", "act")], ["b"], tools=[Act(body=body)], event_buffer=12)
        events, _ = play(self.unread(stage))
        updates = [event for event in events if event.type == "tool.updated"]
        assert (updates[-1].text, sum(update.count for update in updates)) == ("49 done", 50)

    def test_a_reader_that_lost_events_is_told_again(self) -> None:
        """Once events are lost the iterator stays broken, and its range grows with the run; the run goes on."""
        stage = gated(event_buffer=2)

        async def main() -> list[tuple[int, int]]:
            run = stage.agent.prompt("Hi")
            await ticks()
            ranges = []
            await anext(run), await anext(run)
            for _ in range(2):
                with pytest.raises(EventsLostError) as caught:
                    await anext(run)
                ranges.append((caught.value.first, caught.value.last))
                stage.gates.open("go")
                await run
            return ranges

        assert play(main()) == [(2, 5), (2, len(stage.heard.events) - 1)]

    def test_listeners_miss_nothing(self) -> None:
        """What the reader loses, listeners hear."""
        stage = Stage(list("abc"), event_buffer=1)
        play(self.unread(stage))
        assert [event.sequence for event in stage.heard.events] == list(range(len(stage.heard.events)))


def test_an_agent_without_listeners_or_hooks_ends_its_run() -> None:
    """Nobody has to listen, iterate or await (TRM-5, OVL-6)."""

    async def main() -> str:
        agent = Agent(Stage(["a"]).model)
        agent.prompt("Hi")
        await agent.wait_for_idle()
        return agent.messages[-1].text

    assert play(main()) == "a"
