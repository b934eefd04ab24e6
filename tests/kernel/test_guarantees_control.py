"""G6 to G8: steering, cancelling, and that both are bounded. The tags name the reported fault behind a case."""

import asyncio
from typing import Any

import pytest

from kernel import Agent, AgentBusyError, Finished, Hooks, KernelConfig, ModelError
from kernel.messages import TextDelta
from kernel.testing import ScriptedModel, SimulatedLoop, call, collect
from tests.kernel.helpers import Act, Stage, play, said, ticks, turns

THREE_TURNS = (["one", call("c1", "act")], ["two", call("c2", "act"), call("c3", "act")], ["done"])


def three_turns(**arguments: Any) -> Stage:
    return Stage(*THREE_TURNS, tools=[Act()], **arguments)


def event_count() -> int:
    """How many events three turns have."""
    stage = three_turns()
    play(stage.run())
    return len(stage.heard.events)


KINDS = {"before": "hook", "context": "hook", "stop": "hook"}


class TestG6Steering:
    def test_steering_in_the_first_turn_joins_the_prompt(self) -> None:
        """What is queued before the first drain point enters with the prompt, as a message of its own."""
        stage = Stage(["done"])

        async def main() -> None:
            stage.agent.steer("left")
            await stage.run()

        play(main())
        assert stage.said == [("user", "Hi"), ("user", "left"), ("assistant", "done")]

    @pytest.mark.parametrize("place", ["tool.started", "tool.ended", "message.ended", "turn.ended"])
    def test_steering_waits_for_the_end_of_the_turn(self, place: str) -> None:
        """An item queued while a turn goes enters after its results, before the next request (PAIR-4, STE-1, STE-4)."""
        stage = three_turns()
        stage.on(place, lambda: stage.agent.steer("left"))
        play(stage.run())
        assert stage.said[:4] == [("user", "Hi"), ("assistant", "one"), ("tool", "ok"), ("user", "left")]

    @pytest.mark.parametrize("place", ["message.ended", "turn.ended", "phase.changed"])
    def test_steering_at_the_last_moment_gets_its_turn(self, place: str) -> None:
        """Steering that comes when the run is about to end is answered before it ends (STE-1)."""
        stage = Stage(["a"], ["b"])
        stage.on(place, lambda: stage.agent.steer("left"), nth=3 if place == "phase.changed" else 1)
        play(stage.run())
        assert stage.said[2:] == [("user", "left"), ("assistant", "b")]

    def test_steering_comes_before_follow_ups(self) -> None:
        """The follow-up waits until nothing steers and nothing is owed (STE-13)."""
        stage = Stage([call("c1", "act")], ["b"], ["c"], tools=[Act()])

        def queue() -> None:
            stage.agent.follow_up("then")
            stage.agent.steer("left")

        stage.on("tool.started", queue)
        play(stage.run())
        assert [text for role, text in stage.said if role == "user"] == ["Hi", "left", "then"]
        assert [event.origin for event in stage.heard.of("message.accepted")] == ["prompt", "steering", "follow_up"]

    def test_a_follow_up_waits_until_nothing_is_owed(self) -> None:
        """A follow-up that comes while tools run enters after the answer that uses their results."""
        stage = three_turns()
        stage.on("tool.started", lambda: stage.agent.follow_up("then"))
        play(stage.run(), left=None)
        assert stage.said[-3:] == [("assistant", "done"), ("user", "then"), ("assistant", "")]

    @pytest.mark.parametrize(("mode", "turns"), [("one", 3), ("all", 2)])
    def test_a_mode_says_how_many_enter_at_once(self, mode: Any, turns: int) -> None:
        """One item enters at a drain point, or all; they are never merged."""
        stage = Stage(["a"], ["b"], ["c"], follow_up_mode=mode, steering_mode=mode)
        stage.on("turn.started", lambda: [stage.agent.follow_up(text) for text in ("one", "two")])
        assert play(stage.run()).turns == turns
        assert [text for role, text in stage.said if role == "user"] == ["Hi", "one", "two"]

    def test_a_cancel_leaves_what_waits_in_its_queue(self) -> None:
        """Queued items survive a cancel and are delivered by `continue_`, once and in order (STE-2, STE-8, I5)."""
        stage = Stage([call("c1", "waits")], ["a"], ["b"])
        stage.agent.configure(tools=[Act("waits", stage.waiting())])

        async def main() -> list[str]:
            run = stage.agent.prompt("Hi")
            await ticks()
            receipts = [stage.agent.steer("one")]
            stage.agent.cancel()
            receipts.append(stage.agent.steer("two"))
            await run
            await stage.agent.continue_()
            return [receipt.status for receipt in receipts]

        assert play(main()) == ["delivered", "delivered"]
        assert [text for role, text in stage.said if role == "user"] == ["Hi", "one", "two"]

    def test_after_the_outcome_is_decided_items_wait(self) -> None:
        """An item that comes while settling stays queued: the last poll is one step with the decision (STE-5, STE-14)."""
        stage = Stage(["a"])
        stage.on("run.finished", lambda: stage.agent.steer("left"))
        play(stage.run())
        assert said(stage.agent.queued.steering) == [("user", "left")]

    def test_what_is_taken_out_is_reported(self) -> None:
        """An item that is unqueued in a run is told as dropped, once (STE-12)."""
        stage = Stage(["a"], ["b"])
        stage.on("turn.started", lambda: stage.agent.unqueue(stage.agent.follow_up("then")))
        play(stage.run())
        assert [said(event.dropped) for event in stage.heard.of("queue.changed")] == [[], [("user", "then")]]


