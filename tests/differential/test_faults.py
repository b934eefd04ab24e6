"""Faults planted in the kernel and in the dialect: the random scenarios of the lane find each."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from kernel import core, dialects
from kernel.actions import batches, turns
from kernel.events import Event
from kernel.guards import GUARDS
from statechart import Guard
from tests.differential.pi import Pi
from tests.differential.scenarios import scenario_of
from tests.differential.test_random import CHUNK, differs

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.pi


def steering_a_turn_late(patch: Patch) -> None:
    """What was queued before the first request does not join it."""
    patch.setitem(GUARDS, Guard.STEERING_JOINS, lambda state, report: False)


def results_in_completion_order(patch: Patch) -> None:
    """Results are recorded in the order in which the calls ended."""
    ended: list[Any] = []
    answer, close, record = batches._answer, batches.close_calls, batches._record

    def answering(state: Any, call: Any, *content: Any, **rest: Any) -> None:
        ended.append(call)
        answer(state, call, *content, **rest)

    def closing(state: Any, batch: Any, unexecuted: str) -> None:
        with patch.context() as inside:
            inside.setattr(batches, "_record", lambda state, call: None)
            close(state, batch, unexecuted)
        for call in sorted(batch.calls, key=lambda call: next(at for at, one in enumerate(ended) if one is call)):
            record(state, call)

    patch.setattr(batches, "_answer", answering)
    patch.setattr(batches, "close_calls", closing)


def a_lost_message_end(patch: Patch) -> None:
    """The end of a failed tool's message is not told."""
    made = dialects.DIALECTS["pi"]

    def projector() -> dialects.Projector:
        tell = made()

        def lines(event: Event) -> Iterator[dialects.Line]:
            return (line for line in tell(event) if line["type"] != "message_end" or line.get("error") is not True)

        return lines

    patch.setitem(dialects.DIALECTS, "pi", projector)


def all_follow_ups_at_once(patch: Patch) -> None:
    """Follow-ups enter together, whatever the mode says."""
    deliver = turns._deliver
    patch.setattr(turns, "_deliver", lambda state, queue, mode, origin: deliver(state, queue, "all", origin))


def calls_one_by_one(patch: Patch) -> None:
    """Calls of a parallel batch run one after the other."""
    patch.setattr(batches, "_one_by_one", lambda state, calls: True)


FAULTS: Final[list[Callable[[Patch], None]]] = [
    steering_a_turn_late, results_in_completion_order, a_lost_message_end, all_follow_ups_at_once, calls_one_by_one,
]  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[Patch], None], pi: Pi, say: Callable[[str], None]) -> None:
    """One of the first scenarios differs, and none does when the fault is out again."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        core.bound_table.cache_clear()
        found = [seed for seed in range(CHUNK) if differs(scenario_of(seed), pi)]
    core.bound_table.cache_clear()
    assert found, f"{CHUNK} scenarios do not see {plant.__name__}"
    assert not any(differs(scenario_of(seed), pi) for seed in found)
    say(f"planted fault {plant.__name__}: seen by {len(found)} of {CHUNK} scenarios")
