"""An export says what the declaration says, no more and no less. That others read it so is shown by `tests/proof`."""

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from statechart import INTERNAL, NO_OP, ROWS, Action, Command, Fact, Guard, Leaf, Row, decisions
from statechart.action_meaning import ACTIONS, nothing
from statechart.exports import promela_meaning
from statechart.exports.promela import promela
from statechart.exports.promela_promises import PROPERTIES
from statechart.exports.scxml import NAMESPACE, scxml
from statechart.exports.structure import CannotExportError, read
from statechart.exports.xstate import xstate
from statechart.machine import PhaseMachine
from statechart.model import Model
from statechart.vocabulary import RUNNING, TURN
from statechart.world import VECTOR, Bounds

Said = tuple[str, str, str | None, tuple[tuple[str, bool], ...], tuple[str, ...]]
"""Source, trigger, target, guards with their answers, and actions."""
PLACES = {*map(str, Leaf), RUNNING, TURN}


def declared(rows: tuple[Row, ...] = ROWS) -> dict[tuple[str, str], list[Said]]:
    """What *rows* say of each place and trigger, in their order."""
    found: dict[tuple[str, str], list[Said]] = {}
    for row in rows:
        needs = (*((guard, True) for guard in row.when), *((guard, False) for guard in row.unless))
        target = None if row.target in (INTERNAL, NO_OP) else row.target
        for source in row.source:
            found.setdefault((source, row.trigger), []).append((source, row.trigger, target, needs, row.do))
    return found


def in_order(found: Iterator[Said]) -> dict[tuple[str, str], list[Said]]:
    said: dict[tuple[str, str], list[Said]] = {}
    for each in found:
        said.setdefault(each[:2], []).append(each)
    return said


def from_xstate(node: dict[str, Any], place: str = "") -> Iterator[Said]:
    """What a machine config says, read by its own rules."""
    for trigger, alternatives in node.get("on", {}).items():
        for each in alternatives:
            target = each["target"].removeprefix("#lifecycle.") if "target" in each else None
            yield place, trigger, target, tuple(asked(each.get("guard"))), tuple(each.get("actions", ()))
    for name, inner in node.get("states", {}).items():
        yield from from_xstate(inner, f"{place}.{name}".lstrip("."))


def asked(guard: Any) -> Iterator[tuple[str, bool]]:
    match guard:
        case str():
            yield guard, True
        case {"type": "not", "params": {"guard": inner}}:
            yield inner, False
        case {"type": "and", "params": {"guards": inner}}:
            for each in inner:
                yield from asked(each)


def from_scxml(root: ElementTree.Element) -> Iterator[Said]:
    """What a document says, read by its own rules."""
    for state in root.iter(f"{{{NAMESPACE}}}state"):
        for each in state.findall(f"{{{NAMESPACE}}}transition"):
            words = each.get("cond", "").split(" && ") if each.get("cond") else []
            needs = tuple((word.removesuffix(" !== true"), not word.endswith(" !== true")) for word in words)
            do = tuple(log.get("label", "") for log in each)
            yield state.get("id", ""), each.get("event", ""), each.get("target"), needs, do


def test_xstate_says_what_is_declared():
    """Each row is there once for each of its sources, with its guards and actions, and nothing else is."""
    assert in_order(from_xstate(json.loads(xstate(read())))) == declared()


def test_scxml_says_what_is_declared():
    """Each row is there once for each of its sources, with its guards and actions, and nothing else is."""
    assert in_order(from_scxml(ElementTree.fromstring(scxml(read())))) == declared()


def test_scxml_places_and_guards_are_all_known():
    """Each id is a place and unique, each region says where it starts, and each guard that is asked is declared as data."""
    root = ElementTree.fromstring(scxml(read()))
    states = list(root.iter(f"{{{NAMESPACE}}}state"))
    data = [each.get("id") for each in root.iter(f"{{{NAMESPACE}}}data")]

    assert sorted(state.get("id", "") for state in states) == sorted(PLACES)
    assert root.get("initial") == Leaf.IDLE
    assert {state.get("id"): state.get("initial") for state in states if state.get("initial")} == {
        RUNNING: TURN,
        TURN: Leaf.OPENING,
    }
    assert sorted(data) == sorted({guard for row in ROWS for guard in (*row.when, *row.unless)})


