"""Checkpoint 09, part 4: every kind of end can be recovered from, and nothing is accepted that could never be answered."""

from typing import Any

import attrs
import pytest

from kernel import (
    AssistantMessage,
    KernelBug,
    KernelConfig,
    MessageLimitError,
    ModelError,
    QueueFullError,
    UserMessage,
)
from kernel.profiles import CHECKPOINT_09
from kernel.testing import ScriptedModel, call, say
from tests.contracts.support import Agent, heard, on, read, requests, roles, simulated, told

QUEUE, MESSAGES = 256, 4096


def _config(**changes: Any) -> KernelConfig:
    return attrs.evolve(CHECKPOINT_09, **changes)


# ---- a later continue recovers ----


@simulated
async def test_recovery_after_a_completion():
    """A queued follow-up is what can be gone on with."""
    agent = Agent(ScriptedModel([say("a"), say("b")]), config=CHECKPOINT_09)
    await agent.prompt("Hi")
    agent.follow_up("then")
    assert (await agent.continue_()).unwrap().final_text == "b"


@simulated
async def test_recovery_after_a_cancellation():
    """The model is asked again for the answer that is owed."""
    model = ScriptedModel([say("par"), say("a")])
    agent = Agent(model, config=CHECKPOINT_09)
    on(agent, "message.updated", agent.cancel)
    assert (await agent.prompt("Hi")).status == "cancelled"
    assert (await agent.continue_()).final_text == "a"
    assert requests(model) == [["user:Hi"], ["user:Hi"]]


@simulated
async def test_recovery_after_a_cancellation_in_the_tools():
    """The model sees what became of its calls, and answers."""
    model = ScriptedModel([[call("A", "read")], say("b")])
    agent = Agent(model, tools=[read], config=CHECKPOINT_09)
    on(agent, "tool.started", agent.cancel)
    assert (await agent.prompt("Hi")).status == "cancelled"
    assert (await agent.continue_()).final_text == "b"
    assert requests(model)[1] == ["user:Hi", "assistant:", "tool:A"]


@simulated
async def test_recovery_after_a_failure():
    """The same request is sent again, and nothing of the failure is in it."""
    model = ScriptedModel([["par", ModelError("529")], say("a")])
    agent = Agent(model, config=CHECKPOINT_09)
    failed = await agent.prompt("Hi")
    assert (failed.status, failed.error.code) == ("failed", "MODEL_FAILED")
    assert (await agent.continue_()).final_text == "a"
    assert requests(model) == [["user:Hi"], ["user:Hi"]]


@simulated
async def test_recovery_after_max_turns():
    """The results that were left without an answer get it, with a whole new count of turns."""
    model = ScriptedModel([[call("A", "read")], [call("B", "read")], say("c")])
    agent = Agent(model, tools=[read], config=_config(max_turns=2))
    assert (await agent.prompt("Hi")).status == "max_turns"
    assert (await agent.continue_()).final_text == "c"


@simulated
async def test_recovery_after_a_capacity_failure():
    """An answer whose results would not fit fails the run with its own code; one that fits is adopted afterwards."""
    agent = Agent(ScriptedModel([[call("A", "read")], say("b")]), tools=[read], config=_config(message_limit=2))
    failed = await agent.prompt("Hi")
    assert (failed.status, failed.error.code) == ("failed", "AGENT_MESSAGE_LIMIT")
    assert roles(agent.messages) == ["user:Hi"]
    assert (await agent.continue_()).status == "completed"
    assert roles(agent.messages) == ["user:Hi", "assistant:b"]


@simulated
async def test_recovery_after_an_internal_failure(monkeypatch: pytest.MonkeyPatch):
    """A fault of the kernel's own ends the run with a code of its own, and the agent works on."""

    def boom() -> float:
        raise RuntimeError("the dice are gone")

    agent = Agent(ScriptedModel([[ModelError("529")], say("a")]), config=CHECKPOINT_09)
    recorder = heard(agent)
    with monkeypatch.context() as patch:
        patch.setattr("random.random", boom)
        failed = await agent.prompt("Hi")
    assert (failed.status, failed.error.code) == ("failed", "AGENT_STATE_FAILED")
    assert isinstance(failed.error, KernelBug)
    assert recorder.types[-1] == "run.finished"
    assert (await agent.continue_()).final_text == "a"


