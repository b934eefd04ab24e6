"""Retry: what is asked again, when, how often, and what is left of what failed."""

import asyncio
from typing import Any

import pytest

from kernel import Finished, Hooks, ModelError, ModelRequest, RetryPolicy, ToolCallDelta, Usage
from kernel.effects import StartTimer
from kernel.inputs import ResponseFailed, TimerDue
from kernel.models.chunks import error_from
from kernel.testing import CUT_OFF, ScriptedModel, SimulatedLoop, call
from tests.kernel.helpers import Act, Bench, Stage, failure, play, said, ticks

BUSY = ModelError("busy", retryable=True)


def delays(stage: Stage) -> list[float]:
    return [event.delay for event in stage.heard.of("retry.scheduled")]


class TestHowOften:
    @pytest.mark.parametrize(("failures", "status"), [(1, "completed"), (2, "completed"), (3, "failed")])
    def test_attempts_count_all_requests(self, failures: int, status: str) -> None:
        """Three attempts are three requests; a third failure is the run's."""
        stage = Stage(*[[BUSY]] * failures, ["a"])
        result = play(stage.run())
        assert (result.status, len(stage.model.requests)) == (status, min(3, failures + 1))
        assert [event.attempt for event in stage.heard.of("retry.scheduled")] == [1, 2][:failures]

    @pytest.mark.parametrize(("attempts", "requests"), [(1, 1), (2, 2), (5, 5)])
    def test_the_number_is_the_policys(self, attempts: int, requests: int) -> None:
        """`max_attempts` requests are sent, and no more."""
        stage = Stage(*[[BUSY]] * 9, retry=RetryPolicy(max_attempts=attempts))
        play(stage.run())
        assert len(stage.model.requests) == requests

    def test_the_counter_begins_again_after_a_success(self) -> None:
        """Each turn has all its attempts, however many the turns before needed (RET-5)."""
        stage = Stage([BUSY], [BUSY], [call("c1", "act")], [BUSY], [BUSY], ["a"], tools=[Act()])
        assert play(stage.run()).status == "completed"
        assert [event.attempt for event in stage.heard.of("retry.scheduled")] == [1, 2, 1, 2]

    @pytest.mark.parametrize(
        "error",
        [ModelError("no"), ValueError("no"), ModelError("no", overflow=True, retryable=True)],
        ids=["model", "value", "overflow"],
    )
    def test_what_does_not_pass_is_not_retried(self, error: Exception) -> None:
        """Only a failure that says that it may pass is asked again; an overflow never."""
        stage = Stage([error], ["a"], compaction=None)
        assert (play(stage.run()).status, len(stage.model.requests)) == ("failed", 1)

    def test_off_is_off(self) -> None:
        """Without a policy nothing is retried."""
        stage = Stage([BUSY], ["a"], retry=None)
        assert (play(stage.run()).status, stage.types.count("retry.scheduled")) == ("failed", 0)

    @pytest.mark.parametrize("broken", [["par", CUT_OFF], ["par", asyncio.Event().wait]], ids=["cut off", "stalled"])
    def test_a_broken_stream_is_retried(self, broken: Any) -> None:
        """A stream that ends or stalls may pass (RET-2)."""
        stage = Stage(broken, ["a"], stream_idle_timeout=10)
        assert play(stage.run()).final_text == "a"


