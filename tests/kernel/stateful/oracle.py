"""What a command must answer: by the compiled decision table, and, while idle, by the words of the design alone."""

from typing import Any, Final

from kernel import Agent, AssistantMessage, KernelConfig, errors
from kernel.guards import GUARDS
from kernel.state import CoreState
from statechart import Ask, Command, Refuse, Step, decisions

ERRORS: Final = {
    kind.code: kind
    for kind in (
        errors.AgentBusyError, errors.AgentClosedError, errors.NothingToContinueError, errors.NothingToCompactError,
        errors.QueueFullError, errors.MessageLimitError,
    )
}  # fmt: skip


def core_of(agent: Agent) -> CoreState:
    """What the agent's core remembers: the only look behind its public face."""
    return agent._shell.core.state


def decision_for(core: CoreState, command: Command) -> Step | Refuse:
    """What the table says, with the kernel's own guards."""
    node = decisions()[core.leaf][command]
    while isinstance(node, Ask):
        node = node.yes if GUARDS[node.guard](core, None) else node.no
    assert node is not None
    return node


def error_for(decision: Step | Refuse) -> type[errors.KernelError] | None:
    """The error that the caller must get; None when the command is accepted."""
    return ERRORS[decision.refusal] if isinstance(decision, Refuse) else None


def errors_while_idle(agent: Agent, config: KernelConfig, command: Command) -> set[Any]:
    """The errors, or None, that *command* may get while the agent idles, from what everybody can see."""
    queued = agent.queued
    waiting = len(queued.steering) + len(queued.follow_up)
    limit = config.message_limit
    fits = limit is None or limit - len(agent.messages) - 2 * waiting >= 2
    match command:
        case Command.PROMPT:
            return {None if fits else errors.MessageLimitError}
        case Command.STEER | Command.FOLLOW_UP:
            if config.queue_limit is not None and waiting >= config.queue_limit:
                return {errors.QueueFullError}
            return {None if fits else errors.MessageLimitError}
        case Command.CONTINUE:
            context = [m for m in agent.messages if not (isinstance(m, AssistantMessage) and m.is_cut)]
            owed = bool(context) and context[-1].role != "assistant"
            goes_on = bool(agent.messages) and (owed or waiting > 0)
            return {None if goes_on else errors.NothingToContinueError}
        case Command.COMPACT:
            return {errors.NothingToCompactError, None if config.compaction is not None else errors.NothingToCompactError}
    return {None}
