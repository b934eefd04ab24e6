"""A model that plays a recording: deterministic, offline, with the chunks and the times of a real one.

A recording is JSON Lines. The first line is a header that tells where it is from and what in it is scripted. Then, for
each request, a line with its number and a line for each chunk, as the model sent it, at so many milliseconds after the
request. The n-th request that the model gets is answered with the n-th of the recording, whatever it asks.
"""

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final, final

from attrs import field, frozen
from attrs.validators import instance_of

from kernel.errors import ModelError
from kernel.frozen import FrozenDict, freeze
from kernel.messages import Part
from kernel.models.chunks import ChunkReader
from kernel.ports import ModelRequest

FORMAT: Final = "phasekernel.recording/1"
DEMO: Final = Path(__file__).parent.parent / "recordings" / "demo.jsonl"
"""The recording that `python -m kernel` plays."""


@final
@frozen(kw_only=True)
class Header:
    """Where a recording is from. `scripted` tells which parts of it no model has said."""

    model: str = field(validator=instance_of(str))
    source: str = field(validator=instance_of(str))
    date: str = field(validator=instance_of(str))
    licence: str = field(validator=instance_of(str))
    scripted: str = field(validator=instance_of(str))


@final
@frozen
class RecordedChunk:
    """A chunk, and when it came: milliseconds after the request."""

    t: float
    data: FrozenDict


@final
@frozen
class Recording:
    """A header and the chunks of each request."""

    header: Header
    requests: tuple[tuple[RecordedChunk, ...], ...]


def read_recording(lines: Iterable[str | bytes]) -> Recording:
    """The recording in *lines*; ValueError names the first line that is wrong."""
    header: Header | None = None
    requests: list[list[RecordedChunk]] = []
    readers: list[ChunkReader] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = _entry(line)
            if header is None:
                header = _header(entry)
            elif "request" in entry:
                _begin(requests, entry)
                readers.append(ChunkReader())
            else:
                _add(requests, readers, entry)
        except (TypeError, ValueError, ModelError) as error:
            raise ValueError(f"line {number} of the recording: {error}") from error
    if header is None or not requests:
        raise ValueError("the recording is empty: it needs a header line and a request")
    return Recording(header, tuple(tuple(chunks) for chunks in requests))


def _entry(line: str | bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from error
    if not isinstance(entry, dict):
        raise ValueError("a JSON object is expected")  # the file is wrong, not the caller's type
    return entry


def _header(entry: dict[str, Any]) -> Header:
    if entry.get("format") != FORMAT:
        raise ValueError(f'the header must have "format": "{FORMAT}", not {entry.get("format")!r}')
    names = ("model", "source", "date", "licence", "scripted")
    missing = [name for name in names if name not in entry]
    if missing:
        raise ValueError(f"the header has no {', '.join(missing)}")
    return Header(**{name: entry[name] for name in names})


def _begin(requests: list[list[RecordedChunk]], entry: dict[str, Any]) -> None:
    if entry["request"] != len(requests) + 1:
        raise ValueError(f"request {len(requests) + 1} is expected, not {entry['request']!r}")
    requests.append([])


def _add(requests: list[list[RecordedChunk]], readers: list[ChunkReader], entry: dict[str, Any]) -> None:
    if not requests:
        raise ValueError('a line with "request" is expected before the first chunk')
    t, data = entry.get("t"), entry.get("data")
    if isinstance(t, bool) or not isinstance(t, (int, float)) or not math.isfinite(t) or t < 0:
        raise ValueError(f'"t" must be milliseconds since the request, not {t!r}')
    if requests[-1] and t < requests[-1][-1].t:
        raise ValueError(f'"t" goes back from {requests[-1][-1].t} to {t}')
    if not isinstance(data, dict):
        raise ValueError(f'"data" must be a chunk, not {data!r}')  # as above
    if not data.get("error"):  # a recorded error is as good as an answer
        readers[-1].parts(data)
    requests[-1].append(RecordedChunk(t, freeze(data)))


@final
class ReplayModel:
    """Plays a recording: the n-th request gets the n-th recorded answer.

    With *timing* the chunks come when they came, *speed* times as fast; without, at once, but one at a time.
    """

    context_window: int | None = None

    def __init__(
        self,
        recording: str | os.PathLike[str] | Iterable[str | bytes] = DEMO,
        *,
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
        self._timing = timing
        self._speed = speed
        self._asked = 0

    def __repr__(self) -> str:
        return f"ReplayModel({self.recording.header.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:  # noqa: ARG002  # whatever is asked
        """The next recorded answer."""
        self._asked += 1
        requests = self.recording.requests
        if self._asked > len(requests):
            raise ModelError(
                f"the recording of {self.recording.header.model} is over: request {len(requests)} was its last, "
                f"and this is request {self._asked}"
            )
        reader = ChunkReader()
        start = asyncio.get_running_loop().time()
        for chunk in requests[self._asked - 1]:
            await asyncio.sleep(self._wait(chunk, start))
            for part in reader.parts(chunk.data):
                yield part
        for part in reader.end():
            yield part

    def _wait(self, chunk: RecordedChunk, start: float) -> float:
        if not self._timing:
            return 0
        return max(0.0, start + chunk.t / 1000 / self._speed - asyncio.get_running_loop().time())
