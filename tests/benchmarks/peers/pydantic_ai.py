"""pydantic-ai: `Agent.iter`, whose nodes are streamed. `run_stream_events` hands events from task to task, and is slower.

The model is a subclass of `Model` that fills a parts manager, as those of providers do.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, final

from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, UsageLimits
from pydantic_ai.messages import TextPart, TextPartDelta, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model, StreamedResponse

from tests.benchmarks.measure import cancel_reader, expect
from tests.benchmarks.peers.common import Conversation, pieces
from tests.benchmarks.plans import TOOL, Plan, Turn
from tests.benchmarks.sides import Counted, Seen, echo

UNLIMITED = UsageLimits(request_limit=None)
NOW = datetime.now(UTC)


@dataclass
class Response(StreamedResponse):
    """One turn of the plan as a stream."""

    turn: Turn = None  # type: ignore[assignment]
    model_name = provider_name = "fake"
    provider_url = None
    timestamp = NOW

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        parts = self._parts_manager
        for place, call in enumerate(self.turn.calls):
            for event in parts.handle_tool_call_delta_events(
                vendor_part_id=place, tool_name=TOOL, args=call.arguments, tool_call_id=call.id
            ):
                yield event
        async for text in pieces(self.turn):
            for event in parts.handle_text_delta(vendor_part_id="content", content=text):
                yield event

    async def close_stream(self) -> None:
        """There is nothing to close."""


class FakeModel(Model):
    """Plays the plan of a conversation."""

    model_name = system = "fake"

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self.conversation = conversation

    async def request(self, *arguments: Any, **named: Any) -> Any:
        """Not asked: everything is streamed."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[Response]:
        """The next turn."""
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        yield Response(model_request_parameters=parameters, turn=next(self.conversation.turns))


@final
class Peer:
    """The side."""

    def agent(self, plan: Plan) -> Conversation:
        """An agent with its model."""
        conversation = Conversation(plan)
        conversation.agent = Agent(FakeModel(conversation), tools=[echo])
        return conversation

    async def run(self, agent: Conversation, seen: Seen) -> None:
        """Stream each node."""
        async with agent.agent.iter("go", usage_limits=UNLIMITED) as run:
            async for node in run:
                if not (Agent.is_model_request_node(node) or Agent.is_call_tools_node(node)):
                    continue
                async with node.stream(run.ctx) as events:
                    async for event in events:
                        seen.events += 1
                        if type(event) is PartDeltaEvent and type(event.delta) is TextPartDelta:
                            seen.text(event.delta.content_delta)
                        elif type(event) is PartStartEvent and type(event.part) is TextPart:
                            seen.text(event.part.content)
        agent.left = run.result.all_messages()

    async def cancel(self, agent: Conversation) -> float:
        """Cancel the task that reads."""
        return await cancel_reader(self, agent)

    def counted(self, agent: Conversation) -> Counted:
        """The parts of its messages."""
        parts = [part for message in agent.left for part in message.parts]
        expect({part.content for part in parts if isinstance(part, ToolReturnPart)} <= {"ok"}, True, "the results")
        return Counted(
            sum(isinstance(part, UserPromptPart) for part in parts),
            sum(isinstance(part, ToolCallPart) for part in parts),
            sum(isinstance(part, ToolReturnPart) for part in parts),
            parts[-1].content,
        )
