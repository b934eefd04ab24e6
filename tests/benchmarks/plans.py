"""What a fake model says, the same for both sides: it never waits for anything and never looks at the conversation."""

from typing import Final, Literal

from attrs import frozen

Pace = Literal["instant", "yielding", "stuck"]
"""`yielding`: to the event loop before each piece, as a network would. `stuck`: after its pieces, for ever."""

TOOL: Final = "echo"
RESULT: Final = "ok"
LAST_WORDS: Final = ("all ", "done")


@frozen
class Call:
    """A tool call as a provider sends it: with its arguments as JSON text."""

    id: str
    arguments: str


@frozen
class Turn:
    """One response."""

    texts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    pace: Pace = "instant"

    @property
    def text(self) -> str:
        """All its text."""
        return "".join(self.texts)


Plan = tuple[Turn, ...]


def text_plan(deltas: int, pace: Pace = "instant") -> Plan:
    """One turn of text in so many pieces."""
    return (Turn(tuple(f"tok{number:04d} " for number in range(deltas)), pace=pace),)


def tool_plan(turns: int) -> Plan:
    """So many turns with one call each, and a last one that says something."""
    called = tuple(Turn(calls=(Call(f"call_{number}", '{"number": 7}'),)) for number in range(turns))
    return (*called, Turn(LAST_WORDS))


def parallel_plan(calls: int) -> Plan:
    """One turn with so many calls, and one that says something."""
    return Turn(calls=tuple(Call(f"call_{place}", f'{{"number": {place}}}') for place in range(calls))), Turn(LAST_WORDS)
