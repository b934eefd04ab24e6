"""Hooks (G15): what each may answer or raise, how it is called, and when none is called any more."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kernel import Block, CompactionPolicy, CustomMessage, Hooks, ToolMessage, UserMessage
from kernel.testing import Gates, call
from tests.kernel.helpers import Act, Stage, play, ticks, turns

CONTEXT = ("transform_context", "convert_to_llm")
LATER = ("after_tool_result", "should_stop_after_turn")
ALL = (*CONTEXT, "before_tool_call", *LATER)
NOTE = CustomMessage("note")


def sync(body: Callable[..., Any]) -> Callable[..., Any]:
    return body


def late(body: Callable[..., Any]) -> Callable[..., Any]:
    """The same as an async function that does not answer at once."""

    async def hook(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return body(*arguments)

    return hook


def raising(error: BaseException) -> Callable[..., Any]:
    def body(*_: Any) -> Any:
        raise error

    return body


def with_hook(name: str, hook: Callable[..., Any], **arguments: Any) -> Stage:
    """A run of one call and an answer, after a custom message."""
    return Stage([call("c1", "act")], ["b"], tools=[Act()], messages=(NOTE,), hooks=Hooks(**{name: hook}), **arguments)


def failures(stage: Stage) -> list[tuple[str, str]]:
    return [(event.hook, event.error) for event in stage.heard.of("hook.failed")]


def tool_result(stage: Stage) -> ToolMessage:
    (result,) = [message for message in stage.agent.messages if isinstance(message, ToolMessage)]
    return result


both = pytest.mark.parametrize("made", [sync, late], ids=["sync", "async"])


class TestRaising:
    ERRORS = (RuntimeError("boom"), asyncio.CancelledError("boom"), GeneratorExit("boom"))

    @both
    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("name", ALL)
    def test_the_run_goes_on_and_only_what_must_be_is_told(self, name: str, error: BaseException, made: Any) -> None:
        """Each hook that raises, whatever it is, has what stands in its place: its input, an error result, or a no."""
        stage = with_hook(name, made(raising(error)))
        result = play(stage.run())
        times = {"transform_context": 2, "convert_to_llm": 2, "before_tool_call": 0}.get(name, 2 if "stop" in name else 1)
        assert (result.status, result.turns, failures(stage)) == ("completed", 2, [(name, "boom")] * times)
        blocked = name == "before_tool_call"
        answer = tool_result(stage)
        assert (answer.text, answer.is_error, answer.executed) == ("boom" if blocked else "ok", blocked, not blocked)
        assert stage.model.requests[0].messages == (UserMessage("Hi"),)

    @both
    @pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)], ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("name", ALL)
    def test_what_ends_the_program_goes_through(self, name: str, error: BaseException, made: Any) -> None:
        """KeyboardInterrupt and SystemExit come out of the loop; the run has ended, and the next one works."""
        once = [error]

        def body(*_: Any) -> None:
            if once:
                raise once.pop()

        stage = with_hook(name, made(body))
        with pytest.raises(type(error)):
            stage.agent.run_sync("Hi")
        assert (stage.agent.phase, stage.types.count("run.finished")) == ("idle", 1)
        stage.keeps_its_word()
        stage.agent.configure(model=type(stage.model)([["b"]]))
        assert stage.agent.run_sync("again").status == "completed"


NO_MESSAGES: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "a text": "Hi",
    "texts": ["Hi"],
    "dictionaries": [{"role": "user"}],
    "one message": UserMessage("Hi"),
    "one that is wrong": [UserMessage("Hi"), None],
}


class TestWrongAnswers:
    @both
    @pytest.mark.parametrize("answer", NO_MESSAGES.values(), ids=NO_MESSAGES)
    @pytest.mark.parametrize("name", CONTEXT)
    def test_what_are_no_messages_is_a_failure(self, name: str, answer: Any, made: Any) -> None:
        """A context hook must answer messages; what else it answers is told, and its input is used."""
        stage = with_hook(name, made(lambda _: answer))
        assert play(stage.run()).status == "completed"
        assert [hook for hook, _ in failures(stage)] == [name] * 2
        assert stage.model.requests[0].messages == (UserMessage("Hi"),)

    @pytest.mark.parametrize("make", [tuple, list, iter, lambda messages: (each for each in messages)])
    @pytest.mark.parametrize("name", CONTEXT)
    def test_messages_may_come_in_any_form(self, name: str, make: Any) -> None:
        """A generator of messages is as good as a list."""
        stage = with_hook(name, lambda messages: make([*messages, UserMessage("more")]))
        play(stage.run())
        assert failures(stage) == []
        assert stage.model.requests[0].messages == (UserMessage("Hi"), UserMessage("more"))

    @both
    @pytest.mark.parametrize("answer", [True, False, 5, ["no"], {}], ids=repr)
    def test_before_a_call_only_a_block_or_a_reason_counts(self, answer: Any, made: Any) -> None:
        """What else `before_tool_call` answers keeps the call from running, and says what was expected."""
        stage = with_hook("before_tool_call", made(lambda *_: answer))
        play(stage.run())
        assert (tool_result(stage).executed, "None, a Block or a reason" in tool_result(stage).text) == (False, True)

    @both
    @pytest.mark.parametrize(
        ("answer", "text"), [(Block("no"), "no"), (Block(""), "blocked"), ("no", "no"), ("", "blocked")]
    )
    def test_a_call_that_is_blocked_says_why(self, answer: Any, text: str, made: Any) -> None:
        """The reason is the call's result, and never empty."""
        stage = with_hook("before_tool_call", made(lambda *_: answer))
        play(stage.run())
        assert (tool_result(stage).text, tool_result(stage).is_error, failures(stage)) == (text, True, [])

    @both
    def test_the_answer_of_a_hook_without_one_is_not_looked_at(self, made: Any) -> None:
        """`after_tool_result` may answer anything, even what has no truth."""
        stage = with_hook("after_tool_result", made(lambda _: NoTruth()))
        assert (play(stage.run()).status, failures(stage)) == ("completed", [])

    @both
    @pytest.mark.parametrize(
        ("answer", "status"), [(1, "stopped"), ("yes", "stopped"), (0, "completed"), (None, "completed")]
    )
    def test_stopping_is_a_matter_of_truth(self, answer: Any, status: str, made: Any) -> None:
        """`should_stop_after_turn` answers with anything that is true or not."""
        assert play(with_hook("should_stop_after_turn", made(lambda _: answer)).run()).status == status

    @both
    def test_what_is_neither_true_nor_false_is_a_failure(self, made: Any) -> None:
        """An answer without a truth is told, and counts as a no."""
        stage = with_hook("should_stop_after_turn", made(lambda _: NoTruth()))
        assert (play(stage.run()).status, failures(stage)) == ("completed", [("should_stop_after_turn", "no truth")] * 2)


