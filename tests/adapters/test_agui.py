"""AG-UI: whatever the kernel's stream is, an independent judge finds the projection in order, and it is true."""

import json
from typing import Any

import pytest
from ag_ui.core import ImagePart, TextPart
from ag_ui.core import UserMessage as AguiUser
from ag_ui_validate import create_validator
from hypothesis import HealthCheck, given, settings
from pydantic import TypeAdapter

from kernel import (
    Agent,
    AssistantMessage,
    CustomMessage,
    Image,
    KernelConfig,
    ModelError,
    Reasoning,
    ReasoningDelta,
    SummaryMessage,
    Text,
    ToolCall,
    ToolMessage,
    UsageLimit,
    UserMessage,
)
from kernel.adapters.agui import EMPTY_STATE, Projection
from kernel.adapters.agui_messages import history_of, prompt_of, snapshot_of
from kernel.events import Event, MessageUpdated, RunFinished
from kernel.testing import CUT_OFF, ScriptedModel, call, simulate
from tests.adapters.streams import random_streams, streams_of_cases, streams_of_stories
from tests.pictures.stories import read_file, run_tests, wait

STREAMS = {**streams_of_cases(), **streams_of_stories()}
KINDS = {
    "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "STATE_SNAPSHOT", "STATE_DELTA",
    "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "REASONING_START", "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_END", "TOOL_CALL_START", "TOOL_CALL_ARGS",
    "TOOL_CALL_END", "TOOL_CALL_RESULT", "CUSTOM",
}  # fmt: skip
"""All that the projection says. The rest of AG-UI are chunks (short forms), activities, subagents, encrypted reasoning and
whole transcripts: what the kernel has no event for.
"""


def projected(events: list[Event], **more: Any) -> list[dict[str, Any]]:
    """As it goes over the wire; a stream without an end is ended."""
    project = Projection("thread", **more)
    said = [made for number, event in enumerate(events) for made in project(event, 1e9 + number)]
    said += project.cut("the connection was lost", 1e9 + len(events))
    return [made.model_dump(by_alias=True, mode="json") for made in said]


def judged(said: list[dict[str, Any]]) -> list[str]:
    """What `ag-ui-validate` finds, warnings included."""
    validator = create_validator()
    for event in said:
        validator.feed(event)
    validator.finalize()
    return [f"{found.rule} {found.message}" for found in validator.report().diagnostics]


def heard(script: list[Any], config: KernelConfig | None = None, question: Any = "Go") -> list[Event]:
    events: list[Event] = []

    async def main() -> None:
        agent = Agent(ScriptedModel(script), tools=[read_file, run_tests], config=config or KernelConfig())
        agent.subscribe(events.append)
        await agent.prompt(question)

    simulate(main())
    return events


