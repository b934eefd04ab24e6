"""An idle core as a value: a core that is made of it goes on as the one that it was taken of."""

from pathlib import Path

import pytest

from kernel import Agent
from kernel.codec import Codec
from kernel.core import Core
from kernel.idle import core_of, idle_of
from kernel.journal import Journal, read_journal
from kernel.jsonl import from_line, to_line
from kernel.scenario import parse, play
from kernel.testing import ScriptedModel, say, simulate

CASES = sorted((Path(__file__).parents[1] / "conformance" / "cases").glob("*.json"))


def journal_of(path: Path) -> Journal:
    lines: list[str] = []
    play(parse(path.read_text()), "native", lambda line: None, journal=lines.append)
    return read_journal(lines)


def exchanged(core: Core) -> Core:
    """The same state in another core, by way of a line of JSON."""
    codec, state = Codec(), core.state
    idle = codec.load_idle(from_line(to_line(codec.dump_idle(idle_of(state)))))
    return core_of(idle, state.config, state.setup, state.hooks)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_core_that_is_exchanged_while_idle_goes_on_the_same(path: Path):
    """With each input that finds no run, the core is replaced by one that was written down: all effects stay the same."""
    journal = journal_of(path)
    one, other = journal.core(), journal.core()
    for input in journal.inputs:
        if other.state.run is None:
            other = exchanged(other)
        assert other.receive(input) == one.receive(input), input


def test_a_core_in_a_run_is_no_such_value():
    """Taken in a run, it is refused, and the sentence names the run."""

    async def taken() -> None:
        agent = Agent(ScriptedModel([say("Hi")]))
        run = agent.prompt("Hi")
        with pytest.raises(ValueError, match=rf"the run {run.id} is going: only an idle agent"):
            idle_of(agent._shell.core.state)
        await run

    simulate(taken())
