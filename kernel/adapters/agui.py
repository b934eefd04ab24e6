"""The event stream in the words of AG-UI 1.0 (https://docs.ag-ui.com), for web front ends. Extra: `web`.

    project = Projection("thread-1")
    agent.subscribe(lambda event: send(project(event)))   # lists of `ag_ui.core` events, in order

What is what:

* a run is a run; `completed`, `stopped` and `max_turns` finish it, and its `result` says which; `cancelled` is the outcome
  of that name; a failed run is RUN_ERROR with the kernel's code. Usage goes with the end;
* a phase is a step, and there is always one open in a run. Phase, turn, running tools, queues and usage are the state;
* text and reasoning stream as they come. A message that is cut off is closed like any other, before what follows;
* tool calls are told when the response that asks for them is whole, since arguments of one that is cut off are no JSON, and
  nobody will answer it. Ids that a model uses twice get a number, as AG-UI wants them to be unique in a run;
* everything else is CUSTOM, named `kernel.` and the event's type, with the same details as in the dialect `native`.

Whatever the kernel's stream is, also one that begins in the middle, what comes out of here is in AG-UI's order.
"""

import json
from collections import deque
from typing import Any, Final, final

from kernel.adapters.extras import missing

try:
    from ag_ui import core as agui
except ModuleNotFoundError as error:
    raise missing("web", error) from error

from kernel import events
from kernel.adapters.agui_messages import arguments_of
from kernel.adapters.letters import Letters, whole, whole_data
from kernel.dialects import native_line
from kernel.messages import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage

PROTOCOL: Final = "1.0"
_LARGEST: Final = 2**53 - 1
"""The largest count that AG-UI takes: beyond it JavaScript has no integers."""
_SUCCESS: Final = ("completed", "stopped", "max_turns")
EMPTY_STATE: Final[dict[str, Any]] = {
    "phase": "idle", "turn": 0, "running": [], "steering": [], "follow_up": [], "usage": {"input": 0, "output": 0},
}  # fmt: skip