class TestWhen:
    @pytest.mark.parametrize(("jitter", "expected"), [(0.0, [0, 0, 0]), (0.5, [0.5, 1, 2]), (1.0, [1, 2, 4])])
    def test_the_wait_is_drawn_below_an_exponential_bound(self, jitter: float, expected: list[float]) -> None:
        """The n-th wait is jitter × base × 2ⁿ⁻¹."""
        assert self.waits(jitter, retry=RetryPolicy(max_attempts=4)) == expected

    def test_the_bound_is_capped(self) -> None:
        """No wait is longer than `max_delay`."""
        waits = self.waits(1.0, retry=RetryPolicy(max_attempts=8, base_delay=10, max_delay=60))
        assert waits == [10, 20, 40, 60, 60, 60, 60]

    def test_a_bound_that_no_float_holds_is_the_cap(self) -> None:
        """After a thousand failures and more the wait is still the cap, and nothing breaks."""
        policy = RetryPolicy(max_attempts=1100, base_delay=1.0, max_delay=60)
        assert self.waits(1.0, retry=policy)[-3:] == [60, 60, 60]
        assert set(self.waits(1.0, retry=RetryPolicy(max_attempts=1100, base_delay=0))) == {0}

    @pytest.mark.parametrize(
        ("after", "wait"), [(10**400, 60), (float("inf"), 60), (-5, 0), (-(10**400), 0), (59.5, 59.5), (60.5, 60)]
    )
    def test_whatever_number_a_provider_says_is_heard_and_capped(self, after: float, wait: float) -> None:
        """Times that no clock can wait, for ever and before now are numbers too."""
        stage = Stage([ModelError("busy", retryable=True, retry_after=after)], ["a"])
        assert play(stage.run()).status == "completed"
        assert delays(stage) == [wait]

    @pytest.mark.parametrize(("asked", "wait"), [(0.0, 0), (7.5, 7.5), (60, 60), (61, 60), (-3, 0)])
    def test_a_provider_that_says_when_is_heard(self, asked: float, wait: float) -> None:
        """`retry_after` replaces the drawn wait, capped."""
        assert self.waits(0.5, retry_after=asked, retry=RetryPolicy(max_attempts=2)) == [wait]

    def waits(self, jitter: float, retry_after: float | None = None, **policies: Any) -> list[float]:
        """The waits of a core whose every request fails."""
        bench = Bench(**policies)
        bench.prompt()
        bench.to_request()
        while bench.state.works:
            bench.put(ResponseFailed(bench.work, failure(retryable=True, retry_after=retry_after), jitter))
            if bench.state.leaf != "running.retry":
                break
            bench.put(TimerDue(bench.last(StartTimer).timer))
            bench.advance()
        return [timer.seconds for timer in bench.all(StartTimer)]

    def test_the_shell_draws_and_waits(self) -> None:
        """The delay that is told is the one that is waited, and it is within its bound."""
        stage = Stage([BUSY], [BUSY], ["a"])

        async def main() -> float:
            await stage.run()
            return asyncio.get_running_loop().time()

        assert play(main()) == pytest.approx(sum(delays(stage)))
        assert 0 <= delays(stage)[0] <= 1
        assert 0 <= delays(stage)[1] <= 2


class TestWhatIsLeft:
    def test_a_failed_attempt_closes_its_message_and_leaves_nothing(self) -> None:
        """The attempt's message ends with `error`, not kept, before `retry.scheduled` (RET-1, RET-4)."""
        stage = Stage(["ab", ToolCallDelta(0, "c1", "act", "{ha"), BUSY], ["abc"], tools=[act := Act()])
        result = play(stage.run())
        assert stage.types[3:10] == [
            "message.started", "message.updated", "message.updated", "message.ended", "retry.scheduled", "retry.ended",
            "message.started",
        ]  # fmt: skip
        ended = stage.heard.of("message.ended")[0]
        assert (ended.kept, ended.message.stop, ended.message.error) == (False, "error", "busy")
        assert (stage.said, result.partial, act.ran) == ([("user", "Hi"), ("assistant", "abc")], None, [])

    def test_an_attempt_that_said_nothing_has_no_message(self) -> None:
        """A request that failed at once has no message events."""
        stage = Stage([BUSY], ["a"])
        play(stage.run())
        assert stage.types[3:6] == ["retry.scheduled", "retry.ended", "message.started"]

    def test_after_the_last_attempt_the_partial_answer_is_kept_as_told(self) -> None:
        """The last attempt that failed is the run's failure, with what it had said."""
        stage = Stage(*[["par", BUSY]] * 3)
        result = play(stage.run())
        assert (result.partial.text, result.messages[-1].stop, stage.said[1:]) == ("par", "error", [("assistant", "par")])

    def test_tools_are_not_run_again(self) -> None:
        """Only the request is repeated, never the tools before it (RET-8)."""
        act = Act()
        play(Stage([call("c1", "act")], [BUSY], [BUSY], ["a"], tools=[act]).run())
        assert act.ran == ["c1"]

    def test_every_request_is_paid_for(self) -> None:
        """The run's usage counts the tokens of attempts that failed as well."""
        stage = Stage([Usage(10, 1), "par", BUSY], [Usage(10, 5), "a"])
        assert play(stage.run()).usage == Usage(20, 6)


