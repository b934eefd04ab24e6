"""The hub: all viewers see one order, whenever they come, however slow they are, and nobody waits for them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel import UserMessage
from kernel.events import Event, MessageEnded, MessageStarted, MessageUpdated, RunStarted, ToolUpdated, TurnEnded
from kernel.messages import AssistantMessage
from kernel.testing import simulate
from kernel.web import hub as module
from kernel.web.hub import BATCH, HISTORY, LONG, RECENT, VIEWERS, Hub, TooManyViewersError
from tests.adapters.streams import random_streams
from tests.adapters.viewer import Viewer


def hub_of(messages: Any = ()) -> Hub:
    return Hub("t", messages, lambda: 1.0)


class Reader:
    """A viewer that reads when it is told to."""

    def __init__(self, hub: Hub, last_id: str | None = None) -> None:
        self._frames = hub.frames(last_id)
        self._hub = hub
        self._coming: asyncio.Task[str] | None = None
        self.viewer = Viewer()

    async def read(self, pieces: int = 1) -> None:
        """Take up to so many pieces, as long as there are any."""
        for _ in range(pieces):
            if self._coming is None:
                self._coming = asyncio.ensure_future(anext(self._frames))
            for _ in range(3):
                await asyncio.sleep(0)
            if not self._coming.done():
                return
            self.viewer.feed(self._coming.result())
            self._coming = None

    async def leave(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})
        await self._frames.aclose()


def run(test: Callable[[], Awaitable[None]]) -> None:
    simulate(test())


def pieces(count: int, run: str = "r") -> list[Event]:
    return [
        RunStarted(run, 0), MessageStarted(run, 1, "assistant"),
        *(MessageUpdated(run, 2 + number, "text", f"{number} ") for number in range(count)),
    ]  # fmt: skip


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(random_streams(), st.data())
def test_whoever_looks_sees_the_same(events: list[Event], data: st.DataObject):
    """One from the beginning, one that comes in the middle, one that lags, and one whose connection breaks now and then.

    And what newcomers see of the runs before is what the first one saw, but for what is not part of the conversation.
    """

    async def main() -> None:
        hub = hub_of()
        first, late, slow = Reader(hub), None, Reader(hub)
        broken = Reader(hub)
        for event in events:
            hub.take(event)
            await first.read(9)
            what = data.draw(st.sampled_from(["", "", "", "come", "read", "break"]))
            if what == "come" and late is None:
                late = Reader(hub)
            elif what == "read":
                await slow.read()
                await broken.read()
            elif what == "break":
                await broken.leave()
                seen, broken = broken.viewer, Reader(hub, broken.viewer.ids[-1] if broken.viewer.ids else None)
                broken.viewer = seen
        readers = [first, slow, broken, late or Reader(hub)]
        for reader in readers:
            await reader.read(999)
        last = events[-1].run_id
        views = [reader.viewer.seen_of_run(last) for reader in readers]
        assert views[1:] == [views[0]] * 3
        viewers = first.viewer, await seen_by_a_newcomer(hub)
        whole, later = ([text for role, text in viewer.texts if role == "user"] for viewer in viewers)
        assert later == whole
        assert hub.viewers == 4
        for reader in readers:
            await reader.leave()
        assert hub.viewers == 0

    run(main)


def test_frames_have_one_order():
    """Two that read at different times have the same ids in the same order."""

    async def main() -> None:
        hub = hub_of()
        one, other = Reader(hub), Reader(hub)
        await one.read(9)
        await other.read(9)
        for event in pieces(50):
            hub.take(event)
            await one.read(9)
        await other.read(99)
        assert one.viewer.ids == other.viewer.ids
        assert one.viewer.types == other.viewer.types
        await one.leave()
        await other.leave()

    run(main)


def test_one_that_never_reads_costs_nothing():
    """The hub keeps what it keeps, and when that one reads after all it is told the whole by a snapshot."""

    async def main() -> None:
        hub = hub_of()
        never = Reader(hub)
        await never.read(2)
        for event in pieces(3 * RECENT):
            hub.take(event)
        assert len(hub._recent) == RECENT
        assert len(hub._log) < 20
        await never.read(999)
        assert never.viewer.snapshots == 2
        assert never.viewer.messages["r:1"][1] == "".join(f"{number} " for number in range(3 * RECENT))
        await never.leave()

    run(main)


def test_one_that_comes_back_goes_on():
    """Nothing is missed and nothing doubled, though a frame was sent while it was away."""

    async def main() -> None:
        hub = hub_of()
        reader = Reader(hub)
        for event in pieces(3):
            hub.take(event)
        await reader.read(99)
        await reader.leave()
        hub.take(MessageUpdated("r", 5, "text", "more"))
        back = Reader(hub, reader.viewer.ids[-1])
        back.viewer = reader.viewer
        await back.read(99)
        assert (back.viewer.messages["r:1"][1], back.viewer.snapshots) == ("0 1 2 more", 1)
        await back.leave()

    run(main)


@pytest.mark.parametrize("last_id", ["", "x", "-", "0-0", "epoch-999", "epoch--1", "epoch-²", "epoch-" + "9" * 50, "\0"])
def test_an_id_of_nobody_begins_anew(last_id: str):
    """Of another server, of a frame that is not there yet, or rubbish."""

    async def main() -> None:
        hub = hub_of()
        hub.take(RunStarted("r", 0))
        reader = Reader(hub, last_id.replace("epoch", hub._epoch))
        await reader.read(99)
        assert reader.viewer.types[:2] == ["MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]
        await reader.leave()

    run(main)


def test_a_newcomer_gets_the_conversation_before_the_run():
    async def main() -> None:
        hub = hub_of([UserMessage("Hi"), AssistantMessage("Ho")])
        for event in pieces(1):
            hub.take(event)
        viewer = await seen_by_a_newcomer(hub)
        assert viewer.texts == [("user", "Hi"), ("assistant", "Ho"), ("assistant", "0 ")]

    run(main)


async def seen_by_a_newcomer(hub: Hub) -> Viewer:
    reader = Reader(hub)
    await reader.read(9999)
    await reader.leave()
    return reader.viewer


def test_a_long_run_is_made_shorter_between_turns():
    """What newcomers get does not grow with the run."""

    async def main() -> None:
        hub = hub_of()
        hub.take(RunStarted("r", 0))
        for turn in range(LONG):
            for event in pieces(1)[1:]:
                hub.take(event)
            hub.take(MessageEnded("r", 0, AssistantMessage("x")))
            hub.take(TurnEnded("r", 0, turn, ()))
            assert len(hub._log) < LONG + 20
        viewer = await seen_by_a_newcomer(hub)
        assert HISTORY <= len([role for role, _ in viewer.texts if role == "assistant"]) < HISTORY + LONG

    run(main)


def test_of_progress_the_newest_is_remembered():
    async def main() -> None:
        hub = hub_of()
        hub.take(RunStarted("r", 0))
        before = len(hub._log)
        for number in range(100):
            hub.take(ToolUpdated("r", number, "c", f"{number} %"))
        assert len(hub._log) == before + 1
        assert hub._log[-1]["value"]["text"] == "99 %"

    run(main)


def test_a_batch_is_bounded():
    """However far a viewer lags, one piece that is sent has a bounded size."""

    async def main() -> None:
        hub = hub_of()
        reader = Reader(hub)
        await reader.read(9)
        for event in pieces(3 * BATCH):
            hub.take(event)
        await reader.read(1)
        assert len(reader.viewer.ids) <= BATCH + 1
        await reader.leave()

    run(main)


def test_silence_is_broken_by_comments():
    """So that nothing between takes the connection for dead; and a viewer that waits is told at once."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        hub = hub_of()
        frames = hub.frames()
        await anext(frames)
        await anext(frames)
        began = loop.time()
        assert await anext(frames) == ": keep-alive\n\n"
        assert loop.time() - began == module.KEEP_ALIVE
        loop.call_later(1.0, hub.take, RunStarted("r", 0))
        assert "RUN_STARTED" in await anext(frames)
        assert loop.time() - began == module.KEEP_ALIVE + 1.0
        await frames.aclose()

    run(main)


