"""Equality, hash and text of all classes of values are those that attrs would have written."""

from typing import Any, get_args

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel import Text, TextDelta, effects, events, inputs, messages
from kernel.config import CompactionPolicy, KernelConfig, RetryPolicy, UsageLimit
from kernel.values import Value
from tests.kernel.strategies import values_of

CLASSES = {
    kind
    for room in (events, inputs, messages)
    for kind in vars(room).values()
    if isinstance(kind, type) and issubclass(kind, Value) and attrs.has(kind) and kind is not events.Event
}
VALUES: list[Any] = sorted(
    CLASSES | {CompactionPolicy, KernelConfig, RetryPolicy, UsageLimit}, key=lambda kind: str(kind.__name__)
)


def test_no_class_writes_its_own() -> None:
    """Each value of the kernel uses what is shared; effects are values, too."""
    own = {"__eq__", "__hash__", "__repr__"}
    kinds = [*VALUES, *(kind for kind in get_args(effects.Effect) if attrs.has(kind))]
    assert len(kinds) > 60
    assert [kind.__name__ for kind in kinds if own & vars(kind).keys()] == []


class TestValue:
    """Of each class, with random fields."""

    @pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_equal_are_those_with_equal_fields(self, kind: Any, data: st.DataObject) -> None:
        """Of one class. Equal ones have one hash, where their fields have one."""
        one, other = data.draw(values_of(kind)), data.draw(values_of(kind))
        names = [each.name for each in attrs.fields(kind) if each.eq]
        assert (one == other) is all(getattr(one, name) == getattr(other, name) for name in names)
        again = attrs.evolve(one)
        assert one == again
        assert one != object()
        try:
            assert hash(one) == hash(again)
        except TypeError:
            assert any(not _hashable(getattr(one, name)) for name in names)

    @pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_the_text_names_the_fields(self, kind: Any, data: st.DataObject) -> None:
        one = data.draw(values_of(kind))
        shown = ", ".join(f"{each.name}={getattr(one, each.name)!r}" for each in attrs.fields(kind) if each.repr)
        assert repr(one) == f"{kind.__name__}({shown})"

    def test_another_class_with_the_same_fields_is_another_value(self) -> None:
        assert Text("a") != TextDelta("a")
        assert hash(Text("a")) != hash(TextDelta("a"))


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
