"""Values: frozen JSON, messages, views of the transcript, a history that is handed in, a message while it streams."""

import copy
import json
import pickle
from collections import deque, namedtuple
from typing import Any

import pytest

from kernel import (
    AssistantMessage,
    CustomMessage,
    Reasoning,
    ReasoningDelta,
    StopReason,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    Usage,
    UserMessage,
)
from kernel.frozen import FrozenDict, freeze, thaw
from kernel.history import INTERRUPTED
from kernel.messages import SummaryMessage
from kernel.open_message import OpenMessage, parse_arguments
from kernel.transcript import MessageView, Transcript
from tests.kernel.helpers import Stage, said, turns, unpaired

Point = namedtuple("Point", "x y")


class TestFrozen:
    NESTED: Any = {"list": [1, {"deep": [True, None]}], "text": "a"}  # noqa: RUF012

    def test_it_freezes_deeply(self) -> None:
        """Every dict and list in it is immutable, and nothing of what was given is shared."""
        given = copy.deepcopy(self.NESTED)
        frozen = freeze(given)
        given["list"][1]["deep"].append("changed")
        given["more"] = 1
        assert frozen == {"list": (1, {"deep": (True, None)}), "text": "a"}

    def test_it_thaws_to_a_copy(self) -> None:
        """`thaw` gives ordinary dicts and lists, a new copy each time."""
        frozen = freeze(self.NESTED)
        one, two = thaw(frozen), thaw(frozen)
        one["list"][1]["deep"].append("changed")
        assert two == self.NESTED
        assert thaw(frozen) == self.NESTED

    @pytest.mark.parametrize(
        "change",
        [
            lambda d: d.__setitem__("a", 1),
            lambda d: d.__delitem__("text"),
            lambda d: d.pop("text"),
            lambda d: d.popitem(),
            lambda d: d.clear(),
            lambda d: d.update(a=1),
            lambda d: d.setdefault("a", 1),
            lambda d: d.__ior__({"a": 1}),
        ],
        ids="set delete pop popitem clear update setdefault ior".split(),  # noqa: SIM905
    )
    def test_every_way_to_change_it_is_refused(self, change: Any) -> None:
        """A frozen dict has no method that changes it."""
        frozen = freeze(self.NESTED)
        with pytest.raises(TypeError, match="can't be changed"):
            change(frozen)
        assert frozen == freeze(self.NESTED)

    def test_it_is_a_dict_to_everybody(self) -> None:
        """`json`, `isinstance`, `|`, hash, copy and pickle take it as a value."""
        frozen = freeze(self.NESTED)
        assert isinstance(frozen, dict)
        assert json.loads(json.dumps(frozen)) == self.NESTED
        assert hash(frozen) == hash(freeze(self.NESTED))
        assert copy.copy(frozen) is copy.deepcopy(frozen) is frozen
        assert pickle.loads(pickle.dumps(frozen)) == frozen
        assert type(pickle.loads(pickle.dumps(frozen))) is FrozenDict

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({1, 2}, frozenset({1, 2})),
            (frozenset({1}), frozenset({1})),
            (bytearray(b"a"), b"a"),
            (Point(1, [2]), (1, (2,))),
            (deque([1, [2]]), (1, (2,))),
            ("text", "text"),
            (1.5, 1.5),
            (None, None),
            ((1, [2]), (1, (2,))),
        ],
        ids=repr,
    )
    def test_other_containers(self, given: Any, expected: Any) -> None:
        """Sets, byte arrays and tuples become immutable; what is a value stays what it is."""
        assert freeze(given) == expected
        assert type(freeze(given)) is type(expected)

    def test_a_named_tuple_thaws_to_a_list(self) -> None:
        """A named tuple is a tuple like others: it could hold something that changes."""
        assert thaw((Point(1, 2), (3,))) == [[1, 2], [3]]

    def test_what_is_frozen_is_not_copied_again(self) -> None:
        """Freezing a frozen dict costs nothing."""
        frozen = freeze(self.NESTED)
        assert freeze(frozen) is frozen

    def test_a_frozen_dict_of_lists_is_frozen_too(self) -> None:
        """A message is immutable deeply, whoever made the dict of its arguments."""
        call = ToolCall("c1", "act", FrozenDict({"list": [1]}))
        assert call.arguments == {"list": (1,)}


