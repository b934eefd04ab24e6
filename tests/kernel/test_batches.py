"""The tools of a turn: in which order they are prepared, run, ended and recorded, and what they may ask and tell."""

import asyncio
from typing import Any

import pytest

from kernel import Block, Hooks, ToolCallDelta, ToolMessage, ToolResult
from kernel.effects import RunTool
from kernel.inputs import CallPrepared, ToolSettled
from kernel.messages import Text
from kernel.testing import call
from tests.kernel.helpers import Act, Bench, Stage, play, said, ticks

THREE = [call("c1", "one"), call("c2", "two"), call("c3", "three")]


class Diary:
    """Tools that write down when they begin and end; each takes a second, or what *seconds* says."""

    def __init__(self, **seconds: float) -> None:
        self.lines: list[str] = []
        self.seconds = seconds

    def act(self, name: str, **attributes: Any) -> Act:
        async def body(*_: Any) -> str:
            self.lines.append(f"{name} begins")
            await asyncio.sleep(self.seconds.get(name, 1))
            self.lines.append(f"{name} ends")
            return name

        return Act(name, body, **attributes)

    def acts(self, **attributes: Any) -> list[Act]:
        return [self.act(name, **attributes) for name in ("one", "two", "three")]


IN_TURN = [f"{name} {what}" for name in ("one", "two", "three") for what in ("begins", "ends")]
TOGETHER = [f"{name} {what}" for what in ("begins", "ends") for name in ("one", "two", "three")]


class TestOrder:
    def test_calls_are_prepared_in_turn_and_run_together(self) -> None:
        """Preparation is serial, in source order; then all bodies run at once (chapter 06)."""
        diary, asked = Diary(), []

        async def before(call: Any, _: Any) -> None:
            asked.append(call.id)
            await asyncio.sleep(5 if call.id == "c1" else 1)
            diary.lines.append(f"{call.id} prepared")

        stage = Stage(THREE, ["done"], tools=diary.acts(), hooks=Hooks(before_tool_call=before))
        play(stage.run())
        assert (asked, diary.lines) == (["c1", "c2", "c3"], ["c1 prepared", "c2 prepared", "c3 prepared", *TOGETHER])

    def test_the_policy_runs_them_in_turn(self) -> None:
        """Under `sequential` a call begins when the one before it has its result in the transcript (PAR-8)."""
        diary = Diary()
        stage = Stage(THREE, ["done"], tools=diary.acts(), tool_execution="sequential")
        play(stage.run())
        assert diary.lines == IN_TURN
        one = ["tool.started", "tool.ended", "message.started", "message.ended"]
        assert [name for name in stage.types if name.startswith(("tool.", "message."))][-15:-3] == one * 3

    def test_one_sequential_tool_makes_the_batch_so(self) -> None:
        """A tool that must run alone has the whole batch run in turn; a batch without it does not."""
        for names, lines in ((THREE, IN_TURN), (THREE[:2], ["one begins", "two begins", "one ends", "two ends"])):
            diary = Diary()
            tools = [diary.act("one"), diary.act("two"), diary.act("three", mode="sequential")]
            play(Stage(names, ["done"], tools=tools).run())
            assert diary.lines == lines

    def test_two_calls_of_one_id_run_in_turn(self) -> None:
        """When a response uses an id twice, each call has its own result, in source order."""
        diary = Diary(one=5)
        stage = Stage([call("x", "one"), call("x", "two")], ["done"], tools=diary.acts())
        play(stage.run())
        assert [text for role, text in stage.said if role == "tool"] == ["one", "two"]

    @pytest.mark.parametrize("mode", ["parallel", "sequential"])
    def test_a_call_that_can_not_run_does_not_hold_the_others(self, mode: Any) -> None:
        """Calls that are wrong or blocked are answered, in any place, and the others run."""
        hooks = Hooks(before_tool_call=lambda call, _: Block() if call.name == "two" else None)
        for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
            calls = [call(f"c{n}", ("one", "two", "three", "unknown")[n]) for n in order]
            stage = Stage(calls, ["done"], tools=Diary().acts(), hooks=hooks, tool_execution=mode)
            play(stage.run())
            answers = {message.call_id: message.executed for message in stage.agent.messages if message.role == "tool"}
            assert answers == {"c0": True, "c1": False, "c2": True, "c3": False}

    def test_arguments_that_are_no_object_are_answered(self) -> None:
        """A call whose arguments are broken JSON is answered with a text from which a model can mend it."""
        stage = Stage([ToolCallDelta(0, "c1", "one", '{"a": ')], ["done"], tools=Diary().acts())
        play(stage.run())
        assert stage.said[2] == ("tool", 'the arguments of one are not a JSON object: {"a": ')

    def test_a_cancel_between_hook_and_body_wins(self) -> None:
        """A call that was prepared when the cancel came never runs (PAR-10)."""
        diary = Diary()
        hooks = Hooks(before_tool_call=lambda call, _: stage.agent.cancel() and None if call.id == "c1" else None)
        stage = Stage(THREE, tools=diary.acts(), hooks=hooks)
        assert play(stage.run()).status == "cancelled"
        assert diary.lines == []
        assert [message.executed for message in stage.agent.messages if message.role == "tool"] == [False] * 3


