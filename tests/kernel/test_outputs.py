"""Answers that must fit something: the value is on the result; a wrong one is given back within the limits of the run."""

import asyncio
import enum
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel import Agent, Finished, Hooks, KernelConfig, ModelError, StopReason, ToolResult, UsageLimit, UserMessage
from kernel.events import RunFinished
from kernel.frozen import FrozenDict
from kernel.journal import read_journal
from kernel.outputs import output_of
from kernel.profiles import CHAPTER_06, CHECKPOINT_09, DEFAULT, PI_0_85
from kernel.testing import ScriptedModel, call, say, simulate
from tests.kernel.helpers import Act, Stage, play


@attrs.frozen
class City:
    name: str
    people: int = attrs.field(validator=attrs.validators.ge(0))


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
RIGHT = '{"name": "Oslo", "people": 709000}'
OSLO = City("Oslo", 709000)


def asking(*answers: Any, output: Any = City, **arguments: Any) -> Stage:
    """A stage whose answers must fit."""
    stage = Stage(*answers, **arguments)
    stage.agent.configure(output=output)
    return stage


class TestWhatIsAskedFor:
    def test_a_class_is_an_object_at_the_top(self) -> None:
        spec = output_of(City)
        assert spec is not None
        assert spec.schema["type"] == "object"
        assert set(spec.schema["required"]) == {"name", "people"}
        assert spec.check(RIGHT) == OSLO

    def test_a_class_that_contains_itself(self) -> None:
        spec = output_of(Tree)
        assert spec is not None
        assert spec.schema["type"] == "object"
        assert "Tree" in spec.schema["$defs"]
        assert spec.check('{"of": [{"of": []}]}') == Tree([Tree([])])

    @pytest.mark.parametrize(
        ("wanted", "text", "value"),
        [
            (list[int], "[1, 2]", [1, 2]),
            (int, " 7 ", 7),
            (Literal["yes", "no"], '"yes"', "yes"),
            (Annotated[int, msgspec.Meta(ge=3)], "3", 3),
            (SCHEMA, '{"n": 1}', FrozenDict(n=1)),
            ({"type": "array", "items": {"type": "string"}}, '["a"]', ("a",)),
        ],
    )
    def test_values_of_many_kinds(self, wanted: Any, text: str, value: Any) -> None:
        spec = output_of(wanted)
        assert spec is not None
        assert spec.check(text) == value
        assert spec.check(f"```json\n{text}\n```") == value
        assert spec.check(f"\n```\n{text}\n```\n") == value

    @pytest.mark.parametrize("wanted", [object(), "City", 3, lambda text: text, asyncio.Queue])
    def test_what_can_not_be_told_to_a_model_is_refused(self, wanted: Any) -> None:
        with pytest.raises(TypeError, match="output must be a type"):
            Agent(ScriptedModel(), output=wanted)

    @pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "https://example.org/x.json"}, {"$ref": "#/nowhere"}])
    def test_a_mapping_that_is_no_schema_is_refused(self, schema: Any) -> None:
        with pytest.raises(ValueError, match="schema of output"):
            Agent(ScriptedModel(), output=schema)

    def test_a_schema_that_is_not_json_is_refused(self) -> None:
        with pytest.raises(TypeError, match="output: the schema is not JSON"):
            Agent(ScriptedModel(), output={"default": object()})

    def test_the_model_is_told(self) -> None:
        """Each request has the schema, a retry too; without an output there is none."""
        stage = asking([ModelError("busy", retryable=True)], [RIGHT])
        play(stage.run())
        assert [request.output_schema["type"] for request in stage.model.requests] == ["object", "object"]
        plain = Stage(say("Hi"))
        play(plain.run())
        assert plain.model.requests[0].output_schema is None


@attrs.frozen
class Tree:
    of: "list[Tree]"


