"""What the documents leave open, decision by decision, in the order in which they are told, under every profile.

Here: cut messages, `continue_`, outcomes, retry. The other parts: `test_decisions_turns.py` (calls that do not run, drain
points), `test_decisions_failures.py` (failing hooks and listeners).
"""

from typing import Any

import attrs
import pytest

from kernel import (
    KernelConfig,
    ModelError,
    NothingToContinueError,
    Reasoning,
    ReasoningDelta,
    RetryPolicy,
    StopReason,
    Text,
    tool,
)
from kernel.profiles import CHAPTER_06, CHECKPOINT_09, DEFAULT, PI_0_85
from kernel.testing import Gates, Recorder, ScriptedModel, call, say
from tests.contracts.pi_world import finish
from tests.contracts.support import (
    Agent,
    Hooks,
    RunResult,
    every_profile,
    on,
    phases,
    read,
    requests,
    roles,
    simulated,
    told,
)

keeping = pytest.mark.parametrize("profile", [DEFAULT, CHAPTER_06, PI_0_85], ids=["default", "chapter_06", "pi"])
both_ends = pytest.mark.parametrize("end", ["cancelled", "failed"])


def _agent(profile: KernelConfig, *answers: Any, hooks: Hooks | None = None, tools: Any = (), **changes: Any) -> Agent:
    config = attrs.evolve(profile, **changes)
    return Agent(ScriptedModel(answers), tools=[read, *tools], hooks=hooks or Hooks(), config=config)


# ---- cut messages ----

THOUGHT = [ReasoningDelta("hm"), "par", call("A", "read")]


async def _cut(profile: KernelConfig, end: str, parts: Any = THOUGHT) -> tuple[Agent, Recorder, RunResult]:
    """A run whose answer was cut after these parts, by a cancel or by a failure."""
    agent = _agent(profile, [*parts, lambda: agent.cancel() if end == "cancelled" else _break_off()], say("b"), retry=None)
    recorder, result = await told(agent)
    assert result.status == end
    return agent, recorder, result


def _break_off() -> None:
    raise ModelError("socket hang up")


@keeping
@both_ends
@simulated
async def test_a_cut_message_keeps_its_text_and_reasoning(profile: KernelConfig, end: str):
    """What had been said and thought stays, marked by its stop reason; its calls do not, and no tool hears of them."""
    agent, recorder, _ = await _cut(profile, end)
    last = agent.messages[-1]
    assert last.content == (Reasoning("hm"), Text("par"))
    assert last.stop is (StopReason.ABORTED if end == "cancelled" else StopReason.ERROR)
    assert recorder.of("tool.started", "tool.ended") == []
    assert [event.kept for event in recorder.of("message.ended")] == [True]


@both_ends
@simulated
async def test_a_cut_message_that_is_discarded_is_told_so(end: str):
    """Under the checkpoint it ends with `kept` false, and the transcript is as it was."""
    agent, recorder, _ = await _cut(CHECKPOINT_09, end)
    assert roles(agent.messages) == ["user:Hi"]
    assert [event.kept for event in recorder.of("message.ended")] == [False]


@every_profile
@both_ends
@simulated
async def test_a_cut_message_is_on_the_result_as_it_was_streamed(profile: KernelConfig, end: str):
    """`partial` has text, reasoning and calls, also where the transcript has none of them."""
    _, _, result = await _cut(profile, end)
    assert result.partial.content == (Reasoning("hm"), Text("par"), call("A", "read"))


@every_profile
@both_ends
@simulated
async def test_a_cut_message_is_never_sent_to_a_model_again(profile: KernelConfig, end: str):
    """Neither the continued run nor the one after it has it in a request."""
    agent, _, _ = await _cut(profile, end)
    await agent.continue_()
    await agent.prompt("more")
    assert requests(agent.state.model)[1:] == [["user:Hi"], ["user:Hi", "assistant:b", "user:more"]]


@pytest.mark.parametrize(
    ("interrupted", "failure", "left"),
    [
        ("keep", "synthesize", ["par"]),
        ("keep", "result_only", ["par"]),
        ("discard", "synthesize", [""]),
        ("discard", "result_only", []),
    ],
)
@simulated
async def test_a_failure_leaves_one_message_at_most(interrupted: Any, failure: Any, left: list[str]):
    """The message that was cut says the failure where it is kept; else the failure's own does, if there is to be one."""
    agent, recorder, _ = await _cut(
        attrs.evolve(DEFAULT, interrupted_message=interrupted, failure_message=failure), "failed"
    )
    assert [message.text for message in agent.messages[1:]] == left
    assert all(message.error == "socket hang up" for message in agent.messages[1:])
    assert [event.message.text for event in recorder.of("message.ended") if event.kept] == left