class TestTheRequest:
    def test_it_is_the_same_under_a_new_number(self) -> None:
        """Content and snapshot are those of the first attempt; the id has the run's next number."""
        stage = Stage([BUSY], ["a"], tools=[Act()])
        result = play(stage.run())
        first, second = stage.model.requests
        assert [request.id for request in (first, second)] == [f"{result.run_id}:1", f"{result.run_id}:2"]
        assert first == ModelRequest(first.id, *(getattr(second, name) for name in FIELDS))

    def test_hooks_are_not_asked_again(self) -> None:
        """The context is projected once for a turn."""
        asked: list[Any] = []
        hooks = Hooks(transform_context=lambda messages: asked.append(messages) or messages)
        play(Stage([BUSY], [BUSY], ["a"], hooks=hooks).run())
        assert len(asked) == 1

    def test_a_new_configuration_waits_for_the_next_turn(self) -> None:
        """What is configured in the backoff does not change the request that is sent again."""
        stage = Stage([BUSY], [call("c1", "act")], ["b"], tools=[Act()])
        stage.on("retry.scheduled", lambda: stage.agent.configure(system_prompt="Be kind."))
        play(stage.run())
        assert [request.system_prompt for request in stage.model.requests] == ["", "", "Be kind."]

    def test_a_new_model_waits_too(self) -> None:
        """A model that is configured in the backoff is asked from the next turn on."""
        stage, other = Stage([BUSY], [call("c1", "act")], tools=[Act()]), ScriptedModel([["b"]])
        stage.on("retry.scheduled", lambda: stage.agent.configure(model=other))
        assert play(stage.run()).final_text == "b"
        assert (len(stage.model.requests), len(other.requests)) == (2, 1)

    def test_steering_waits_for_the_end_of_the_turn(self) -> None:
        """An item that is queued in the backoff does not enter the request that is sent again."""
        stage = Stage([BUSY], ["a"], ["b"])
        stage.on("retry.scheduled", lambda: stage.agent.steer("left"))
        play(stage.run())
        assert stage.said[1:3] == [("assistant", "a"), ("user", "left")]


FIELDS = ("messages", "system_prompt", "tools", "reasoning_effort")


class TestPhaseAndCancel:
    def test_the_phase_is_retry(self) -> None:
        """The agent is in `retry` from the failure until the next request."""
        stage = Stage([BUSY], ["a"])
        play(stage.run())
        assert stage.phases[:3] == ["turn", "retry", "turn"]
        types = [event.type for event in stage.heard.events]
        assert types[4:8] == ["phase.changed", "retry.scheduled", "retry.ended", "phase.changed"]

    def test_a_cancel_ends_the_wait(self) -> None:
        """A cancel in the backoff ends it at once; nothing is asked any more (TRM-9)."""
        stage = Stage([ModelError("busy", retryable=True, retry_after=60)], ["a"])

        async def main() -> tuple[str, float]:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(5)
            assert stage.agent.phase == "retry"
            stage.agent.cancel()
            return (await run).status, asyncio.get_running_loop().time()

        assert play(main()) == ("cancelled", 5)
        assert len(stage.model.requests) == 1
        assert stage.types[-3:] == ["retry.ended", "turn.ended", "run.finished"]
        assert said(stage.agent.messages) == [("user", "Hi")]

    def test_a_cancel_told_at_the_last_moment_wins(self) -> None:
        """A cancel at `retry.ended` comes before the request that it announces (G7)."""
        stage = Stage([BUSY], ["a"])
        stage.on("retry.ended", stage.agent.cancel)
        assert (play(stage.run()).status, len(stage.model.requests)) == ("cancelled", 1)

    def test_the_run_resolves_when_it_is_over(self) -> None:
        """A run that was retried ends when its last turn has (RET-6)."""
        stage = Stage([BUSY], [call("c1", "act")], [Finished()], tools=[Act()])

        async def main() -> None:
            await stage.run()
            assert stage.types[-1] == "run.finished"
            await ticks()

        play(main())


