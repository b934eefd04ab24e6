"""What is no ordinary failure: exceptions that are none, and faults of the kernel's own, planted where it decides."""

import asyncio
from typing import Any

import pytest

from kernel import Hooks, ModelError
from kernel.testing import SimulatedLoop, call
from tests.kernel.helpers import Act, Stage, play, turns

HOOKS = {
    "context": "transform_context",
    "convert": "convert_to_llm",
    "before": "before_tool_call",
    "after": "after_tool_result",
    "stop": "should_stop_after_turn",
}



class Fatal(BaseException):
    """Neither an ordinary exception nor a cancellation."""


def fatal(*_: Any) -> None:
    raise Fatal("boom")


class TestFatal:
    def stage(self, place: str) -> Stage:
        """A run in which whatever is called at *place* raises it."""
        return Stage(
            {"request": [Fatal("boom")], "compactor": [ModelError("full", overflow=True)]}.get(place, [call("c1", "act")]),
            ["b"],
            tools=[Act(body=fatal if place == "tool" else "ok")],
            hooks=Hooks(**({HOOKS[place]: fatal} if place in HOOKS else {})),
            messages=turns(3),
            compactor=type("Fatal", (), {"summarize": staticmethod(fatal)})(),
        )

    @pytest.mark.parametrize("place", ["request", "compactor"])
    def test_of_a_model_or_compactor_it_is_the_runs_failure(self, place: str) -> None:
        """What a model or a compactor raises is never taken for a cancellation (TRM-2)."""
        result = play(self.stage(place).run())
        assert (result.status, str(result.error)) == ("failed", "boom")

    @pytest.mark.parametrize("error", [Fatal("boom"), asyncio.CancelledError("boom"), GeneratorExit("boom")], ids=repr)
    @pytest.mark.parametrize("check", ["validate", "resources"])
    def test_of_a_check_of_arguments_it_is_the_calls_error(self, check: str, error: BaseException) -> None:
        """What `validate` or `resources` of a tool raises is the error result of that call, whatever it is."""

        def raises(_: Any) -> Any:
            raise error

        stage = Stage([call("c1", "act")], ["b"], tools=[Act(**{check: raises})])
        assert play(stage.run()).status == "completed"
        assert stage.said[-2] == ("tool", "boom")

    @pytest.mark.parametrize("place", ["tool", "before"])
    def test_of_a_tool_it_is_the_calls_error(self, place: str) -> None:
        """What a tool or its hook raises is the error result of that call (KEEP-5)."""
        stage = self.stage(place)
        assert play(stage.run()).status == "completed"
        assert stage.said[-2] == ("tool", "boom")

    @pytest.mark.parametrize(
        "place", ["context", "convert", "after", "stop"]
    )
    def test_of_a_hook_that_must_not_fail_it_is_told(self, place: str) -> None:
        """What such a hook raises is reported as `hook.failed`, and the run goes on (G15)."""
        stage = self.stage(place)
        assert play(stage.run()).status == "completed"
        assert (HOOKS[place], "boom") in {(event.hook, event.error) for event in stage.heard.of("hook.failed")}

    def test_an_interrupt_in_a_tool_goes_through(self) -> None:
        """KeyboardInterrupt ends the loop, as it should, and leaves a run that ended."""
        stage = Stage([call("c1", "act")], ["b"])

        def interrupts(*_: Any) -> None:
            raise KeyboardInterrupt

        stage.agent.configure(tools=[Act(body=interrupts)])
        with pytest.raises(KeyboardInterrupt):
            stage.agent.run_sync("Hi")
        assert (stage.agent.phase, stage.types.count("run.finished")) == ("idle", 1)
        stage.keeps_its_word()


class Mute(Exception):
    """An exception that fails when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("mute")


class TestMute:
    @pytest.mark.parametrize("place", ["model", "tool", "hook", "listener"])
    def test_an_error_that_can_not_speak_is_named(self, place: str) -> None:
        """An exception whose text can't be had is told by the name of its type."""

        def mute(*_: Any) -> Any:
            raise Mute

        stage = Stage(
            [call("c1", "act")],
            [mute] if place == "model" else ["b"],
            tools=[Act(body=mute if place == "tool" else "ok")],
            hooks=Hooks(after_tool_result=mute if place == "hook" else None),
        )
        if place == "listener":
            stage.on("turn.started", mute)
        result = play(stage.run())
        assert result.status == ("failed" if place == "model" else "completed")
        told = [getattr(event, "error", None) or getattr(event, "text", None) for event in stage.heard.events]
        assert "Mute" in (str(result.error) if place == "model" else told)


class TestBug:
    def planted(self, stage: Stage, trigger: str, times: int) -> None:
        """Have the core raise at this trigger, so many times; it may do so at nothing else."""
        left = [times]

        def raises(state: Any, input: Any, asked: str, decided: Any) -> None:
            if asked == trigger and left[0]:
                left[0] -= 1
                raise RuntimeError("planted")

        stage.agent._shell.core._shadow = raises

    TRIGGERS = ("advance", "projected", "response_started", "response_completed", "call_prepared", "tool_settled",
                "hook_returned")  # fmt: skip

    @pytest.mark.parametrize("trigger", TRIGGERS)
    def test_it_is_the_error_of_the_run(self, trigger: str) -> None:
        """A fault of the kernel's own ends the run as failed with its code, with all its events, and is never raised."""
        hooks = Hooks(should_stop_after_turn=lambda _: False)
        stage = Stage(["a", call("c1", "act")], ["b"], tools=[Act()], hooks=hooks)
        self.planted(stage, trigger, 1)
        result = play(stage.run(), left=None)
        assert (result.status, result.error.code) == ("failed", "AGENT_STATE_FAILED")
        assert "planted" in str(result.error)
        assert stage.agent.phase == "idle"

    @pytest.mark.parametrize(("trigger", "status"), [("settled", "completed"), ("tool_settled", "cancelled")])
    def test_after_the_outcome_the_loop_is_told(self, trigger: str, status: str) -> None:
        """A fault after the outcome was decided can not be the result: the run ends as decided, and the loop is told."""
        stage, loop = Stage([call("c1", "act")], ["b"], tools=[act := Act()]), SimulatedLoop()
        self.planted(stage, trigger, 1)
        if status == "cancelled":
            act.body = stage.waiting()
            stage.on("tool.started", lambda: loop.call_later(1, stage.agent.cancel))

        async def main() -> Any:
            return await stage.agent.prompt("Hi")

        assert loop.run_until_complete(main()).status == status
        loop.shutdown()
        assert [str(context["exception"]) for context in loop.exceptions] == ["planted"]
        assert stage.agent.phase == "idle"

    def test_a_second_one_is_the_end_of_it(self) -> None:
        """When even the way out fails, the run still ends for those who wait, and the loop is told."""
        stage, loop = Stage(["a"]), SimulatedLoop()
        self.planted(stage, "advance", 1)
        planted = stage.agent._shell.core._shadow

        def raises(state: Any, input: Any, asked: str, decided: Any) -> None:
            planted(state, input, asked, decided)
            if asked == "halted":
                raise RuntimeError("again")

        stage.agent._shell.core._shadow = raises

        async def main() -> Any:
            return await stage.agent.prompt("Hi")

        result = loop.run_until_complete(main())
        assert (result.status, result.error.code) == ("failed", "AGENT_STATE_FAILED")
        assert [str(context["exception"]) for context in loop.exceptions] == ["again"]
        assert loop.shutdown() == []
