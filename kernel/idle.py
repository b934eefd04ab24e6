"""The state of a core between two runs as a value: what a journal can begin with instead of all that was before.

Only while no run is going: then the state is the conversation, the queues and a few numbers, and a run that is going
would be half of it more. A core that is made of it goes on as the one that it was taken of.
"""

from collections.abc import Callable
from typing import final

from attrs import frozen

from kernel.config import KernelConfig
from kernel.core import Core, Shadow
from kernel.inputs import Input, QueuedItem
from kernel.messages import Message
from kernel.setup import Setup
from kernel.state import CoreState, HeldCall, ListenerFailure
from kernel.transcript import Transcript
from kernel.values import Value
from statechart import Leaf, phase_of


@final
@frozen(eq=False, repr=False)
class Idle(Value):
    """All that an idle core remembers beside its configuration and setup."""

    leaf: Leaf
    messages: tuple[Message, ...]
    turn_ends: tuple[int, ...]
    archive: tuple[Message, ...]
    steering: tuple[QueuedItem, ...]
    follow_up: tuple[QueuedItem, ...]
    context_tokens: int
    counted: int
    error_message: str | None
    listener_failures: tuple[ListenerFailure, ...]
    listener_failure_count: int
    abandoned: tuple[tuple[int, HeldCall], ...]
    barrier: int
    numbers: int


def idle_of(state: CoreState) -> Idle:
    """The state of a core between two runs. Raises ValueError while a run is going."""
    if state.run is not None:
        raise ValueError(f"the run {state.run.id} is going: only an idle agent has a state that can be taken as a value")
    return Idle(
        leaf=state.leaf,
        messages=tuple(state.transcript.messages),
        turn_ends=tuple(state.transcript.turn_ends),
        archive=state.archive,
        steering=tuple(state.steering),
        follow_up=tuple(state.follow_up),
        context_tokens=state.context_tokens,
        counted=state.counted,
        error_message=state.error_message,
        listener_failures=tuple(state.listener_failures),
        listener_failure_count=state.listener_failure_count,
        abandoned=tuple(state.abandoned.items()),
        barrier=state.barrier,
        numbers=state.numbers,
    )


def core_of(
    idle: Idle,
    config: KernelConfig,
    setup: Setup,
    hooks: frozenset[str] = frozenset(),
    *,
    record: Callable[[Input], None] | None = None,
    shadow: Shadow | None = None,
) -> Core:
    """A core that goes on as the one that *idle* was taken of; the other arguments as for `Core`."""
    core = Core(config, setup, hooks, record=record, shadow=shadow)
    state = core.state
    state.leaf, state.phase = idle.leaf, phase_of(idle.leaf)
    state.transcript = Transcript(idle.messages)
    state.transcript.turn_ends = list(idle.turn_ends)
    state.archive = idle.archive
    state.steering, state.follow_up = list(idle.steering), list(idle.follow_up)
    state.context_tokens, state.counted = idle.context_tokens, idle.counted
    state.error_message = idle.error_message
    state.listener_failures = idle.listener_failures
    state.listener_failure_count = idle.listener_failure_count
    state.abandoned = dict(idle.abandoned)
    state.close_wanted = idle.leaf is Leaf.CLOSED
    state.barrier, state.numbers = idle.barrier, idle.numbers
    return core
