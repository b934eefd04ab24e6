"""What can go wrong, told so that the caller knows whose fault it is, what was asked, in which phase, and what to do.

`AgentBusyError`, `AgentClosedError`, `NothingToDoError`, `QueueFullError`, `MessageLimitError`, `ReentrancyError` and
`WrongLoopError` are the caller's; `ModelError` is the world's; `KernelBug` is ours. Each has a stable `code`.
"""

import sys
from typing import Any, ClassVar, Final, final

from attrs import field, frozen

from kernel.values import Value

UNWRITTEN: Final = {"unwritten": True}
"""Marks a field whose value is of any kind, so that no journal and no trace has it."""


@final
@frozen(eq=False, repr=False)
class Failure(Value):
    """What failed, as data: it can be stored, compared and sent. `error_of` makes the exception of it."""

    message: str
    code: str = "MODEL_FAILED"
    retryable: bool = False
    retry_after: float | None = None
    overflow: bool = False
    cause: BaseException | None = field(default=None, eq=False, repr=False, metadata=UNWRITTEN)


class KernelError(Exception):
    """The root of all errors of the kernel."""

    code: ClassVar[str] = "KERNEL"


class AgentBusyError(KernelError):
    """A run owns the conversation. Its text begins "Agent is already running" (checkpoint 09)."""

    code = "AGENT_BUSY"


class AgentClosedError(KernelError):
    """The agent was closed."""

    code = "AGENT_CLOSED"


class NothingToDoError(KernelError):
    """What was asked for has nothing to work on."""

    code = "NOTHING_TO_DO"


class NothingToContinueError(NothingToDoError):
    """No message waits for an answer and nothing is queued."""

    code = "NOTHING_TO_CONTINUE"


class NothingToCompactError(NothingToDoError):
    """Nothing is older than what a compaction would keep."""

    code = "NOTHING_TO_COMPACT"


class QueueFullError(KernelError):
    """Both queues together hold as much as `queue_limit` allows."""

    code = "QUEUE_FULL"


class MessageLimitError(KernelError):
    """The transcript has no room: the message could never be answered."""

    code = "AGENT_MESSAGE_LIMIT"


class ReentrancyError(KernelError):
    """A callable waits for the very run that waits for it."""

    code = "REENTRANT"


class WrongLoopError(KernelError, RuntimeError):
    """There is no running event loop, or the run belongs to another loop or thread."""

    code = "WRONG_LOOP"


class EventsLostError(KernelError):
    """A consumer did not read, and events `first` to `last` (inclusive) are gone for it."""

    code = "EVENTS_LOST"

    def __init__(self, first: int, last: int) -> None:
        super().__init__(
            f"this iterator fell behind: events {first} to {last} were dropped; the run and its subscribers went on. "
            "Read faster, raise KernelConfig.event_buffer, or subscribe() instead"
        )
        self.first = first
        self.last = last


class ModelError(KernelError):
    """A request to a model failed. Raised by models; what the kernel does depends on the fields.

    *retryable*: it may pass, and the same request is sent again after a backoff. *retry_after*: seconds that the
    provider asked to wait. *overflow*: the context did not fit, and a compaction may help.
    """

    code = "MODEL_FAILED"

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after: float | None = None, overflow: bool = False
    ) -> None:
        if retry_after is not None and (isinstance(retry_after, bool) or not isinstance(retry_after, (int, float))):
            raise TypeError(f"retry_after must be a number of seconds or None, not {retry_after!r}")
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.overflow = overflow


class RunFailedError(KernelError):
    """A run failed for a reason of its own: a limit, a deadline, a listener. `code` tells which."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]


class KernelBug(KernelError):  # noqa: N818  # a bug is not an error of the caller's or the world's
    """The kernel broke its own rules. It is `RunResult.error`, never raised; please report it."""

    code = "AGENT_STATE_FAILED"


def describe(error: BaseException) -> str:
    """What *error* says; its type's name when it says nothing, or can't. Never empty.

    >>> describe(ValueError("no such file")), describe(KeyError("path")), describe(ValueError())
    ('no such file', "KeyError: 'path'", 'ValueError')
    """
    try:
        said = str(error).strip()
    except Exception:
        said = ""
    name = type(error).__name__
    if said and isinstance(error, KeyError):
        return f"{name}: {said}"  # it says only the key
    return said or name


def failure_of(error: BaseException) -> Failure:
    """*error*, raised by a model or a hook, as data."""
    if not isinstance(error, ModelError):
        return Failure(describe(error), cause=error)
    # A subclass need not have called our constructor, and may have set anything afterwards.
    after = getattr(error, "retry_after", None)
    return Failure(
        describe(error),
        ModelError.code,
        retryable=bool(getattr(error, "retryable", False)),
        retry_after=_seconds(after),
        overflow=bool(getattr(error, "overflow", False)),
        cause=error,
    )


def _seconds(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or value != value:
        return None
    return float(min(max(value, 0), sys.float_info.max))  # for ever, and more than a float holds, are long waits as well


def error_of(failure: Failure) -> KernelError:
    """The exception that stands for *failure*; the original one where there is one of ours."""
    if isinstance(failure.cause, KernelError):
        return failure.cause
    error: KernelError
    if failure.code == ModelError.code:
        error = ModelError(failure.message, overflow=failure.overflow)
    elif failure.code == KernelBug.code:
        error = KernelBug(failure.message)
    elif failure.code == MessageLimitError.code:
        error = MessageLimitError(failure.message)
    else:
        error = RunFailedError(failure.message, failure.code)
    error.__cause__ = failure.cause
    return error
