"""Summaries that a model makes."""

from typing import Any

import pytest

from kernel import (
    AssistantMessage,
    CompactionPolicy,
    CustomMessage,
    Finished,
    Message,
    ModelError,
    ReasoningDelta,
    StopReason,
    SummaryMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from kernel.compactors import PROMPT, RESULT_CHARACTERS, ModelCompactor, TrimmingCompactor
from kernel.testing import CUT_OFF, ScriptedModel, say, simulate
from tests.kernel.helpers import Stage, play, said, turns

CONVERSATION: list[Message] = [
    SummaryMessage("older"),
    UserMessage("Read it."),
    AssistantMessage((Text("I will."), ToolCall("c1", "read", {"path": "a"}))),
    ToolMessage("c1", "read", "x" * (RESULT_CHARACTERS + 5)),
    CustomMessage("ui", {"hidden": 1}),
    AssistantMessage((ToolCall("c2", "read", {}),)),
    ToolMessage("c2", "read", "no path", is_error=True),
]


def summary(*lines: Any) -> str:
    return simulate(ModelCompactor(ScriptedModel([lines])).summarize(CONVERSATION))


def test_the_summary_is_the_models_text():
    """The text is the summary; reasoning is not part of it, nor is the space around it."""
    assert summary(ReasoningDelta("hm"), " In ", "short. ") == "In short."


def test_the_model_gets_one_text_and_no_tools():
    """The conversation is one user message, with calls and shortened results, and without custom messages."""
    model = ScriptedModel([say("s")])
    simulate(ModelCompactor(model).summarize(CONVERSATION))
    (request,) = model.requests
    (message,) = request.messages
    assert request.tools == ()
    assert message.text == (
        "<conversation>\n"
        "Summary of what was said before: older\n\n"
        "User: Read it.\n\n"
        'Assistant: I will.\nAssistant calls read({"path": "a"})\n\n'
        f"Result of read: {'x' * RESULT_CHARACTERS} [5 more characters]\n\n"
        "Assistant calls read({})\n\n"
        "Error of read: no path\n"
        f"</conversation>\n\n{PROMPT}"
    )


def test_the_model_reads_arguments_as_they_were_written():
    """In their own letters, malformed or not; what JSON can't say is no failure."""
    model = ScriptedModel([say("s")])
    calls = [ToolCall("c1", "a", {"é": b"x"}), ToolCall("c2", "b", malformed='{"é')]
    simulate(ModelCompactor(model).summarize([AssistantMessage(calls)]))
    said = model.requests[0].messages[0].text
    assert 'Assistant calls a({"é": "bytes"})\nAssistant calls b({"é)' in said


def test_the_prompt_can_be_given():
    """Another prompt takes the place of ours."""
    model = ScriptedModel([say("s")])
    simulate(ModelCompactor(model, prompt="Three words.").summarize(CONVERSATION))
    assert model.requests[0].messages[0].text.endswith("\n\nThree words.")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "without any text"),
        (["  \n"], "without any text"),
        (["half", CUT_OFF], "without a terminal part"),
        (["half", Finished(StopReason.LENGTH)], "cut off: its stop reason is length"),
        (["half", ModelError("boom")], "boom"),
    ],
    ids=str,
)
def test_what_is_no_whole_summary_is_a_failure(lines: list[Any], words: str):
    """An empty summary, and one that was cut off, would lose the conversation: a ModelError."""
    with pytest.raises(ModelError, match=words):
        summary(*lines)


@pytest.mark.parametrize(
    ("model", "prompt"), [(3, "x"), (ScriptedModel, "x"), (ScriptedModel(), 3)], ids=["int", "class", "prompt"]
)
def test_bad_input_is_refused(model: Any, prompt: Any):
    """What is no model, or no text, is a TypeError."""
    with pytest.raises(TypeError, match="must be"):
        ModelCompactor(model, prompt)


class TestTrimming:
    def trimmed(self, *messages: Message) -> str:
        return simulate(TrimmingCompactor().summarize(messages))

    def test_it_says_how_much_is_missing(self):
        """Nobody is asked; a line says how many messages were left out."""
        assert self.trimmed(*CONVERSATION) == "[7 older messages were left out.]"

    def test_it_counts_on(self):
        """What it left out earlier stays counted, so that the line is true after any number of compactions."""
        earlier = SummaryMessage("[7 older messages were left out.]")
        assert self.trimmed(earlier, UserMessage("Hi"), AssistantMessage("Hello.")) == "[9 older messages were left out.]"

    def test_another_summary_is_a_message(self):
        """A summary that a model made is left out like any other message."""
        assert self.trimmed(SummaryMessage("so far"), UserMessage("Hi")) == "[2 older messages were left out.]"

    def test_an_agent_with_it_keeps_the_last_turns_whole(self):
        """With `keep_turns` 2 the last two turns stay as they were, and the model gets them behind one line."""
        history = [*turns(5), UserMessage("more " * 20), AssistantMessage("yes")]
        stage = Stage(["a"], messages=history, compactor=TrimmingCompactor(), compaction=CompactionPolicy(keep_turns=2))

        async def main() -> None:
            await stage.agent.compact()
            await stage.run()

        play(main())
        assert said(stage.model.requests[0].messages) == [
            ("summary", "[8 older messages were left out.]"), *said(history[-4:]), ("user", "Hi"),
        ]  # fmt: skip
        assert list(stage.agent.state.archive) == history[:8]