def keys(*given: str) -> Any:
    return lambda _: given


class TestResources:
    def test_calls_that_share_a_key_run_in_source_order(self) -> None:
        """A file that two calls write is written by one after the other; the third does not wait (chapter 06)."""
        diary = Diary(three=9)
        tools = [diary.act("one", resources=keys("file")), diary.act("two", resources=keys("file")), diary.act("three")]
        play(Stage(THREE, ["done"], tools=tools).run())
        assert diary.lines == ["one begins", "three begins", "one ends", "two begins", "two ends", "three ends"]

    def test_a_call_does_not_overtake_one_that_waits(self) -> None:
        """A call waits for each key that a call before it waits for, though nobody holds it yet."""
        diary = Diary()
        tools = [diary.act("one", resources=keys("a")), diary.act("two", resources=keys("a", "b")),
                 diary.act("three", resources=keys("b"))]  # fmt: skip
        play(Stage(THREE, ["done"], tools=tools).run())
        assert diary.lines == IN_TURN

    def test_a_hook_after_the_body_holds_no_key(self) -> None:
        """The next call for a key begins when the body before it has ended, whatever `after_tool_result` does then."""
        diary = Diary(two=5)

        async def after(result: ToolMessage) -> None:
            diary.lines.append(f"after {result.name}")
            await asyncio.sleep(3)

        tools = [diary.act(name, resources=keys("file")) for name in ("one", "two")]
        play(Stage(THREE[:2], ["done"], tools=tools, hooks=Hooks(after_tool_result=after)).run())
        assert diary.lines == ["one begins", "one ends", "after one", "two begins", "two ends", "after two"]

    @pytest.mark.parametrize("wrong", ["file", b"file", 5, None, [5], ["file", None], {1: "file"}], ids=repr)
    def test_keys_that_are_none_are_the_calls_error(self, wrong: Any) -> None:
        """`resources` that gives no sequence of keys makes an error result that says so; the other call runs."""
        tools = [act := Act("one", resources=lambda _: wrong), other := Act("two")]
        stage = Stage(THREE[:2], ["done"], tools=tools)
        play(stage.run())
        assert (act.ran, other.ran, stage.agent.messages[2].is_error) == ([], ["c2"], True)
        assert stage.said[2][1].startswith("resources() of one must return a sequence of strings")

    def test_a_key_that_must_be_awaited_is_the_calls_error(self) -> None:
        """An awaitable is no sequence of keys, and nobody is told that it was never awaited."""

        async def late(_: Any) -> Any:
            return ["file"]

        stage = Stage([call("c1", "one")], ["done"], tools=[act := Act("one", resources=lambda given: late(given))])
        play(stage.run())
        assert (act.ran, "must return a sequence of strings" in stage.said[2][1]) == ([], True)

    @pytest.mark.parametrize("make", [list, tuple, set, iter, dict.fromkeys, lambda given: (key for key in given)])
    def test_keys_may_come_in_any_form(self, make: Any) -> None:
        """A generator of keys holds them as a list does (chapter 06: the file-write conflict)."""
        diary = Diary()
        tools = [diary.act(name, resources=lambda _: make(["file"])) for name in ("one", "two", "three")]
        play(Stage(THREE, ["done"], tools=tools).run())
        assert diary.lines == IN_TURN

    @pytest.mark.parametrize("order", [("ab", "ba", "ab"), ("ab", "bc", "ca"), ("a", "ab", "b"), ("abc", "c", "cab")])
    def test_several_keys_are_taken_together(self, order: tuple[str, ...]) -> None:
        """Calls that want the same keys in other orders never wait for each other: all run, in source order."""
        diary = Diary()
        named = zip(("one", "two", "three"), order, strict=True)
        tools = [diary.act(name, resources=keys(*wanted)) for name, wanted in named]
        assert play(Stage(THREE, ["done"], tools=tools).run()).status == "completed"
        assert diary.lines == IN_TURN

    def test_others_run_beside_those_that_wait(self) -> None:
        """Two files are written at once, each by one call after the other."""
        diary = Diary(one=3, two=1)
        tools = [diary.act("one", resources=lambda given: [given["path"]]), diary.act("two", resources=keys("b"))]
        calls = [call("c1", "one", path="a"), call("c2", "two"), call("c3", "one", path="a"), call("c4", "two")]
        play(Stage(calls, ["done"], tools=tools).run())
        assert diary.lines == [
            "one begins", "two begins", "two ends", "two begins", "two ends", "one ends", "one begins", "one ends",
        ]  # fmt: skip

    @pytest.mark.parametrize("mode", ["parallel", "sequential"])
    def test_a_timed_out_call_that_is_deaf_holds_its_key_in_the_same_run(self, mode: Any) -> None:
        """Only when it has really ended may the next one begin, in whichever mode and turn."""
        diary = Diary()
        stage = Stage([call("c1", "deaf")], [call("c2", "one")], ["done"], cancel_grace=1, tool_execution=mode)
        deaf = Act("deaf", stage.deaf("end"), resources=keys("file"), timeout=2)
        stage.agent.configure(tools=[deaf, diary.act("one", resources=keys("file"))])

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(50)
            assert diary.lines == []
            stage.gates.open("end")
            await run
            assert asyncio.get_running_loop().time() == 51

        play(main())
        assert diary.lines == ["one begins", "one ends"]

    def test_a_call_that_waits_for_a_key_can_be_cancelled(self) -> None:
        """A key that is never free holds nobody beyond a cancel; the call was not executed."""
        stage = Stage([call("c1", "deaf"), call("c2", "one")], cancel_grace=1)
        stage.agent.configure(tools=[Act("deaf", stage.deaf("end"), resources=keys("file")),
                                     act := Act("one", resources=keys("file"))])  # fmt: skip

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            await ticks()
            stage.agent.cancel()
            assert (await run).status == "cancelled"
            stage.gates.open("end")
            await ticks()

        play(main())
        assert (act.ran, [m.executed for m in stage.agent.messages if m.role == "tool"]) == ([], [True, False])

    def test_a_key_is_held_until_an_abandoned_call_really_ends(self) -> None:
        """In the next run a call for the same key waits for the abandoned one; others do not."""
        diary = Diary()
        stage = Stage([call("c1", "deaf")], [call("c2", "one"), call("c3", "two")], ["done"], cancel_grace=1)
        deaf = Act("deaf", stage.deaf("end"), resources=keys("file"))
        stage.agent.configure(tools=[deaf, diary.act("one", resources=keys("file")), diary.act("two")])

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            await ticks()
            stage.agent.cancel()
            await run
            run = stage.agent.prompt("again")
            await asyncio.sleep(10)
            assert diary.lines == ["two begins", "two ends"]
            stage.gates.open("end")
            await run

        play(main())
        assert diary.lines[2:] == ["one begins", "one ends"]

    def test_an_abandoned_hook_holds_no_key(self) -> None:
        """The call that it was told of has ended: the next one for the same key need not wait, though the hook goes on."""
        act = Act("one", resources=keys("file"))

        async def deaf(result: Any) -> None:
            if result.call_id == "c1":
                await stage.gates.wait_ignoring_cancel("end")

        responses = [call("c1", "one")], [call("c2", "one")], ["done"]
        stage = Stage(*responses, tools=[act], hooks=Hooks(after_tool_result=deaf), cancel_grace=1)

        async def main() -> str:
            run = stage.agent.prompt("Hi")
            await ticks()
            stage.agent.cancel()
            await run
            assert [(work.kind, work.name) for work in stage.agent.abandoned] == [("hook", "after_tool_result")]
            result = await stage.agent.prompt("again")
            stage.gates.open("end")
            await ticks()
            return result.final_text

        assert play(main()) == "done"
        assert act.ran == ["c1", "c2"]

    def test_one_that_ends_while_another_is_prepared_starts_nothing(self) -> None:
        """What becomes free while a call is being prepared is taken when all are prepared."""
        bench = Bench(tools=[Act("one", resources=keys("file")), Act("two")])
        bench.to_tools(call("c1", "one"))
        bench.advance()
        bench.put(CallPrepared(bench.work, ("file",)))
        bench.advance()
        deaf = bench.work
        bench.put(ToolSettled(deaf, "c1", (Text("timed out"),), is_error=True, ended="timeout", abandoned=True))
        bench.advance()
        bench.to_request()
        bench.respond(call("c2", "two"))
        bench.advance()
        preparing = bench.work
        bench.put(ToolSettled(deaf, "c1", (Text("late"),)))
        assert bench.advance() == []
        bench.put(CallPrepared(preparing))
        bench.advance()
        assert [effect.call.id for effect in bench.all(RunTool)] == ["c1", "c2"]


