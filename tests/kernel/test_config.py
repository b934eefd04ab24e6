"""Every field of the configuration: what it refuses, by name, and what is just allowed."""

from typing import Any

import pytest

from kernel import (
    CompactionPolicy,
    KernelConfig,
    RetryPolicy,
)


def wrong(argument: str) -> Any:
    return pytest.raises((TypeError, ValueError), match=argument)


SECONDS = ("cancel_grace", "tool_timeout", "stream_idle_timeout", "run_deadline")
COUNTS = ("max_turns", "queue_limit", "message_limit", "call_limit", "event_buffer")
CHOICES = ("subscribers", "subscriber_failure", "steering_mode", "follow_up_mode", "tool_execution", "interrupted_message",
           "failure_message")  # fmt: skip


class TestConfig:
    @pytest.mark.parametrize("value", [0, -1, 1.0, "1", True, [1]], ids=repr)
    @pytest.mark.parametrize("name", COUNTS)
    def test_counts(self, name: str, value: Any) -> None:
        """A count is an int of at least 1."""
        with wrong(name):
            KernelConfig(**{name: value})

    @pytest.mark.parametrize("value", [-1, -0.1, float("nan"), float("inf"), "1", True], ids=repr)
    @pytest.mark.parametrize("name", SECONDS)
    def test_seconds(self, name: str, value: Any) -> None:
        """Seconds are a finite number that is not negative."""
        with wrong(name):
            KernelConfig(**{name: value})

    @pytest.mark.parametrize("value", ["", "Await", None, 1, True], ids=repr)
    @pytest.mark.parametrize("name", CHOICES)
    def test_choices(self, name: str, value: Any) -> None:
        """A policy is one of its words."""
        with wrong(name):
            KernelConfig(**{name: value})

    @pytest.mark.parametrize(("name", "value"), [("retry", 3), ("retry", {}), ("compaction", True), ("compaction", "on")])
    def test_policies(self, name: str, value: Any) -> None:
        """A policy with numbers is its own value, or None."""
        with wrong(name):
            KernelConfig(**{name: value})

    @pytest.mark.parametrize(
        ("policy", "name", "value"),
        [
            (RetryPolicy, "max_attempts", 0),
            (RetryPolicy, "max_attempts", 1.5),
            (RetryPolicy, "base_delay", -1),
            (RetryPolicy, "max_delay", float("inf")),
            (CompactionPolicy, "reserve", -1),
            (CompactionPolicy, "reserve", True),
            (CompactionPolicy, "keep_turns", 0),
            (CompactionPolicy, "window", 0),
        ],
    )
    def test_numbers_of_policies(self, policy: Any, name: str, value: Any) -> None:
        """The numbers of the policies are checked as well."""
        with wrong(name):
            policy(**{name: value})

    @pytest.mark.parametrize("name", ["call_limit", "cancel_grace", "event_buffer"])
    def test_what_must_be_there(self, name: str) -> None:
        """The limits that keep the kernel bounded can't be switched off."""
        with wrong(name):
            KernelConfig(**{name: None})

    def test_the_edges_are_allowed(self) -> None:
        """The least of each is allowed."""
        KernelConfig(**dict.fromkeys(COUNTS, 1), **dict.fromkeys(SECONDS, 0))
        KernelConfig(max_turns=None, queue_limit=None, message_limit=None, retry=None, compaction=None)
        CompactionPolicy(reserve=0, keep_turns=1, window=1), RetryPolicy(max_attempts=1, base_delay=0, max_delay=0)
