"""Going on from what is there, and where queued messages enter: the drain points, and no others."""

from typing import Any

import pytest

from kernel import AssistantMessage, NothingToContinueError, StopReason, ToolCall, ToolMessage, UserMessage
from kernel.testing import call
from tests.kernel.helpers import Act, Stage, play, turns

ASKED = turns(1)[:1]
CUT = AssistantMessage("par", StopReason.ABORTED)
RESULTS = (*ASKED, AssistantMessage([ToolCall("c1", "act")]), ToolMessage("c1", "act", "ok"))


def going_on(stage: Stage, steer: tuple[str, ...] = (), follow_up: tuple[str, ...] = ()) -> Any:
    """The result of `continue_` with these messages in the queues."""

    async def main() -> Any:
        for text in steer:
            stage.agent.steer(text)
        for text in follow_up:
            stage.agent.follow_up(text)
        result = await stage.agent.continue_()
        stage.keeps_its_word()
        return result

    return play(main())


def users(stage: Stage) -> list[str]:
    return [text for role, text in stage.said if role == "user"]


class TestWhere:
    @pytest.mark.parametrize("messages", [ASKED, (*ASKED, CUT), RESULTS], ids=["a question", "a cut answer", "results"])
    def test_a_tail_that_waits_for_an_answer_is_answered(self, messages: Any) -> None:
        """A question, results, or what is before a cut answer is sent to the model as it is."""
        stage = Stage(["a"], messages=messages)
        assert going_on(stage).final_text == "a"
        assert stage.model.requests[0].messages == tuple(m for m in messages if m is not CUT)
        assert stage.types[:3] == ["run.started", "turn.started", "message.started"]

    def test_steering_goes_first(self) -> None:
        """Queued steering begins the run, also when the tail waits; the follow-up waits for the end."""
        stage = Stage(["a"], ["b"], messages=ASKED)
        going_on(stage, ("left",), ("then",))
        assert stage.said[1:] == [("user", "left"), ("assistant", "a"), ("user", "then"), ("assistant", "b")]

    def test_a_follow_up_begins_when_nothing_else_does(self) -> None:
        """After an answer the follow-up opens the run."""
        stage = Stage(["a"], messages=turns(1))
        going_on(stage, (), ("then",))
        assert [event.origin for event in stage.heard.of("message.accepted")] == ["follow_up"]
        assert stage.said[2:] == [("user", "then"), ("assistant", "a")]

    def test_a_tail_goes_before_a_follow_up(self) -> None:
        """What waits for an answer is answered before a follow-up enters."""
        stage = Stage(["a"], ["b"], messages=ASKED)
        going_on(stage, (), ("then",))
        assert stage.said[1:] == [("assistant", "a"), ("user", "then"), ("assistant", "b")]

    @pytest.mark.parametrize(
        ("messages", "steer"), [((), ()), ((), ("left",)), (turns(1), ())], ids=["empty", "empty and steered", "answered"]
    )
    def test_nothing_is_nothing(self, messages: Any, steer: tuple[str, ...]) -> None:
        """An empty transcript, even with steering, and one that ends with an answer, have nothing to continue."""
        stage = Stage(messages=messages)
        with pytest.raises(NothingToContinueError):
            going_on(stage, steer)
        assert (stage.heard.events, len(stage.agent.queued.steering)) == ([], len(steer))

    @pytest.mark.parametrize("end", ["failed", "cancelled", "max_turns"])
    def test_after_a_run_that_did_not_complete(self, end: str) -> None:
        """A failed, cancelled or exhausted run can be continued: the model is asked again."""
        first = {"failed": ["par", ValueError("boom")], "cancelled": ["par"], "max_turns": [call("c1", "act")]}[end]
        stage = Stage(first, ["b"], tools=[Act()], max_turns=1)
        if end == "cancelled":
            stage.on("message.updated", stage.agent.cancel)

        async def main() -> list[str]:
            return [(await stage.run()).status, (await stage.agent.continue_()).status]

        assert play(main()) == [end, "completed"]
        assert stage.said[-1] == ("assistant", "b")


