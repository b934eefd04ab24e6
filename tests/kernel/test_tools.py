"""Tools of functions: what a model is told, what it may send, how the function is called, what comes back."""

import asyncio
import contextvars
import datetime
import enum
import functools
import gc
import json
import subprocess
import sys
import textwrap
import threading
import typing
from pathlib import Path
from typing import Annotated, Any

import attrs
import msgspec
import pytest

from kernel import ToolContext, ToolResult, tool
from kernel.docstrings import parse_docstring
from kernel.setup import ToolSpec
from kernel.threads import in_thread
from kernel.tools import spec_of, specs_of, to_result


@attrs.frozen
class Range:
    first: int = attrs.field(validator=attrs.validators.ge(1))
    last: int = 10


class Color(enum.Enum):
    RED = "red"


class Context:
    """A `ToolContext` that tests can cancel."""

    call_id = "c1"
    run_id = "r1"

    def __init__(self):
        self.cancelled = False
        self.held: list[asyncio.Future[None]] = []

    def update(self, text: str) -> None: ...

    def hold(self, ended: "asyncio.Future[None]", thread: threading.Thread | None = None) -> None:
        self.held.append(ended)


@tool
def read(  # noqa: D417
    path: str,
    /,
    context: ToolContext,
    ranges: list[Range],
    count: Annotated[int, msgspec.Meta(ge=1)] = 3,
    *,
    color: Color = Color.RED,
    note: str = None,  # type: ignore[assignment]  # noqa: RUF013
) -> str:
    """Read a file,
    or a part of it.

    The model is not told this.

    Args:
        path (str): Where it is,
            from the root.
        count: How many.

    Returns:
        color: not a parameter.

    """
    return f"{path} {context.call_id} {ranges} {count} {color} {note}"


def run(function: Any, arguments: dict[str, Any], context: Any = None) -> Any:
    return asyncio.run(function.execute(function.validate(arguments), context or Context()))


# ---- what a model is told ----


def test_the_description_is_the_first_paragraph():
    """The description is the docstring's first paragraph, on one line."""
    assert read.description == "Read a file, or a part of it."


def test_the_schema_is_the_signature():
    """Each parameter is a property; those without a default are required; nothing else may be sent."""
    assert list(read.parameters["properties"]) == ["path", "ranges", "count", "color", "note"]
    assert read.parameters["required"] == ("path", "ranges")
    assert read.parameters["additionalProperties"] is False


def test_parameters_are_described_by_the_docstring():
    """The texts of the section "Args:" are the descriptions, continuation lines included; other sections are not."""
    properties = read.parameters["properties"]
    assert [properties[name].get("description") for name in ("path", "count", "color")] == [
        "Where it is, from the root.",
        "How many.",
        None,
    ]


def test_constraints_and_defaults_are_in_the_schema():
    """`Annotated` constraints and defaults are told."""
    assert read.parameters["properties"]["count"] == {
        "type": "integer", "minimum": 1, "default": 3, "description": "How many.",
    }  # fmt: skip
    assert read.parameters["properties"]["color"]["default"] == "red"


def test_attrs_classes_are_parameters():
    """A class of attrs is described in `$defs`."""
    assert read.parameters["properties"]["ranges"] == {"type": "array", "items": {"$ref": "#/$defs/Range"}}
    assert read.parameters["$defs"]["Range"]["required"] == ("first",)


def test_a_default_of_none_allows_null():
    """Models send null for what they leave out: with None as its default, a parameter takes it."""
    assert read.validate({"path": "a", "ranges": [], "note": None})["note"] is None


def test_a_string_in_annotated_is_the_description():
    """`Annotated[str, "…"]` describes a parameter, before the docstring does."""

    @tool
    def look(where: Annotated[str, "the place"]) -> str:
        """Look.

        Args:
            where: not this

        """
        return where

    assert look.parameters["properties"]["where"]["description"] == "the place"


