"""Every public method in every phase: a real agent does what the decision table says, and a refusal changes nothing."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from kernel import Agent, CompactionPolicy, Hooks, KernelError, ModelError, UserMessage
from kernel.guards import GUARDS
from kernel.testing import Gates, SimulatedLoop, call
from statechart import Ask, Command, Leaf, Phase, Refuse, Step, decisions, phase_of
from tests.kernel.helpers import Act, Stage, turns

ALIASES = {"abort": "cancel", "run_sync": "prompt", "aclose": "close"}
TURNS = turns(3)


def test_each_method_is_a_command() -> None:
    """The public methods of `Agent` are the commands of the chart, and the aliases."""
    methods = {name for name, _ in inspect.getmembers(Agent, callable) if not name.startswith("_")}
    assert methods - ALIASES.keys() == {str(command) for command in Command} - {"close"}
    assert ALIASES.keys() <= methods


class Theatre:
    """A stage on a loop that is driven by hand, so that an agent can be stopped anywhere."""

    def __init__(self, loop: SimulatedLoop, *responses: Any, **arguments: Any) -> None:
        self.loop = loop
        self.stage = Stage(*responses, **arguments)
        self.agent = self.stage.agent
        self.receipts: list[Any] = [Stage().agent.steer("somebody else's")]
        self.waiting: list[Any] = []

    @property
    def core(self) -> Any:
        return self.agent._shell.core

    def call(self, command: Command) -> Any:
        """Call the method of this command, up to where it first has to wait."""
        match command:
            case Command.PROMPT:
                return self.agent.prompt("another")
            case Command.STEER | Command.FOLLOW_UP:
                return getattr(self.agent, command)("and then")
            case Command.UNQUEUE:
                return self.agent.unqueue(self.receipts[0])
            case Command.CONFIGURE:
                return self.agent.configure(system_prompt="Be kind.")
            case Command.SUBSCRIBE:
                return self.agent.subscribe(print)()
            case Command.WAIT_FOR_IDLE | Command.CLOSE:
                waits = self.agent.wait_for_idle() if command is Command.WAIT_FOR_IDLE else self.agent.aclose()
                self.waiting.append(waits)
                try:
                    return waits.send(None)
                except StopIteration:
                    return None
            case _:
                return getattr(self.agent, command)()

    def trace(self) -> Any:
        """All that a refusal may not change."""
        state, run = self.core.state, self.core.state.run
        return (
            self.agent.state,
            {name: value for name, value in _plain(state).items() if name not in ("run", "transcript")},
            None if run is None else _plain(run),
            list(self.stage.heard.events),
            [receipt.status for receipt in self.receipts],
            self.agent._shell.listeners.all,
            len(self.loop._queue),
            self.loop.timers(),
        )


def _plain(state: Any) -> dict[str, Any]:
    values = {field.name: getattr(state, field.name) for field in attrs.fields(type(state))}
    return {name: list(value) if isinstance(value, list) else value for name, value in values.items()}


# Each place: how an agent gets there. A place is a leaf, and what the guards see there.

Drive = Callable[[SimulatedLoop], Theatre]
KEEP_ONE = CompactionPolicy(keep_turns=1)
FULL = [ModelError("full", overflow=True)]


def idle(**arguments: Any) -> Drive:
    return lambda loop: Theatre(loop, ["a"], **arguments)


def running(response: Any = ("a",), *, cancelled: bool = False, **arguments: Any) -> Drive:
    """Start a run and let it go on until it has to wait; when it is to be cancelled, let it go on after that too."""

    def drive(loop: SimulatedLoop) -> Theatre:
        theatre = Theatre(loop, response, **arguments)
        theatre.agent.prompt("Hi")
        loop.drain()
        if cancelled:
            theatre.agent.cancel()
            loop.drain()
        return theatre

    return drive


def opening(loop: SimulatedLoop) -> Theatre:
    theatre = Theatre(loop, ["a"])
    theatre.agent.prompt("Hi")
    return theatre


def by_hand(loop: SimulatedLoop) -> Theatre:
    theatre = Theatre(loop, messages=TURNS, compaction=KEEP_ONE, compactor=Waits())
    theatre.agent.compact()
    loop.drain()
    return theatre


def held(where: str, target: str = "") -> Drive:
    """An agent whose listener holds it at an event."""

    def drive(loop: SimulatedLoop) -> Theatre:
        theatre = Theatre(loop, ["a"])

        async def listener(event: Any) -> None:
            if event.type == where and getattr(event, "target", "") == target:
                await theatre.stage.gates.wait("never")

        theatre.agent.subscribe(listener)
        theatre.agent.prompt("Hi")
        loop.drain()
        return theatre

    return drive


async def waits(*_: Any) -> None:
    """A model, tool, hook or compactor that never comes back, and ends when it is cancelled."""
    await Gates().wait("never")


async def deaf(*_: Any) -> None:
    """One that does not even end when it is cancelled."""
    await Gates().wait_ignoring_cancel("never")


class Waits:
    summarize = staticmethod(waits)


def closed(loop: SimulatedLoop) -> Theatre:
    theatre = Theatre(loop, ["a"])
    loop.run_until_complete(theatre.agent.aclose())
    return theatre


def with_queue(drive: Drive, *queued: str) -> Drive:
    """The same place with these messages in the queues."""

    def driven(loop: SimulatedLoop) -> Theatre:
        theatre = drive(loop)
        theatre.receipts = [getattr(theatre.agent, method)(f"{method} {n}") for n, method in enumerate(queued)]
        loop.drain()
        return theatre

    return driven


BOTH = ("steer", "follow_up")
PLACES: dict[str, tuple[Leaf, Drive]] = {
    "idle": (Leaf.IDLE, idle()),
    "idle, asked": (Leaf.IDLE, idle(messages=TURNS[:1])),
    "idle, answered": (Leaf.IDLE, idle(messages=TURNS[:2])),
    "idle, compactable": (Leaf.IDLE, idle(messages=TURNS)),
    "idle, steered": (Leaf.IDLE, with_queue(idle(messages=TURNS[:2]), "steer")),
    "idle, followed up": (Leaf.IDLE, with_queue(idle(messages=TURNS[:2]), "follow_up")),
    "idle, queues full": (Leaf.IDLE, with_queue(idle(queue_limit=2), *BOTH)),
    "idle, transcript full": (Leaf.IDLE, idle(messages=TURNS, message_limit=7)),
    "opening": (Leaf.OPENING, opening),
    "projecting": (Leaf.PROJECTING, running(hooks=Hooks(transform_context=waits))),
    "requesting": (Leaf.REQUESTING, running([waits])),
    "streaming": (Leaf.STREAMING, running(["a", waits])),
    "streaming, queued": (Leaf.STREAMING, with_queue(running(["a", waits]), *BOTH)),
    "tools": (Leaf.TOOLS, running([call("c1", "act")], tools=[Act(body=waits)])),
    "steering": (Leaf.STEERING, running(hooks=Hooks(should_stop_after_turn=waits))),
    "steering, held": (Leaf.STEERING, held("phase.changed", "steering")),
    "follow-up": (Leaf.FOLLOW_UP, held("phase.changed", "follow_up")),
    "compaction by hand": (Leaf.COMPACTION, by_hand),
    "compaction": (
        Leaf.COMPACTION,
        running(FULL, messages=TURNS, compaction=KEEP_ONE, compactor=Waits()),
    ),
    "retry": (Leaf.RETRY, running([ModelError("busy", retryable=True)])),
    "cancelling": (Leaf.CANCELLING, running([deaf], cancelled=True)),
    "cancelling, queued": (Leaf.CANCELLING, with_queue(running([deaf], cancelled=True), *BOTH)),
    "settling, decided": (Leaf.SETTLING, held("phase.changed", "settling")),
    "settling": (Leaf.SETTLING, held("run.finished")),
    "closed": (Leaf.CLOSED, closed),
}


@contextmanager
def at(place: str) -> Iterator[Theatre]:
    loop = SimulatedLoop()
    leaf, drive = PLACES[place]
    try:
        with loop.active():
            theatre = drive(loop)
            assert theatre.core.state.leaf is leaf
            assert theatre.agent.phase is theatre.agent.state.phase is phase_of(leaf)
            yield theatre
            for waiting in theatre.waiting:
                waiting.close()
    finally:
        loop.shutdown()


def decided(theatre: Theatre, command: Command) -> Step | Refuse:
    """What the decision table says to this command here, with the answers that the guards give now."""
    node: Any = decisions()[theatre.core.state.leaf][command]
    while isinstance(node, Ask):
        node = node.yes if GUARDS[node.guard](theatre.core.state, None) else node.no
    return node


@pytest.mark.parametrize("command", Command, ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_method_does_what_the_table_says(place: str, command: Command) -> None:
    """The method moves, works in place, does nothing, or is refused with the error of its code and without a trace."""
    with at(place) as theatre:
        expected, before = decided(theatre, command), theatre.trace()
        if isinstance(expected, Refuse):
            with pytest.raises(KernelError) as caught:
                theatre.call(command)
            assert caught.value.code == expected.refusal
            assert f"{'aclose' if command is Command.CLOSE else command}() was called in phase" in str(caught.value)
            assert f"in phase {theatre.agent.phase}" in str(caught.value)
            assert theatre.trace() == before
        else:
            answer = theatre.call(command)
            assert theatre.core.state.leaf is expected.target
            assert theatre.agent.phase is phase_of(expected.target)
            if command is Command.CANCEL:
                assert answer is (expected.target is not PLACES[place][0])
            if not expected.do:
                assert theatre.trace()[:5] == before[:5]


def test_each_leaf_is_visited() -> None:
    """No leaf, and so no visible phase, is left out of this file."""
    assert {leaf for leaf, _ in PLACES.values()} == set(Leaf)
    assert {phase_of(leaf) for leaf, _ in PLACES.values()} == set(Phase)


def test_each_decision_is_visited() -> None:
    """Each command is seen allowed, and refused wherever the table can refuse it."""
    seen: set[tuple[str, str]] = set()
    for place in PLACES:
        with at(place) as theatre:
            for command in Command:
                node = decided(theatre, command)
                seen.add((command, node.refusal if isinstance(node, Refuse) else "allowed"))
    possible = {(command, outcome) for row in decisions().values() for command in Command for outcome in ends(row[command])}
    assert seen == possible


def ends(node: Any) -> set[str]:
    if isinstance(node, Ask):
        return ends(node.yes) | ends(node.no)
    return {node.refusal if isinstance(node, Refuse) else "allowed"}


# What the steps in place do, by what the caller sees.


@pytest.mark.parametrize("place", [place for place in PLACES if place != "closed" and "full" not in place])
class TestInPlace:
    def test_steer_and_follow_up_queue(self, place: str) -> None:
        """A message joins the end of its queue and its receipt says so."""
        with at(place) as theatre:
            before = theatre.agent.queued
            receipts = theatre.agent.steer("left"), theatre.agent.follow_up("then")
            assert theatre.agent.queued.steering == (*before.steering, UserMessage("left"))
            assert theatre.agent.queued.follow_up == (*before.follow_up, UserMessage("then"))
            assert [receipt.status for receipt in receipts] == ["queued", "queued"]

    def test_unqueue_takes_out_one(self, place: str) -> None:
        """`unqueue` gives the message back once; then its receipt is dropped and there is nothing to take."""
        with at(place) as theatre:
            before = theatre.agent.queued
            receipt = theatre.agent.steer("left")
            assert theatre.agent.unqueue(receipt) == UserMessage("left")
            assert (theatre.agent.queued, receipt.status) == (before, "dropped")
            assert theatre.agent.unqueue(receipt) is None

    def test_clear_queues_takes_out_all(self, place: str) -> None:
        """`clear_queues` gives back both queues and leaves them empty."""
        with at(place) as theatre:
            receipts = theatre.agent.steer("left"), theatre.agent.follow_up("then")
            before = theatre.agent.queued
            assert theatre.agent.clear_queues() == before
            assert theatre.agent.queued.steering == theatre.agent.queued.follow_up == ()
            assert [receipt.status for receipt in receipts] == ["dropped", "dropped"]

    def test_configure_waits_for_a_boundary(self, place: str) -> None:
        """A new configuration holds at once while idle, and not before the next boundary in a run."""
        with at(place) as theatre:
            theatre.agent.configure(system_prompt="Be kind.")
            assert theatre.agent.state.system_prompt == ("Be kind." if place.startswith("idle") else "")

    def test_a_receipt_of_another_agent_is_not_taken(self, place: str) -> None:
        """A receipt from somewhere else takes nothing out."""
        with at(place) as theatre:
            other = Stage().agent
            theatre.agent.steer("mine")
            assert theatre.agent.unqueue(other.steer("theirs")) is None
            assert theatre.agent.queued.steering[-1] == UserMessage("mine")


def test_reset_forgets_the_conversation_and_keeps_the_rest() -> None:
    """After `reset` transcript, archive, queues and errors are empty; configuration and listeners are as before."""
    with at("idle, answered") as theatre:
        theatre.agent.configure(system_prompt="Be kind.")
        receipt = theatre.agent.steer("left")
        theatre.agent.subscribe(lambda _: 1 / 0)
        theatre.agent.prompt("Hi")
        theatre.loop.drain()
        theatre.agent.steer("left")
        receipt = theatre.agent.follow_up("then")
        theatre.agent.reset()
        state = theatre.agent.state
        assert (len(state.messages), state.archive, state.error_message) == (0, (), None)
        assert (theatre.agent.queued.steering, receipt.status) == ((), "dropped")
        assert (state.subscriber_errors, state.subscriber_error_count) == ((), 0)
        assert state.system_prompt == "Be kind."
        assert len(theatre.agent._shell.listeners.all) == 2


def test_abort_is_a_cancel_without_a_reason() -> None:
    """`abort` cancels once, and its run has no reason."""
    with at("streaming") as theatre:
        assert (theatre.agent.abort(), theatre.agent.abort()) == (True, False)
        theatre.loop.drain()
        assert theatre.stage.heard.events[-1].result.reason is None