# ---- 256 queued messages ----


@simulated
async def test_the_queues_hold_256_messages():
    """That many are accepted, in both queues together; one more is refused, and nothing changes."""
    agent = Agent(ScriptedModel(), config=CHECKPOINT_09)
    for number in range(QUEUE):
        (agent.steer if number % 2 else agent.follow_up)(str(number))
    before = agent.queued
    for refused in (agent.steer, agent.follow_up):
        with pytest.raises(QueueFullError) as error:
            refused("one too many")
        assert error.value.code == "QUEUE_FULL"
    assert agent.queued == before
    assert (len(before.steering), len(before.follow_up)) == (QUEUE // 2, QUEUE // 2)


@simulated
async def test_the_queues_are_bounded_while_a_run_goes():
    """A listener that queues without end is stopped at the same number."""
    refused: list[Any] = []
    agent = Agent(ScriptedModel([say("a")] * 2), config=_config(max_turns=1))

    def flood() -> None:
        for number in range(QUEUE):
            agent.follow_up(str(number))
        with pytest.raises(QueueFullError) as error:
            agent.steer("one too many")
        refused.append(error.value.code)

    on(agent, "turn.started", flood)
    await agent.prompt("Hi")
    assert refused == ["QUEUE_FULL"]


@simulated
async def test_what_leaves_a_queue_makes_room():
    """After one message was taken back, one more is accepted."""
    agent = Agent(ScriptedModel(), config=_config(queue_limit=1))
    receipt = agent.steer("left")
    assert agent.unqueue(receipt) == UserMessage("left")
    agent.follow_up("then")
    assert agent.queued.follow_up == (UserMessage("then"),)


# ---- 4096 messages, and what is promised of them ----

PAIR = (UserMessage("u"), AssistantMessage("a"))


def _with(free: int, *answers: Any) -> Agent:
    """An agent whose conversation has room for so many messages under the profile's own limit."""
    count = MESSAGES - free
    history = PAIR * (count // 2) if count % 2 == 0 else (*PAIR * (count // 2), UserMessage("u"))
    return Agent(ScriptedModel(answers), tools=[read], messages=history, config=CHECKPOINT_09)


@simulated
async def test_a_conversation_may_have_4096_messages():
    """So many are taken over, and one more is refused."""
    assert len(_with(0).messages) == MESSAGES
    with pytest.raises(MessageLimitError):
        _with(-1)


@simulated
async def test_a_prompt_needs_room_for_its_answer():
    """With two messages left it runs and fills them; with one left it is refused, and nothing changes."""
    agent = _with(2, say("x"))
    assert (await agent.prompt("Hi")).status == "completed"
    assert len(agent.messages) == MESSAGES
    full = _with(1)
    with pytest.raises(MessageLimitError) as error:
        full.prompt("Hi")
    assert error.value.code == "AGENT_MESSAGE_LIMIT"
    assert (len(full.messages), full.is_running) == (MESSAGES - 1, False)


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@simulated
async def test_each_queued_message_has_room_for_its_answer(queue: str):
    """With four messages left two are accepted and the third is refused; both that were accepted get their answers."""
    agent = _with(4, say("1"), say("2"))
    receipts = [getattr(agent, queue)("q1"), getattr(agent, queue)("q2")]
    with pytest.raises(MessageLimitError):
        getattr(agent, queue)("q3")
    assert (await agent.continue_()).status == "completed"
    assert [receipt.status for receipt in receipts] == ["delivered", "delivered"]
    assert len(agent.messages) == MESSAGES


@simulated
async def test_a_prompt_does_not_take_what_is_promised_to_the_queue():
    """The room of a queued message is not there for a prompt."""
    agent = _with(2)
    agent.steer("left")
    with pytest.raises(MessageLimitError):
        agent.prompt("Hi")
    assert agent.queued.steering == (UserMessage("left"),)


WORST = 1 + CHECKPOINT_09.call_limit
"""Messages that an answer which is not known yet may add: itself, and a result for each call that it may have."""


def _try_to_steer_now(agent: Agent) -> list[str]:
    try:
        agent.steer("left")
    except MessageLimitError as error:
        return [error.code]
    return ["accepted"]


def _try_to_steer(agent: Agent, event: str) -> list[str]:
    outcome: list[str] = []
    on(agent, event, lambda: outcome.extend(_try_to_steer_now(agent)))
    return outcome


@pytest.mark.parametrize(("left", "outcome"), [(2, "accepted"), (1, "AGENT_MESSAGE_LIMIT")])
@simulated
async def test_an_answer_that_is_not_known_is_reserved_for_at_its_worst(left: int, outcome: str):
    """While it streams, steering is accepted only if it fits beside the longest answer that is allowed."""
    agent = _with(1 + WORST + left, say("x", "y"), say("z"))
    outcomes = _try_to_steer(agent, "message.updated")
    assert (await agent.prompt("Hi")).status == "completed"
    assert outcomes == [outcome]
    assert len(agent.messages) <= MESSAGES


@pytest.mark.parametrize(("left", "outcome"), [(2, "accepted"), (1, "AGENT_MESSAGE_LIMIT")])
@simulated
async def test_of_open_calls_only_their_results_are_reserved(left: int, outcome: str):
    """When the answer is known, what it still owes is one message for each of its calls."""
    calls = [call("A", "read"), call("B", "read")]
    agent = _with(2 + len(calls) + left, calls, say("x"), say("y"))
    outcomes = _try_to_steer(agent, "tool.started")
    await agent.prompt("Hi")
    assert outcomes == [outcome]
    assert len(agent.messages) <= MESSAGES


@pytest.mark.parametrize(("left", "outcome"), [(2, "accepted"), (1, "AGENT_MESSAGE_LIMIT")])
@simulated
async def test_a_result_that_is_recorded_is_reserved_for_no_more(left: int, outcome: str):
    """In a sequential batch the first result is a message when the second call starts: only the second is owed."""
    calls = [call("A", "read"), call("B", "read")]
    model = ScriptedModel([calls, say("x"), say("y")])
    config = _config(message_limit=1 + 1 + len(calls) + left, tool_execution="sequential")
    agent = Agent(model, tools=[read], config=config)
    outcomes: list[str] = []
    on(agent, "tool.started", lambda: outcomes.extend(_try_to_steer_now(agent)), nth=2)
    await agent.prompt("Hi")
    assert outcomes == [outcome]


@simulated
async def test_an_answer_that_does_not_fit_is_not_adopted():
    """No result is left out to squeeze it in: the run fails, and the conversation stays below its limit and whole."""
    agent = _with(4, [call(name, "read") for name in "ABC"])
    recorder, result = await told(agent)
    assert (result.status, result.error.code) == ("failed", "AGENT_MESSAGE_LIMIT")
    assert len(agent.messages) == MESSAGES - 3
    assert [event.kept for event in recorder.of("message.ended")] == [False]
    assert recorder.of("tool.started") == []


@simulated
async def test_what_was_accepted_is_never_stranded():
    """Messages that were queued at the cap are answered in later runs, however the present one ends."""
    answers = [[call("A", "read"), call("B", "read")], say("x"), say("y")]
    agent = Agent(ScriptedModel(answers), tools=[read], config=_config(message_limit=6))
    agent.follow_up("then")
    agent.steer("left")
    result = await agent.prompt("Hi")
    assert (result.status, result.error.code) == ("failed", "AGENT_MESSAGE_LIMIT")
    assert (await agent.continue_()).status == "completed"
    assert roles(agent.messages) == ["user:Hi", "user:left", "assistant:x", "user:then", "assistant:y"]


@simulated
async def test_an_answer_that_is_owed_already_is_not_reserved_for():
    """The reservation is exactly: two for each queued message, and what the turn at hand may still add. A run that meets
    the cap in spite of it settles with the code of the limit, loses nothing, and the agent is usable after a reset.
    """
    agent = Agent(ScriptedModel([say("par"), say("x"), say("y"), say("z")]), config=_config(message_limit=3))
    on(agent, "message.updated", agent.cancel)
    await agent.prompt("Hi")
    agent.follow_up("then")
    result = await agent.continue_()
    assert (result.status, result.error.code if result.error else None) == ("failed", "AGENT_MESSAGE_LIMIT")
    assert (roles(agent.messages), [message.text for message in agent.queued.follow_up]) == (["user:Hi"], ["then"])
    agent.clear_queues()
    assert (await agent.continue_()).status == "completed"
