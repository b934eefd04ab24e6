"""The parameters of a function as a JSON Schema and as a check: msgspec does both, from the annotations.

A parameter annotated `ToolContext` is not a model's business: it is filled in by the call and not in the schema.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, final, get_args, get_origin, get_type_hints

import attrs
import msgspec
from attrs import field, frozen

from kernel.docstrings import parse_docstring
from kernel.errors import describe
from kernel.frozen import FrozenDict, freeze
from kernel.ports import ToolContext

_Kind = inspect.Parameter
_UNCHANGING: Final = (NoneType, bool, int, float, str, bytes)


@final
@frozen(eq=False)
class Signature:
    """What a function takes from a model."""

    name: str
    summary: str
    schema: FrozenDict
    _hints: Mapping[str, Any] = field(repr=False)
    _required: frozenset[str]
    _struct: Any = field(repr=False)
    _injected: frozenset[str]
    _positional: tuple[str, ...]

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """*arguments* with their types, defaults included; ValueError lists all that is wrong with them."""
        try:
            value = msgspec.convert(arguments, self._struct, str_keys=True)
        except Exception as error:  # what a validator of a class raises may be anything
            faults = "; ".join(self._faults(arguments)) or str(error)
            expected = msgspec.json.encode(self.schema).decode()
            raise ValueError(
                f"The arguments of {self.name} do not fit: {faults}. Expected parameters (JSON Schema): {expected}"
            ) from None
        return {name: getattr(value, name) for name in self._hints}

    def _faults(self, arguments: dict[str, Any]) -> Iterator[str]:
        for name in self._hints:
            if name in arguments:
                yield from _fault(name, arguments[name], self._hints[name])
            elif name in self._required:
                yield f"`{name}` is missing"
        for name in arguments:
            if name not in self._hints:
                yield f"there is no parameter `{name}`"

    def bind(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Callable[[], Any]:
        """The call of *function*, ready to be made."""
        named = {**arguments, **dict.fromkeys(self._injected, context)}
        first = [named.pop(name) for name in self._positional if name in named]
        return functools.partial(function, *first, **named)


def _fault(name: str, value: Any, hint: Any) -> Iterator[str]:
    try:
        msgspec.convert(value, hint, str_keys=True)
    except msgspec.ValidationError as error:
        # msgspec writes the place within the value as " - at `$.x[0]`", and nothing at the top.
        what, _, place = str(error).partition(" - at `$")
        yield f"`{name}{place.rstrip('`')}`: {what}"
    except RecursionError:
        yield f"`{name}` is nested too deeply"
    except Exception as error:
        yield f"`{name}`: {describe(error)}"


def signature_of(function: Callable[..., Any], name: str) -> Signature:
    """What *function* takes, or a TypeError that names it and the parameter that no schema can be made of."""
    target = _target(function)
    hints = _hints(target, name)
    docs = parse_docstring(inspect.getdoc(target))
    asked: dict[str, tuple[Any, inspect.Parameter]] = {}
    injected: set[str] = set()
    positional: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        _refuse_parameter(parameter, hints, name)
        if parameter.kind is _Kind.POSITIONAL_ONLY:
            positional.append(parameter.name)
        if _is_context(hints[parameter.name]):
            injected.add(parameter.name)
        else:
            asked[parameter.name] = (_described(hints[parameter.name], parameter, docs.parameters), parameter)
    for parameter_name, (hint, _) in asked.items():
        _check_hint(hint, name, parameter_name)
    struct = msgspec.defstruct(
        "Arguments", [_field(hint, parameter) for hint, parameter in asked.values()],
        kw_only=True, forbid_unknown_fields=True,
    )  # fmt: skip
    return Signature(
        name,
        docs.summary,
        _schema(struct, {key: parameter for key, (_, parameter) in asked.items()}),
        {key: hint for key, (hint, _) in asked.items()},
        frozenset(key for key, (_, parameter) in asked.items() if parameter.default is _Kind.empty),
        struct,
        frozenset(injected),
        tuple(positional),
    )


def _target(function: Any) -> Any:
    """The function that has the annotations and the docstring."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _hints(target: Any, name: str) -> dict[str, Any]:
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the annotations of the tool {name} can't be read: {error}. Names in them must exist in its module"
        ) from error
    except Exception as error:  # an annotation that is a string is run, and may do anything
        raise TypeError(f"the annotations of the tool {name} can't be read: {describe(error)}") from error


