"""The kits that hold models and tools against their contracts: each promise is broken by a port that was made for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import pytest

from kernel import Finished, ModelError, TextDelta, ToolCallDelta, Usage, tool
from kernel.models.replay import ReplayModel
from kernel.testing import ContractBrokenError, ScriptedModel, check_model, check_tool, say, simulate


def generous() -> Any:
    return ScriptedModel([say("Hel", "lo.")] * 20)


LEFT: list[Any] = []


class Bad:
    """A model whose every stream is what *stream* makes of the request."""

    def __init__(self, stream: Callable[[Any], Any], window: Any = None) -> None:
        self.stream = stream
        self.context_window = window


async def fine(request: Any) -> AsyncIterator[Any]:
    yield TextDelta("Hel")
    await asyncio.sleep(0.01)
    yield TextDelta("lo")
    yield Finished()


def yields(*parts: Any) -> Any:
    async def stream(request: Any) -> AsyncIterator[Any]:
        for part in parts:
            await asyncio.sleep(0)
            yield part

    return Bad(stream)


async def awaited(request: Any) -> Any:
    return fine(request)


def once() -> Any:
    seen: list[Any] = []

    async def stream(request: Any) -> AsyncIterator[Any]:
        seen.append(request)
        if len(seen) > 2:
            raise ModelError("used up")
        yield Finished()

    return Bad(stream)


def alone() -> Any:
    going: list[Any] = []

    async def stream(request: Any) -> AsyncIterator[Any]:
        if going:
            raise ModelError("busy")
        going.append(request)
        try:
            await asyncio.sleep(0.01)
            yield TextDelta("a")
            yield Finished()
        finally:
            going.remove(request)

    return Bad(stream)


async def changes(request: Any) -> AsyncIterator[Any]:
    object.__setattr__(request, "messages", ())
    yield Finished()


async def refuses_results(request: Any) -> AsyncIterator[Any]:
    if any(message.role == "tool" for message in request.messages):
        raise ModelError("HTTP 400: what is a tool?")
    yield Finished()


async def raises_foreign(request: Any) -> AsyncIterator[Any]:
    yield TextDelta("a")
    raise OSError("no route")


async def leaves_a_task(request: Any) -> AsyncIterator[Any]:
    LEFT.append(asyncio.create_task(asyncio.sleep(3600), name="left behind"))
    yield TextDelta("a")
    await asyncio.sleep(0.01)
    yield Finished()


async def swallows(request: Any) -> AsyncIterator[Any]:
    yield TextDelta("a")
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0.05)
    yield Finished()


async def swallows_early(request: Any) -> AsyncIterator[Any]:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0.05)
    yield TextDelta("a")
    yield Finished()


async def stalls(request: Any) -> AsyncIterator[Any]:
    await asyncio.get_running_loop().create_future()
    yield Finished()


CALL = ToolCallDelta(0, "c1", "look_up", "{}")
MODELS: dict[str, tuple[Any, str]] = {
    "context_window": (lambda: Bad(fine, window=0), "it is 0"),
    "stream() returns": (lambda: Bad(awaited), "coroutine"),
    "a response is parts": (lambda: yields("Hello", Finished()), "'Hello'"),
    "it ends with": (lambda: yields(Finished(), TextDelta("a"), Finished()), "[0, 2]"),
    "it ends with Finished, once": (lambda: yields(TextDelta("a")), "[]"),
    "it ends with Finished": (lambda: yields(Finished("error")), "raise a ModelError instead"),
    "calls are": (lambda: yields(ToolCallDelta(0, "c1", None, "{}"), Finished()), "no name: [0]"),
    "calls are told": (lambda: yields(CALL, attrs.evolve(CALL, id="c2"), Finished()), "[0]"),
    "usage counts": (lambda: yields(Usage(1, 1, cache_read=2), Finished()), "more than the whole"),
    "a second request": (once, "used up"),
    "two requests": (alone, "busy"),
    "a conversation": (lambda: Bad(changes), "not what it was"),
    "a conversation with": (lambda: Bad(refuses_results), "what is a tool?"),
    "stream() returns an async": (lambda: Bad(raises_foreign), "OSError, and not a ModelError"),
    "left after": (lambda: Bad(leaves_a_task), "left behind"),
    "cancelled in the middle": (lambda: Bad(swallows), "swallowed"),
    "cancelled before": (lambda: Bad(swallows_early), "swallowed"),
    "two requests at": (lambda: Bad(stalls), "longer than"),
}
"""Whose promise is broken, by its first words; by which model; and what is said of it."""


class TestModels:
    @pytest.mark.parametrize("promise", MODELS)
    def test_a_broken_promise_is_found(self, promise: str) -> None:
        make, words = MODELS[promise]
        report = simulate(check_model(make(), patience=5.0))
        found = {finding.promise: finding.problem for finding in report.problems}
        assert any(name.startswith(promise) and words in str(problem) for name, problem in found.items()), str(report)

    @pytest.mark.parametrize(
        "make", [generous, lambda: Bad(fine), lambda: Bad(fine, window=9)], ids=["script", "own", "window"]
    )
    def test_a_good_one_passes(self, make: Any) -> None:
        report = simulate(check_model(make()))
        assert report.unwrap() is report
        assert len(report.findings) == 12

    def test_each_promise_can_be_broken(self) -> None:
        """The table above has a model for every line of the report."""
        promises = [finding.promise for finding in simulate(check_model(generous())).findings]
        assert all(any(promise.startswith(name) for name in MODELS) for promise in promises)

    def test_what_is_wrong_is_told_in_one_piece(self) -> None:
        with pytest.raises(ContractBrokenError, match="12 promises, 1 broken") as caught:
            simulate(check_model(Bad(fine, window="large"))).unwrap()
        assert "FAIL  context_window" in str(caught.value)
        assert "ok    usage counts" in str(caught.value)

    def test_a_model_is_asked_with_images_where_it_takes_them(self) -> None:
        model = generous()
        simulate(check_model(model, images=True))
        shown = [message for request in model.requests for message in request.messages if getattr(message, "images", ())]
        assert len(shown) == 1

    def test_a_recording_that_is_over_is_a_finding(self) -> None:
        """What can't be asked twice has not the whole contract, and is told so."""
        report = simulate(check_model(ReplayModel(match=False)))
        assert "is over" in str(report)