class NoTruth:
    def __bool__(self) -> bool:
        raise ValueError("no truth")


class TestInput:
    @pytest.mark.parametrize("name", ALL)
    def test_what_a_hook_does_to_its_input_reaches_nobody(self, name: str) -> None:
        """A hook gets what can't be changed, or a copy of its own."""

        def spoil(*given: Any) -> Any:
            for thing in given:
                for change in (
                    lambda thing=thing: thing.append(UserMessage("spoiled")),
                    lambda thing=thing: thing.__setitem__(0, UserMessage("spoiled")),
                    lambda thing=thing: thing.update(spoiled=True),
                    lambda thing=thing: thing["deep"].append("spoiled"),
                    lambda thing=thing: thing.arguments.update(spoiled=True),
                    lambda thing=thing: setattr(thing, "content", ()),
                    lambda thing=thing: setattr(thing, "messages", ()),
                ):
                    try:
                        change()
                    except (AttributeError, TypeError, KeyError):
                        continue
            return given[0] if name in CONTEXT else None

        seen: list[Any] = []
        act = Act(body=lambda arguments, _: seen.append(arguments) or "ok")
        stage = Stage([call("c1", "act", deep=["a"])], ["b"], tools=[act], messages=turns(1), hooks=Hooks(**{name: spoil}))
        play(stage.run())
        assert (seen, failures(stage)) == ([{"deep": ["a"]}], [])
        assert "spoiled" not in repr((stage.agent.state, stage.model.requests))
        assert stage.said[2:] == [("user", "Hi"), ("assistant", ""), ("tool", "ok"), ("assistant", "b")]


