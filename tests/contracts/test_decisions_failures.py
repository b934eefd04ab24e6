"""What the documents leave open, third part: hooks that fail, and listeners that do."""

from typing import Any

import attrs
import pytest

from kernel import CompactionPolicy, CustomMessage, KernelConfig, UserMessage
from kernel.profiles import CHAPTER_06, DEFAULT, PI_0_85
from kernel.testing import ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    Event,
    Hooks,
    every_profile,
    heard,
    on,
    passing,
    read,
    requests,
    roles,
    simulated,
    told,
)

failing_runs = pytest.mark.parametrize("profile", [CHAPTER_06, PI_0_85], ids=["chapter_06", "pi"])


def _agent(profile: KernelConfig, *answers: Any, **options: Any) -> Agent:
    own = {name: options.pop(name) for name in ("hooks", "messages", "compactor") if name in options}
    return Agent(ScriptedModel(answers), tools=[read], config=attrs.evolve(profile, **options), **own)


# ---- failing hooks ----

RAN = CustomMessage("command", "ls")


def _shown(messages: Any) -> Any:
    return [UserMessage(f"ran {m.data}") if isinstance(m, CustomMessage) else m for m in messages]


def _led(messages: Any) -> Any:
    return [UserMessage("injected"), *messages]


def _boom(*arguments: Any) -> Any:
    raise RuntimeError("hook boom")


NO_ANSWERS = [None, 5, "text", [None], ["text"], UserMessage("x")]
PROJECTIONS: dict[str, tuple[Any, Any, list[str]]] = {
    "both": (_led, _shown, ["user:injected", "user:ran ls", "user:Hi"]),
    "the first fails": (_boom, _shown, ["user:ran ls", "user:Hi"]),
    "the second fails": (_led, _boom, ["user:injected", "user:Hi"]),
    "both fail": (_boom, _boom, ["user:Hi"]),
}


@pytest.mark.parametrize("name", PROJECTIONS)
@every_profile
@simulated
async def test_each_context_hook_falls_back_to_its_own_input(profile: KernelConfig, name: str):
    """The second gets what the first made, or what the first had been given; what is custom never reaches the model."""
    transform, convert, expected = PROJECTIONS[name]
    hooks = Hooks(transform_context=transform, convert_to_llm=convert)
    agent = _agent(profile, say("a"), hooks=hooks, messages=[RAN])
    recorder, result = await told(agent)
    assert (result.status, requests(agent.state.model)) == ("completed", [expected])
    both = {"transform_context": transform, "convert_to_llm": convert}
    assert [event.hook for event in recorder.of("hook.failed")] == [
        hook for hook, function in both.items() if function is _boom
    ]
    assert agent.messages[0] is RAN


@pytest.mark.parametrize("answer", NO_ANSWERS, ids=repr)
@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@simulated
async def test_a_context_hook_that_returns_no_messages_has_failed(hook: str, answer: Any):
    """What is not a sequence of messages is no context: the input is used, and the failure is told."""
    agent = _agent(DEFAULT, say("a"), hooks=Hooks(**{hook: lambda messages: answer}))
    recorder, result = await told(agent)
    assert (result.status, requests(agent.state.model)) == ("completed", [["user:Hi"]])
    assert [event.hook for event in recorder.of("hook.failed")] == [hook]


# ---- failing listeners ----


def _fails_at(agent: Agent, type: str, *, nth: int = 1) -> None:
    on(agent, type, lambda: _boom(), nth=nth)


@failing_runs
@simulated
async def test_a_listener_that_fails_outside_a_turn_opens_one_more(profile: KernelConfig):
    """The failure's message has a turn of its own, for which `max_turns` need not have room."""
    agent = _agent(profile, say("a"), max_turns=1)
    _fails_at(agent, "turn.ended")
    recorder, result = await told(agent)
    assert (result.status, result.error.code, result.turns) == ("failed", "SUBSCRIBER_FAILED", 2)
    assert [event.turn for event in recorder.of("turn.started")] == [1, 2]
    assert agent.messages[-1].error == "hook boom"


@failing_runs
@simulated
async def test_a_listener_that_fails_at_the_cap_leaves_no_message(profile: KernelConfig):
    """Where the transcript has no room for the failure's message there is none, and no turn for it."""
    agent = _agent(profile, say("a"), message_limit=2)
    _fails_at(agent, "turn.ended")
    _, result = await told(agent)
    assert (result.status, result.turns, str(result.error)) == ("failed", 1, "hook boom")
    assert roles(agent.messages) == ["user:Hi", "assistant:a"]


