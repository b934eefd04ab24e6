"""How long a run waits for its listeners, and what is different when it only observes them."""

import asyncio
from typing import Any

import pytest

from kernel import Agent, KernelConfig, NothingToContinueError
from kernel.testing import Recorder, ScriptedModel, call
from tests.kernel.helpers import Act, Stage, play, said, ticks


class TestPatience:
    async def held(self, stage: Stage, place: str) -> Any:
        """A run whose listener never comes back from *place*."""

        async def listener(event: Any) -> None:
            if event.type == place:
                await stage.gates.wait("never")

        stage.agent.subscribe(listener)
        run = stage.agent.prompt("Hi")
        await asyncio.sleep(100)
        assert stage.agent.is_running
        return run

    @pytest.mark.parametrize("place", ["run.started", "message.updated", "tool.started", "turn.ended", "run.finished"])
    def test_a_cancel_ends_a_listener_that_never_ends(self, place: str) -> None:
        """A cancel is bounded by `cancel_grace` wherever a listener is being awaited (G8)."""
        stage = Stage(["a", call("c1", "act")], ["b"], tools=[Act()], cancel_grace=5)

        async def main() -> float:
            run = await self.held(stage, place)
            stage.agent.cancel()
            await run
            took = asyncio.get_running_loop().time() - 100
            await asyncio.sleep(6)
            assert stage.agent.abandoned == ()
            return took

        assert play(main()) == 5
        assert stage.types[-1] == "run.finished"

    def test_the_end_is_told_to_a_listener_that_was_given_up(self) -> None:
        """After it lost patience the run is told to the end: `run.finished` reaches everybody."""
        stage, after = Stage(["a"]), Recorder()

        async def main() -> None:
            run = await self.held(stage, "message.updated")
            stage.agent.subscribe(after)
            stage.agent.cancel()
            await run
            await ticks()

        play(main())
        assert after.events == stage.heard.events[6:]

    def test_closing_hurries_the_last_listener(self) -> None:
        """`aclose` in `settling` waits no longer than the grace."""
        stage = Stage(["a"], cancel_grace=5)

        async def main() -> float:
            await self.held(stage, "run.finished")
            await stage.agent.aclose()
            return asyncio.get_running_loop().time()

        assert play(main()) == 105
        assert stage.agent.phase == "closed"

    def test_a_deadline_ends_a_wait_that_can_not_be_seen(self) -> None:
        """A listener that waits for its run through another task is ended by `run_deadline`, at the very end too."""
        stage = Stage(["a"], run_deadline=10, cancel_grace=5)

        async def listener(event: Any) -> None:
            if event.type == "run.finished":
                await asyncio.create_task(stage.agent.wait_for_idle())

        stage.agent.subscribe(listener)

        async def main() -> tuple[str, float]:
            async with asyncio.timeout(60):
                return (await stage.agent.prompt("Hi")).status, asyncio.get_running_loop().time()

        assert play(main(), left=None) == ("completed", 15)

    def test_idle_begins_when_the_last_listener_is_done(self) -> None:
        """`wait_for_idle` and the run wait for the listeners of `run.finished` (TRM-14)."""
        stage = Stage(["a"])
        done: list[float] = []

        async def listener(event: Any) -> None:
            if event.type == "run.finished":
                await asyncio.sleep(7)
                done.append(asyncio.get_running_loop().time())

        stage.agent.subscribe(listener)

        async def main() -> float:
            await stage.run()
            with pytest.raises(NothingToContinueError):
                stage.agent.continue_()
            return asyncio.get_running_loop().time()

        assert [play(main())] == done == [7]


class TestObserve:
    def agent(self, *responses: Any, **policies: Any) -> Agent:
        return Agent(ScriptedModel(responses), config=KernelConfig(subscribers="observe", **policies))

    def test_nobody_waits_for_what_listeners_begin(self) -> None:
        """Under `observe` the run does not wait for awaitables, and they end all the same."""
        agent, ended = self.agent(["a"]), []

        async def listener(event: Any) -> None:
            await asyncio.sleep(10)
            ended.append(event.type)

        agent.subscribe(listener)

        async def main() -> float:
            await agent.prompt("Hi")
            took = asyncio.get_running_loop().time()
            assert ended == []
            await asyncio.sleep(11)
            return took

        assert play(main()) == 0
        assert ended[-1] == "run.finished"

    @pytest.mark.parametrize("policy", ["record", "fail_run"])
    def test_a_failure_is_recorded_when_it_comes(self, policy: Any) -> None:
        """A failure that comes after its run is recorded and fails no other."""
        agent = self.agent(["a"], ["b"], subscriber_failure=policy)

        async def listener(event: Any) -> None:
            if event.type == "turn.started" and event.run_id.endswith("-1"):
                await asyncio.sleep(5)
                raise RuntimeError("boom")

        agent.subscribe(listener)

        async def main() -> Any:
            await agent.prompt("one")
            second = agent.prompt("two")
            await asyncio.sleep(6)
            return await second

        assert play(main()).status == "completed"
        assert [(error.event_type, error.error) for error in agent.subscriber_errors] == [("turn.started", "boom")]

    def test_a_failure_may_come_after_everything(self) -> None:
        """Also while idle a failure is recorded, and one that a listener's own cancellation is as well."""
        agent = self.agent(["a"])

        async def listener(event: Any) -> None:
            if event.type in ("turn.started", "run.finished"):
                await asyncio.sleep(5)
                raise asyncio.CancelledError if event.type == "run.finished" else RuntimeError("boom")

        agent.subscribe(listener)

        async def main() -> None:
            await agent.prompt("Hi")
            await asyncio.sleep(6)

        play(main())
        assert [error.event_type for error in agent.subscriber_errors] == ["turn.started", "run.finished"]

    def test_it_may_give_back_a_future_of_its_own(self) -> None:
        """Anything that can be awaited will do, and it stays its owner's."""
        agent, futures = self.agent(["a"]), []

        async def main() -> None:
            def listener(_: Any) -> Any:
                futures.append(asyncio.get_running_loop().create_future())
                return futures[-1]

            agent.subscribe(listener)
            await agent.prompt("Hi")
            assert not any(future.done() for future in futures)

        play(main())

    def test_a_listener_may_wait_for_its_run(self) -> None:
        """Nobody waits for it, so it may wait."""
        agent, results = self.agent(["a"]), []

        async def listener(event: Any) -> None:
            if event.type == "turn.started":
                await agent.wait_for_idle()
                results.append(agent.phase)

        agent.subscribe(listener)

        async def main() -> None:
            await agent.prompt("Hi")
            await ticks()

        play(main())
        assert results == ["idle"]
        assert said(agent.messages)[-1] == ("assistant", "a")
