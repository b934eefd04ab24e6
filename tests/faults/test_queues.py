"""STE: queued messages, and when a stop or an idle agent meets them."""

from kernel.testing import call
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, ticks


def test_a_stop_clears_neither_what_came_before_nor_after() -> None:
    """One follow-up before the stop, one while it settles: both stay queued, in their order (STE-6)."""
    probe = Probe([call("c1", "deaf")], ["a"], ["b"], cancel_grace=5)

    async def main() -> list[str]:
        probe.agent.configure(tools=[Act("deaf", probe.deaf("end"))])
        run = probe.prompt()
        await ticks()
        receipts = [probe.follow_up("one")]
        probe.agent.cancel()
        receipts.append(probe.follow_up("two"))
        assert probe.agent.phase == "cancelling"
        await run
        probe.gates.open("end")
        assert [receipt.status for receipt in receipts] == ["queued"] * 2
        await probe.continue_()
        return [receipt.status for receipt in receipts]

    assert probe.play(main()) == ["delivered"] * 2
    assert [text for role, text in probe.said if role == "user"][:3] == ["Hi", "one", "two"]


def test_a_follow_up_while_idle_is_a_receipt_and_no_run() -> None:
    """It says that it waits, starts nothing, and enters the next run, which `continue_` can begin with it (STE-10)."""
    probe = Probe(["a"], ["b"])

    async def main() -> None:
        await probe.prompt()
        receipt = probe.follow_up("then")
        await ticks()
        assert (receipt.status, probe.agent.is_running, len(probe.model.requests)) == ("queued", False, 1)
        await probe.continue_()
        assert (receipt.status, probe.said[-2:]) == ("delivered", [("user", "then"), ("assistant", "b")])

    probe.play(main())


def test_what_is_queued_in_any_gap_is_answered_or_waits() -> None:
    """Steering at each event of two turns is in exactly one place, and in no case lost (STE-4)."""
    events = Probe([call("c1", "act")], ["done"], tools=[Act()])
    events.use("await")
    for place in range(len(events.heard.events)):

        def build(place: int = place) -> Probe:
            probe = Probe([call("c1", "act")], ["done"], ["more"], tools=[Act()])
            probe.at(place, lambda: probe.steer("left"))
            return probe

        assert [receipt.status for receipt in hold(build).receipts] in (["delivered"], [])
