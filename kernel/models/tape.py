"""A recording: what models were asked and what they answered, part by part, with times. Read here, and held against
what is asked when it is played.

It is JSON Lines in ASCII. After a header that names the format, and says *about* the recording whatever its maker wants,
five kinds of line come as things happen, so that also requests that go on at once are told:

    {"setup": 1, "system_prompt": …, "reasoning_effort": …, "output_schema": …, "tools": [{"name": …, …}]}
    {"message": 1, "is": "UserMessage", "content": […]}
    {"request": 1, "setup": 1, "messages": [1]}
    {"request": 1, "t": 64.3, "part": {"is": "TextDelta", "text": "I"}}
    {"request": 1, "t": 99.0, "failed": {"message": …, "retryable": …, …}}    or    "end": "left" | "ended"

Setups, messages and requests are numbered from 1; what requests share is written once. `t` is milliseconds after the
request. A response ends with its `Finished`, with a failure, with its stream (`ended`, a breach of the protocol), or
because its reader left (a cancel, a limit of time). One that has no end was cut off with the program that recorded it, and
so may the last line be. A request may be without setup and messages: nobody knows what was asked.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, final

from attrs import frozen

from kernel.codec import Codec, explain
from kernel.errors import Failure
from kernel.frozen import FrozenDict, freeze
from kernel.jsonl import exact, from_line, to_line
from kernel.messages import Finished, Part
from kernel.ports import ModelRequest

FORMAT: Final = "phasekernel.recording/2"
SETUP: Final = ("system_prompt", "reasoning_effort", "output_schema", "tools")
_SHOWN: Final = 60


class Ending(StrEnum):
    """How a response ended that neither finished nor failed."""

    LEFT = "left"
    ENDED = "ended"


@final
@frozen
class Step:
    """A part of a response, or its end, and when it came: milliseconds after the request."""

    t: float
    what: Part | Failure | Ending


@final
@frozen
class Response:
    """What was asked (None: nobody knows), as plain data, and what came. The last step is the end, if it has one."""

    asked: FrozenDict | None
    steps: tuple[Step, ...]


@final
@frozen
class Recording:
    """What its maker says about it, and the responses in the order of their requests."""

    about: FrozenDict
    responses: tuple[Response, ...]

    @property
    def name(self) -> str:
        """The model's name, for sentences."""
        return str(self.about.get("model", "a model"))


@final
class _Reader:
    def __init__(self) -> None:
        self._codec = Codec()
        self._about: FrozenDict | None = None
        self._setups: list[FrozenDict] = []
        self._messages: list[FrozenDict] = []
        self._asked: list[FrozenDict | None] = []
        self._steps: list[list[Step]] = []

    def take(self, entry: Any) -> None:
        if not isinstance(entry, dict):
            raise ValueError("a JSON object is expected")  # the file is wrong, not the caller's type
        if self._about is None:
            self._about = _about(entry)
        elif "request" in entry and ({"part", "failed", "end"} & entry.keys()):
            self._step(entry)
        elif "request" in entry:
            self._request(entry)
        elif "setup" in entry:
            _only(entry, {"setup", *SETUP})
            _next("setup", entry["setup"], self._setups)
            self._setups.append(freeze({name: entry[name] for name in SETUP}))
        elif "message" in entry:
            _next("message", entry.pop("message"), self._messages)
            self._codec.load_messages([entry])
            self._messages.append(freeze(entry))
        else:
            raise ValueError("it is neither a setup nor a message, a request or a step of its response")

    def _request(self, entry: dict[str, Any]) -> None:
        _next("request", entry["request"], self._asked)
        asked = None
        if entry.keys() != {"request"}:
            _only(entry, {"request", "setup", "messages"})
            if not isinstance(entry["messages"], list):
                raise ValueError('"messages" must be a list of numbers')
            messages = tuple(_numbered("message", number, self._messages) for number in entry["messages"])
            asked = FrozenDict(_numbered("setup", entry["setup"], self._setups), messages=messages)
        self._asked.append(asked)
        self._steps.append([])

    def _step(self, entry: dict[str, Any]) -> None:
        steps = _numbered("request", entry["request"], self._steps)
        t = entry.get("t")
        if isinstance(t, bool) or not isinstance(t, (int, float)) or not math.isfinite(t) or t < 0:
            raise ValueError(f'"t" must be milliseconds since the request, not {t!r}')
        if steps and t < steps[-1].t:
            raise ValueError(f'"t" goes back from {steps[-1].t} to {t}')
        if steps and is_end(steps[-1].what):
            raise ValueError(f"request {entry['request']} has ended before")
        kind = next(iter(entry.keys() - {"request", "t"}))
        _only(entry, {"request", "t", kind})
        load = {"part": self._codec.load_part, "failed": self._codec.load_failure, "end": Ending}[kind]
        steps.append(Step(t, load(entry[kind])))

    def recording(self) -> Recording:
        if self._about is None or not self._asked:
            raise ValueError("the recording is empty: it needs a header line and a request")
        responses = zip(self._asked, self._steps, strict=True)
        return Recording(self._about, tuple(Response(asked, tuple(steps)) for asked, steps in responses))


def read_recording(lines: Iterable[str | bytes]) -> Recording:
    """The recording in *lines*; ValueError names the first line that is wrong. A torn last line, without its newline, is
    dropped, as a program that was killed leaves it.
    """
    reader = _Reader()
    given = list(lines)
    for number, line in enumerate(given, start=1):
        if not line.strip():
            continue
        try:
            entry = from_line(line)
        except ValueError as error:
            if 1 < number == len(given) and line[-1:] not in ("\n", b"\n"):
                break
            raise ValueError(f"line {number} of the recording: this is not JSON: {error}") from error
        try:
            reader.take(entry)
        except Exception as error:
            raise ValueError(f"line {number} of the recording: {explain(error)}") from error
    return reader.recording()