class TestPairs:
    """`retry.scheduled` and `retry.ended` pair on every way out of the wait, which ends at once."""

    def stage(self, **policies: Any) -> Stage:
        return Stage(["par", ModelError("busy", retryable=True, retry_after=60)], ["a"], **policies)

    def check(self, stage: Stage, status: str, requests: int = 1) -> None:
        stage.keeps_its_word()
        pair = [name for name in stage.types if name.startswith("retry.")]
        assert pair == ["retry.scheduled", "retry.ended"]
        (result,) = stage.heard.of("run.finished")
        assert (result.result.status, result.result.partial, len(stage.model.requests)) == (status, None, requests)

    @pytest.mark.parametrize("how", ["cancel", "aclose", "run.cancel"])
    def test_a_command_ends_it(self, how: str) -> None:
        """A cancel and a close in the backoff end it, and no request follows."""
        stage = self.stage()

        async def main() -> float:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(5)
            if how == "aclose":
                await stage.agent.aclose()
            else:
                assert run.cancel() if how == "run.cancel" else stage.agent.cancel()
            await run
            return asyncio.get_running_loop().time()

        assert play(main()) == 5
        self.check(stage, "cancelled")

    def test_a_deadline_ends_it(self) -> None:
        """`run_deadline` in the backoff ends it."""
        stage = self.stage(run_deadline=10)
        play(stage.run())
        self.check(stage, "failed")

    @pytest.mark.parametrize(("event", "requests"), [("phase.changed", 1), ("retry.scheduled", 1), ("retry.ended", 1)])
    def test_a_listener_that_fails_the_run_ends_it(self, event: str, requests: int) -> None:
        """Under `fail_run` a listener's failure ends the wait; one at `retry.ended` comes before the request."""
        stage = self.stage(subscriber_failure="fail_run")

        def fails() -> None:
            raise RuntimeError("listener")

        stage.on(event, fails, nth=2 if event == "phase.changed" else 1)
        play(stage.run())
        self.check(stage, "failed", requests)

    def test_the_end_of_the_loop_ends_it(self) -> None:
        """A loop that is torn down in the backoff leaves a run that ended, with its pair."""
        stage, loop = self.stage(), SimulatedLoop()
        with loop.active():
            stage.agent.prompt("Hi")
            loop.drain()
        assert stage.agent.phase == "retry"
        loop.shutdown()
        self.check(stage, "cancelled")

    def test_a_loop_that_died_ends_it(self) -> None:
        """A run whose loop was closed in the backoff is ended by the next command, with its pair."""
        stage, loop = self.stage(), SimulatedLoop()
        with loop.active():
            stage.agent.prompt("Hi")
            loop.drain()
        loop.close()
        assert stage.agent.cancel() is False
        self.check(stage, "cancelled")

    def test_a_failed_second_attempt_pairs_as_well(self) -> None:
        """When the attempts are exhausted each wait has its end, and only the last attempt's message is kept."""
        stage = Stage(*[["par", BUSY]] * 3)
        assert play(stage.run()).status == "failed"
        assert [name for name in stage.types if name.startswith("retry.")] == ["retry.scheduled", "retry.ended"] * 2
        assert [event.kept for event in stage.heard.of("message.ended")] == [False, False, True]
        assert stage.types.count("turn.started") == 1


QUOTAS = [
    {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "quota"}},
    {"error": {"code": 429, "type": "billing_not_active", "message": "pay first"}},
]


@pytest.mark.parametrize("payload", QUOTAS, ids=["quota", "billing"])
def test_a_quota_that_is_spent_is_not_retried(payload: Any) -> None:
    """Though it comes with the status of a rate limit, it does not pass by waiting."""
    stage = Stage([error_from(payload, 429)], ["a"])
    assert (play(stage.run()).status, len(stage.model.requests)) == ("failed", 1)