def test_xstate_places_are_all_known():
    """The states nest as the places do, and each region says where it starts."""
    config = json.loads(xstate(read()))
    found = {"": config}
    for place in sorted(PLACES):
        above, _, name = place.rpartition(".")
        found[place] = found[above]["states"].pop(name)

    assert {place: node["states"] for place, node in found.items() if node.get("states")} == {}
    assert {place: node["initial"] for place, node in found.items() if "initial" in node} == {
        "": "idle",
        RUNNING: "turn",
        TURN: "opening",
    }


def test_a_no_op_is_there_and_says_nothing():
    """A no-op is a transition, so that it can be told from a refusal, and it has neither target nor content."""
    idle = json.loads(xstate(read()))["states"]["idle"]["on"]

    assert idle["cancel"] == [{}]
    assert "prompt" not in json.loads(xstate(read()))["states"]["settling"]["on"]


def test_only_a_row_onto_itself_enters_again():
    """XState is told to enter again where `transitions` does: in a row whose target is its source, and never in ours."""
    machine = PhaseMachine((Row(Command.RESET, RUNNING, RUNNING), Row(Command.CLOSE, RUNNING, INTERNAL)))
    running = json.loads(xstate(read(machine)))["states"]["running"]["on"]

    assert running == {"reset": [{"target": "#lifecycle.running", "reenter": True}], "close": [{}]}
    assert "reenter" not in xstate(read())


@pytest.mark.parametrize("target", [TURN, Leaf.TOOLS])
def test_a_way_into_its_own_source_is_refused(target: str):
    """What `transitions` leaves then depends on the leaf, which no export can say; the error names the row."""
    machine = PhaseMachine((Row(Fact.HALTED, RUNNING, target, when=(Guard.UNWOUND,)),))

    with pytest.raises(CannotExportError, match=f"halted goes from running to {target}, which is inside it"):
        read(machine)


def test_every_word_has_a_meaning_in_promela():
    """Each guard, each action and each fact has one, and an action does nothing there when it does nothing in the model."""
    still = {action for action, text in promela_meaning.ACTIONS.items() if not text}

    assert set(promela_meaning.GUARDS) == set(Guard)
    assert set(promela_meaning.SAYS) == set(Fact)
    assert set(promela_meaning.ACTIONS) == set(Action)
    assert still == {action for action, effector in ACTIONS.items() if effector is nothing}


def test_promela_declares_what_it_speaks_of():
    """Each number of the vector is a byte and each bound a constant; the formulas are all there."""
    text = promela(decisions(), Bounds(queue=5, commands=6, turns=7, attempts=8, calls=9))
    lines = text.splitlines()
    plain = text.rpartition("#ifndef BARE")[2]

    assert {f"byte {promela_meaning.RENAMED.get(name, name)};" for name in VECTOR if name != "budget"} <= set(lines)
    assert "byte budget = COMMANDS;" in lines
    assert [lines.count(f"#define {name} {value}") for value, name in enumerate(
        ("QUEUE", "COMMANDS", "TURNS", "ATTEMPTS", "CALLS"), 5
    )] == [1] * 5  # fmt: skip
    assert [line for line in plain.splitlines() if line.startswith("ltl ")] == [
        f"ltl {each.name} {{ {each.formula} }}" for each in PROPERTIES
    ]


def test_promela_has_a_step_for_each_way_on():
    """Where the table leads on from a leaf by a trigger, so does the process, and by no other."""
    text = promela(decisions(), Bounds()).partition("active proctype")[2].partition("#ifndef BARE")[0]
    options = set(re.findall(r":: place == AT_(\w+) && .* -> begin_step\(BY_(\w+), ", text))

    assert options == {
        (way.leaf.rpartition(".")[2].upper(), way.trigger.strip("_").upper())
        for way in Model(decisions(), Bounds()).ways
        if way.moves
    }