class TestTerminate:
    @pytest.mark.parametrize(("words", "turns"), [((True, True), 1), ((True, False), 2), ((False, False), 2)])
    def test_when_all_say_so_the_run_completes(self, words: tuple[bool, ...], turns: int) -> None:
        """Only when every tool of the turn terminates, its results need no answer."""
        tools = [Act(name, ToolResult("ok", terminate=word)) for name, word in zip(("one", "two"), words, strict=True)]
        result = play(Stage(THREE[:2], ["done"], tools=tools).run())
        assert (result.status, result.turns) == ("completed", turns)

    def test_one_that_did_not_run_does_not_terminate(self) -> None:
        """A call that was blocked needs an answer."""
        stage = Stage(
            [call("c1", "one"), call("c2", "unknown")], ["done"], tools=[Act("one", ToolResult("ok", terminate=True))]
        )
        assert play(stage.run()).turns == 2

    def test_what_is_queued_goes_on(self) -> None:
        """A follow-up is taken after tools that terminated."""
        stage = Stage([call("c1", "one")], ["done"], tools=[Act("one", ToolResult("ok", terminate=True))])
        stage.on("tool.started", lambda: stage.agent.follow_up("then"))
        play(stage.run())
        assert stage.said[2:] == [("tool", "ok"), ("user", "then"), ("assistant", "done")]


