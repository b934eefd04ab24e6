"""The lifecycle as an XState 5 machine config in JSON.

States are nested as declared. Guards and actions are names, whose implementations the reader provides. XState has no
combinators that survive in JSON, so several guards, or one that must say no, are said as its guard objects, with the type
`and` and the params `guards`, or with the type `not` and the param `guard`. They become its own combinators while the text
is parsed, with `and` and `not` from XState:

    JSON.parse(text, (_, it) => it?.type === "and" ? and(it.params.guards) : it?.type === "not" ? not(it.params.guard) : it)

An internal transition has no target, a no-op has neither target nor actions, and `reenter` is set where `transitions`
leaves the source and enters it again. `transitions` acts when the new state is entered, XState before that; the order of
the actions is the same. A refused command has no transition.
"""

import json
from typing import Any, Final

from statechart.exports.structure import Structure, Transition

ID: Final = "lifecycle"
NOTICE: Final = "Written by `python -m statechart`; do not edit."
WIDTH: Final = 124


def xstate(structure: Structure) -> str:
    """The machine config as JSON text, one line for each transition as far as it fits."""
    root = {"id": ID, "description": NOTICE, "initial": structure.initial, "states": _states(structure, "")}
    return f"{_laid_out(root)}\n"


def _states(structure: Structure, place: str) -> dict[str, Any]:
    return {_short(inner): _state(structure, inner) for inner in structure.inside(place)}


def _state(structure: Structure, place: str) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if place in structure.first:
        node["initial"] = _short(structure.first[place])
    on: dict[str, list[dict[str, Any]]] = {}
    for transition in structure.leaving(place):
        on.setdefault(transition.trigger, []).append(_transition(transition))
    if on:
        node["on"] = on
    if inner := _states(structure, place):
        node["states"] = inner
    return node


def _transition(transition: Transition) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if transition.target is not None:
        said["target"] = f"#{ID}.{transition.target}"
    if transition.is_reflexive:
        said["reenter"] = True
    if transition.needs:
        said["guard"] = _guard(transition)
    if transition.do:
        said["actions"] = list(transition.do)
    return said


def _guard(transition: Transition) -> Any:
    asked = [name if answer else {"type": "not", "params": {"guard": name}} for name, answer in transition.needs]
    return asked[0] if len(asked) == 1 else {"type": "and", "params": {"guards": asked}}


def _short(place: str) -> str:
    return place.rpartition(".")[2]


def _laid_out(value: Any, margin: str = "") -> str:
    """JSON in which whatever fits on a line stands on one line."""
    flat = json.dumps(value)
    if not isinstance(value, (dict, list)) or len(margin) + len(flat) < WIDTH:
        return flat
    deeper = f"{margin}  "
    if isinstance(value, dict):
        parts, (begin, end) = [f"{json.dumps(key)}: {_laid_out(inner, deeper)}" for key, inner in value.items()], "{}"
    else:
        parts, (begin, end) = [_laid_out(inner, deeper) for inner in value], "[]"
    return f"{begin}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{margin}{end}"
