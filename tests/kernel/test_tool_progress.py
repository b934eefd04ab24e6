"""Tools that tell their progress by yielding it, and the kinds of functions that a tool is made of."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import pytest

from kernel import Agent, ToolContext, ToolMessage, ToolResult, tool
from kernel.config import KernelConfig
from kernel.testing import ScriptedModel, call, say
from kernel.threads import in_thread
from kernel.tools import foreign_tool


class Context:
    """A `ToolContext` that remembers what it was told."""

    call_id = "c1"
    run_id = "r1"
    cancelled = False

    def __init__(self) -> None:
        self.said: list[str] = []
        self.held: list[asyncio.Future[None]] = []

    def update(self, text: str) -> None:
        self.said.append(text)

    def hold(self, ended: "asyncio.Future[None]", thread: threading.Thread | None = None) -> None:
        self.held.append(ended)


def count(to: int) -> Generator[str, None, str]:
    """Count."""
    for number in range(to):
        yield str(number)
    return f"counted to {to}"


async def count_async(to: int) -> AsyncIterator[str | ToolResult]:
    """Count."""
    for number in range(to):
        yield str(number)
    yield ToolResult(f"counted to {to}")


@functools.wraps(count)
def hidden(*args: Any, **kwargs: Any) -> Any:
    return count(*args, **kwargs)


class Counter:
    def count(self, to: int) -> Generator[str, None, str]:
        return (yield from count(to))

    def __call__(self, to: int) -> Generator[str, None, str]:
        return (yield from count(to))


class AsyncCounter:
    def count(self, to: int) -> AsyncIterator[str | ToolResult]:
        return count_async(to)

    async def __call__(self, to: int) -> AsyncIterator[str | ToolResult]:
        async for each in count_async(to):
            yield each


def run(function: Any, arguments: dict[str, Any], context: Any = None) -> Any:
    return asyncio.run(function.execute(function.validate(arguments), context or Context()))


def text(value: Any) -> Any:
    return value.content[0].text if isinstance(value, ToolResult) else value


@pytest.mark.parametrize(
    "function",
    [
        count, count_async, hidden, Counter().count, Counter(), AsyncCounter().count, AsyncCounter(),
        functools.partial(count), functools.partial(functools.partial(count_async)), functools.partial(AsyncCounter()),
    ],
    ids=["generator", "async generator", "decorated", "method", "object", "method that returns one", "async object",
         "partial", "partial of a partial", "partial of an object"],
)  # fmt: skip
def test_what_a_generator_yields_is_its_progress(function: Callable[..., Any]):
    """Each yielded string is an update, and what is returned, or yielded as a result, is the result."""
    context = Context()
    assert text(run(tool(name="count")(function), {"to": 2}, context)) == "counted to 2"
    assert context.said == ["0", "1"]


def test_an_agent_tells_what_a_generator_yields():
    """In a run, the progress of a generator is `tool.updated` and its result the tool's message."""
    said = []
    agent = Agent(ScriptedModel([[call("c1", "count", to=2)], say("done")]), tools=[tool(count)])
    agent.subscribe(lambda event: said.append(event.text) if event.type == "tool.updated" else None)
    result = agent.run_sync("go")
    assert said == ["0", "1"]
    assert [each.text for each in result.messages if isinstance(each, ToolMessage)] == ["counted to 2"]


def yields_a_number() -> Any:
    yield 1


async def yields_a_number_async() -> Any:
    yield 1


def returns_nothing() -> Any:
    yield "half"


async def returns_nothing_async() -> Any:
    yield "half"


