"""Inputs, messages and events as JSON, and back: the format of journals and traces.

Values are told apart by their class's name in the key `is`. What a model and tools do can't be written down: a `Setup` is
what it says of them, and comes back with the model and the tools of the reader's setup, or inert, good for a replay only.
An exception is written as what it said.
"""

from typing import Any, Final, Union, final

from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.msgspec import make_converter
from cattrs.strategies import configure_tagged_union

from kernel import events, inputs, messages
from kernel.config import KernelConfig
from kernel.errors import Failure
from kernel.frozen import FrozenDict, freeze, thaw
from kernel.setup import Setup, ToolSpec

_INPUTS: Any = inputs.Input  # Any: a union is a value here
_EVENTS: Any = Union[  # noqa: UP007
    tuple(kind for kind in vars(events).values() if isinstance(kind, type) and kind.__base__ is events.Event)
]
_CONTENT: Final = messages.Text | messages.Reasoning | messages.ToolCall
_TAG: Final = "is"
_TOOL_FIELDS: Final = ("name", "description", "parameters", "mode", "timeout", "replay")


@final
class Codec:
    """Writes values as plain data and reads them again. *setup* stands for the models and tools of what is read."""

    def __init__(self, setup: Setup | None = None) -> None:
        self._converter = make_converter()
        self._converter.register_unstructure_hook(FrozenDict, thaw)
        self._converter.register_structure_hook(FrozenDict, lambda value, _: freeze(value))
        self._converter.register_structure_hook(Any, lambda value, _: freeze(value))
        self._converter.register_unstructure_hook(Setup, _written)
        self._converter.register_structure_hook(Setup, lambda value, _: _taken(value, setup))
        self._converter.register_unstructure_hook(
            Failure, make_dict_unstructure_fn(Failure, self._converter, cause=override(omit=True))
        )
        self._converter.register_structure_hook(
            Failure, make_dict_structure_fn(Failure, self._converter, cause=override(omit=True))
        )
        for union in (_CONTENT, messages.InputMessage, messages.Message, messages.Part, _INPUTS, _EVENTS):
            configure_tagged_union(union, self._converter, tag_name=_TAG)

    def dump_input(self, input: inputs.Input) -> dict[str, Any]:
        """*input* as plain data."""
        return self._converter.unstructure(input, _INPUTS)  # type: ignore[no-any-return]

    def load_input(self, data: Any) -> inputs.Input:
        """The opposite of `dump_input`. Raises what `explain` can tell."""
        return self._converter.structure(data, _INPUTS)  # type: ignore[no-any-return]

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
        return self._converter.structure(data, list[messages.Message])

    def dump_setup(self, setup: Setup) -> dict[str, Any]:
        """What *setup* says of its model and tools, as plain data."""
        return _written(setup)

    def load_setup(self, data: Any) -> Setup:
        """The opposite of `dump_setup`."""
        return self._converter.structure(data, Setup)

    def dump_config(self, config: KernelConfig) -> dict[str, Any]:
        """A configuration as plain data."""
        return self._converter.unstructure(config)  # type: ignore[no-any-return]

    def load_config(self, data: Any) -> KernelConfig:
        """The opposite of `dump_config`."""
        return self._converter.structure(data, KernelConfig)


def _written(setup: Setup) -> dict[str, Any]:
    return {
        "system_prompt": setup.system_prompt,
        "reasoning_effort": setup.reasoning_effort,
        "context_window": setup.context_window,
        "tools": [{name: thaw(getattr(tool, name)) for name in _TOOL_FIELDS} for tool in setup.tools.values()],
    }


def _taken(data: Any, setup: Setup | None) -> Setup:
    written = {tool["name"]: ToolSpec(execute=_inert, validate=_inert, **freeze(tool)) for tool in data["tools"]}
    if setup is not None:
        unknown = [name for name in written if name not in setup.tools]
        if unknown:
            raise ValueError(f"the configuration names tools that the setup does not have: {', '.join(unknown)}")
        written = {name: setup.tools[name] for name in written}
    model, stream = (None, _inert) if setup is None else (setup.model, setup.stream)
    return Setup(model, stream, written, data["system_prompt"], data["reasoning_effort"], data["context_window"])


def _inert(*_: Any) -> Any:
    raise RuntimeError("what was read from a journal has no model and no tools; read it with a setup that has them")
