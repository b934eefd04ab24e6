"""How large the messages are that no model has counted yet.

A model's usage tells the size of what it was sent and has said. What came after that (a prompt, results of tools) is known
only once it is sent, and then it may be too late: the default guesses it from the length of the text. A provider's own
counter is a better `Estimator`, if it is fast and needs no network.
"""

import math
from collections.abc import Sequence
from typing import Final, final

from kernel.frozen import shown
from kernel.messages import AssistantMessage, CustomMessage, Message, ToolCall, UserMessage

BYTES_PER_TOKEN: Final = 4.0
"""UTF-8 bytes that make a token: four in English prose, fewer in code, and a Chinese character of three is about one."""
MESSAGE_TOKENS: Final = 4
"""Tokens that a provider spends on a message beside its text: its role, and where it begins and ends."""
IMAGE_BYTES: Final = 6_000
"""What an image counts as: some 1,500 tokens, about the most that large providers take, whatever its file's size."""


def size(message: Message) -> int:
    """UTF-8 bytes of what a model is sent of *message*: its text, its calls and their arguments. Never fails."""
    said = len(message.text.encode("utf-8", "surrogatepass"))
    if isinstance(message, UserMessage):
        said += IMAGE_BYTES * len(message.images)
    if isinstance(message, AssistantMessage):
        said += sum(_call_size(call) for call in message.calls)
    return said


def _call_size(call: ToolCall) -> int:
    arguments = shown(call.arguments) if call.malformed is None else call.malformed
    return len(call.name) + len(arguments.encode("utf-8", "surrogatepass"))


@final
class LengthEstimator:
    """Guesses tokens from the length of the text in UTF-8, calls and their arguments included. Never fails.

    Custom messages count nothing: what becomes of them is known only when `convert_to_llm` has rewritten them.

    >>> from kernel import UserMessage
    >>> LengthEstimator().estimate([UserMessage("How large is this?")])
    9
    """

    __slots__ = ("_bytes_per_token",)

    def __init__(self, bytes_per_token: float = BYTES_PER_TOKEN) -> None:
        if isinstance(bytes_per_token, bool) or not isinstance(bytes_per_token, (int, float)):
            raise TypeError(f"bytes_per_token must be a number, not {bytes_per_token!r}")
        if not 0 < bytes_per_token < math.inf:
            raise ValueError(f"bytes_per_token must be a finite number above 0, not {bytes_per_token}")
        self._bytes_per_token = bytes_per_token

    def estimate(self, messages: Sequence[Message]) -> int:
        """Tokens of *messages*, rounded up for each."""
        return sum(self._tokens(message) for message in messages if type(message) is not CustomMessage)

    def _tokens(self, message: Message) -> int:
        return MESSAGE_TOKENS - int(-size(message) // self._bytes_per_token)


@final
class UsageOnlyEstimator:
    """Guesses nothing: compaction begins by what models told, and by nothing else."""

    __slots__ = ()

    def estimate(self, _messages: Sequence[Message]) -> int:
        """0."""
        return 0
