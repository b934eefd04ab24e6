"""The size of what no model has counted yet: who is asked, about what, and what stands when the answer is rubbish."""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import (
    AssistantMessage,
    CompactionPolicy,
    CustomMessage,
    Hooks,
    Message,
    SummaryMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from kernel.estimators import MESSAGE_TOKENS, LengthEstimator, UsageOnlyEstimator
from kernel.frozen import shown
from kernel.testing import call
from tests.kernel.helpers import Act, Stage, play, said, turns

POLICY = CompactionPolicy(reserve=10, keep_turns=1)


class Scale:
    """An estimator: *tokens* for each message, or *tokens* itself when that is no number. `asked` is what it was given."""

    def __init__(self, tokens: Any = 0) -> None:
        self.tokens = tokens
        self.asked: list[list[tuple[str, str]]] = []

    def estimate(self, messages: Sequence[Message]) -> Any:
        self.asked.append(said(messages))
        if isinstance(self.tokens, BaseException):
            raise self.tokens
        return self.tokens * len(messages) if type(self.tokens) is int else self.tokens


class Brief:
    """A compactor that is brief."""

    async def summarize(self, messages: Sequence[Message]) -> str:
        return "short"


def stage(*responses: Any, scale: Any = None, window: int | None = 100, **arguments: Any) -> Stage:
    arguments = {"compaction": POLICY, "compactor": Brief(), "messages": turns(3)} | arguments
    return Stage(*responses, estimator=Scale() if scale is None else scale, window=window, **arguments)


def compactions(stage: Stage) -> list[str]:
    return [event.reason for event in stage.heard.of("compaction.started")]


class Unspeakable:
    """A value of an application's own that can't even be shown."""

    def __repr__(self) -> str:
        raise ValueError("never")


class TestWhatIsAsked:
    def test_a_history_nobody_counted_is_estimated_whole(self) -> None:
        """Before the first request of an agent with a history, all of it is estimated, the prompt included."""
        scale = Scale()
        play(stage(["a"], scale=scale).run())
        assert scale.asked == [[*said(turns(3)), ("user", "Hi")]]

    def test_after_a_usage_only_what_came_since_is(self) -> None:
        """A usage stands for all up to its answer: then only results and new messages are estimated."""
        scale = Scale()
        tried = stage([Usage(20), call("c1", "act")], [Usage(30), "b"], ["c"], scale=scale, tools=[Act()])

        async def main() -> None:
            await tried.run()
            await tried.run("again")

        play(main())
        assert scale.asked[1:] == [[("tool", "ok")], [("user", "again")]]

    def test_a_model_that_tells_no_usage_is_not_asked_about_twice(self) -> None:
        """Without any usage each message is estimated once, so that a turn does not cost more in a longer conversation."""
        scale = Scale()
        tried = stage([call("c1", "act")], ["b"], ["c"], scale=scale, tools=[Act()], messages=())

        async def main() -> None:
            await tried.run()
            await tried.run("again")

        play(main())
        assert scale.asked == [
            [("user", "Hi")],
            [("assistant", ""), ("tool", "ok")],
            [("assistant", "b"), ("user", "again")],
        ]

    def test_a_cut_message_is_not_counted(self) -> None:
        """What is never sent costs nothing."""
        scale = Scale()
        tried = stage(["par", ValueError("broken")], ["b"], scale=scale, messages=(), retry=None)

        async def main() -> None:
            await tried.run()
            await tried.run("again")

        play(main())
        assert scale.asked[1] == [("user", "again")]

    def test_after_a_compaction_the_shorter_context_is_estimated(self) -> None:
        """The old figure was about the longer context; the summary and the kept turns are estimated anew."""
        scale = Scale()
        tried = stage([Usage(95), "a"], ["b"], scale=scale)

        async def main() -> None:
            await tried.run()
            await tried.run("again")

        play(main())
        kept = [("user", "Hi"), ("assistant", "a"), ("user", "again")]
        assert scale.asked[1:] == [[("user", "again")], [("summary", "short"), *kept]]

    def test_custom_messages_are_shown_where_a_hook_rewrites_them(self) -> None:
        """With `convert_to_llm` the estimator gets custom messages too, and without it what the model will get."""
        for hooks, seen in ((Hooks(), 1), (Hooks(convert_to_llm=lambda messages: messages), 2)):
            scale = Scale()
            play(stage(["a"], scale=scale, messages=[CustomMessage("ui", 1)], hooks=hooks).run())
            assert [len(asked) for asked in scale.asked] == [seen]

    @pytest.mark.parametrize(
        "arguments", [{"window": None}, {"compaction": None}], ids=["no window", "compaction is off"]
    )
    def test_where_there_is_no_threshold_nobody_is_asked(self, arguments: Any) -> None:
        """Counting costs something, so it is done only where the answer decides something."""
        scale = Scale()
        play(stage(["a"], scale=scale, **arguments).run())
        assert scale.asked == []

    def test_after_a_reset_nothing_is_left_of_the_count(self) -> None:
        """A new conversation begins at nothing."""
        scale = Scale()
        tried = stage([Usage(95), "a"], ["b"], scale=scale)

        async def main() -> None:
            await tried.run()
            tried.agent.reset()
            await tried.run("again")

        play(main())
        assert (scale.asked[-1], compactions(tried)) == ([("user", "again")], [])


class TestWhatItDecides:
    @pytest.mark.parametrize(("tokens", "times"), [(90, 0), (91, 1)])
    def test_an_estimate_alone_reaches_the_threshold(self, tokens: int, times: int) -> None:
        """A history that is too long is compacted before the first request, although no model has told anything."""
        history = (UserMessage("old " * 30), AssistantMessage("a"), UserMessage("b"), AssistantMessage("c"))

        class Once:
            def estimate(self, messages: Sequence[Message]) -> int:
                return tokens if len(messages) == 5 else 0

        tried = stage(["a"], scale=Once(), messages=history)
        play(tried.run())
        assert compactions(tried) == ["threshold"] * times

    @pytest.mark.parametrize(("tokens", "times"), [(5, 0), (6, 1)])
    def test_usage_and_estimate_add_up(self, tokens: int, times: int) -> None:
        """What was told and what came since count together: a large result of a tool is seen before it is sent."""
        scale = Scale()
        tried = stage([Usage(85), call("c1", "act")], ["b"], scale=scale, tools=[Act()])
        tried.on("tool.ended", lambda: setattr(scale, "tokens", tokens))
        tried.on("compaction.ended", lambda: setattr(scale, "tokens", 0))
        play(tried.run())
        assert compactions(tried) == ["threshold"] * times

    def test_the_default_sees_a_large_result(self) -> None:
        """With the default estimator, 4,000 bytes of a result are a thousand tokens."""
        tried = Stage([Usage(100), call("c1", "act")], ["b"], tools=[Act(body="x" * 4000)], window=1000, messages=turns(3),
                      compaction=POLICY, compactor=Brief(), estimator=None)  # fmt: skip
        play(tried.run())
        assert compactions(tried) == ["threshold"]


class TestFailures:
    @pytest.mark.parametrize(
        "answer",
        [ValueError("no scale"), "many", None, -1, True, 1.5],
        ids=["raises", "text", "None", "-1", "bool", "float"],
    )
    def test_rubbish_is_told_and_the_length_stands_in(self, answer: Any) -> None:
        """`hook.failed` names the estimator before the request, and the guess from the length decides."""
        long = (UserMessage("old " * 200), AssistantMessage("a"), UserMessage("b"), AssistantMessage("c"))
        tried = stage(["a"], scale=Scale(answer), messages=long)
        assert play(tried.run()).status == "completed"
        assert {event.hook for event in tried.heard.of("hook.failed")} == {"estimator"}
        assert compactions(tried) == ["threshold"]
        assert tried.types.index("hook.failed") < tried.types.index("message.started")

    def test_an_async_estimator_is_refused(self) -> None:
        """It can't be awaited where it is asked, and the coroutine is not left to complain."""

        class Later:
            async def estimate(self, messages: Sequence[Message]) -> int:
                return 1

        tried = stage(["a"], scale=Later())
        play(tried.run())
        assert [event.error for event in tried.heard.of("hook.failed")] == [
            "an estimator's estimate must be an ordinary function, not an async one"
        ]

    def test_each_request_tells_once(self) -> None:
        """A failure is told with the request that it was about, and not again with the next one."""
        scale = Scale(ValueError("no scale"))
        tried = stage(["a"], ["b"], scale=scale)

        async def main() -> None:
            await tried.run()
            scale.tokens = 0
            await tried.run("again")

        play(main())
        assert len(tried.heard.of("hook.failed")) == 1

    def test_what_is_no_estimator_is_refused(self) -> None:
        """An object without the method is named when the agent is made."""
        with pytest.raises(TypeError, match="estimator must be an object with a method estimate"):
            stage(scale=object())


class TestLength:
    @pytest.mark.parametrize(
        ("message", "tokens"),
        [
            (UserMessage(""), 0),
            (UserMessage("abcd"), 1),
            (UserMessage("abcde"), 2),
            (UserMessage("日本語だ"), 3),
            (AssistantMessage([ToolCall("c1", "act", {"a": 1})]), 3),
            (AssistantMessage([ToolCall("c1", "act", {"a": "日本語だ"})]), 6),
            (AssistantMessage([ToolCall("c1", "act", malformed="{" * 9)]), 3),
            (ToolMessage("c1", "act", "abcd"), 1),
            (SummaryMessage("abcd"), 1),
        ],
        ids=["nothing", "four", "five", "wide", "call", "wide call", "malformed call", "result", "summary"],
    )
    def test_four_bytes_are_a_token(self, message: Message, tokens: int) -> None:
        """Text, calls and their arguments count by their bytes, rounded up, and each message costs a few more."""
        assert LengthEstimator().estimate([message]) == MESSAGE_TOKENS + tokens

    def test_custom_messages_weigh_nothing(self) -> None:
        """Nobody knows yet what becomes of them."""
        assert LengthEstimator().estimate([CustomMessage("ui", "x" * 100)]) == 0

    @given(st.lists(st.text(st.characters())), st.floats(0.1, 100))
    def test_it_never_fails_and_adds_up(self, texts: list[str], ratio: float) -> None:
        """Any text has a size, surrogates included, and the size of many is the sum of theirs."""
        estimator = LengthEstimator(ratio)
        sizes = [estimator.estimate([UserMessage(text)]) for text in texts]
        assert all(size >= MESSAGE_TOKENS for size in sizes)
        assert estimator.estimate([UserMessage(text) for text in texts]) == sum(sizes)

    @pytest.mark.parametrize("value", [{(1, 2): 3}, Unspeakable(), [b"raw", {4}]], ids=["a key", "no text", "bytes"])
    def test_arguments_that_json_can_not_say_have_a_size(self, value: Any) -> None:
        """And with them a run that has to know the size of its context goes on."""
        call = ToolCall("c1", "act", {"a": value})
        assert LengthEstimator().estimate([AssistantMessage([call])]) > MESSAGE_TOKENS
        history = [UserMessage("Hi"), AssistantMessage([call]), ToolMessage("c1", "act", "done"), AssistantMessage("a")]
        stage = Stage(["b"], messages=history, window=100_000, estimator=LengthEstimator())
        assert play(stage.run()).status == "completed"

    def test_it_does_not_fail_where_the_stack_ends(self) -> None:
        """Arguments that are nested as deeply as they may be are measured in a deep call too, if only as nothing."""
        nested: Any = 1
        for _ in range(50):
            nested = {"a": [nested]}
        call, sizes = ToolCall("c1", "act", {"a": nested}), set()

        def deeper() -> None:
            with contextlib.suppress(RecursionError):
                sizes.add(len(shown(call.arguments)))
                deeper()

        deeper()
        assert sizes == {0, len(shown(call.arguments))}

    @pytest.mark.parametrize("ratio", [0, -1, float("inf"), float("nan"), "4", True, None])
    def test_a_wrong_ratio_is_named(self, ratio: Any) -> None:
        """The argument is named in the error."""
        with pytest.raises((TypeError, ValueError), match="bytes_per_token"):
            LengthEstimator(ratio)

    def test_usage_only_guesses_nothing(self) -> None:
        """For those who trust what models tell, and nothing else."""
        assert UsageOnlyEstimator().estimate([UserMessage("x" * 1000)]) == 0
