"""The sentences of the errors that refuse a command: who erred, what was asked, in which phase, and what to do."""

from typing import Final, assert_never

from kernel.errors import (
    AgentBusyError,
    AgentClosedError,
    KernelError,
    MessageLimitError,
    NothingToCompactError,
    NothingToContinueError,
    QueueFullError,
)
from kernel.state import CoreState
from statechart import Command, Refusal

NAMES: Final = {Command.CLOSE: "aclose"}
"""Where a method has another name than its command."""


def refuse(refusal: Refusal, command: Command, state: CoreState) -> KernelError:
    """The error for *command*, which the lifecycle refuses with *refusal* in this *state*."""
    asked = f"{NAMES.get(command, command)}() was called in phase {state.phase}"
    waiting = len(state.steering) + len(state.follow_up)
    match refusal:
        case Refusal.BUSY:
            return AgentBusyError(
                f"Agent is already running: {asked}. Use steer() or follow_up() to add a message to this run, "
                "cancel() to stop it, or await wait_for_idle() first"
            )
        case Refusal.CLOSED:
            return AgentClosedError(f"the agent is closed: {asked}. Make a new Agent(messages=agent.messages)")
        case Refusal.NOTHING_TO_CONTINUE:
            return NothingToContinueError(
                f"nothing to continue: {asked}, with {len(state.transcript)} messages of which none waits for an answer "
                f"and {waiting} queued. Use prompt(), or follow_up() first"
            )
        case Refusal.NOTHING_TO_COMPACT:
            return NothingToCompactError(
                f"nothing to compact: {asked}, and nothing but a summary is older than the turns that compaction keeps"
            )
        case Refusal.QUEUE_FULL:
            return QueueFullError(
                f"the queues are full: {asked} with {waiting} messages waiting, and queue_limit is "
                f"{state.config.queue_limit}. Wait for a delivery, or unqueue() something"
            )
        case Refusal.MESSAGE_LIMIT:
            return MessageLimitError(
                f"no room in the transcript: {asked} with {len(state.transcript)} messages and {waiting} queued, "
                f"{state.free_messages()} free and 2 needed; message_limit is {state.config.message_limit}. "
                "compact() or reset() first"
            )
        case _:
            assert_never(refusal)