class TestCancel:
    @pytest.mark.parametrize("name", ALL)
    def test_one_that_hangs_is_stopped(self, name: str) -> None:
        """A hook that waits for ever ends with the cancel, at once."""
        stage = with_hook(name, waiting := Waiting())

        async def main() -> tuple[str, float]:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(3)
            stage.agent.cancel()
            return (await run).status, asyncio.get_running_loop().time()

        assert play(main()) == ("cancelled", 3)
        assert (waiting.stopped, failures(stage)) == (True, [])
        stage.keeps_its_word()

    @pytest.mark.parametrize("name", ALL)
    def test_one_that_is_deaf_is_given_up_by_its_name(self, name: str) -> None:
        """A hook that ignores the cancel is abandoned after `cancel_grace`, and `abandoned` says which one it is."""
        gates = Gates()

        async def deaf(*_: Any) -> None:
            await gates.wait_ignoring_cancel("end")

        stage = with_hook(name, deaf, cancel_grace=2)

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(3)
            stage.agent.cancel()
            assert (await run).status == "cancelled"
            assert asyncio.get_running_loop().time() == 5
            assert [(work.kind, work.name) for work in stage.agent.abandoned] == [("hook", name)]
            gates.open("end")
            await ticks()
            assert stage.agent.abandoned == ()

        play(main())
        stage.keeps_its_word()

    @both
    @pytest.mark.parametrize("name", ALL)
    def test_none_begins_after_one_that_cancelled(self, name: str, made: Any) -> None:
        """The hook that cancels the run is the last thing that was called."""
        called: list[str] = []

        def hook(own: str) -> Callable[..., Any]:
            def body(*given: Any) -> Any:
                called.append(own)
                if own == name:
                    stage.agent.cancel()
                return given[0] if own in CONTEXT else None

            return made(body)

        acts = [Act("one", lambda *_: called.append("body")), Act("two", lambda *_: called.append("body"))]
        hooks = Hooks(**{own: hook(own) for own in ALL})
        stage = Stage([call("c1", "one"), call("c2", "two")], ["b"], tools=acts, hooks=hooks)
        assert play(stage.run()).status == "cancelled"
        assert called[-1] == name
        assert called.count(name) == 1

    @both
    @pytest.mark.parametrize(
        "place",
        ["turn.started", "message.accepted", "message.started", "message.ended", "tool.started", "tool.ended", "turn.ended",
         "phase.changed"],
    )  # fmt: skip
    def test_none_begins_after_a_cancel_that_was_told(self, place: str, made: Any) -> None:
        """A listener that cancels is obeyed by all hooks at once, wherever the run is."""
        late: list[str] = []

        def hook(own: str) -> Callable[..., Any]:
            def body(*given: Any) -> Any:
                if stage.agent.phase == "cancelling":
                    late.append(own)
                return given[0] if own in CONTEXT else None

            return made(body)

        for nth in range(1, 8):
            hooks = Hooks(**{own: hook(own) for own in ALL})
            stage = Stage([call("c1", "act"), call("c2", "act")], ["b"], tools=[Act()], hooks=hooks)
            stage.on(place, stage.agent.cancel, nth)
            play(stage.run())
            assert late == []

    def test_a_summary_is_not_begun_behind_a_hook_that_cancelled(self) -> None:
        """`convert_to_llm` that cancels while a summary is made ready keeps the compactor from being asked."""
        asked: list[Any] = []

        class Compactor:
            async def summarize(self, messages: Any) -> str:
                asked.append(messages)
                return "short"

        def convert(messages: Any) -> Any:
            stage.agent.cancel()
            return messages

        stage = Stage(messages=turns(4), compactor=Compactor(), compaction=CompactionPolicy(keep_turns=1),
                      hooks=Hooks(convert_to_llm=convert))  # fmt: skip

        async def main() -> str:
            return (await stage.agent.compact()).status

        assert (play(main()), asked, len(stage.agent.messages)) == ("cancelled", [], 8)
        stage.keeps_its_word()


class Waiting:
    """A hook that waits until it is cancelled."""

    def __init__(self) -> None:
        self.stopped = False

    async def __call__(self, *_: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
