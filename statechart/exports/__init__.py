"""The lifecycle in the languages of other tools, so that somebody else's interpreter can say what it does.

XState and SCXML are written from the live machine of `transitions`, and guards and actions are names in them. Promela is
written from the decision table, which was read off that machine, and gives guards and actions a meaning within bounds.
What an export can't say is left out and told where it is written: the error for a refused command is the kernel's, so a
refused command simply has no transition.
"""

from collections.abc import Callable
from typing import Final

from statechart.decisions import decisions
from statechart.exports.promela import promela
from statechart.exports.scxml import scxml
from statechart.exports.structure import read
from statechart.exports.xstate import xstate
from statechart.world import Bounds

FORMATS: Final[dict[str, Callable[[Bounds], str]]] = {
    "promela": lambda bounds: promela(decisions(), bounds),
    "scxml": lambda bounds: scxml(read()),
    "xstate": lambda bounds: xstate(read()),
}
"""What can be exported, by the word of the command line; bounds are for what has to be finite."""

__all__ = ["FORMATS"]
