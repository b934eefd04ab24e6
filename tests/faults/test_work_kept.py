"""KEEP: work that was done, and that the transcript forgets."""

import pytest

from kernel.testing import call
from tests.faults.probe import WAYS, Probe, hold
from tests.kernel.helpers import Act


def test_an_order_that_was_placed_is_remembered() -> None:
    """Interrupted while it tells of what a tool did: the result is there, and the half answer, marked (KEEP-1)."""
    orders: list[Act] = []

    def build() -> Probe:
        orders.append(order := Act("order", "placed"))
        probe = Probe([call("c1", "order")], ["par", lambda: probe.gates.wait("never")], tools=[order])
        probe.on("message.updated", probe.agent.cancel, nth=2)
        return probe

    probe = hold(build)
    assert probe.said[2:4] == [("tool", "placed"), ("assistant", "par")]
    assert probe.agent.messages[3].is_cut
    assert [order.ran for order in orders] == [["c1"]] * 4


def test_between_results_and_the_next_request() -> None:
    """Cancelled when the results are there and nobody has answered: no tool runs twice (KEEP-9)."""
    acts: list[Act] = []

    def build() -> Probe:
        acts.append(act := Act())
        probe = Probe([call("c1", "act"), call("c2", "act")], tools=[act])
        probe.on("turn.ended", probe.agent.cancel)
        return probe

    probe = hold(build)
    assert [role for role, _ in probe.said] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert [sorted(act.ran) for act in acts] == [["c1", "c2"]] * 4


@pytest.mark.parametrize("work", ["tool", "text"])
def test_a_run_at_its_limit_stores_the_same_in_each_way(work: str) -> None:
    """What is left when `max_turns` ends a run does not depend on whether it was streamed (KEEP-12)."""

    def build() -> Probe:
        return Probe([call("c1", "act")] if work == "tool" else ["done"], tools=[Act()], max_turns=1)

    left = []
    for way in WAYS:
        probe = build()
        left.append((probe.use(way).status, probe.said))
    assert left == left[:1] * 4
    assert left[0][0] == ("max_turns" if work == "tool" else "completed")


def test_an_answer_that_was_kept_is_kept_whichever_step_is_cancelled() -> None:
    """A cancel at each event of three turns: the transcript is what had been told, and what closes it (KEEP-8)."""
    script = (["one", call("c1", "act")], ["two", call("c2", "act"), call("c3", "act")], ["done"])
    plain = hold(lambda: Probe(*script, tools=[Act()]))
    for place in range(plain.heard.types.index("run.finished")):
        probe = Probe(*script, tools=[Act()])
        probe.at(place, probe.agent.cancel)
        probe.use("await")
        told = [event.type == "message.ended" and event.kept for event in probe.heard.events[: place + 1]].count(True)
        assert probe.agent.messages[: 1 + told] == plain.agent.messages[: 1 + told]