class TestARun:
    @pytest.mark.parametrize("config", [DEFAULT, CHAPTER_06, CHECKPOINT_09, PI_0_85], ids=["default", "06", "09", "pi"])
    def test_the_value_is_on_the_result(self, config: Any) -> None:
        stage = asking([call("c1", "act")], [RIGHT], tools=[Act()], config=config)
        result = play(stage.run())
        assert (result.status, result.output, result.turns) == ("completed", OSLO, 2)
        stage.keeps_its_word()

    @pytest.mark.parametrize("config", [DEFAULT, CHAPTER_06, CHECKPOINT_09, PI_0_85], ids=["default", "06", "09", "pi"])
    def test_a_wrong_answer_is_given_back(self, config: Any) -> None:
        """As a message of its own, which says what is wrong and what would be right, in a turn of its own."""
        stage = asking(["Oslo!"], ['{"name": "Oslo", "people": -1}'], [RIGHT], config=config)
        result = play(stage.run())
        assert (result.status, result.output, result.turns) == ("completed", OSLO, 3)
        corrections = [event.message.text for event in stage.heard.of("message.accepted") if event.origin == "correction"]
        assert "it is not JSON" in corrections[0]
        assert '"required"' in corrections[0]
        assert "'people' must be >= 0: -1" in corrections[1]
        assert [role for role, _ in stage.said] == ["user", "assistant", "user", "assistant", "user", "assistant"]
        stage.keeps_its_word()

    @pytest.mark.parametrize(
        "answer", ["", "null", "{}", '{"name": "Oslo"}', "[1]", "{" * 2000, '{"name": 1, "people": 1}']
    )
    def test_whatever_does_not_fit_is_wrong(self, answer: str) -> None:
        stage = asking([answer], [RIGHT])
        assert play(stage.run()).output == OSLO
        assert len(stage.model.requests) == 2
        assert len(stage.said[2][1]) < 4000

    def test_a_truncated_answer_is_wrong(self) -> None:
        stage = asking(['{"name": "Os', Finished(StopReason.LENGTH)], [RIGHT])
        assert play(stage.run()).output == OSLO

    def test_only_the_last_answer_is_checked(self) -> None:
        """Steering and follow-ups come first: what the model says before them is not the run's answer."""
        stage = asking(["one"], ["two"], [RIGHT])
        stage.agent.follow_up("and?")
        stage.on("turn.ended", lambda: stage.agent.steer("wait"))
        result = play(stage.run())
        assert (result.output, result.turns) == (OSLO, 3)
        assert "correction" not in [event.origin for event in stage.heard.of("message.accepted")]

    def test_nothing_is_checked_where_no_model_answers(self) -> None:
        """A run that its tools end, and one that a hook stops, have no answer to check."""
        act = Act(body=lambda *_: ToolResult("enough", terminate=True))
        result = play(asking([call("c1", "act")], tools=[act]).run())
        assert (result.status, result.output) == ("completed", None)
        stopped = play(asking(["no JSON"], hooks=Hooks(should_stop_after_turn=lambda state: True)).run())
        assert (stopped.status, stopped.output) == ("stopped", None)

    def test_a_run_that_fails_in_its_last_moment_has_none(self) -> None:
        """The answer was right, but the run is not completed: a listener failed when it was about to end."""
        stage = asking([RIGHT], subscriber_failure="fail_run")

        def listener(event: Any) -> None:
            if event.type == "phase.changed" and event.target == "settling":
                raise RuntimeError("no disk")

        stage.agent.subscribe(listener)
        result = play(stage.run())
        assert (result.status, result.output) == ("failed", None)

    def test_a_run_of_an_agent_without_output_has_none(self) -> None:
        assert play(Stage([RIGHT]).run()).output is None


class TestTheLimits:
    @pytest.mark.parametrize("turns", [1, 2, 3])
    def test_turns(self, turns: int) -> None:
        stage = asking(["a"], ["b"], ["c"], max_turns=turns)
        result = play(stage.run())
        assert (result.status, result.output, result.turns) == ("max_turns", None, turns)
        stage.keeps_its_word()

    def test_requests(self) -> None:
        stage = asking(["a"], ["b"], usage_limit=UsageLimit(requests=2))
        result = play(stage.run())
        assert (result.status, result.failure.code, result.requests) == ("failed", "USAGE_LIMIT", 2)
        stage.keeps_its_word()

    def test_room(self) -> None:
        """A correction needs room for itself and its answer; without it the run fails and the answer stays."""
        stage = asking(["a"], [RIGHT], message_limit=3, failure_message="result_only")
        result = play(stage.run())
        assert (result.status, result.failure.code) == ("failed", "AGENT_MESSAGE_LIMIT")
        assert "the answer is not what was asked for" in result.failure.message
        assert stage.said == [("user", "Hi"), ("assistant", "a")]
        stage.keeps_its_word()

    def test_a_failure_for_want_of_room_is_told_as_others_are(self) -> None:
        """By a message in a turn of its own, which is closed."""
        stage = asking(["a"], message_limit=3)
        result = play(stage.run())
        assert [event.turn for event in stage.heard.of("turn.ended")] == [1, 2]
        assert stage.agent.messages[-1].error == result.failure.message
        stage.keeps_its_word()

    @settings(max_examples=60, deadline=None)
    @given(right=st.integers(1, 6), turns=st.integers(1, 6), fence=st.booleans())
    def test_it_completes_exactly_when_the_right_answer_comes_in_time(self, right: int, turns: int, fence: bool) -> None:
        last = f"```json\n{RIGHT}\n```" if fence else RIGHT
        result = play(asking(*[["no"]] * (right - 1), [last], max_turns=turns).run())
        assert (result.status, result.output) == (("completed", OSLO) if right <= turns else ("max_turns", None))