def test_a_class_named_like_ours_is_no_trouble():
    """A parameter's class may be called `Arguments`, as the struct that holds them is."""
    Arguments = attrs.make_class("Arguments", {"x": attrs.field(type=int)})

    def look(x: Arguments) -> str:  # type: ignore[valid-type]
        return ""

    look.__annotations__["x"] = Arguments
    assert tool(look).validate({"x": {"x": 1}}) == {"x": Arguments(1)}


@pytest.mark.parametrize(
    "text",
    [
        "Do it.\n\n:param path: Where it is.\n:param str other: What else.\n:returns: nothing",
        "Do it.\n\nParameters:\n  path: Where it is.\n  other (str, optional): What else.\n\nNotes:\n  path: no",
        "Do it.\nArgs:\n    path: Where\n      it is.\n    other: What else.\n",
        "Do it.\n\nParameters\n----------\npath : str\n    Where\n    it is.\nother : int, optional\n    What else.\nbare\n"
        "\nReturns\n-------\nresult : str\n    Not this.",
        "Do it.\nOther Parameters\n----------------\npath\n    Where it is.\n\nother\n    What else.",
    ],
    ids=["sphinx", "google", "google without a blank line", "numpy", "numpy without types"],
)
def test_each_style_of_docstrings_are_read(text: str):
    """The Google, the Sphinx and the NumPy style say the same."""
    docs = parse_docstring(text)
    assert (docs.summary, docs.parameters) == ("Do it.", {"path": "Where it is.", "other": "What else."})


def test_parameters_that_share_a_text_share_it():
    """The NumPy style may describe some parameters at once."""
    docs = parse_docstring("Move.\n\nParameters\n----------\nx, *y : int\n    Where to.")
    assert docs.parameters == {"x": "Where to.", "y": "Where to."}


def test_no_docstring_is_no_description():
    """Without a docstring the description is empty, and can be given."""
    assert tool(lambda_named()).description == ""
    assert tool(description="Given.")(lambda_named()).description == "Given."


def lambda_named() -> Any:
    def plain() -> str:
        return ""

    return plain


# ---- what is refused when the tool is made ----


def starred(*paths: str) -> str: ...


def double_starred(**options: str) -> str: ...


def bare(path) -> str: ...


def unknown(path: "Nowhere") -> str: ...  # type: ignore[name-defined]  # noqa: F821


def untellable(path: complex) -> str: ...


def final(path: "typing.Final[int]") -> str: ...


@attrs.frozen
class Stripped:
    text: str = attrs.field(converter=str.strip)


@attrs.frozen
class Counted:
    count: int = attrs.field(init=False, default=0)


@attrs.frozen
class Box:
    items: tuple[Counted, ...] = ()
    inner: "Box | None" = None


def converted(texts: list[Stripped | None]) -> str: ...


def uninitialised(item: dict[str, Box]) -> str: ...


class Shelf:
    def method(self, path: str) -> str:
        return f"{type(self).__name__} {path}"

    def __call__(self, path: str) -> str:
        """Take it."""
        return path


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (starred, ["starred", "*paths"]),
        (double_starred, ["double_starred", "**options"]),
        (bare, ["bare", "parameter path", "no annotation"]),
        (unknown, ["unknown", "Nowhere"]),
        (untellable, ["untellable", "parameter path", "complex"]),
        (final, ["final", "typing.Final[int]"]),
        (converted, ["converted", "parameter texts", "Stripped.text has a converter"]),
        (uninitialised, ["uninitialised", "parameter item", "Counted.count has init=False"]),
        (Shelf.method, ["parameter self", "bound method"]),
        (Shelf, ["not of"]),
        (3, ["not of 3"]),
        (functools.partial(lambda_named()), ["no name", "name="]),
        (staticmethod(lambda_named()), ["function"]),
    ],
    ids=str,
)
def test_what_no_model_can_be_told_is_refused(function: Any, words: list[str]):
    """What can't be a tool is a TypeError when it is decorated, which names the function and the parameter."""
    with pytest.raises(TypeError) as caught:
        tool(function)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": "a b"}, ValueError),
        ({"name": "x" * 65}, ValueError),
        ({"name": ""}, ValueError),
        ({"mode": "both"}, ValueError),
        ({"replay": "always"}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": float("inf")}, ValueError),
        ({"timeout": True}, TypeError),
        ({"resources": "path"}, TypeError),
        ({"description": 3}, TypeError),
    ],
    ids=str,
)
def test_options_are_checked_when_the_tool_is_made(options: dict[str, Any], error: type[Exception]):
    """A wrong option is refused by the decorator and not by the agent later."""
    with pytest.raises(error):
        tool(**options)(lambda_named())


