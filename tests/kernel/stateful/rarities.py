"""Ways into the corners of the lifecycle that random examples find too seldom to rely on.

Each is a short program of the state machine's own rules, so that every promise is held there as well.
"""

from collections.abc import Callable
from typing import Any, Final

from kernel import CompactionPolicy, UsageLimit
from tests.kernel.stateful.machine import AgentMachine

Play = Callable[[AgentMachine], None]
LONG_SUMMARY: Final = bytes([0, 7])
"""The run is read at once, and the compactor's summary is no shorter than what it stands for."""
DEAF_TOOL: Final = 6
WRONG, CANCELS = 1, 2


def steers_at_the_last_poll(machine: AgentMachine) -> None:
    """A listener steers when the run has come to its last drain point."""
    machine.ambush("acts", "-> follow_up", "steer", b"")


def hangs_while_it_settles(machine: AgentMachine) -> None:
    """A listener of the settling run is in the way until the deadline, and the grace after it."""
    machine.ambush("hangs", "-> settling", "cancel", b"")


def dies_while_it_settles(machine: AgentMachine) -> None:
    """The kernel's task is cancelled while a listener holds up the settling."""
    machine.subscribe("hangs", "-> settling", "cancel", 1)
    machine.world.wish = "say"
    machine.prompt(0, b"", 0)
    machine.loop.drain()
    machine.kill(True, 0, 0)
    machine.settle(b"")


def fails_a_run_that_was_about_to_end_well(machine: AgentMachine) -> None:
    """A listener raises at the step into settling."""
    machine.ambush("raises", "-> settling", "cancel", b"")


def fails_when_nobody_listens_any_more(machine: AgentMachine) -> None:
    """What a listener began fails after the run has settled."""
    machine.ambush("raises_later", "run.finished", "cancel", b"")


def has_no_turn_for_a_follow_up(machine: AgentMachine) -> None:
    """The last turn has passed, and a follow-up waits."""
    machine.follow_up(0, 1, 0)
    machine.converse(0, "say", b"")


def goes_on_with_a_follow_up(machine: AgentMachine) -> None:
    """Nothing is owed and nothing steers: `continue_` takes the follow-up."""
    machine.converse(0, "say", b"")
    machine.follow_up(0, 1, 0)
    machine.continue_(b"", 0)
    machine.settle(b"")


def compacts_in_vain(machine: AgentMachine) -> None:
    """By hand, with a summary that makes nothing smaller."""
    machine.compact(LONG_SUMMARY, 0)
    machine.settle(b"")


def overflows_in_vain(machine: AgentMachine) -> None:
    """After an overflow, with a summary that makes nothing smaller."""
    machine.converse(0, "overflow", LONG_SUMMARY)


def overflows_and_recovers(machine: AgentMachine) -> None:
    """After an overflow, with a good summary: the same turn succeeds."""
    machine.converse(0, "overflow", b"")


def stuck_in_a_tool(machine: AgentMachine) -> None:
    """A tool runs that ignores every cancellation."""
    machine.world.wish, machine.world.fates = "call", [DEAF_TOOL]
    machine.prompt(0, b"", 0)
    machine.go_on(until=lambda: machine.world.deaf > 0)


def closes_while_it_cancels(machine: AgentMachine) -> None:
    """The agent is closed while a deaf tool holds up a cancel."""
    stuck_in_a_tool(machine)
    machine.cancel(None, False, 0)
    machine.loop.drain()
    machine.aclose(True, 0)
    machine.settle(b"")


def dies_while_it_cancels(machine: AgentMachine) -> None:
    """The kernel's task is cancelled while a deaf tool holds up a cancel."""
    stuck_in_a_tool(machine)
    machine.cancel(None, False, 0)
    machine.loop.drain()
    machine.kill(True, 0, 0)
    machine.settle(b"")


def runs_out_of_time_while_it_cancels(machine: AgentMachine) -> None:
    """The deadline comes while the grace of a cancel still runs."""
    stuck_in_a_tool(machine)
    machine.loop.call_later(4.0, machine.commands.cancel)
    machine.settle(b"")


def speaks_late_in_the_next_run(machine: AgentMachine) -> None:
    """A deaf tool that was given up goes on when the next run waits for its model."""
    stuck_in_a_tool(machine)
    machine.cancel(None, False, 0)
    machine.settle(b"")
    machine.prompt(0, bytes([0, 0, 0, 32]), 0)
    machine.go_on(until=lambda: machine.world.agent.state.is_streaming)
    machine.release()
    machine.settle(b"")


def answers_wrongly(machine: AgentMachine) -> None:
    """The answer is not what was asked for, and then it is."""
    machine.world.verdicts = [WRONG]
    machine.converse(0, "say", b"")


def is_cancelled_by_the_check(machine: AgentMachine) -> None:
    """The check of the answer cancels the run."""
    machine.world.verdicts = [CANCELS]
    machine.converse(0, "say", b"")


PLAYS: Final[tuple[tuple[Play, dict[str, Any]], ...]] = (
    (steers_at_the_last_poll, {}),
    (steers_at_the_last_poll, {"max_turns": 1}),
    (hangs_while_it_settles, {"run_deadline": 6.0}),
    (dies_while_it_settles, {}),
    (fails_a_run_that_was_about_to_end_well, {"subscriber_failure": "fail_run"}),
    (fails_when_nobody_listens_any_more, {"subscribers": "observe"}),
    (has_no_turn_for_a_follow_up, {"max_turns": 1}),
    (goes_on_with_a_follow_up, {}),
    (compacts_in_vain, {}),
    (overflows_in_vain, {}),
    (overflows_and_recovers, {}),
    (closes_while_it_cancels, {}),
    (dies_while_it_cancels, {}),
    (runs_out_of_time_while_it_cancels, {"run_deadline": 6.0}),
    (speaks_late_in_the_next_run, {}),
    (answers_wrongly, {"output": True}),
    (answers_wrongly, {"output": True, "max_turns": 1}),
    (answers_wrongly, {"output": True, "usage_limit": UsageLimit(requests=1)}),
    (answers_wrongly, {"output": True, "message_limit": 9, "turns": 3}),
    (is_cancelled_by_the_check, {"output": True}),
)


def play(program: Play, config: dict[str, Any]) -> None:
    """A program on an agent of its own, from the beginning to the end of its loop."""
    machine, policies = AgentMachine(), dict(config)
    output, turns = policies.pop("output", False), policies.pop("turns", 3)
    machine.build({"compaction": CompactionPolicy(keep_turns=1, reserve=0), **policies}, set(), None, b"", turns, output)
    program(machine)
    machine.promises_hold()
    machine.teardown()
