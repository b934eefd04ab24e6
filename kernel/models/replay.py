"""A model that plays a recording: deterministic, offline, with the parts and the times of a real one.

It holds what it is asked against what was recorded, so that a program that has changed is not answered as if it had not: a
request that was not recorded fails, with the first difference. Requests that went on at once may come in another order:
each is answered with the first recorded answer to just this that was not played yet. With `match=False` the n-th request
gets the n-th answer, whatever it asks.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final, final

from kernel.codec import Codec
from kernel.errors import Failure, ModelError, describe
from kernel.messages import Finished, Part
from kernel.models.tape import Ending, Step, agreement, asked_by, difference, read_recording
from kernel.ports import ModelRequest

DEMO: Final = Path(__file__).parent.parent / "recordings" / "demo.jsonl"
"""The recording that `python -m kernel` plays."""


@final
class ReplayModel:
    """Plays a recording: a path, or its lines.

    With *timing* the parts come when they came, *speed* times as fast; without, at once, but one at a time. A failure is
    raised again, as a `ModelError` with the same fields. A response whose reader had left is silent from there on, as a
    stream is that stalls: it waits to be left again. One that was cut off with its program fails.
    """

    context_window: int | None = None

    def __init__(
        self,
        recording: str | os.PathLike[str] | Iterable[str | bytes] = DEMO,
        *,
        match: bool = True,
        timing: bool = False,
        speed: float = 1.0,
    ) -> None:
        if isinstance(speed, bool) or not isinstance(speed, (int, float)):
            raise TypeError(f"speed must be a number, not {speed!r}")
        if not math.isfinite(speed) or speed <= 0:
            raise ValueError(f"speed must be finite and greater than 0, not {speed}")
        if isinstance(recording, (str, os.PathLike)):
            with open(recording, "rb") as lines:  # decoded line by line, so that a bad one has its number
                self.recording = read_recording(lines)
        else:
            self.recording = read_recording(recording)
        self._match = match
        self._timing = timing
        self._speed = speed
        self._asked = 0
        self._left = dict(enumerate(self.recording.responses, start=1))

    def __repr__(self) -> str:
        return f"ReplayModel({self.recording.name!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """The recorded answer."""
        self._asked += 1
        number = self._find(request)
        response = self._left.pop(number)
        start = asyncio.get_running_loop().time()
        for step in response.steps:
            await asyncio.sleep(self._wait(step, start))
            match step.what:
                case Failure() as failure:
                    raise ModelError(
                        failure.message,
                        retryable=failure.retryable,
                        retry_after=failure.retry_after,
                        overflow=failure.overflow,
                    )
                case Ending.ENDED:
                    return
                case Ending.LEFT:
                    await asyncio.Event().wait()
                case part:
                    yield part
                    if isinstance(part, Finished):
                        return
        raise ModelError(
            f"the recording of {self.recording.name} is cut off here: request {number} has {len(response.steps)} parts and "
            "no end, as when the program that recorded it was killed"
        )

    def _find(self, request: ModelRequest) -> int:
        """The number of the recorded request that this one is."""
        if not self._left:
            raise ModelError(
                f"the recording of {self.recording.name} is over: request {len(self.recording.responses)} was its last, "
                f"and this is request {self._asked}"
            )
        if not self._match:
            return min(self._left)
        try:
            asked = asked_by(request, Codec())
        except TypeError as error:
            raise ModelError(f"request {self._asked} can't have been recorded: {describe(error)}") from error
        for number, response in self._left.items():
            if response.asked is None or difference(response.asked, asked) is None:
                return number
        questions = [(number, response.asked) for number, response in self._left.items() if response.asked is not None]
        number, nearest = max(questions, key=lambda pair: agreement(pair[1], asked))  # the first of the nearest
        raise ModelError(
            f"the replay diverged at request {self._asked}, nearest to the recorded request {number}: "
            f"{difference(nearest, asked)}. Record it again, or play it with match=False"
        )

    def _wait(self, step: Step, start: float) -> float:
        if not self._timing:
            return 0
        return max(0.0, start + step.t / 1000 / self._speed - asyncio.get_running_loop().time())