class TestMessages:
    def test_text_is_short_for_a_block(self) -> None:
        """A string is one block of text."""
        assert UserMessage("a") == UserMessage((Text("a"),))
        assert UserMessage([Text("a"), Text("b")]).text == "ab"

    def test_an_answer_is_read_by_kind(self) -> None:
        """Text, reasoning and calls of an answer are told apart, each in order."""
        call = ToolCall("c1", "act", {"a": [1]})
        answer = AssistantMessage([Reasoning("hm", "sig"), Text("a"), call, Text("b")], usage=Usage(10, 5))
        assert (answer.text, answer.reasoning, answer.calls, answer.usage.total) == ("ab", "hm", (call,), 15)

    @pytest.mark.parametrize(("stop", "cut"), [(reason, reason in ("error", "aborted")) for reason in StopReason])
    def test_a_cut_message_is_known_by_its_stop_reason(self, stop: StopReason, cut: bool) -> None:
        """Only `error` and `aborted` are cuts."""
        assert AssistantMessage("a", stop).is_cut is cut

    def test_values_are_equal_hashable_and_frozen(self) -> None:
        """Messages are values: equal by content, usable as keys, never changed."""
        one, two = (AssistantMessage([ToolCall("c1", "act", {"a": [1]})]) for _ in range(2))
        assert {one: 1}[two] == 1
        with pytest.raises(AttributeError):
            one.stop = StopReason.ERROR  # type: ignore[misc]
        with pytest.raises(TypeError):
            one.calls[0].arguments["a"] = 2

    def test_usage_adds_up(self) -> None:
        """All counts of a usage are summed."""
        assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)

    def test_how_others_are_shown(self) -> None:
        """Every message has a text, and roles are distinct."""
        messages = [UserMessage("a"), AssistantMessage("b"), ToolMessage("c1", "act", "c"), SummaryMessage("d"),
                    CustomMessage("e")]  # fmt: skip
        assert said(messages) == [("user", "a"), ("assistant", "b"), ("tool", "c"), ("summary", "d"), ("custom", "[e]")]


class TestView:
    def test_it_is_a_sequence(self) -> None:
        """A view counts, indexes, slices, iterates and compares as a tuple does."""
        messages = turns(3)
        view = MessageView(list(messages))
        assert (len(view), view[0], view[-1], list(view)) == (6, messages[0], messages[5], list(messages))
        for cut in (slice(1, 3), slice(None), slice(-2, None), slice(None, None, 2), slice(None, None, -1), slice(9, 1)):
            assert view[cut] == messages[cut]
        assert view == messages
        assert view == list(messages)
        assert (view != messages[:5], view != "text", messages[0] in view) == (True, True, True)
        assert hash(view) == hash(messages)
        assert repr(MessageView([])) == "MessageView([])"

    @pytest.mark.parametrize("index", [6, -7, 100])
    def test_outside_is_an_index_error(self, index: int) -> None:
        """An index past the view's length fails, though the storage behind it may have grown."""
        storage = list(turns(3))
        view = MessageView(storage)
        storage.extend(turns(50))
        with pytest.raises(IndexError, match=f"message {index} of 6"):
            view[index]

    def test_an_old_view_never_changes(self) -> None:
        """What is appended, compacted or reset later is not in a view that was taken before."""
        transcript = Transcript(turns(3))
        view = transcript.messages
        transcript.append(UserMessage("more"))
        transcript.compacted(4, SummaryMessage("short")).append(UserMessage("more still"))
        assert (view == turns(3), len(transcript.messages)) == (True, 7)

    def test_an_index_is_no_copy(self) -> None:
        """Iterating a view goes on over its own length while the storage grows."""
        transcript = Transcript(turns(1))
        seen = []
        for message in transcript.messages:
            seen.append(message)
            transcript.append(UserMessage("more"))
        assert len(seen) == 2

    def test_a_view_costs_the_same_for_any_length(self) -> None:
        """`agent.messages` takes no time that grows with the transcript: it makes one small object."""
        import tracemalloc

        sizes = []
        for count in (10, 20_000):
            agent = Stage(messages=turns(count), message_limit=None).agent
            agent.messages  # noqa: B018
            tracemalloc.start()
            view = agent.messages
            sizes.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
            assert len(view) == 2 * count
        assert sizes[1] <= sizes[0] + 64


