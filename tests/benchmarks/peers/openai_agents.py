"""The OpenAI Agents SDK: `Runner.run_streamed`, tracing off, no session. Its model speaks in events of the Responses API,
which are made without validation, as the SDK makes them of what it reads.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, final

from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types import responses as api
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from tests.benchmarks.measure import Stopwatch, expect
from tests.benchmarks.peers.common import ENDLESS, Conversation, pieces
from tests.benchmarks.plans import TOOL, Plan, Turn
from tests.benchmarks.sides import Counted, Seen, echo, rest

set_tracing_disabled(True)
ECHO = function_tool(echo)
UNTRACED = RunConfig(tracing_disabled=True)
USAGE = api.ResponseUsage(
    input_tokens=1,
    input_tokens_details=InputTokensDetails.model_construct(cached_tokens=0, cache_write_tokens=0),
    output_tokens=1,
    output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    total_tokens=2,
)


def _response(output: list[Any]) -> Any:
    status, usage = ("completed", USAGE) if output else ("in_progress", None)
    return api.Response.model_construct(
        id="r", created_at=0, model="fake", object="response", output=output, status=status, usage=usage,
        tool_choice="auto", tools=[], parallel_tool_calls=True,
    )  # fmt: skip


async def _events(turn: Turn) -> AsyncIterator[Any]:
    yield api.ResponseCreatedEvent.model_construct(type="response.created", response=_response([]), sequence_number=0)
    output: list[Any] = []
    for place, call in enumerate(turn.calls):
        item = api.ResponseFunctionToolCall.model_construct(
            type="function_call", id=f"fc_{call.id}", call_id=call.id, name=TOOL, arguments=call.arguments,
            status="completed",
        )  # fmt: skip
        here: dict[str, Any] = {"output_index": place, "sequence_number": 0}
        yield api.ResponseOutputItemAddedEvent.model_construct(type="response.output_item.added", item=item, **here)
        yield api.ResponseFunctionCallArgumentsDeltaEvent.model_construct(
            type="response.function_call_arguments.delta", item_id=item.id, delta=call.arguments, **here
        )
        yield api.ResponseFunctionCallArgumentsDoneEvent.model_construct(
            type="response.function_call_arguments.done", item_id=item.id, arguments=call.arguments, name=TOOL, **here
        )
        yield api.ResponseOutputItemDoneEvent.model_construct(type="response.output_item.done", item=item, **here)
        output.append(item)
    if turn.texts:
        async for event in _text(turn, output):
            yield event
    yield api.ResponseCompletedEvent.model_construct(
        type="response.completed", response=_response(output), sequence_number=0
    )


async def _text(turn: Turn, output: list[Any]) -> AsyncIterator[Any]:
    here: dict[str, Any] = {"output_index": 0, "sequence_number": 0}
    there: dict[str, Any] = {**here, "item_id": "m", "content_index": 0}

    def message(content: list[Any], status: Any) -> Any:
        return api.ResponseOutputMessage.model_construct(
            id="m", type="message", role="assistant", content=content, status=status
        )

    def part(text: str) -> Any:
        return api.ResponseOutputText.model_construct(type="output_text", text=text, annotations=[], logprobs=[])

    yield api.ResponseOutputItemAddedEvent.model_construct(
        type="response.output_item.added", item=message([], "in_progress"), **here
    )
    yield api.ResponseContentPartAddedEvent.model_construct(type="response.content_part.added", part=part(""), **there)
    texts: list[str] = []
    async for text in pieces(turn):
        texts.append(text)
        yield _delta(text)
    whole = "".join(texts)
    yield api.ResponseTextDoneEvent.model_construct(
        type="response.output_text.done", text=whole, logprobs=[], **there
    )
    yield api.ResponseContentPartDoneEvent.model_construct(
        type="response.content_part.done", part=part(whole), **there
    )
    output.append(message([part(whole)], "completed"))
    yield api.ResponseOutputItemDoneEvent.model_construct(type="response.output_item.done", item=output[-1], **here)


def _delta(text: str) -> Any:
    """A delta without pydantic's slow `model_construct`: the class of the event is not what is measured."""
    event = api.ResponseTextDeltaEvent.__new__(api.ResponseTextDeltaEvent)
    fields = {
        "type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": text,
        "logprobs": [], "sequence_number": 0,
    }  # fmt: skip
    object.__setattr__(event, "__dict__", fields)
    object.__setattr__(event, "__pydantic_fields_set__", set(fields))
    object.__setattr__(event, "__pydantic_extra__", None)
    object.__setattr__(event, "__pydantic_private__", None)
    return event


class FakeModel(Model):
    """Plays the plan of a conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    async def get_response(self, *arguments: Any, **named: Any) -> Any:
        """Not asked: everything is streamed."""
        raise NotImplementedError

    def stream_response(self, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        """The next turn."""
        return _events(next(self.conversation.turns))


@final
class Peer:
    """The side."""

    def agent(self, plan: Plan) -> Conversation:
        """An agent with its model."""
        conversation = Conversation(plan)
        conversation.agent = Agent(name="fake", model=FakeModel(conversation), tools=[ECHO])
        return conversation

    async def run(self, agent: Conversation, seen: Seen) -> None:
        """Stream its events."""
        await self._read(Runner.run_streamed(agent.agent, "go", run_config=UNTRACED, max_turns=ENDLESS), agent, seen)

    async def _read(self, run: Any, agent: Conversation, seen: Seen) -> None:
        async for event in run.stream_events():
            seen.events += 1
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                seen.text(event.data.delta)
        agent.left = run.to_input_list()

    async def cancel(self, agent: Conversation) -> float:
        """Cancel the run, and read it to its end."""
        run, seen = Runner.run_streamed(agent.agent, "go", run_config=UNTRACED), Seen()
        reader = asyncio.create_task(self._read(run, agent, seen))
        while not seen.deltas:
            await asyncio.sleep(0)
        await rest()
        with Stopwatch() as watch:
            run.cancel()
            await reader
            if run.run_loop_task is not None:
                await asyncio.wait({run.run_loop_task})
        return watch.microseconds

    def counted(self, agent: Conversation) -> Counted:
        """The items that the next request would be made of."""
        items = [(item.get("type", "message"), item) for item in agent.left]
        results = [item["output"] for kind, item in items if kind == "function_call_output"]
        expect(set(results) <= {"ok"}, True, "the results")
        return Counted(
            sum(kind == "message" and item["role"] == "user" for kind, item in items),
            sum(kind == "function_call" for kind, _ in items),
            len(results),
            "".join(part["text"] for part in items[-1][1]["content"]),
        )
