"""Immutable JSON: what leaves the kernel must never change afterwards, however deep one looks into it.

`freeze` makes an immutable copy of JSON-like data, `thaw` an ordinary mutable copy of that. A `FrozenDict` is a real
`dict`, so that `json`, `msgspec` and `isinstance` take it as one; only its mutators refuse.
"""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Never, NoReturn, Self


class FrozenDict(dict[str, Any]):
    """A dictionary that can't be changed.

    >>> arguments = freeze({"path": "notes.txt", "lines": [1, 2]})
    >>> arguments["lines"]
    (1, 2)
    >>> arguments["path"] = "other.txt"
    Traceback (most recent call last):
    TypeError: a FrozenDict can't be changed; take a copy with thaw()
    """

    __slots__ = ()

    def __init__(self, *items: Any, **named: Any) -> None:
        super().__init__({key: freeze(value) for key, value in dict(*items, **named).items()})

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a FrozenDict can't be changed; take a copy with thaw()")

    __setitem__ = __delitem__ = clear = pop = popitem = update = setdefault = _refuse

    def __ior__(self, other: object) -> Never:  # type: ignore[misc]
        self._refuse()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenDict, (dict(self),))


EMPTY = FrozenDict()
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def freeze(value: Any) -> Any:
    """An immutable copy of *value*: dicts become `FrozenDict`, lists become tuples, all else stays as it is."""
    kind = type(value)
    if kind in _SCALARS or kind is FrozenDict:
        return value
    if isinstance(value, Mapping):
        return FrozenDict(value)
    if isinstance(value, (list, tuple, deque)):
        return tuple(freeze(item) for item in value)
    if isinstance(value, (set, frozenset)):
        return frozenset(freeze(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def thaw(value: Any) -> Any:
    """A mutable copy of frozen JSON: dicts and lists that the taker may do with what it likes."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is FrozenDict or isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def shown(value: Any) -> str:
    """Frozen data as text, to be read or measured: JSON, where what JSON can't say is named by its type or left out.

    Never fails, since what it is given may come from anyone.

    >>> shown(freeze({"path": "é", "raw": b"\\0", (1, 2): 3}))
    '{"path": "é", "raw": "bytes"}'
    """
    try:
        return json.dumps(thaw(value), ensure_ascii=False, skipkeys=True, default=lambda other: type(other).__name__)
    except Exception:  # nested too deeply for this place on the stack, or a class of the caller's that raises
        return ""