def test_bound_methods_partials_and_objects_are_tools():
    """A bound method, a partial with a name, and an object that can be called are tools as functions are."""
    assert run(tool(Shelf().method), {"path": "a"}) == "Shelf a"
    assert run(tool(name="part")(functools.partial(Shelf().method, path="b")), {}) == "Shelf b"
    taken = tool(name="take")(Shelf())
    assert (taken.description, run(taken, {"path": "c"})) == ("Take it.", "c")


def test_a_tool_is_still_the_function():
    """Called in Python, a tool is the function that it was made of."""
    assert tool(Shelf().method)("x") == "Shelf x"


# ---- arguments ----


def test_arguments_get_their_types_and_defaults():
    """`validate` gives the arguments as the function takes them, with the defaults."""
    assert read.validate({"path": "a", "ranges": [{"first": 2}]}) == {
        "path": "a",
        "ranges": [Range(2)],
        "count": 3,
        "color": Color.RED,
        "note": None,
    }


def test_a_changeable_default_is_never_shared():
    """A list as a default is a new one for each call."""

    @tool
    def collect(items: list[int] = [1]) -> str:  # noqa: B006
        return ""

    collect.validate({})["items"].append(2)
    assert collect.validate({}) == {"items": [1]}
    assert collect.parameters["properties"]["items"]["default"] == (1,)


def test_bad_arguments_are_told_so_that_the_call_can_be_mended():
    """The error names the tool, each fault with its place, and what is expected."""
    with pytest.raises(ValueError, match="arguments of read") as caught:
        read.validate({"ranges": [{"first": 1}, {"first": "x"}, {}], "count": 0, "size": 1})
    text = str(caught.value)
    faults, _, schema = text.partition(" Expected parameters (JSON Schema): ")
    assert "`path` is missing" in faults
    assert "`ranges[1].first`: Expected `int`, got `str`" in faults
    assert "`count`: Expected `int` >= 1" in faults
    assert "there is no parameter `size`" in faults
    assert json.loads(schema)["required"] == ["path", "ranges"]


def test_a_validator_of_a_class_speaks_to_the_model():
    """What the class of a parameter refuses is a fault like others, with its place."""
    with pytest.raises(ValueError, match=r"`ranges\[0\]`: 'first' must be >= 1: 0"):
        read.validate({"path": "a", "ranges": [{"first": 0}]})


def test_a_class_that_fails_on_its_arguments_is_a_fault_of_the_arguments():
    """Whatever a validator raises names the tool and the parameter, as what it is meant to raise does."""

    def fail(*_: Any) -> None:
        raise RuntimeError("out of paper")

    Ink = attrs.make_class("Ink", {"x": attrs.field(type=int, validator=fail)})

    def print_it(ink: Ink) -> str:  # type: ignore[valid-type]
        return ""

    print_it.__annotations__["ink"] = Ink
    with pytest.raises(ValueError, match="arguments of print_it do not fit: `ink`: out of paper"):
        tool(print_it).validate({"ink": {"x": 1}})


