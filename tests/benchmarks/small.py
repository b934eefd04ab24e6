"""The small things that a run does often, alone: telling an event, taking a snapshot, writing and reading a line."""

import asyncio

from kernel import Agent, KernelConfig
from kernel.codec import Codec
from kernel.delivery import Delivery
from kernel.events import Event, MessageEnded, MessageUpdated
from kernel.inputs import ToolSettled
from kernel.jsonl import from_line, to_line
from kernel.listeners import Listeners
from kernel.messages import AssistantMessage, Message, Text, UserMessage
from kernel.run import Run
from kernel.testing import ScriptedModel
from tests.benchmarks.measure import Row, expect
from tests.benchmarks.micro import nanoseconds

ANSWER = AssistantMessage("It is five, as far as I can see.")
DELTA = MessageUpdated("run-1", 7, "text", "five, ")


def conversation(length: int) -> list[Message]:
    """So many messages."""
    return [UserMessage("Two and three?") if place % 2 == 0 else ANSWER for place in range(length)]


def telling_rows(times: int) -> list[Row]:
    """An event to one synchronous listener, and to the consumer of the run."""
    heard: list[Event] = []
    listeners = Listeners()
    listeners.add(heard.append)
    delivery = Delivery(listeners, set(), lambda failure: None, _never, _never, patient=True)
    run = Run("run-1", 4096, lambda reason, run: False, lambda what: None)

    async def read() -> None:
        await anext(run)

    def put() -> None:
        run.put(DELTA)
        run._buffer.clear()

    rows = [
        Row("telling an event to a listener", "ns", nanoseconds(lambda: delivery.tell(DELTA), times)),
        Row("handing an event to the consumer", "ns", nanoseconds(put, times)),
    ]
    run.put(DELTA)
    asyncio.run(read())
    expect(heard[0], DELTA, "what was heard")
    return rows


def _never(*arguments: object) -> asyncio.Future[None]:
    raise AssertionError("nothing is left to itself here")


def snapshot_rows(times: int) -> list[Row]:
    """`agent.state` and `agent.messages`, with a short and with a long conversation."""
    rows = []
    for length in (10, 10_000):
        agent = Agent(ScriptedModel(), messages=conversation(length), config=KernelConfig(message_limit=None))
        expect((len(agent.messages), len(agent.state.messages)), (length, length), "the conversation")
        spread = nanoseconds(lambda agent=agent: agent.state, times)  # type: ignore[misc]
        rows.append(Row(f"a snapshot, {length:,} messages", "ns", spread))
    return rows


def line_rows(times: int) -> list[Row]:
    """An event and an input as lines of JSON, and back."""
    codec = Codec()
    ended = MessageEnded("run-1", 9, ANSWER)
    settled = ToolSettled(3, "call-1", (Text("ok"),))
    line = to_line(codec.dump_input(settled))
    expect(codec.load_event(from_line(to_line(codec.dump_event(ended)))), ended, "the event")
    expect(codec.load_input(from_line(line)), settled, "the input")
    return [
        Row("writing an event as a line", "ns", nanoseconds(lambda: to_line(codec.dump_event(ended)), times)),
        Row("writing an input as a line", "ns", nanoseconds(lambda: to_line(codec.dump_input(settled)), times)),
        Row("reading an input from a line", "ns", nanoseconds(lambda: codec.load_input(from_line(line)), times)),
    ]


def rows(times: int) -> list[Row]:
    """All of them."""
    return [*telling_rows(times), *snapshot_rows(times), *line_rows(max(2, times // 10))]
