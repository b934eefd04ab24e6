"""What the tests of the kernel share: a stage for an agent on a simulated loop, and a bench for the bare core."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from kernel import Agent, Hooks, KernelConfig, RunResult
from kernel.core import Core
from kernel.effects import Barrier, Effect
from kernel.errors import Failure
from kernel.estimators import UsageOnlyEstimator
from kernel.events import Event
from kernel.inputs import Advance, Input, ModelPart, Projected, Prompt, QueuedItem, ResponseCompleted, Settled, Steer
from kernel.messages import AssistantMessage, Message, ToolMessage, UserMessage
from kernel.outputs import output_of
from kernel.setup import Setup
from kernel.shadow import shadow
from kernel.testing import Gates, Recorder, ScriptedModel, SimulatedLoop
from kernel.tools import specs_of
from kernel.trace import check

T = TypeVar("T")


def play(main: Coroutine[Any, Any, T], *, left: Iterable[str] | None = ()) -> T:
    """What *main* returns, on a simulated loop. Afterwards only tasks of the names *left* are alive (None: whatever they
    are), and nothing was reported to the loop's exception handler.
    """
    loop = SimulatedLoop()
    try:
        value = loop.run_until_complete(main)
    finally:
        names = sorted(task.get_name() for task in loop.unfinished())
        loop.shutdown()
    assert left is None or names == sorted(left), f"left alive: {names}"
    assert loop.exceptions == [], loop.exceptions
    return value


USAGE_ONLY = UsageOnlyEstimator()


class Act:
    """A tool that does what a test says: *body* is its result, or a function of the arguments and the context.

    `ran` holds the ids of the calls whose body ran, in order.
    """

    description = "Does what a test says."

    def __init__(self, name: str = "act", body: Any = "ok", **attributes: Any) -> None:
        self.parameters: dict[str, Any] = {"type": "object"}
        self.name = name
        self.body = body
        self.ran: list[str] = []
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    def execute(self, arguments: dict[str, Any], context: Any) -> Any:
        self.ran.append(context.call_id)
        return self.body(arguments, context) if callable(self.body) else self.body


class Stage:
    """An agent with a scripted model, a recorder of all that it says, and gates; keyword arguments are its config."""

    def __init__(
        self,
        *responses: Any,
        tools: Iterable[Any] = (),
        hooks: Hooks | None = None,
        messages: Iterable[Message] = (),
        compactor: Any = None,
        estimator: Any = USAGE_ONLY,
        window: int | None = None,
        config: KernelConfig | None = None,
        **policies: Any,
    ) -> None:
        self.gates = Gates()
        self.model = ScriptedModel(responses, context_window=window)
        self.heard = Recorder()
        self.agent = Agent(
            self.model,
            tools=tools,
            hooks=hooks or Hooks(),
            config=config or KernelConfig(**policies),
            messages=messages,
            compactor=compactor,
            estimator=estimator,
        )
        self.agent.subscribe(self.heard)

    def on(self, type: str, do: Callable[[], object], nth: int = 1) -> None:
        """Do *do* at the *nth* event of this type."""
        count = 0

        def listener(event: Event) -> None:
            nonlocal count
            count += event.type == type
            if event.type == type and count == nth:
                do()

        self.agent.subscribe(listener)

    def deaf(self, gate: str = "never") -> Callable[..., Coroutine[Any, Any, str]]:
        """A tool's body that ignores every cancellation until *gate* is open."""

        async def body(*_: Any) -> str:
            await self.gates.wait_ignoring_cancel(gate)
            return "at last"

        return body

    def waiting(self, gate: str = "never", answer: Any = "done") -> Callable[..., Coroutine[Any, Any, Any]]:
        """A tool's body or a hook that waits for *gate*."""

        async def body(*_: Any) -> Any:
            await self.gates.wait(gate)
            return answer

        return body

    @property
    def types(self) -> list[str]:
        """The types of all events, without the changes of phase."""
        return [event.type for event in self.heard.events if event.type != "phase.changed"]

    @property
    def phases(self) -> list[str]:
        """The phases that the agent went to, in order."""
        return [event.target for event in self.heard.of("phase.changed")]

    @property
    def said(self) -> list[tuple[str, str]]:
        """The transcript: the role and the text of each message."""
        return said(self.agent.messages)

    @property
    def breaches(self) -> list[Any]:
        """What is wrong with all that the agent said."""
        return check(self.heard.events)

    async def run(self, message: str = "Hi") -> RunResult:
        """A whole run; its events keep the guarantees, and nothing of it is left."""
        result = await self.agent.prompt(message)
        self.keeps_its_word()
        return result

    def keeps_its_word(self) -> None:
        """Fail when the events of all runs so far, or the transcript, break a guarantee."""
        assert self.breaches == []
        assert unpaired(self.agent.messages) == []


