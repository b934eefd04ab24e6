"""Wrong arguments and wrong places: a clear error that names the argument, before anything has changed."""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kernel import (
    Agent,
    AgentBusyError,
    AgentClosedError,
    AssistantMessage,
    Block,
    CustomMessage,
    Hooks,
    KernelConfig,
    KernelError,
    MessageLimitError,
    ModelError,
    NothingToCompactError,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    WrongLoopError,
)
from kernel.compactors import ModelCompactor
from kernel.core import Core
from kernel.estimators import LengthEstimator
from kernel.journal import read_journal
from kernel.messages import Reasoning, SummaryMessage, Usage
from kernel.testing import Gates, Recorder, ScriptedModel, SimulatedLoop, call
from kernel.trace import check
from tests.kernel.helpers import Act, Stage, play, ticks, turns


class NoStream:
    pass


class WindowOf:
    def __init__(self, window: Any) -> None:
        self.context_window = window

    def stream(self, request: Any) -> Any:
        raise NotImplementedError


async def later(arguments: Any) -> Any:
    return arguments


MODELS: dict[str, Any] = {
    "none": None,
    "text": "gpt",
    "no stream": NoStream(),
    "a class": ScriptedModel,
    "a window that is text": WindowOf("1000"),
    "a window of nothing": WindowOf(0),
    "a window that is a truth": WindowOf(True),
}
TOOLS: dict[str, Any] = {
    "none": None,
    "text": "act",
    "one tool": Act(),
    "a mapping": {"act": Act()},
    "a function": [print],
    "a class": [Act],
    "two of one name": [Act(), Act()],
    "an empty name": [Act("")],
    "a name with a space": [Act("an act")],
    "a name that is too long": [Act("a" * 65)],
    "a name that is no text": [Act(5)],  # type: ignore[arg-type]
    "a mode that is none": [Act(mode="both")],
    "a timeout below zero": [Act(timeout=-1)],
    "a timeout that is no number": [Act(timeout="1")],
    "resources that can't be called": [Act(resources=["file"])],
    "resources that are async": [Act(resources=later)],
    "a check that is async": [Act(validate=later)],
    "a timeout past all clocks": [Act(timeout=10**400)],
}
MESSAGES: dict[str, Any] = {
    "none": None,
    "empty": "",
    "blank": " \n\t",
    "a number": 5,
    "an answer": AssistantMessage("no"),
    "blocks of nothing": UserMessage(""),
    "a list": ["Hi"],
}


def wrong(argument: str) -> Any:
    return pytest.raises((TypeError, ValueError), match=argument)


def agent(**arguments: Any) -> Agent:
    return Stage(**arguments).agent


class TestConstruction:
    @pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
    def test_a_model(self, model: Any) -> None:
        """What is no model is refused by name."""
        with wrong(r"^model"):
            Agent(model)

    @pytest.mark.parametrize("tools", TOOLS.values(), ids=TOOLS)
    def test_tools(self, tools: Any) -> None:
        """What are no tools is refused by name."""
        with wrong(r"^tools"):
            agent(tools=tools)

    @pytest.mark.parametrize(
        ("argument", "value"),
        [
            ("system_prompt", None),
            ("system_prompt", 5),
            ("reasoning_effort", 5),
            ("hooks", {}),
            ("hooks", None),
            ("config", {}),
            ("config", None),
            ("compactor", object()),
            ("compactor", "short"),
            ("compactor", ModelCompactor),
            ("estimator", "length"),
            ("estimator", LengthEstimator),
            ("journal", 5),
        ],
    )
    def test_other_arguments(self, argument: str, value: Any) -> None:
        """Each argument of a wrong type is refused by name."""
        with wrong(rf"^{argument}"):
            Agent(ScriptedModel(), **{argument: value})

    @pytest.mark.parametrize("name", ["transform_context", "convert_to_llm", "before_tool_call", "after_tool_result",
                                      "should_stop_after_turn"])  # fmt: skip
    def test_hooks(self, name: str) -> None:
        """A hook that can't be called is refused by name."""
        with wrong(name):
            Hooks(**{name: "hook"})


