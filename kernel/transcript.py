"""One copy of the conversation: append-only, shared by all who look at it, never scanned in a turn.

A `MessageView` is the storage and a length, so taking one costs the same for ten messages as for ten thousand, and an old
one never changes: storage only grows, and what replaces messages (a reset, a compaction) starts a new storage.

Three views are kept up as messages come: *all*; the *context* without cut messages, which hooks may work on; and the
*plain* context without custom messages either, which is what a model gets when no hook rewrites them. They share one
storage until a message parts them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final, overload

from kernel.messages import AssistantMessage, CustomMessage, Message


@final
class MessageView(Sequence[Message]):
    """An immutable sequence of messages."""

    __slots__ = ("_length", "_storage")

    def __init__(self, storage: list[Message], length: int | None = None) -> None:
        self._storage = storage
        self._length = len(storage) if length is None else length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return tuple(self._storage[start:stop:step]) if step > 0 else tuple(self)[index]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._storage[position]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        storage = self._storage
        return (storage[position] for position in range(self._length))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"MessageView({list(self)!r})"


@final
class Transcript:
    """The messages of an agent, and where its completed turns end."""

    __slots__ = ("_all", "_context", "_plain", "turn_ends")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._all: list[Message] = []
        self._context = self._plain = self._all
        self.turn_ends: list[int] = []
        for message in messages:
            self._note_turn_before(message)
            self.append(message)
        self._note_turn_before(None)

    def append(self, message: Message) -> None:
        """Add *message* to every view that it belongs to."""
        kind = type(message)
        if kind is AssistantMessage and message.is_cut:  # type: ignore[union-attr]
            if self._context is self._all:
                shared = self._plain is self._all
                self._context = self._all.copy()
                self._plain = self._context if shared else self._plain
            self._all.append(message)
            return
        if kind is CustomMessage and self._plain is self._context:
            self._plain = self._context.copy()
        if self._plain is not self._context and kind is not CustomMessage:
            self._plain.append(message)
        if self._context is not self._all:
            self._context.append(message)
        self._all.append(message)

    def end_turn(self) -> None:
        """Note that a completed turn ends here: the one kind of place where a compaction may cut."""
        if not self.turn_ends or self.turn_ends[-1] != len(self._all):
            self.turn_ends.append(len(self._all))

    def cut(self, keep_turns: int) -> int:
        """How many messages are older than the newest *keep_turns* completed turns; 0 when there is nothing older."""
        return self.turn_ends[-keep_turns - 1] if len(self.turn_ends) > keep_turns else 0

    def compacted(self, length: int, summary: Message) -> "Transcript":
        """A new transcript in which *summary* stands for the first *length* messages."""
        new = Transcript()
        new.append(summary)
        for message in self._all[length:]:
            new.append(message)
        new.turn_ends = [end - length + 1 for end in self.turn_ends if end > length]
        return new

    def __len__(self) -> int:
        return len(self._all)

    @property
    def messages(self) -> MessageView:
        """All messages."""
        return MessageView(self._all)

    @property
    def context(self) -> MessageView:
        """Without cut messages."""
        return MessageView(self._context)

    @property
    def plain(self) -> MessageView:
        """Without cut and custom messages."""
        return MessageView(self._plain)

    def older(self, length: int) -> tuple[Message, ...]:
        """The first *length* messages."""
        return tuple(self._all[:length])

    def _note_turn_before(self, message: Any) -> None:
        """While a history is read: a turn ended where an answered assistant message is followed by something else."""
        if not self._all or (message is not None and message.role == "tool"):
            return
        last = self._all[-1]
        if last.role == "tool" or (isinstance(last, AssistantMessage) and not last.is_cut and not last.calls):
            self.end_turn()
