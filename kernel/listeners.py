"""Who listens to an agent. The list is replaced, never changed, so each event goes to those who listened when its delivery
began.
"""

from collections.abc import Callable
from types import TracebackType
from typing import final

from kernel.ports import Listener


@final
class Subscription:
    """What `subscribe` returns: call it, or leave its `with` block, to stop listening. Doing so twice does nothing."""

    __slots__ = ("_remove",)

    def __init__(self, remove: Callable[["Subscription"], None]) -> None:
        self._remove: Callable[[Subscription], None] | None = remove

    def __call__(self) -> None:
        remove, self._remove = self._remove, None
        if remove is not None:
            remove(self)

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self()


@final
class Listeners:
    """The listeners of an agent, in the order in which they came. The same callable twice is two of them."""

    __slots__ = ("_subscriptions", "all")

    def __init__(self) -> None:
        self.all: tuple[Listener, ...] = ()
        self._subscriptions: tuple[Subscription, ...] = ()

    def add(self, listener: Listener) -> Subscription:
        """Listen from the next event on."""
        subscription = Subscription(self._remove)
        self._subscriptions = (*self._subscriptions, subscription)
        self.all = (*self.all, listener)
        return subscription

    def _remove(self, subscription: Subscription) -> None:
        place = self._subscriptions.index(subscription)
        self._subscriptions = self._subscriptions[:place] + self._subscriptions[place + 1 :]
        self.all = self.all[:place] + self.all[place + 1 :]