class TestCommands:
    @pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
    @pytest.mark.parametrize("method", ["prompt", "steer", "follow_up", "run_sync"])
    def test_a_message(self, method: str, message: Any) -> None:
        """What is no message is refused by name, and nothing begins."""
        stage = Stage(["a"])

        async def main() -> None:
            before = stage.agent.state
            with wrong("^message"):
                getattr(stage.agent, method)(message)
            assert (stage.agent.state, stage.heard.events) == (before, [])

        if method == "run_sync":
            with wrong("^message"):
                stage.agent.run_sync(message)
        else:
            play(main())

    def test_an_applications_message_may_be_anything(self) -> None:
        """A custom message has no text that could be empty."""
        stage = Stage(["a"])

        async def main() -> None:
            await stage.agent.prompt(CustomMessage("note", {"a": 1}))

        play(main())
        assert stage.agent.messages[0] == CustomMessage("note", {"a": 1})

    @pytest.mark.parametrize("receipt", [None, 1, "left", UserMessage("left")], ids=repr)
    def test_a_receipt(self, receipt: Any) -> None:
        """What is no receipt is refused by name."""
        with wrong("^receipt"):
            agent().unqueue(receipt)

    @pytest.mark.parametrize("listener", [None, "print", 5, [print]], ids=repr)
    def test_a_listener(self, listener: Any) -> None:
        """What can't be called can't listen."""
        with wrong("^listener"):
            agent().subscribe(listener)

    @pytest.mark.parametrize("reason", [5, b"stop", ["stop"]], ids=repr)
    def test_a_reason(self, reason: Any) -> None:
        """A reason is a string; a wrong one cancels nothing, neither for the agent nor for the run."""
        stage = Stage(["a"])

        async def main() -> str:
            run = stage.agent.prompt("Hi")
            with wrong("^reason"):
                stage.agent.cancel(reason)
            assert stage.agent.phase == "turn"
            return (await run).status

        assert play(main()) == "completed"

    def test_a_reason_of_a_run(self) -> None:
        """`run.cancel` checks its reason as `agent.cancel` does."""
        stage = Stage(["a"])

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            with wrong("^reason"):
                run.cancel(5)  # type: ignore[arg-type]

        play(main(), left=None)

    @pytest.mark.parametrize(
        ("argument", "value"),
        [
            *(("model", model) for model in MODELS.values()),
            *(("tools", tools) for tools in TOOLS.values()),
            ("system_prompt", None),
            ("reasoning_effort", 5),
        ],
    )
    def test_a_configuration(self, argument: str, value: Any) -> None:
        """One wrong argument of `configure` refuses all of them."""
        there = agent()
        before = there.state
        with wrong(f"^{argument}"):
            there.configure(**({"system_prompt": "Be kind.", "tools": [Act("new")]} | {argument: value}))
        assert there.state == before

    def test_closed_comes_first(self) -> None:
        """A closed agent says that it is closed, whatever the arguments are."""
        there = agent()
        play(there.aclose())
        commands: list[Callable[[], object]] = [
            lambda: there.steer(""),
            lambda: there.subscribe(None),  # type: ignore[arg-type]
            lambda: there.unqueue(None),  # type: ignore[arg-type]
            lambda: there.configure(model=None),  # type: ignore[arg-type]
        ]
        for command in commands:
            with pytest.raises(AgentClosedError):
                command()


