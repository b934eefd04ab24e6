"""Checkpoint 09, part 1: who owns the conversation, what is captured, and what is handed out.

Everything runs under the profile of the checkpoint. The other parts, in its order: `test_checkpoint_09_turns.py`
(boundaries, one sequence), `test_checkpoint_09_listeners.py` (subscribers, cancel), `test_checkpoint_09_limits.py`
(recovery, capacity), `test_checkpoint_09_acceptance.py` (diagram, fragments, acceptance criteria).
"""

from typing import Any

import attrs
import pytest

from kernel import (
    AgentBusyError,
    ModelError,
    NothingToContinueError,
    Text,
    ToolMessage,
    UserMessage,
)
from kernel.profiles import CHECKPOINT_09
from kernel.testing import ScriptedModel, call, say
from tests.contracts.support import (
    Agent,
    on,
    read,
    requests,
    roles,
    simulated,
)


def _agent(model: ScriptedModel, **options: Any) -> Agent:
    return Agent(model, tools=[read], config=CHECKPOINT_09, **options)


# ---- the outcome that is promised ----


@simulated
async def test_the_conversation_is_owned_across_calls():
    """The second prompt's request carries what the first run had added."""
    model = ScriptedModel([say("a"), say("b")])
    agent = _agent(model)
    await agent.prompt("1")
    await agent.prompt("2")
    assert requests(model) == [["user:1"], ["user:1", "assistant:a", "user:2"]]
    assert roles(agent.messages) == ["user:1", "assistant:a", "user:2", "assistant:b"]


def _completes(agent: Agent) -> None:
    pass


def _cancels(agent: Agent) -> None:
    on(agent, "message.updated", agent.cancel)


@pytest.mark.parametrize(
    ("answer", "prepare", "status"),
    [(say("a"), _completes, "completed"), (say("a"), _cancels, "cancelled"), ([ModelError("no")], _completes, "failed")],
    ids=["completion", "cancellation", "failure"],
)
@simulated
async def test_the_agent_returns_to_idle(answer: Any, prepare: Any, status: str):
    """After completion, cancellation and failure alike nobody owns the conversation."""
    agent = _agent(ScriptedModel([answer]))
    prepare(agent)
    result = await agent.prompt("Hi")
    assert (result.status, agent.is_running, agent.phase) == (status, False, "idle")


@pytest.mark.parametrize("status", ["cancelled", "failed"])
@simulated
async def test_queued_work_outlives_a_run_that_did_not_complete(status: str):
    """What was queued and not delivered is still there, for the caller to resume with."""
    agent = _agent(ScriptedModel([["par", ModelError("no")] if status == "failed" else say("par")]))

    def act() -> None:
        agent.steer("left")
        agent.follow_up("then")
        if status == "cancelled":
            agent.cancel()

    on(agent, "message.updated", act)
    assert (await agent.prompt("Hi")).status == status
    assert agent.queued.steering == (UserMessage("left"),)
    assert agent.queued.follow_up == (UserMessage("then"),)


# ---- what is captured at construction ----


@simulated
async def test_replacing_the_models_method_changes_nothing():
    """The agent keeps the method that the model had when it was made."""
    model = ScriptedModel([say("a"), say("b")])
    agent = _agent(model)
    model.stream = ScriptedModel([say("replaced")]).stream
    assert (await agent.prompt("Hi")).final_text == "a"


class _Mutable:
    """A tool whose every field can be changed."""

    def __init__(self) -> None:
        self.name = "echo"
        self.description = "Say it again."
        self.parameters = {"type": "object", "properties": {"text": {"type": "string"}}}

    def execute(self, arguments: dict[str, Any], context: Any) -> str:
        return "original"


def _change_name(given: Any) -> None:
    given.name = "other"


def _change_description(given: Any) -> None:
    given.description = "Other."


def _change_schema(given: Any) -> None:
    given.parameters["properties"]["text"]["type"] = "integer"


def _change_body(given: Any) -> None:
    given.execute = lambda arguments, context: "changed"


@pytest.mark.parametrize("change", [_change_name, _change_description, _change_schema, _change_body])
@simulated
async def test_changing_a_tool_afterwards_changes_nothing(change: Any):
    """Name, description, schema and body are those of the moment when the agent was made."""
    given, model = _Mutable(), ScriptedModel([[call("A", "echo", text="x")], say("b")])
    agent = Agent(model, tools=[given], config=CHECKPOINT_09)
    before = agent.state.tools
    change(given)
    await agent.prompt("Hi")
    assert agent.state.tools == before == model.requests[0].tools
    assert before[0].parameters["properties"]["text"]["type"] == "string"
    assert agent.messages[2] == ToolMessage("A", "echo", "original")


@simulated
async def test_registering_a_tool_later_changes_nothing():
    """A tool that is added to the list that was handed in is unknown to the agent."""
    registry: list[Any] = []
    agent = Agent(ScriptedModel([[call("A", "read")], say("b")]), tools=registry, config=CHECKPOINT_09)
    registry.append(read)
    await agent.prompt("Hi")
    assert agent.state.tools == ()
    assert agent.messages[2].is_error


# ---- prompt and continue ----


@simulated
async def test_prompt_appends_its_message_before_it_returns():
    """One user message is in the conversation at once, and the run owns it."""
    agent = _agent(ScriptedModel([say("a")]))
    run = agent.prompt("Hi")
    assert list(agent.messages) == [UserMessage("Hi")]
    assert agent.is_running
    await run


