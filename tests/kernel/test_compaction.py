"""Compaction: when it begins, where it cuts, what becomes of the old messages, and how it can end."""

import asyncio
from typing import Any

import pytest

from kernel import (
    Agent,
    AssistantMessage,
    CompactionPolicy,
    CustomMessage,
    Hooks,
    KernelConfig,
    ModelError,
    NothingToCompactError,
    StopReason,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from kernel.compactors import ModelCompactor
from kernel.messages import SummaryMessage
from kernel.testing import ScriptedModel, call
from tests.kernel.helpers import Act, Stage, play, said, ticks, turns, unpaired

FULL = ModelError("too long", overflow=True)


class Summary:
    """A compactor that answers *text*, raises it, or calls it; `asked` holds what it was given."""

    def __init__(self, text: Any = "short") -> None:
        self.text = text
        self.asked: list[Any] = []

    async def summarize(self, messages: Any) -> Any:
        self.asked.append(messages)
        if isinstance(self.text, BaseException):
            raise self.text
        return await self.text() if callable(self.text) else self.text


def hot(text: Any = "short", tokens: int = 95, **arguments: Any) -> Stage:
    """A stage whose first answer fills the window of 100, of which 10 are reserved, and whose second is free."""
    policy = CompactionPolicy(reserve=10, keep_turns=1)
    return Stage(
        [Usage(tokens), "a", call("c1", "act")], ["b"], ["c"], tools=[Act()], messages=turns(3), window=100,
        compactor=Summary(text), compaction=policy, **arguments,
    )  # fmt: skip


def outcomes(stage: Stage) -> list[str]:
    return [event.outcome for event in stage.heard.of("compaction.ended")]


def reasons(stage: Stage) -> list[str]:
    return [event.reason for event in stage.heard.of("compaction.started")]


async def compacted(stage: Stage) -> Any:
    return await stage.agent.compact()


class TestThreshold:
    @pytest.mark.parametrize(("tokens", "times"), [(90, 0), (91, 1), (500, 1)])
    def test_it_begins_past_the_window_less_the_reserve(self, tokens: int, times: int) -> None:
        """Before a turn whose context is larger than window − reserve older messages become a summary."""
        stage = hot(tokens=tokens)
        assert play(stage.run()).status == "completed"
        assert (reasons(stage), outcomes(stage)) == (["threshold"] * times, ["compacted"] * times)

    def test_it_is_part_of_its_turn(self) -> None:
        """The turn has begun, the phase is `compaction`, and the request after it has the summary."""
        stage = hot()
        play(stage.run())
        assert stage.phases[:6] == ["turn", "steering", "turn", "compaction", "turn", "steering"]
        second = stage.types[stage.types.index("turn.ended") + 1 :]
        assert second[:4] == ["turn.started", "compaction.started", "compaction.ended", "message.started"]
        assert said(stage.model.requests[1].messages)[:2] == [("summary", "short"), ("user", "Hi")]

    def test_the_next_run_asks_as_well(self) -> None:
        """What the last answer of a run told counts before the first turn of the next."""
        stage = Stage([Usage(95), "a"], ["b"], messages=turns(3), window=100, compactor=Summary(),
                      compaction=CompactionPolicy(reserve=10))  # fmt: skip

        async def main() -> None:
            await stage.run()
            await stage.run("again")

        play(main())
        assert reasons(stage) == ["threshold"]
        assert said(stage.agent.messages)[-3:] == [("assistant", "a"), ("user", "again"), ("assistant", "b")]

    @pytest.mark.parametrize(
        ("window", "policy"),
        [(None, CompactionPolicy(reserve=10)), (100, None), (100, CompactionPolicy(reserve=10, window=1000))],
        ids=["no window", "off", "the policy's window"],
    )
    def test_when_it_never_begins(self, window: int | None, policy: CompactionPolicy | None) -> None:
        """Without a window, without a policy, or with a larger window of the policy's there is no threshold."""
        stage = Stage([Usage(95), call("c1", "act")], ["b"], tools=[Act()], messages=turns(3), window=window,
                      compaction=policy)  # fmt: skip
        play(stage.run())
        assert reasons(stage) == []

    def test_with_nothing_older_it_starts_nothing(self) -> None:
        """A threshold with nothing but the kept turns is silent."""
        stage = Stage([Usage(95), call("c1", "act")], ["b"], tools=[Act()], window=100,
                      compaction=CompactionPolicy(reserve=10))  # fmt: skip
        play(stage.run())
        assert reasons(stage) == []

    @pytest.mark.parametrize(("text", "outcome"), [(ValueError("no"), "failed"), ("long " * 99, "declined")])
    def test_when_it_does_not_help_the_run_goes_on(self, text: Any, outcome: str) -> None:
        """A summary that fails or does not shrink leaves the history and the run as they were, and is tried once a turn."""
        stage = hot(text)
        assert play(stage.run()).status == "completed"
        assert (outcomes(stage), len(stage.agent.messages)) == ([outcome], 6 + 4)
        assert stage.agent.state.archive == ()


class TestOverflow:
    def stage(self, text: Any = "short", *responses: Any, messages: Any = None, **arguments: Any) -> Stage:
        messages = turns(4) if messages is None else messages
        return Stage([FULL], *responses or [["a"]], messages=messages, compactor=Summary(text), **arguments)

    def test_it_is_recovered_in_the_same_turn(self) -> None:
        """A context that did not fit is compacted and asked again, with a new number and no second turn."""
        stage = self.stage()
        result = play(stage.run())
        assert (result.status, result.turns, reasons(stage)) == ("completed", 1, ["overflow"])
        assert [request.id.rpartition(":")[2] for request in stage.model.requests] == ["1", "2"]

    def test_a_second_overflow_of_the_turn_fails(self) -> None:
        """One recovery for a turn, whatever the compactor says; the overflow is the error (CMP-10)."""
        stage = self.stage("short", [FULL], ["a"])
        result = play(stage.run())
        assert (result.status, result.error.overflow, outcomes(stage)) == ("failed", True, ["compacted"])

    def test_another_turn_has_its_own_recovery(self) -> None:
        """The bound is for a turn, and not for the run."""
        stage = self.stage("short", [call("c1", "act")], [FULL], ["a"], tools=[Act()],
                           compaction=CompactionPolicy(keep_turns=1))  # fmt: skip
        assert play(stage.run()).status == "completed"
        assert outcomes(stage) == ["compacted", "compacted"]

    def test_with_nothing_older_it_is_declined_aloud(self) -> None:
        """An overflow with nothing to summarize announces its compaction, declines it, and fails with the overflow."""
        stage = self.stage(messages=turns(2))
        result = play(stage.run())
        assert (result.status, str(result.error), outcomes(stage)) == ("failed", "too long", ["declined"])

    @pytest.mark.parametrize(
        ("text", "outcome", "error"),
        [("long " * 99, "declined", "too long"), (ValueError("no summary"), "failed", "no summary")],
    )
    def test_when_it_does_not_help_the_run_fails(self, text: Any, outcome: str, error: str) -> None:
        """Declined after an overflow, the overflow is the error; a failed summary is its own."""
        stage = self.stage(text)
        result = play(stage.run())
        assert (result.status, outcomes(stage), str(result.error)) == ("failed", [outcome], error)
        assert stage.said[-2:] == [("user", "Hi"), ("assistant", "")]

    def test_what_was_streamed_before_it_is_discarded(self) -> None:
        """An overflow in the middle of a response leaves no message of that attempt."""
        stage = Stage(["par", FULL], ["a"], messages=turns(4), compactor=Summary())
        play(stage.run())
        assert stage.said[-1] == ("assistant", "a")
        assert [event.kept for event in stage.heard.of("message.ended")] == [False, True]


class TestByHand:
    def test_it_is_a_run_without_a_turn(self) -> None:
        """`compact()` says its run and its compaction, and gives the summary as its message."""
        stage = Stage(messages=turns(4), compactor=Summary())
        result = play(compacted(stage))
        assert stage.types == ["run.started", "compaction.started", "compaction.ended", "run.finished"]
        assert (result.status, result.turns, result.messages) == ("completed", 0, (SummaryMessage("short"),))
        assert stage.breaches == []

    def test_the_originals_are_archived(self) -> None:
        """What the summary stands for is in `state.archive`, over several compactions, the older summary included."""
        stage = Stage(
            ["a"], ["b"], ["c"], messages=turns(3), compactor=Summary(), compaction=CompactionPolicy(keep_turns=1)
        )

        async def main() -> None:
            await compacted(stage)
            for text in ("one", "two"):
                await stage.run(text)
            await compacted(stage)

        play(main())
        assert said(stage.agent.messages) == [("summary", "short"), ("user", "two"), ("assistant", "b")]
        archive = said(stage.agent.state.archive)
        assert archive[:4] == said(turns(2))
        assert archive[4:] == [("summary", "short"), *said(turns(3)[4:]), ("user", "one"), ("assistant", "a")]
        stage.agent.reset()
        assert stage.agent.state.archive == ()

    @pytest.mark.parametrize("messages", [(), turns(2), (SummaryMessage("short"), *turns(2))], ids=len)
    def test_with_nothing_older_it_is_refused(self, messages: Any) -> None:
        """With nothing but a summary beside the kept turns there is nothing to compact."""
        stage = Stage(messages=messages, compactor=Summary())
        with pytest.raises(NothingToCompactError) as caught:
            play(compacted(stage))
        assert (caught.value.code, len(stage.agent.messages)) == ("NOTHING_TO_COMPACT", len(messages))

    def test_twice_is_refused(self) -> None:
        """Right after a compaction there is nothing to compact."""
        stage = Stage(messages=turns(4), compactor=Summary())
        play(compacted(stage))
        with pytest.raises(NothingToCompactError):
            play(compacted(stage))

    def test_switched_off_there_is_none(self) -> None:
        """Without a policy nothing says what to keep."""
        with pytest.raises(NothingToCompactError):
            play(compacted(Stage(messages=turns(4), compaction=None)))

    @pytest.mark.parametrize(
        ("text", "status", "outcome"),
        [("long " * 99, "completed", "declined"), (ValueError("no"), "failed", "failed"), ("", "failed", "failed"),
         (" \n", "failed", "failed"), (5, "failed", "failed"), (None, "failed", "failed")],
        ids=repr,
    )  # fmt: skip
    def test_when_it_does_not_help(self, text: Any, status: str, outcome: str) -> None:
        """A summary that is longer is declined, one that is none is a failure; the history stays (CMP-8, CMP-9)."""
        stage = Stage(messages=turns(4), compactor=Summary(text))
        result = play(compacted(stage))
        assert (result.status, outcomes(stage), result.messages) == (status, [outcome], ())
        assert stage.agent.messages == turns(4)

    @pytest.mark.parametrize(
        ("extra", "converts", "outcome"),
        [
            ((AssistantMessage([ToolCall("c1", "write", {"text": "x" * 500})]), ToolMessage("c1", "write", "ok")), False,
             "compacted"),
            ((AssistantMessage([ToolCall("c1", "write", malformed="x" * 500)]), ToolMessage("c1", "write", "no")), False,
             "compacted"),
            ((AssistantMessage("x" * 500, StopReason.ABORTED),), False, "declined"),
            ((CustomMessage("note", "x" * 500),), True, "compacted"),
            ((CustomMessage("note" * 125, "x" * 500),), False, "declined"),
        ],
        ids=["arguments", "malformed arguments", "a cut message", "custom, rewritten", "custom, left out"],
    )  # fmt: skip
    def test_what_a_model_is_sent_of_the_old_messages_is_compared(
        self, extra: tuple[Any, ...], converts: bool, outcome: str
    ) -> None:
        """Calls weigh with their arguments; what no model is sent weighs nothing, and so is no gain."""
        first, *rest = turns(3)
        hooks = Hooks(convert_to_llm=lambda messages: messages) if converts else None
        stage = Stage(messages=[first, *extra, *rest], compactor=Summary("s" * 300), hooks=hooks)
        assert play(compacted(stage)).status == "completed"
        assert outcomes(stage) == [outcome]

    def test_what_is_queued_stays_queued(self) -> None:
        """Messages that come while the summary is made wait for the next run (CMP-12)."""
        stage = Stage(["a"], messages=turns(4), compactor=Summary())
        stage.on("compaction.started", lambda: stage.agent.steer("left"))
        play(compacted(stage))
        assert said(stage.agent.queued.steering) == [("user", "left")]


class TestWhereItCuts:
    def history(self, calls: int, count: int) -> list[Any]:
        """Turns of so many calls each, between a question and an answer."""
        return [
            message
            for turn in range(count)
            for message in (
                UserMessage(f"question {turn}"),
                AssistantMessage([ToolCall(f"t{turn}c{n}", "act") for n in range(calls)]),
                *(ToolMessage(f"t{turn}c{n}", "act", "ok " * 20) for n in range(calls)),
                AssistantMessage(f"answer {turn}"),
            )
        ]

    @pytest.mark.parametrize("calls", [1, 2, 5])
    @pytest.mark.parametrize("keep", [1, 2, 3, 4, 5])
    def test_no_call_is_open_on_either_side(self, calls: int, keep: int) -> None:
        """What is kept and what is summarized are well paired, for every number of kept turns (CMP-1, CMP-2, CMP-4)."""
        summary = Summary()
        stage = Stage(messages=self.history(calls, 4), compactor=summary, compaction=CompactionPolicy(keep_turns=keep))
        play(compacted(stage))
        assert unpaired(stage.agent.messages) == []
        assert unpaired(summary.asked[0]) == []
        assert stage.agent.messages[1].role != "tool"

    def test_cut_messages_are_not_summarized_but_archived(self) -> None:
        """The compactor sees what a model would; the archive has everything."""
        cut, note = AssistantMessage("par", StopReason.ABORTED), CustomMessage("note")
        summary = Summary()
        stage = Stage(messages=(UserMessage("a"), cut, note, *turns(3)), compactor=summary)
        play(compacted(stage))
        assert summary.asked[0] == (UserMessage("a"), *turns(3)[:2])
        assert stage.agent.state.archive[:3] == (UserMessage("a"), cut, note)

    def test_the_kept_turns_stay_as_they_are(self) -> None:
        """The newest turns are kept with the messages that opened them."""
        stage = Stage(messages=turns(5), compactor=Summary())
        play(compacted(stage))
        assert stage.agent.messages == (SummaryMessage("short"), *turns(5)[6:])


class TestCancel:
    @pytest.mark.parametrize("by_hand", [True, False])
    def test_it_can_be_cancelled(self, by_hand: bool) -> None:
        """A cancel ends a compaction, leaves the history, and is told as such (TRM-9)."""
        stage = Stage([FULL], messages=turns(4), compactor=Summary(asyncio.Event().wait))

        async def main() -> str:
            run = stage.agent.compact() if by_hand else stage.agent.prompt("Hi")
            await ticks()
            assert stage.agent.phase == "compaction"
            stage.agent.cancel()
            return (await run).status

        assert (play(main()), outcomes(stage)) == ("cancelled", ["cancelled"])
        assert tuple(stage.agent.messages)[:8] == turns(4)
        assert stage.breaches == []

    def test_a_cancel_before_the_compactor_is_asked(self) -> None:
        """A cancel at `compaction.started` asks nobody (G7)."""
        summary = Summary()
        stage = Stage(messages=turns(4), compactor=summary)
        stage.on("compaction.started", stage.agent.cancel)
        assert (play(compacted(stage)).status, summary.asked) == ("cancelled", [])


class TestTheDefault:
    def test_the_model_makes_the_summary(self) -> None:
        """Without a compactor the agent's model is asked, with no tools, and the request is not counted."""
        stage = Stage([FULL], ["so it was"], ["a"], messages=turns(4), tools=[Act()])
        result = play(stage.run())
        first, summary, again = stage.model.requests
        assert (first.id, summary.tools, again.id) == (f"{result.run_id}:1", (), f"{result.run_id}:2")
        assert stage.said[0] == ("summary", "so it was")

    @pytest.mark.parametrize("given", [False, True])
    @pytest.mark.parametrize(("seconds", "status"), [(9.9, "completed"), (10.1, "failed")])
    def test_a_model_that_stalls_has_failed(self, seconds: float, status: str, given: bool) -> None:
        """The silence between the parts of a summary is measured as that of any response (G11)."""
        stalling = ScriptedModel([["so", lambda: asyncio.sleep(seconds), " it", lambda: asyncio.sleep(seconds), " was"]])
        stage = Stage(messages=turns(4), stream_idle_timeout=10, compactor=ModelCompactor(stalling) if given else None)
        stage.agent.configure(model=stalling)
        result = play(compacted(stage))
        assert (result.status, outcomes(stage)) == (status, ["compacted" if status == "completed" else "failed"])
        assert status == "completed" or "said nothing for 10 s" in str(result.error)

    def test_a_deaf_model_is_given_up(self) -> None:
        """One that stalls and ignores its cancel is abandoned after the grace, and what it says later is discarded."""
        stage = Stage(messages=turns(4), stream_idle_timeout=10, cancel_grace=5)
        stage.agent.configure(model=ScriptedModel([[stage.deaf("end")]]))

        async def main() -> None:
            result = await stage.agent.compact()
            assert asyncio.get_running_loop().time() == 15
            assert (result.status, [work.kind for work in stage.agent.abandoned]) == ("failed", ["compactor"])
            stage.gates.open("end")
            await ticks()
            assert (stage.agent.abandoned, outcomes(stage), tuple(stage.agent.messages)) == ((), ["failed"], turns(4))

        play(main())

    def test_it_is_the_model_of_now(self) -> None:
        """A model that was configured later makes the summaries too."""
        stage, other = Stage(messages=turns(4)), ScriptedModel([["so it was"]])
        stage.agent.configure(model=other)
        assert play(compacted(stage)).status == "completed"
        assert (len(stage.model.requests), len(other.requests)) == (0, 1)

    @pytest.mark.parametrize(
        "response", [[], [call("c1", "act")], [ModelError("no")]], ids=["nothing", "a call", "an error"]
    )
    def test_an_answer_that_is_none_is_a_failure(self, response: Any) -> None:
        """A model that answers with nothing, or with a call, made no summary (CMP-9)."""
        agent = Agent(ScriptedModel([response]), messages=turns(4), config=KernelConfig())

        async def main() -> str:
            return (await agent.compact()).status

        assert (play(main()), len(agent.messages)) == ("failed", 8)