def said(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """The role and the text of each message."""
    return [(message.role, message.text) for message in messages]


def unpaired(messages: Iterable[Message]) -> list[str]:
    """The ids of calls without their result in its place, and of results without a call."""
    wrong: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if waiting[:1] == [message.call_id]:
                del waiting[0]
            else:
                wrong.append(message.call_id)
            continue
        wrong += waiting
        waiting = [call.id for call in getattr(message, "calls", ())]
    return wrong + waiting


def turns(count: int) -> tuple[Message, ...]:
    """So many answered questions."""
    return tuple(
        message
        for number in range(count)
        for message in (UserMessage(f"question {number}"), AssistantMessage(f"answer {number}"))
    )


async def ticks(count: int = 20) -> None:
    """Let everything go on that needs no time."""
    for _ in range(count):
        await asyncio.sleep(0)


def no_stream(request: Any) -> Any:
    raise NotImplementedError


class Bench:
    """A bare core, the inputs that it got, and the effects that it gave. Keyword arguments are its config."""

    def __init__(
        self,
        *,
        tools: Iterable[Any] = (),
        hooks: Iterable[str] = (),
        messages: Iterable[Message] = (),
        window: int | None = None,
        output: Any = None,
        **policies: Any,
    ) -> None:
        self.arguments = (
            KernelConfig(**policies),
            Setup(None, no_stream, specs_of(tools), context_window=window, output=output_of(output)),
            frozenset(hooks),
            tuple(messages),
        )
        self.core = Core(*self.arguments, shadow=shadow())
        self.inputs: list[Input] = []
        self.effects: list[Effect] = []

    @property
    def state(self) -> Any:
        return self.core.state

    def put(self, input: Input) -> list[Effect]:
        """Hand *input* in; what it caused."""
        self.inputs.append(input)
        effects = self.core.receive(input)
        self.effects += effects
        return effects

    def last(self, kind: type[T]) -> T:
        """The newest effect of this kind."""
        return next(effect for effect in reversed(self.effects) if isinstance(effect, kind))

    def all(self, kind: type[T]) -> list[T]:
        """The effects of this kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def types(self, effects: Iterable[Effect] | None = None) -> list[str]:
        """The types of the events in *effects*, or of all, without the changes of phase."""
        events = [effect for effect in (self.effects if effects is None else effects) if isinstance(effect, Event)]
        return [event.type for event in events if event.type != "phase.changed"]

    def advance(self) -> list[Effect]:
        """Say that all that was published has been delivered."""
        return self.put(Advance(self.last(Barrier).token))

    @property
    def work(self) -> int:
        """The number of the newest work."""
        return max(self.state.works)

    def prompt(self, text: str = "Hi", run_id: str = "r1") -> list[Effect]:
        return self.put(Prompt(run_id, UserMessage(text)))

    def steer(self, text: str = "left", id: int = -1) -> list[Effect]:
        return self.put(Steer(QueuedItem(id, UserMessage(text))))

    def to_request(self) -> int:
        """From an opened turn to its request; the work of the model."""
        self.advance()
        self.put(Projected(self.work))
        self.advance()
        return self.work

    def respond(self, *parts: Any, stop: Any = None) -> list[Effect]:
        """Stream these parts and end the response."""
        work = self.work
        for part in parts:
            self.put(ModelPart(work, part))
        return self.put(ResponseCompleted(work, stop))

    def to_tools(self, *calls: Any) -> None:
        """From idle to a batch of these calls, of which the first is announced."""
        self.prompt()
        self.to_request()
        self.respond(*calls)

    def finish(self) -> None:
        """Go on until `run.finished` was said, when nothing is owed, queued or going."""
        while self.state.live.result is None:
            self.advance()

    def end(self) -> None:
        """From a completed turn to idle, when nothing is owed or queued."""
        self.finish()
        self.put(Settled())


def failure(text: str = "boom", **fields: Any) -> Failure:
    return Failure(text, **fields)
