"""A run whose process died after any of its inputs is gone on with in another one, and ends as a run ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from attrs import evolve

from kernel import (
    Agent,
    Event,
    Finished,
    Hooks,
    KernelConfig,
    ModelError,
    ModelRequest,
    RunResult,
    TextDelta,
    ToolContext,
    tool,
)
from kernel.core import Core
from kernel.effects import RunTool, StartTimer
from kernel.history import adopt_history
from kernel.inputs import Cancel, Input, ResponseFailed, ToolSettled
from kernel.journal import Journal
from kernel.messages import Part
from kernel.resuming import CUT, INTERRUPTED, Outstanding
from kernel.setup import Setup
from kernel.shell import Shell
from kernel.state import CoreState
from kernel.testing import Gates, ScriptedModel, call, say, simulate
from statechart import Leaf
from tests.kernel.test_idle import CASES, journal_of


class Yes:
    """A model that agrees to everything."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        yield TextDelta("yes")
        yield Finished()


def equipped(setup: Setup) -> Setup:
    """*setup*, which was read from a journal, with a model and tools that do something."""

    async def execute(arguments: Any, context: Any) -> str:
        return "done"

    model, does = Yes(), {"execute": execute, "validate": lambda arguments: arguments}
    tools = {name: evolve(spec, **does) for name, spec in setup.tools.items()}
    return evolve(setup, model=model, stream=model.stream, tools=tools)


def hooks_of(names: frozenset[str]) -> Hooks:
    """Hooks of these names, which change nothing."""
    answers = {
        "transform_context": lambda messages: messages,
        "convert_to_llm": lambda messages: [m for m in messages if not hasattr(m, "data")],
        "before_tool_call": lambda call: None,
        "after_tool_result": lambda result: None,
        "should_stop_after_turn": lambda state: False,
    }
    return Hooks(**{name: answers[name] for name in names})  # type: ignore[arg-type]


class Life:
    """What is left of a journal that ends early, and what becomes of it."""

    def __init__(self, journal: Journal, length: int) -> None:
        self.core, self.outstanding = journal.core(), Outstanding()
        self.told: list[Event] = []
        for input in journal.inputs[:length]:
            effects = self.core.receive(input)
            self.outstanding.note(input, effects)
            self.told += [effect for effect in effects if isinstance(effect, Event)]

    async def go_on(self) -> RunResult:
        state = self.core.state
        state.setup = equipped(state.setup)
        state.staged = None if state.staged is None else equipped(state.staged)
        agent = Agent(Yes())
        agent._shell = Shell(self.core, hooks_of(state.hooks))
        # A closed agent takes no listeners, but its run may be going.
        agent._shell.listeners.add(self.told.append)
        return await agent._shell.resume(*self.outstanding.of(self.core))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_run_that_was_cut_after_any_input_ends_once_and_leaves_no_call_open(path: Path):
    """For each beginning of the journal of each case that stops in a run: the run ends, once, with all calls answered."""
    journal = journal_of(path)
    for length in range(1, len(journal.inputs)):
        life = Life(journal, length)
        state = life.core.state
        if state.run is None:
            continue
        run_id = state.run.id
        result = simulate(life.go_on())

        ends = [event for event in life.told if event.type == "run.finished" and event.run_id == run_id]
        assert len(ends) == 1, (length, journal.inputs[length - 1])
        assert result.run_id == run_id
        messages = tuple(state.transcript.messages)
        assert tuple(adopt_history(messages, None)) == messages, (length, journal.inputs[length - 1])
        # What is told twice at most is what a listener of the dead process had heard and nobody has stored.
        sequences = [event.sequence for event in life.told if event.run_id == run_id]
        assert sequences == sorted(set(sequences))


def inputs_until(agent: Agent, there: Callable[[CoreState], bool]) -> list[Input]:
    """The inputs of a run of *agent* until its core is *there*."""
    inputs: list[Input] = []
    core = agent._shell.core

    def record(input: Input) -> None:
        inputs.append(input)
        if there(core.state):
            core.record = None

    core.record = record

    async def run() -> None:
        running = agent.prompt("Hi")
        while core.record is not None:
            await asyncio.sleep(0)
        running.cancel()
        await running

    simulate(run())
    return inputs