CUT = AssistantMessage("par", StopReason.ABORTED)
NOTE = CustomMessage("note")


class TestTranscript:
    @pytest.mark.parametrize("first", [CUT, NOTE, None])
    @pytest.mark.parametrize("second", [CUT, NOTE, None])
    def test_three_views_of_one_conversation(self, first: Any, second: Any) -> None:
        """`messages` has all, `context` no cut ones, `plain` no custom ones either, in whatever order they come."""
        given = [UserMessage("a"), first, UserMessage("b"), second, AssistantMessage("c"), first, UserMessage("d")]
        messages = [message for message in given if message is not None]
        transcript = Transcript(messages)
        assert transcript.messages == messages
        assert transcript.context == [message for message in messages if message is not CUT]
        assert transcript.plain == [message for message in messages if message not in (CUT, NOTE)]

    def test_turns_end_where_an_answer_is_complete(self) -> None:
        """In a history a turn ends after the results of a response, or after one without calls; a cut one is no end."""
        calls = AssistantMessage([ToolCall("c1", "act"), ToolCall("c2", "act")])
        results = ToolMessage("c1", "act", "ok"), ToolMessage("c2", "act", "ok")
        transcript = Transcript([UserMessage("a"), calls, *results, AssistantMessage("b"), UserMessage("c"), CUT])
        assert transcript.turn_ends == [4, 5]
        transcript.end_turn(), transcript.end_turn()
        assert transcript.turn_ends == [4, 5, 7]

    @pytest.mark.parametrize(("keep", "length"), [(1, 6), (2, 4), (3, 2), (4, 0), (5, 0)])
    def test_a_cut_leaves_so_many_turns(self, keep: int, length: int) -> None:
        """`cut` counts the messages that are older than the newest turns."""
        assert Transcript(turns(4)).cut(keep) == length

    def test_a_summary_stands_for_the_older_ones(self) -> None:
        """After a compaction the turns that are left are known by their new places."""
        compacted = Transcript(turns(4)).compacted(4, SummaryMessage("short"))
        assert said(compacted.messages)[:2] == [("summary", "short"), ("user", "question 2")]
        assert (compacted.turn_ends, compacted.cut(2), compacted.cut(1)) == ([3, 5], 0, 3)


CALLS = AssistantMessage([ToolCall("c1", "act"), ToolCall("c2", "act")])


class TestHistory:
    @pytest.mark.parametrize(
        ("messages", "answers"),
        [
            ([CALLS], [INTERRUPTED, INTERRUPTED]),
            ([CALLS, ToolMessage("c1", "act", "ok")], ["ok", INTERRUPTED]),
            ([CALLS, ToolMessage("c2", "act", "ok")], [INTERRUPTED, "ok"]),
            ([CALLS, ToolMessage("c1", "act", "ok"), UserMessage("b")], ["ok", INTERRUPTED]),
            ([CALLS, UserMessage("b"), CALLS], [INTERRUPTED] * 4),
            ([UserMessage("a"), AssistantMessage(CALLS.content, StopReason.ERROR), UserMessage("b")], []),
        ],
    )
    def test_open_calls_are_answered_in_their_place(self, messages: Any, answers: list[str]) -> None:
        """A call without its result gets an interrupted one, in source order, before anything else (PAIR-2, PAIR-8)."""
        agent = Stage(messages=messages).agent
        assert [text for role, text in said(agent.messages) if role == "tool"] == answers
        assert unpaired(m for m in agent.messages if not getattr(m, "is_cut", False)) == []

    def test_what_was_interrupted_may_have_run(self) -> None:
        """The result says that nobody knows, and is marked as an error that was not executed."""
        result = Stage(messages=[CALLS]).agent.messages[1]
        assert (result.is_error, result.executed, result.name) == (True, False, "act")

    def test_results_in_another_order_are_put_in_theirs(self) -> None:
        """Results that are all there are no orphans; they are taken in the order of their calls."""
        messages = [CALLS, ToolMessage("c2", "act", "two"), ToolMessage("c1", "act", "one")]
        assert said(Stage(messages=messages).agent.messages)[1:] == [("tool", "one"), ("tool", "two")]

    def test_any_iterable_will_do(self) -> None:
        """A generator, a view of another agent: all are copied."""
        one = Stage(messages=iter(turns(2))).agent
        two = Stage(messages=one.messages).agent
        assert one.messages == two.messages == turns(2)

    def test_every_prefix_can_be_taken_up(self) -> None:
        """Whatever prefix of a conversation survived, an agent can go on from it (PAIR-6)."""
        results = ToolMessage("c1", "act", "ok"), ToolMessage("c2", "act", "ok")
        whole = [UserMessage("a"), CALLS, *results, AssistantMessage("b"), UserMessage("c"), CALLS, *results, CUT]
        for length in range(len(whole) + 1):
            assert unpaired(Stage(messages=whole[:length]).agent.messages) == []


