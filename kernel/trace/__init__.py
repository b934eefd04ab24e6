"""Holds a stream of events against the kernel's guarantees, as far as a stream alone can show them.

Each rule is a function that reads the lines of one run and yields its breaches; its name begins with the guarantee
that it checks. The rules know only the native lines of `kernel.dialects`, so that a stream that was stored or sent can
be judged as well as one of event objects. They never ask the kernel what it meant: a fault in the kernel can't excuse
itself. A breach is told at the first event after which nothing could make the stream right again, so a rule looks back
and never ahead. So a stream that was cut off can be judged as well.

What a stream shows of each guarantee, and what it does not:

* G1: all of it: one start, one end with a known status, numbers without a gap (a joined event takes as many as it counts).
* G2: all of it: turns, messages, tools, retries and compactions, and that phases follow one another.
* G3: all of it, but for reasoning and arguments, which the lines do not repeat at the end.
* G4: calls, results, their order and what both say. Not whether a body ran where the stream says so.
* G5: all of it.
* G6: where items enter, their order, and that each that was seen waiting enters or is reported as dropped. Not what was
  queued or taken out while the agent was idle, and not whether the run would otherwise have ended.
* G7: what starts after the phase `cancelling` was entered, and that the run then does not complete. Not requests, hooks
  and bodies that no event tells of, and not a cancel that had nothing to wait for (it passes no phase).
* G8: that late updates are of calls that had ended, in this run or before. Not how long anything took.
* G9: attempts, delays, that no message is left or enters between. Not that the request is the same, nor that a failure
  was one of those that may be tried again.
* G10: that no call is open, the bound for a turn, known reasons and outcomes, how the run goes on. Not what was cut.
* G11: that a failure is explicit, and that a truncated response executes nothing. Not a stream that hangs.
* G12: nothing: it is about what listeners see in the agent.
* G13: nothing: it is about what is alive afterwards.
* G14: nothing: it is about values.
* G15: that only hooks with a fallback are reported, and which. Not what the fallback was.
* G16: that what stands for several events says for how many. Not the limits, which are the configuration's.

In Pi's words there are no phases, queues, retries, compactions or `executed`: there G7 to G10, G15 and G16, and of G11
what was executed, have nothing to say.
"""

from collections.abc import Iterable, Iterator

from kernel.dialects import native_line
from kernel.events import Event
from kernel.trace import conversation, lifecycle, queues, structure
from kernel.trace.lines import Breach, Line, runs_of
from kernel.trace.pi import from_pi, speaks_pi
from kernel.trace.words import NotAnEventError, fault_of

__all__ = ["Breach", "NotAnEventError", "breaches_of_lines", "check"]

RULES = structure.RULES + conversation.RULES + queues.RULES + lifecycle.RULES
RULES_ACROSS_RUNS = (lifecycle.g8_only_an_ended_call_is_late,)


def check(events: Iterable[Event], *, whole: bool = True) -> list[Breach]:
    """What is wrong with all *events* of one agent, from its first run on; the first breach first. Empty: all is well.

    With *whole* False the stream may have been cut off: that its last run has no end is no breach.
    """
    said = ((event, native_line(event)) for event in events)
    lines = ({**line, "run": event.run_id} for event, line in said if line is not None)
    return breaches_of_lines(lines, whole=whole)


def breaches_of_lines(lines: Iterable[Line], *, whole: bool = True) -> list[Breach]:
    """The same for native lines, or Pi's. What is not an event (`final`, or no type at all) is passed over.

    Raises NotAnEventError, a ValueError, for a line that is no event of this vocabulary.
    """
    stream: list[Line] = [{"place": place, **line} for place, line in enumerate(lines)]
    if speaks_pi(stream):
        stream = list(from_pi(stream))
    stream = [line for line in stream if line.get("type", "final") != "final"]
    for line in stream:
        if fault := fault_of(line):
            raise NotAnEventError(line["place"], fault)
    runs, loose = runs_of(stream)
    found = [Breach("G1", line.get("sequence", -1), f"{line['type']} outside a run", line["place"]) for line in loose]
    found += _ends(runs, whole)
    found += (breach for run in runs for rule in RULES for breach in rule(run))
    found += (breach for rule in RULES_ACROSS_RUNS for breach in rule(stream))
    return sorted(found, key=lambda breach: breach.place)


def _ends(runs: list[list[Line]], whole: bool) -> Iterator[Breach]:
    """G1: each run ends, before another one begins."""
    for number, run in enumerate(runs, start=1):
        end = run[-1]
        if end["type"] != "run.finished" and (number < len(runs) or whole):
            where = runs[number][0] if number < len(runs) else end
            text = f"the run's last event is {end['type']}, not run.finished"
            yield Breach("G1", end.get("sequence", -1), text, where["place"])