class TestPlaces:
    def test_without_a_loop(self) -> None:
        """Without a running loop a run can't start, and the error says what to use."""
        there = agent(messages=turns(5))
        for method, arguments in (("prompt", ["Hi"]), ("compact", [])):
            with pytest.raises(WrongLoopError, match=rf"{method}\(\) needs a running event loop.*run_sync\(\)") as caught:
                getattr(there, method)(*arguments)
            assert (caught.value.code, isinstance(caught.value, RuntimeError)) == ("WRONG_LOOP", True)
        assert (there.phase, len(there.messages)) == ("idle", 10)

    def test_run_sync_in_a_loop(self) -> None:
        """Inside a running loop `run_sync` is refused with a sentence that says what to do."""
        stage = Stage(["a"])

        async def main() -> None:
            with pytest.raises(WrongLoopError, match=r"await agent.prompt\(…?\.*\) instead"):
                stage.agent.run_sync("Hi")

        play(main())
        assert stage.agent.phase == "idle"

    def test_commands_without_a_loop_are_fine(self) -> None:
        """What starts nothing needs no loop."""
        there = agent()
        receipt = there.steer("left")
        assert (there.cancel(), there.unqueue(receipt), receipt.status) == (False, UserMessage("left"), "dropped")
        there.subscribe(print)()
        there.configure(system_prompt="Be kind.")
        there.reset()

    COMMANDS: dict[str, Callable[[Agent], object]] = {  # noqa: RUF012  # a table for the two tests below
        "prompt": lambda agent: agent.prompt("Hi"),
        "steer": lambda agent: agent.steer("left"),
        "follow_up": lambda agent: agent.follow_up("then"),
        "cancel": lambda agent: agent.cancel(),
        "abort": lambda agent: agent.abort(),
        "clear_queues": lambda agent: agent.clear_queues(),
        "configure": lambda agent: agent.configure(system_prompt="Be kind."),
        "reset": lambda agent: agent.reset(),
        "compact": lambda agent: agent.compact(),
        "continue_": lambda agent: agent.continue_(),
        "subscribe": lambda agent: agent.subscribe(print),
        "wait_for_idle": lambda agent: agent.wait_for_idle().send(None),
        "aclose": lambda agent: agent.aclose().send(None),
    }

    @pytest.mark.parametrize("name", COMMANDS)
    def test_another_thread(self, name: str) -> None:
        """A command from another thread than the run's is refused, and changes nothing."""
        stage = Stage(["a", lambda: stage.gates.wait("go")])
        caught: list[BaseException] = []

        def stranger() -> None:
            try:
                if name in ("wait_for_idle", "aclose"):
                    asyncio.run(getattr(stage.agent, name)())
                else:
                    self.COMMANDS[name](stage.agent)
            except WrongLoopError as error:
                caught.append(error)

        async def main() -> None:
            run = stage.agent.prompt("Hi")
            await ticks()
            before = stage.agent.state
            thread = threading.Thread(target=stranger)
            thread.start()
            thread.join()
            assert "call_soon_threadsafe" in str(caught[0])
            assert stage.agent.state == before
            stage.gates.open("go")
            await run

        play(main())

    @pytest.mark.parametrize("name", COMMANDS)
    def test_another_loop(self, name: str) -> None:
        """A command from another loop than the run's is refused, and changes nothing."""
        stage = Stage(["a", lambda: stage.gates.wait("go")])
        own, other = SimulatedLoop(), SimulatedLoop()
        with own.active():
            stage.agent.prompt("Hi")
            own.drain()
        before = stage.agent.state
        with other.active(), pytest.raises(WrongLoopError, match=r"another thread or event loop"):
            self.COMMANDS[name](stage.agent)
        assert stage.agent.state == before
        with own.active():
            stage.gates.open("go")
            own.drain()
        assert stage.agent.phase == "idle"
        assert (own.shutdown(), other.shutdown()) == ([], [])


PHASES = ("idle", "turn", "streaming", "tools", "retry", "compaction", "cancelling", "settling", "closed")
MISUSES: dict[str, Callable[[Agent], object]] = {
    "prompt": lambda agent: agent.prompt(5),  # type: ignore[arg-type]
    "prompt, empty": lambda agent: agent.prompt(" "),
    "run_sync": lambda agent: agent.run_sync(5),  # type: ignore[arg-type]
    "steer": lambda agent: agent.steer(None),  # type: ignore[arg-type]
    "steer, empty": lambda agent: agent.steer(""),
    "follow_up": lambda agent: agent.follow_up(["then"]),  # type: ignore[arg-type]
    "unqueue": lambda agent: agent.unqueue("left"),  # type: ignore[arg-type]
    "cancel": lambda agent: agent.cancel(5),  # type: ignore[arg-type]
    "subscribe": lambda agent: agent.subscribe("print"),  # type: ignore[arg-type]
    "configure, model": lambda agent: agent.configure(model="gpt", system_prompt="Be kind."),  # type: ignore[arg-type]
    "configure, tools": lambda agent: agent.configure(tools=[print], system_prompt="Be kind."),  # type: ignore[list-item]
    "configure, prompt": lambda agent: agent.configure(tools=[Act("new")], system_prompt=5),  # type: ignore[arg-type]
    "configure, effort": lambda agent: agent.configure(system_prompt="Be kind.", reasoning_effort=5),  # type: ignore[arg-type]
}