def is_end(what: Part | Failure | Ending) -> bool:
    """Whether nothing comes after it."""
    return isinstance(what, (Finished, Failure, Ending))


def _about(entry: dict[str, Any]) -> FrozenDict:
    if entry.get("format") != FORMAT:
        raise ValueError(f'the header must have "format": "{FORMAT}", not {entry.get("format")!r}')
    _only(entry, {"format", "about"})
    if not isinstance(entry["about"], dict):
        raise ValueError(f'"about" must be an object, not {entry["about"]!r}')
    return FrozenDict(entry["about"])


def _only(entry: dict[str, Any], names: set[str]) -> None:
    if entry.keys() != names:
        raise ValueError(f"it has {', '.join(sorted(entry))}, and {', '.join(sorted(names))} is right")


def _next(kind: str, number: Any, before: Sequence[Any]) -> None:
    if type(number) is not int or number != len(before) + 1:
        raise ValueError(f"{kind} {len(before) + 1} is expected, not {number!r}")


def _numbered(kind: str, number: Any, values: Sequence[Any]) -> Any:
    if type(number) is not int or not 1 <= number <= len(values):
        raise ValueError(f"there is no {kind} {number!r} before it")
    return values[number - 1]


# ---- what is asked, and whether it is the same ----


def asked_by(request: ModelRequest, codec: Codec) -> dict[str, Any]:
    """What *request* asks, as plain data that is just as it will be read. TypeError when JSON can't say it."""
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": exact(freeze(tool.parameters))}
        for tool in request.tools
    ]
    asked = {
        "system_prompt": request.system_prompt,
        "reasoning_effort": request.reasoning_effort,
        "output_schema": exact(freeze(request.output_schema)),
        "tools": tools,
        "messages": codec.dump_messages(request.messages),
    }
    return from_line(to_line(asked))  # type: ignore[no-any-return]


def difference(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Where two questions first differ, in words; None: nowhere. The ids of calls count as names: only which result is of
    which call matters, since the kernel makes up ids that a provider did not give.
    """
    for name in (*SETUP, "messages"):
        mine, other = freeze(recorded[name]), freeze(asked[name])
        if name == "messages":
            mine, other = _with_plain_ids(mine), _with_plain_ids(other)
        for path, was, now in _differences(mine, other):
            return f"{_place(name, path, mine, other)}: {_short(was, now)} was recorded, {_short(now, was)} was asked"
    return None


def agreement(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> int:
    """How many messages two questions have in common, from the first on."""
    mine, other = (_with_plain_ids(freeze(each["messages"])) for each in (recorded, asked))
    pairs = zip(mine, other, strict=False)
    return next((at for at, (was, now) in enumerate(pairs) if any(_differences(was, now))), min(len(mine), len(other)))


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_NOTHING: Final = _Nothing()
_Path = tuple[str | int, ...]


def _differences(was: Any, now: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in {**was, **now}:
            yield from _differences(was.get(key, _NOTHING), now.get(key, _NOTHING), (*path, key))
    elif isinstance(was, tuple) and isinstance(now, tuple):
        for at in range(max(len(was), len(now))):
            before, after = (each[at] if at < len(each) else _NOTHING for each in (was, now))
            yield from _differences(before, after, (*path, at))
    elif type(was) is not type(now) or was != now:  # True is not 1 in JSON
        yield path, was, now


def _with_plain_ids(messages: tuple[Any, ...]) -> tuple[Any, ...]:
    names: dict[str, str] = {}

    def plain(id: str) -> str:
        return names.setdefault(id, f"call {len(names) + 1}")

    def block(data: FrozenDict) -> FrozenDict:
        return FrozenDict({**data, "id": plain(data["id"])}) if data["is"] == "ToolCall" else data

    made: list[FrozenDict] = []
    for message in messages:
        if message["is"] == "AssistantMessage":
            made.append(FrozenDict({**message, "content": tuple(map(block, message["content"]))}))
        elif message["is"] == "ToolMessage":
            made.append(FrozenDict({**message, "call_id": plain(message["call_id"])}))
        else:
            made.append(message)
    return tuple(made)


def _place(name: str, path: _Path, mine: Any, other: Any) -> str:
    """*path* in a question's *name*, in words."""
    rest = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    if not path or name not in ("messages", "tools"):
        return name + rest
    at = int(path[0])
    entry = (mine if at < len(mine) else other)[at]
    what = f"message {at + 1}, {entry['is']}" if name == "messages" else f"tool {at + 1}, {entry['name']}"
    inside = rest.removeprefix(f"[{at}]").removeprefix(".")
    return f"{what}, {inside}" if inside else what


def _short(value: Any, other: Any) -> str:
    """*value*, and when it is long, what is around its first difference from *other*."""
    text, its = (each if isinstance(each, str) else repr(each) for each in (value, other))
    if len(text) > _SHOWN:
        pairs = zip(text, its, strict=False)
        first = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(text), len(its)))
        begin = max(0, first - _SHOWN // 3)
        cut = text[begin : begin + _SHOWN]
        text = f"{'…' * (begin > 0)}{cut}{'…' * (begin + _SHOWN < len(text))}"
    return repr(text) if isinstance(value, str) else text
