"""Logging: silent by default, under the names `kernel.*`, and nothing that was said above DEBUG."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, CompactionPolicy, Hooks, KernelConfig, ModelError, ToolResult, tool
from kernel.events import Event
from kernel.logs import _WRITERS
from kernel.testing import ScriptedModel, call, simulate

SECRET = "hunter2"


@tool
async def look(secret: str) -> ToolResult:
    """Look."""
    return ToolResult(f"a result with {secret}", is_error=True)


@tool
async def deaf(secret: str) -> str:
    """Ignore cancellation."""
    for _ in range(9):
        try:
            await asyncio.sleep(99)
        except asyncio.CancelledError:
            continue
    return secret


def run(script: list[Any], act: Callable[[Agent], Awaitable[object]] | None = None, **more: Any) -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel(script), tools=[look, deaf], system_prompt=SECRET, **more)
        await (act(agent) if act is not None else agent.prompt(f"a question with {SECRET}"))

    simulate(main())


def broken(*_: Any) -> None:
    raise ValueError(f"broken over {SECRET}")


async def everything(agent: Agent) -> None:
    """Whatever can be logged happens, with the secret in each text."""
    agent.subscribe(broken)
    await agent.prompt(f"a question with {SECRET}")
    await agent.prompt(f"one more with {SECRET} {'word ' * 50}")
    await agent.prompt(f"one more with {SECRET} {'word ' * 50}")
    await agent.compact()
    going = agent.prompt("x")
    asyncio.get_running_loop().call_later(1, agent.cancel, SECRET)
    await going
    await agent.prompt("y")


SCRIPT: list[Any] = [
    [ModelError(f"overloaded by {SECRET}", retryable=True, retry_after=1.0)],
    [f"I look, {SECRET}", call("c1", "look", secret=SECRET)],
    [f"Well, {SECRET}"],
    [f"Well, {SECRET}"],
    [f"Well, {SECRET}"],
    [f"They talked of {SECRET}."],
    [call("c2", "deaf", secret=SECRET)],
    [ModelError(f"broken by {SECRET}")],
]
MORE: dict[str, Any] = {
    "hooks": Hooks(transform_context=broken, after_tool_result=broken),
    "config": KernelConfig(compaction=CompactionPolicy(keep_turns=1), cancel_grace=1.0),
}


def test_nothing_that_was_said_is_above_debug(caplog: pytest.LogCaptureFixture):
    """Not in a question, an answer, an argument, a result, a reason, a system prompt, a hook's or a provider's error."""
    caplog.set_level(logging.INFO, logger="kernel")
    run(SCRIPT, everything, **MORE)
    assert SECRET not in caplog.text
    assert {record.name for record in caplog.records} == {
        "kernel.run", "kernel.retry", "kernel.compaction", "kernel.hooks", "kernel.listeners", "kernel.abandoned",
    }  # fmt: skip


def test_at_debug_there_is_all_of_it(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="kernel")
    run(SCRIPT, everything, **MORE)
    for said in ("a question with", "I look,", "'secret': ", "a result with", "overloaded by", "broken by", "broken over"):
        assert any(said in line and SECRET in line for line in caplog.messages), said


def test_how_a_run_went(caplog: pytest.LogCaptureFixture):
    """Its beginning and its end are INFO; a failed one is a WARNING with its code."""
    caplog.set_level(logging.INFO, logger="kernel")
    run([["Hi."]])
    run([[ModelError("broken")]])
    said = [(record.levelname, record.getMessage().partition(" ")[2].partition(" ")[2]) for record in caplog.records]
    assert said == [
        ("INFO", "began"),
        ("INFO", "ended: completed, 1 turns, 1 requests, 0 tool calls, 0 tokens in, 0 out"),
        ("INFO", "began"),
        ("WARNING", "ended: failed (MODEL_FAILED), 1 turns, 1 requests, 0 tool calls, 0 tokens in, 0 out"),
    ]


def test_at_warning_only_what_went_wrong_is_told(caplog: pytest.LogCaptureFixture):
    """A run that failed, and not one that did not."""
    caplog.set_level(logging.WARNING, logger="kernel")
    run([["Hi."]])
    run([[ModelError("broken")]])
    assert [record.getMessage().partition(" ended: ")[2][:21] for record in caplog.records] == ["failed (MODEL_FAILED)"]


def test_it_is_silent_by_default(tmp_path: Path):
    """In a program that set nothing up, warnings and errors included."""
    program = (
        "from kernel import Agent, ModelError\nfrom kernel.testing import ScriptedModel\n"
        "print(Agent(ScriptedModel([[ModelError('broken')]])).run_sync('Hi').status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2]
    )
    assert (done.stdout, done.stderr) == ("failed\n", "")


def test_every_kind_of_event_is_thought_of():
    """Those without a line are pieces and frames of what has one."""
    silent = {
        "turn.started", "turn.ended", "message.started", "message.updated", "tool.updated", "retry.ended", "queue.changed",
    }  # fmt: skip
    kinds = {kind.type for kind in Event.__subclasses__()}
    assert {kind.type for kind in _WRITERS} == kinds - silent


@pytest.mark.parametrize("where", ["handler", "filter"])
def test_a_handler_that_raises_costs_the_run_nothing(where: str, capsys: pytest.CaptureFixture[str]):
    """It is told of where `logging` itself would tell of it."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("disk full")

    handler = Broken()
    if where == "filter":
        handler.addFilter(broken)
    logger = logging.getLogger("kernel")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        results: list[str] = []

        async def main(agent: Agent) -> None:
            results.append((await agent.prompt("Hi")).status)

        run([["Hi."]], main)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert results == ["completed"]
    assert ("disk full" if where == "handler" else "broken over") in capsys.readouterr().err


def test_a_handler_that_gives_commands(caplog: pytest.LogCaptureFixture):
    """As a listener may: a warning that cancels the run."""
    caplog.set_level(logging.INFO, logger="kernel")

    async def main(agent: Agent) -> None:
        class Cancels(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                agent.cancel("by a handler")

        handler = Cancels()
        logging.getLogger("kernel.run").addHandler(handler)
        try:
            result = await agent.prompt("Hi")
        finally:
            logging.getLogger("kernel.run").removeHandler(handler)
        assert (result.status, result.reason) == ("cancelled", "by a handler")

    run([["Hi."]], main)
