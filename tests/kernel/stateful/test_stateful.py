"""Random commands, random listeners and a random world around the real agent, on a simulated loop.

A failure shows as a program: the rules that were called, with the tapes that the world read. The promises are in
`promises.py` and `runs.py`.
"""

import time
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from kernel import CompactionPolicy
from statechart import Leaf
from tests.kernel.stateful.coverage import COVERAGE
from tests.kernel.stateful.machine import SETTINGS, AgentMachine, attack
from tests.kernel.stateful.rarities import PLAYS, play
from tests.kernel.stateful.world import SITUATIONS

SOMETIMES: Final = (
    "cancel in opening", "cancel in projecting", "cancel in requesting", "cancel in streaming", "cancel in tools",
    "cancel in steering", "cancel in follow_up", "cancel in retry", "cancel in compaction", "cancel in settling",
    "a retry was sent", "retry, then success", "compaction by threshold", "compaction by overflow", "compaction by manual",
    "compaction compacted", "compaction declined", "compaction failed", "compaction cancelled",
    "something was abandoned", "a late update was discarded", "a run hung until it was cancelled",
    "a run completed", "a run cancelled", "a run failed", "a run max_turns", "a run stopped",
    "failed with MODEL_FAILED", "failed with SUBSCRIBER_FAILED", "failed with AGENT_MESSAGE_LIMIT",
    "failed with RUN_DEADLINE", "a reader lost events", "a listener was kept from waiting for its own run",
    "refused: AgentBusyError", "refused: AgentClosedError", "refused: QueueFullError", "refused: MessageLimitError",
    "refused: NothingToContinueError", "refused: NothingToCompactError",
    "an overflow, compacted, then success", "a late word in the next run", "steering and a follow-up in one run",
    "compaction after a retry",
)  # fmt: skip
"""What the examples must have come across: a generator that lost its way would otherwise pass in silence."""


def unseen() -> list[str]:
    return [*(situation for situation in SOMETIMES if not SITUATIONS[situation]), *COVERAGE.missing_rows()]


def test_the_agent_keeps_its_promises(examples, say):
    """No order of commands, answers, failures and delays breaks a guarantee; all that is interesting was tried, and every
    row of the lifecycle was taken.
    """
    SITUATIONS.clear()
    for program, config in PLAYS:
        play(program, config)
    for place in WAYS:
        cancelled_in(place)
    rounds = attack(AgentMachine, examples(600), unseen)
    programs = len(PLAYS) + len(WAYS)
    say(f"stateful: {600 * rounds} examples, {programs} programs, {len(SOMETIMES)} situations; {COVERAGE.report()}")
    assert unseen() == []


def test_for_as_long_as_one_likes(request, say):
    """With `--long 60`: an hour of new examples, longer ones, on both kinds of loop."""
    minutes = request.config.getoption("--long")
    if not minutes:
        pytest.skip("takes as long as one likes: --long MINUTES")
    count, end = 0, time.monotonic() + 60 * minutes
    longer = settings(SETTINGS, max_examples=200, stateful_step_count=60)
    while time.monotonic() < end:
        for machine in (AgentMachine, ShuffledMachine):
            run_state_machine_as_test(machine, settings=longer)
        count += 400
    say(f"stateful, {minutes} minutes: {count} examples; {COVERAGE.report()}")


def test_promises_do_not_lean_on_the_order_of_tasks(examples):
    """They hold as well on a loop that takes ready tasks in any order, as other loops may."""
    run_state_machine_as_test(ShuffledMachine, settings=examples(200))


class ShuffledMachine(AgentMachine):
    shuffled = True


WAYS: Final[dict[Leaf, bytes]] = {
    Leaf.OPENING: b"",
    Leaf.PROJECTING: bytes([0, 4]),  # a hook takes its time
    Leaf.REQUESTING: bytes([0, 0, 0, 32]),  # the first part takes its time
    Leaf.STREAMING: bytes([0, 0, 1, 0, 32]),  # the second one does
    Leaf.TOOLS: bytes([0, 0, 0, 2, 2, 0, 5]),  # one call, which hangs
    Leaf.STEERING: b"",
    Leaf.FOLLOW_UP: b"",
    Leaf.RETRY: b"",
    Leaf.COMPACTION: b"",
    Leaf.SETTLING: b"",
}
"""The tapes that lead to each place where a run may be."""


def cancelled_in(place: Leaf) -> AgentMachine:
    """A run that is cancelled in this place, up to the end of its loop."""
    config: dict[str, Any] = {"compaction": CompactionPolicy(keep_turns=1, reserve=0)}
    machine = AgentMachine()
    machine.build(config, {"transform_context"}, None, b"", 3)
    machine.interrupt(place, "acts", "cancel", WAYS[place], 24)
    machine.settle(b"")
    machine.teardown()
    return machine


@pytest.mark.parametrize("place", WAYS)
def test_a_cancel_is_taken_in_each_place(place):
    """Wherever a run is, a cancel ends it and every promise holds; while it settles, the outcome stays as it is."""
    before = SITUATIONS[f"cancel in {place.rpartition('.')[2]}"]
    machine = cancelled_in(place)
    assert SITUATIONS[f"cancel in {place.rpartition('.')[2]}"] == before + 1
    assert machine.world.agent.phase == "idle"
    result = machine.world.runs[-1].run.result
    assert result is not None
    assert result.status == ("completed" if place is Leaf.SETTLING else "cancelled")