class TestEveryPhase:
    """A command with a wrong argument changes nothing and writes nothing into the journal, whatever the agent does."""

    async def misused(self, agent: Agent, lines: list[str]) -> None:
        for name, misuse in MISUSES.items():
            before = agent.state, len(lines), agent.subscriber_errors, agent._shell.listeners.all
            with pytest.raises((TypeError, ValueError, KernelError)) as caught:
                misuse(agent)
            named = r"message|receipt|reason|listener|model|tools|system_prompt"
            assert isinstance(caught.value, KernelError) or re.match(named, str(caught.value)), name
            assert before == (agent.state, len(lines), agent.subscriber_errors, agent._shell.listeners.all), name

    @pytest.mark.parametrize("phase", PHASES)
    def test_it_is_refused_and_nothing_changes(self, phase: str) -> None:
        """The error names the argument, or says that the phase refuses the command."""
        gates, heard, lines = Gates(), Recorder(), list[str]()

        async def wait(*_: Any) -> str:
            await gates.wait("go")
            return "ok"

        class Compactor:
            async def summarize(self, messages: Any) -> str:
                return await wait()

        first: Any = {
            "turn": [wait], "streaming": ["a", wait], "tools": [call("c1", "act")],
            "retry": [ModelError("busy", retryable=True, retry_after=9)], "compaction": [ModelError("full", overflow=True)],
            "cancelling": ["a", lambda: gates.wait_ignoring_cancel("go")],
        }.get(phase, ["a"])  # fmt: skip
        there = Agent(
            ScriptedModel([first, ["b"]]),
            tools=[Act(body=wait)],
            messages=turns(4),
            compactor=Compactor(),
            journal=lines.append,
        )
        there.subscribe(heard)
        if phase == "settling":
            there.subscribe(lambda event: wait() if event.type == "run.finished" else None)
        target = {"streaming": "turn", "tools": "turn"}.get(phase, phase)

        async def main() -> None:
            if phase == "closed":
                await there.aclose()
            run = there.prompt("Hi") if phase not in ("idle", "closed") else None
            await ticks()
            if phase == "cancelling":
                there.cancel()
            assert there.phase == target
            await self.misused(there, lines)
            assert there.phase == target
            gates.open("go")
            if run is not None:
                assert (await run).status == ("cancelled" if phase == "cancelling" else "completed")

        play(main())
        assert check(heard.events) == []
        assert read_journal(lines).core() is not None
        replayed = Core.replay(read_journal(lines).inputs, KernelConfig(), read_journal(lines).setup, frozenset(), turns(4))
        assert replayed.state.transcript.messages == there.messages

    def test_what_was_refused_takes_no_number(self) -> None:
        """Ids of runs count the runs that began."""
        stage = Stage(["a"], ["b"])

        async def main() -> list[str]:
            ids = []
            for _ in range(2):
                for misuse in (lambda: stage.agent.prompt(""), lambda: stage.agent.compact()):
                    with pytest.raises((ValueError, NothingToCompactError)):
                        misuse()
                run = stage.agent.prompt("Hi")
                with pytest.raises(AgentBusyError):
                    stage.agent.prompt("again")
                await run
                ids.append(run.id)
            return ids

        assert [id.rpartition("-")[2] for id in play(main())] == ["1", "2"]


class TestWaits:
    """A run can be waited for on its own loop alone: another one would never be woken."""

    WAITS: dict[str, Callable[[Any], Any]] = {"await": lambda run: run, "iterate": lambda run: anext(run)}  # noqa: RUF012

    @pytest.mark.parametrize("how", WAITS)
    def test_a_wait_in_another_thread_is_refused(self, how: str) -> None:
        """It is told at once what to use, and the run goes on."""
        stage = Stage([lambda: stage.gates.wait("go"), "a"])
        caught: list[BaseException] = []

        async def wait(run: Any) -> None:
            while how == "iterate" and run._buffer:
                await anext(run)
            await self.WAITS[how](run)

        def stranger(run: Any) -> None:
            try:
                asyncio.run(asyncio.wait_for(wait(run), 5))
            except WrongLoopError as error:
                caught.append(error)

        async def main() -> str:
            run = stage.agent.prompt("Hi")
            await ticks()
            thread = threading.Thread(target=stranger, args=(run,))
            thread.start()
            thread.join()
            assert "run_coroutine_threadsafe" in str(caught[0])
            stage.gates.open("go")
            return (await run).status

        assert play(main()) == "completed"

    @pytest.mark.parametrize("how", WAITS)
    def test_a_run_whose_loop_died_is_found_dead_by_who_waits(self, how: str) -> None:
        """A wait in a new loop ends with the run that ended as cancelled, and not never."""
        stage, loop = Stage(["a", lambda: stage.gates.wait("never")]), SimulatedLoop()
        with loop.active():
            run = stage.agent.prompt("Hi")
            loop.drain()
        loop.close()

        async def main() -> Any:
            if how == "iterate":
                assert [event.type async for event in run][-1] == "run.finished"
            return (await run).status

        assert play(main(), left=None) == "cancelled"
        assert stage.agent.phase == "idle"


