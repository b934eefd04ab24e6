"""CHD: an agent in a tool of another one, as an application writes it today: `async with Agent(...)` in the tool's body."""

import asyncio
from typing import Any

import pytest

from kernel import Agent, ToolResult
from kernel.testing import ScriptedModel, call, say
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, said, ticks


def asks(response: Any, stop: str | None = None) -> Any:
    """A tool's body that has a child give *response*; a child cancels itself at the event *stop*."""

    async def body(*_: Any) -> Any:
        async with Agent(ScriptedModel([response])) as child:
            child.subscribe(lambda event: event.type == stop and child.cancel("by itself"))
            result = await child.prompt("go on")
            if result.status != "completed":
                return ToolResult(f"the child was {result.status}", is_error=True)
            return result.final_text

    return body


def test_a_child_that_cancels_itself_is_a_failed_call() -> None:
    """The parent goes on with an error result, and nothing of the child's is in its transcript (CHD-1)."""
    tools = [Act(body=asks(say("of the child"), stop="message.updated"))]
    probe = hold(lambda: Probe([call("c1", "act")], ["done"], tools=tools))
    assert probe.heard.of("run.finished")[0].status == "completed"
    assert probe.said[:4] == [
        ("user", "Hi"), ("assistant", ""), ("tool", "the child was cancelled"), ("assistant", "done"),
    ]  # fmt: skip


def test_one_child_that_fails_leaves_the_other_alone() -> None:
    """Two children at once: the answer of one is kept, the failure of the other is its own error result (KEEP-4)."""
    tools = [Act("a", asks(say("answer"))), Act("b", asks([ValueError("no")]))]
    probe = hold(lambda: Probe([call("a", "a"), call("b", "b")], ["done"], tools=tools))
    answers = [message for message in probe.agent.messages if message.role == "tool"]
    assert [(answer.text, answer.is_error) for answer in answers] == [("answer", False), ("the child was failed", True)]
    assert probe.said[4] == ("assistant", "done")


@pytest.mark.parametrize("place", ["model", "gate"])
def test_a_cancel_reaches_a_child_at_once(place: str) -> None:
    """Cancelled while a child waits: the child ends first, as cancelled, then the parent, in no time (CHD-2, CHD-5)."""
    ends: list[str] = []
    probe = Probe([call("c1", "act")])

    async def waits(*_: Any) -> None:
        await probe.gates.wait("never")

    model = ScriptedModel([[waits] if place == "model" else [call("c1", "act")]])

    async def body(*_: Any) -> Any:
        async with Agent(model, tools=[Act(body=waits)]) as agent:
            agent.subscribe(lambda event: event.type == "run.finished" and ends.append(f"child {event.status}"))
            return (await agent.prompt("go on")).final_text

    probe.agent.configure(tools=[Act(body=body)])
    probe.on("run.finished", lambda: ends.append("parent"))

    async def main() -> float:
        run = probe.prompt()
        await ticks()
        start = asyncio.get_running_loop().time()
        probe.agent.cancel()
        assert (await run).status == "cancelled"
        return asyncio.get_running_loop().time() - start

    assert probe.play(main()) == 0
    assert ends[:2] == ["child cancelled", "parent"]
    assert said(probe.agent.messages)[2][1].startswith("cancelled")
