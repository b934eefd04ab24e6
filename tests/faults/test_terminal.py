"""TRM and ORD: the end of a run, whichever way it began and ended, and the names of what is told."""

import asyncio
from typing import Any

import pytest

from kernel import Agent, Block, Hooks
from kernel.dialects import project
from kernel.testing import ScriptedModel, call, collect
from kernel.trace import check
from tests.faults.probe import Probe, hold
from tests.kernel.helpers import Act, play, said, turns

SCRIPT = (["one", call("c1", "act")], ["done"])


@pytest.mark.parametrize("place", range(22))
def test_a_store_that_fails_does_not_take_the_run_with_it(place: int, caplog: pytest.LogCaptureFixture) -> None:
    """Whichever line of the journal can't be written, the run goes its way and its stream ends (TRM-1)."""
    lines: list[str] = []

    def write(line: str) -> None:
        if len(lines) == place:
            raise OSError("the disk is full")
        lines.append(line)

    async def main() -> list[Any]:
        agent = Agent(ScriptedModel(SCRIPT), tools=[Act()], journal=write)
        return await collect(agent.prompt("Hi"))

    events = play(main())
    assert check(events) == []
    assert events[-1].status == "completed"
    assert (len(lines), "the disk is full" in caplog.text) == (place, True)


@pytest.mark.parametrize("entry", ["continue", "steering", "follow_up"])
def test_each_way_in_begins_and_ends_alike(entry: str) -> None:
    """A run has the same events whichever method began it; only where its message came from differs (TRM-6)."""
    prompted = hold(lambda: Probe(*SCRIPT, tools=[Act()]))
    probe = Probe(*SCRIPT, tools=[Act()], messages=turns(1)[:1] if entry == "continue" else turns(1))

    async def main() -> None:
        if entry != "continue":
            getattr(probe, {"steering": "steer"}.get(entry, entry))("Hi")
        assert (await probe.continue_()).status == "completed"

    probe.play(main())
    of_one_run = [names[: names.index("run.finished") + 1] for names in (prompted.types, probe.types)]
    apart = ("queue.changed", "message.accepted")
    assert [name for name in of_one_run[1] if name not in apart] == [name for name in of_one_run[0] if name not in apart]
    origins = [event.origin for event in probe.heard.of("message.accepted")[:-1]]
    assert origins == ([] if entry == "continue" else [entry])


def test_half_an_answer_is_there_after_a_stop() -> None:
    """Stopped in the middle of an answer: one end, which has the half answer, and the transcript has it too (TRM-10)."""

    def build() -> Probe:
        probe = Probe(["par", lambda: probe.gates.wait("never")])
        probe.on("message.updated", probe.agent.cancel)
        return probe

    probe = hold(build)
    result = probe.heard.of("run.finished")[0].result
    assert (result.status, result.partial.text) == ("cancelled", "par")
    assert said(result.messages) == [("user", "Hi"), ("assistant", "par")]


@pytest.mark.parametrize(
    ("dialect", "end"),
    [("native", "run.finished"), ("chapter_06", "agent_end"), ("checkpoint_09", "run.finished"), ("pi", "agent_end")],
)
def test_three_turns_are_finished_once_in_each_dialect(dialect: str, end: str) -> None:
    """The end of a turn is never taken for that of the run (TRM-13)."""
    probe = hold(lambda: Probe([call("c1", "act")], [call("c2", "act")], ["done"], tools=[Act()]))
    first = [event for event in probe.heard.events if event.run_id == probe.heard.events[0].run_id]
    types = [line["type"] for line in project(first, dialect)]
    assert (types.count(end), types[-1]) == (1, end)


def test_who_prompted_gets_the_end_of_its_own_run() -> None:
    """Turns that a hook asked for are part of that run; the next run's result is of the next run alone (TRM-16)."""
    asked: list[str] = []

    def stop(_: Any) -> bool:
        if not asked:
            asked.append("then")
            probe.follow_up("then")
        return False

    probe = Probe(["a"], ["b"], ["c"], hooks=Hooks(should_stop_after_turn=stop))

    async def main() -> list[Any]:
        results = [await probe.prompt("one"), await probe.prompt("two")]
        return [(result.turns, result.final_text, said(result.messages)[0]) for result in results]

    assert probe.play(main()) == [(2, "b", ("user", "one")), (1, "c", ("user", "two"))]


def test_a_call_says_how_it_ended() -> None:
    """Done, failed, denied, cancelled, out of time and left out: `tool.ended` and its result tell the six apart (ORD-8)."""
    names = ("done", "fails", "denied", "late", "waits", "left_out")

    def build() -> Probe:
        hooks = Hooks(before_tool_call=lambda call, _: Block("denied") if call.name == "denied" else None)
        probe = Probe([call(name, name) for name in names], hooks=hooks)
        alone: Any = {"resources": lambda _: ("file",)}
        probe.agent.configure(
            tools=[
                Act("done"),
                Act("fails", lambda *_: 1 / 0),
                Act("denied"),
                Act("late", lambda *_: asyncio.sleep(60), timeout=1),
                Act("waits", probe.waiting(), **alone),
                Act("left_out", **alone),
            ]
        )
        probe.on("tool.ended", probe.agent.cancel, nth=4)
        return probe

    probe = hold(build)
    ended = {event.call_id: event for event in probe.heard.of("tool.ended")}
    assert [(ended[name].is_error, ended[name].executed) for name in names] == [
        (False, True), (True, True), (True, False), (True, True), (True, True), (True, False),
    ]  # fmt: skip
    first_words = [ended[name].text.partition(":")[0].split(" after ")[0] for name in names]
    assert len(set(first_words)) == 6
