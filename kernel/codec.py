"""Inputs, messages and events as plain data that JSON can say, and back: the format of journals and traces.

Values are told apart by their class's name in the key `is`. What a model and tools do can't be written down: a `Setup` is
what it says of them, and comes back with the model and the tools of the reader's setup, or inert, good for a replay only.
An exception is written as what it said.

Reading is strict, since what was read by guessing would be replayed as if it had happened: each field is there, also one
that has a default, no other is, and nothing is converted (an integer may stand for a float, as in Python).
"""

import functools
from collections.abc import Callable
from typing import Any, Final, Literal, Union, final, get_args, get_origin

import attrs
from attrs import frozen
from cattrs import BaseValidationError, ForbiddenExtraKeysError, transform_error
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.msgspec import MsgspecJsonConverter, make_converter
from cattrs.strategies import configure_tagged_union

from kernel import events, inputs, messages
from kernel.config import KernelConfig
from kernel.errors import UNWRITTEN, Failure, describe
from kernel.frozen import FrozenDict, freeze
from kernel.idle import Idle
from kernel.jsonl import exact
from kernel.setup import OutputSpec, Setup, ToolSpec

_INPUTS: Any = inputs.Input  # Any: a union is a value here
_EVENTS: Any = Union[  # noqa: UP007
    tuple(kind for kind in vars(events).values() if isinstance(kind, type) and kind.__base__ is events.Event)
]
_CONTENT: Final = messages.Text | messages.Reasoning | messages.ToolCall
_SHOWN: Final = messages.Text | messages.Image
_TAG: Final = "is"


@final
@frozen
class _WrittenTool:
    """What a tool says of itself."""

    name: str
    description: str
    parameters: FrozenDict
    mode: Literal["parallel", "sequential"]
    timeout: float | None
    replay: Literal["never", "safe"]


@final
@frozen
class _WrittenSetup:
    """What a setup says of itself."""

    system_prompt: str
    reasoning_effort: str | None
    context_window: int | None
    tools: tuple[_WrittenTool, ...]
    output_schema: FrozenDict | None


@final
class Codec:
    """Writes values as plain data and reads them again. *setup* stands for the models and tools of what is read.

    Writing raises TypeError for what JSON can't say exactly (a custom message's data, say). What reading raises,
    `explain` can tell.
    """

    def __init__(self, setup: Setup | None = None) -> None:
        self._setup = setup
        self._converter = _converter()

    def dump_input(self, input: inputs.Input) -> dict[str, Any]:
        """*input* as plain data."""
        return self._converter.unstructure(input, _INPUTS)  # type: ignore[no-any-return]

    def load_input(self, data: Any) -> inputs.Input:
        """The opposite of `dump_input`."""
        input = self._converter.structure(data, _INPUTS)
        return inputs.Configure(self._equipped(input.setup)) if type(input) is inputs.Configure else input

    def dump_event(self, event: events.Event) -> dict[str, Any]:
        """*event* as plain data."""
        return self._converter.unstructure(event, _EVENTS)  # type: ignore[no-any-return]

    def load_event(self, data: Any) -> events.Event:
        """The opposite of `dump_event`."""
        return self._converter.structure(data, _EVENTS)  # type: ignore[no-any-return]

    def dump_messages(self, conversation: Any) -> list[Any]:
        """A conversation as plain data."""
        return self._converter.unstructure(list(conversation), list[messages.Message])  # type: ignore[no-any-return]

    def load_messages(self, data: Any) -> list[messages.Message]:
        """The opposite of `dump_messages`."""
        return list(self._converter.structure(data, tuple[messages.Message, ...]))

    def dump_part(self, part: messages.Part) -> dict[str, Any]:
        """A part of a response as plain data."""
        return self._converter.unstructure(part, messages.Part)  # type: ignore[no-any-return]

    def load_part(self, data: Any) -> messages.Part:
        """The opposite of `dump_part`."""
        return self._converter.structure(data, messages.Part)  # type: ignore[arg-type]

    def dump_failure(self, failure: Failure) -> dict[str, Any]:
        """A failure as plain data, without its cause."""
        return self._converter.unstructure(failure)  # type: ignore[no-any-return]

    def load_failure(self, data: Any) -> Failure:
        """The opposite of `dump_failure`."""
        return self._converter.structure(data, Failure)

    def dump_idle(self, idle: Idle) -> dict[str, Any]:
        """The state of an idle core as plain data."""
        return self._converter.unstructure(idle)  # type: ignore[no-any-return]

    def load_idle(self, data: Any) -> Idle:
        """The opposite of `dump_idle`."""
        return self._converter.structure(data, Idle)

    def dump_message(self, message: messages.InputMessage) -> dict[str, Any]:
        """What a user or an application says, as plain data."""
        return self._converter.unstructure(message, messages.InputMessage)  # type: ignore[no-any-return]

    def load_message(self, data: Any) -> messages.InputMessage:
        """The opposite of `dump_message`."""
        return self._converter.structure(data, messages.InputMessage)  # type: ignore[arg-type]

    def dump_setup(self, setup: Setup) -> dict[str, Any]:
        """What *setup* says of its model and tools, as plain data."""
        return self._converter.unstructure(setup)  # type: ignore[no-any-return]

    def load_setup(self, data: Any) -> Setup:
        """The opposite of `dump_setup`."""
        return self._equipped(self._converter.structure(data, Setup))

    def _equipped(self, said: Setup) -> Setup:
        """What was read, with the model and the tools of the reader's setup."""
        setup = self._setup
        if setup is None:
            return said
        if unknown := [name for name in said.tools if name not in setup.tools]:
            raise ValueError(f"the configuration names tools that the setup does not have: {', '.join(unknown)}")
        tools = {name: setup.tools[name] for name in said.tools}
        output = said.output and (setup.output or said.output)
        return attrs.evolve(said, model=setup.model, stream=setup.stream, tools=tools, output=output)

    def dump_config(self, config: KernelConfig) -> dict[str, Any]:
        """A configuration as plain data."""
        return self._converter.unstructure(config)  # type: ignore[no-any-return]

    def load_config(self, data: Any) -> KernelConfig:
        """The opposite of `dump_config`."""
        return self._converter.structure(data, KernelConfig)


