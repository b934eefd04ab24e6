"""Whether the benchmarks still do their work, on small sizes. Nothing here looks at a time."""

import asyncio
import json
from pathlib import Path

import pytest
from attrs import evolve

from kernel import Agent
from tests.benchmarks import growth, memory, micro, report, small, soak, startup
from tests.benchmarks.__main__ import EXTRA, sides
from tests.benchmarks.floor import Floor
from tests.benchmarks.measure import Row, Spread, beside, compare
from tests.benchmarks.peers import __main__ as peers
from tests.benchmarks.peers import child
from tests.benchmarks.plans import text_plan
from tests.benchmarks.sides import Seen
from tests.benchmarks.subject import Kernel
from tests.benchmarks.workloads import text_turn, workloads

SMALL = 0.02


@pytest.mark.parametrize("name", workloads())
def test_both_sides_do_the_work(name: str):
    """Each workload runs on both sides, and its own check of what was done passes."""
    rows = asyncio.run(compare(workloads(SMALL)[name], *sides(name), rounds=1))

    assert [row.label for row in rows] == list(workloads(SMALL)[name].labels)


@pytest.mark.parametrize(("name", "workload"), [("awaited", "text"), ("in-place", "tools")])
def test_the_variants_do_the_same_work(name: str, workload: str):
    """So do the variants with an awaited listener and with a tool that is awaited in place."""
    assert asyncio.run(compare(workloads(SMALL)[workload], *sides(name), rounds=1))


def test_work_that_is_not_done_is_no_measurement():
    """A side that loses a piece of the text is found out."""

    class Lossy(Kernel):
        async def run(self, agent: Agent, seen: Seen) -> None:
            await super().run(agent, seen)
            seen.deltas -= 1

    with pytest.raises(AssertionError, match="deltas and characters seen"):
        asyncio.run(text_turn(Lossy(), 3))


def test_an_idle_agent_holds_something():
    """The memory of agents that have run is counted, in this process and in one of its own."""
    assert asyncio.run(memory.live_kilobytes(Kernel(listen=None), 3)) > 0
    if memory.CAN_SEE_RESIDENT:
        assert asyncio.run(memory.resident_kilobytes(Floor(), 3)) >= 0


def test_the_small_things_are_done_before_they_are_measured():
    """What is told is heard, what is written is read again, and each has a line of its own."""
    rows = small.rows(20)

    assert len({row.label for row in rows}) == len(rows)


def test_each_column_beside_the_peers_has_its_figure(capsys: pytest.CaptureFixture[str]):
    """The rows that a child prints fill every column of the table."""
    asyncio.run(child.measure("phasekernel", 1, 0.02))
    line = peers.cells([json.loads(line) for line in capsys.readouterr().out.splitlines()])

    assert set(line) == set(peers.COLUMNS.values())


def test_each_peer_has_what_it_needs_declared():
    """Every environment has its dependency group, with exact versions, and a side of its own."""
    for name, requirements in peers.groups().items():
        assert all("==" in requirement for requirement in requirements), name
        assert (Path(peers.__file__).parent / f"{name}.py").is_file()


def test_guarding_is_measured_on_steps_that_are_allowed():
    """The steps that stand for all are allowed, by the table and by the live machine."""
    rows = micro.staying_rows(4) + micro.moving_rows(4)

    assert len({row.label for row in rows}) == len(rows)


def test_an_agents_share_of_the_lifecycle_is_less_than_a_kilobyte():
    """Agents share one table: the lifecycle adds less than 1 kB to each."""
    assert micro.agent_bytes() < 1024 < micro.table_bytes() < micro.machine_bytes() * 2


def test_importing_the_kernel_does_not_import_the_machine():
    """`import kernel` is measured in a fresh process, in which `transitions` must not appear."""
    milliseconds, modules = startup.import_cost("kernel")

    assert milliseconds > 0
    assert modules > 0


def test_the_table_is_loaded_as_it_was_compiled():
    """Loading is measured on the table that compiling gives."""
    assert startup.table_rows(times=1)


def test_the_report_is_a_table():
    """All rows have as many cells as the head, and the machine is told."""
    spread = Spread.of([1.0, 2.0, 300.0])
    lines = [
        *report.header().splitlines(),
        *report.lines([beside("this", "µs", spread, spread), Row("that", "ns", spread)]).splitlines(),
    ]

    assert {line.count("|") for line in lines} == {6}
    assert "transitions" in report.machine()


def test_every_workload_has_sides():
    """What can be asked for by name can be measured."""
    assert all(sides(name) for name in (*workloads(), *EXTRA))
    assert len(text_plan(3)[0].texts) == 3


def test_a_life_is_lived_and_looked_at():
    """A second of it: runs end in each way or another, and at rest there is one task; what grows is named."""
    looks, statuses = asyncio.run(soak.soak(0.02, 1, looks=1))
    assert len(looks) == 2
    assert looks[-1].runs == statuses.total() > 0
    assert looks[-1].tasks == 1
    assert len(soak.table(looks).splitlines()) == 4
    more = evolve(looks[0], tasks=looks[0].tasks + 1, blocks=looks[0].blocks * 2)
    assert soak.grown([looks[0], more]) == ["tasks", "blocks"]
    assert soak.grown([looks[0], looks[0]]) == []


def test_growth_is_measured_on_all_that_may_grow():
    """Each series does its work and has its figures; the table and the picture show all of them."""
    series = asyncio.run(growth.measure(0.01))
    assert len(series) == 8
    assert all(len(each.points) > 1 for each in series)
    assert len(growth.table(series).splitlines()) == 2 + len(series)
    assert growth.picture(series).count("<polyline") == len(series)
