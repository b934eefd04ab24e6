"""Tools out of functions, and tools of any make as the agent keeps them.

`@tool` makes a `FunctionTool` of a function: its signature is the schema, its docstring the description; `foreign_tool`
takes a schema that is there already. `spec_of` reads the fields of anything that has the shape of a tool, once, when it is
handed in. `to_result` makes a result of whatever a tool returns.
"""

import functools
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeVar, final, overload

from attrs import field, frozen

from kernel.checks import is_seconds
from kernel.frozen import FrozenDict, freeze
from kernel.ports import Tool, ToolContext, ToolResult
from kernel.progress import call_function, starts_on_loop
from kernel.schema import Validator, schema_validator
from kernel.setup import ToolSpec

if TYPE_CHECKING:
    from kernel.signatures import Signature

P = ParamSpec("P")
R = TypeVar("R")
Mode = Literal["parallel", "sequential"]
Replay = Literal["never", "safe"]
Resources = Callable[[dict[str, Any]], Sequence[str]]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what all large providers accept


@final
@frozen(eq=False, kw_only=True)
class FunctionTool(Generic[P, R]):
    """A function as a tool. Called, it is still the function."""

    function: Callable[P, R] = field(repr=False)
    name: str
    description: str = field(repr=False)
    parameters: FrozenDict = field(repr=False)
    mode: Mode = "parallel"
    timeout: float | None = None
    replay: Replay = "never"
    resources: Resources | None = field(default=None, repr=False)
    _signature: "Signature" = field(repr=False)
    _spec: ToolSpec | None = field(default=None, init=False, repr=False)
    """What an agent takes of it, which never changes: made once, and shared by all agents."""
    _on_loop: bool = field(init=False, repr=False)

    @_on_loop.default
    def _look(self) -> bool:
        return starts_on_loop(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """*arguments* as the function takes them, defaults included; ValueError tells how to mend them."""
        return self._signature.convert(arguments)

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """What the function returns: awaited when it is async, called in a daemon thread when it is not."""
        call = self._signature.bind(self.function, arguments, context)
        return await call_function(call, self.name, context, on_loop=self._on_loop)


@final
@frozen(eq=False, kw_only=True)
class ForeignTool:
    """A function of the arguments and the context, with a JSON Schema that came from elsewhere; see `foreign_tool`."""

    name: str
    description: str = field(repr=False)
    parameters: Mapping[str, Any] = field(repr=False)
    mode: Mode = "parallel"
    timeout: float | None = None
    replay: Replay = "never"
    resources: Resources | None = field(default=None, repr=False)
    _function: Callable[[dict[str, Any], ToolContext], Any] = field(repr=False)
    _on_loop: bool = field(init=False, repr=False)

    @_on_loop.default
    def _look(self) -> bool:
        return starts_on_loop(self._function)

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """What the function returns: awaited when it is async, called in a daemon thread when it is not."""
        call = functools.partial(self._function, arguments, context)
        return await call_function(call, self.name, context, on_loop=self._on_loop)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    mode: Mode = "parallel",
    timeout: float | None = None,
    replay: Replay = "never",
    resources: Resources | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    mode: Mode = "parallel",
    timeout: float | None = None,
    replay: Replay = "never",
    resources: Resources | None = None,
) -> Any:
    """Make a tool of a function, sync or async: `@tool`, or `@tool(timeout=5)`.

    A generator tells its progress with each string that it yields; its result is what it returns, or, for an async one,
    the `ToolResult` that it yields last.

    >>> @tool
    ... def add(left: int, right: int = 1) -> int:
    ...     '''Add two numbers.'''
    ...     return left + right
    >>> add.parameters["required"], add.validate({"left": 2})
    (('left',), {'left': 2, 'right': 1})
    """
    from kernel.signatures import signature_of  # brings msgspec, which only tools need

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        _refuse_function(function)
        own_name = _own_name(function) if name is None else name
        signature = signature_of(function, own_name)
        made = FunctionTool(
            function=function,
            name=own_name,
            description=signature.summary if description is None else description,
            parameters=signature.schema,
            mode=mode,
            timeout=timeout,
            replay=replay,
            resources=resources,
            signature=signature,
        )
        object.__setattr__(made, "_spec", spec_of(made))  # what can't be handed to an agent is refused here already
        return made

    return make if function is None else make(function)


def foreign_tool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    execute: Callable[[dict[str, Any], ToolContext], Any],
    *,
    mode: Mode = "parallel",
    timeout: float | None = None,
    replay: Replay = "never",
    resources: Resources | None = None,
) -> ForeignTool:
    """A tool whose *parameters* are a JSON Schema that is there already, and `execute(arguments, context)` what it does.

    *execute* may be all that a function of `@tool` may be: async, ordinary (it runs in a thread), or a generator. The
    arguments are checked against the schema; a library does that (`pip install "phasekernel[schema]"`).
    """
    if not callable(execute):
        raise TypeError(f"tools: execute of {name} must be callable, not {execute!r}")
    made = ForeignTool(
        name=name, description=description, parameters=parameters, mode=mode, timeout=timeout, replay=replay,
        resources=resources, function=execute,
    )  # fmt: skip
    spec_of(made)
    return made