@simulated
async def test_the_busy_guard_comes_first():
    """A second owner is refused as busy whatever it brings, a message that would be refused anyway included."""
    agent = _agent(ScriptedModel([say("a")]))
    run = agent.prompt("Hi")
    try:
        with pytest.raises(AgentBusyError):
            agent.prompt("")
    finally:
        await run


@simulated
async def test_the_busy_guard_comes_before_the_room():
    """While a run goes, a prompt for which there would be no room either is refused as busy."""
    agent = Agent(ScriptedModel([say("a")]), config=attrs.evolve(CHECKPOINT_09, message_limit=2))
    run = agent.prompt("Hi")
    with pytest.raises(AgentBusyError):
        agent.prompt("more")
    await run


async def _after_a_cancel(model: ScriptedModel) -> Agent:
    agent = _agent(model)
    run = agent.prompt("Hi")
    agent.cancel()
    await run
    return agent


@simulated
async def test_continue_asks_for_an_answer_that_is_owed():
    """With a user message at the end, the model is asked again and nothing is added before its answer."""
    model = ScriptedModel([say("late")])
    agent = await _after_a_cancel(model)
    assert (await agent.continue_()).status == "completed"
    assert roles(agent.messages) == ["user:Hi", "assistant:late"]


@simulated
async def test_continue_takes_queued_steering_first():
    """Steering enters before the answer that is owed and before a follow-up."""
    model = ScriptedModel([say("a"), say("b")])
    agent = await _after_a_cancel(model)
    agent.follow_up("then")
    agent.steer("left")
    await agent.continue_()
    assert requests(model)[0] == ["user:Hi", "user:left"]
    assert requests(model)[1] == ["user:Hi", "user:left", "assistant:a", "user:then"]


@simulated
async def test_continue_from_an_answer_needs_queued_work():
    """With an answer at the end and nothing queued there is nothing to go on with."""
    agent = _agent(ScriptedModel([say("a")]))
    await agent.prompt("Hi")
    with pytest.raises(NothingToContinueError):
        agent.continue_()
    assert (agent.is_running, len(agent.messages)) == (False, 2)


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@simulated
async def test_continue_from_an_answer_takes_queued_work(queue: str):
    """With an answer at the end, a queued message opens the run."""
    agent = _agent(ScriptedModel([say("a"), say("b")]))
    await agent.prompt("Hi")
    getattr(agent, queue)("more")
    assert (await agent.continue_()).status == "completed"
    assert roles(agent.messages) == ["user:Hi", "assistant:a", "user:more", "assistant:b"]


@simulated
async def test_continue_without_a_conversation_is_refused():
    """There is no tail to go on from."""
    with pytest.raises(NothingToContinueError):
        _agent(ScriptedModel()).continue_()


@pytest.mark.parametrize("command", ["prompt", "continue_"])
@pytest.mark.parametrize("moment", ["message.started", "tool.started", "turn.ended", "run.finished"])
@simulated
async def test_a_second_owner_is_refused_at_once(command: str, moment: str):
    """From the first event to the last the call itself raises, and the run does not notice."""
    agent = _agent(ScriptedModel([["a", call("A", "read")], say("b")]))
    refused: list[Any] = []

    def try_it() -> None:
        with pytest.raises(AgentBusyError, match=r"^Agent is already running") as error:
            getattr(agent, command)(*["more"][: command == "prompt"])
        refused.append(error.value.code)

    on(agent, moment, try_it)
    result = await agent.prompt("Hi")
    assert refused == ["AGENT_BUSY"]
    assert (result.status, len(agent.messages)) == ("completed", 4)


@pytest.mark.parametrize("command", ["steer", "follow_up"])
@simulated
async def test_queues_are_open_while_a_run_goes(command: str):
    """What a second prompt is refused for, steering and follow-ups are for."""
    agent = _agent(ScriptedModel([say("a"), say("b")]))
    run = agent.prompt("Hi")
    receipt = getattr(agent, command)("more")
    await run
    assert receipt.status == "delivered"


# ---- the messages that are handed out ----


@simulated
async def test_messages_are_a_new_snapshot_each_time():
    """Two looks are two sequences that are equal, and an old one does not grow."""
    agent = _agent(ScriptedModel([say("a")]))
    before = agent.messages
    assert agent.messages is not before
    assert agent.messages == before
    await agent.prompt("Hi")
    assert (len(before), len(agent.messages)) == (0, 2)


MUTATIONS: dict[str, Any] = {
    "append": lambda messages: messages.append(UserMessage("x")),
    "assign": lambda messages: messages.__setitem__(0, UserMessage("x")),
    "delete": lambda messages: messages.__delitem__(0),
    "role": lambda messages: setattr(messages[0], "role", "system"),
    "content": lambda messages: setattr(messages[0], "content", ()),
    "block": lambda messages: messages[1].content.__setitem__(0, Text("x")),
    "text": lambda messages: setattr(messages[1].content[0], "text", "x"),
    "call": lambda messages: setattr(messages[1].calls[0], "name", "rm"),
    "argument": lambda messages: messages[1].calls[0].arguments.update(path="x"),
    "nested argument": lambda messages: messages[1].calls[0].arguments["deep"]["list"].append(2),
    "result": lambda messages: setattr(messages[2], "is_error", True),
}


@pytest.mark.parametrize("name", MUTATIONS)
@simulated
async def test_messages_are_immutable_however_deep(name: str):
    """Neither the sequence nor a message, a block, a call or an argument in it can be changed."""
    agent = _agent(ScriptedModel([["a", call("A", "read", deep={"list": [1]})], say("b")]))
    await agent.prompt("Hi")
    messages = agent.messages
    with pytest.raises((AttributeError, TypeError)):
        MUTATIONS[name](messages)
    assert agent.messages == messages