class TestHooks:
    def test_after_a_result_the_hook_sees_it(self) -> None:
        """`after_tool_result` gets each result message before the next turn, and its answer does not matter (SUB-4)."""
        seen: list[Any] = []
        hooks = Hooks(after_tool_result=lambda result: seen.append(result))
        stage = Stage([*THREE[:2], call("c3", "unknown")], ["done"], tools=[Act("one"), Act("two", 1 / 3)], hooks=hooks)
        play(stage.run())
        assert [(type(result), result.call_id) for result in seen] == [(ToolMessage, "c1"), (ToolMessage, "c2")]

    def test_a_result_that_was_cancelled_is_not_shown(self) -> None:
        """No hook runs after a cancel."""
        seen: list[Any] = []
        stage = Stage([call("c1", "one")], hooks=Hooks(after_tool_result=seen.append))
        stage.agent.configure(tools=[Act("one", stage.waiting())])
        stage.on("tool.started", lambda: asyncio.get_running_loop().call_later(1, stage.agent.cancel))
        play(stage.run())
        assert seen == []

    @pytest.mark.parametrize("mode", ["parallel", "sequential"])
    def test_the_result_is_recorded_after_its_hook(self, mode: Any) -> None:
        """A batch is over when all hooks have come back."""
        stage = Stage(THREE[:2], ["done"], tools=[Act("one"), Act("two")], tool_execution=mode,
                      hooks=Hooks(after_tool_result=lambda _: asyncio.sleep(1)))  # fmt: skip
        assert play(stage.run()).status == "completed"
        assert [text for role, text in stage.said if role == "tool"] == ["ok", "ok"]

    def test_a_hook_that_changes_the_tools_changes_the_next_turn(self) -> None:
        """Tools that are configured in a batch are those of the next turn (SUB-5)."""
        act = Act("two")
        hooks = Hooks(before_tool_call=lambda *_: stage.agent.configure(tools=[]))
        stage = Stage(THREE[:2], [call("c4", "two")], ["done"], tools=[Act("one"), act], hooks=hooks)
        play(stage.run())
        assert act.ran == ["c2"]
        assert "the tools are: none" in stage.said[5][1]