def of(said: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [event for event in said if event["type"] in types]


@pytest.mark.parametrize("name", STREAMS)
def test_recorded_streams_are_in_order(name: str):
    """Of each case and each story: nothing to find, not even to warn of."""
    if STREAMS[name]:
        assert judged(projected(STREAMS[name])) == []


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(random_streams())
def test_random_streams_are_in_order(events: list[Event]):
    """Also from the middle on, and cut off."""
    assert judged(projected(events)) == []


def test_the_judge_can_find_something():
    """A message that is left open, a result twice, an event after the end."""
    said = projected(STREAMS["three seconds"])
    end = next(place for place, event in enumerate(said) if event["type"] == "TEXT_MESSAGE_END")
    result = next(event for event in said if event["type"] == "TOOL_CALL_END")
    assert judged(said[:end] + said[end + 1 :]) != []
    assert judged([*said, said[-1]]) != []
    assert judged([event for event in said if event != result]) != []


def test_every_kind_is_said_somewhere():
    said = {event["type"] for name in STREAMS for event in projected(STREAMS[name])}
    said |= {event["type"] for event in projected(heard([[ReasoningDelta("Hm."), "Yes."]]))}
    assert said == KINDS


def test_text_is_whole():
    """What was streamed, joined, is what the messages say."""
    for events in STREAMS.values():
        deltas = "".join(event.delta for event in events if isinstance(event, MessageUpdated) and event.channel == "text")
        said = projected(events)
        own = {event["messageId"] for event in of(said, "TEXT_MESSAGE_START") if event["role"] == "assistant"}
        shown = (event["delta"] for event in of(said, "TEXT_MESSAGE_CONTENT") if event["messageId"] in own)
        assert "".join(shown) == deltas


def test_each_call_has_one_result():
    """And its arguments as JSON."""
    said = projected(STREAMS["three seconds"])
    arguments = [json.loads(event["delta"]) for event in of(said, "TOOL_CALL_ARGS")]
    assert arguments[0] == {"path": "a.py", "seconds": 0.35}
    asked = [event["toolCallId"] for event in of(said, "TOOL_CALL_START")]
    answered = [(event["toolCallId"], event["content"]) for event in of(said, "TOOL_CALL_RESULT")]
    assert asked == ["c1", "c2", "c3", "c4"]
    assert answered == [("c1", "the text of a.py"), ("c2", "the text of b.py"), ("c3", "3 failed"), ("c4", "all passed")]


def test_ids_that_come_twice_are_told_apart():
    """In one response and in the next: AG-UI wants them unique, and models do not care."""
    twice = [call("c", "read_file", path="a", seconds=0), call("c", "read_file", path="b", seconds=0)]
    said = projected(heard([twice, [call("c", "read_file", path="x", seconds=0)], ["Done."]]))
    assert judged(said) == []
    answered = [(event["toolCallId"], event["content"]) for event in of(said, "TOOL_CALL_RESULT")]
    assert answered == [("c", "the text of a"), ("c#2", "the text of b"), ("c#3", "the text of x")]


def test_arguments_that_are_no_json():
    """The model's text is shown, as JSON can say it."""
    from kernel import ToolCallDelta

    said = projected(heard([[ToolCallDelta(0, "c", "read_file", '{"path": oops')], ["Done."]]))
    assert judged(said) == []
    assert json.loads(of(said, "TOOL_CALL_ARGS")[0]["delta"]) == {"malformed": '{"path": oops'}


def test_steps_are_phases():
    said = projected(STREAMS["three seconds"])
    steps = [event["stepName"] for event in of(said, "STEP_STARTED")]
    assert steps == [
        "turn", "steering", "turn", "retry", "turn", "steering", "turn", "steering", "follow_up", "turn", "cancelling",
        "settling",
    ]  # fmt: skip


def test_the_state_can_be_followed():
    """The snapshot and its changes give what the projection itself holds, and in the end nothing is left running."""
    for events in STREAMS.values():
        project, state = Projection("t"), json.loads(json.dumps(EMPTY_STATE))
        for event in events:
            for made in project(event):
                said = made.model_dump(by_alias=True, mode="json")
                if said["type"] == "STATE_SNAPSHOT":
                    state = said["snapshot"]
                for change in said.get("delta", ()) if said["type"] == "STATE_DELTA" else ():
                    state[change["path"][1:]] = change["value"]
            assert state == project.state
        if events and isinstance(events[-1], RunFinished):
            assert (state["running"], state["phase"]) == ([], "idle")
            used = events[-1].result.usage
            assert state["usage"] == {"input": used.input, "output": used.output}


@pytest.mark.parametrize(
    ("script", "config", "kind", "outcome", "status"),
    [
        ([["Hi."]], {}, "RUN_FINISHED", "success", "completed"),
        ([[call("c", "run_tests", seconds=0)]] * 2, {"max_turns": 1}, "RUN_FINISHED", "success", "max_turns"),
        ([[ModelError("broken")]], {}, "RUN_ERROR", None, "MODEL_FAILED"),
        ([["Hal", CUT_OFF]], {"retry": None}, "RUN_ERROR", None, "MODEL_FAILED"),
        ([["x", wait(9)]], {"run_deadline": 1}, "RUN_ERROR", None, "RUN_DEADLINE"),
        (
            [[call("c", "run_tests", seconds=0)]] * 2, {"usage_limit": UsageLimit(requests=1)}, "RUN_ERROR", None,
            "USAGE_LIMIT",
        ),
    ],
)  # fmt: skip
def test_ends(script: list[Any], config: dict[str, Any], kind: str, outcome: str | None, status: str):
    """How a run ended, with its usage."""
    said = projected(heard(script, KernelConfig(**config)))
    last = said[-1]
    assert judged(said) == []
    assert (last["type"], last.get("outcome", {}).get("type")) == (kind, outcome)
    assert status in (last.get("result", {}).get("status"), last.get("code"))
    assert last["usage"][0]["inputTokens"] >= 0


def test_a_cancelled_run_has_that_outcome():
    """And not that of a success, which a client would take it for."""
    last = projected(STREAMS["three seconds"])[-1]
    assert (last["type"], last["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
    assert last["result"]["reason"] == "enough for today"


def test_reasoning_is_closed_before_the_text():
    said = projected(heard([[ReasoningDelta("Hm"), ReasoningDelta("."), "Yes.", ReasoningDelta("Or?"), " No."]]))
    types = [event["type"] for event in said if event["type"].startswith(("REASONING", "TEXT"))][3:]
    assert types == [
        "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END", "REASONING_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "REASONING_START",
        "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_END",
        "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
    ]  # fmt: skip


def test_a_stream_that_was_cut_off_closes_what_is_open():
    """The text, the reasoning and the step, before the error."""
    events = heard([[ReasoningDelta("Hm."), "Yes.", ReasoningDelta("Or?"), " No."]])
    for text in ("Yes.", "Or?"):
        place = next(number for number, event in enumerate(events) if getattr(event, "delta", "") == text)
        types = [event["type"] for event in projected(events[: place + 1])]
        assert types.count("TEXT_MESSAGE_START") == types.count("TEXT_MESSAGE_END")
        assert types.count("REASONING_START") == types.count("REASONING_END")
        assert types[-2:] == ["STEP_FINISHED", "RUN_ERROR"]


def test_a_prompt_that_the_client_has_is_not_said_again():
    """But steering and follow-ups are: another one may have sent them."""
    said = projected(STREAMS["three seconds"], echo=False)
    own = [event["messageId"] for event in of(said, "TEXT_MESSAGE_START") if event["role"] == "user"]
    texts = [event["delta"] for event in of(said, "TEXT_MESSAGE_CONTENT") if event["messageId"] in own]
    assert texts == ["Leave b.py alone.", "Then write documentation."]


def test_an_applications_own_message_is_custom():
    said = projected(heard([["Hi."]], question=CustomMessage("note", {"a": 1})))
    told = [event for event in of(said, "CUSTOM") if event["name"] == "kernel.message.accepted"]
    assert told[0]["value"] == {"origin": "prompt", "text": "[note]"}


def test_times_are_milliseconds_since_1970():
    project = Projection("t")
    assert [made.timestamp for made in project(STREAMS["three seconds"][0], 1.5)] == [1500, 1500]
    assert all(made.timestamp is None for made in project(STREAMS["three seconds"][1]))


class TestMessages:
    TRANSCRIPT = (
        UserMessage("Hi"),
        AssistantMessage((Reasoning("Hm"), Text("Well"), ToolCall("c", "read_file", {"path": "a"})), "tool_use"),
        ToolMessage("c", "read_file", "no such file", True),
        SummaryMessage("They talked."),
        CustomMessage("note"),
        AssistantMessage("Done."),
    )

    def test_a_transcript_is_shown(self) -> None:
        shown = [message.model_dump(by_alias=True, mode="json") for message in snapshot_of(self.TRANSCRIPT, "m")]
        assert [message["role"] for message in shown] == [
            "user", "reasoning", "assistant", "tool", "system", "user", "assistant",
        ]  # fmt: skip
        assert len({message["id"] for message in shown}) == len(shown)
        assert shown[2]["toolCalls"][0]["function"] == {"name": "read_file", "arguments": '{"path": "a"}'}
        assert (shown[3]["toolCallId"], shown[3]["error"]) == ("c", "no such file")

    def test_what_a_client_remembers_comes_back(self) -> None:
        """But for reasoning, and for what only the kernel has."""
        back = history_of(snapshot_of((*self.TRANSCRIPT[:3], self.TRANSCRIPT[5]), "m"))
        assert [message.role for message in back] == ["user", "assistant", "tool", "assistant"]
        assert back[1].calls == self.TRANSCRIPT[1].calls
        assert (back[2].call_id, back[2].name, back[2].is_error) == ("c", "read_file", True)

    def test_text_and_images(self) -> None:
        parts = [
            {"type": "text", "text": "Look:"},
            {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
            {"type": "image", "source": {"type": "url", "value": "https://example.org/a.png"}},
        ]
        content = TypeAdapter(list[TextPart | ImagePart]).validate_python(parts)
        message = prompt_of([AguiUser(id="1", role="user", content=content)])
        images = (Image("data:image/png;base64,aGk="), Image("https://example.org/a.png"))
        assert message == UserMessage((Text("Look:"), *images))

    @pytest.mark.parametrize(
        ("messages", "why"),
        [
            ([], "must be the user's"),
            (snapshot_of([UserMessage("Hi"), AssistantMessage("Ho")], "m"), "must be the user's"),
            (snapshot_of([UserMessage(" ")], "m"), "must not be empty"),
        ],
    )
    def test_what_is_no_prompt_is_said(self, messages: list[Any], why: str) -> None:
        with pytest.raises(ValueError, match=why):
            prompt_of(messages)

    def test_a_result_of_nothing_is_said(self) -> None:
        with pytest.raises(ValueError, match="answers no call before it"):
            history_of(snapshot_of([self.TRANSCRIPT[2]], "m"))