def watched() -> tuple[Stage, list[str]]:
    """A stage on which all of the user's that can be called is, and the names of what was."""
    called: list[str] = []

    def note(name: str) -> Any:
        async def noted(*arguments: Any) -> Any:
            called.append(name)
            await ticks(2)
            return {"context": arguments[0], "summary": "short", "stop": False}.get(name)

        return noted

    async def model(request: Any) -> Any:
        called.append("model")
        async for part in script.stream(request):
            yield part

    hooks = Hooks(
        transform_context=note("context"),
        before_tool_call=note("before"),
        after_tool_result=note("after"),
        should_stop_after_turn=note("stop"),
    )
    script = ScriptedModel([[ModelError("full", overflow=True)], *THREE_TURNS])
    compactor = type("Summary", (), {"summarize": staticmethod(note("summary"))})()
    tools = [Act(body=note("tool"))]
    return Stage(*[model] * 4, hooks=hooks, tools=tools, messages=turns(3), compactor=compactor), called


def called_around_a_cancel(place: int) -> tuple[list[str], list[str]]:
    """What of the user's was called until a cancel at the event number *place*, and what until the end."""
    stage, called = watched()
    until: list[list[str]] = []

    def cancel(event: Any) -> None:
        if event.sequence == place and stage.agent.cancel():
            until.append(list(called))

    stage.agent.subscribe(cancel)
    play(stage.run())
    return (until or [called])[0], called


class TestG7NothingStarts:
    def test_no_request_hook_or_body_starts_after_a_cancel(self) -> None:
        """After a cancel at any event, nothing of the user's is called any more (SIG-10, PAR-10)."""
        for place in range(event_count() - 2):
            called: list[str] = []

            def note(name: str, called: list[str] = called) -> Any:
                return lambda *_: called.append(name)

            hooks = Hooks(
                transform_context=lambda messages, note=note: note("context")() or messages,
                before_tool_call=note("before"),
                after_tool_result=note("after"),
                should_stop_after_turn=note("stop"),
            )
            stage = Stage(*THREE_TURNS, hooks=hooks, tools=[Act(body=note("tool"))])
            at_cancel: list[int] = []

            def cancel(
                event: Any, place: int = place, stage: Stage = stage, at_cancel: Any = at_cancel, called: Any = called
            ):
                if event.sequence == place and stage.agent.cancel():
                    at_cancel.append(len(called) + len(stage.model.requests))

            stage.agent.subscribe(cancel)
            play(stage.run())
            assert not at_cancel or at_cancel == [len(called) + len(stage.model.requests)], place

    def test_a_cancel_between_any_two_steps_of_the_loop(self) -> None:
        """Wherever in the loop's own order the cancel comes, nothing begins after it and the run ends well."""
        kinds = ("model", "context", "before", "tool", "after", "stop", "summary")
        seen: set[str] = set()
        for place in range(200):
            stage, called = watched()
            loop = SimulatedLoop()
            with loop.active():
                run = stage.agent.prompt("Hi")
                for _ in range(place):
                    loop.step()
                before = list(called)
                cancelled = stage.agent.cancel()
                loop.drain()
            assert (run.result and run.result.status) == ("cancelled" if cancelled else "completed")
            assert not cancelled or before == called, place
            stage.keeps_its_word()
            assert (loop.shutdown(), loop.exceptions) == ([], [])
            seen.update(before)
            if not cancelled:
                break
        assert seen == set(kinds)

    def test_who_cancelled_decides_and_not_the_text(self) -> None:
        """A model that says it was cancelled, while nobody did, has failed (SIG-9, STE-8)."""
        assert play(Stage([asyncio.CancelledError("cancelled by user")]).run()).status == "failed"

    def test_a_model_that_swallows_the_cancel_changes_nothing(self) -> None:
        """Cancel wins against a completion that comes after it (SIG-9)."""
        stage = Stage()

        async def swallows(_: Any) -> Any:
            yield TextDelta("a")
            try:
                await stage.gates.wait("never")
            except asyncio.CancelledError:
                yield TextDelta("b")
            yield Finished()

        stage.agent.configure(model=ScriptedModel([swallows]))
        stage.on("message.updated", lambda: stage.agent.cancel("enough"))
        result = play(stage.run())
        assert (result.status, result.reason, said(result.messages)[1:]) == ("cancelled", "enough", [("assistant", "a")])


