"""The lifecycle as SCXML, the W3C's language for statecharts.

States have their whole path as id. Guards are data of the document, without a value until the environment assigns one
before each event. A `cond` is ECMAScript, and of it what python-statemachine 3 reads without having to trust the document:
it knows `!==` but no `!` of its own. An action is a `<log>` whose label is the action's name: the one element that every
interpreter reports, in order, and that changes nothing. A `<raise>` would put an event into the document's own queue, and
a `<send>` needs an address that only the embedder knows.

An internal transition has no target, and a no-op has no content either. A refused command has no transition.
"""

from typing import Final
from xml.etree import ElementTree

from statechart.exports.structure import Structure, Transition

NAMESPACE: Final = "http://www.w3.org/2005/07/scxml"
HEAD: Final = '<?xml version="1.0" encoding="UTF-8"?>\n<!-- Written by `python -m statechart`; do not edit. -->\n'


def scxml(structure: Structure) -> str:
    """The document as text."""
    about = {"xmlns": NAMESPACE, "version": "1.0", "name": "lifecycle", "datamodel": "ecmascript"}
    root = ElementTree.Element("scxml", about, initial=structure.initial)
    data = ElementTree.SubElement(root, "datamodel")
    for guard in structure.guards():
        ElementTree.SubElement(data, "data", id=guard)
    for place in structure.inside(""):
        _state(root, structure, place)
    ElementTree.indent(root)
    return f"{HEAD}{ElementTree.tostring(root, encoding='unicode')}\n"


def _state(parent: ElementTree.Element, structure: Structure, place: str) -> None:
    state = ElementTree.SubElement(parent, "state", id=place)
    if place in structure.first:
        state.set("initial", structure.first[place])
    for transition in structure.leaving(place):
        _transition(state, transition)
    for inner in structure.inside(place):
        _state(state, structure, inner)


def _transition(state: ElementTree.Element, transition: Transition) -> None:
    said = ElementTree.SubElement(state, "transition", event=transition.trigger)
    if transition.target is not None:
        said.set("target", transition.target)
    if transition.needs:
        said.set("cond", " && ".join(guard if answer else f"{guard} !== true" for guard, answer in transition.needs))
    for action in transition.do:
        ElementTree.SubElement(said, "log", label=action)
