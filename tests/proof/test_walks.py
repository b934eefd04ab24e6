"""The ground on which interpreters are compared: the walks go everywhere, and the compiled table agrees there."""

from collections.abc import Callable

import pytest

from statechart import Decisions
from tests.proof.walks import EVENTS, LENGTH, Ground, branches, by_table

pytestmark = pytest.mark.second_opinion


def test_the_walks_take_every_branch(ground: Ground, table: Decisions):
    """Each leaf, trigger and way through its guards occurs, and the events are as many as were asked for."""
    assert branches(table) - ground.taken == set()
    assert len(ground) >= EVENTS


def test_the_walks_also_ask_what_nobody_knows(ground: Ground, table: Decisions):
    """Some events have no cell in the table where they come."""
    unknown = [
        event
        for walk, told in zip(ground.walks, ground.told, strict=True)
        for event, before in zip(walk[1:], told, strict=False)
        if event.trigger not in table[before.state]
    ]

    assert len(unknown) > len(ground) / LENGTH


def test_the_table_does_what_the_live_machine_does(ground: Ground, table: Decisions, say: Callable[[str], None]):
    """For each event the compiled table leads to the same state by the same actions, or has no step either."""
    live = [[(each.state, each.did, each.went) for each in told] for told in ground.told]

    said = by_table(table, ground.walks)
    wrong = sum(one != other for pair in zip(said, live, strict=True) for one, other in zip(*pair, strict=True))
    reached = f"{len(ground.taken)} of {len(branches(table))} branches"
    say(f"the compiled table: {len(ground)} events, {wrong} differences, {reached}")

    assert said == live
