"""The table of failures, row by row, and what is read beside it."""

import pytest

from kernel.models.failures import MEANINGS, error_from, meaning_of, retry_after

ROWS = [pytest.param(row, id=row.what) for row in MEANINGS]


@pytest.mark.parametrize("row", ROWS)
def test_each_word_of_a_row_leads_to_it(row):
    """Each name, each text and each status of it, unless a row before has the same."""
    for name in row.names:
        assert meaning_of({name}) is row
        assert meaning_of({name.upper(), "invalid_request_error"}, 400) is row
    for text in row.texts:
        assert meaning_of((), 400, f"Sorry: {text.capitalize()}.") is row
    earlier = {status for before in MEANINGS[: MEANINGS.index(row)] for status in before.statuses}
    for status in set(row.statuses) - earlier:
        assert meaning_of((), status) is row


@pytest.mark.parametrize("row", ROWS)
def test_no_row_contradicts_itself(row):
    """What does not fit does not pass by itself, and what is told by statuses alone says what to do or may pass."""
    assert not (row.overflow and row.retryable)
    assert row.names or row.texts or row.statuses


def test_names_come_before_statuses():
    assert meaning_of({"overloaded_error"}, 200).retryable
    assert not meaning_of({"insufficient_quota"}, 429).retryable
    assert meaning_of({"context_length_exceeded", "invalid_request_error"}, 400).overflow


@pytest.mark.parametrize(
    ("names", "status", "retryable"),
    [
        ((), None, True), ({"unheard_of"}, None, True), ({"invalid_request_error"}, None, False), ((), 418, False),
        ((), 599, True),
    ],
)  # fmt: skip
def test_what_no_row_knows(names, status, retryable):
    """A stream that broke for no known reason may pass; a status decides by its hundred."""
    assert meaning_of(names, status).retryable is retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after": "0"}, 0.0), ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25), ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0), ({"retry-after": "-3"}, None), ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None), ({"retry-after": "9" * 400}, None), ({"retry-after": ""}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0), ({"retry-after": "Thu, 99 Foo"}, None),
        ({"retry-after": "1970-01-01"}, None),
    ],
)  # fmt: skip
def test_how_long_to_wait(headers, seconds):
    assert retry_after(headers) == seconds


def test_a_wait_is_told_only_where_waiting_helps():
    """A spent quota with Retry-After stays spent."""
    error = error_from({"error": {"code": "insufficient_quota", "message": "no"}}, 429, {"retry-after": "7"}, where="x")
    assert (error.retryable, error.retry_after) == (False, None)


@pytest.mark.parametrize("payload", [None, [], "", 3, {}, {"error": None}, {"error": []}, {"error": {"message": None}}])
def test_any_payload_makes_an_error_that_says_something(payload):
    assert str(error_from(payload, 500, where="the server")).startswith("the server: the provider failed (HTTP 500: ")


def test_long_words_are_cut():
    assert len(str(error_from("x" * 10**6, 500, where="w"))) < 1200
