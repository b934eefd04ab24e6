"""Random orders at random moments to a session whose process dies again and again: nothing is lost, nothing comes twice."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel import AssistantMessage, ToolMessage, UserMessage
from kernel.engines import Order
from kernel.engines.suite.plans import Turn, agent, plan, turn
from kernel.events import MessageEnded, RunFinished
from kernel.testing import simulate
from tests.engines.memory import Memory, Room

TOOLS = st.sampled_from([("note", {"text": "x"}), ("once", {"gate": "g"}), ("wait", {"gate": "g"}), ("nothing", {})])
TURNS: st.SearchStrategy[Turn] = st.builds(
    lambda texts, calls: turn(*texts, calls=calls),
    st.lists(st.sampled_from(["a ", "b ", "@g"]), max_size=3),
    st.lists(TOOLS, max_size=3),
)
PLANS = st.builds(lambda turns: plan(*turns, turn("End.")), st.lists(TURNS, max_size=3))
ORDERS = st.one_of(
    st.builds(lambda text: Order("prompt", text), PLANS),
    st.sampled_from(
        [Order("steer", "left"), Order("follow_up", "then"), Order("cancel"), Order("continue"), Order("compact")]
    ),
)
MOMENTS = st.lists(st.tuples(st.integers(0, 12), ORDERS), max_size=4)
"""After how many commits, or moments in which nothing happened, which order comes."""


def lived(first: Order, later: list[tuple[int, Order]], crashes: list[tuple[int, bool]], slow: int) -> tuple[Memory, Room]:
    room = Room()
    memory = Memory(lambda: agent(room), dict(crashes), slow=slow)
    waiting = sorted(later, key=lambda moment: moment[0])

    def more(memory: Memory) -> None:
        while waiting and (waiting[0][0] <= memory.commits + memory.quiet):
            memory.orders.append(waiting.pop(0)[1])
        if memory.quiet > 2:
            room.gates.open("g")
        if memory.quiet > 30:  # nothing is to come any more
            waiting.clear()

    simulate(memory.live([first], more))
    return memory, room


@settings(max_examples=400, deadline=None)
@given(
    first=st.builds(lambda text: Order("prompt", text), PLANS),
    later=MOMENTS,
    crashes=st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4),
    slow=st.integers(0, 6),
)
def test_a_life_of_crashes_leaves_a_whole_conversation(first: Order, later: Any, crashes: Any, slow: int):
    """Each order has one answer; what was said is in the transcript or still queued; each call has one result, told once;
    each run ends once; and no execution that must not be repeated begins twice.
    """
    memory, room = lived(first, later, crashes, slow)
    messages, state = memory.messages, memory.state

    assert sorted(memory.outcomes) == list(range(1, len(memory.orders) + 1))
    refused = {code for status, code in memory.outcomes.values() if status == "refused"}
    assert refused <= {"NOTHING_TO_CONTINUE", "NOTHING_TO_COMPACT"}

    said = Counter(message.text for message in messages if isinstance(message, UserMessage))
    queued = Counter(item.message.text for item in (*state.steering, *state.follow_up))
    asked = Counter(order.message.text for order in memory.orders if order.message is not None)
    assert said + queued == asked

    calls = Counter(call.id for m in messages if isinstance(m, AssistantMessage) for call in m.calls)
    results = Counter(message.call_id for message in messages if isinstance(message, ToolMessage))
    told = [event.message for event in memory.events if isinstance(event, MessageEnded)]
    assert results == calls
    assert Counter(message.call_id for message in told if isinstance(message, ToolMessage)) == results

    ends = Counter(event.run_id for event in memory.events if isinstance(event, RunFinished))
    assert ends == Counter({event.run_id: 1 for event in memory.events})
    positions = [(event.run_id, event.sequence) for event in memory.events]
    assert len(set(positions)) == len(positions)
    assert all(times == 1 for execution, times in room.ran().items() if execution.startswith("once "))
