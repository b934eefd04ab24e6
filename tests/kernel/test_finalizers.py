"""The garbage collector may run a finalizer at any allocation, in the middle of a step too: nothing is lost by that."""

import asyncio
import gc
from typing import Any

import pytest

from kernel import Agent, KernelConfig, ReentrancyError, tool
from kernel.inputs import Steer, ToolSettled
from kernel.state import CoreState
from kernel.testing import Recorder, ScriptedModel, call, simulate
from kernel.trace import check


def in_a_step(agent: Agent, act: Any) -> list[Any]:
    """Do *act* in the middle of each step of the agent's core, as a finalizer may; what it raised or returned."""
    said: list[Any] = []

    def shadow(*_: Any) -> None:
        try:
            said.append(act())
        except ReentrancyError as error:
            said.append(error)

    agent._shell.core._shadow = shadow
    return said


def test_a_command_in_a_step_is_refused():
    """A `__del__` that steers its agent in the middle of a step is refused, and the run goes its way."""
    agent = Agent(ScriptedModel([["a"]]))
    heard = Recorder()
    agent.subscribe(heard)
    said = in_a_step(agent, lambda: agent.steer("from __del__"))

    assert simulate(_prompt(agent)) == "completed"
    assert {type(answer) for answer in said} == {ReentrancyError}
    assert agent.queued.steering == ()
    assert check(heard.events) == []


def test_a_late_report_in_a_step_waits(monkeypatch: pytest.MonkeyPatch):
    """What something abandoned says between two actions is heard after the step, which loses nothing it asked for."""
    agent = Agent(ScriptedModel([["a"], ["b"]]))
    heard = Recorder()
    agent.subscribe(heard)
    publish = CoreState.publish

    def and_collect(state: CoreState, *event: Any) -> None:
        publish(state, *event)
        agent._shell.report(ToolSettled(-1, "c", (), ended="cancelled"))

    monkeypatch.setattr(CoreState, "publish", and_collect)

    assert [simulate(_prompt(agent)) for _ in range(2)] == ["completed", "completed"]
    assert check(heard.events) == []


def test_a_deaf_tool_of_a_closed_loop_may_be_collected_in_a_step(monkeypatch: pytest.MonkeyPatch):
    """The collector destroys what a closed loop left behind in the middle of a step; the run goes on, the key is free."""

    @tool(resources=lambda _: ("file",))
    async def deaf(again: bool) -> str:
        """Ignore everything, once."""
        while not again:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
        return "ok"

    script = [[call("a", "deaf", again=False)], [call("b", "deaf", again=True)], ["done"]]
    agent = Agent(ScriptedModel(script), tools=[deaf], config=KernelConfig(cancel_grace=0.0, run_deadline=5.0))

    async def cut() -> str:
        run = agent.prompt("Hi")
        async for event in run:
            if event.type == "tool.started":
                await asyncio.sleep(0.01)
                agent.cancel()
        return (await run).status

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(cut()) == "cancelled"
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    gc.disable()  # until the step in which it is to come
    loop.close()
    del loop, task
    collected: list[int] = []
    await_delivery = CoreState.await_delivery

    def and_collect(state: CoreState, *unsent: Any) -> None:
        await_delivery(state, *unsent)
        collected.append(gc.collect())

    monkeypatch.setattr(CoreState, "await_delivery", and_collect)
    try:
        assert agent.run_sync("again").final_text == "done"
    finally:
        gc.enable()
    assert max(collected) > 0


def test_a_step_in_a_step_changes_nothing():
    """The core itself refuses an input while it takes one."""
    agent = Agent(ScriptedModel([["a"]]))
    core = agent._shell.core
    core.is_stepping = True
    with pytest.raises(ReentrancyError):
        core.receive(Steer(None))  # type: ignore[arg-type]

    assert core.state.steering == []


async def _prompt(agent: Agent) -> str:
    return (await agent.prompt("Hi")).status