@every_profile
@simulated
async def test_a_cancel_before_anything_was_said_leaves_no_message(profile: KernelConfig):
    """Nothing is made up."""
    agent, recorder, result = await _cut(profile, "cancelled", [])
    assert (roles(agent.messages), result.partial, recorder.of("message.started")) == (["user:Hi"], None, [])


@every_profile
@both_ends
@simulated
async def test_an_answer_that_had_only_called_leaves_no_empty_message(profile: KernelConfig, end: str):
    """Without its calls nothing is left to keep; a failure leaves what it leaves when nothing had been said."""
    agent, _, result = await _cut(profile, end, [call("A", "read")])
    failure = end == "failed" and profile is not CHECKPOINT_09
    assert roles(agent.messages) == ["user:Hi", *(["assistant:"] if failure else [])]
    assert [each.id for each in result.partial.calls] == ["A"]


@every_profile
@simulated
async def test_a_failure_before_anything_was_said_leaves_what_the_policy_says(profile: KernelConfig):
    """A message without text whose error is the failure's, or nothing."""
    agent, _, result = await _cut(profile, "failed", [])
    made = [(message.content, message.stop, message.error) for message in agent.messages[1:]]
    assert made == ([] if profile is CHECKPOINT_09 else [((), StopReason.ERROR, "socket hang up")])
    assert (result.partial, agent.state.error_message) == (None, "socket hang up")


@every_profile
@simulated
async def test_an_attempt_that_is_retried_closes_its_message_before_the_wait(profile: KernelConfig):
    """It ends with stop reason error and is not kept; then the retry is announced, and a new message begins."""
    agent = _agent(profile, ["par", ModelError("529", retryable=True)], say("a"), retry=RetryPolicy())
    recorder, result = await told(agent)
    ended = [(event.message.text, event.message.stop, event.kept) for event in recorder.of("message.ended")]
    assert ended == [("par", StopReason.ERROR, False), ("a", StopReason.STOP, True)]
    names = recorder.types
    assert names.index("message.ended") < names.index("retry.scheduled") < names.index("retry.ended")
    assert (roles(agent.messages), result.partial) == (["user:Hi", "assistant:a"], None)


# ---- continue_ ----


@every_profile
@both_ends
@simulated
async def test_continue_asks_again_after_a_cut_message(profile: KernelConfig, end: str):
    """The cut message is no tail that blocks, and no user message is made up."""
    agent, _, _ = await _cut(profile, end)
    assert (await agent.continue_()).final_text == "b"
    assert [message.role for message in agent.messages].count("user") == 1


@every_profile
@simulated
async def test_continue_on_an_empty_transcript_is_refused_also_with_steering(profile: KernelConfig):
    """What is queued stays queued."""
    agent = _agent(profile)
    receipt = agent.steer("left")
    with pytest.raises(NothingToContinueError):
        agent.continue_()
    assert (receipt.status, agent.is_running) == ("queued", False)


# ---- outcomes ----


def _nothing(agent: Agent) -> None:
    pass


def _steers(agent: Agent) -> None:
    on(agent, "turn.started", lambda: (agent.steer("1"), agent.steer("2")))  # the first one joins this very turn


def _follows_up(agent: Agent) -> None:
    agent.follow_up("then")


OWED: dict[str, tuple[Any, Any, str]] = {
    "results": ([call("A", "read")], _nothing, "max_turns"),
    "steering": (say("a"), _steers, "max_turns"),
    "a follow-up": (say("a"), _follows_up, "max_turns"),
    "steering after results that need no answer": ([call("A", "finish")], _steers, "max_turns"),
    "nothing": (say("a"), _nothing, "completed"),
    "nothing after results that need no answer": ([call("A", "finish")], _nothing, "completed"),
}


@pytest.mark.parametrize("owed", OWED)
@every_profile
@simulated
async def test_a_run_without_turns_ends_as_max_turns_when_work_is_owed(profile: KernelConfig, owed: str):
    """Unanswered results and queued messages are work; with nothing left to do the last turn completes the run."""
    answer, prepare, status = OWED[owed]
    agent = _agent(profile, answer, say("no"), tools=[finish], max_turns=1)
    prepare(agent)
    queued = len(agent.queued.follow_up)
    _, result = await told(agent)
    assert (result.status, result.turns, result.error) == (status, 1, None)
    assert len(agent.queued.follow_up) == queued
    assert len(agent.queued.steering) == (1 if "steering" in owed else 0)


@every_profile
@simulated
async def test_a_run_whose_tools_all_said_terminate_is_completed(profile: KernelConfig):
    """It is not `stopped`, and the model is not asked for an answer."""
    agent = _agent(profile, [call("A", "finish"), call("B", "finish")], say("no"), tools=[finish])
    _, result = await told(agent)
    assert (result.status, len(agent.state.model.requests)) == ("completed", 1)


