"""The probes bite: each of these faults is planted in the kernel, and a probe of `tests/faults` fails under it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest

from kernel import sync
from kernel.actions import runs
from kernel.run import Run
from statechart import Action, Leaf
from tests.faults import test_children, test_overlap, test_pairing, test_queues, test_summaries
from tests.faults.probe import hold
from tests.faults.scripts import build
from tests.faults.test_parity import PLAIN, STEERED
from tests.kernel.planted.kit import Fault, Plant, action, after
from tests.kernel.stateful import test_faults_are_found as found
from tests.kernel.test_guarantees_bite import plant as plant


def parity() -> None:
    """The four ways of one plain script."""
    hold(lambda: build(PLAIN))


def steered() -> None:
    """The four ways of a script with steering and a cancel."""
    hold(lambda: build(STEERED))


def a_reader_misses_progress(plant: Plant) -> None:
    """Who iterates a run is not told of a tool's progress."""
    put = Run.put
    plant.setattr(Run, "put", lambda run, event: None if event.type == "tool.updated" else put(run, event))


def a_run_without_a_loop_forgets_its_turns(plant: Plant) -> None:
    """`run_sync` gives another result than the run has."""
    settled = sync._settled

    async def other(start: Any) -> Any:
        return attrs.evolve(await settled(start), turns=0)

    plant.setattr(sync, "_settled", other)


def what_comes_after_a_stop_is_forgotten(plant: Plant) -> None:
    """A follow-up that comes while a cancel settles is accepted and thrown away."""

    def forget(state: Any, _: Any) -> None:
        if state.leaf is Leaf.CANCELLING:
            state.follow_up.pop()

    after(plant, Action.ENQUEUE_FOLLOW_UP, forget)


def a_reset_keeps_the_conversation(plant: Plant) -> None:
    """A reset empties the queues and nothing else."""
    action(plant, Action.RESET, runs.clear_queues)


BITES: list[tuple[Fault, Callable[[], object]]] = [
    (a_reader_misses_progress, parity),
    (a_run_without_a_loop_forgets_its_turns, parity),
    (what_comes_after_a_stop_is_forgotten, test_queues.test_a_stop_clears_neither_what_came_before_nor_after),
    (a_reset_keeps_the_conversation, test_summaries.test_after_a_reset_nothing_of_before_is_summarized),
    (found.late_reports_are_taken, test_overlap.TestOneRun().test_what_woke_a_run_wakes_nothing_when_it_is_over),
    (found.a_call_is_left_open, partial(test_pairing.test_a_cancel_at_each_event_of_two_tools, "tool.started", 1)),  # I1
    (found.a_run_finishes_twice, parity),  # I2
    (found.cancel_stops_nothing, partial(test_children.test_a_cancel_reaches_a_child_at_once, "gate")),
    (found.steering_stays_queued, steered),  # I5
    (found.snapshots_grow, parity),  # I8
]


@pytest.mark.parametrize(("fault", "probe"), BITES, ids=[fault.__name__ for fault, _ in BITES])
def test_a_planted_fault_is_seen(fault: Fault, probe: Callable[[], object], plant: Plant) -> None:
    """The probe, which passes on the kernel as it is, fails by its own claim."""
    fault(plant)
    with pytest.raises(AssertionError):
        probe()