@failing_runs
@simulated
async def test_a_listener_that_fails_after_a_cancel_does_not_undo_it(profile: KernelConfig):
    """Who cancelled decides the outcome, at each of the events that follow."""
    for nth in (1, 2, 3, 4):
        agent = _agent(profile, say("a"))
        after: list[str] = []

        def listener(event: Event, agent: Agent = agent, after: list[str] = after, nth: int = nth) -> None:
            if event.type == "message.updated":
                agent.cancel("enough")
            elif agent.phase in ("cancelling", "settling"):
                after.append(event.type)
                if len(after) == nth:
                    _boom()

        agent.subscribe(listener)
        _, result = await told(agent)
        assert (result.status, result.reason) == ("cancelled", "enough")
        assert len(agent.subscriber_errors) == 1


@failing_runs
@simulated
async def test_a_listener_that_fails_in_a_turn_has_its_message_there(profile: KernelConfig):
    """No other turn is opened."""
    agent = _agent(profile, ["a", call("A", "read")])
    _fails_at(agent, "tool.started")
    recorder, result = await told(agent)
    assert (result.turns, recorder.types.count("turn.started")) == (1, 1)
    assert roles(agent.messages) == ["user:Hi", "assistant:a", "tool:A", "assistant:"]


@failing_runs
@simulated
async def test_under_result_only_no_turn_is_opened(profile: KernelConfig):
    """The failure is told by the result, and the transcript is as it was."""
    agent = _agent(profile, say("a"), failure_message="result_only")
    _fails_at(agent, "turn.ended")
    recorder, result = await told(agent)
    assert (result.status, result.turns, recorder.types.count("turn.started")) == ("failed", 1, 1)
    assert roles(agent.messages) == ["user:Hi", "assistant:a"]


class _Summaries:
    async def summarize(self, messages: Any) -> str:
        """A short summary."""
        return "S"


@pytest.mark.parametrize("moment", ["run.started", "compaction.started", "compaction.ended"])
@failing_runs
@simulated
async def test_in_a_compaction_by_hand_no_turn_is_opened(profile: KernelConfig, moment: str):
    """Its failure is in the result alone."""
    compaction = CompactionPolicy(keep_turns=1)
    agent = _agent(profile, say("a" * 50), say("b"), compaction=compaction, compactor=_Summaries())
    await agent.prompt("1")
    await agent.prompt("2")
    _fails_at(agent, moment)
    recorder = heard(agent)
    result = await agent.compact()
    assert (result.status, result.error.code) == ("failed", "SUBSCRIBER_FAILED")
    assert recorder.of("turn.started", "message.started") == []
    assert not any(message.role == "assistant" and message.error for message in agent.messages)


@failing_runs
@simulated
async def test_a_prompt_is_announced_although_a_listener_failed_before(profile: KernelConfig):
    """Whoever hears the failure's message has heard the prompt that it answers."""
    agent = _agent(profile, say("a"))
    _fails_at(agent, "run.started")
    recorder, _ = await told(agent)
    said = [event.type for event in recorder.of("turn.started", "message.accepted", "message.ended", "turn.ended")]
    assert said == ["turn.started", "message.accepted", "message.ended", "turn.ended"]
    assert (roles(agent.messages), agent.state.model.requests) == (["user:Hi", "assistant:"], [])


@failing_runs
@simulated
async def test_a_failure_at_hearing_of_a_failure_is_only_recorded(profile: KernelConfig):
    """The run fails once, with the first listener's words, and nobody is told of the second failure."""
    agent = _agent(profile, say("a"))
    _fails_at(agent, "turn.started")
    on(agent, "subscriber.failed", lambda: 1 / 0)
    recorder, result = await told(agent)
    assert (str(result.error), recorder.types.count("subscriber.failed")) == ("hook boom", 1)
    assert [each.event_type for each in agent.subscriber_errors] == ["turn.started", "subscriber.failed"]


@pytest.mark.parametrize("later", [False, True], ids=["at once", "awaited"])
@every_profile
@simulated
async def test_a_failure_at_the_end_is_only_recorded(profile: KernelConfig, later: bool):
    """The outcome stands."""
    agent = _agent(profile, say("a"))

    async def fails_later() -> None:
        await passing(1)
        _boom()

    def listener(event: Event) -> Any:
        if event.type != "run.finished":
            return None
        return fails_later() if later else _boom()

    agent.subscribe(listener)
    _, result = await told(agent)
    await passing(2)
    assert (result.status, agent.state.error_message) == ("completed", None)
    assert [each.event_type for each in agent.subscriber_errors] == ["run.finished"]


@every_profile
@simulated
async def test_subscriber_errors_keep_the_newest_256_and_count_all(profile: KernelConfig):
    """A listener that always fails does not fill the memory, and its failures are counted on."""
    agent = _agent(attrs.evolve(profile, subscriber_failure="record"), [*"abc" * 100])
    agent.subscribe(_boom)
    recorder, _ = await told(agent)
    state = agent.state
    assert (len(agent.subscriber_errors), state.subscriber_error_count) == (256, len(recorder.events))
    assert agent.subscriber_errors[-1].event_type == "run.finished"
    assert agent.subscriber_errors == tuple(state.subscriber_errors)