@pytest.mark.parametrize("left", [0, 1], ids=["no turn left", "turns left"])
@every_profile
@simulated
async def test_a_run_that_the_hook_ended_is_stopped(profile: KernelConfig, left: int):
    """Also where no turn was left: the hook was asked first. What is queued stays."""
    hooks = Hooks(should_stop_after_turn=lambda state: True)
    agent = _agent(profile, [call("A", "read")], say("no"), hooks=hooks, max_turns=1 + left)
    agent.follow_up("then")
    _, result = await told(agent)
    assert (result.status, len(agent.queued.follow_up), len(agent.state.model.requests)) == ("stopped", 1, 1)


@every_profile
@simulated
async def test_a_run_that_takes_too_long_fails_with_the_deadlines_code(profile: KernelConfig):
    """What was done stays, the call that was going has its result, and the run can be continued."""
    gates = Gates()

    @tool
    async def hang() -> str:
        """Never end."""
        await gates.wait("never")
        return ""

    agent = _agent(profile, [call("A", "read"), call("B", "hang")], say("b"), tools=[hang], run_deadline=7.0)
    _, result = await told(agent)
    assert (result.status, result.error.code) == ("failed", "RUN_DEADLINE")
    assert [(message.call_id, message.is_error) for message in agent.messages if message.role == "tool"] == [
        ("A", False), ("B", True),
    ]  # fmt: skip
    assert (await agent.continue_()).final_text == "b"


# ---- retry ----

FAILING = [ModelError("529", retryable=True)]


def _waits(recorder: Recorder) -> list[float]:
    return [event.delay for event in recorder.of("retry.scheduled")]


@every_profile
@simulated
async def test_a_retry_counts_all_requests_of_the_turn(profile: KernelConfig):
    """Three requests, two waits, and then the failure; the next turn has three again."""
    answers = [*[FAILING] * 2, [call("A", "read")], *[FAILING] * 3, say("never")]
    agent = _agent(profile, *answers, retry=RetryPolicy())
    recorder, result = await told(agent)
    assert (result.status, len(agent.state.model.requests)) == ("failed", 6)
    assert [event.attempt for event in recorder.of("retry.scheduled")] == [1, 2, 1, 2]


@every_profile
@simulated
async def test_a_retry_waits_twice_as_long_each_time_up_to_a_minute(profile: KernelConfig, monkeypatch: pytest.MonkeyPatch):
    """With the dice at their highest the waits are the whole bound, and with half of it half of each."""
    for dice in (1.0, 0.5):
        monkeypatch.setattr("random.random", lambda dice=dice: dice)
        agent = _agent(profile, *[FAILING] * 8, say("a"), retry=RetryPolicy(max_attempts=9))
        recorder, result = await told(agent)
        assert result.status == "completed"
        assert _waits(recorder) == [dice * bound for bound in (1, 2, 4, 8, 16, 32, 60, 60)]


@pytest.mark.parametrize(("asked", "waited"), [(0, 0), (7, 7), (60, 60), (61, 60), (3600, 60), (-1, 0)])
@simulated
async def test_a_retry_heeds_what_the_provider_asked_for(asked: float, waited: float):
    """Its own wait replaces ours, dice and all, and is capped as ours is."""
    agent = _agent(DEFAULT, [ModelError("529", retryable=True, retry_after=asked)], say("a"))
    recorder, _ = await told(agent)
    assert _waits(recorder) == [waited]


@pytest.mark.parametrize("end", ["over", "cancelled"])
@simulated
async def test_a_retry_ends_before_the_request_is_sent(end: str):
    """`retry.ended` comes when the wait is over, and no request has been sent since; or when it is cancelled."""
    agent, asked = _agent(DEFAULT, FAILING, say("a")), []
    on(agent, "retry.ended", lambda: asked.append(len(agent.state.model.requests)))
    if end == "cancelled":
        on(agent, "retry.scheduled", agent.cancel)
    recorder, result = await told(agent)
    assert (asked, result.status) == ([1], "completed" if end == "over" else "cancelled")
    assert recorder.types.count("retry.scheduled") == recorder.types.count("retry.ended") == 1


@pytest.mark.parametrize("end", ["over", "exhausted"])
@simulated
async def test_a_retry_is_no_new_turn(end: str):
    """One turn, however often it was asked, and the phase comes back to it."""
    agent = _agent(DEFAULT, *[FAILING] * (2 if end == "over" else 3), say("a"))
    recorder, result = await told(agent)
    assert (result.turns, recorder.types.count("turn.started")) == (1, 1)
    assert phases(recorder, only="turn retry") == ["turn", "retry", "turn", "retry", "turn"]
