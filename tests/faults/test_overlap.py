"""OVL: two runs over one conversation, and the guard that keeps them apart."""

import gc
from typing import Any, get_args

import pytest

from kernel import Agent, AgentBusyError, KernelConfig, ModelError, UserMessage
from kernel.core import Core
from kernel.errors import KernelBug
from kernel.events import UpdateDiscarded
from kernel.inputs import Advance, ModelPart, Prompt, TimerDue, ToolSettled, ToolUpdate, WorkReport
from kernel.journal import read_journal
from kernel.testing import call
from statechart import Leaf
from tests.faults.probe import Probe
from tests.kernel.helpers import Act, play, ticks

UNASKED = (Advance, ModelPart, TimerDue, ToolUpdate)


class TestOneRun:
    def test_of_fifty_prompts_at_once_one_is_taken(self) -> None:
        """Fifty callers in one tick: one run, forty-nine clear refusals, and only the first message (OVL-4)."""
        probe = Probe(["done"])

        async def main() -> None:
            run = probe.prompt("number 0")
            for number in range(1, 50):
                with pytest.raises(AgentBusyError, match="Agent is already running"):
                    probe.agent.prompt(f"number {number}")
            await run
            assert probe.said == [("user", "number 0"), ("assistant", "done")]

        probe.play(main())

    def test_a_dropped_reader_of_an_old_run_frees_nothing(self) -> None:
        """A reader of the first run that is collected while the second one goes does not let in a third (OVL-5)."""
        probe = Probe(["one"], [lambda: probe.gates.wait("go"), "two"])

        async def main() -> None:
            first: Any = probe.agent.prompt("one")
            reader = aiter(first)
            await anext(reader)
            await probe.agent.wait_for_idle()
            second = probe.prompt("two")
            await ticks()
            del first, reader
            gc.collect()
            await ticks()
            with pytest.raises(AgentBusyError):
                probe.agent.prompt("three")
            probe.gates.open("go")
            assert (await second).status == "completed"

        probe.play(main())

    def test_what_woke_a_run_wakes_nothing_when_it_is_over(self) -> None:
        """Every report of a finished run, made once more while idle and in the next run, moves nothing (OVL-8)."""
        calls = [call("c1", "act"), call("c2", "act")]
        act = Act(body=lambda _, context: context.update("half"), timeout=9)
        probe = Probe(["a", ModelError("busy", retryable=True)], calls, ["done"], tools=[act], run_deadline=600)
        lines: list[str] = []
        agent = Agent(probe.model, tools=[act], config=KernelConfig(run_deadline=600), journal=lines.append)

        async def main() -> None:
            await agent.prompt("Hi")

        play(main())
        journal = read_journal("".join(lines).encode().splitlines(keepends=True))
        core = journal.core()
        for _ in journal.replay(core):
            pass
        reports = [input for input in journal.inputs if isinstance(input, (*get_args(WorkReport), *UNASKED))]
        assert {type(report) for report in reports} >= {Advance, ModelPart, TimerDue, ToolSettled, ToolUpdate}
        assert [once_more(core, report) for report in reports] == [[]] * len(reports)
        assert core.state.leaf is Leaf.IDLE
        core.receive(Prompt("r2", UserMessage("Hi")))
        leaf = core.state.leaf
        told = [effect for report in reports for effect in once_more(core, report)]
        assert {type(effect) for effect in told} == {UpdateDiscarded}
        assert core.state.leaf is leaf


def once_more(core: Core, report: Any) -> list[Any]:
    """What a report causes that was made before. That a delivery was answered twice is refused as a bug of the shell."""
    try:
        return core.receive(report)
    except KernelBug:
        assert type(report) is Advance
        return []