async def goes_on_after_its_result() -> Any:
    yield ToolResult("done")
    yield "more"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (yields_a_number, "yielded 1: it yields strings"),
        (yields_a_number_async, "yielded 1: it yields strings"),
        (returns_nothing, "returned no result"),
        (returns_nothing_async, "ended without a result: yield a ToolResult last"),
        (goes_on_after_its_result, "yielded 'more' after its result"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_ambiguous_is_refused(function: Callable[..., Any], words: str):
    """A generator that yields something else than progress, or has no result, is an error that names the tool."""
    with pytest.raises(TypeError, match=f"tool {function.__name__} .*{words}"):
        run(tool(function), {})


@pytest.mark.parametrize("kind", ["ordinary", "async"])
def test_a_generator_that_is_refused_is_closed(kind: str):
    """A wrong `yield` ends the generator there and then, whoever else still refers to it."""
    closed, kept = [], []

    def ordinary() -> Any:
        try:
            yield 1
        finally:
            closed.append(threading.current_thread())

    async def awaiting() -> Any:
        try:
            yield 1
        finally:
            closed.append(threading.current_thread())

    function = ordinary if kind == "ordinary" else awaiting

    @functools.wraps(function)
    def keep() -> Any:
        kept.append(function())
        return kept[0]

    async def main() -> None:
        with pytest.raises(TypeError):
            await tool(keep).execute({}, Context())
        assert len(closed) == 1

    asyncio.run(main())


def test_a_generator_that_fails_says_so_itself():
    """What a generator raises is what its call raises."""

    @tool
    def fail() -> Any:
        yield "half"
        raise LookupError("no page")

    with pytest.raises(LookupError, match="no page"):
        run(fail, {})


def test_a_cancelled_generator_is_closed_by_its_own_thread():
    """A cancel does not wait for the step that a generator is in; at its next `yield` its `finally` runs, where it ran."""
    entered, go, threads = threading.Event(), threading.Event(), []

    @tool
    def wait() -> Any:
        threads.append(threading.current_thread())
        try:
            entered.set()
            go.wait()
            yield "late"
            threads.append(None)
        finally:
            threads.append(threading.current_thread())

    async def main() -> Context:
        context = Context()
        task = asyncio.ensure_future(wait.execute({}, context))
        await in_thread(entered.wait, name="test")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        (ended,) = context.held
        await ended
        return context

    asyncio.run(main())
    assert len(threads) == 2
    assert threads[0] is threads[1] is not threading.main_thread()


def test_a_generator_whose_time_is_over_is_closed_and_listed_until_it_is():
    """After a timeout the call has its error result; its thread is in `agent.abandoned` until the generator is closed."""
    go, closed = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def wait() -> Any:
        try:
            go.wait()
            yield "late"
        finally:
            closed.set()

    async def main() -> None:
        async with Agent(ScriptedModel([[call("c1", "wait")], say("done")]), tools=[wait]) as agent:
            result = await agent.prompt("go")
            assert "timed out" in result.messages[2].text
            (left,) = agent.abandoned
            assert left.name == "wait"
            go.set()
            await in_thread(closed.wait, name="test")
            while agent.abandoned:
                await asyncio.sleep(0)

    asyncio.run(main())


def test_a_cancelled_async_generator_is_closed_before_the_call_ends():
    """The `finally` of an async generator runs in the cancelled call itself, and may await."""
    order = []

    @tool
    async def wait() -> Any:
        try:
            yield "waiting"
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append("closed")

    async def main() -> None:
        async with Agent(
            ScriptedModel([[call("c1", "wait")], say("done")]), tools=[wait], config=KernelConfig(cancel_grace=60)
        ) as agent:
            agent.subscribe(lambda event: agent.cancel() if event.type == "tool.updated" else None)
            result = await agent.prompt("go")
            order.append(result.status)

    asyncio.run(main())
    assert order == ["closed", "cancelled"]


def test_an_async_object_runs_in_the_loop():
    """An object whose `__call__` is async is awaited in the loop's own thread, as a function is."""

    class Where:
        async def __call__(self) -> bool:
            return threading.current_thread() is threading.main_thread()

    assert run(tool(name="where")(Where()), {}) is True
    assert run(tool(name="where")(functools.partial(Where())), {}) is True


# ---- tools with a schema of their own ----

SCHEMA = {"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}


def ordinary(arguments: dict[str, Any], context: ToolContext) -> str:
    return f"{arguments} {context.call_id} {threading.current_thread() is threading.main_thread()}"


async def awaited(arguments: dict[str, Any], context: ToolContext) -> str:
    return ordinary(arguments, context)


def generated(arguments: dict[str, Any], context: ToolContext) -> Any:
    yield "half"
    return ordinary(arguments, context)


@pytest.mark.parametrize(("execute", "on_loop"), [(ordinary, False), (awaited, True), (generated, False)])
def test_a_foreign_schema_makes_a_tool_of_any_function(execute: Callable[..., Any], on_loop: bool):
    """`foreign_tool` gives the function its arguments, checked by the schema, and runs it as `@tool` does."""
    made = foreign_tool("up", "Count up.", SCHEMA, execute)
    agent = Agent(ScriptedModel([[call("c1", "up", to="x"), call("c2", "up", to=3)], say("done")]), tools=[made])
    results = [each.text for each in agent.run_sync("go").messages if isinstance(each, ToolMessage)]
    assert results[0].startswith("The arguments of up do not fit: $.to")
    assert results[1] == f"{{'to': 3}} c2 {on_loop}"


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"execute": None}, TypeError, "execute of up must be callable"),
        ({"name": "a b"}, ValueError, "'a b' can't be a tool's name"),
        ({"parameters": {"type": "array"}}, ValueError, "must describe an object"),
        ({"parameters": {"type": "object", "properties": 3}}, ValueError, "not a usable JSON Schema"),
    ],
    ids=str,
)
def test_a_foreign_tool_is_checked_when_it_is_made(fields: dict[str, Any], error: type[Exception], words: str):
    """What no agent could take is refused at once."""
    with pytest.raises(error, match=words):
        foreign_tool(**{"name": "up", "description": "", "parameters": SCHEMA, "execute": ordinary, **fields})