def outstanding_of(inputs: list[Input], setup: Setup) -> tuple[Core, list[Any], list[Any]]:
    core, outstanding = Core(KernelConfig(), setup), Outstanding()
    for input in inputs:
        outstanding.note(input, core.receive(input))
    return core, *outstanding.of(core)


def runs_a_tool(state: CoreState) -> bool:
    return any(isinstance(effect, RunTool) for effect in state.effects)


async def never() -> str:
    """Never come back."""
    await asyncio.Event().wait()
    return ""


def caller(replay: Literal["safe", "never"]) -> Agent:
    """An agent that calls a tool which never comes back."""
    return Agent(ScriptedModel([[call("c", "never")]]), tools=[tool(replay=replay)(never)])


@pytest.mark.parametrize(("replay", "runs_again"), [("safe", True), ("never", False)])
def test_a_tool_runs_again_only_when_it_says_that_it_may(replay: Literal["safe", "never"], runs_again: bool):
    """A call that was running is executed again with `replay="safe"`; otherwise its result says that it may have run."""
    agent = caller(replay)
    setup = agent._shell.core.state.setup
    _, again, answers = outstanding_of(inputs_until(agent, runs_a_tool), setup)

    assert [type(effect) for effect in again] == ([RunTool] if runs_again else [])
    assert [answer.content[0].text for answer in answers] == ([] if runs_again else [INTERRUPTED])


def test_a_response_that_was_half_said_has_failed_and_may_be_asked_again():
    """A part of it is in the state, so it can't be read anew: it fails as what passes, and the retry policy decides."""
    agent = Agent(ScriptedModel([[*say("half"), Gates().at("never")]]))
    setup = agent._shell.core.state.setup
    inputs = inputs_until(agent, lambda state: state.leaf is Leaf.STREAMING)
    core, again, answers = outstanding_of(inputs, setup)

    assert (again, answers) == ([], [ResponseFailed(next(iter(core.state.works)), CUT)])
    assert CUT.retryable


def test_timers_begin_anew():
    """The timer of a backoff is asked for again, with all its seconds."""
    agent = Agent(ScriptedModel([[ModelError("busy", retryable=True)], say("Hi")]))
    setup = agent._shell.core.state.setup
    inputs = inputs_until(agent, lambda state: any(isinstance(effect, StartTimer) for effect in state.effects))
    _, again, answers = outstanding_of(inputs, setup)

    assert ([type(effect) for effect in again], answers) == ([StartTimer], [])


def test_a_cancelled_call_is_not_executed_again():
    """Of a run that was cancelled, a call that had begun is interrupted, though it might be executed again."""
    agent = caller("safe")
    setup = agent._shell.core.state.setup
    _, again, answers = outstanding_of([*inputs_until(agent, runs_a_tool), Cancel()], setup)

    assert [effect for effect in again if isinstance(effect, RunTool)] == []
    assert [(answer.ended, answer.content[0].text) for answer in answers] == [("cancelled", INTERRUPTED)]


def test_an_execution_has_the_same_key_when_it_is_repeated():
    """A tool is told a key that no other execution has, and the same one when it runs again in another process."""
    keys: list[str] = []

    @tool(replay="safe")
    async def look(context: ToolContext) -> str:
        """Look."""
        keys.append(context.key)
        return "looked"

    agent = Agent(ScriptedModel([[call("a", "look"), call("b", "look")], say("Seen.")]), tools=[look])
    setup = agent._shell.core.state.setup
    inputs: list[Input] = []
    agent._shell.core.record = inputs.append

    async def run() -> None:
        await agent.prompt("Hi")

    simulate(run())
    begun = next(n for n, input in enumerate(inputs) if isinstance(input, ToolSettled))
    core, outstanding = Core(KernelConfig(), setup), Outstanding()
    for input in inputs[:begun]:
        outstanding.note(input, core.receive(input))
    other = Agent(Yes(), tools=[look])
    other._shell.restore(core)

    async def resume() -> None:
        await other._shell.resume(*outstanding.of(core))

    simulate(resume())
    assert keys[:2] == keys[2:]
    assert len(set(keys)) == 2
