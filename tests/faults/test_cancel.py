"""SIG: a request to stop that is lost, comes too late, or reaches the wrong run. And LAT-5, of what it leaves open."""

from typing import Any

import pytest

from kernel import ToolCallDelta
from kernel.testing import call
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, said, ticks


@pytest.mark.parametrize("place", ["message.ended", "turn.ended"])
def test_a_cancel_in_the_last_pass_is_heard(place: str) -> None:
    """A cancel when the last answer, or the last turn, has just ended: it counts (SIG-2)."""

    def build() -> Probe:
        probe = Probe(["done"])
        probe.on(place, lambda: probe.agent.cancel("enough"))
        return probe

    probe = hold(build)
    (end, _) = probe.heard.of("run.finished")
    assert (end.status, end.result.reason, len(probe.model.requests)) == ("cancelled", "enough", 1)


class TestWhatHasNotBegun:
    def test_a_run_that_is_cancelled_before_its_first_step(self) -> None:
        """A run that was accepted and has not begun is cancelled, and asks nothing (SIG-6)."""
        probe = Probe(["never"])

        async def main() -> str:
            run = probe.prompt()
            assert probe.agent.cancel() is True
            return (await run).status

        assert probe.play(main()) == "cancelled"
        assert probe.model.requests == []

    def test_all_that_waits_can_be_dropped_with_the_cancel(self) -> None:
        """`clear_queues` with the cancel: the follow-up never enters and is reported as dropped, once (SIG-6)."""

        def build() -> Probe:
            probe = Probe([call("c1", "act")], ["never"], tools=[Act()])

            def stop() -> None:
                probe.follow_up("then")
                probe.agent.cancel()
                probe.agent.clear_queues()

            probe.on("tool.started", stop)
            return probe

        probe = hold(build)
        assert [said(event.dropped) for event in probe.heard.of("queue.changed") if event.dropped] == [[("user", "then")]]
        assert probe.receipts[0].status == "dropped"


@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize("place", ["model", "tool", "between"])
def test_a_cancel_in_each_turn_and_wait(turn: int, place: str) -> None:
    """In the n-th turn, while the model is waited for, while a tool is, and between: no later request (SIG-10)."""
    event = {"model": "turn.started", "tool": "tool.started", "between": "turn.ended"}[place]

    def build() -> Probe:
        calls = ([call(f"c{number}", "act")] for number in range(4))
        probe = Probe(*calls, ["done"], tools=[Act(body=lambda *_: ticks(3))])
        probe.on(event, probe.agent.cancel, nth=turn)
        return probe

    probe = hold(build)
    assert probe.heard.of("run.finished")[0].status == "cancelled"
    assert len(probe.model.requests) == (turn - 1 if place == "model" else turn)


def test_a_call_that_was_only_begun_leaves_nothing_open() -> None:
    """A cancel in the middle of a response, after a piece of a call: no call is pending and none is in the way (LAT-5)."""
    pending: list[Any] = []

    def build() -> Probe:
        probe = Probe(["a", ToolCallDelta(0, "c1", "act", '{"a"'), lambda: probe.gates.wait("never")], tools=[Act()])
        probe.on("message.updated", probe.agent.cancel, nth=2)
        probe.on("run.finished", lambda: pending.append(probe.agent.state.pending_tool_calls))
        return probe

    probe = hold(build)
    assert pending == [()] * 4
    assert probe.said[:2] == [("user", "Hi"), ("assistant", "a")]
    assert not probe.agent.messages[1].calls
