"""Random values of the kernel's own classes, read off their fields, so that a new class or field is tried by itself."""

import types
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from hypothesis import strategies as st

from kernel import events
from kernel.errors import UNWRITTEN
from kernel.frozen import FrozenDict, freeze
from kernel.messages import Image, Usage
from kernel.setup import OutputSpec, Setup, ToolSpec

TEXTS = st.text(st.characters(), max_size=6) | st.lists(
    st.sampled_from(["\ud83d", "\ude00", "\U0001f600", "\ufdd0", "\u2028", "\x85", "\0", '"', "\\", "\n", "é", "is"]),
    max_size=5,
).map("".join)
"""Any text, often with halves of characters, alone and side by side, and with what some take for the end of a line."""
INTS = st.integers(0, 9) | st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False) | st.sampled_from([0.1, -0.0, 1e308, 5e-324])
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
).map(freeze)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: INTS,
    bool: st.booleans(),
    float: FLOATS,
    type(None): st.none(),
    Any: JSON,
    FrozenDict: st.dictionaries(TEXTS, JSON, max_size=3).map(freeze),
    Setup: st.deferred(lambda: SETUPS),
    Image: st.builds(Image.of, st.binary(min_size=1, max_size=4), st.sampled_from(["image/png", "image/svg+xml"]))
    | st.just(Image("https://example.org/a.png")),
    Usage: st.builds(Usage, *[st.integers(0, 9) | st.integers(0, 2**70)] * 5),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type: a class of the kernel's, or what a field of one may be declared as."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, items = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(items)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(item) for item in items])
    if origin is tuple and items[-1] is ...:
        return st.lists(values_of(items[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, items))
    if attrs.has(kind):
        PLAIN[kind] = st.deferred(lambda: built(kind))
        return PLAIN[kind]
    return st.from_type(kind)


def built(kind: Any, **instead: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a class of attrs: each field by its type, but *instead*. What the class refuses is not among them."""
    fields = {field.name: field for field in attrs.fields(attrs.resolve_types(kind)) if field.init}
    # What is not written, an exception for one, is no part of a value's equality.
    fields = {name: field for name, field in fields.items() if field.metadata != UNWRITTEN}
    given = {name: instead[name] if name in instead else values_of(field.type) for name, field in fields.items()}

    def make(values: dict[str, Any]) -> Any:
        try:
            return kind(**values)
        except (TypeError, ValueError):
            return None

    return st.fixed_dictionaries(given).map(make).filter(lambda made: made is not None)


TOOL = built(ToolSpec, execute=st.just(print), validate=st.just(print), resources=st.none())
OUTPUT = st.none() | built(OutputSpec, check=st.just(print))
SETUPS = st.builds(
    lambda setup, tools: attrs.evolve(setup, tools={tool.name: tool for tool in tools}),
    built(Setup, model=st.none(), stream=st.just(print), tools=st.just({}), output=OUTPUT),
    st.lists(TOOL, max_size=2),
)

KINDS = [kind for kind in vars(events).values() if isinstance(kind, type) and kind.__base__ is events.Event]
"""All kinds of events."""
EVENTS = st.lists(st.one_of([built(kind, run_id=st.just("r")) for kind in KINDS]), max_size=12)
"""Events of one run: any, in any order."""
