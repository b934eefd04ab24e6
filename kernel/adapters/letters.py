"""Text that other programs can read: whole letters only.

Python lets the two halves of a letter outside of the first plane stand alone, and models that cut their stream in the wrong
place send them so. In JSON a half is an error for many readers, of editors too. Two halves that come one after the other
are one letter here, also when they come in two pieces; one that stays alone is shown as the mark for what can't be read.
"""

import re
from typing import Any, Final, final

_HALF: Final = re.compile("[\ud800-\udfff]")
_FIRST: Final = re.compile("[\ud800-\udbff]$")


def whole(text: str) -> str:
    """*text* in whole letters."""
    if _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_data(value: Any) -> Any:
    """The same for all text in plain data, names included."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {whole_data(name): whole_data(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole_data(item) for item in value]
    return value


@final
class Letters:
    """Text in pieces: a half at the end of one waits for the next."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        text = self._half + piece
        self._half = text[-1:] if _FIRST.search(text) else ""
        return whole(text[:-1] if self._half else text)

    def end(self) -> str:
        """What was waiting for its other half."""
        half, self._half = self._half, ""
        return whole(half)
