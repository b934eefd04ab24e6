"""One ordered stream for any number of viewers, at a cost that no viewer can raise.

The hub keeps the newest frames, numbered without a gap. A viewer is a place in them: it holds nothing, and nobody waits
for it. One that comes new, or that fell so far behind that its place is gone, gets a *snapshot*: the conversation as it was
when the current run began (or when the run was last made shorter, between two turns), the state then, and what the run has
said since, with pieces of one message put together. Then it goes on with the frames. So all viewers see the same order, one
that is slow catches up by snapshots, and one that has lost its connection goes on where it was.
"""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, Final, final

from kernel.adapters.agui import Projection
from kernel.adapters.agui_messages import snapshot_of
from kernel.events import Event, MessageAccepted, MessageEnded, RunStarted, ToolUpdated, TurnEnded
from kernel.messages import Message

RECENT: Final = 4096
"""Frames that are kept for viewers that lag, or come back: some minutes of a fast model, less than a megabyte."""
LONG: Final = 8192
"""What a run may have said before it is made shorter at the end of a turn."""
BATCH: Final = 256
"""Frames that are sent in one piece."""
KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which a comment is sent, so that nothing between takes the connection for dead."""
VIEWERS: Final = 256
HISTORY: Final = 1000
"""Messages of the conversation that newcomers get: more than anyone reads."""
_CONTENT: Final = ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT")

Said = dict[str, Any]


class TooManyViewersError(RuntimeError):
    """As many watch already as may."""


@final
class Hub:
    """The stream of one thread. *history* is the conversation that it begins with, *now* gives seconds since 1970.

    What is said is kept as the events tell it. The agent's own transcript is ahead of them: when listeners hear that a run
    has begun, its first message is in it already.
    """

    def __init__(self, thread: str, history: Iterable[Message], now: Callable[[], float]) -> None:
        self._thread = thread
        self._history: deque[Message] = deque(history, HISTORY)
        self._now = now
        self._project = Projection(thread)
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._recent: deque[tuple[int, str]] = deque(maxlen=RECENT)
        self._run = 0
        self._waiting: set[asyncio.Event] = set()
        self._closed = False
        self._rebase()

    @property
    def viewers(self) -> int:
        """How many watch."""
        return len(self._waiting)

    def take(self, event: Event, at: float | None = None) -> None:
        """A listener: tell the viewers of *event*."""
        if isinstance(event, RunStarted):
            self._rebase()
        elif isinstance(event, MessageAccepted) or (isinstance(event, MessageEnded) and event.kept):
            self._history.append(event.message)
        at = self._now() if at is None else at
        self.put(made.model_dump(by_alias=True, mode="json") for made in self._project(event, at))
        if isinstance(event, TurnEnded) and len(self._log) > LONG:
            self._rebase()
        elif isinstance(event, ToolUpdated):
            self._forget_older_update()

    def put(self, said: Iterable[Said]) -> None:
        """Tell the viewers of these AG-UI events."""
        for each in said:
            self._number += 1
            self._recent.append((self._number, f"id: {self._id()}\ndata: {json.dumps(each)}\n\n"))
            self._remember(each)
        for waiting in self._waiting:
            waiting.set()

    def restart(self) -> None:
        """Begin anew, as if nothing had been said; each viewer gets a snapshot."""
        self._project = Projection(self._thread)
        self._history.clear()
        self._rebase()
        self._recent.clear()
        self._number += 1  # nobody is where the next frame is: all begin with the snapshot
        for waiting in self._waiting:
            waiting.set()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for waiting in self._waiting:
            waiting.set()

    # ---- what newcomers get ----

    def _rebase(self) -> None:
        """Let the snapshot begin here: no message is open, and nothing is being executed."""
        self._run += 1
        self._base = [
            message.model_dump(by_alias=True, mode="json")
            for message in snapshot_of(self._history, f"{self._epoch}.{self._run}")
        ]
        self._state = json.loads(json.dumps(self._project.state))
        self._log: list[Said] = []

    def _remember(self, said: Said) -> None:
        last = self._log[-1] if self._log else None
        if last is not None and said["type"] in _CONTENT and _alike(last, said, "type", "messageId"):
            last.setdefault("pieces", [last["delta"]]).append(said["delta"])
        else:
            self._log.append(dict(said))

    def _forget_older_update(self) -> None:
        """Of the progress of one call, only the newest is of use to whoever comes later."""
        before, last = [*self._log[-2:], {}][:2]
        if _alike(before, last, "type", "name") and before["value"].get("id") == last["value"].get("id"):
            del self._log[-2]

    def _snapshot(self) -> list[str]:
        begin: list[Said] = [
            {"type": "MESSAGES_SNAPSHOT", "messages": self._base},
            {"type": "STATE_SNAPSHOT", "snapshot": self._state},
        ]
        frames = [f"data: {json.dumps(_joined(said))}\n\n" for said in (*begin, *self._log)]
        # Only the last frame has an id: who loses the connection before it begins again.
        return [*frames, f"id: {self._id()}\nevent: ready\ndata: {{}}\n\n"]

    # ---- viewers ----

    def _id(self) -> str:
        return f"{self._epoch}-{self._number}"

    def _place_of(self, last_id: str | None) -> int | None:
        """The number of the frame that a viewer saw last; None when it is not known here."""
        epoch, _, number = (last_id or "").partition("-")
        known = epoch == self._epoch and number.isascii() and number.isdigit() and len(number) < 20
        return int(number) if known and int(number) <= self._number else None

    def _has_all_after(self, place: int) -> bool:
        return place == self._number or bool(self._recent and self._recent[0][0] <= place + 1)

    async def frames(self, last_id: str | None = None) -> AsyncIterator[str]:
        """What to send to one viewer, as server-sent events, until it leaves or the hub is closed.

        *last_id* is the id of the last frame that it had, if it was here before. Raises TooManyViewersError.
        """
        if len(self._waiting) >= VIEWERS:
            raise TooManyViewersError(f"{VIEWERS} watch already")
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            place = self._place_of(last_id)
            yield ": connected\n\n"
            while not self._closed:
                if place is None or not self._has_all_after(place):
                    snapshot, place = self._snapshot(), self._number
                    yield "".join(snapshot)
                elif place < self._number:
                    skipped = place + 1 - self._recent[0][0]
                    batch = list(islice(self._recent, skipped, skipped + BATCH))
                    place = batch[-1][0]
                    yield "".join(text for _, text in batch)
                else:
                    changed.clear()
                    try:
                        async with asyncio.timeout(KEEP_ALIVE):
                            await changed.wait()
                    except TimeoutError:
                        yield ": keep-alive\n\n"
        finally:
            self._waiting.discard(changed)


def _alike(one: Said, other: Said, *names: str) -> bool:
    return all(one.get(name) == other.get(name) for name in names)


def _joined(said: Said) -> Said:
    if "pieces" not in said:
        return said
    return {**{name: value for name, value in said.items() if name != "pieces"}, "delta": "".join(said["pieces"])}


__all__ = ["Hub", "TooManyViewersError"]
