"""PAIR: calls without results, and results without calls, after whatever went wrong."""

from typing import Any

import pytest

from kernel import ToolResult
from kernel.testing import ScriptedModel, call
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, ticks

BOTH = [call("a", "a"), call("b", "b")]


def test_a_run_that_dies_in_a_batch_closes_it() -> None:
    """A failure of the run while one call waits and one is done: both are answered, and the next prompt works (PAIR-1)."""

    def build() -> Probe:
        probe = Probe(BOTH, subscriber_failure="fail_run")
        probe.agent.configure(tools=[Act("a"), Act("b", probe.waiting())])
        probe.on("tool.ended", lambda: 1 / 0)
        return probe

    probe = hold(build)
    assert probe.heard.of("run.finished")[0].status == "failed"
    answers = [message for message in probe.agent.messages if message.role == "tool"]
    assert [(answer.call_id, answer.is_error) for answer in answers] == [("a", False), ("b", True)]


def test_a_cancel_and_a_prompt_right_after_it() -> None:
    """Cancelled while a call runs, and asked anew: the call, its cancelled result, the new question (PAIR-5)."""
    probe = Probe([call("a", "a")], ["done"])
    probe.agent.configure(tools=[Act("a", probe.waiting())])

    async def main() -> None:
        run = probe.prompt()
        await ticks()
        probe.agent.cancel()
        await run
        await probe.prompt("and now?")

    probe.play(main())
    assert [role for role, _ in probe.said[:5]] == ["user", "assistant", "tool", "user", "assistant"]
    assert [message.role for message in probe.model.requests[1].messages] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("place", ["tool.started", "tool.updated", "tool.ended"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_cancel_at_each_event_of_two_tools(place: str, nth: int) -> None:
    """Six cancels, at the start, the progress and the end of either call: each time a history that goes on (PAIR-9)."""

    async def body(_: Any, context: Any) -> str:
        context.update("half")
        await ticks(3 if context.call_id == "a" else 6)
        return "ok"

    def build() -> Probe:
        probe = Probe(BOTH, tools=[Act("a", body), Act("b", body)])
        probe.on(place, probe.agent.cancel, nth=nth)
        return probe

    probe = hold(build)
    assert [message.call_id for message in probe.agent.messages if message.role == "tool"] == ["a", "b"]
    assert probe.heard.of("run.finished")[0].status == "cancelled"


def test_control_that_moves_leaves_no_call_behind() -> None:
    """A call that hands the conversation to another model, beside an ordinary one: both are answered (PAIR-12)."""
    others: list[ScriptedModel] = []

    def build() -> Probe:
        others.append(other := ScriptedModel([["from here on me"]]))
        probe = Probe([call("h", "handoff"), call("a", "a")])

        def hand_over(*_: Any) -> ToolResult:
            probe.agent.configure(model=other)
            return ToolResult("handed over")

        probe.agent.configure(tools=[Act("handoff", hand_over), Act("a")])
        return probe

    probe = hold(build)
    assert probe.said[2:5] == [("tool", "handed over"), ("tool", "ok"), ("assistant", "from here on me")]
    assert all([message.role for message in other.requests[0].messages][-2:] == ["tool", "tool"] for other in others)


def test_a_tool_that_was_not_offered_is_answered() -> None:
    """A model that has no tools and calls one all the same gets an error result, and goes on (PAIR-14)."""
    probe = hold(lambda: Probe([call("a", "a")], ["done"]))
    answer = probe.agent.messages[2]
    assert (answer.call_id, answer.is_error, answer.executed) == ("a", True, False)
    assert probe.said[3] == ("assistant", "done")
