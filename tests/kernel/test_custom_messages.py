"""An application's own messages: where they enter, where they are shown, and what a model gets to see of them."""

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest

from kernel import Agent, CompactionPolicy, CustomMessage, Hooks, KernelConfig, ModelError, UserMessage
from kernel.effects import ModelRequest
from kernel.journal import read_journal
from kernel.messages import MESSAGE_TYPES
from kernel.testing import Recorder, ScriptedModel, call
from tests.kernel.helpers import Act, Stage, play, ticks, turns

NOTE = CustomMessage("command", {"run": ["ls", "-l"]})
KEEP_ONE = CompactionPolicy(keep_turns=1)


def told(messages: Any) -> list[Any]:
    """The custom messages as a user's."""
    return [UserMessage(f"ran {m.data['run'][0]}") if isinstance(m, CustomMessage) else m for m in messages]


def failures(stage: Stage) -> list[tuple[str, str]]:
    return [(event.hook, event.error) for event in stage.heard.of("hook.failed")]


class Summary:
    """A compactor that keeps what it was given."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def summarize(self, messages: Any) -> str:
        self.asked.append(messages)
        return "short"


async def queued(stage: Stage, method: str) -> None:
    stage.on("turn.started", lambda: getattr(stage.agent, method)(NOTE))
    await stage.agent.prompt("Hi")


async def prompted(stage: Stage) -> None:
    await stage.agent.prompt(NOTE)


async def queued_while_idle(stage: Stage) -> None:
    stage.agent.follow_up(NOTE)
    await stage.agent.continue_()


WAYS: dict[str, tuple[Callable[[Stage], Any], str, int]] = {
    "prompt": (prompted, "prompt", 0),
    "steer": (lambda stage: queued(stage, "steer"), "steering", 0),
    "follow_up": (lambda stage: queued(stage, "follow_up"), "follow_up", 1),
    "follow_up while idle": (queued_while_idle, "follow_up", 0),
}


class TestWaysIn:
    @pytest.mark.parametrize(("way", "origin", "request_at"), WAYS.values(), ids=WAYS)
    def test_it_is_stored_shown_and_rewritten(self, way: Any, origin: str, request_at: int) -> None:
        """However it comes in, transcript and event have it as it is, and the request as it was rewritten."""
        stage = Stage(["a"], ["b"], messages=turns(1), hooks=Hooks(convert_to_llm=told))
        play(way(stage))
        assert NOTE in stage.agent.messages
        assert (NOTE, origin) in [(event.message, event.origin) for event in stage.heard.of("message.accepted")]
        assert NOTE in stage.agent.state.messages
        sent = stage.model.requests[request_at].messages
        assert sent[-1] == UserMessage("ran ls")
        assert not any(isinstance(message, CustomMessage) for message in sent)
        stage.keeps_its_word()

    @pytest.mark.parametrize(("way", "origin", "request_at"), WAYS.values(), ids=WAYS)
    def test_without_a_hook_no_model_sees_it(self, way: Any, origin: str, request_at: int) -> None:
        """By default it is left out of every request, wherever it stands."""
        stage = Stage(["a"], ["b"], messages=turns(1))
        play(way(stage))
        assert NOTE in stage.agent.messages
        sent = [message for request in stage.model.requests for message in request.messages]
        assert not any(isinstance(message, CustomMessage) for message in sent)

    def test_it_may_be_in_the_history(self) -> None:
        """`messages=` takes it in any place, between turns too."""
        stage = Stage(["a"], messages=(NOTE, *turns(1), NOTE), hooks=Hooks(convert_to_llm=told))
        play(stage.run())
        assert stage.agent.messages[:4] == (NOTE, *turns(1), NOTE)
        assert stage.model.requests[0].messages == (*told((NOTE, *turns(1), NOTE)), UserMessage("Hi"))

    @pytest.mark.parametrize("method", ["steer", "follow_up"])
    def test_it_waits_as_itself(self, method: str) -> None:
        """Queues, receipts and `queue.changed` show it, and it can be taken out again."""
        stage = Stage(["a"])
        seen: list[Any] = []

        def queue() -> None:
            receipt = getattr(stage.agent, method)(NOTE)
            there = stage.agent.queued
            seen.append((there.steering + there.follow_up, receipt.message, stage.agent.unqueue(receipt), receipt.status))

        stage.on("turn.started", queue)
        play(stage.run())
        assert seen == [((NOTE,), NOTE, NOTE, "dropped")]
        first, last = stage.heard.of("queue.changed")
        assert (first.steering + first.follow_up, last.dropped) == ((NOTE,), (NOTE,))

    def test_it_counts_as_any_message(self) -> None:
        """A custom message needs its place in the transcript and in the queue like others."""
        agent = Stage(message_limit=4, queue_limit=1).agent
        agent.steer(NOTE)
        before = agent.state
        with pytest.raises(Exception, match="queue_limit is 1"):
            agent.follow_up(NOTE)
        assert agent.state == before

    def test_what_it_holds_never_changes(self) -> None:
        """What was handed in is copied, and what is handed out can't be changed."""
        data = {"run": ["ls"]}
        stage = Stage(["a"])

        async def main() -> None:
            await stage.agent.prompt(CustomMessage("command", data))

        play(main())
        data["run"].append("rm")
        assert stage.agent.messages[0].data == {"run": ("ls",)}
        with pytest.raises(TypeError):
            stage.agent.messages[0].data["run"] = "rm"

    @pytest.mark.parametrize("make", [lambda data: CustomMessage("a", data), lambda data: call("c1", "act", data=data)],
                             ids=["message", "call"])  # fmt: skip
    def test_what_holds_itself_is_no_data(self, make: Any) -> None:
        """Data without an end is a ValueError that says so, of a call's arguments as well."""
        data: dict[str, Any] = {}
        data["again"] = [data]
        with pytest.raises(ValueError, match=r"arguments and data .* contains itself"):
            make(data)


