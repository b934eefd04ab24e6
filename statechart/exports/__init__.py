"""The lifecycle in the languages of other tools, so that somebody else's interpreter can say what it does.

Each export is written from the live machine of `transitions`. What an export can't say is left out and told where it is
written: the error for a refused command is the kernel's, so a refused command simply has no transition.
"""

from collections.abc import Callable
from typing import Final

from statechart.exports.scxml import scxml
from statechart.exports.structure import read
from statechart.exports.xstate import xstate

FORMATS: Final[dict[str, Callable[[], str]]] = {"scxml": lambda: scxml(read()), "xstate": lambda: xstate(read())}
"""What can be exported, by the word of the command line."""

__all__ = ["FORMATS"]
