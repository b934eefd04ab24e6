"""The conversation: messages and the blocks in them. All values are frozen, deeply, and valid from birth.

A *message* is an entry of the conversation. What a model asks for is a `ToolCall` block in an `AssistantMessage`; what
answers it is a `ToolMessage`. A *cut* message is an assistant message whose response was cancelled or failed: it keeps
what had been said, is marked by its stop reason, and is never sent to a model again.
"""

import base64
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, ClassVar, Final, final

from attrs import field, frozen

from kernel.checks import count, each_is_a, is_a, or_none
from kernel.frozen import EMPTY, FrozenDict, freeze
from kernel.values import Value


class StopReason(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    TOOL_USE = "tool_use"
    LENGTH = "length"  # cut off by the model's output limit: its tool calls are not executed
    ERROR = "error"
    ABORTED = "aborted"


CUT: Final = frozenset({StopReason.ERROR, StopReason.ABORTED})


@final
@frozen(eq=False, repr=False)
class Usage(Value):
    """Tokens of one response, or summed over a run.

    `input` counts all tokens of the request, those read from a cache included; `output` those of the response, reasoning
    included. `cache_read`, `cache_write` and `reasoning` are parts of them, for whoever pays.
    """

    input: int = field(default=0, validator=count)
    output: int = field(default=0, validator=count)
    cache_read: int = field(default=0, validator=count)
    cache_write: int = field(default=0, validator=count)
    reasoning: int = field(default=0, validator=count)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input + self.output


NO_USAGE: Final = Usage()
"""No tokens at all."""


@final
@frozen(eq=False, repr=False)
class Text(Value):
    """A piece of text."""

    text: str = field(validator=is_a(str))


_IMAGE_URL: Final = re.compile(r"https?://\S+|data:(image/[\w.+-]+);base64,([A-Za-z0-9+/]+={0,2})")


def _image_url(instance: Any, attribute: Any, value: Any) -> None:
    is_a(str)(instance, attribute, value)
    if not _IMAGE_URL.fullmatch(value):
        raise ValueError(f"url must be an http(s) address or data:image/…;base64,…, not {value[:80]!r}")


@final
@frozen(eq=False, repr=False)
class Image(Value):
    """An image that a user shows. `url` is an address that the provider fetches, or a data URL that carries the image.

    >>> Image.of(b"not really a picture", "image/png").url
    'data:image/png;base64,bm90IHJlYWxseSBhIHBpY3R1cmU='
    """

    url: str = field(validator=_image_url)

    @classmethod
    def of(cls, data: bytes, media_type: str) -> "Image":
        """The image whose file has these bytes. *media_type* is `image/png`, `image/jpeg` and so on."""
        return cls(f"data:{media_type};base64,{base64.b64encode(data).decode()}")

    @property
    def carried(self) -> tuple[str, str] | None:
        """Media type and base64 text of a data URL; None for an address."""
        match = _IMAGE_URL.fullmatch(self.url)
        return None if match is None or match[1] is None else (match[1], match[2])


@final
@frozen(eq=False, repr=False)
class Reasoning(Value):
    """What a model thought before it spoke. `signature` proves it to the provider that wants it sent back."""

    text: str = field(validator=is_a(str))
    signature: str | None = field(default=None, validator=or_none(is_a(str)))


def _frozen(value: Any) -> Any:
    try:
        return freeze(value)
    except RecursionError:
        raise ValueError("arguments and data must be JSON, and this is nested too deeply or contains itself") from None


@final
@frozen(eq=False, repr=False)
class ToolCall(Value):
    """A model's request to run a tool.

    `arguments` is immutable; a tool and a hook get their own mutable copy. `malformed` holds the text of arguments that
    were not a JSON object: such a call is answered with an error and never executed.
    """

    id: str = field(validator=is_a(str))
    name: str = field(validator=is_a(str))
    arguments: FrozenDict = field(default=EMPTY, converter=_frozen, validator=is_a(FrozenDict))
    malformed: str | None = field(default=None, validator=or_none(is_a(str)))


def _content(value: Any) -> Any:
    if type(value) is tuple:
        return value
    if isinstance(value, str):
        return (Text(value),)
    return tuple(value) if isinstance(value, Iterable) else value


def _joined(blocks: tuple[Any, ...], kind: type[Any]) -> str:
    return "".join([block.text for block in blocks if type(block) is kind])


@final
@frozen(eq=False, repr=False)
class UserMessage(Value):
    """What a user said and showed. `UserMessage("Hi")` is short for one block of text."""

    content: tuple[Text | Image, ...] = field(converter=_content, validator=each_is_a(Text, Image))
    role: ClassVar[str] = "user"

    @property
    def text(self) -> str:
        """All its text, joined."""
        return _joined(self.content, Text)

    @property
    def images(self) -> tuple[Image, ...]:
        """All its images, in order."""
        return tuple(block for block in self.content if type(block) is Image)


@final
@frozen(eq=False, repr=False)
class AssistantMessage(Value):
    """What a model answered, in the order in which it came."""

    content: tuple[Text | Reasoning | ToolCall, ...] = field(
        converter=_content, validator=each_is_a(Text, Reasoning, ToolCall)
    )
    stop: StopReason = field(default=StopReason.STOP, converter=StopReason)
    usage: Usage | None = field(default=None, validator=or_none(is_a(Usage)))
    error: str | None = field(default=None, validator=or_none(is_a(str)))
    role: ClassVar[str] = "assistant"

    @property
    def text(self) -> str:
        """All its text, joined; reasoning is not part of it."""
        return _joined(self.content, Text)

    @property
    def reasoning(self) -> str:
        """All its reasoning, joined."""
        return _joined(self.content, Reasoning)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that it asks for, in source order."""
        return tuple(block for block in self.content if type(block) is ToolCall)

    @property
    def is_cut(self) -> bool:
        """Whether the response was cancelled or failed; a cut message is never sent to a model."""
        return self.stop in CUT


@final
@frozen(eq=False, repr=False)
class ToolMessage(Value):
    """The one answer to one tool call. `executed` is False when the tool's body did not run."""

    call_id: str = field(validator=is_a(str))
    name: str = field(validator=is_a(str))
    content: tuple[Text, ...] = field(converter=_content, validator=each_is_a(Text))
    is_error: bool = field(default=False, validator=is_a(bool))
    executed: bool = field(default=True, validator=is_a(bool))
    role: ClassVar[str] = "tool"

    @property
    def text(self) -> str:
        """All its text, joined."""
        return _joined(self.content, Text)


@final
@frozen(eq=False, repr=False)
class SummaryMessage(Value):
    """What stands for older messages after a compaction."""

    text: str = field(validator=is_a(str))
    role: ClassVar[str] = "summary"


@final
@frozen(eq=False, repr=False)
class CustomMessage(Value):
    """An application's own entry: stored and shown, but seen by a model only as `convert_to_llm` rewrites it.

    Source: chapter 06, "convertToLlm".
    """

    kind: str = field(validator=is_a(str))
    data: Any = field(default=None, converter=_frozen)
    role: ClassVar[str] = "custom"

    @property
    def text(self) -> str:
        """How it is shown where only text can be: its kind."""
        return f"[{self.kind}]"


Message = UserMessage | AssistantMessage | ToolMessage | SummaryMessage | CustomMessage
MESSAGE_TYPES: Final = (UserMessage, AssistantMessage, ToolMessage, SummaryMessage, CustomMessage)
InputMessage = UserMessage | CustomMessage


# What a model's stream is made of. A whole `ToolCall` and a `Usage` are parts too.


@final
@frozen(eq=False, repr=False)
class TextDelta(Value):
    """A piece of the answer's text. An empty one opens the message and says nothing."""

    text: str


def _stop_or_none(stop: str | None) -> StopReason | None:
    return None if stop is None else StopReason(stop)


@final
@frozen(eq=False, repr=False)
class ReasoningDelta(Value):
    """A piece of the answer's reasoning."""

    text: str = field(validator=is_a(str))
    signature: str | None = field(default=None, validator=or_none(is_a(str)))


@final
@frozen(eq=False, repr=False)
class ToolCallDelta(Value):
    """A piece of a tool call: `index` tells calls of one response apart, `arguments` is a piece of JSON text."""

    index: int = field(validator=is_a(int))
    id: str | None = field(default=None, validator=or_none(is_a(str)))
    name: str | None = field(default=None, validator=or_none(is_a(str)))
    arguments: str = field(default="", validator=is_a(str))


@final
@frozen(eq=False, repr=False)
class Finished(Value):
    """The terminal part of a stream. Without a stop reason it is `tool_use` when there were calls, else `stop`.

    `error` and `aborted` are no ends of a response but failures of it.
    """

    stop: StopReason | None = field(default=None, converter=_stop_or_none)


Part = TextDelta | ReasoningDelta | ToolCallDelta | ToolCall | Usage | Finished
