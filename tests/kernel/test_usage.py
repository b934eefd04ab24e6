"""What a run uses: it is told by turn and by run, and `usage_limit` ends the run where it would use more."""

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel import CompactionPolicy, Finished, ModelError, RetryPolicy, StopReason, Usage, UsageLimit
from kernel.profiles import CHAPTER_06, CHECKPOINT_09, DEFAULT, PI_0_85
from kernel.testing import call, say
from tests.kernel.helpers import Act, Stage, play, turns

BUSY = ModelError("busy", retryable=True)
LENGTH = Finished(StopReason.LENGTH)


def limited(*responses: Any, tokens: Any = None, requests: Any = None, tool_calls: Any = None, **arguments: Any) -> Stage:
    limit = UsageLimit(tokens=tokens, requests=requests, tool_calls=tool_calls)
    return Stage(*responses, usage_limit=limit, tools=[Act()], **arguments)


class TestItIsTold:
    def test_of_each_turn_and_of_the_run(self) -> None:
        """A retried response counts into its turn, and every response into the run."""
        stage = Stage(
            ["a", Usage(10, 1), BUSY], [Usage(20, 2, cache_read=5), call("c1", "act")], [Usage(30, 3, reasoning=1), "b"],
            tools=[Act()],
        )  # fmt: skip
        result = play(stage.run())
        first, second = (event.usage for event in stage.heard.of("turn.ended"))
        assert first == Usage(30, 3, cache_read=5)
        assert second == Usage(30, 3, reasoning=1)
        assert result.usage == first + second

    def test_requests_and_calls_are_counted(self) -> None:
        """Retries are requests; calls that were cut off with their response are no calls."""
        cut = [call("c1", "act"), call("c2", "act")]
        stage = Stage([BUSY], [*cut, LENGTH], [call("c3", "act")], ["done"], tools=[Act()])
        result = play(stage.run())
        assert (result.requests, result.tool_calls) == (4, 1)

    def test_of_a_response_that_was_cancelled(self) -> None:
        """What was streamed before the cancel was paid for."""
        stage = Stage([Usage(7, 1), "a", lambda: stage.gates.wait("never")])
        stage.on("message.updated", stage.agent.cancel)
        result = play(stage.run())
        assert result.status == "cancelled"
        assert stage.heard.of("turn.ended")[0].usage == result.usage == Usage(7, 1)