@functools.cache
def _converter() -> MsgspecJsonConverter:
    """What all codecs share: making it takes some hundredths of a second."""
    made = make_converter(forbid_extra_keys=True)
    for kind in (str, int, bool):
        made.register_structure_hook(kind, _only(kind))
    made.register_structure_hook(float, _number)
    made.register_structure_hook(FrozenDict, _object)
    made.register_structure_hook(Any, lambda value, _: freeze(value))
    made.register_unstructure_hook(FrozenDict, exact)
    made.register_structure_hook_factory(_is_tuple, functools.partial(_sequence, made))
    made.register_structure_hook_factory(attrs.has, functools.partial(_whole, made))
    made.register_unstructure_hook(Setup, lambda setup: made.unstructure(_written(setup)))
    made.register_structure_hook(Setup, lambda value, _: _inert_setup(made.structure(value, _WrittenSetup)))
    data = override(unstruct_hook=exact)
    made.register_unstructure_hook(
        messages.CustomMessage, make_dict_unstructure_fn(messages.CustomMessage, made, data=data)
    )
    for union in (_CONTENT, _SHOWN, messages.InputMessage, messages.Message, messages.Part):
        configure_tagged_union(union, made, tag_name=_TAG)
    # Between the two, since each of these functions is made once, of what is known then, and is asked for by the next.
    for partly in (Failure, inputs.OutputChecked, events.RunResult):
        made.register_unstructure_hook(partly, make_dict_unstructure_fn(partly, made, **_omitted(partly)))
    for union in (_INPUTS, _EVENTS):
        configure_tagged_union(union, made, tag_name=_TAG)
    return made


def _whole(converter: MsgspecJsonConverter, kind: Any) -> Callable[[Any, Any], Any]:
    """Reads a class of which each field must be there."""
    omitted = _omitted(kind)
    names = {field.name for field in attrs.fields(kind) if field.init} - omitted.keys()
    take = make_dict_structure_fn(kind, converter, **omitted)

    def structure(value: Any, _: Any) -> Any:
        _object(value, kind)
        if missing := sorted(names - value.keys()):
            raise ValueError(f"{kind.__name__} has no {', '.join(missing)}")
        return take(value, kind)

    return structure


def _omitted(kind: Any) -> dict[str, Any]:
    return {field.name: override(omit=True) for field in attrs.fields(kind) if field.metadata == UNWRITTEN}


def _sequence(converter: MsgspecJsonConverter, kind: Any) -> Callable[[Any, Any], Any]:
    """Reads a tuple from a list: of any length with `...`, else of just these."""
    items = get_args(kind)
    hooks = [converter.get_structure_hook(item) for item in items if item is not ...]

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError(f"{value!r} is no list")
        if items[-1] is ...:
            return tuple(hooks[0](item, items[0]) for item in value)
        if len(value) != len(hooks):
            raise ValueError(f"{value!r} does not have {len(hooks)} items")
        return tuple(hook(item, of) for hook, item, of in zip(hooks, value, items, strict=True))

    return structure


def explain(error: BaseException) -> str:
    """What is wrong with data that could not be read, and where in it (`$` is the whole)."""
    if isinstance(error, BaseValidationError):
        return "; ".join(transform_error(error, format_exception=_told))
    return _told(error, None)


def _told(error: BaseException, _: Any) -> str:
    if isinstance(error, KeyError):
        return "it does not say what it is" if error.args == (_TAG,) else f"{error.args[0]!r} is not known here"
    if isinstance(error, ForbiddenExtraKeysError):
        return f"{error.cl.__name__} has no field {', '.join(sorted(error.extra_fields))}"
    return describe(error)


def _is_tuple(kind: Any) -> bool:
    return bool(get_origin(kind) is tuple)


def _only(kind: type[Any]) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value

    return structure


def _number(value: Any, _: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return value


def _object(value: Any, _: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return freeze(value)


def _written(setup: Setup) -> _WrittenSetup:
    tools = tuple(
        _WrittenTool(tool.name, tool.description, tool.parameters, tool.mode, tool.timeout, tool.replay)
        for tool in setup.tools.values()
    )
    schema = None if setup.output is None else setup.output.schema
    return _WrittenSetup(setup.system_prompt, setup.reasoning_effort, setup.context_window, tools, schema)


def _inert_setup(said: _WrittenSetup) -> Setup:
    tools = {
        tool.name: ToolSpec(
            tool.name, tool.description, tool.parameters, _inert, _inert, tool.mode, tool.timeout, replay=tool.replay
        )
        for tool in said.tools
    }
    output = None if said.output_schema is None else OutputSpec(said.output_schema, _inert)
    return Setup(None, _inert, tools, said.system_prompt, said.reasoning_effort, said.context_window, output)


def _inert(*_: Any) -> Any:
    raise RuntimeError("what was read from a journal has no model and no tools; read it with a setup that has them")