def test_arguments_without_end_are_a_fault():
    """Arguments that are nested beyond measure are refused, and do not break the process."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    @tool
    def take(items: list[Any], flag: bool) -> str:
        return ""

    with pytest.raises(ValueError, match="arguments of take"):
        take.validate({"items": deep, "flag": 1})


def test_strings_are_not_numbers():
    """Nothing is guessed: "3" is not 3."""
    with pytest.raises(ValueError, match="`count`: Expected `int`, got `str`"):
        read.validate({"path": "a", "ranges": [], "count": "3"})


# ---- execution ----


def test_the_function_gets_its_arguments_and_the_context():
    """Positional-only and keyword-only parameters get theirs, and the context is filled in."""
    assert run(read, {"path": "a", "ranges": [], "note": "n"}) == "a c1 [] 3 Color.RED n"


def test_an_async_function_runs_in_the_loop():
    """An async function is awaited in the loop's own thread."""

    @tool
    async def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert run(where, {}) is True


def test_a_sync_function_runs_in_a_daemon_thread():
    """A synchronous function does not hold up the loop, and can't hold up the end of the process."""

    @tool
    def where() -> tuple[bool, bool, str]:
        thread = threading.current_thread()
        return thread is threading.main_thread(), thread.daemon, thread.name

    assert run(where, {}) == (False, True, "tool where")


def test_what_a_sync_function_returns_may_be_awaitable():
    """A function that wraps an async one without saying so is awaited all the same."""

    async def inner() -> str:
        return "done"

    @tool
    def outer() -> Any:
        return inner()

    assert run(outer, {}) == "done"


def test_context_variables_reach_the_thread():
    """A synchronous function sees the context variables of the task that called it."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    @tool
    def look() -> str:
        return variable.get()

    async def main() -> Any:
        variable.set("seen")
        return await look.execute({}, Context())

    assert asyncio.run(main()) == "seen"


@pytest.mark.parametrize(
    "error", [ValueError("no"), StopIteration(), SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt()]
)
def test_whatever_a_thread_raises_is_an_exception_of_the_call(error: BaseException):
    """A synchronous tool can end neither the loop nor the run: what it raises is an ordinary exception."""

    @tool
    def fail() -> str:
        raise error

    with pytest.raises(ValueError if isinstance(error, ValueError) else RuntimeError):
        run(fail, {})


def test_a_cancelled_call_returns_at_once_and_its_thread_can_see_why():
    """The task does not wait for the thread; the thread sees `cancelled`; the context is told when it has ended."""
    entered, go, seen = threading.Event(), threading.Event(), []

    @tool
    def wait(context: ToolContext) -> str:
        entered.set()
        go.wait()
        seen.append(context.cancelled)
        return "late"

    async def main() -> None:
        context = Context()
        task = asyncio.ensure_future(wait.execute({}, context))
        await in_thread(entered.wait, name="test")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        context.cancelled = True
        (ended,) = context.held
        assert not ended.done()
        go.set()
        await ended

    asyncio.run(main())
    assert seen == [True]


def test_a_result_that_comes_after_the_loop_is_dropped():
    """When the loop is closed before the thread ends, nothing is raised anywhere."""
    go, raised = threading.Event(), []
    thread: list[threading.Thread] = []

    def wait() -> None:
        thread.append(threading.current_thread())
        go.wait()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_thread(wait, name="test"), 0.01)

    before, threading.excepthook = threading.excepthook, raised.append
    try:
        asyncio.run(main())
        go.set()
        thread[0].join()
    finally:
        threading.excepthook = before
    gc.collect()
    assert raised == []


def test_a_thread_that_never_ends_does_not_keep_the_process_alive():
    """The interpreter ends although a synchronous tool is stuck for ever."""
    program = """
        import asyncio, threading
        from kernel import tool

        @tool
        def stuck() -> str:
            threading.Event().wait()

        try:
            asyncio.run(asyncio.wait_for(stuck.execute({}, None), 0.01))
        except TimeoutError:
            print("over")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("over\n", "")


# ---- results ----


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "a\nb"),
        (None, ""),
        ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
        ([Range(1)], '[{"first":1,"last":10}]'),
        ({1: Color.RED}, '{"1":"red"}'),
        (Color.RED, "red"),
        (datetime.date(2026, 3, 1), "2026-03-01"),
        (Path("/a/b"), "/a/b"),
        ([Path("/a/b")], '["/a/b"]'),
        (b"caf\xc3\xa9", "café"),
        (2**70, "1180591620717411303424"),
        (1.5, "1.5"),
        (False, "false"),
    ],
    ids=repr,
)
def test_results_become_text(value: Any, text: str):
    """Text stays, None is no text, and all else is JSON or its own text."""
    assert to_result(value) == ToolResult(text)


