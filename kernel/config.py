"""The policies and the limits of an agent, each with the reason for its number.

Where chapter 06, checkpoint 09 and Pi differ, the difference is a policy here; `kernel.profiles` has one ready
configuration for each of them.
"""

from typing import Any, Literal, final

from attrs import Attribute, field, frozen
from attrs.validators import in_

from kernel.checks import count, is_a, is_seconds, or_none
from kernel.values import Value


def _positive(instance: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{attribute.name} must be an int, not {value!r}")
    if value < 1:
        raise ValueError(f"{attribute.name} must be at least 1, not {value}")


def _seconds(instance: Any, attribute: "Attribute[Any]", value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{attribute.name} must be a number of seconds, not {value!r}")
    if not is_seconds(value):
        raise ValueError(f"{attribute.name} must be a finite number of seconds that is not negative, not {value}")


@final
@frozen(eq=False, repr=False, kw_only=True)
class RetryPolicy(Value):
    """How failures that may pass are waited out. The n-th wait is drawn from 0 to min(max_delay, base_delay * 2^(n-1))."""

    max_attempts: int = field(default=3, validator=_positive)
    """All requests of one turn, the first included. Three: a provider's short overload passes, a real one does not."""
    base_delay: float = field(default=1.0, validator=_seconds)
    """Seconds. One: what providers' own clients begin with."""
    max_delay: float = field(default=60.0, validator=_seconds)
    """Seconds; also the cap of a provider's own `retry_after`. A minute: longer, and a user should decide."""


@final
@frozen(eq=False, repr=False, kw_only=True)
class CompactionPolicy(Value):
    """When older messages become a summary, and what is kept."""

    reserve: int = field(default=16_384, validator=count)
    """Tokens kept free below the window: room for a long answer with its reasoning."""
    keep_turns: int = field(default=2, validator=_positive)
    """Completed turns that stay as they are, with the user messages that opened them. Two: the work at hand."""
    window: int | None = field(default=None, validator=or_none(_positive))
    """Tokens of the model's context; None takes `Model.context_window`."""


@final
@frozen(eq=False, repr=False, kw_only=True)
class UsageLimit(Value):
    """What one run may use. A limit stops what would come next and undoes nothing: the answer that crosses it is kept.

    None of them counts the summaries of a compaction, which are no requests of the run.
    """

    tokens: int | None = field(default=None, validator=or_none(_positive))
    """Input and output tokens of all responses together, as the model tells them. Reached: no further request."""
    requests: int | None = field(default=None, validator=or_none(_positive))
    """Requests to the model, retries included. Reached: no further one."""
    tool_calls: int | None = field(default=None, validator=or_none(_positive))
    """Tool calls that the model asks for. A response whose calls go beyond has none of them executed."""


@final
@frozen(eq=False, repr=False, kw_only=True)
class KernelConfig(Value):
    """How an agent behaves where there is a choice. `None` in a limit is the explicit choice of no limit."""

    subscribers: Literal["await", "observe"] = field(default="await", validator=in_(("await", "observe")))
    """Awaitables of listeners are awaited in registration order and count into settlement, or only observed."""
    subscriber_failure: Literal["record", "fail_run"] = field(default="record", validator=in_(("record", "fail_run")))
    """A failing listener is recorded and the run goes on, or it fails the run."""
    steering_mode: Literal["one", "all"] = field(default="one", validator=in_(("one", "all")))
    """How many steering messages enter at one drain point."""
    follow_up_mode: Literal["one", "all"] = field(default="one", validator=in_(("one", "all")))
    """How many follow-ups enter at one drain point."""
    tool_execution: Literal["parallel", "sequential"] = field(
        default="parallel", validator=in_(("parallel", "sequential"))
    )
    """Calls of one response run together (unless a tool asks for the opposite), or one after the other."""
    interrupted_message: Literal["keep", "discard"] = field(default="keep", validator=in_(("keep", "discard")))
    """What a cancelled or failed response leaves in the transcript: what it had said, marked, or nothing."""
    failure_message: Literal["synthesize", "result_only"] = field(
        default="synthesize", validator=in_(("synthesize", "result_only"))
    )
    """A failure becomes an assistant message with stop reason `error`, or is told by the result alone."""
    retry: RetryPolicy | None = field(factory=RetryPolicy, validator=or_none(is_a(RetryPolicy)))
    """How a failed request that may pass is sent again; None: the first failure is the run's."""
    compaction: CompactionPolicy | None = field(
        factory=CompactionPolicy, validator=or_none(is_a(CompactionPolicy))
    )
    """When older messages become a summary; None: never, an overflow is the run's failure."""
    max_turns: int | None = field(default=200, validator=or_none(_positive))
    """Turns of one run. 200: more than long coding tasks need, little enough to end a loop that goes nowhere."""
    usage_limit: UsageLimit | None = field(default=None, validator=or_none(is_a(UsageLimit)))
    """Tokens, requests and tool calls of one run; the run then fails with `USAGE_LIMIT`. None: what a task may cost is the
    application's to know.
    """
    queue_limit: int | None = field(default=256, validator=or_none(_positive))
    """Messages in both queues together (checkpoint 09): more than anyone types."""
    message_limit: int | None = field(default=4096, validator=or_none(_positive))
    """Messages of the transcript (checkpoint 09): one that has grown so far should be compacted, or made anew."""
    call_limit: int = field(default=64, validator=_positive)
    """Tool calls in one response: above it a model is stuck in a loop; the number also bounds the reservation."""
    cancel_grace: float = field(default=5.0, validator=_seconds)
    """Seconds from an accepted cancel until what ignores it is abandoned. Five: a file is flushed, a user still waits."""
    tool_timeout: float | None = field(default=None, validator=or_none(_seconds))
    """Seconds for a tool's body. None: a build may take an hour, and only its author knows."""
    stream_idle_timeout: float | None = field(default=300.0, validator=or_none(_seconds))
    """Seconds without any part of a response. Five minutes: the longest silence of a reasoning model we know of."""
    run_deadline: float | None = field(default=None, validator=or_none(_seconds))
    """Seconds for a whole run. None: how long a task may take is its own business."""
    event_buffer: int = field(default=4096, validator=_positive)
    """Events held for the reader of a run that does not read. Some megabytes at most."""
