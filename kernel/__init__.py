"""phasekernel: an embeddable kernel for LLM agents whose lifecycle is a declared, checked statechart.

When the package `statechart` that would be imported is not ours (PyPI has another of that name), the names below raise an
ImportError that says so; `python -m kernel doctor` still works.
"""

from kernel.ours import foreign_statechart

_FOREIGN = foreign_statechart()

if _FOREIGN is None:
    from kernel.agent import Agent
    from kernel.config import CompactionPolicy, KernelConfig, RetryPolicy, UsageLimit
    from kernel.errors import (
        AgentBusyError,
        AgentClosedError,
        EventsLostError,
        KernelBug,
        KernelError,
        MessageLimitError,
        ModelError,
        NothingToCompactError,
        NothingToContinueError,
        NothingToDoError,
        QueueFullError,
        ReentrancyError,
        RunFailedError,
        WrongLoopError,
    )
    from kernel.events import Event, RunResult
    from kernel.messages import (
        AssistantMessage,
        CustomMessage,
        Finished,
        Image,
        Message,
        Reasoning,
        ReasoningDelta,
        StopReason,
        SummaryMessage,
        Text,
        TextDelta,
        ToolCall,
        ToolCallDelta,
        ToolMessage,
        Usage,
        UserMessage,
    )
    from kernel.ports import Block, Compactor, Estimator, Hooks, Model, ModelRequest, Tool, ToolContext, ToolResult
    from kernel.run import Run
    from kernel.shell import Receipt
    from kernel.snapshot import AbandonedWork, AgentState, Queued
    from kernel.tools import tool
    from statechart import Phase
else:

    def __getattr__(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(_FOREIGN)


__all__ = [
    "AbandonedWork",
    "Agent",
    "AgentBusyError",
    "AgentClosedError",
    "AgentState",
    "AssistantMessage",
    "Block",
    "CompactionPolicy",
    "Compactor",
    "CustomMessage",
    "Estimator",
    "Event",
    "EventsLostError",
    "Finished",
    "Hooks",
    "Image",
    "KernelBug",
    "KernelConfig",
    "KernelError",
    "Message",
    "MessageLimitError",
    "Model",
    "ModelError",
    "ModelRequest",
    "NothingToCompactError",
    "NothingToContinueError",
    "NothingToDoError",
    "Phase",
    "QueueFullError",
    "Queued",
    "Reasoning",
    "ReasoningDelta",
    "Receipt",
    "ReentrancyError",
    "RetryPolicy",
    "Run",
    "RunFailedError",
    "RunResult",
    "StopReason",
    "SummaryMessage",
    "Text",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolMessage",
    "ToolResult",
    "Usage",
    "UsageLimit",
    "UserMessage",
    "WrongLoopError",
    "tool",
]
