"""The way to a provider: its official SDK, its address and key, and a client for each event loop."""

import asyncio
import importlib
import os
import weakref
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any, Final, Self, final
from urllib.parse import urlsplit

from attrs import frozen

from kernel.errors import ModelError
from kernel.models.failures import error_of_sdk

_SHORT: Final = 7
"""Characters up to which a key is none: "none", "k", "EMPTY" are words that a text may have."""


@final
@frozen
class Provider:
    """What differs between the two: the SDK's name and its client, the provider's address, and where address and key stand
    in the environment.
    """

    sdk: str
    client: str
    url: str
    url_variable: str
    key_variable: str


@final
class Connection:
    """A provider's server and the clients that ask it.

    They never ask twice by themselves: to try again is the kernel's phase `retry`, with an event for each attempt.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        timeout: float | None = None,
    ) -> None:
        self.sdk = _sdk(provider.sdk)
        if client is None:
            url = base_url or os.environ.get(provider.url_variable) or provider.url
            self.where = host_of(url)
            self._key = key = _key(api_key, provider, needed=self.where == host_of(provider.url))
            self._clients: Clients | None = Clients(lambda: self._made(provider, url, key, timeout))
            return
        if base_url is not None or api_key is not None or timeout is not None:
            raise TypeError("client has an address, a key and a timeout already: leave out base_url, api_key and timeout")
        if not isinstance(client, getattr(self.sdk, provider.client)):
            raise TypeError(f"client must be an {provider.sdk}.{provider.client}, not {client!r}")
        self.where = host_of(str(client.base_url))
        self._key = str(client.api_key or "")
        self._own = client.with_options(max_retries=0)
        self._clients = None

    def _made(self, provider: Provider, url: str, key: str, timeout: float | None) -> Any:
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        if url.startswith("http:"):
            # To keep a connection saves the handshake of TLS, which is not made here; and small servers, llama.cpp's for
            # one, close theirs after a response without saying so, just when the next request is on its way.
            limits = importlib.import_module("httpx2").Limits(max_keepalive_connections=0)
            more["http_client"] = self.sdk.DefaultAsyncHttpxClient(limits=limits)
        return getattr(self.sdk, provider.client)(base_url=url, api_key=key, max_retries=0, **more)

    async def client(self) -> Any:
        """A client for the running loop."""
        return self._own if self._clients is None else await self._clients.client()

    async def aclose(self) -> None:
        """Close the connections of the running loop; a client of the user's own stays open."""
        if self._clients is not None:
            await self._clients.aclose()

    def check(self, stream: Any) -> None:
        """Refuse a response that is no stream. Something in between may have answered, so it may pass; if it does not, the
        sentence says more than that a stream broke off.
        """
        kind = stream.response.headers.get("content-type", "")
        if kind.startswith(("application/json", "text/html")):
            said = f"it answered with {kind.partition(';')[0]} and not with a stream; check base_url"
            raise ModelError(said, retryable=True)

    def error(self, error: Exception) -> ModelError:
        """What went wrong, in one sentence that names the server, and never with the key: some servers repeat it."""
        told = error_of_sdk(error, self.sdk, self.where)
        text = f"{self.where}: {told}" if told is error else str(told)
        if len(self._key) > _SHORT:
            text = text.replace(self._key, "[the key]")
        return ModelError(text, retryable=told.retryable, retry_after=told.retry_after, overflow=told.overflow)


class HostedModel:
    """What the models of both providers are: a name at a connection, closed by `aclose` or by `async with`."""

    def __init__(
        self, name: str, connection: Connection, context_window: int | None, options: dict[str, Any], ours: frozenset[str]
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"name must be the name of a model, not {name!r}")
        if taken := sorted(ours & options.keys()):
            raise TypeError(f"{', '.join(taken)} can't be an option: the kernel says it with each request")
        self.name = name
        self.context_window = context_window
        self._connection = connection
        self._options = options

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._connection.where})"

    async def aclose(self) -> None:
        """Close the connections that this event loop has open. A client of your own stays open."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _sdk(name: str) -> Any:
    """Imported where a model is made, and not with its first request: it takes a second, which an event loop has not."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        said = f'this model needs the SDK {name}: pip install "phasekernel[{name}]"'
        raise ModuleNotFoundError(said, name=name) from error


def _key(given: str | None, provider: Provider, *, needed: bool) -> str:
    """The key to use. A server of one's own is content with any."""
    key = given if given is not None else os.environ.get(provider.key_variable)
    key = key.strip() if key is not None else None  # a line end that came with it is none of its characters
    if key is not None and not (key and key.isascii() and key.isprintable()):
        raise ValueError(
            f"the key is empty or has characters that no key has: set {provider.key_variable} in the environment, or pass "
            "api_key"
        )
    if key is None and needed:
        raise ValueError(f"a key is needed: set {provider.key_variable} in the environment, or pass api_key")
    return key or "none"


def host_of(url: str) -> str:
    """The server that *url* names, without what may be secret in it; ValueError when it is no address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url must be an address such as http://127.0.0.1:8080/v1, not {url!r}")
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"base_url has a port that is none: {parts.netloc.rpartition('@')[2]!r}") from error
    return f"{parts.scheme}://{parts.hostname}{f':{port}' if port else ''}"


@final
class Clients:
    """A client for each event loop, closed with the loop or by `aclose`.

    A client keeps connections open for the next request, and they belong to the loop that opened them: one client for all
    loops would break in the second `run_sync`. What closes a client in time is an async generator that is left in the
    middle: `loop.shutdown_asyncgens`, with which every well-ended loop ends, closes it, and it closes the client.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._living: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, Any]] = weakref.WeakKeyDictionary()

    async def client(self) -> Any:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._living.get(loop)
        if found is None:
            client = self._make()
            life = _alive(client)
            self._living[loop] = found = (client, life)
            await anext(life)
        return found[0]

    async def aclose(self) -> None:
        """Close the client of the running loop, with its connections. The next request opens a new one."""
        found = self._living.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[1].aclose()


async def _alive(client: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.close()
