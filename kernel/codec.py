"""Inputs, messages and events as JSON, and back: the format of journals and traces.

Values are told apart by their class's name in the key `is`. A model and tools can't be written down: a `Setup` is its
system prompt, reasoning effort and the names of its tools, and comes back as those of a setup that the reader brings.
An exception is written as what it said.
"""

from typing import Any, Final, Union, final

import attrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.msgspec import make_converter
from cattrs.strategies import configure_tagged_union

from kernel import events, inputs, messages
from kernel.config import KernelConfig
from kernel.errors import Failure
from kernel.frozen import FrozenDict, freeze, thaw
from kernel.setup import Setup

_INPUTS: Any = inputs.Input  # Any: a union is a value here
_EVENTS: Any = Union[  # noqa: UP007
    tuple(kind for kind in vars(events).values() if isinstance(kind, type) and kind.__base__ is events.Event)
]
_CONTENT: Final = messages.Text | messages.Reasoning | messages.ToolCall
_TAG: Final = "is"


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
        "tools": list(setup.tools),
    }


def _taken(data: Any, setup: Setup | None) -> Setup:
    if setup is None:
        raise ValueError("a configuration with a model and tools can only be read with a setup that has them")
    unknown = [name for name in data["tools"] if name not in setup.tools]
    if unknown:
        raise ValueError(f"the configuration names tools that the setup does not have: {', '.join(unknown)}")
    return attrs.evolve(
        setup,
        system_prompt=data["system_prompt"],
        reasoning_effort=data["reasoning_effort"],
        context_window=data["context_window"],
        tools={name: setup.tools[name] for name in data["tools"]},
    )
