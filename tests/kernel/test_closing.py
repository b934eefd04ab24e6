"""Closing: it cancels, settles, and then refuses everything."""

import asyncio
from typing import Any

import pytest

from kernel import AgentClosedError
from kernel.testing import call
from tests.kernel.helpers import Act, Stage, play, said, ticks


def gated(**arguments: Any) -> Stage:
    stage = Stage(**arguments)
    stage.agent.configure(model=type(stage.model)([["a", stage.gates.at("go"), "b"]]))
    return stage


class TestBlock:
    def test_it_closes_on_the_way_out(self) -> None:
        """After its `async with` block an agent is closed and refuses, and can still be looked at."""
        stage = Stage(["a"])

        async def main() -> None:
            async with stage.agent as agent:
                assert agent is stage.agent
                await stage.run()
            assert (agent.phase, len(agent.messages)) == ("closed", 2)
            with pytest.raises(AgentClosedError, match=r"Agent\(messages=agent.messages\)"):
                agent.prompt("again")

        play(main())

    def test_it_lets_exceptions_through(self) -> None:
        """An exception in the block closes the agent and goes on."""
        stage = gated()

        async def main() -> None:
            async with stage.agent:
                stage.agent.prompt("Hi")
                await ticks()
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            play(main())
        assert (stage.agent.phase, stage.heard.events[-1].result.status) == ("closed", "cancelled")


class TestInARun:
    def test_it_cancels_with_a_reason_of_its_own(self) -> None:
        """A run that is closed is cancelled, and its reason says by what."""
        stage = gated()

        async def main() -> Any:
            run = stage.agent.prompt("Hi")
            await ticks()
            await stage.agent.aclose()
            return await run

        result = play(main())
        assert (result.status, result.reason) == ("cancelled", "closed")
        assert stage.types.count("run.finished") == 1
        assert stage.agent.phase == "closed"

    def test_a_cancel_before_it_keeps_its_reason(self) -> None:
        """Closing after a cancel changes no outcome."""
        stage = gated()

        async def main() -> Any:
            run = stage.agent.prompt("Hi")
            await ticks()
            stage.agent.cancel("enough")
            await stage.agent.aclose()
            return await run

        assert play(main()).reason == "enough"
        assert stage.agent.phase == "closed"

    def test_it_is_bounded(self) -> None:
        """Closing waits no longer than `cancel_grace` for what ignores it."""
        stage = Stage([call("c1", "act")], cancel_grace=5)
        stage.agent.configure(tools=[Act(body=stage.deaf("end"))])

        async def main() -> float:
            stage.agent.prompt("Hi")
            await ticks()
            await stage.agent.aclose()
            took = asyncio.get_running_loop().time()
            assert [work.call_id for work in stage.agent.abandoned] == ["c1"]
            stage.gates.open("end")
            await ticks()
            assert stage.agent.abandoned == ()
            return took

        assert play(main()) == 5

    def test_twice_and_by_two(self) -> None:
        """Whoever closes waits until it is closed; once more is nothing."""
        stage = gated()

        async def main() -> None:
            stage.agent.prompt("Hi")
            await ticks()
            await asyncio.gather(stage.agent.aclose(), stage.agent.aclose())
            await stage.agent.aclose()

        play(main())
        assert stage.types.count("run.finished") == 1

    def test_who_waits_may_be_cancelled(self) -> None:
        """Cancelling the task that closes leaves the closing going on."""
        stage = gated(cancel_grace=5)

        async def held(event: Any) -> None:
            if event.type == "run.finished":
                await asyncio.sleep(3)

        stage.agent.subscribe(held)

        async def main() -> None:
            stage.agent.prompt("Hi")
            await ticks()
            closing = asyncio.create_task(stage.agent.aclose())
            await asyncio.sleep(1)
            closing.cancel()
            await asyncio.sleep(5)
            assert (closing.cancelled(), stage.agent.phase) == (True, "closed")

        play(main())

    def test_what_is_queued_stays_to_be_seen(self) -> None:
        """Queued messages are neither delivered nor lost when the agent is closed (I5)."""
        stage = gated()

        async def main() -> str:
            stage.agent.prompt("Hi")
            await ticks()
            receipt = stage.agent.follow_up("then")
            await stage.agent.aclose()
            return receipt.status

        assert play(main()) == "queued"
        assert said(stage.agent.queued.follow_up) == [("user", "then")]


def test_what_a_listener_began_may_fail_after_the_close() -> None:
    """Under `observe` nobody waits for it; its failure is recorded by the closed agent, and breaks nothing."""
    stage = Stage(["a"], subscribers="observe")

    async def fail(event: Any) -> None:
        if event.type == "run.finished":
            await stage.gates.wait("closed")
            raise ValueError("too late")

    stage.agent.subscribe(fail)

    async def main() -> None:
        await stage.run()
        await stage.agent.aclose()
        stage.gates.open("closed")
        await ticks()

    play(main())
    assert (stage.agent.phase, [failure.error for failure in stage.agent.subscriber_errors]) == ("closed", ["too late"])