class TestALimit:
    @pytest.mark.parametrize("config", [DEFAULT, CHAPTER_06, CHECKPOINT_09, PI_0_85], ids=["default", "06", "09", "pi"])
    def test_the_run_fails_and_says_which_one(self, config: Any) -> None:
        """In every profile: no further request, all calls answered, nothing lost, and `continue_` has a new budget."""
        stage = Stage(
            [call("c1", "act")], say("done"), tools=[Act()], config=attrs.evolve(config, usage_limit=UsageLimit(requests=1))
        )
        result = play(stage.run())
        assert (result.status, result.failure.code, result.requests) == ("failed", "USAGE_LIMIT", 1)
        assert "usage_limit allows a run 1 request," in result.failure.message
        assert stage.said[:3] == [("user", "Hi"), ("assistant", ""), ("tool", "ok")]
        assert play(_continued(stage)).final_text == "done"
        stage.keeps_its_word()

    def test_an_answer_that_crosses_it_is_kept(self) -> None:
        """A limit stops what comes next: a final answer is an answer, however much it took."""
        result = play(limited(["done", Usage(999, 999)], tokens=10).run())
        assert (result.status, result.final_text) == ("completed", "done")

    def test_a_queued_item_needs_a_request_as_well(self) -> None:
        """What was queued has entered and waits for an answer; the next run gives it."""
        stage = limited(say("one"), say("two"), requests=1)
        stage.agent.follow_up("and?")
        result = play(stage.run())
        assert (result.status, result.failure.code) == ("failed", "USAGE_LIMIT")
        assert play(_continued(stage)).final_text == "two"
        assert [text for role, text in stage.said if role == "user"] == ["Hi", "and?"]

    def test_none_of_too_many_calls_is_executed(self) -> None:
        """A response is carried out whole or not at all; each of its calls is answered."""
        act = Act()
        stage = Stage([call("c1", "act")], [call("c2", "act"), call("c3", "act")], usage_limit=UsageLimit(tool_calls=2))
        stage.agent.configure(tools=[act])
        result = play(stage.run())
        assert (result.failure.code, act.ran, result.tool_calls) == ("USAGE_LIMIT", ["c1"], 3)
        results = [message for message in stage.agent.messages if message.role == "tool"]
        assert [(message.call_id, message.executed) for message in results] == [("c1", True), ("c2", False), ("c3", False)]
        assert "usage_limit" in results[2].text
        stage.keeps_its_word()

    def test_calls_that_were_cut_off_are_not_counted(self) -> None:
        stage = limited([call("c1", "act"), call("c2", "act"), LENGTH], [call("c3", "act")], ["done"], tool_calls=1)
        assert play(stage.run()).status == "completed"

    @pytest.mark.parametrize("attempts", [1, 2])
    def test_a_retry_is_a_request(self, attempts: int) -> None:
        """With none left the failure is the run's, and says why nothing was asked again."""
        stage = limited([BUSY], [BUSY], say("done"), requests=attempts, retry=RetryPolicy(max_attempts=5))
        result = play(stage.run())
        assert (result.status, result.requests) == ("failed", attempts)
        assert result.failure.code == "MODEL_FAILED"
        assert "not asked again: usage_limit allows a run" in result.failure.message

    def test_a_failure_that_would_not_pass_says_nothing_of_it(self) -> None:
        assert play(limited([ModelError("no key")], requests=1).run()).failure.message == "no key"

    def test_an_overflow_is_not_recovered_for_nothing(self) -> None:
        """No summary is made where no request could follow it."""
        stage = limited(
            [ModelError("too long", overflow=True)], requests=1, messages=turns(4),
            compaction=CompactionPolicy(keep_turns=1),
        )  # fmt: skip
        assert play(stage.run()).status == "failed"
        assert "compaction.started" not in stage.types

    def test_a_summary_is_no_request(self) -> None:
        class Brief:
            async def summarize(self, messages: Any) -> str:
                return "short"

        stage = limited(
            [ModelError("too long", overflow=True)], say("done"), requests=2, messages=turns(4), compactor=Brief(),
            compaction=CompactionPolicy(keep_turns=1),
        )  # fmt: skip
        assert play(stage.run()).status == "completed"

    def test_max_turns_is_named_where_it_comes_first(self) -> None:
        stage = limited([call("c1", "act")], requests=1, max_turns=1)
        assert play(stage.run()).status == "max_turns"

    @pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
    @pytest.mark.parametrize("name", ["tokens", "requests", "tool_calls"])
    def test_what_is_no_limit_is_refused(self, name: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=name):
            UsageLimit(**{name: value})


async def _continued(stage: Stage) -> Any:
    return await stage.agent.continue_()


@settings(max_examples=80, deadline=None)
@given(
    script=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.booleans()), max_size=6),
    tokens=st.none() | st.integers(1, 60),
    requests=st.none() | st.integers(1, 8),
    tool_calls=st.none() | st.integers(1, 6),
)
def test_nothing_is_asked_and_nothing_runs_beyond_a_limit(script: Any, tokens: Any, requests: Any, tool_calls: Any):
    """Whatever a model does: requests and executed calls keep their limits, and each request was sent with tokens left."""
    names = iter(range(1000))
    responses = [
        [*(call(f"c{next(names)}", "act") for _ in range(count)), Usage(used), *([BUSY] if fails else [])]
        for count, used, fails in script
    ]
    act = Act()
    limit = UsageLimit(tokens=tokens, requests=requests, tool_calls=tool_calls)
    stage = Stage(*responses, say("done"), tools=[act], usage_limit=limit)
    result = play(stage.run())
    before = sum(used for _, used, _ in script[: result.requests - 1])
    assert tokens is None or before < tokens
    assert requests is None or result.requests <= requests
    assert tool_calls is None or len(act.ran) <= tool_calls
    assert result.status == "completed" or result.failure.code in ("USAGE_LIMIT", "MODEL_FAILED")
    stage.keeps_its_word()