def _own_name(function: Any) -> str:
    name = getattr(function, "__name__", None)
    if name is None:
        raise TypeError(f"{function!r} has no name of its own: use tool(name=…)")
    return str(name)


def _refuse_function(function: Any) -> None:
    if isinstance(function, (classmethod, staticmethod)):
        raise TypeError(f"@tool must stand above nothing else than a function: make a tool of {function.__func__!r}")
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"a tool is made of a function, not of {function!r}")


def to_result(value: Any) -> ToolResult:
    """What a tool returned, as a result: text as it is, None as no text, and all else as JSON text.

    >>> to_result({"lines": 3}).content[0].text
    '{"lines":3}'
    """
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(str(value))
    return ToolResult("" if value is None else _text(value))


def _text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode(errors="replace")
    import msgspec

    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_own_text)
        return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(
            f"the tool returned a {type(value).__qualname__} that can't be made text: {error}. "
            "Return a string, a ToolResult, or what JSON can say"
        ) from error


def _own_text(value: Any) -> str:
    kind: Any = type(value)
    if isinstance(value, Iterator | AsyncIterator | Awaitable):
        raise TypeError(f"a {kind.__qualname__} must be gone through or awaited first")
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise TypeError(f"{kind.__qualname__} has no text of its own")
    return str(value)


def specs_of(tools: Iterable[Tool]) -> dict[str, ToolSpec]:
    """The specs of *tools* by their names, in this order. Two of one name are refused."""
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise TypeError(f"tools must be a sequence of tools, not {tools!r}")
    specs: dict[str, ToolSpec] = {}
    for each in tools:
        spec = spec_of(each)
        if spec.name in specs:
            raise ValueError(f"tools: two of them have the name {spec.name!r}")
        specs[spec.name] = spec
    return specs


def spec_of(tool: Tool) -> ToolSpec:
    """The fields of *tool* as they are now, checked; TypeError or ValueError tells what is wrong with which tool."""
    if type(tool) is FunctionTool and tool._spec is not None:
        return tool._spec
    _refuse_shape(tool)
    name = _name(tool.name)
    parameters = _parameters(name, tool.parameters)
    return ToolSpec(
        name=name,
        description=_typed(name, "description", tool.description, str),
        parameters=parameters,
        execute=tool.execute,
        validate=_validate(name, tool, parameters),
        mode=_one_of(name, "mode", getattr(tool, "mode", "parallel"), ("parallel", "sequential")),
        timeout=_timeout(name, getattr(tool, "timeout", None)),
        resources=_callable_or_none(name, "resources", getattr(tool, "resources", None)),
        replay=_one_of(name, "replay", getattr(tool, "replay", "never"), ("never", "safe")),
    )


def _refuse_shape(tool: Any) -> None:
    if isinstance(tool, type):
        raise TypeError(f"tools: {tool.__name__} is a class; hand in an instance")
    missing = [part for part in ("name", "description", "parameters", "execute") if not hasattr(tool, part)]
    if not missing and callable(tool.execute):
        return
    if inspect.isroutine(tool):
        raise TypeError(f"tools: {tool.__name__} is a plain function; put @tool above it")
    reason = f"it has no {', '.join(missing)}" if missing else "its execute can't be called"
    raise TypeError(f"tools: {tool!r} is not a tool: {reason}")


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"tools: a name must be a str, not {name!r}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"tools: {name!r} can't be a tool's name: 1 to 64 letters, digits, _ and - are allowed")
    return name


def _parameters(name: str, parameters: Any) -> FrozenDict:
    _typed(name, "parameters", parameters, Mapping)
    import msgspec

    try:
        frozen_parameters: FrozenDict = freeze(parameters)
        msgspec.json.encode(frozen_parameters)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"tools: the parameters of {name} are not JSON: {error}") from error
    if frozen_parameters.get("type", "object") != "object":
        raise ValueError(f"tools: the parameters of {name} must describe an object, not the type {parameters['type']!r}")
    return frozen_parameters


def _validate(name: str, tool: Any, parameters: FrozenDict) -> Validator:
    validate = _callable_or_none(name, "validate", getattr(tool, "validate", None))
    return schema_validator(parameters, name=name) if validate is None else validate


def _typed(name: str, part: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"tools: {part} of {name} must be a {kind.__name__}, not {value!r}")
    return value


def _callable_or_none(name: str, part: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise TypeError(f"tools: {part} of {name} must be callable or None, not {value!r}")
    if inspect.iscoroutinefunction(value):
        raise TypeError(f"tools: {part} of {name} must be an ordinary function, not an async one")
    return value


def _one_of(name: str, part: str, value: Any, allowed: tuple[str, str]) -> Any:
    if value not in allowed:
        raise ValueError(f"tools: {part} of {name} must be {allowed[0]!r} or {allowed[1]!r}, not {value!r}")
    return value


def _timeout(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"tools: timeout of {name} must be a number of seconds or None, not {value!r}")
    if not is_seconds(value):
        raise ValueError(f"tools: timeout of {name} must be finite and not negative, not {value!r}")
    return value
