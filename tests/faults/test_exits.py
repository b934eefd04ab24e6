"""EXT, LIM and SUB: scopes that are left elsewhere, rounds that are counted, and who may stop a run."""

import asyncio
from typing import Any

import pytest

from kernel import Hooks
from kernel.testing import call
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, play, ticks


def test_an_agent_is_closed_in_another_task() -> None:
    """Entered and prompted in one task, left in another while a tool runs: it ends there, and nothing spins (EXT-9)."""
    probe = Probe([call("c1", "act")], ["done"])
    probe.agent.configure(tools=[Act(body=probe.waiting())])

    async def enter() -> Any:
        await probe.agent.__aenter__()
        run = probe.prompt()
        await ticks()
        return run

    async def leave() -> None:
        await probe.agent.__aexit__(None, None, None)

    async def main() -> str:
        run = await asyncio.create_task(enter())
        await asyncio.create_task(leave())
        assert (probe.agent.phase, run.result.status) == ("closed", "cancelled")
        loop: Any = asyncio.get_running_loop()
        assert (loop.timers(), len(asyncio.all_tasks())) == (0, 1)
        return run.result.status

    assert play(main()) == "cancelled"
    probe.judge()


def test_a_batch_of_wrong_calls_is_one_round() -> None:
    """Three calls with wrong arguments in one response use up one turn of the budget, not three (LIM-6)."""

    def wrong(_: Any) -> None:
        raise ValueError("no")

    def build() -> Probe:
        return Probe([call(f"c{number}", "act") for number in range(3)], ["done"], tools=[Act(validate=wrong)], max_turns=2)

    probe = hold(build)
    result = probe.heard.of("run.finished")[0].result
    assert (result.status, result.turns, result.final_text) == ("completed", 2, "done")


@pytest.mark.parametrize(
    ("policy", "asks", "status"),
    [("record", False, "completed"), ("fail_run", False, "failed"), ("record", True, "stopped")],
)
def test_who_may_stop_a_run_is_a_choice(policy: Any, asks: bool, status: str) -> None:
    """A failing listener does not stop a run unless the policy says so; a hook may, by saying so (SUB-2)."""

    def build() -> Probe:
        hooks = Hooks(should_stop_after_turn=lambda _: asks)
        probe = Probe([call("c1", "act")], ["done"], tools=[Act()], hooks=hooks, subscriber_failure=policy)
        probe.on("turn.started", lambda: 1 / 0)
        return probe

    probe = hold(build)
    assert probe.heard.of("run.finished")[0].status == status
