"""What every engine can do, whatever it is built on: take orders for sessions, tell of them, and have them carried out.

A *session* is an agent whose life is longer than any process. An *order* is something that one would call a method of an
agent for; it is given under a key, and the same key twice is one order. Whoever *serves* carries sessions out. All that is
durable of a session is the ordered list of what entered its core; the events that it told are kept beside that, under
positions that count from 1, so that a reader who comes back goes on where it was. Pieces of a response and of a tool's
progress are told to those who listen now, and are kept nowhere: what they amount to is in the message that follows.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal, Protocol, final

from attrs import field, frozen

from kernel.agent import Agent
from kernel.checks import is_a, or_none
from kernel.errors import KernelError
from kernel.events import Event
from kernel.messages import CustomMessage, InputMessage, Message, UserMessage
from kernel.snapshot import Queued
from kernel.values import Value

OrderKind = Literal["prompt", "steer", "follow_up", "continue", "cancel", "compact", "reset", "clear_queues"]
SAYING: Final = ("prompt", "steer", "follow_up")
STARTING: Final = ("prompt", "continue", "compact", "reset")
"""Kinds that wait until no run is going; `prompt` starts one then. All others are carried out at once."""
_KINDS: Final = (*SAYING, *STARTING[1:], "cancel", "clear_queues")


class EngineError(KernelError):
    """Something of an engine: its file, its server, or what was asked of it."""

    code = "ENGINE"


class EventsGoneError(EngineError):
    """The events after that position are not kept any more; `first` is the first that is."""

    code = "EVENTS_GONE"

    def __init__(self, session: str, after: int, first: int) -> None:
        super().__init__(
            f"session {session}: the events after {after} are not kept any more, the first that is has the position "
            f"{first}; read state() and go on from there, or raise `retain_events`"
        )
        self.first = first


class WrongVersionError(EngineError):
    """A run was begun by another version of the agent or of the kernel, and this one can't go on with it."""

    code = "WRONG_VERSION"


def _message(value: Any) -> Any:
    return UserMessage(value) if isinstance(value, str) else value


@final
@frozen(eq=False, repr=False)
class Order(Value):
    """What is asked of a session: the method of an agent, and what it takes.

    `steer` and `follow_up` that find no run start one. What starts a run waits while one is going. So nothing is refused
    for coming at the wrong moment; what the agent itself refuses (`QueueFullError`, say) is the order's answer.
    """

    kind: OrderKind
    message: InputMessage | None = field(default=None, converter=_message)
    reason: str | None = field(default=None, validator=or_none(is_a(str)))

    def __attrs_post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"Order.kind must be one of {', '.join(_KINDS)}, not {self.kind!r}")
        if (self.kind in SAYING) != isinstance(self.message, (UserMessage, CustomMessage)):
            takes = "takes a message" if self.kind in SAYING else "takes no message"
            raise TypeError(f"an order of the kind {self.kind} {takes}, not {self.message!r}")
        if self.reason is not None and self.kind != "cancel":
            raise TypeError(f"an order of the kind {self.kind} takes no reason")


@final
@frozen(eq=False, repr=False)
class Answer(Value):
    """What became of an order: it waits, was taken, or was refused by the agent with the code and the text of an error."""

    status: Literal["waiting", "taken", "refused"]
    code: str | None = None
    text: str | None = None


@final
@frozen(eq=False, repr=False)
class Told(Value):
    """An event of a session. `position` is the cursor to go on from; None: a piece that is kept nowhere. Pieces come as
    soon as they are said, ahead of the events around them, and never after the message that they are pieces of.
    """

    position: int | None
    event: Event


@final
@frozen(eq=False, repr=False, kw_only=True)
class SessionState(Value):
    """A session as it is stored: what its agent's `state` would say, how far its events go, and how many orders wait."""

    session: str
    is_running: bool
    phase: str
    messages: tuple[Message, ...]
    archive: tuple[Message, ...]
    queued: Queued
    error_message: str | None
    position: int
    waiting: int
    owner: str | None


class Engine(Protocol):
    """Where sessions live."""

    async def submit(self, session: str, order: Order, key: str | None = None) -> int:
        """Store *order*, and return its number; it will be carried out, whatever happens to this process afterwards.

        An order with the same *key* is stored once: its number is returned again. Raises EngineError when that key was
        used for something else.
        """
        ...

    async def answer(self, session: str, number: int) -> Answer:
        """What became of the order *number*, once that is stored. Raises EngineError when there is no such order."""
        ...

    async def state(self, session: str) -> SessionState:
        """The session as it is stored. Raises EngineError when nothing was ever asked of it."""
        ...

    def events(self, session: str, after: int = 0, *, pieces: bool = False) -> AsyncIterator[Told]:
        """Its events after the position *after*, those that are stored and those to come, without end. *pieces*: also what
        is kept nowhere. Raises EventsGoneError.
        """
        ...

    async def serve(self, make_agent: Callable[[str], Agent], *, slots: int = 64) -> None:
        """Carry sessions out, until cancelled, as many at a time as there are *slots*. *make_agent* makes the agent of a
        session by its name: model, tools, hooks and configuration; its conversation is the session's.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and connections."""
        ...
