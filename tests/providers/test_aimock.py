"""Both adapters on a provider that nobody here wrote: what it takes for the formats, and how it misbehaves."""

import asyncio
from typing import Any

import pytest

from kernel import Agent, AssistantMessage, KernelConfig, tool
from kernel.testing import check_model
from tests.providers.aimock import ERRORS, Aimock
from tests.providers.server import nothing_leaks
from tests.providers.wires import OPENAI, WIRES, Wire

pytestmark = [pytest.mark.aimock, pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)]


@tool
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


def ask(aimock: Aimock, wire: Wire, prompt: str, **config: Any) -> Any:
    with nothing_leaks():
        agent = Agent(wire.make(aimock.url), tools=[add], config=KernelConfig(**{"retry": None} | config))
        return agent.run_sync(prompt)


def test_the_contract(aimock: Aimock, wire: Wire):
    """The public kit finds nothing."""
    asyncio.run(check_model(wire.make(aimock.url), images=True)).unwrap()


def test_text_and_usage(aimock: Aimock, wire: Wire):
    """In Anthropic's format it tells no tokens."""
    result = ask(aimock, wire, "Hi")
    assert (result.status, result.final_text) == ("completed", "Hello from somebody else, in several pieces.")
    assert (result.usage.total > 0) is (wire is OPENAI)


def test_parallel_calls(aimock: Aimock, wire: Wire):
    """It understands the results that we send back, for it answers them."""
    result = ask(aimock, wire, "add")
    assert (result.status, result.final_text, result.tool_calls) == ("completed", "Three and seven.", 2)
    assert [message.text for message in result.messages if message.role == "tool"] == ["3", "7"]


def test_reasoning(aimock: Aimock, wire: Wire):
    answer = ask(aimock, wire, "think").messages[-1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.reasoning, answer.text) == ("Let me think about it.", "I thought.")


@pytest.mark.parametrize(("status", "kind", "text"), ERRORS, ids=[str(status) for status, _, _ in ERRORS])
def test_errors(aimock: Aimock, wire: Wire, status: int, kind: str, text: str):
    failure = ask(aimock, wire, f"fail {status}").failure
    assert text in failure.message
    assert failure.retryable is (status in (429, 500, 529))
    assert failure.overflow is (status == 400)


@pytest.mark.parametrize("rate", ["dropRate", "malformedRate", "disconnectRate", "rateLimitRate"])
def test_chaos(aimock: Aimock, wire: Wire, rate: str):
    """A dropped request, a body that is no JSON, a connection that is destroyed, too many requests: each may pass."""
    aimock.chaos(**{rate: 1.0})
    try:
        failure = ask(aimock, wire, "Hi", stream_idle_timeout=5.0).failure
    finally:
        aimock.chaos()
    assert failure is not None
    assert failure.retryable, failure


def test_a_cancel_in_the_middle(aimock: Aimock, wire: Wire):
    """Ten seconds of words are left, and nothing of them comes."""
    async def main() -> Any:
        agent = Agent(wire.make(aimock.url))
        run = agent.prompt("slowly")
        async for event in run:
            if event.type == "message.updated":
                agent.cancel()
        return await run

    with nothing_leaks():
        result = asyncio.run(main())
    assert result.status == "cancelled"
    assert 0 < len(result.partial.text.split()) < 100