@tool
def add(left: int, right: int = 1) -> int:
    """Add two numbers."""
    return left + right


class BadTool:
    """A tool that is `add` but for what is given."""

    def __init__(self, **instead: Any) -> None:
        for name in ("name", "description", "parameters", "mode", "timeout", "resources", "validate", "execute"):
            setattr(self, name, instead.get(name, getattr(add, name)))


async def deaf(arguments: Any, context: Any) -> str:
    for _ in range(5):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3)
    return "done"


async def task_left(arguments: Any, context: Any) -> str:
    LEFT.append(asyncio.create_task(asyncio.sleep(3600), name="left behind"))
    return "done"


def meets(together: list[int]) -> Any:
    async def execute(arguments: Any, context: Any) -> str:
        if together:
            raise RuntimeError("somebody is in here")
        together.append(1)
        try:
            await asyncio.sleep(0.01)
        finally:
            together.pop()
        return "done"

    return execute


def spoils(arguments: dict[str, Any]) -> dict[str, Any]:
    arguments["left"] = 0
    return arguments


def mute(arguments: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(arguments.get("left"), int):
        raise ValueError("no")
    return arguments


UNTOLD = {"type": "object", "properties": {"left": {}}}
TOOLS: dict[str, tuple[Any, str]] = {
    "an agent takes it": (lambda: BadTool(name="a name with spaces"), "can't be a tool's name"),
    "a model is told": (lambda: BadTool(description=" "), "docstring"),
    "a model is told what": (lambda: BadTool(parameters=UNTOLD), "nothing is told: left"),
    "arguments that are right": (lambda: BadTool(validate=lambda arguments: 1 / 0), "is refused"),
    "arguments that are right are": (lambda: BadTool(validate=spoils), "became"),
    "arguments that are wrong": (lambda: BadTool(validate=lambda arguments: arguments), "is taken"),
    "arguments that are wrong are": (lambda: BadTool(validate=mute), "no more than 'no'"),
    "resources()": (lambda: BadTool(resources=lambda arguments: [1]), "[1]"),
    "it returns": (lambda: BadTool(execute=lambda arguments, context: object()), "TypeError"),
    "it returns what": (lambda: BadTool(execute=task_left), "left behind"),
    "calls at once": (lambda: BadTool(execute=meets([])), "somebody is in here"),
    "cancelled": (lambda: BadTool(execute=deaf), "after it was cancelled"),
}


class TestTools:
    @pytest.mark.parametrize("promise", TOOLS)
    def test_a_broken_promise_is_found(self, promise: str) -> None:
        make, words = TOOLS[promise]
        report = simulate(check_tool(make(), good=[{"left": 2}]))
        found = {finding.promise: finding.problem for finding in report.problems}
        assert any(name.startswith(promise) and words in str(problem) for name, problem in found.items()), str(report)

    def test_each_promise_can_be_broken(self) -> None:
        promises = [finding.promise for finding in asyncio.run(check_tool(add, good=[{"left": 2}])).findings]
        assert all(any(promise.startswith(name) for name in TOOLS) for promise in promises)

    @pytest.mark.parametrize("mode", ["parallel", "sequential"])
    def test_a_good_one_passes(self, mode: str) -> None:
        """In a thread, as a plain function is."""
        asyncio.run(check_tool(BadTool(mode=mode), good=[{"left": 1}, {"left": 1, "right": 3}], bad=[{}])).unwrap()

    def test_what_the_caller_calls_bad_must_be_refused(self) -> None:
        report = asyncio.run(check_tool(add, good=[{"left": 2}], bad=[{"left": 3}]))
        assert "{'left': 3} is taken" in str(report)

    def test_nothing_good_is_no_check(self) -> None:
        with pytest.raises(ValueError, match="good must have arguments"):
            asyncio.run(check_tool(add, good=[]))