class TestOpenMessage:
    def built(self, *pieces: Any) -> AssistantMessage:
        message = OpenMessage("r1:1")
        for piece in pieces:
            match piece:
                case str():
                    message.add_text(piece)
                case ReasoningDelta():
                    message.add_reasoning(piece)
                case ToolCallDelta():
                    message.add_call_delta(piece)
                case ToolCall():
                    message.add_call(piece)
        return message.build(StopReason.STOP)

    def test_pieces_in_a_row_make_one_block(self) -> None:
        """Text and reasoning are put together until something else comes; the order is the model's."""
        built = self.built("a", "b", ReasoningDelta("c"), ReasoningDelta("d"), "e", ToolCall("c1", "act"), "f")
        call = ToolCall("c1", "act")
        assert built.content == (Text("ab"), Reasoning("cd"), Text("e"), call, Text("f"))

    def test_a_signature_closes_its_reasoning(self) -> None:
        """Reasoning after a signature is a block of its own; a signature alone is kept."""
        built = self.built(ReasoningDelta("a", "one"), ReasoningDelta("b"), ReasoningDelta("", "two"))
        assert built.content == (Reasoning("a", "one"), Reasoning("b", "two"))

    def test_what_says_nothing_is_left_out(self) -> None:
        """Empty text and empty reasoning are no blocks."""
        assert self.built("", ReasoningDelta("")).content == ()

    def test_calls_in_pieces_are_told_apart_by_index(self) -> None:
        """Interleaved pieces of two calls become two calls, in the order in which they began."""
        built = self.built(
            ToolCallDelta(0, "c1", "act", '{"a"'), ToolCallDelta(1, "c2", "other"), ToolCallDelta(0, arguments=": 1}")
        )
        assert built.calls == (ToolCall("c1", "act", {"a": 1}), ToolCall("c2", "other"))

    def test_a_call_without_an_id_gets_one(self) -> None:
        """Ids that the provider left out are made of the request and the place."""
        built = self.built(ToolCall("", "act"), ToolCallDelta(0, name="act"))
        assert [call.id for call in built.calls] == ["r1:1.1", "r1:1.2"]

    @pytest.mark.parametrize(
        ("text", "arguments", "malformed"),
        [
            ("", {}, None),
            (" \n", {}, None),
            ('{"a": [1]}', {"a": (1,)}, None),
            ("[1]", {}, "[1]"),
            ('{"a":', {}, '{"a":'),
            ("null", {}, "null"),
            ("[" * 100_000, {}, "[" * 100_000),
        ],
        ids=["empty", "blank", "object", "list", "half", "null", "deep"],
    )
    def test_arguments_are_an_object_or_malformed(self, text: str, arguments: Any, malformed: str | None) -> None:
        """What is no JSON object is kept as text, so that the call can be answered with an error."""
        assert parse_arguments(text) == (arguments, malformed)
