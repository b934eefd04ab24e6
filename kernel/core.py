"""The heart: `Core.receive(input) -> effects`. It awaits nothing and knows no clock, no randomness and no log.

Rules. (1) There is one road in: every command and every report is an input. (2) A step is decided before anything
changes: the lifecycle (`statechart`) is asked with the state as it is, and an input that it refuses leaves no trace.
(3) The lifecycle alone says where the core goes; here is only what that means for data. (4) Everything that leaves is
frozen.

Theory. An input pulls a trigger. The decision table gives, for the place where the core is and the answers of the guards
that it asks, a step: the next place, and the actions in their order. Actions change the state and append effects.
Deltas are not triggers: they are absorbed where a message is open. A report whose work is not open is late: it comes from
a run that is over, or from something that was abandoned, and never reaches the state.

Weak points. Actions must be total, which only tests can show. A snapshot is made when it is asked for, not kept.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, final

from attrs import frozen

from kernel.actions import ACTIONS, Effector
from kernel.config import KernelConfig
from kernel.effects import Effect
from kernel.errors import KernelBug, ReentrancyError
from kernel.events import MessageUpdated, ToolUpdated, UpdateDiscarded
from kernel.guards import GUARDS, Predicate
from kernel.history import adopt_history
from kernel.inputs import (
    Input,
    ModelPart,
    ResponseCompleted,
    TimerDue,
    ToolSettled,
    ToolUpdate,
)
from kernel.messages import Message, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage
from kernel.refusals import refuse
from kernel.setup import Setup
from kernel.state import NO_EFFECTS, CallStatus, CoreState
from kernel.transcript import Transcript
from statechart import RUNNING, Ask, Command, Decision, Fact, Leaf, Refuse, Step, decisions

_REPORTS: Final = frozenset(
    {
        Fact.PROJECTED,
        Fact.RESPONSE_COMPLETED,
        Fact.RESPONSE_FAILED,
        Fact.CALL_PREPARED,
        Fact.TOOL_SETTLED,
        Fact.HOOK_RETURNED,
        Fact.SUMMARIZED,
        Fact.SUMMARY_FAILED,
    }
)


@final
@frozen
class BoundStep:
    """A step of the decision table with the functions of its actions."""

    target: Leaf
    actions: tuple[Effector, ...]
    step: Step


@final
@frozen
class BoundAsk:
    """A question of the decision table with the function of its guard."""

    guard: Predicate
    yes: "Bound"
    no: "Bound"


Bound = BoundStep | BoundAsk | Refuse | None
Shadow = Callable[[CoreState, Any, str, "BoundStep | Refuse | None"], None]


@functools.cache
def bound_table() -> dict[Leaf, dict[str, Bound]]:
    """The decision table of this process, bound to what its guards and actions mean here."""
    return {leaf: {trigger: _bind(node) for trigger, node in row.items()} for leaf, row in decisions().items()}


def _bind(decision: Decision) -> Bound:
    match decision:
        case Step(target, do):
            return BoundStep(target, tuple(ACTIONS[action] for action in do), decision)
        case Ask(guard, yes, no):
            return BoundAsk(GUARDS[guard], _bind(yes), _bind(no))
        case other:
            return other


@final
class Core:
    """The lifecycle of one agent, as data and decisions.

    *record*, when it is given, is handed each input that was taken; it must not raise. *shadow*, when it is given, is told
    of each decision before it is carried out, and may raise; tests use it to ask the live machine the same question.
    """

    __slots__ = ("_shadow", "_table", "is_stepping", "record", "state")

    def __init__(
        self,
        config: KernelConfig,
        setup: Setup,
        hooks: frozenset[str] = frozenset(),
        messages: Iterable[Message] = (),
        *,
        record: Callable[[Input], None] | None = None,
        shadow: Shadow | None = None,
    ) -> None:
        self.state = CoreState(config, setup, hooks, Transcript(adopt_history(messages, config.message_limit)))
        self._table = bound_table()
        self.is_stepping = False
        """Whether an input is being taken. The garbage collector may run a finalizer in the middle of that."""
        self.record = record
        self._shadow = shadow

    def receive(self, input: Input) -> list[Effect]:
        """Take one input and say what must be done.

        A command that is not allowed raises its typed error, and nothing has changed. A fact that the lifecycle does not
        know here raises `KernelBug`: the shell broke its contract, or we did. A finalizer that comes in the middle of a
        step gets `ReentrancyError`.
        """
        if self.is_stepping:
            raise ReentrancyError("a finalizer (`__del__`, or a coroutine that is destroyed) spoke to its agent in a step")
        self.is_stepping = True
        state = self.state
        effects: list[Effect] = []
        state.effects = effects
        try:
            kind = type(input)
            if kind is ModelPart:
                self._absorb_part(input)  # type: ignore[arg-type]
            elif kind is ToolUpdate:
                self._absorb_update(input)  # type: ignore[arg-type]
            elif kind is TimerDue:
                self._fire_timer(input)  # type: ignore[arg-type]
            else:
                self._take(input)
            if self.record is not None:
                self.record(input)
            return effects
        finally:
            self.is_stepping = False
            state.effects = NO_EFFECTS

    @classmethod
    def replay(cls, inputs: Iterable[Input], *args: Any, **kwargs: Any) -> "Core":
        """A core that has received these inputs: the same inputs give the same state. Arguments as for `Core`."""
        core = cls(*args, **kwargs)
        for input in inputs:
            core.receive(input)
        return core

    @property
    def is_running(self) -> bool:
        """Whether the run goes on: it was neither cancelled nor has its outcome been decided."""
        return self.state.leaf.startswith(RUNNING)

    def refusal(self, command: Command) -> Exception | None:
        """The error for *command* where the phase alone refuses it; for callers that look at its arguments after that."""
        node = self._table[self.state.leaf][command]
        return refuse(node.refusal, command, self.state) if isinstance(node, Refuse) else None

    def _take(self, input: Any) -> None:
        state = self.state
        trigger = input.trigger
        if trigger is Fact.ADVANCE:
            if input.token != state.barrier:
                return
        elif trigger in _REPORTS:
            if input.work not in state.works:
                self._absorb_late(input)
                return
            if type(input) is ResponseCompleted and state.leaf is Leaf.REQUESTING:
                self._fire(Fact.RESPONSE_STARTED, input)
        self._fire(trigger, input)

    def _fire(self, trigger: Command | Fact, input: Any) -> None:
        """Decide, then carry out. The only place where the core moves."""
        state = self.state
        node: Any = self._table[state.leaf].get(trigger)
        while node.__class__ is BoundAsk:
            node = node.yes if node.guard(state, input) else node.no
        if self._shadow is not None:
            self._shadow(state, input, trigger, node)
        if node.__class__ is not BoundStep:
            raise self._refused(trigger, node)
        state.leaf = node.target
        for action in node.actions:
            action(state, input)

    def _refused(self, trigger: Command | Fact, node: Any) -> Exception:
        if isinstance(node, Refuse) and isinstance(trigger, Command):
            return refuse(node.refusal, trigger, self.state)
        return KernelBug(f"the fact {trigger} has no answer in {self.state.leaf}")

    def _fire_timer(self, input: TimerDue) -> None:
        run = self.state.run
        if run is None:
            return
        for fact, timer in run.timers.items():
            if timer == input.timer:
                # A grace that is over is over for good: its timer stays known, so that no second one is started.
                if fact is not Fact.GRACE_ELAPSED:
                    del run.timers[fact]
                self._fire(fact, input)
                return

    def _absorb_part(self, input: ModelPart) -> None:
        state = self.state
        if input.work not in state.works:
            return
        if state.leaf is Leaf.REQUESTING:
            self._fire(Fact.RESPONSE_STARTED, input)
        elif state.leaf is not Leaf.STREAMING:
            return
        run = state.run
        message = run.message if run is not None else None
        assert run is not None
        assert message is not None
        part = input.part
        if type(part) is TextDelta:
            text = part.text
            if text:
                message.add_text(text)
                # As `publish` would: while a response streams, its run has no result. Nothing is done as often as this.
                state.effects.append(MessageUpdated(run.id, run.sequence, "text", text))
                run.sequence += 1
        elif isinstance(part, ReasoningDelta):
            message.add_reasoning(part)
            if part.text:
                state.publish(MessageUpdated, "reasoning", part.text)
        elif isinstance(part, ToolCallDelta):
            state.publish(MessageUpdated, "call", part.arguments, message.add_call_delta(part))
        elif isinstance(part, ToolCall):
            state.publish(MessageUpdated, "call", "", message.add_call(part))
        elif isinstance(part, Usage):
            message.usage = part

    def _absorb_update(self, input: ToolUpdate) -> None:
        call = self.state.works.get(input.work)
        if call is not None and call.status is CallStatus.RUNNING:
            self.state.publish(ToolUpdated, input.call_id, input.text)
        else:
            self.state.publish(UpdateDiscarded, input.call_id)

    def _absorb_late(self, input: Any) -> None:
        """A report of work that is not open any more: what it held is free, and a tool's late word is said to be late."""
        state = self.state
        abandoned = state.abandoned.pop(input.work, None)
        if isinstance(input, ToolSettled):
            if input.ended == "returned":
                state.publish(UpdateDiscarded, input.call_id)
            run = state.run
            if abandoned is not None and state.leaf is Leaf.TOOLS and run is not None and run.batch is not None:
                state.await_delivery()