class TestG8Bounded:
    @pytest.mark.parametrize("kind", ["model", "tool", "before", "context", "listener", "stop", "compactor"])
    def test_whatever_ignores_the_cancel_is_abandoned_in_time(self, kind: str) -> None:
        """A cancel is over after `cancel_grace`, whoever does not listen; the next run works (SIG-4, LAT-6, LAT-8)."""
        stage = Stage(cancel_grace=5)
        deaf = stage.deaf("end")
        first = [deaf] if kind == "model" else [call("c1", "act")]
        hooks = {"before": "before_tool_call", "context": "transform_context", "stop": "should_stop_after_turn"}

        async def listener(event: Any) -> None:
            if kind == "listener" and event.type == "turn.started":
                await deaf()

        async def main() -> float:
            compactor = type("Deaf", (), {"summarize": staticmethod(deaf)})()
            agent = Agent(
                ScriptedModel([[ModelError("full", overflow=True)] if kind == "compactor" else first, ["a"]]),
                tools=[Act(body=deaf if kind == "tool" else "ok")],
                hooks=Hooks(**({hooks[kind]: deaf} if kind in hooks else {})),
                config=KernelConfig(cancel_grace=5),
                messages=turns(3),
                compactor=compactor,
            )
            unsubscribe = agent.subscribe(listener)
            run = agent.prompt("Hi")
            await asyncio.sleep(1)
            start = asyncio.get_running_loop().time()
            assert agent.cancel() is True
            assert (await run).status == "cancelled"
            spent = asyncio.get_running_loop().time() - start
            await ticks()
            assert [work.kind for work in agent.abandoned] == [KINDS.get(kind, kind)]
            stage.gates.open("end")
            await ticks()
            assert agent.abandoned == ()
            unsubscribe()
            if kind not in hooks:
                assert (await agent.prompt("again")).status == "completed"
            return spent

        assert play(main()) == 5

    def test_a_cancel_while_idle_poisons_nothing(self) -> None:
        """`cancel` answers False while idle and the next run completes (SIG-1)."""
        stage = Stage(["a"])
        assert stage.agent.cancel() is False
        assert play(stage.run()).status == "completed"

    def test_what_comes_late_is_discarded_in_the_next_run_too(self) -> None:
        """An abandoned tool's word in the next run is told there in its order and changes nothing (SIG-8, LAT-1)."""
        stage = Stage([call("c1", "deaf")], ["a", lambda: stage.gates.wait("go"), "b"])
        contexts: list[Any] = []

        async def deaf(_: Any, context: Any) -> str:
            contexts.append(context)
            await stage.gates.wait_ignoring_cancel("end")
            return "late"

        stage.agent.configure(tools=[Act("deaf", deaf)])

        async def main() -> None:
            first = stage.agent.prompt("one")
            await ticks()
            stage.agent.cancel()
            await first
            second = stage.agent.prompt("two")
            reader = asyncio.create_task(collect(second))
            await ticks()
            contexts[0].update("still here")
            stage.gates.open("end")
            await ticks()
            stage.gates.open("go")
            events = await reader
            assert [event.sequence for event in events] == list(range(len(events)))
            assert [event.type for event in events].count("update.discarded") == 2

        play(main())
        stage.keeps_its_word()
        assert stage.said[-1] == ("assistant", "ab")

    def test_settling_answers_false_and_keeps_the_outcome(self) -> None:
        """In `settling` a cancel is False, and yet ends a listener that never ends (G8)."""
        stage = Stage(["a"], cancel_grace=5)

        async def listener(event: Any) -> None:
            if event.type == "run.finished":
                await stage.gates.wait("never")

        stage.agent.subscribe(listener)

        async def main() -> str:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(1)
            with pytest.raises(AgentBusyError):
                stage.agent.prompt("again")
            assert (stage.agent.phase, stage.agent.cancel()) == ("settling", False)
            return (await run).status

        assert play(main()) == "completed"