@final
class Projection:
    """Turns one kernel event after the other into AG-UI events. It remembers what is open, so each stream needs its own.

    *thread_id* is AG-UI's name for the conversation, *run_id* another name for the run, by default the kernel's. With
    *echo* False the prompt that began a run is left out: the client that sent it has it already.
    """

    def __init__(self, thread_id: str, *, run_id: str | None = None, echo: bool = True) -> None:
        self.state: dict[str, Any] = json.loads(json.dumps(EMPTY_STATE))
        self._thread = thread_id
        self._name = run_id
        self._echo = echo
        self._run: str | None = None
        self._out: list[agui.BaseEvent] = []
        self._messages = 0
        self._step: str | None = None
        self._text: str | None = None
        self._reasoning: str | None = None
        self._answer: str | None = None
        self._letters = {"text": Letters(), "reasoning": Letters()}
        self._used: dict[str, int] = {}
        self._asked: dict[str, deque[str]] = {}

    def __call__(self, event: events.Event, at: float | None = None) -> list[agui.BaseEvent]:
        """What *event* is in AG-UI's words; *at* is when it happened, in seconds since 1970."""
        self._begin(event.run_id)
        match event:
            case events.RunStarted():
                pass
            case events.PhaseChanged():
                self._enter(event.target)
            case events.MessageUpdated():
                self._update(event)
            case events.MessageAccepted(message=UserMessage() as message):
                if self._echo or event.origin != "prompt":
                    self._say(message)
            case events.MessageStarted():
                self._answer = None
            case events.MessageEnded(message=AssistantMessage() as message):
                self._end_answer(message if event.kept else None)
            case events.MessageEnded(message=ToolMessage() as message):
                self._answer_call(message)
            case events.RunFinished():
                self._finish(event)
            case _:
                self._other(event)
        return self._take(at)

    def cut(self, why: str, at: float | None = None) -> list[agui.BaseEvent]:
        """End a stream that has no end of its own; nothing when no run is open."""
        if self._run is None:
            return []
        self._close()
        self._put(agui.RunErrorEvent(message=why, code="CUT_OFF"))
        self._run = None
        return self._take(at)

    def _take(self, at: float | None) -> list[agui.BaseEvent]:
        out, self._out = self._out, []
        if at is not None:
            for event in out:
                event.timestamp = round(at * 1000)
        return out

    def _put(self, *out: agui.BaseEvent) -> None:
        self._out += out

    # ---- the run, its steps and its state ----

    def _begin(self, run_id: str) -> None:
        if self._run == run_id:
            return
        if self._run is not None:
            self._out += self.cut("the stream of this run has no end")
        self._run = run_id
        self._messages = 0
        self._used.clear()
        self._asked.clear()
        self.state |= {"turn": 0, "running": [], "usage": {"input": 0, "output": 0}}
        self._put(
            agui.RunStartedEvent(thread_id=self._thread, run_id=self._name or run_id, protocol_version=PROTOCOL),
            agui.StateSnapshotEvent(snapshot=json.loads(json.dumps(self.state))),
        )

    def _enter(self, phase: str) -> None:
        self._leave()
        self._step = whole(str(phase))
        self._put(agui.StepStartedEvent(step_name=self._step))
        self._change(phase=self._step)

    def _leave(self) -> None:
        if self._step is not None:
            self._put(agui.StepFinishedEvent(step_name=self._step))
        self._step = None

    def _change(self, **values: Any) -> None:
        values = whole_data(values)
        self.state |= values
        changes: list[Any] = [{"op": "replace", "path": f"/{name}", "value": value} for name, value in values.items()]
        self._put(agui.StateDeltaEvent(delta=changes))

    def _finish(self, event: events.RunFinished) -> None:
        result = event.result
        self._close()
        self._change(phase="idle", running=[])
        usage = [_usage(result.usage)]
        run_id, self._run = self._name or event.run_id, None
        if result.failure is not None:
            failure = result.failure
            self._put(agui.RunErrorEvent(message=whole(failure.message), code=whole(failure.code), usage=usage))
            return
        outcome: Any = agui.RunFinishedCancelledOutcome()
        if result.status in _SUCCESS:
            outcome = agui.RunFinishedSuccessOutcome()
        said = {"status": result.status, "text": result.final_text, "turns": result.turns}
        said |= {"reason": result.reason} if result.reason else {}
        self._put(
            agui.RunFinishedEvent(
                thread_id=self._thread, run_id=run_id, result=whole_data(said), outcome=outcome, usage=usage
            )
        )

    def _close(self) -> None:
        self._end_reasoning()
        self._end_text()
        self._leave()

    # ---- messages ----

    def _id(self) -> str:
        self._messages += 1
        return f"{self._run}:{self._messages}"

    def _say(self, message: UserMessage) -> None:
        id = self._id()
        self._put(agui.TextMessageStartEvent(message_id=id, role="user"))
        if message.text:
            self._put(agui.TextMessageContentEvent(message_id=id, delta=whole(message.text)))
        self._put(agui.TextMessageEndEvent(message_id=id))

    def _update(self, event: events.MessageUpdated) -> None:
        if event.channel != "call":
            delta = self._letters[event.channel].feed(event.delta)
            if delta:
                (self._add_text if event.channel == "text" else self._add_reasoning)(delta)

    def _add_text(self, delta: str) -> None:
        self._end_reasoning()
        if self._text is None:
            self._text = self._answer = self._answer or self._id()
            self._put(agui.TextMessageStartEvent(message_id=self._text, role="assistant"))
        self._put(agui.TextMessageContentEvent(message_id=self._text, delta=delta))

    def _add_reasoning(self, delta: str) -> None:
        if self._reasoning is None:
            self._reasoning = self._id()
            self._put(
                agui.ReasoningStartEvent(message_id=self._reasoning),
                agui.ReasoningMessageStartEvent(message_id=self._reasoning, role="reasoning"),
            )
        self._put(agui.ReasoningMessageContentEvent(message_id=self._reasoning, delta=delta))

    def _end_text(self) -> None:
        if rest := self._letters["text"].end():
            self._add_text(rest)
        if self._text is not None:
            self._put(agui.TextMessageEndEvent(message_id=self._text))
        self._text = None

    def _end_reasoning(self) -> None:
        if rest := self._letters["reasoning"].end():
            self._add_reasoning(rest)
        if self._reasoning is not None:
            self._put(
                agui.ReasoningMessageEndEvent(message_id=self._reasoning),
                agui.ReasoningEndEvent(message_id=self._reasoning),
            )
        self._reasoning = None

    def _end_answer(self, message: AssistantMessage | None) -> None:
        self._end_reasoning()
        self._end_text()
        for call in () if message is None else message.calls:
            self._ask(call)
        self._answer = None

    # ---- tools ----

    def _ask(self, call: ToolCall) -> None:
        self._used[call.id] = self._used.get(call.id, 0) + 1
        id = call.id if self._used[call.id] == 1 else f"{call.id}#{self._used[call.id]}"
        self._asked.setdefault(call.id, deque()).append(id)
        id = whole(id)
        self._put(
            agui.ToolCallStartEvent(tool_call_id=id, tool_call_name=whole(call.name), parent_message_id=self._answer),
            agui.ToolCallArgsEvent(tool_call_id=id, delta=arguments_of(call)),
            agui.ToolCallEndEvent(tool_call_id=id),
        )

    def _answer_call(self, message: ToolMessage) -> None:
        asked = self._asked.get(message.call_id)
        if not asked:
            return  # the stream began after it was asked for
        self._put(
            agui.ToolCallResultEvent(
                message_id=self._id(), tool_call_id=whole(asked.popleft()), content=whole(message.text), role="tool"
            )
        )

    # ---- the rest ----

    def _other(self, event: events.Event) -> None:
        match event:
            case events.TurnStarted():
                self._change(turn=event.turn)
            case events.TurnEnded():
                used = self.state["usage"]
                total = {"input": used["input"] + event.usage.input, "output": used["output"] + event.usage.output}
                self._change(usage=total)
            case events.ToolStarted():
                self._change(running=[*self.state["running"], {"id": event.call_id, "name": event.name}])
            case events.ToolEnded():
                self._change(running=_without(self.state["running"], event.call_id))
            case events.QueueChanged():
                self._change(
                    steering=[message.text for message in event.steering],
                    follow_up=[message.text for message in event.follow_up],
                )
            case _:
                pass
        if type(event) in _TOLD_BY_STATE and not getattr(event, "dropped", ()):
            return
        line = native_line(event) or {}
        value = {name: said for name, said in line.items() if name not in ("type", "sequence")}
        if isinstance(event, events.RetryScheduled):
            value["error"] = event.error
        self._put(agui.CustomEvent(name=f"kernel.{event.type}", value=whole_data(value)))


_TOLD_BY_STATE: Final = frozenset({events.TurnStarted, events.TurnEnded, events.QueueChanged})


def _without(running: list[dict[str, str]], id: str) -> list[dict[str, str]]:
    """One call of this id less: calls that share one run one after the other."""
    place = next((index for index, call in enumerate(running) if call["id"] == id), len(running))
    return running[:place] + running[place + 1 :]


def _usage(usage: Usage) -> agui.TokenUsage:
    def capped(count: int) -> int:
        return min(count, _LARGEST)

    return agui.TokenUsage(
        input_tokens=capped(usage.input),
        output_tokens=capped(usage.output),
        total_tokens=capped(usage.input + usage.output),
        reasoning_tokens=capped(usage.reasoning),
        cached_input_tokens=capped(usage.cache_read),
        cache_write_input_tokens=capped(usage.cache_write),
    )
