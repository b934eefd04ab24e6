"""Ready configurations for the three contracts that the kernel honours, and its own."""

from typing import Final

from kernel.config import KernelConfig

DEFAULT: Final = KernelConfig()
"""Listeners are awaited, a failing one is recorded, a cut message is kept and marked, failures become messages."""

CHAPTER_06: Final = KernelConfig(subscriber_failure="fail_run", max_turns=None)
"""The kernel of chapter 06: an exception of a subscriber is a failure of the run."""

CHECKPOINT_09: Final = KernelConfig(
    subscribers="observe",
    interrupted_message="discard",
    failure_message="result_only",
    retry=None,
    compaction=None,
    max_turns=20,
)
"""The agent of checkpoint 09: listeners are observed, cancellation and failure leave no message."""

PI_0_85: Final = KernelConfig(
    subscriber_failure="fail_run",
    retry=None,
    compaction=None,
    max_turns=None,
    queue_limit=None,
    message_limit=None,
)
"""The Pi SDK 0.85.0, where our guarantees allow it."""
