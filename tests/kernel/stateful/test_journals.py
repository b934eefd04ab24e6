"""Whatever happens to an agent, the journal of it tells the same again: events, requests and state."""

from collections.abc import Iterable
from typing import Any

import attrs

from kernel.codec import Codec
from kernel.effects import CallModel
from kernel.events import Event
from kernel.journal import read_journal
from kernel.setup import Setup
from kernel.trace import check
from tests.kernel.stateful.machine import AgentMachine, attack
from tests.kernel.stateful.oracle import core_of
from tests.kernel.stateful.world import SITUATIONS


def test_a_journal_tells_the_same_again(examples):
    """Random commands, failures and killed tasks: the journal replays to the events that were heard, the requests that were
    made and the state that was left, each time.
    """
    SITUATIONS.clear()
    wanted = ("replayed with a killed run", "read with joined events", "read until events were lost")
    attack(WritingMachine, examples(80), lambda: [situation for situation in wanted if not SITUATIONS[situation]])
    assert [situation for situation in wanted if not SITUATIONS[situation]] == []


class WritingMachine(AgentMachine):
    """An agent that writes its journal, and readers whose streams are judged as they are, joined and cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.journal = self.lines.append

    def teardown(self) -> None:
        super().teardown()
        agent = self.world.agent
        if agent is None:
            return
        journal = read_journal(self.lines)
        core = journal.core()
        effects = [effect for step in journal.replay(core) for effect in step]
        assert effects == [effect for step in journal.replay() for effect in step]
        assert [effect for effect in effects if isinstance(effect, Event)] == self.world.recorder.events
        assert shown(core.state) == shown(core_of(agent))
        asked = {effect.request.id: effect.request for effect in effects if isinstance(effect, CallModel)}
        for request in self.world.requests:
            again = asked[request.id]
            assert (list(again.messages), again.system_prompt) == (list(request.messages), request.system_prompt)
        for story in self.world.runs:
            SITUATIONS["replayed with a killed run"] += story.killed
            self.judge(story)

    def judge(self, story: Any) -> None:
        """A slow reader's stream has joined events, and may end before the run does; it is right as far as it goes."""
        lost, left = story.lost is not None, story.reader is None or story.reader.cancelled()
        SITUATIONS["read with joined events"] += any(getattr(event, "count", 1) > 1 for event in story.read)
        SITUATIONS["read until events were lost"] += lost
        found = check(story.read, whole=not (lost or left or story.killed))
        assert [breach for breach in found if breach.guarantee != "G8"] == []  # a call of an earlier run may be late


def shown(value: Any) -> Any:
    """What a state holds, as plain values; of a setup what it says, for a reader has neither the model nor the tools."""
    if isinstance(value, Setup):
        return Codec().dump_setup(value)
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, dict):
        return {str(key): shown(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, Iterable):
        return [shown(item) for item in value]
    if attrs.has(type(value)):
        return {
            field.name: shown(getattr(value, field.name)) for field in attrs.fields(type(value)) if field.name != "cause"
        }
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: shown(getattr(value, name)) for name in names} or repr(value)