RUBBISH: dict[str, Any] = {
    "raises": lambda _: 1 / 0,
    "none": lambda _: None,
    "no sequence": lambda _: 5,
    "text": lambda _: "Hi",
    "no messages": lambda _: [{"role": "user"}],
    "the custom one and rubbish": lambda messages: [*messages, None],
}
RAW: dict[str, Any] = {
    "as they are": lambda messages: messages,
    "one of its own": lambda messages: [*messages, CustomMessage("own")],
}


class TestNeverRaw:
    @pytest.mark.parametrize("hook", RUBBISH.values(), ids=RUBBISH)
    def test_a_hook_that_fails_leaves_them_out(self, hook: Any) -> None:
        """When `convert_to_llm` raises or answers rubbish, the model gets the conversation without custom messages."""
        stage = Stage(["a"], messages=(NOTE, *turns(1)), hooks=Hooks(convert_to_llm=hook))
        play(stage.run())
        assert stage.model.requests[0].messages == (*turns(1), UserMessage("Hi"))
        assert [name for name, _ in failures(stage)] == ["convert_to_llm"]

    @pytest.mark.parametrize("hook", RAW.values(), ids=RAW)
    @pytest.mark.parametrize("name", ["convert_to_llm", "transform_context"])
    def test_a_hook_that_hands_them_on_leaves_them_out(self, name: str, hook: Any) -> None:
        """What is still a custom message after the hooks is left out, and nobody is to blame."""
        stage = Stage(["a"], messages=(NOTE, *turns(1)), hooks=Hooks(**{name: hook}))
        play(stage.run())
        assert stage.model.requests[0].messages == (*turns(1), UserMessage("Hi"))
        assert failures(stage) == []

    def test_in_no_request_of_any_turn(self) -> None:
        """Neither a retry, nor a second turn, nor a continued run shows it."""
        busy = ModelError("busy", retryable=True)
        stage = Stage([busy], [call("c1", "act")], ["b"], ["c"], tools=[Act()], messages=(NOTE,))
        stage.on("tool.started", lambda: stage.agent.steer(NOTE))

        async def main() -> None:
            await stage.agent.prompt("Hi")
            stage.agent.follow_up(NOTE)
            await stage.agent.continue_()

        play(main())
        assert len(stage.model.requests) == 4
        kinds = {type(message) for request in stage.model.requests for message in request.messages}
        assert kinds < set(MESSAGE_TYPES) - {CustomMessage}


