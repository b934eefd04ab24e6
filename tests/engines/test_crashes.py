"""A session whose process dies at any commit, before it or right after it: nothing is lost, nothing is recorded twice."""

from collections import Counter
from collections.abc import Callable

import pytest
from attrs import frozen

from kernel import AssistantMessage, ToolMessage, UserMessage
from kernel.engines import Order
from kernel.engines.suite.plans import agent, plan, turn
from kernel.events import MessageEnded, RunFinished
from kernel.resuming import INTERRUPTED
from kernel.testing import simulate
from tests.engines.memory import Memory, Room


@frozen
class Story:
    """Orders, and what is done after commits."""

    orders: tuple[Order, ...]
    more: Callable[[Memory, Room], None] = lambda memory, room: None
    runs: int = 1
    statuses: tuple[str, ...] = ("completed",)


TWO_TOOLS = plan(
    turn("Let me see.", calls=[("note", {"text": "one"}), ("once", {"gate": "open"})]),
    turn("And now", calls=[("note", {"text": "two"}), ("wait", {"gate": "open"})]),
    turn("Done."),
)


def _open(memory: Memory, room: Room) -> None:
    room.gates.open("open")


def _say_more(memory: Memory, room: Room) -> None:
    """Steer and follow up while tools wait, and let them through then."""
    if memory.commits >= 3 and len(memory.orders) == 1:
        memory.orders.append(Order("steer", "left"))
    elif memory.commits >= 5 and len(memory.orders) == 2:
        memory.orders.append(Order("follow_up", "then"))
    elif memory.commits >= 7 or memory.quiet:
        room.gates.open("open")


def _steer_the_stream(memory: Memory, room: Room) -> None:
    """Steer while a response is half said."""
    if memory.quiet and len(memory.orders) == 1:
        memory.orders.append(Order("steer", "left"))
    elif memory.quiet > 1:
        room.gates.open("half")


def _cancel_and_go_on(memory: Memory, room: Room) -> None:
    """Cancel, and in the same breath say what is to be done instead."""
    if memory.quiet and len(memory.orders) == 1:
        memory.orders += [Order("cancel"), Order("follow_up", "instead")]
    elif memory.quiet > 1:
        room.gates.open("open")


def _cancel(memory: Memory, room: Room) -> None:
    """Cancel while tools wait, prompt again, and let the tools through then."""
    if (memory.commits >= 4 or memory.quiet) and len(memory.orders) == 1:
        memory.orders += [Order("cancel", reason="enough"), Order("prompt", "again")]
    elif memory.quiet:
        room.gates.open("open")


STORIES = {
    "tools": Story((Order("prompt", TWO_TOOLS),), _open),
    "two prompts": Story((Order("prompt", TWO_TOOLS), Order("prompt", "more")), _open, runs=2),
    "steered": Story((Order("prompt", TWO_TOOLS),), _say_more),
    "steered in a stream": Story((Order("prompt", plan(turn("Half ", "@half", "whole."))),), _steer_the_stream),
    "cancelled and followed up": Story(
        (Order("prompt", TWO_TOOLS),), _cancel_and_go_on, runs=2, statuses=("cancelled", "completed")
    ),
    "cancelled": Story((Order("prompt", TWO_TOOLS),), _cancel, runs=2, statuses=("cancelled", "completed")),
}


def lived(story: Story, crash: int | None, lost: bool, slow: int = 0) -> tuple[Memory, Room]:
    room = Room()
    memory = Memory(lambda: agent(room), {} if crash is None else {crash: lost}, slow=slow)
    simulate(memory.live(story.orders, lambda memory: story.more(memory, room)))
    return memory, room


def commits(name: str) -> int:
    return lived(STORIES[name], None, False)[0].commits


MOST = 16
"""More commits than any of these stories has."""
POINTS = [(name, crash, lost) for name in STORIES for crash in range(1, MOST) for lost in (False, True)]


@pytest.mark.parametrize("slow", [0, 5])
@pytest.mark.parametrize(("name", "crash", "lost"), POINTS)
def test_a_crash_at_any_commit_loses_nothing_and_records_nothing_twice(name: str, crash: int, lost: bool, slow: int):
    """Every order is carried out, every call has one result, every run ends once, and every message is told once."""
    story = STORIES[name]
    memory, room = lived(story, crash, lost, slow)
    messages = memory.messages

    said = [message.text for message in messages if isinstance(message, UserMessage)]
    asked = [order.message.text for order in memory.orders if order.message is not None]
    assert sorted(said) == sorted(asked)
    assert {status for status, _ in memory.outcomes.values()} == {"taken"}
    assert len(memory.outcomes) == len(memory.orders)

    calls = [call.id for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    results = Counter(message.call_id for message in messages if isinstance(message, ToolMessage))
    assert results == Counter(calls)

    finished = [event for event in memory.events if isinstance(event, RunFinished)]
    assert Counter(event.run_id for event in finished) == Counter({event.run_id for event in finished})
    assert len(finished) >= story.runs
    assert {event.result.status for event in finished} <= set(story.statuses)
    ended = [event.message for event in memory.events if isinstance(event, MessageEnded)]
    assert Counter(message.call_id for message in ended if isinstance(message, ToolMessage)) == results

    assert all(times <= 1 + memory.crashes for times in room.ran().values())


@pytest.mark.parametrize("slow", [0, 5])
@pytest.mark.parametrize("crash", range(1, MOST))
@pytest.mark.parametrize("lost", [False, True])
def test_what_must_not_run_twice_does_not(crash: int, lost: bool, slow: int):
    """The tool that declares `replay="never"` begins once at most; where nobody knows what it did, its result says so."""
    memory, room = lived(STORIES["tools"], crash, lost, slow)
    once = [m for m in memory.messages if isinstance(m, ToolMessage) and m.name == "once"]
    begun = [execution for what, execution in room.happened if what == "ran" and execution.startswith("once ")]

    assert [message.text for message in once] in (["passed open"], [INTERRUPTED])
    assert len(begun) <= 1
    assert len(begun) == 1 or once[0].text == INTERRUPTED


def test_the_crashes_were_everywhere():
    """The points at which the processes of these stories die are all that there are, and a few that never come."""
    assert all(3 < commits(name) < MOST - 1 for name in STORIES)
