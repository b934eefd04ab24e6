"""The local model in front of a server that is not llama.cpp: what it asks, when it starts it, how it lets go."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernel import (
    Agent,
    AssistantMessage,
    CustomMessage,
    KernelConfig,
    Message,
    ModelRequest,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from kernel.messages import Finished, Part, StopReason, TextDelta, Usage
from kernel.models import local
from kernel.models.local import LocalModel
from tests.providers.server import STALL, Answer, Server, nothing_leaks
from tests.providers.wires import OPENAI


class Engine(ModuleType):
    """What stands for xllamacpp: its server has the address of the test's."""

    def __init__(self):
        super().__init__("xllamacpp")
        self.address = ""
        self.starts = 0

    def CommonParams(self) -> Any:
        return SimpleNamespace(model=SimpleNamespace())

    def Server(self, parameters: Any) -> Any:
        self.starts += 1
        assert parameters.hostnames == ["127.0.0.1"]
        return SimpleNamespace(listening_address=self.address)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setitem(sys.modules, "xllamacpp", engine)
    monkeypatch.setattr(local, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=["/weights"]))
    return engine


HELLO = OPENAI.says(("text", "Hel"), ("text", "lö"))


async def ask(model: LocalModel, *messages: Message, system_prompt: str = "") -> list[Part]:
    return [part async for part in model.stream(ModelRequest("r", messages or (UserMessage("Hi"),), system_prompt, ()))]


def test_an_answer_is_read(engine: Engine):
    """As `OpenAIModel` reads it, which asks."""
    with nothing_leaks(), Server(HELLO) as server:
        engine.address = server.url
        parts = asyncio.run(ask(LocalModel(max_tokens=7)))
    assert parts == [TextDelta("Hel"), TextDelta("lö"), Usage(10, 3, cache_read=4, reasoning=1), Finished(StopReason.STOP)]
    assert server.asked[0].body["max_tokens"] == 7
    assert server.asked[0].body["temperature"] == 0.0


def test_the_conversation_is_told_in_three_roles(engine: Engine):
    """Results and summaries are a user's text, custom messages are left out, and roles alternate."""
    conversation = [
        SummaryMessage("S"),
        UserMessage("Q"),
        CustomMessage("ui"),
        AssistantMessage("A"),
        ToolMessage("c1", "one", "1"),
        ToolMessage("c2", "two", "2"),
    ]
    with nothing_leaks(), Server(HELLO) as server:
        engine.address = server.url
        asyncio.run(ask(LocalModel(), *conversation, system_prompt="P"))
    assert server.asked[0].body["messages"] == [
        {"role": "system", "content": "P"},
        {"role": "user", "content": "What was said before, in short:\nS\n\nQ"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "one says:\n1\n\ntwo says:\n2"},
    ]
    assert "tools" not in server.asked[0].body


def test_a_cancelled_request_closes_its_socket(engine: Engine):
    """The server sees at once that nobody listens any more."""
    with nothing_leaks(), Server(Answer([*OPENAI.pieces(("text", "Hel"), end=None), STALL])) as server:
        engine.address = server.url
        agent = Agent(LocalModel())
        agent.subscribe(lambda event: agent.cancel() if event.type == "message.updated" else None)
        assert agent.run_sync("Hi").status == "cancelled"
        assert server.left.wait(60)


def test_a_server_that_is_gone_is_a_failure_that_may_pass(engine: Engine):
    engine.address = "http://127.0.0.1:1"
    failure = Agent(LocalModel(), config=KernelConfig(retry=None)).run_sync("Hi").failure
    assert failure is not None
    assert failure.retryable
    assert "no connection to http://127.0.0.1:1" in failure.message


def test_the_server_starts_once_and_again_after_close(engine: Engine):
    """Requests share one server, also when they come together; after `close` the next one starts another."""

    async def use(model: LocalModel) -> None:
        assert engine.starts == 0
        await asyncio.gather(ask(model), ask(model))
        assert engine.starts == 1
        model.close()
        await ask(model)

    with nothing_leaks(), Server(HELLO) as server:
        engine.address = server.url
        asyncio.run(use(LocalModel()))
    assert engine.starts == 2
