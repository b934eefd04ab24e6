"""The codec: what may enter a core or be told by it is written as JSON and read again as it was, and nothing else is."""

import json
from typing import Any, get_args

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel import events, inputs, messages
from kernel.codec import Codec, explain
from kernel.config import CompactionPolicy, KernelConfig, RetryPolicy
from kernel.frozen import FrozenDict
from kernel.inputs import Configure, Prompt
from kernel.jsonl import exact, from_line, to_line
from kernel.messages import CustomMessage
from kernel.setup import Setup
from tests.kernel.strategies import JSON, SETUPS, TEXTS, built, values_of

SOME: Any = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def classes_of(module: Any) -> list[type]:
    """The classes of attrs that a module makes itself."""
    return [
        kind for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and attrs.has(kind)
    ]  # fmt: skip


INPUTS = [kind for kind in classes_of(inputs) if kind is not inputs.QueuedItem]
EVENTS = [kind for kind in classes_of(events) if issubclass(kind, events.Event) and kind is not events.Event]
MESSAGES = list(get_args(messages.Message))
MESSAGE = values_of(messages.Message)
SMALL = st.integers(1, 10**30)
POLICIES = {
    "retry": st.none() | built(RetryPolicy, max_attempts=SMALL, base_delay=st.floats(0, 1e9), max_delay=st.floats(0, 1e9)),
    "compaction": st.none() | built(CompactionPolicy, reserve=SMALL, keep_turns=SMALL, window=st.none() | SMALL),
}
LIMITS = ("max_turns", "queue_limit", "message_limit", "call_limit", "event_buffer")
SECONDS = ("cancel_grace", "tool_timeout", "stream_idle_timeout", "run_deadline")
CONFIGS = built(
    KernelConfig,
    **POLICIES,
    **dict.fromkeys(LIMITS, SMALL),
    **dict.fromkeys(SECONDS, st.floats(0, 1e9) | st.integers(0, 9)),
)


def through_json(dumped: Any) -> Any:
    """As it comes out of a file in ASCII."""
    return from_line(to_line(dumped).encode("ascii"))


def test_every_class_of_inputs_is_an_input():
    """The union that the codec reads has all classes of the module, so that no new one can be left out."""
    assert set(INPUTS) == set(get_args(inputs.Input))


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_comes_back(kind: type):
    """Each kind of input, whatever its fields hold, is equal to itself after it was written and read."""

    @SOME
    @given(values_of(kind))
    def comes_back(value: Any) -> None:
        codec = Codec(value.setup if isinstance(value, Configure) else None)
        assert codec.load_input(through_json(codec.dump_input(value))) == value

    comes_back()


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_comes_back(kind: type):
    """The same for each kind of event."""

    @SOME
    @given(values_of(kind))
    def comes_back(value: Any) -> None:
        codec = Codec()
        assert codec.load_event(through_json(codec.dump_event(value))) == value

    comes_back()


@SOME
@given(st.lists(MESSAGE, max_size=4))
def test_every_message_comes_back(conversation: list[Any]):
    """The same for conversations; what was frozen is frozen again."""
    codec = Codec()
    back = codec.load_messages(through_json(codec.dump_messages(conversation)))
    assert back == conversation
    assert hash(tuple(back)) == hash(tuple(conversation))


@SOME
@given(SETUPS)
def test_every_setup_comes_back(setup: Setup):
    """What a setup says of itself comes back, also without the model and the tools."""
    codec = Codec()
    written = codec.dump_setup(setup)
    assert codec.dump_setup(codec.load_setup(through_json(written))) == written
    assert Codec(setup).load_setup(through_json(written)) == setup


@SOME
@given(CONFIGS)
def test_every_configuration_comes_back(config: KernelConfig):
    """The same for configurations."""
    codec = Codec()
    assert codec.load_config(through_json(codec.dump_config(config))) == config


@SOME
@given(JSON)
def test_a_line_says_exactly_what_it_was_given(value: Any):
    """Any JSON comes back from a line of ASCII as it was, to the half of a character; a float is no int."""
    line = to_line(exact(value))
    assert line.isascii()
    assert line.index("\n") == len(line) - 1
    assert repr(from_line(line)) == repr(exact(value))


HIGH, LOW, MARK = "\ud83d", "\ude00", "\ufdd0"


@pytest.mark.parametrize("text", [HIGH, HIGH + LOW, "\U0001f600", HIGH + MARK + LOW, LOW + HIGH, MARK], ids=ascii)
def test_halves_of_characters_stay_apart(text: str):
    """Two halves side by side do not become the character that they would make, as keys and as values."""
    assert from_line(to_line({text: [text]})) == {text: [text]}


# ---- what is not written ----


@pytest.mark.parametrize("value", [b"x", frozenset({1}), object(), FrozenDict({1: 2}), ({"deep": (print,)},)], ids=repr)
def test_what_json_can_not_say_is_not_written(value: Any):
    """Data that would come back as something else, or not at all, is refused and not bent."""
    with pytest.raises(TypeError, match="JSON"):
        Codec().dump_input(Prompt("r", CustomMessage("note", value)))


# ---- what is not read ----


def damages(value: Any) -> list[Any]:
    """What stands in a field, replaced by values of other kinds."""
    others = [None, True, 7, 0.5, "zz", [], ["zz"], {}, {"is": "Text"}, [{"is": "Nothing"}]]
    return [other for other in others if type(other) is not type(value)]


@pytest.mark.parametrize("kind", [*INPUTS, *EVENTS])
def test_nothing_else_is_read(kind: type):
    """A field that is missing (also one that has a default), one too many, or one of another type is refused, with its
    name; or what is read says exactly what was written.
    """
    codec = Codec()
    dump, load = (codec.dump_input, codec.load_input) if kind in INPUTS else (codec.dump_event, codec.load_event)

    @settings(SOME, max_examples=15)
    @given(values_of(kind))
    def refused(value: Any) -> None:
        written = json.loads(json.dumps(dump(value)))
        assert_refused(load, written | {"zz": 1}, "zz")
        for name in written:
            assert_refused(load, {key: said for key, said in written.items() if key != name}, name)
            for other in damages(written[name]):
                damaged = written | {name: other}
                read, said = attempt(load, damaged)
                assert said or json.loads(json.dumps(dump(read))) == damaged

    refused()


def attempt(load: Any, data: Any) -> tuple[Any, str]:
    """What was read, or what is said of the error."""
    try:
        return load(data), ""
    except Exception as error:
        return None, explain(error)


def assert_refused(load: Any, data: Any, name: str) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011  # of any kind: `explain` tells
        load(data)
    assert name in explain(refused.value) or (name == "is" and "what it is" in explain(refused.value))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\xff{}", "utf-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":1,"a":1}', "twice"),
        (b"", "Expecting value"),
        (b"{} {}", "Extra data"),
        (b"1" * 5000, "digits"),
    ],
)
def test_what_is_no_line_is_refused(line: bytes, why: str):
    """Anything that is not one JSON value in UTF-8 is a ValueError with a sentence."""
    with pytest.raises(ValueError, match=why):
        from_line(line)


@SOME
@given(st.binary(max_size=30) | TEXTS)
def test_rubbish_is_a_value_error(line: Any):
    """No rubbish gets out as another error."""
    try:
        from_line(line)
    except ValueError:
        return
