"""langchain on langgraph: the graph of `create_agent`, streamed as messages and updates. No checkpointer."""

import os
from collections.abc import AsyncIterator
from typing import Any, final

os.environ.setdefault("LANGSMITH_TRACING", "false")

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import StructuredTool

from tests.benchmarks.measure import cancel_reader, expect
from tests.benchmarks.peers.common import ENDLESS, Conversation, pieces
from tests.benchmarks.plans import TOOL, Plan, Turn
from tests.benchmarks.sides import Counted, Seen, echo

ECHO = StructuredTool.from_function(coroutine=echo, name=TOOL)


async def _chunks(turn: Turn) -> AsyncIterator[ChatGenerationChunk]:
    for place, call in enumerate(turn.calls):
        asked = {"name": TOOL, "args": call.arguments, "id": call.id, "index": place, "type": "tool_call_chunk"}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[asked]))
    async for text in pieces(turn):
        yield ChatGenerationChunk(message=AIMessageChunk(content=text))


class FakeModel(BaseChatModel):
    """Plays the plan of a conversation."""

    conversation: Any = None

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    def _astream(self, *arguments: Any, **named: Any) -> AsyncIterator[ChatGenerationChunk]:
        return _chunks(next(self.conversation.turns))

    def bind_tools(self, tools: Any, **named: Any) -> Any:
        """Without the schemas, which a fake model needs not."""
        return self.bind(tools=tools)


@final
class Peer:
    """The side."""

    def agent(self, plan: Plan) -> Conversation:
        """A compiled graph with its model."""
        conversation = Conversation(plan)
        conversation.agent = create_agent(FakeModel(conversation=conversation), [ECHO])
        return conversation

    async def run(self, agent: Conversation, seen: Seen) -> None:
        """Stream it, and keep its messages."""
        messages: list[Any] = [HumanMessage("go")]
        stream = agent.agent.astream(
            {"messages": list(messages)}, {"recursion_limit": ENDLESS}, stream_mode=["messages", "updates"]
        )
        async for mode, event in stream:
            seen.events += 1
            if mode == "updates":
                messages += [message for update in event.values() if update for message in update["messages"]]
            elif type(event[0]) is AIMessageChunk and event[0].content:
                seen.text(event[0].content)
        agent.left = messages

    async def cancel(self, agent: Conversation) -> float:
        """Cancel the task that reads."""
        return await cancel_reader(self, agent)

    def counted(self, agent: Conversation) -> Counted:
        """Its messages."""
        results = [message.content for message in agent.left if isinstance(message, ToolMessage)]
        expect(set(results) <= {"ok"}, True, "the results")
        return Counted(
            sum(isinstance(message, HumanMessage) for message in agent.left),
            sum(len(message.tool_calls) for message in agent.left if isinstance(message, AIMessage)),
            len(results),
            agent.left[-1].content,
        )
