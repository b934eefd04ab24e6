"""CMP: compactions that race with calls, or that remember what was forgotten."""

from typing import Any

from kernel import CompactionPolicy, Usage, UserMessage
from kernel.testing import call
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, said, turns, unpaired


class Summary:
    """A compactor that keeps what it was asked to summarize."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def summarize(self, messages: Any) -> str:
        self.asked.append(tuple(messages))
        return "short"


def test_a_threshold_that_is_passed_in_a_batch_waits_for_its_results() -> None:
    """The context is full while two calls run: the compaction comes after both results, and cuts no pair (CMP-5, CMP-6)."""
    summaries: list[Summary] = []

    def build() -> Probe:
        summaries.append(summary := Summary())
        full = Usage(input=90, output=5)
        calls = [call("a", "act"), call("b", "act"), full]
        policy = CompactionPolicy(reserve=10, keep_turns=1)
        return Probe(calls, ["done"], tools=[Act(body=lambda _, context: context.update("half"))], messages=turns(3),
                     compactor=summary, window=100, compaction=policy)  # fmt: skip

    probe = hold(build)
    types = probe.types
    started = types.index("compaction.started")
    assert types[:started].count("tool.ended") == 2
    assert types[:started].count("turn.ended") == 1
    assert [unpaired(asked) for summary in summaries for asked in summary.asked] == [[]] * 4
    assert unpaired(probe.model.requests[1].messages) == []


def test_after_a_reset_nothing_of_before_is_summarized() -> None:
    """Reset, a new conversation, a compaction: the summary is of the new one alone (CMP-14)."""
    summary = Summary()
    probe = Probe(*(["new"] for _ in range(4)), messages=turns(5), compactor=summary)

    async def main() -> None:
        probe.agent.reset()
        for number in range(4):
            await probe.prompt(f"new {number}")
        await probe.agent.compact()

    probe.play(main())
    assert said(summary.asked[0]) == [("user", "new 0"), ("assistant", "new"), ("user", "new 1"), ("assistant", "new")]
    assert probe.agent.state.archive[0] == UserMessage("new 0")
