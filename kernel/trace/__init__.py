"""Holds a stream of events against the kernel's guarantees, as far as a stream alone can show them.

Each rule is a function that reads the lines of one run and yields its breaches; its name begins with the guarantee
that it checks. The rules know only the native lines of `kernel.dialects`, so that a stream that was stored or sent can
be judged as well as one of event objects. They never ask the kernel what it meant: a fault in the kernel can't excuse
itself.

What no stream can show is not here: what listeners see in the agent (G12), what is still alive afterwards (G13),
whether snapshots stay as they are (G14).
"""

from collections.abc import Iterable

from kernel.dialects import native_line
from kernel.events import Event
from kernel.trace import conversation, lifecycle, structure
from kernel.trace.lines import Breach, Line, runs_of

__all__ = ["Breach", "breaches_of_lines", "check"]


def check(events: Iterable[Event]) -> list[Breach]:
    """What is wrong with all *events* of one agent, from its first run on. Empty: all is well."""
    said = ((event, native_line(event)) for event in events)
    return breaches_of_lines({**line, "run": event.run_id} for event, line in said if line is not None)


def breaches_of_lines(lines: Iterable[Line]) -> list[Breach]:
    """The same for native lines. What is not an event (`final`, or no type at all) is passed over."""
    stream = [line for line in lines if line.get("type", "final") != "final"]
    runs, loose = runs_of(stream)
    breaches = [Breach("G1", line.get("sequence", -1), f"{line['type']} outside a run") for line in loose]
    rules = structure.RULES + conversation.RULES + lifecycle.RULES
    breaches += [found for run in runs for rule in rules for found in rule(run)]
    breaches += lifecycle.g8_only_a_known_call_is_late(stream)
    return breaches
