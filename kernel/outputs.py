"""What a run's final answer must be: a type or a JSON Schema, made into what a model is told and a check of its answer.

msgspec makes both of a type (a class of attrs, its validators included, a dataclass, `list[int]`, whatever msgspec reads),
and a foreign schema is checked as those of tools are. The answer must be JSON and nothing else; only a Markdown fence
around all of it, which models like to write, is taken off.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kernel.effects import CheckOutput
from kernel.errors import describe
from kernel.frozen import FrozenDict, freeze
from kernel.inputs import OutputChecked
from kernel.schema import value_validator
from kernel.setup import OutputSpec, Setup

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
_ERROR_CHARACTERS: Final = 2_000
"""Characters of what is wrong that a model is told: a validator may quote the whole answer."""


def output_of(wanted: Any) -> OutputSpec | None:
    """What answers must fit to be a *wanted*: a type, or a JSON Schema as a mapping; None: any text is an answer.

    Raises TypeError for a type that can't be told to a model, ValueError for a mapping that is no JSON Schema, and
    ModuleNotFoundError with what to install where a schema needs a library.
    """
    if wanted is None:
        return None
    if isinstance(wanted, Mapping):
        return _of_schema(wanted)
    import msgspec  # only agents with an output need it

    try:
        (schema,), components = msgspec.json.schema_components([wanted], ref_template="#/$defs/{name}")
        decoder: Any = msgspec.json.Decoder(wanted)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TypeError(
            f"output must be a type that can be told to a model, or a JSON Schema, not {wanted!r}: {reason}"
        ) from error
    # A schema that is one class stands at the top by itself: providers ask for an object there, and not for a reference.
    if set(schema) == {"$ref"}:
        name = schema["$ref"].removeprefix("#/$defs/")
        recursive = schema["$ref"] in msgspec.json.encode(components).decode()
        schema = components[name] if recursive else components.pop(name)
    whole = freeze({**schema, **({"$defs": components} if components else {})})
    return OutputSpec(whole, lambda text: decoder.decode(_json(text)))


def _of_schema(schema: Mapping[str, Any]) -> OutputSpec:
    import msgspec

    try:
        frozen: FrozenDict = freeze(schema)
        msgspec.json.encode(frozen)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"output: the schema is not JSON: {error}") from error
    validate: Callable[[Any], Any] = value_validator(frozen, name="output")
    return OutputSpec(frozen, lambda text: freeze(validate(msgspec.json.decode(_json(text)))))


def _json(text: str) -> bytes:
    match = _FENCE.fullmatch(text.strip())
    return (text if match is None else match[1]).encode("utf-8", "surrogatepass")


def check_output(effect: CheckOutput, setup: Setup) -> OutputChecked:
    """Hold the answer against what was asked for. Whatever a validator raises is what is wrong with the answer."""
    assert setup.output is not None
    try:
        return OutputChecked(effect.work, value=setup.output.check(effect.text))
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            # It ends the program, but from the loop: here it would leave the run without an end.
            asyncio.get_running_loop().call_soon(_raise, error)
        return OutputChecked(effect.work, _shortened(_told(error)))


def _told(error: BaseException) -> str:
    import msgspec

    if isinstance(error, msgspec.ValidationError):
        return str(error)
    if isinstance(error, msgspec.DecodeError):
        return f"it is not JSON: {error}"
    return describe(error)


def _shortened(text: str) -> str:
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[:_ERROR_CHARACTERS]}…"


def _raise(error: BaseException) -> None:
    raise error
