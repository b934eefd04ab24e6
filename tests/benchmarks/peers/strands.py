"""strands-agents: `Agent.stream_async`. Without a callback handler, and with a conversation manager that forgets nothing
(the default one keeps 40 messages). Its loop calls itself once for each turn, so the limit of recursion is raised.
"""

import logging
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, final

os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.model import Model

from tests.benchmarks.measure import cancel_reader, expect
from tests.benchmarks.peers.common import Conversation, pieces
from tests.benchmarks.plans import TOOL, Plan, Turn
from tests.benchmarks.sides import Counted, Seen, echo

logging.disable(logging.CRITICAL)
sys.setrecursionlimit(200_000)
ECHO = tool(echo)
USAGE = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}


async def _chunks(turn: Turn) -> AsyncIterator[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    for call in turn.calls:
        yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call.id, "name": TOOL}}}}
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call.arguments}}}}
        yield {"contentBlockStop": {}}
    if turn.texts:
        yield {"contentBlockStart": {"start": {}}}
        async for text in pieces(turn):
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
    yield {"messageStop": {"stopReason": "tool_use" if turn.calls else "end_turn"}}
    yield {"metadata": {"usage": USAGE, "metrics": {"latencyMs": 0}}}


class FakeModel(Model):
    """Plays the plan of a conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def update_config(self, **changes: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """What it is called."""
        return {"model_id": "fake"}

    def structured_output(self, *arguments: Any, **named: Any) -> Any:
        """Not asked."""
        raise NotImplementedError

    def stream(self, *arguments: Any, **named: Any) -> AsyncIterator[dict[str, Any]]:
        """The next turn."""
        return _chunks(next(self.conversation.turns))


@final
class Peer:
    """The side."""

    def agent(self, plan: Plan) -> Conversation:
        """An agent with its model."""
        conversation = Conversation(plan)
        conversation.agent = Agent(
            model=FakeModel(conversation), tools=[ECHO], callback_handler=None,
            conversation_manager=NullConversationManager(),
        )  # fmt: skip
        return conversation

    async def run(self, agent: Conversation, seen: Seen) -> None:
        """Stream its events."""
        async for event in agent.agent.stream_async("go"):
            seen.events += 1
            if "data" in event:
                seen.text(event["data"])

    async def cancel(self, agent: Conversation) -> float:
        """Cancel the task that reads: its own `cancel` is seen at the next chunk only, so never by a stuck model."""
        return await cancel_reader(self, agent)

    def counted(self, agent: Conversation) -> Counted:
        """The blocks of its messages."""
        blocks = [(message["role"], block) for message in agent.agent.messages for block in message["content"]]
        results = [block["toolResult"]["content"][0]["text"] for _, block in blocks if "toolResult" in block]
        expect(set(results) <= {"ok"}, True, "the results")
        return Counted(
            sum(role == "user" and "text" in block for role, block in blocks),
            sum("toolUse" in block for _, block in blocks),
            len(results),
            blocks[-1][1]["text"],
        )
