"""Both adapters against a server that does everything wrong: each failure is told, none hangs, nothing is left open."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from attrs import frozen

from kernel import Agent, KernelConfig, RetryPolicy, RunResult
from kernel.errors import Failure
from tests.providers.server import CLOSE, DROP, KEEP_ALIVE, STALL, Answer, Server, nothing_leaks, split
from tests.providers.wires import WIRES, Wire

PATIENCE = 0.4
"""Seconds without a part: long for a loopback, short for a test."""


@frozen
class Case:
    """What the server does, and what the failure must be. *words* are in its text."""

    answer: Callable[[Wire], Answer]
    words: str
    retryable: bool = True
    overflow: bool = False
    retry_after: float | None = None
    partial: str | None = None


def status(number: int, name: str, text: str = "no", **headers: str) -> Callable[[Wire], Answer]:
    return lambda wire: wire.fails(number, name, text, **headers)


def streamed(*pieces: Any, then: Any) -> Callable[[Wire], Answer]:
    return lambda wire: Answer([*wire.pieces(*pieces, end=None), *then])


def in_an_hour() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)


SAID = ("text", "Hel")
HALF_A_CALL = ("call", "c1", "read", '{"pa')
CASES = {
    "stall after one delta": Case(streamed(SAID, then=[STALL]), "said nothing for", partial="Hel"),
    "stall before the first": Case(lambda wire: Answer([STALL]), "said nothing for"),
    "stall before the head": Case(lambda wire: Answer(early=STALL), "said nothing for"),
    "keep-alive comments only": Case(lambda wire: Answer([KEEP_ALIVE] * 5 + [STALL]), "said nothing for"),
    "drop after one delta": Case(streamed(SAID, then=[DROP]), "127.0.0.1", partial="Hel"),
    "drop in a tool call": Case(streamed(HALF_A_CALL, then=[DROP]), "127.0.0.1"),
    "close in a tool call": Case(streamed(HALF_A_CALL, then=[CLOSE]), "127.0.0.1"),
    "close before the head": Case(lambda wire: Answer(early=CLOSE), "127.0.0.1"),
    "drop before the head": Case(lambda wire: Answer(early=DROP), "127.0.0.1"),
    "an end without a reason": Case(streamed(SAID, then=[]), "without a terminal part", partial="Hel"),
    "an empty body": Case(lambda wire: Answer(), "without a terminal part"),
    "429 with seconds": Case(status(429, "rate_limit_error", retry_after="7"), "too many requests", retry_after=7.0),
    "429 with milliseconds": Case(status(429, "rate_limit_error", retry_after_ms="250"), "429", retry_after=0.25),
    "429 with a date": Case(
        lambda wire: wire.fails(429, "rate_limit_error", "no", retry_after=in_an_hour()),
        "429", retry_after=3600.0,
    ),
    "429 with nonsense": Case(status(429, "rate_limit_error", retry_after="soon"), "429"),
    "429 that must not be sent again": Case(
        status(429, "rate_limit_error", x_should_retry="false"), "429", retryable=False
    ),
    "a spent quota": Case(status(429, "insufficient_quota"), "nothing left to spend", retryable=False),
    "a wrong key": Case(status(401, "authentication_error", "invalid key"), "check the key", retryable=False),
    "a forbidden model": Case(status(403, "permission_error"), "may not do this", retryable=False),
    "an unknown model": Case(status(404, "not_found_error", "model: m"), "check the model's name", retryable=False),
    "a conflict": Case(status(409, "conflict_error"), "409"),
    "a timeout": Case(status(408, "timeout_error"), "408"),
    "a server error": Case(status(500, "api_error", "oops"), "oops"),
    "an overload": Case(status(529, "overloaded_error"), "overloaded"),
    "200 with an overload": Case(lambda wire: Answer([wire.broken("overloaded_error", "busy")]), "overloaded"),
    "an overload in the middle": Case(
        lambda wire: Answer([*wire.pieces(SAID, end=None), wire.broken("overloaded_error", "busy")]), "overloaded",
        partial="Hel",
    ),
    "an overflow by its text": Case(
        status(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "too long", retryable=False,
        overflow=True,
    ),
    "an overflow by its name": Case(
        status(400, "context_length_exceeded"), "does not fit", retryable=False, overflow=True
    ),
    "an overflow in the stream": Case(
        lambda wire: Answer([wire.broken("invalid_request_error", "prompt is too long")]), "too long", retryable=False,
        overflow=True,
    ),
    "a bad request": Case(status(400, "invalid_request_error", "bad tools"), "bad tools", retryable=False),
    "an unprocessable one": Case(status(422, "invalid_request_error"), "422", retryable=False),
    "a page of a proxy": Case(
        lambda wire: Answer([b"<html><head><title>x</title></head><body><h1>502 Bad Gateway</h1></body></html>"], 502,
                            content_type="text/html"),
        "502 Bad Gateway",
    ),
    "an error that is text": Case(lambda wire: Answer([b"down"], 503, content_type="text/plain"), "down"),
    "JSON in place of a stream": Case(
        lambda wire: Answer([b'{"choices": [{"message": {}}]}'], content_type="application/json; charset=utf-8"),
        "answered with application/json and not with a stream",
    ),
    "a page in place of a stream": Case(
        lambda wire: Answer([b"<html>Log in!</html>"], content_type="text/html"), "text/html"
    ),
    "a key that is repeated": Case(
        status(401, "authentication_error", "Incorrect API key provided: sk-very-secret"), "provided: [the key]",
        retryable=False,
    ),
    "a key that is repeated in the stream": Case(
        lambda wire: Answer([wire.broken("authentication_error", "Who is sk-very-secret?")]), "Who is [the key]?",
        retryable=False,
    ),
    "a refusal": Case(lambda wire: wire.says(SAID, end="refusal"), "content filter", retryable=False, partial="Hel"),
    "a line that is no JSON": Case(
        streamed(SAID, then=[b'event: content_block_delta\ndata: {"type\n\n']), "can't be read", partial="Hel"
    ),
    "bytes that are no text": Case(streamed(SAID, then=[b"data: \xff\xfe\n\n"]), "127.0.0.1", partial="Hel"),
}  # fmt: skip


def ask(wire: Wire, *answers: Answer, **config: Any) -> tuple[RunResult, Server]:
    """The result of a run of one prompt, and the server that it asked."""
    with nothing_leaks(), Server(*answers) as server:
        agent = Agent(
            wire.make(server.url), config=KernelConfig(**{"retry": None, "stream_idle_timeout": PATIENCE} | config)
        )
        result = agent.run_sync("Hi")
        assert agent.abandoned == ()
    return result, server


def failed(result: RunResult) -> Failure:
    assert result.status == "failed"
    assert result.failure is not None
    return result.failure


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("name", CASES)
def test_a_failure_is_told(name: str, wire: Wire):
    """By its row: whether it may pass, when, whether the context was too long, and in words; what was said is kept."""
    case = CASES[name]
    result, server = ask(wire, case.answer(wire))
    failure = failed(result)
    assert case.words in failure.message
    assert (failure.retryable, failure.overflow) == (case.retryable, case.overflow)
    assert "sk-very-secret" not in failure.message
    assert "Traceback" not in failure.message
    assert (result.partial.text if result.partial else None) == case.partial or case.partial is None
    assert len(server.asked) == 1, "the SDK asked again by itself"
    if case.retry_after is None:
        assert failure.retry_after is None
    else:
        assert failure.retry_after == pytest.approx(case.retry_after, abs=60)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.retryable])
def test_what_passes_is_sent_again_by_the_kernel(name: str, wire: Wire):
    """With its own events, and without the half of an answer."""
    events: list[str] = []
    with nothing_leaks(), Server(CASES[name].answer(wire), wire.says(("text", "Hello."))) as server:
        config = KernelConfig(retry=RetryPolicy(base_delay=0.0, max_delay=0.0), stream_idle_timeout=PATIENCE)
        agent = Agent(wire.make(server.url), config=config)
        agent.subscribe(lambda event: events.append(event.type))
        result = agent.run_sync("Hi")
    assert (result.status, result.final_text, len(server.asked)) == ("completed", "Hello.", 2)
    assert events.count("retry.scheduled") == 1
    assert server.asked[0].body == server.asked[1].body
    assert [message.role for message in agent.messages] == ["user", "assistant"]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_an_answer_that_is_over_is_an_answer(wire: Wire):
    """Though the server does not end its stream, and says no more: nothing is missing, and nobody waits for long."""
    for more in ([STALL], [KEEP_ALIVE, STALL], [DROP], [CLOSE]):
        result, _ = ask(wire, Answer([*wire.pieces(("text", "Hello.")), *more]), stream_idle_timeout=30.0)
        assert (result.status, result.final_text) == ("completed", "Hello.")


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_pieces_may_be_cut_anywhere(size: int, wire: Wire):
    """Through lines, events and characters: the text is what was sent."""
    result, _ = ask(wire, Answer(split(wire.pieces(("text", "Grüße, 世界 🌍")), size)))
    assert result.final_text == "Grüße, 世界 🌍"


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_a_huge_piece_arrives(wire: Wire):
    """A line of a megabyte."""
    result, _ = ask(wire, wire.says(("text", "x" * 10**6)))
    assert len(result.final_text) == 10**6


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_a_cancel_closes_the_connection(wire: Wire):
    """While the answer streams, and before it has begun: the server sees it before the run has ended."""
    for steps in ([*wire.pieces(SAID, end=None), STALL], None):
        answer = Answer(early=STALL) if steps is None else Answer(steps)
        with nothing_leaks(), Server(answer) as server:
            agent = Agent(wire.make(server.url), config=KernelConfig(stream_idle_timeout=None))

            async def main(agent: Agent = agent, server: Server = server, early: bool = steps is None) -> RunResult:
                run = agent.prompt("Hi")
                if early:
                    while not server.asked:
                        await asyncio.sleep(0)
                else:
                    async for event in run:
                        if event.type == "message.updated":
                            break
                agent.cancel("enough")
                result = await run
                # The socket was closed by us; that the other side has read this is its own affair, so it is waited for.
                assert await asyncio.to_thread(server.left.wait, 60)
                return result

            assert asyncio.run(main()).status == "cancelled"
