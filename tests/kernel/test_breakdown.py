"""What is no ordinary failure: exceptions that are none, and faults of the kernel's own, planted where it decides."""

from typing import Any

import pytest

from kernel import Hooks, ModelError
from kernel.testing import SimulatedLoop, call
from tests.kernel.helpers import Act, Stage, play, turns

HOOKS = {"context": "transform_context", "before": "before_tool_call", "after": "after_tool_result",
         "stop": "should_stop_after_turn"}  # fmt: skip


class Fatal(BaseException):
    """Neither an ordinary exception nor a cancellation."""


def fatal(*_: Any) -> None:
    raise Fatal("boom")


class TestFatal:
    @pytest.mark.parametrize("place", ["request", "context", "before", "after", "stop", "compactor"])
    def test_whatever_is_raised_is_a_failure(self, place: str) -> None:
        """What a model, hook or compactor raises is never taken for a cancellation (TRM-2)."""
        stage = Stage(
            {"request": [Fatal("boom")], "compactor": [ModelError("full", overflow=True)]}.get(place, [call("c1", "act")]),
            ["b"],
            tools=[Act()],
            hooks=Hooks(**({HOOKS[place]: fatal} if place in HOOKS else {})),
            messages=turns(3),
            compactor=type("Fatal", (), {"summarize": staticmethod(fatal)})(),
        )
        assert play(stage.run()).status != "cancelled"

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

    @pytest.mark.parametrize("trigger", [*TRIGGERS, "settled"])
    def test_it_is_the_error_of_the_run(self, trigger: str) -> None:
        """A fault of the kernel's own ends the run as failed with its code, with all its events, and is never raised."""
        hooks = Hooks(should_stop_after_turn=lambda _: False)
        stage = Stage(["a", call("c1", "act")], ["b"], tools=[Act()], hooks=hooks)
        self.planted(stage, trigger, 1)
        result = play(stage.run(), left=None)
        assert result.status == ("completed" if trigger == "settled" else "failed")
        if trigger != "settled":
            assert (result.error.code, "planted" in str(result.error)) == ("AGENT_STATE_FAILED", True)
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
