"""Asking the estimator, and what stands when it fails: the guess from the length of the text, and a word about it.

A failure is kept until the next request is projected, and told there as `hook.failed` beside what the hooks did wrong:
that is the next place where something may be told before anything starts.
"""

import inspect
from collections.abc import Sequence
from typing import Final, final

from kernel.errors import describe
from kernel.estimators import LengthEstimator
from kernel.messages import Message
from kernel.ports import Estimator

_NAME: Final = "estimator"
_FALLBACK: Final = LengthEstimator()


@final
class Counting:
    """An agent's estimator, with the failures of it that nobody has been told of yet."""

    __slots__ = ("_estimator", "_failures")

    def __init__(self, estimator: Estimator | None) -> None:
        self._estimator = estimator or _FALLBACK
        self._failures: tuple[tuple[str, str], ...] = ()

    def tokens(self, messages: Sequence[Message]) -> int:
        """The estimate for *messages*."""
        try:
            return _checked(self._estimator.estimate(messages))
        except Exception as error:
            self._failures = ((_NAME, describe(error)),)
            return _FALLBACK.estimate(messages)

    def take_failures(self) -> tuple[tuple[str, str], ...]:
        """The failure since the last time, as `Projected` has it; the newest stands for all."""
        failures, self._failures = self._failures, ()
        return failures


def _checked(tokens: object) -> int:
    if inspect.iscoroutine(tokens):
        tokens.close()
        raise TypeError("an estimator's estimate must be an ordinary function, not an async one")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise TypeError(f"an estimator must return an int that is not negative, not {tokens!r}")
    return tokens