CALLS = AssistantMessage((ToolCall("c1", "act"), ToolCall("c2", "act")))
RESULT = ToolMessage("c1", "act", "ok")
POISON: dict[str, Any] = {
    "none": None,
    "text": "Hi",
    "bytes": b"Hi",
    "a number": 5,
    "texts": ["Hi"],
    "dictionaries": [{"role": "user", "content": "Hi"}],
    "a result without a call": [UserMessage("Hi"), RESULT],
    "two results for one call": [CALLS, RESULT, RESULT],
    "a result that comes too late": [CALLS, UserMessage("Hi"), RESULT],
    "a result for a call that was cut": [AssistantMessage(CALLS.content, StopReason.ABORTED), RESULT],
}


class TestPoisonedHistory:
    @pytest.mark.parametrize("journal", [False, True], ids=["alone", "with a journal"])
    @pytest.mark.parametrize("messages", POISON.values(), ids=POISON)
    def test_it_is_refused_by_name(self, messages: Any, journal: bool) -> None:
        """What can't be a conversation is refused, the error tells where, and no journal was begun."""
        lines: list[str] = []
        with wrong(r"^messages"):
            Agent(ScriptedModel(), messages=messages, journal=lines.append if journal else None)
        assert lines == []

    def test_one_that_is_too_long_begins_no_journal(self) -> None:
        """A conversation past `message_limit` is refused before anything is written."""
        lines: list[str] = []
        with pytest.raises(MessageLimitError, match=r"messages has 4 messages; message_limit is 3"):
            Agent(ScriptedModel(), messages=turns(2), config=KernelConfig(message_limit=3), journal=lines.append)
        assert lines == []

    def test_a_generator_is_read_once(self) -> None:
        """A conversation may come in any form, with a journal too, whose header has it as it was taken."""
        lines: list[str] = []
        messages = (message for message in [CALLS, RESULT])
        there = Agent(ScriptedModel(), messages=messages, journal=lines.append)
        assert [message.role for message in there.messages] == ["assistant", "tool", "tool"]
        assert read_journal(lines).core().state.transcript.messages == there.messages


BORN: dict[str, tuple[Any, ...]] = {
    "a number as content": (UserMessage, 5),
    "text that is no block": (UserMessage, ["text"]),
    "a message as a block": (AssistantMessage, [UserMessage("a")]),
    "an unknown stop reason": (AssistantMessage, "a", "whatever"),
    "a usage that is a number": (AssistantMessage, "a", "stop", 5),
    "an id that is a number": (ToolMessage, 5, "act", "ok"),
    "an error that is text": (ToolMessage, "c1", "act", "ok", "no"),
    "arguments that are a list": (ToolCall, "c1", "act", [1]),
    "a call without a name": (ToolCall, "c1", None),
    "a text of nothing": (Text, None),
    "a signature that is a number": (Reasoning, "a", 5),
    "a summary of nothing": (SummaryMessage, None),
    "a kind that is a number": (CustomMessage, 5),
    "a result's content that is a number": (ToolResult, 5),
    "a result's content that is none": (ToolResult, None),
    "a result's content that holds text": (ToolResult, ["text"]),
    "a result that is an error by text": (ToolResult, "text", "no"),
    "a reason to block that is a number": (Block, 5),
    "tokens below zero": (Usage, -1),
    "half a token": (Usage, 1.5),
    "a call with a number for its id": (call, 5, "act"),
}


@pytest.mark.parametrize("born", BORN.values(), ids=BORN)
def test_a_value_is_valid_from_birth(born: tuple[Any, ...]) -> None:
    """A message or a block of the wrong shape can't be made."""
    make, *arguments = born
    with pytest.raises((TypeError, ValueError)):
        make(*arguments)