def _refuse_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> None:
    if parameter.kind in (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD):
        stars = "*" if parameter.kind is _Kind.VAR_POSITIONAL else "**"
        raise TypeError(
            f"the tool {name} has the parameter {stars}{parameter.name}: a model must be told each parameter by name"
        )
    if parameter.name not in hints:
        hint = "; make a tool of the bound method instead" if parameter.name in ("self", "cls") else ""
        raise TypeError(f"the parameter {parameter.name} of the tool {name} has no annotation{hint}")


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return ToolContext in get_args(hint)
    return hint is ToolContext


def _described(hint: Any, parameter: inspect.Parameter, docs: Mapping[str, str]) -> Any:
    """The hint with the description that a plain string in `Annotated` or the docstring gives, in this order."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    if parameter.default is None:
        hint = Union[hint, None]  # noqa: UP007  # not every hint knows the operator
    if any(isinstance(extra, msgspec.Meta) and extra.description for extra in extras):
        return hint
    text = next((extra for extra in extras if isinstance(extra, str)), docs.get(parameter.name))
    return Annotated[hint, msgspec.Meta(description=text)] if text else hint


def _check_hint(hint: Any, name: str, parameter: str) -> None:
    try:
        msgspec.json.schema_components([hint])
        msgspec.json.Decoder(hint)
    except Exception as error:
        reason = str(error).splitlines()[-1]
        raise TypeError(f"the parameter {parameter} of the tool {name} can't be told to a model: {reason}") from error
    for kind in _attrs_classes(msgspec.inspect.type_info(hint), set()):
        _refuse_class(kind, name, parameter)


def _attrs_classes(node: Any, seen: set[int]) -> Iterator[type]:
    """The attrs classes of what `msgspec.inspect` tells of a type; it ties knots for types that contain themselves."""
    if isinstance(node, (tuple, list)):
        for each in node:
            yield from _attrs_classes(each, seen)
    elif isinstance(node, msgspec.Struct) and id(node) not in seen:
        seen.add(id(node))
        if isinstance(node, msgspec.inspect.DataclassType) and attrs.has(node.cls):
            yield node.cls
        for key in node.__struct_fields__:
            yield from _attrs_classes(getattr(node, key), seen)


def _refuse_class(kind: type, name: str, parameter: str) -> None:
    """An object is not made by its own `__init__` here: msgspec fills it and runs validators, but knows no converters."""
    for each in attrs.fields(kind):
        if each.converter is not None:
            reason = "has a converter, which would not be run; convert in the function"
        elif not each.init:
            reason = "has init=False, but a model could set it; leave it out of a class that models fill"
        else:
            continue
        raise TypeError(
            f"the parameter {parameter} of the tool {name} can't be told to a model: {kind.__name__}.{each.name} {reason}"
        )


def _field(hint: Any, parameter: inspect.Parameter) -> Any:
    default = parameter.default
    if default is _Kind.empty:
        return parameter.name, hint
    if isinstance(default, _UNCHANGING):
        return parameter.name, hint, default
    return parameter.name, hint, msgspec.field(default_factory=functools.partial(copy.deepcopy, default))


def _schema(struct: Any, parameters: Mapping[str, inspect.Parameter]) -> FrozenDict:
    (reference,), components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    schema = components.pop(reference["$ref"].removeprefix("#/$defs/"))
    del schema["title"]
    for name, parameter in parameters.items():
        if parameter.default is not _Kind.empty and "default" not in schema["properties"][name]:
            schema["properties"][name].update(_default(parameter.default))
    return freeze({**schema, **({"$defs": components} if components else {})})  # type: ignore[no-any-return]


def _default(value: Any) -> dict[str, Any]:
    """The default as JSON can say it; what it can't say is left out."""
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(value))}
    except (TypeError, ValueError):
        return {}
