"""A world around one agent: a model, tools, hooks and a compactor whose every choice is read from a tape.

Nothing is drawn inside a task: rules extend the tape, whoever has to choose takes the next number from it, and where the
tape has ended takes 0. Choice 0 is always the simplest one, so that an example shrinks to a world that only says "ok".

What must never happen but is seen inside a callable of the kernel's can't be raised there, since the kernel would take it
for the callable's own failure. It is noted in `problems`, and an invariant raises it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from kernel import (
    Agent,
    AssistantMessage,
    Block,
    CustomMessage,
    Message,
    ModelRequest,
    Phase,
    Run,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from kernel.testing import Recorder, SimulatedLoop

SITUATIONS: Final[Counter[str]] = Counter()
"""How often each interesting situation was reached, over all examples of this process."""


class Tape:
    """Numbers to choose by."""

    def __init__(self) -> None:
        self.numbers: deque[int] = deque()

    def take(self, count: int) -> int:
        """A number below *count*: the next one of the tape, or 0."""
        return self.numbers.popleft() % count if self.numbers else 0


@define(eq=False)
class RunStory:
    """What the outside knows of one run."""

    run: Run
    began: float
    by: str
    text: str | None
    prompts: int
    steering: int
    takings: int
    ended: float | None = None
    cancelled: float | None = None
    reason: str | None = None
    told_to_settle: float | None = None
    delays: int | None = None
    killed: bool = False
    waiters: list["asyncio.Task[Any]"] = field(factory=list)
    reader: "asyncio.Task[None] | None" = None
    read: list[Any] = field(factory=list)
    lost: Any = None


@frozen
class Body:
    """A tool body that began: of which call."""

    run_id: str
    call_id: str


class World:
    """What the fakes share: the tape, the clock, who waits for what, and what was seen."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.tape = Tape()
        self.agent: Agent = None  # type: ignore[assignment]  # set by who builds it
        self.recorder = Recorder()
        self.act: Callable[[str], object] = lambda name: None
        self.runs: list[RunStory] = []
        self.problems: list[str] = []
        self.requests: list[ModelRequest] = []
        self.request_copies: list[str] = []
        self.asked_at = 0
        self.bodies: list[Body] = []
        self.keys: dict[str, str] = {}
        self.last_holders: dict[str, int] = {}
        self.running: list[str] = []
        self.sequential = False
        self.listening: Counter[str] = Counter()
        self.terminated: set[str] = set()
        self.failed_hooks: Counter[tuple[str, str]] = Counter()
        self.stop_asked: Counter[str] = Counter()
        self.stop_wanted: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self.delays = 0
        self.stubborn = 0
        self.timers = 0
        self.hanging = 0
        self.deaf = 0
        self.calls = 0
        self.wish: str | None = None
        self.fates: list[int] = []
        self.verdicts: list[int] = []
        self.answers: Counter[str] = Counter()
        self.gate = asyncio.Event()

    def note(self, problem: str) -> None:
        """Something happened that must not."""
        self.problems.append(problem)

    # ---- ways to take time ----

    async def sleep(self, seconds: float) -> None:
        """Virtual seconds."""
        if seconds:
            self.timers += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                self.timers -= 1

    async def hang(self) -> None:
        """Never come back, unless cancelled."""
        self.hanging += 1
        try:
            await self.loop.create_future()
        finally:
            self.hanging -= 1

    async def ignore_cancel(self) -> None:
        """Swallow every cancellation until the gate is opened."""
        gate = self.gate
        self.deaf += 1
        self.delays += 1
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        self.deaf -= 1

    def release(self) -> None:
        """Let those go on who ignore cancellations."""
        self.gate.set()
        self.gate = asyncio.Event()

    # ---- what is never allowed ----

    def begin(self, what: str, phase: Phase, run_id: str | None = None) -> None:
        """A callable of the world's begins: there must be a run that wants it (G7)."""
        story = self.runs[-1] if self.runs else None
        if story is None or (run_id is not None and run_id != story.run.id):
            self.note(f"{what} began for {run_id}, which is not the run that is going")
        elif story.cancelled is not None:
            self.note(f"{what} began after the cancel was accepted")
        elif self.agent.phase is not phase:
            self.note(f"{what} began in phase {self.agent.phase}, where {phase} is right")

    def asked(self, request: ModelRequest) -> None:
        """A request came: its messages are paired, none is cut, and a second one in a turn is a retry of the first."""
        self.begin("a model request", Phase.TURN, request.id.partition(":")[0])
        if any(request.id == before.id for before in self.requests):
            self.note(f"two requests have the id {request.id}")
        for fault in (*faults_of(request.messages), *differences_of(request.messages, self.agent.messages)):
            self.note(f"request {request.id}: {fault}")
        self._check_repetition(request)
        self.requests.append(request)
        self.request_copies.append(repr(request))
        self.asked_at = len(self.recorder.events)

    def _check_repetition(self, request: ModelRequest) -> None:
        since = {event.type for event in self.recorder.events[self.asked_at :]}
        if not self.requests or since & {"turn.started", "compaction.started"}:
            return
        before = self.requests[-1]
        if "retry.ended" not in since:
            self.note(f"request {request.id} repeats {before.id} without a retry")
        SITUATIONS["a retry was sent"] += 1
        if (list(request.messages), request.system_prompt) != (list(before.messages), before.system_prompt):
            self.note(f"the retry {request.id} is not what {before.id} was")

    # ---- what a final answer must be ----

    def judge(self, text: str) -> str:
        """Hold an answer against what was asked for; while it does, things happen."""
        self.begin("the check of an answer", Phase.FOLLOW_UP)
        how = self.verdicts.pop(0) if self.verdicts else self.tape.take(8)
        if deed := {2: "cancel", 3: "steer", 4: "follow_up", 5: "steer"}.get(how):
            self.act(deed)
        wrong = how in (1, 4, 5)
        self.answers[self.runs[-1].run.id] += 1
        if wrong:
            raise ValueError("not what was asked for")
        return text

    # ---- hooks and compactor ----

    def transform_context(self, messages: Sequence[Message]) -> Any:
        """The hook."""
        self.begin("transform_context", Phase.TURN)
        return self._answer("transform_context", messages, [5])

    def convert_to_llm(self, messages: Sequence[Message]) -> Any:
        """The hook: custom messages become a user's. What is summarized passes it too."""
        self.begin("convert_to_llm", Phase.COMPACTION if self.agent.phase is Phase.COMPACTION else Phase.TURN)
        return self._answer(
            "convert_to_llm", [UserMessage(m.kind) if isinstance(m, CustomMessage) else m for m in messages], "no messages"
        )

    def before_tool_call(self, call: ToolCall, arguments: dict[str, Any]) -> Any:
        """The hook. What it does to its copy of the arguments concerns nobody."""
        self.begin("before_tool_call", Phase.TURN)
        arguments["spoiled"] = True
        return self._answer("", (None, Block("not today"), "nor tomorrow")[self.tape.take(3)], 7)

    def after_tool_result(self, result: ToolMessage) -> Any:
        """The hook."""
        self.begin("after_tool_result", Phase.TURN)
        return self._answer("after_tool_result", None, None)

    def should_stop_after_turn(self, state: Any) -> Any:
        """The hook."""
        self.begin("should_stop_after_turn", Phase.STEERING)
        self.stop_asked[self.runs[-1].run.id] += 1
        return self._answer("should_stop_after_turn", self.tape.take(4) == 3, None)

    def _answer(self, hook: str, right: Any, wrong: Any) -> Any:
        how, run = self.tape.take(8), self.runs[-1].run.id if self.runs else ""
        if how == 1:
            self._hook_failed(run, hook)
            raise ValueError("the hook broke")
        if how == 2:
            self.act("cancel")
        return self._late_answer(how, run, hook, right, wrong) if how > 2 else self._answered(run, hook, right)

    async def _late_answer(self, how: int, run: str, hook: str, right: Any, wrong: Any) -> Any:
        await self.sleep((0, 1, 0, 1, 0)[how - 3])
        if how == 5:
            await self.hang()
        elif how == 6:
            await self.ignore_cancel()
        elif how == 7:
            if wrong is not None:
                self._hook_failed(run, hook)
            return wrong
        return self._answered(run, hook, right)

    def _answered(self, run: str, hook: str, right: Any) -> Any:
        if hook == "should_stop_after_turn" and right:
            self.stop_wanted[run] += 1
        return right

    def _hook_failed(self, run: str, hook: str) -> None:
        if hook:
            self.failed_hooks[run, hook] += 1

    async def summarize(self, messages: Sequence[Message]) -> str:
        """The compactor."""
        self.begin("the compactor", Phase.COMPACTION)
        if any(isinstance(message, AssistantMessage) and message.is_cut for message in messages):
            self.note("the compactor was given a cut message")
        if any(isinstance(message, CustomMessage) for message in messages):
            self.note("the compactor was given a custom message")
        how = self.tape.take(8)
        if how == 1:
            raise ValueError("the compactor broke")
        await self.sleep((0, 0, 1)[how % 3])
        if how == 3:
            await self.hang()
        elif how == 4:
            await self.ignore_cancel()
        elif how == 6:
            self.act("cancel")
        return {5: " ", 7: "long " * 40_000}.get(how, "S")


def differences_of(sent: Sequence[Message], there: Sequence[Message]) -> list[str]:
    """What a request has that the transcript has not, and the other way round; custom messages may be rewritten."""
    custom = {message.kind for message in there if isinstance(message, CustomMessage)}
    sent = [m for m in sent if not (isinstance(m, UserMessage) and m.text in custom)]
    cut = [m for m in there if isinstance(m, CustomMessage) or (isinstance(m, AssistantMessage) and m.is_cut)]
    right = [m for m in there if m not in cut]
    return [] if sent == right else [f"sent were {sent}, right is {right}"]


def faults_of(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse, or must never see, in the messages of a request."""
    faults = []
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not owed or owed.pop(0) != message.call_id:
                faults.append(f"the result of {message.call_id} is out of place")
            continue
        if owed:
            faults.append(f"{message.role} before the results of {owed}")
        owed = []
        if isinstance(message, AssistantMessage):
            owed = [call.id for call in message.calls]
            if message.is_cut:
                faults.append("a cut message")
        elif isinstance(message, CustomMessage):
            faults.append("a custom message")
    return [*faults, *(f"no result of {call}" for call in owed)]
