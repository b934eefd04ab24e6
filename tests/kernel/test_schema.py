"""Checks made of foreign JSON Schemas, by whichever library is there."""

import builtins
import importlib
import importlib.util
from typing import Any

import pytest

from kernel import schema
from kernel.frozen import freeze
from kernel.schema import schema_validator

SCHEMA = freeze(
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "filters": {
                "type": "array",
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "integer"}}},
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }
)
LIBRARIES = [name for name in ("jsonschema_rs", "jsonschema") if importlib.util.find_spec(name)]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One library alone is installed."""
    only(monkeypatch, request.param)
    return request.param


def only(monkeypatch: pytest.MonkeyPatch, library: str | None) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(schema, "find_spec", lambda name: find(name) if name == library else None)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {}, "required": [], "title": "T", "$schema": "x"},
        {"type": "object", "additionalProperties": True},
    ],
    ids=str,
)
def test_a_schema_that_allows_everything_needs_no_library(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Without any library, a schema that says nothing lets all arguments through."""
    only(monkeypatch, None)
    assert schema_validator(parameters)({"any": [1]}) == {"any": [1]}


@pytest.mark.parametrize(
    "parameters",
    [
        SCHEMA,
        {"additionalProperties": False},
        {"required": ["a"]},
        {"properties": {"a": {}}},
        {"minProperties": 1},
        {"not": {}},
    ],
    ids=str,
)
def test_a_missing_library_is_named_with_its_command(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """When a check needs a library and there is none, the error has the command that installs it."""
    only(monkeypatch, None)
    with pytest.raises(ModuleNotFoundError, match=r'the tool x .*pip install "phasekernel\[schema\]"'):
        schema_validator(parameters, name="the tool x")


def test_no_library_is_imported_until_it_is_needed(monkeypatch: pytest.MonkeyPatch):
    """A schema that allows everything imports nothing."""
    monkeypatch.setattr(importlib, "import_module", pytest.fail)
    monkeypatch.setattr(builtins, "__import__", pytest.fail)
    validate = schema_validator({"type": "object"})
    monkeypatch.undo()
    assert validate({}) == {}


def test_arguments_that_fit_come_back(library: str):
    """Arguments that fit are returned as they are."""
    arguments = {"path": "a", "filters": [{"k": 1}]}
    assert schema_validator(SCHEMA)(arguments) is arguments


def test_all_faults_are_listed_with_their_places(library: str):
    """The error tells every fault and where it is."""
    with pytest.raises(ValueError, match="arguments of the tool do not fit") as caught:
        schema_validator(SCHEMA)({"path": 3, "filters": [{"k": 1}, {"k": "x"}, {}], "more": 1})
    text = str(caught.value)
    assert [place for place in ("$.path: ", "$.filters[1].k: ", "$.filters[2]: ", "$: ") if place not in text] == []


def test_a_thousand_faults_are_a_short_text(library: str):
    """The list of faults is cut and says how many there are; a fault that quotes a huge value is cut too."""
    validate = schema_validator({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}})
    with pytest.raises(ValueError, match="and 980 more") as caught:
        validate({"a": ["x" * 10_000] * 1000})
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize(
    "parameters", [{"type": "objekt"}, {"properties": {"a": {"type": "string", "minLength": "x"}}}], ids=str
)
def test_what_is_no_schema_is_refused(parameters: dict[str, Any], library: str):
    """A schema that is none is a ValueError when the check is made."""
    with pytest.raises(ValueError, match="parameters of the tool are not a usable JSON Schema"):
        schema_validator(parameters)


def test_nothing_is_fetched(library: str, tmp_path):
    """A reference to another document is refused, although that document could be read."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(ValueError, match="not a usable JSON Schema"):
        schema_validator({"allOf": [{"$ref": other.as_uri()}]})