class TestSummaries:
    """A compactor is one more that asks a model: it gets what a model would be shown."""

    def compacted(self, *, hook: Any = None, summary: Any = None) -> Stage:
        stage = Stage(messages=(NOTE, *turns(3)), compactor=summary or Summary(), compaction=KEEP_ONE,
                      hooks=Hooks(convert_to_llm=hook))  # fmt: skip

        async def main() -> None:
            await stage.agent.compact()

        play(main())
        stage.keeps_its_word()
        return stage

    def test_by_default_they_are_left_out(self) -> None:
        """Without a hook a compactor never sees one; the archive has it."""
        stage = self.compacted(summary=(summary := Summary()))
        assert summary.asked == [turns(3)[:4]]
        assert stage.agent.state.archive[0] == NOTE

    @pytest.mark.parametrize("made_async", [False, True], ids=["sync", "async"])
    def test_what_the_hook_says_of_them_is_summarized(self, made_async: bool) -> None:
        """What a model was told of them is not lost with the summary."""

        async def later(messages: Any) -> Any:
            await asyncio.sleep(1)
            return told(messages)

        self.compacted(hook=later if made_async else told, summary=(summary := Summary()))
        assert summary.asked == [(UserMessage("ran ls"), *turns(3)[:4])]

    @pytest.mark.parametrize("hook", RUBBISH.values(), ids=RUBBISH)
    def test_a_hook_that_fails_leaves_them_out(self, hook: Any) -> None:
        """The failure is told within the compaction, which goes on without them."""
        stage = self.compacted(hook=hook, summary=(summary := Summary()))
        assert summary.asked == [turns(3)[:4]]
        assert stage.types == ["run.started", "compaction.started", "hook.failed", "compaction.ended", "run.finished"]
        assert [event.outcome for event in stage.heard.of("compaction.ended")] == ["compacted"]

    @pytest.mark.parametrize(("text", "outcome"), [("long " * 400, "declined"), (ModelError("no"), "failed")])
    def test_the_hooks_failure_is_told_whatever_becomes_of_the_summary(self, text: Any, outcome: str) -> None:
        """A summary that is declined or fails does not hide that the hook failed."""

        class Other:
            async def summarize(self, messages: Any) -> str:
                if isinstance(text, Exception):
                    raise text
                return text  # type: ignore[no-any-return]

        stage = self.compacted(hook=RUBBISH["none"], summary=Other())
        assert [name for name, _ in failures(stage)] == ["convert_to_llm"]
        assert [event.outcome for event in stage.heard.of("compaction.ended")] == [outcome]

    def test_the_default_compactor_asks_with_them_rewritten(self) -> None:
        """The agent's own model reads of them what the hook wrote."""
        stage = Stage(["short"], messages=(NOTE, *turns(3)), compaction=KEEP_ONE, hooks=Hooks(convert_to_llm=told))

        async def main() -> None:
            await stage.agent.compact()

        play(main())
        (request,) = stage.model.requests
        assert isinstance(request, ModelRequest)
        assert "User: ran ls" in request.messages[0].text

    def test_a_hook_that_hangs_ends_with_the_cancel(self) -> None:
        """A cancel reaches the hook of a compaction; a deaf one is given up by its name, and the history stays."""
        stage, summary = Stage(), Summary()
        agent = Agent(
            stage.model,
            messages=(NOTE, *turns(3)),
            compactor=summary,
            hooks=Hooks(convert_to_llm=stage.deaf("end")),
            config=KernelConfig(compaction=KEEP_ONE, cancel_grace=2),
        )

        async def main() -> None:
            run = agent.compact()
            await asyncio.sleep(1)
            agent.cancel()
            assert (await run).status == "cancelled"
            assert [(work.kind, work.name) for work in agent.abandoned] == [("hook", "convert_to_llm")]
            stage.gates.open("end")
            await ticks()
            assert agent.abandoned == ()

        play(main())
        assert (summary.asked, agent.messages) == ([], (NOTE, *turns(3)))

    def test_a_journal_tells_it_again(self) -> None:
        """The failure of the hook is in the journal: replayed, the same is told."""
        lines, heard = io.StringIO(), Recorder()
        agent = Agent(ScriptedModel(), messages=(NOTE, *turns(3)), compactor=Summary(), journal=lines.write,
                      hooks=Hooks(convert_to_llm=RUBBISH["none"]), config=KernelConfig(compaction=KEEP_ONE))  # fmt: skip
        agent.subscribe(heard)

        async def main() -> None:
            await agent.compact()

        play(main())
        journal = read_journal(lines.getvalue().splitlines(keepends=True))
        told_again = [effect for effects in journal.replay() for effect in effects if hasattr(effect, "sequence")]
        assert told_again == heard.events
        assert "hook.failed" in heard.types
