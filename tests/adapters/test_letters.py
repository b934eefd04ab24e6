"""Whatever is said, halves of letters included, is told to other programs in text that they can read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.util.genai.handler import TelemetryHandler

from kernel import events as all_events
from kernel.adapters.acp_updates import Updates
from kernel.adapters.agui import Projection
from kernel.adapters.agui_messages import snapshot_of
from kernel.adapters.letters import Letters, whole, whole_data
from kernel.adapters.telemetry import _Spans
from kernel.events import Event, MessageEnded, MessageUpdated
from kernel.messages import AssistantMessage, Message
from tests.kernel.strategies import EVENTS, TEXTS, values_of


@given(TEXTS)
def test_a_text_is_whole(text: str):
    """It can be encoded; what was whole stays as it is, and pairs are one letter."""
    made = whole(text)
    assert made.encode().decode() == made
    halves = [letter for letter in text if "\ud800" <= letter <= "\udfff"]
    assert len(text) - len(halves) // 2 <= len(made) <= len(text)
    assert halves or made == text


@given(st.lists(TEXTS))
def test_pieces_are_as_the_whole(pieces: list[str]):
    """Wherever a text was cut, also through a letter."""
    letters = Letters()
    shown = [letters.feed(piece) for piece in pieces]
    assert "".join([*shown, letters.end()]) == whole("".join(pieces))


def test_a_letter_in_two_pieces():
    letters = Letters()
    assert [letters.feed("a\ud83d"), letters.feed("\ude00b"), letters.end()] == ["a", "\U0001f600b", ""]


def test_data():
    assert whole_data({"\ud83d": ["\ude00", 1, None, ("\ud83d\ude00",)]}) == {"�": ["�", 1, None, ["\U0001f600"]]}


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(EVENTS)
def test_any_event_can_be_sent(events: list[Event]):
    """By AG-UI and by ACP: nothing raises, whatever comes in whatever order, and all of it is JSON in UTF-8."""
    project, updates = Projection("t"), Updates(Path("/"))
    for event in events:
        for made in (*project(event), *updates.of_event(event)):
            assert json.loads(made.model_dump_json(by_alias=True).encode())
    for made in project.cut("the end"):
        assert made.model_dump_json()


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(values_of(Message), max_size=6))
def test_any_transcript_can_be_sent(messages: list[Message]):
    for made in (*snapshot_of(messages, "m"), *Updates(Path("/")).of_transcript(messages)):
        assert made.model_dump_json(by_alias=True).encode()


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(EVENTS)
def test_any_event_can_be_told_of(events: list[Event]):
    """In spans: no attribute is text that an exporter could not encode, with all that is said."""
    ended: list[Any] = []
    provider = TracerProvider()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
        handler = TelemetryHandler(tracer_provider=provider)
    provider._active_span_processor.on_end = ended.append  # type: ignore[method-assign]
    spans = _Spans(handler, name="a", provider="p", model_name="m", conversation_id="c")
    for event in [all_events.RunStarted("r", 0), *events]:
        spans.take(event)
    spans.close()
    assert not spans._failed
    for span in ended:
        assert f"{span.name}{span.attributes}{span.status.description}{[e.attributes for e in span.events]}".encode()


def test_a_letter_that_a_model_cut_is_one_letter_for_a_client():
    events = [
        MessageUpdated("r", 0, "text", "a\ud83d"), MessageUpdated("r", 1, "text", "\ude00"),
        MessageUpdated("r", 2, "text", "\ud83d"), MessageEnded("r", 3, AssistantMessage("…")),
    ]  # fmt: skip
    project, updates = Projection("t"), Updates(Path("/"))
    deltas = [made.delta for event in events for made in project(event) if made.type.value == "TEXT_MESSAGE_CONTENT"]
    texts = [made.content.text for event in events for made in updates.of_event(event)]
    assert deltas == texts == ["a", "\U0001f600", "�"]
