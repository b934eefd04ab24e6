"""Checks of fields, for values that are valid from birth: each names the field, and shows what was given."""

import sys
from collections.abc import Callable
from typing import Any

from attrs import Attribute

Check = Callable[[Any, "Attribute[Any]", Any], None]


def is_a(*kinds: type) -> Check:
    """The value is of one of these types."""
    wanted = " or ".join(kind.__name__ for kind in kinds)

    def check(instance: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if not isinstance(value, kinds):
            raise TypeError(f"{type(instance).__name__}.{attribute.name} must be {wanted}, not {value!r}")

    return check


def each_is_a(*kinds: type) -> Check:
    """Each member of the tuple is of one of these types."""
    wanted = " or ".join(kind.__name__ for kind in kinds)

    def check(instance: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if not isinstance(value, tuple):
            raise TypeError(f"{type(instance).__name__}.{attribute.name} must be a sequence of {wanted}, not {value!r}")
        for member in value:
            if not isinstance(member, kinds):
                raise TypeError(f"{type(instance).__name__}.{attribute.name} must hold {wanted} only, not {member!r}")

    return check


def or_none(check: Check) -> Check:
    """The value is None, or passes *check*."""

    def checked(instance: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if value is not None:
            check(instance, attribute, value)

    return checked


def count(instance: Any, attribute: "Attribute[Any]", value: Any) -> None:
    """The value is an int that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{attribute.name} must be an int, not {value!r}")
    if value < 0:
        raise ValueError(f"{attribute.name} must not be negative, not {value}")


def is_seconds(value: float) -> bool:
    """Whether a clock can wait this long: a number that is not negative and not past what a float holds."""
    return 0 <= value <= sys.float_info.max
