"""A check made of a foreign JSON Schema, such as that of an MCP tool; the libraries that do it are optional.

Nothing is ever fetched: a `$ref` to another document is refused, because a schema may come from anywhere and both
libraries would otherwise open the address or the file that it names.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from kernel.frozen import thaw

Validator = Callable[[dict[str, Any]], dict[str, Any]]

_FAULTS_SHOWN: Final = 20
"""Faults in one error text: enough to mend a call, and a thousand wrong items do not fill a model's context."""
_FAULT_CHARACTERS: Final = 300
"""Characters of one fault: the libraries quote the whole faulty value."""
_SILENT: Final = frozenset({"type", "title", "description", "$schema", "$id", "$comment", "examples", "default"})


def schema_validator(parameters: Mapping[str, Any], *, name: str = "the tool") -> Validator:
    """A function that returns arguments which fit *parameters*, and raises ValueError with all faults of others.

    ModuleNotFoundError tells what to install when a library is needed and none is there; ValueError when *parameters*
    is no JSON Schema.
    """
    if _allows_everything(parameters):
        return _unchecked
    faults_of = _faults_finder(parameters, f"the parameters of {name}")

    def validate(arguments: dict[str, Any]) -> dict[str, Any]:
        faults = faults_of(arguments)
        if faults:
            raise ValueError(f"The arguments of {name} do not fit: {_listed(faults)}")
        return arguments

    return validate


def value_validator(schema: Mapping[str, Any], *, name: str) -> Callable[[Any], Any]:
    """A function that returns values which fit *schema*, and raises ValueError with all faults of others. Else as
    `schema_validator`; *name* is what has the schema.
    """
    faults_of = _faults_finder(schema, f"the schema of {name}")

    def validate(value: Any) -> Any:
        faults = faults_of(value)
        if faults:
            raise ValueError(_listed(faults))
        return value

    return validate


def _faults_finder(schema: Mapping[str, Any], name: str) -> Callable[[Any], list[str]]:
    if find_spec("jsonschema_rs") is not None:
        return _with_jsonschema_rs(thaw(schema), name)
    if find_spec("jsonschema") is not None:
        return _with_jsonschema(thaw(schema), name)
    raise ModuleNotFoundError(f'checking against {name} needs a library: pip install "phasekernel[schema]"')


def _allows_everything(parameters: Mapping[str, Any]) -> bool:
    silent = _SILENT | {key for key in ("properties", "required") if not parameters.get(key)}
    spoken = {key: value for key, value in parameters.items() if key not in silent}
    return parameters.get("type", "object") == "object" and spoken in ({}, {"additionalProperties": True})


def _unchecked(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


def _listed(faults: Sequence[str]) -> str:
    shown = [fault if len(fault) <= _FAULT_CHARACTERS else fault[:_FAULT_CHARACTERS] + "…" for fault in faults]
    more = f"; and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
    return "; ".join(shown[:_FAULTS_SHOWN]) + more


def _refuse_to_fetch(address: str) -> Any:
    raise ValueError(f"it refers to {address}, and nothing is fetched")


def _with_jsonschema_rs(schema: Any, name: str) -> Callable[[Any], list[str]]:
    library: Any = importlib.import_module("jsonschema_rs")
    try:
        validator = library.validator_for(schema, retriever=_refuse_to_fetch)
    except (ValueError, library.ReferencingError) as error:
        raise _no_schema(name, str(error).splitlines()[0]) from error
    return lambda arguments: [
        f"{_place(error.instance_path)}: {error.message}" for error in validator.iter_errors(arguments)
    ]


def _with_jsonschema(schema: Any, name: str) -> Callable[[Any], list[str]]:
    validators: Any = importlib.import_module("jsonschema.validators")
    exceptions: Any = importlib.import_module("jsonschema.exceptions")
    referencing: Any = importlib.import_module("referencing")
    kind = validators.validator_for(schema)
    validator = kind(schema, registry=referencing.Registry())

    def faults_of(arguments: Any) -> list[str]:
        return [f"{_place(error.absolute_path)}: {error.message}" for error in validator.iter_errors(arguments)]

    try:
        kind.check_schema(schema)
        faults_of({})
    except (exceptions.SchemaError, referencing.exceptions.Unresolvable) as error:
        raise _no_schema(name, str(error).splitlines()[0]) from error
    return faults_of


def _no_schema(name: str, reason: str) -> ValueError:
    return ValueError(f"{name} are not a usable JSON Schema: {reason}")


def _place(path: Iterable[str | int]) -> str:
    """Where the fault is, as in `$.filters[0]`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
