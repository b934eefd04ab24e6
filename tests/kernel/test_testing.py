"""The fakes for applications' tests: the scripted model, gates, and what keeps events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kernel.effects import ModelRequest
from kernel.errors import ModelError
from kernel.events import Event, RunStarted, TurnStarted
from kernel.messages import Finished, Part, StopReason, TextDelta, ToolCall, Usage
from kernel.testing import CUT_OFF, Gates, Recorder, ScriptedModel, call, collect, say, simulate


def request(number: int = 0) -> ModelRequest:
    return ModelRequest(f"run-{number}", (), "", ())


async def read(model: ScriptedModel) -> list[Part]:
    return [part async for part in model.stream(request(len(model.requests)))]


def parts_of(*lines: Any) -> list[Part]:
    return simulate(read(ScriptedModel([lines])))


def test_strings_are_text_and_the_end_comes_by_itself() -> None:
    """A response of strings is streamed as text and ended with a terminal part."""
    assert parts_of("Hel", "lo") == [TextDelta("Hel"), TextDelta("lo"), Finished()]


def test_parts_are_themselves() -> None:
    """Parts are streamed as they are, and an end that is given is the only one."""
    given = [call("c1", "read", path="x"), Usage(1, 2), Finished(StopReason.LENGTH)]
    assert parts_of(*given) == given
    assert given[0] == ToolCall("c1", "read", {"path": "x"})


def test_exceptions_are_raised_in_their_place() -> None:
    """What comes before an exception is streamed, and then it is raised."""

    async def main() -> Part:
        stream = ScriptedModel([["par", ModelError("boom")]]).stream(request())
        first = await anext(stream)
        with pytest.raises(ModelError, match="boom"):
            await anext(stream)
        return first

    assert simulate(main()) == TextDelta("par")


def test_a_cut_off_stream_has_no_end() -> None:
    """`CUT_OFF` leaves the terminal part out."""
    assert parts_of("par", CUT_OFF) == [TextDelta("par")]


def test_functions_and_awaitables_happen_between_the_parts() -> None:
    """A function is called, and what can be awaited is, before the next part comes."""
    done: list[str] = []
    gates = Gates()

    async def later() -> None:
        await asyncio.sleep(1)
        done.append("async function")

    parts = parts_of("a", lambda: done.append("function"), later, gates.opening("go"), gates.at("go"), "b")
    assert parts == [TextDelta("a"), TextDelta("b"), Finished()]
    assert done == ["function", "async function"]
    assert gates.is_open("go")


def test_a_response_may_be_a_function_of_the_request() -> None:
    """A callable in place of a response is given the request."""

    async def answer(asked: ModelRequest) -> AsyncIterator[Part]:
        yield TextDelta(asked.id)

    assert simulate(read(ScriptedModel([answer]))) == [TextDelta("run-0")]


def test_each_request_is_kept_and_answered_in_order() -> None:
    """Requests are recorded; past the end of the script they fail."""

    async def main() -> ScriptedModel:
        model = ScriptedModel([say("one"), say("two", "!")])
        assert await read(model) == [TextDelta("one"), Finished()]
        assert await read(model) == [TextDelta("two"), TextDelta("!"), Finished()]
        with pytest.raises(ModelError, match="script exhausted"):
            await read(model)
        return model

    assert [each.id for each in simulate(main()).requests] == ["run-0", "run-1", "run-2"]


def test_a_gate_lets_through_once_it_is_open() -> None:
    """A waiter goes on when the gate opens, and an open gate holds nobody up."""

    async def main() -> list[str]:
        gates, said = Gates(), []

        async def wait() -> None:
            await gates.wait("g")
            said.append("through")

        task = asyncio.create_task(wait())
        await asyncio.sleep(1)
        said.append("opening")
        gates.open("g")
        await task
        await gates.wait("g")
        return said

    assert simulate(main()) == ["opening", "through"]


def test_a_deaf_waiter_ignores_cancellation() -> None:
    """`wait_ignoring_cancel` goes on waiting when it is cancelled, and ends when the gate opens."""

    async def main() -> bool:
        gates = Gates()
        task = asyncio.create_task(gates.wait_ignoring_cancel("g"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(1)
        assert not task.done()
        gates.open("g")
        await task
        return task.cancelled()

    assert simulate(main()) is False


def test_a_deaf_waiter_passes_an_open_gate() -> None:
    """A gate that is open already is no reason to wait."""
    gates = Gates()
    gates.open("g")
    assert simulate(gates.wait_ignoring_cancel("g")) is None


def test_a_recorder_keeps_what_it_hears() -> None:
    """A recorder has the events, their types, those of some types, and can forget."""
    recorder = Recorder()
    for event in (RunStarted("r", 0), TurnStarted("r", 1, 1)):
        recorder(event)
    assert recorder.types == ["run.started", "turn.started"]
    assert recorder.of("turn.started") == [TurnStarted("r", 1, 1)]
    recorder.clear()
    assert recorder.events == []


def test_collect_reads_to_the_end() -> None:
    """All events of a run, in order."""

    async def run() -> AsyncIterator[Event]:
        yield RunStarted("r", 0)
        yield TurnStarted("r", 1, 1)

    assert simulate(collect(run())) == [RunStarted("r", 0), TurnStarted("r", 1, 1)]
