"""What the failures of providers mean, as one table: may the same request be sent again, is the context too long, and what
can be done about it.

A provider tells of a failure by names (`code`, `type`), by an HTTP status, or by text alone, and not always by the right
one: Anthropic sends `overloaded_error` in a stream whose status is 200, and OpenAI sends a spent quota with 429, the status
of what passes. So names and texts are asked first, in the order of the rows, then statuses, then names that say nothing
but "no".

Sources: the policies of the two official SDKs (what they would send again by themselves), the error references of OpenAI
and Anthropic, and what llama.cpp, vLLM and OpenRouter answer.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, final

from attrs import frozen

from kernel.errors import ModelError, describe

_CHARACTERS: Final = 1_000
"""Characters of a provider's own words: enough for any sentence, and an HTML page does not fill the screen."""


@final
@frozen(kw_only=True)
class Meaning:
    """A row: by what it is known, what it means, and what to do."""

    what: str
    retryable: bool = False
    overflow: bool = False
    advice: str = ""
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Parts of a text in lower case. Only for what providers tell by text alone."""
    statuses: tuple[int, ...] | range = ()


MEANINGS: Final = (
    Meaning(
        what="the conversation does not fit the model's context",
        overflow=True,
        names=("context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"),
        texts=(
            "prompt is too long", "maximum context length", "context window", "exceeds the available context size",
            "input is too long", "too many tokens", "request_too_large", "reduce the length of the messages",
        ),
        statuses=(413,),
    ),
    Meaning(
        what="the account has nothing left to spend",
        advice="nothing passes before somebody pays, or use another key",
        names=(
            "insufficient_quota", "quota_exceeded", "billing_error", "billing_hard_limit_reached", "billing_not_active",
            "insufficient_credits",
        ),
        texts=("credit balance is too low",),
        statuses=(402,),
    ),
    Meaning(
        what="the provider's content filter refused",
        names=("content_filter", "content_policy_violation", "responsible_ai_policy_violation"),
    ),
    Meaning(
        what="the key was not accepted",
        advice="check the key",
        names=("invalid_api_key", "authentication_error", "incorrect_api_key"),
        statuses=(401,),
    ),
    Meaning(
        what="the key may not do this", advice="use a key that may", names=("permission_error", "permission_denied"),
        statuses=(403,),
    ),
    Meaning(
        what="there is no such model or address",
        advice="check the model's name and base_url",
        names=("model_not_found", "not_found_error"),
        statuses=(404,),
    ),
    Meaning(
        what="too many requests", retryable=True, names=("rate_limit_exceeded", "rate_limit_error", "too_many_requests"),
        statuses=(429,),
    ),
    Meaning(
        what="the provider is overloaded",
        retryable=True,
        names=("overloaded_error", "server_overloaded", "engine_overloaded", "unavailable_error", "service_unavailable"),
        statuses=(503, 529),
    ),
    Meaning(
        what="the provider took too long", retryable=True, names=("timeout", "timeout_error", "request_timeout"),
        statuses=(408, 504, 524),
    ),
    Meaning(what="the request met another one", retryable=True, names=("conflict_error",), statuses=(409,)),
    Meaning(
        what="the provider failed", retryable=True, names=("server_error", "internal_server_error", "internal_error"),
        statuses=range(500, 600),
    ),
    Meaning(what="the provider did not take the request", statuses=range(400, 500)),
)  # fmt: skip
"""The rows, in their order."""
_NO: Final = frozenset({"invalid_request_error", "bad_request_error", "invalid_request", "badrequesterror"})
"""Names that come with almost every status, and decide only where there is none."""
_REFUSED: Final = MEANINGS[-1]
_UNKNOWN: Final = Meaning(what="the provider failed", retryable=True)


def meaning_of(names: Iterable[str], status: int | None = None, text: str = "") -> Meaning:
    """The row for a failure. One that nothing is known of broke the stream, and may pass.

    >>> meaning_of({"overloaded_error"}, 200).retryable, meaning_of({"insufficient_quota"}, 429).retryable
    (True, False)
    """
    known, said = {name.lower() for name in names}, text.lower()
    for row in MEANINGS:
        if known.intersection(row.names) or any(part in said for part in row.texts):
            return row
    if status is not None:
        for row in MEANINGS:
            if status in row.statuses:
                return row
    return _REFUSED if known & _NO else _UNKNOWN


def error_from(
    payload: Any, status: int | None = None, headers: Mapping[str, str] | None = None, *, where: str = ""
) -> ModelError:
    """The error that a provider told of: in a stream, or as the body of a response with the HTTP status *status*.

    *where* names the provider; with it the text says what it means and what can be done.
    """
    error = payload.get("error", payload) if isinstance(payload, Mapping) else payload
    fields = error if isinstance(error, Mapping) else {"message": str(error)}
    code = fields.get("code")
    if status is None and isinstance(code, int) and not isinstance(code, bool):
        status, shown = code, None
    else:
        shown = status
    said = str(fields.get("message") or json.dumps(fields, default=str))
    meaning = meaning_of((str(fields.get(name)) for name in ("code", "type", "status")), status, said)
    text = f"{'' if shown is None else f'HTTP {shown}: '}{said[:_CHARACTERS]}"
    told = dict(headers or {})
    return ModelError(
        f"{where}: {meaning.what} ({text}){meaning.advice and '; '}{meaning.advice}" if where else text,
        retryable=_retryable(meaning, told),
        retry_after=retry_after(told) if meaning.retryable else None,
        overflow=meaning.overflow,
    )


def _retryable(meaning: Meaning, headers: Mapping[str, str]) -> bool:
    """`x-should-retry` is a provider's own word; it can't make room in a context or on an account."""
    word = headers.get("x-should-retry")
    return meaning.retryable and word != "false"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date. None: it does not.

    >>> retry_after({"retry-after": "7"}), retry_after({"retry-after-ms": "250"}), retry_after({"retry-after": "soon"})
    (7.0, 0.25, None)
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        word = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", word):
            return float(word) / unit
    try:
        date = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def error_of_sdk(error: Exception, sdk: Any, where: str) -> ModelError:
    """What an exception of one of the official SDKs (*sdk* is its module), or of the client below it, means.

    The two SDKs are made by one generator, so their classes have the same names and fields.
    """
    if isinstance(error, ModelError):
        return error
    if isinstance(error, sdk.APITimeoutError):
        return ModelError(f"{where} did not answer in time ({_root(error)})", retryable=True)
    if isinstance(error, sdk.APIConnectionError):
        return ModelError(
            f"no connection to {where} ({_root(error)}); is it running, and is base_url right?", retryable=True
        )
    if isinstance(error, sdk.APIStatusError):
        status = error.status_code if error.status_code != 200 else None
        body = error.body if error.body is not None else _page(error.message)
        return error_from(body, status, error.response.headers, where=where)
    if isinstance(error, sdk.APIError):
        return error_from(error.body if error.body is not None else error.message, where=where)
    if isinstance(error, ValueError):  # json.JSONDecodeError and UnicodeDecodeError are
        return ModelError(f"{where} sent what can't be read ({describe(error)})", retryable=True)
    if type(error).__module__.partition(".")[0] in ("httpx2", "httpcore2", "httpx", "httpcore", "anyio"):
        return ModelError(f"the connection to {where} broke off ({_root(error)})", retryable=True)
    return ModelError(f"{where}: the request could not be made ({type(error).__name__}: {describe(error)})")


def _root(error: BaseException) -> str:
    """The first cause that says more than that there was none: "Connection error." helps nobody."""
    while error.__cause__ is not None and (str(error.__cause__) or not str(error)):
        error = error.__cause__
    return describe(error)


def _page(text: str) -> str:
    """An error page of something in between, in one line and without its tags."""
    return " ".join(re.sub(r"<(style|script|head)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE).split())