class TestDrainPoints:
    @pytest.mark.parametrize("place", ["run.started", "turn.started", "message.accepted"])
    def test_the_first_turn_takes_one_after_its_message(self, place: str) -> None:
        """What is queued until the prompt was told joins the first request, after the prompt."""
        stage = Stage(["a"])
        stage.on(place, lambda: stage.agent.steer("left"))
        play(stage.run())
        assert stage.said == [("user", "Hi"), ("user", "left"), ("assistant", "a")]

    def test_what_comes_with_the_drained_one_waits(self) -> None:
        """The first turn drains once: what a listener of the steering's own event queues waits for the next turn."""
        stage = Stage(["a"], ["b"])
        stage.agent.steer("one")
        stage.on("message.accepted", lambda: stage.agent.steer("two"), nth=2)
        play(stage.run())
        assert stage.said[1:4] == [("user", "one"), ("assistant", "a"), ("user", "two")]

    @pytest.mark.parametrize(("mode", "expected"), [("one", [1, 1]), ("all", [2])])
    def test_the_mode_holds_at_the_first_drain_too(self, mode: Any, expected: list[int]) -> None:
        """With `one`, one joins the prompt and the other gets a turn of its own."""
        stage = Stage(["a"], ["b"], steering_mode=mode)
        stage.agent.steer("one"), stage.agent.steer("two")
        play(stage.run())
        assert [len(request.messages) for request in stage.model.requests] == ([2, 4] if mode == "one" else [3])
        assert users(stage) == ["Hi", "one", "two"]

    def test_one_that_began_with_steering_does_not_drain_again(self) -> None:
        """`continue_` that took steering sends it alone; the next one waits for the next turn."""
        stage = Stage(["a"], ["b"], messages=turns(1))
        going_on(stage, ("one", "two"))
        assert stage.said[2:5] == [("user", "one"), ("assistant", "a"), ("user", "two")]

    def test_one_that_began_with_a_follow_up_drains(self) -> None:
        """What is queued at the event of that follow-up joins it."""
        stage = Stage(["a"], messages=turns(1))
        stage.on("message.accepted", lambda: stage.agent.steer("left"))
        going_on(stage, (), ("then",))
        assert stage.said[2:] == [("user", "then"), ("user", "left"), ("assistant", "a")]

    def test_a_later_turn_takes_its_items_before_it_starts(self) -> None:
        """An item that is queued at `turn.started` of a later turn waits for the one after it."""
        stage = Stage([call("c1", "act")], ["b"], ["c"], tools=[Act()])
        stage.on("turn.started", lambda: stage.agent.steer("left"), nth=2)
        play(stage.run())
        assert stage.said[3:] == [("assistant", "b"), ("user", "left"), ("assistant", "c")]

    def test_each_completed_turn_passes_the_boundary(self) -> None:
        """After each turn the phase is `steering`, and `follow_up` when nothing steers and nothing is owed."""
        stage = Stage([call("c1", "act")], ["b"], tools=[Act()])
        play(stage.run())
        assert stage.phases == ["turn", "steering", "turn", "steering", "follow_up", "settling"]

    def test_while_idle_nothing_is_told(self) -> None:
        """A message that is queued while idle is told to nobody until it enters; its receipt is the answer."""
        stage = Stage(["a"])
        receipt = stage.agent.steer("left")
        assert stage.heard.events == []
        play(stage.run())
        (changed,) = stage.heard.of("queue.changed")
        assert (changed.steering, changed.dropped, receipt.status) == ((), (), "delivered")

    def test_two_equal_messages_are_two(self) -> None:
        """Messages of the same text are neither merged nor taken for each other."""
        stage = Stage(["a"], ["b"], ["c"])
        one, two = stage.agent.follow_up("same"), stage.agent.follow_up("same")
        assert stage.agent.unqueue(two) == UserMessage("same")
        play(stage.run())
        assert ([one.status, two.status], users(stage)) == (["delivered", "dropped"], ["Hi", "same"])


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
def test_what_a_run_begins_with_has_entered_before_anyone_hears(queue: str) -> None:
    """`continue_` takes its item in the step that begins the run: a listener of `run.started` finds it there."""
    stage = Stage(["a"], ["b"])
    seen: list[Any] = []
    stage.on("run.started", lambda: seen.append(stage.said[-1]), nth=2)

    async def main() -> None:
        await stage.run()
        getattr(stage.agent, queue)("more")
        await stage.agent.continue_()

    play(main())
    assert seen == [("user", "more")]


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("phase", ["cancelling", "settling"])
def test_a_run_that_ends_still_takes_messages_for_the_next(phase: str, queue: str) -> None:
    """While a run is cancelled or settles, a message may be queued; it waits for the next run and enters there."""
    stage = Stage([call("c1", "act")], ["b"], tools=[Act(body="ok")])
    stage.on("tool.started", lambda: stage.agent.cancel())

    def enqueue(event: Any) -> None:
        if event.type == "phase.changed" and event.target == phase:
            getattr(stage.agent, queue)("later")

    unsubscribe = stage.agent.subscribe(enqueue)

    async def main() -> None:
        await stage.run()
        unsubscribe()
        await stage.agent.continue_()
        stage.keeps_its_word()

    play(main())
    assert users(stage).count("later") == 1
