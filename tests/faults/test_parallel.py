"""PAR: siblings that nobody waits for, or that go on when the batch was stopped."""

import asyncio
import itertools
from typing import Any

import pytest

from kernel import Hooks
from kernel.testing import call
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, ticks


def test_hooks_and_tools_that_run_at_once_are_all_waited_for() -> None:
    """A hook after one call fails while the hook of another and a third tool still run: none is left alone (PAR-2)."""
    over: list[str] = []

    async def after(result: Any) -> None:
        if result.call_id == "a":
            raise ValueError("no")
        await asyncio.sleep(3)
        over.append(f"after {result.call_id}")

    async def slow(*_: Any) -> str:
        await asyncio.sleep(5)
        over.append("slow")
        return "slow"

    def build() -> Probe:
        calls = [call("a", "act"), call("b", "act"), call("c", "slow")]
        return Probe(calls, ["done"], tools=[Act(), Act("slow", slow)], hooks=Hooks(after_tool_result=after))

    probe = hold(build)
    assert over == ["after b", "slow", "after c"] * 4
    assert [text for role, text in probe.said if role == "tool"] == ["ok", "ok", "slow"]


def test_a_batch_that_is_stopped_at_its_first_failure() -> None:
    """Who wants it so cancels at the failure: the waiting sibling is cancelled, the next one never starts (PAR-9)."""
    third: list[Act] = []

    def build() -> Probe:
        third.append(last := Act("c", resources=lambda _: ("file",)))
        probe = Probe([call("a", "a"), call("b", "b"), call("c", "c")])
        first = Act("a", probe.waiting(), resources=lambda _: ("file",))
        probe.agent.configure(tools=[first, Act("b", lambda *_: 1 / 0), last])
        probe.on("tool.ended", lambda: probe.agent.cancel("b failed"))
        return probe

    probe = hold(build)
    answers = [message for message in probe.agent.messages if message.role == "tool"]
    assert [(answer.call_id, answer.text.partition(":")[0]) for answer in answers] == [
        ("a", "cancelled"), ("b", "division by zero"), ("c", "not executed"),
    ]  # fmt: skip
    assert [act.ran for act in third] == [[]] * 4


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_each_tool_can_see_that_it_was_told_to_stop(mode: Any) -> None:
    """A tool that swallows its cancellation reads the cancel off its context, in each mode (EXT-14)."""
    seen: list[tuple[bool, bool]] = []

    async def body(_: Any, context: Any) -> str:
        before = context.cancelled
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append((before, context.cancelled))
        return "ok"

    async def stop(probe: Probe) -> str:
        run = probe.prompt()
        await ticks()
        probe.agent.cancel()
        return (await run).status

    probe = Probe([call("a", "act"), call("b", "act")], tools=[Act(body=body)], tool_execution=mode)
    assert probe.play(stop(probe)) == "cancelled"
    assert seen == [(False, True)] * (2 if mode == "parallel" else 1)


def test_a_hook_that_fails_is_not_overtaken_by_the_last_tool() -> None:
    """Three calls end at nearly once, in any order, and a hook fails after one of them: it is told, once (PAR-12)."""

    def after(result: Any) -> None:
        if result.call_id == "b":
            raise ValueError("no")

    for order in itertools.permutations((0, 1, 2)):

        def build(order: Any = order) -> Probe:
            waits = dict(zip("abc", order, strict=True))
            body = lambda _, context: ticks(3 + waits[context.call_id])  # noqa: E731
            calls = [call(id, "act") for id in "abc"]
            return Probe(calls, ["done"], tools=[Act(body=body)], hooks=Hooks(after_tool_result=after))

        probe = hold(build)
        assert [(event.hook, event.call_id) for event in probe.heard.of("hook.failed")] == [("after_tool_result", "b")]
        assert probe.said[5] == ("assistant", "done")
