"""What values share: equality, hash and text by their fields.

`attrs` would write these functions for each class and compile them, which for a hundred classes is a good part of what
importing the kernel costs. Here they are written once, and read the fields when they are asked; nothing in a run asks.
"""

import functools
from typing import Any

from attrs import fields


class Value:
    """A class of `attrs` made with `eq=False, repr=False`, whose objects are equal when all their fields are."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    def __hash__(self) -> int:
        return hash((self.__class__, _compared(self)))

    def __repr__(self) -> str:
        kind: Any = self.__class__
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(kind)[1])
        return f"{self.__class__.__qualname__}({shown})"


def _compared(value: Any) -> tuple[Any, ...]:
    return tuple([getattr(value, name) for name in _names(value.__class__)[0]])


@functools.cache
def _names(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that are compared, and those that are shown."""
    all_fields = fields(kind)
    return tuple(each.name for each in all_fields if each.eq), tuple(each.name for each in all_fields if each.repr)
