"""What a model's stream may be, how it is read, and that it is closed on every way out."""

import asyncio
from typing import Any

import pytest

from kernel import Finished, ModelError, TextDelta
from tests.kernel.helpers import Stage, play, ticks


class Stream:
    """A stream of these lines: a part is given, an exception is raised, a function is awaited. It counts its closings."""

    def __init__(self, *lines: Any, closing: Any = None) -> None:
        self.lines = list(lines)
        self.closing = closing
        self.closed = self.read = 0

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Any:
        self.read += 1
        line = self.lines.pop(0) if self.lines else Finished()
        while callable(line):
            await line()
            line = self.lines.pop(0) if self.lines else Finished()
        if isinstance(line, BaseException):
            raise line
        return line

    async def aclose(self) -> None:
        self.closed += 1
        if self.closing is not None:
            await self.closing()


class Model:
    """A model that answers with what it is given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def stream(self, _: Any) -> Any:
        return self.answer() if callable(self.answer) else self.answer


async def only(part: Any) -> Any:
    """A stream of one part, whatever it is."""
    yield part


def stage_of(answer: Any, **policies: Any) -> Stage:
    stage = Stage(**policies)
    stage.agent.configure(model=Model(answer))
    return stage


class TestWhatItIs:
    def test_it_may_have_to_be_awaited(self) -> None:
        """`stream` may be a coroutine function that gives the iterator."""

        async def later() -> Stream:
            await asyncio.sleep(1)
            return Stream(TextDelta("a"))

        assert play(stage_of(later).run()).final_text == "a"

    def test_it_need_not_be_closable(self) -> None:
        """An iterator without `aclose` will do."""

        class Bare:
            def __aiter__(self) -> "Bare":
                return self

            async def __anext__(self) -> Any:
                return Finished()

        assert play(stage_of(Bare()).run()).status == "completed"

    @pytest.mark.parametrize("answer", [None, 5, "text", [TextDelta("a")]], ids=repr)
    def test_what_can_not_be_read_is_a_failure(self, answer: Any) -> None:
        """A model that gives no stream has failed."""
        result = play(stage_of(answer).run())
        assert (result.status, result.error.code) == ("failed", "MODEL_FAILED")

    @pytest.mark.parametrize(
        ("answer", "advice"),
        [
            ([TextDelta("a")], "write it as `async def` with `yield`"),
            (lambda: only("Hi"), "it yielded 'Hi'; text goes into a TextDelta"),
            (lambda: only(TextDelta), "a class; yield TextDelta(...)"),
            (lambda: only(Finished), "a class; yield Finished(...)"),
            (lambda: only({"text": "Hi"}), "yield TextDelta, ReasoningDelta, ToolCallDelta, ToolCall, Usage and, last"),
            (lambda: only(int), "yield TextDelta, "),
            (lambda: Stream(StopAsyncIteration()), "without a terminal part (Finished)"),
        ],
        ids=["a list", "text", "a part's class", "the end's class", "a dict", "another class", "no end"],
    )
    def test_a_breach_says_what_to_do(self, answer: Any, advice: str) -> None:
        """Who writes a model learns from the error what its stream must yield."""
        result = play(stage_of(answer, retry=None).run())
        assert advice in result.error.args[0]

    def test_one_that_raises_at_once_is_a_failure(self) -> None:
        """An exception of `stream` itself is as good as one of its iterator."""

        def raises() -> Any:
            raise ModelError("no key")

        assert str(play(stage_of(raises).run()).error) == "no key"


class TestClosing:
    @pytest.mark.parametrize(
        ("lines", "status"),
        [
            ((TextDelta("a"),), "completed"),
            ((TextDelta("a"), ValueError("boom")), "failed"),
            ((TextDelta("a"), "no part"), "failed"),
            ((TextDelta("a"), asyncio.Event().wait), "cancelled"),
        ],
        ids=["completed", "raised", "broken", "cancelled"],
    )
    def test_it_is_closed_once_on_every_way_out(self, lines: Any, status: str) -> None:
        """The stream is closed when its response has an end, whichever it is (EXT-10)."""
        stream = Stream(*lines)
        stage = stage_of(stream)
        if status == "cancelled":
            stage.on("message.updated", stage.agent.cancel)
        assert play(stage.run()).status == status
        assert stream.closed == 1

    def test_it_is_closed_before_the_next_request(self) -> None:
        """A failed attempt's stream is closed when the retry begins."""
        streams = [Stream(ModelError("busy", retryable=True)), Stream(TextDelta("a"))]
        given = iter(streams)
        stage = stage_of(lambda: next(given))
        closed: list[int] = []
        stage.on("retry.scheduled", lambda: closed.append(streams[0].closed))
        play(stage.run())
        assert closed == [1]

    @pytest.mark.parametrize("status", ["completed", "cancelled"])
    def test_what_closing_raises_concerns_nobody(self, status: str) -> None:
        """The response has its end before; an exception while closing changes nothing."""

        async def boom() -> None:
            raise RuntimeError("boom")

        stage = stage_of(Stream(TextDelta("a"), *([asyncio.Event().wait] if status == "cancelled" else []), closing=boom))
        if status == "cancelled":
            stage.on("message.updated", stage.agent.cancel)
        assert play(stage.run()).status == status

    def test_a_closing_that_hangs_has_its_time(self) -> None:
        """A stream that hangs while it is closed is left after `stream_idle_timeout`, and its response counts."""
        stage = stage_of(Stream(TextDelta("a"), closing=asyncio.Event().wait), stream_idle_timeout=10)

        async def main() -> tuple[str, float]:
            return (await stage.run()).final_text, asyncio.get_running_loop().time()

        assert play(main()) == ("a", 10)

    def test_a_cancel_in_a_closing_is_bounded(self) -> None:
        """A cancel while the stream is closed ends the run within its grace; the response is not adopted (G7)."""
        stage = stage_of(Stream(TextDelta("a"), closing=asyncio.Event().wait), stream_idle_timeout=None, cancel_grace=5)

        async def main() -> str:
            run = stage.agent.prompt("Hi")
            await asyncio.sleep(100)
            stage.agent.cancel()
            result = await run
            assert asyncio.get_running_loop().time() <= 105
            return result.status

        assert play(main()) == "cancelled"


class TestReading:
    def test_it_is_not_read_ahead_of_the_listeners(self) -> None:
        """While a listener is awaited the stream is at most one part ahead of it (TRM-17, MEM-5)."""
        stream = Stream(*[TextDelta("a")] * 5)
        stage = stage_of(stream)
        read: list[int] = []

        async def slow(event: Any) -> None:
            if event.type == "message.updated":
                await asyncio.sleep(60)
                read.append(stream.read)

        stage.agent.subscribe(slow)
        play(stage.run())
        assert read == [2, 3, 4, 5, 6]

    def test_under_observe_it_is_read_at_once(self) -> None:
        """Where listeners are only observed, they hold nobody up."""
        stream = Stream(*[TextDelta("a")] * 5)
        stage = stage_of(stream, subscribers="observe")

        async def slow(event: Any) -> None:
            await asyncio.sleep(60)

        stage.agent.subscribe(slow)

        async def main() -> float:
            await stage.run()
            took = asyncio.get_running_loop().time()
            await asyncio.sleep(61)
            await ticks()
            return took

        assert play(main()) == 0

    def test_what_comes_after_the_end_is_not_read(self) -> None:
        """The terminal part ends the response, whatever the stream would say then."""
        stream = Stream(TextDelta("a"), Finished(), TextDelta("b"))
        assert play(stage_of(stream).run()).final_text == "a"
        assert stream.read == 2