class TestContext:
    def test_a_tool_knows_its_call_and_its_run(self) -> None:
        """The context has the ids, and says whether the call was told to stop (EXT-14)."""
        contexts: list[Any] = []

        async def body(_: Any, context: Any) -> None:
            contexts.append((context, context.cancelled))
            await stage.gates.wait("never")

        stage = Stage([call("c1", "one")], cancel_grace=1)
        stage.agent.configure(tools=[Act("one", body)])

        async def main() -> str:
            run = stage.agent.prompt("Hi")
            await ticks()
            stage.agent.cancel()
            await run
            return run.id

        run_id = play(main())
        ((context, before),) = contexts
        assert (context.call_id, context.run_id, before, context.cancelled) == ("c1", run_id, False, True)

    def test_progress_is_told_between_start_and_end(self) -> None:
        """Updates of a running call are told in order; after its end they are discarded aloud (PAR-5)."""
        contexts: list[Any] = []

        def body(_: Any, context: Any) -> str:
            contexts.append(context)
            context.update("one"), context.update("two")
            return "ok"

        stage = Stage([call("c1", "one")], ["done"], tools=[Act("one", body)])
        stage.on("tool.ended", lambda: contexts[0].update("late"))
        play(stage.run())
        told = ["tool.started", "tool.updated", "tool.updated", "tool.ended", "update.discarded"]
        assert [name for name in stage.types if name.startswith(("tool.", "update."))] == told

    def test_an_update_that_is_no_text_is_the_tools_error(self) -> None:
        """`update` takes strings; what else is given is an exception in the tool."""
        stage = Stage([call("c1", "one")], ["done"], tools=[Act("one", lambda _, context: context.update(5))])
        play(stage.run())
        assert (stage.agent.messages[2].is_error, "update() takes a string" in stage.said[2][1]) == (True, True)

    def test_the_start_is_told_before_the_body_runs(self) -> None:
        """A body can rely on its `tool.started` having been heard (ORD-1)."""
        heard: list[list[str]] = []
        stage = Stage([call("c1", "one")], ["done"])
        stage.agent.configure(tools=[Act("one", lambda *_: heard.append(list(stage.types)))])
        play(stage.run())
        assert heard[0][-1] == "tool.started"


class TestSnapshots:
    def test_pending_calls_and_the_streaming_message_are_seen(self) -> None:
        """`state` shows what is being streamed and which calls have no result yet (LAT-5)."""
        seen: dict[str, Any] = {}

        def look(event: Any) -> None:
            state = stage.agent.state
            streaming = state.streaming_message and state.streaming_message.text
            seen.setdefault(event.type, (state.is_running, state.is_streaming, streaming, state.pending_tool_calls))

        stage = Stage(["a", call("c1", "one")], ["done"], tools=[Act("one")])
        stage.agent.subscribe(look)
        play(stage.run())
        assert seen["run.started"] == (True, False, None, ())
        assert seen["message.updated"] == (True, True, "a", ())
        assert seen["tool.started"] == (True, False, None, ("c1",))
        assert seen["run.finished"] == (True, False, None, ())
        state = stage.agent.state
        assert (state.is_running, state.is_streaming, state.streaming_message) == (False, False, None)

    def test_the_error_of_the_last_run_is_remembered(self) -> None:
        """`error_message` says why the last run failed, until the next one begins."""
        stage = Stage([RuntimeError("boom")], ["a"])

        async def main() -> list[Any]:
            await stage.run()
            before = stage.agent.state.error_message
            await stage.run()
            return [before, stage.agent.state.error_message]

        assert play(main()) == ["boom", None]
        assert said(stage.agent.messages)[1] == ("assistant", "")