def test_a_closed_hub_ends_its_streams():
    async def main() -> None:
        hub = hub_of()
        task = asyncio.ensure_future(_all(hub))
        await asyncio.sleep(1)
        hub.close()
        assert len(await task) == 2

    run(main)


async def _all(hub: Hub) -> list[str]:
    return [text async for text in hub.frames()]


def test_viewers_are_bounded():
    async def main() -> None:
        hub = hub_of()
        readers = [Reader(hub) for _ in range(VIEWERS)]
        for reader in readers:
            await reader.read()
        with pytest.raises(TooManyViewersError):
            await anext(hub.frames())
        await readers[0].leave()
        frames = hub.frames()
        assert await anext(frames)
        await frames.aclose()
        for reader in readers[1:]:
            await reader.leave()
        assert hub.viewers == 0

    run(main)


def test_a_restart_is_a_snapshot_for_all():
    """Of a trace that is played again."""

    async def main() -> None:
        hub = hub_of()
        reader = Reader(hub)
        for event in pieces(5):
            hub.take(event)
        await reader.read(99)
        hub.restart()
        await reader.read(99)
        assert (reader.viewer.texts, reader.viewer.snapshots) == ([], 2)
        hub.take(RunStarted("r2", 0))
        await reader.read(99)
        assert reader.viewer.types[-2:] == ["RUN_STARTED", "STATE_SNAPSHOT"]
        await reader.leave()

    run(main)
