"""The mutants that nothing can catch, each with the reason: what the fault changes, nobody can tell."""

from typing import Final

REASONS: Final[dict[str, str]] = {
    "await_delivery is done twice": "only the newest delivery is answered; the older one's `advance` is passed over",
    "unqueue is done twice": "the second time there is nothing to take out",
    "clear_queues is done twice": "the second time the queues are empty",
    "configure is done twice": "the same setup is put in place again",
    "stage_configuration is done twice": "the same setup is staged again",
    "request_close is done twice": "the wish to close is a fact, not a count",
    "end_backoff is done twice": "the second time no backoff is open",
    "decline_compaction is done twice": "the second time no compaction is open",
    "abandon_listeners is done twice": "the second time nobody is waited for",
    "close is done twice": "the phase that is shown is closed either way",
    "start_grace is done twice": "a grace that runs is not started again",
    "close_batch is done twice": "the second time each call has its result, and the batch goes with the turn",
    "unwind is done twice": "the second time nothing of the run is open",
    "abandon_work is done twice": "the second time nothing is going",
    "when undoes_outcome: await_delivery is missing": "the step into settling has asked for the delivery that leads on",
    "halted in cancelling to settling: abandon_listeners is missing": "who halts has let go of the listeners before",
    "halted in running to settling: abandon_listeners is missing": "who halts has let go of the listeners before",
    "halted in settling stays: abandon_listeners is missing": "who halts has let go of the listeners before",
    "when close_wanted: close is missing": "the end of a run shows the phase as well",
    "reset is done twice": "the second time all is empty",
    "end_turn is done twice": "a turn that has ended does not end again",
}
"""A part of the name, and why."""


def part_of(name: str) -> str | None:
    """Which of the reasons explains the mutant of that name; None when it must be caught."""
    return next((part for part in REASONS if part in name), None)
