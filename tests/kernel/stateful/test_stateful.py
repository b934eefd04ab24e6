"""Random commands, random listeners and a random world around the real agent, on a simulated loop.

A failure shows as a program: the rules that were called, with the tapes that the world read. The promises are in
`promises.py` and `runs.py`.
"""

from typing import Final

from hypothesis.stateful import run_state_machine_as_test

from tests.kernel.stateful.machine import AgentMachine
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
)  # fmt: skip
"""What the examples must have come across: a generator that lost its way would otherwise pass in silence."""


def test_the_agent_keeps_its_promises(examples):
    """No order of commands, answers, failures and delays breaks a guarantee, and all interesting ones were tried."""
    SITUATIONS.clear()
    run_state_machine_as_test(AgentMachine, settings=examples(1_000))
    assert not [situation for situation in SOMETIMES if not SITUATIONS[situation]]


def test_promises_do_not_lean_on_the_order_of_tasks(examples):
    """They hold as well on a loop that takes ready tasks in any order, as other loops may."""
    run_state_machine_as_test(ShuffledMachine, settings=examples(300))


class ShuffledMachine(AgentMachine):
    shuffled = True