def test_a_result_stays_itself():
    """A `ToolResult` is handed on as it is."""
    result = ToolResult("no", is_error=True)
    assert to_result(result) is result


def endless() -> Any:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [object(), [object()], {(1, 2): 3}, endless(), ["\ud800"], (n for n in "ab"), iter("ab")],
    ids=["object", "list", "key", "cycle", "half", "generator", "iterator"],
)
def test_what_has_no_text_is_told(value: Any):
    """What can't be made text is a TypeError that says what to return instead."""
    with pytest.raises(TypeError, match="Return a string, a ToolResult, or what JSON can say"):
        to_result(value)


# ---- specs ----


class Bare:
    """The least that is a tool."""

    def __init__(self, **fields: Any):
        self.name = "bare"
        self.description = "Do."
        self.parameters = {"type": "object"}
        self.execute = lambda arguments, context: ""
        vars(self).update(fields)


def test_a_tool_of_any_make_has_a_spec():
    """Anything of the right shape is taken, with defaults for what it does not say, and any arguments."""
    bare_tool = Bare()
    spec = spec_of(bare_tool)  # type: ignore[arg-type]
    assert spec == ToolSpec("bare", "Do.", {"type": "object"}, bare_tool.execute, spec.validate)
    assert spec.validate({"any": 1}) == {"any": 1}


def test_a_spec_does_not_change_with_its_tool():
    """The spec is what the tool was when it was handed in, the schema included."""
    bare_tool = Bare()
    spec = spec_of(bare_tool)  # type: ignore[arg-type]
    bare_tool.parameters["type"] = "string"
    bare_tool.name = "other"
    assert (spec.name, spec.parameters) == ("bare", {"type": "object"})


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"name": "a.b"}, ValueError, "'a.b'"),
        ({"name": "a\n"}, ValueError, "a tool's name"),
        ({"name": 3}, TypeError, "3"),
        ({"description": None}, TypeError, "description of bare"),
        ({"parameters": [1]}, TypeError, "parameters of bare"),
        ({"parameters": {"x": object()}}, TypeError, "not JSON"),
        ({"parameters": {"type": "array"}}, ValueError, "'array'"),
        ({"execute": 3}, TypeError, "execute"),
        ({"validate": 3}, TypeError, "validate of bare"),
        ({"resources": "path"}, TypeError, "resources of bare"),
        ({"timeout": "1"}, TypeError, "timeout of bare"),
        ({"mode": 1}, ValueError, "mode of bare"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_field_is_named(fields: dict[str, Any], error: type[Exception], words: str):
    """A wrong field of a tool is refused by an error that names the argument, the tool and the field."""
    with pytest.raises(error, match=r"^tools: ") as caught:
        spec_of(Bare(**fields))  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_specs_keep_their_order():
    """The specs are by name, in the order of the tools."""
    assert list(specs_of([Bare(name="b"), Bare(name="a")])) == ["b", "a"]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("tools", "error", "words"),
    [
        ([Bare(), Bare()], ValueError, "two of them have the name 'bare'"),
        ([starred], TypeError, "starred is a plain function; put @tool above it"),
        ([Bare], TypeError, "Bare is a class"),
        ([3], TypeError, "3 is not a tool: it has no name"),
        (read, TypeError, "must be a sequence of tools"),
        ("read", TypeError, "must be a sequence of tools"),
        ({"read": read}, TypeError, "must be a sequence of tools"),
        (None, TypeError, "must be a sequence of tools"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_tool_is_refused(tools: Any, error: type[Exception], words: str):
    """Duplicates, functions, classes, anything else, and what is no sequence of tools: an error that names `tools`."""
    with pytest.raises(error, match=r"^tools") as caught:
        specs_of(tools)
    assert words in str(caught.value)