class Mood(enum.Enum):
    GOOD = "good"


class TestTheCheck:
    """It runs a user's validators, which may do anything."""

    def judged(self, judge: Any, *answers: Any, **arguments: Any) -> Stage:
        @attrs.frozen
        class Judged:
            value: int = attrs.field(validator=lambda instance, attribute, value: judge(value))

        return asking(*answers, output=Judged, **arguments)

    def test_what_it_raises_is_what_is_wrong(self) -> None:
        def judge(value: int) -> None:
            if value != 3:
                raise LookupError(f"{value} is no good")

        stage = self.judged(judge, ['{"value": 1}'], ['{"value": 3}'])
        assert play(stage.run()).status == "completed"
        assert "1 is no good" in stage.said[2][1]

    def test_a_long_complaint_is_cut(self) -> None:
        def judge(value: int) -> None:
            raise ValueError("x" * 100_000)

        stage = self.judged(judge, ['{"value": 1}'], max_turns=2)
        play(stage.run())
        assert len(stage.said[2][1]) < 5_000

    def test_a_cancel_in_it_is_seen(self) -> None:
        stage = self.judged(lambda value: stage.agent.cancel("enough"), ['{"value": 1}'])
        result = play(stage.run())
        assert (result.status, result.reason, result.output) == ("cancelled", "enough", None)
        stage.keeps_its_word()

    def test_what_is_queued_in_it_comes_first(self) -> None:
        """The queues are asked once more after it, so that nothing that came meanwhile is left behind."""
        queued: list[int] = []

        def judge(value: int) -> None:
            if not queued:
                queued.append(value)
                stage.agent.steer("one more")

        stage = self.judged(judge, ['{"value": 1}'], ['{"value": 2}'])
        result = play(stage.run())
        assert (result.status, result.turns, result.output.value) == ("completed", 2, 2)
        assert stage.said[2] == ("user", "one more")

    def test_a_wrong_answer_is_forgotten_when_something_else_comes(self) -> None:
        """What is queued while the answer is found wrong is answered, and that answer is checked anew."""
        def judge(value: int) -> None:
            if value == 1:
                stage.agent.follow_up("and?")
                raise ValueError("wrong")

        stage = self.judged(judge, ['{"value": 1}'], ['{"value": 2}'])
        result = play(stage.run())
        assert (result.status, result.output.value) == ("completed", 2)
        assert "correction" not in [event.origin for event in stage.heard.of("message.accepted")]

    def test_a_configuration_that_comes_in_it_is_for_the_next_turn(self) -> None:
        """The answer is judged by what it was asked for; the correction and what follows by the new one."""
        def judge(value: int) -> None:
            stage.agent.configure(output=list[int])
            raise ValueError("wrong")

        stage = self.judged(judge, ['{"value": 1}'], ["[1]"])
        result = play(stage.run())
        assert (result.status, result.output) == ("completed", [1])
        assert stage.model.requests[1].output_schema["type"] == "array"
        assert '"array"' in stage.said[2][1]

    def test_what_ends_the_program_ends_it_after_the_run(self) -> None:
        """As in a check of arguments: the run has its end all the same."""
        results: list[Any] = []

        def judge(value: int) -> None:
            raise KeyboardInterrupt

        async def main() -> None:
            agent = self.judged(judge, ['{"value": 1}'], max_turns=1).agent
            agent.subscribe(lambda event: results.append(event.result) if event.type == "run.finished" else None)
            await agent.prompt("Hi")

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
        assert [result.status for result in results] in (["max_turns"], ["cancelled"])


def test_a_journal_tells_a_run_with_corrections_again():
    """The value is of any type and not written; all else is the same: state, effects, and what was said."""
    lines: list[str] = []

    async def main() -> Any:
        agent = Agent(ScriptedModel([["no"], [RIGHT]]), output=City, journal=lines.append, config=KernelConfig())
        return agent, await agent.prompt(UserMessage("Hi"))

    agent, result = simulate(main())
    journal = read_journal(lines)
    core = journal.core()
    told = [effect for effects in journal.replay(core) for effect in effects if isinstance(effect, RunFinished)]
    assert result.output == OSLO
    assert [finished.result for finished in told] == [result]
    assert told[0].result.output is None
    assert list(core.state.transcript.messages) == list(agent.messages)
