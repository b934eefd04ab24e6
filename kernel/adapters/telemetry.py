"""OpenTelemetry: a tree of spans for each run, in the GenAI conventions. Extra: `otel`.

    from kernel.adapters.telemetry import instrument
    instrument(agent, name="helper")

A run is a span `invoke_agent`; in it each request to the model is a span `chat` (with all its retries), and each tool call
a span `execute_tool`. Phases, retries, compactions and failed hooks are events of the spans. Spans begin and end by the
kernel's own events, so that each is ended on every path out; and while a model's stream or a tool's body runs, its span is
the current one, so that what they do themselves (an HTTP request, a query) is shown inside of it.

Nothing is sent anywhere without the application's own setup of OpenTelemetry. What is said (messages, arguments, results,
system prompt) is left out unless `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for it. Names and attributes are
those of `opentelemetry-util-genai`, which follows the conventions; what they have no name for begins with `kernel.`.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any, Final, final

import attrs

from kernel.adapters.extras import missing

try:
    from opentelemetry.util.genai.handler import TelemetryHandler
    from opentelemetry.util.genai.types import Error
except ModuleNotFoundError as error:
    raise missing("otel", error) from error

from kernel import events
from kernel.adapters import telemetry_content as content
from kernel.adapters.letters import whole
from kernel.agent import Agent
from kernel.errors import Failure, describe
from kernel.messages import AssistantMessage, ReasoningDelta, StopReason, TextDelta, ToolCallDelta
from kernel.ports import ModelRequest, Part

_PIECES: Final = (TextDelta, ReasoningDelta, ToolCallDelta)
_CUT: Final = (StopReason.ERROR, StopReason.ABORTED)


def instrument(
    agent: Agent,
    *,
    name: str = "agent",
    provider: str = "unknown",
    model_name: str | None = None,
    conversation_id: str | None = None,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    logger_provider: Any = None,
) -> Callable[[], None]:
    """Make spans of the runs of *agent* from now on. Returns what ends that.

    *provider* and *model_name* are said of its model; by default the model's own `name`. *conversation_id* is one of its
    own by default. The providers are those that the application has set, unless others are given. To be called while the
    agent is idle; a model or tools that `configure` brings later have spans, too, but theirs are not the current ones while
    they run. A failure in here is logged, once, and costs the run nothing.
    """
    handler = TelemetryHandler(
        tracer_provider=tracer_provider,
        meter_provider=meter_provider,
        logger_provider=logger_provider,
        instrumentation_scope_name="kernel",
        instrumentation_scope_version=version("phasekernel"),
    )
    state = agent.state
    spans = _Spans(
        handler,
        name=name,
        provider=provider,
        model_name=model_name or getattr(state.model, "name", None),
        conversation_id=conversation_id or secrets.token_hex(8),
    )
    tools = [attrs.evolve(tool, execute=_traced_tool(tool.name, tool.execute, spans)) for tool in state.tools]
    agent.configure(model=_TracedModel(state.model, spans), tools=tools)
    subscription = agent.subscribe(spans.take)

    def end() -> None:
        subscription()
        spans.close()

    return end


@final
class _Spans:
    """The spans of one agent: it has one run at a time."""

    def __init__(
        self, handler: TelemetryHandler, *, name: str, provider: str, model_name: str | None, conversation_id: str
    ) -> None:
        self._handler = handler
        self._name = name
        self._provider = provider
        self._model_name = model_name
        self._conversation_id = conversation_id
        self._run: Any = None
        self._request: Any = None
        self._calls: dict[str, list[Any]] = {}
        self._failed = False

    @property
    def shows_content(self) -> bool:
        """Whether the application asked for what is said."""
        return self._handler.should_capture_content()

    def take(self, event: events.Event) -> None:
        """A listener. What fails in here is no failure of the run's."""
        try:
            self._take(event)
        except Exception as error:
            if not self._failed:
                self._failed = True
                logging.getLogger("kernel.telemetry").error("spans are missing from here on: %s", describe(error))

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.RunStarted):
            self._begin_run(event)
        if self._run is None:
            return  # listened to from the middle of a run on
        match event:
            case events.MessageStarted(role="assistant"):
                self.request()
            case events.MessageEnded(message=AssistantMessage() as message):
                self._end_request(message)
            case events.ToolStarted():
                self._begin_call(event)
            case events.ToolEnded():
                self._end_call(event)
            case events.RetryScheduled():
                self._note(self._request or self._run, event, attempt=event.attempt, delay=event.delay)
            case events.CompactionStarted():
                self._fail_request("the context did not fit")
                self._note(self._run, event, reason=event.reason)
            case events.CompactionEnded():
                self._end_summary(event.outcome)
                self._note(self._run, event, outcome=event.outcome)
            case events.PhaseChanged():
                self._note(self._run, event, source=event.source, target=event.target)
            case events.HookFailed():
                self._note(self._run, event, hook=event.hook)
            case events.RunFinished():
                self._finish(event)
            case _:
                pass

    @staticmethod
    def _note(invocation: Any, event: events.Event, **details: Any) -> None:
        invocation.span.add_event(f"kernel.{event.type}", {f"kernel.{name}": value for name, value in details.items()})

    # ---- the run ----

    def _begin_run(self, event: events.RunStarted) -> None:
        self._run = self._handler.invoke_local_agent(
            agent_name=self._name,
            request_model=self._model_name,
            conversation_id=self._conversation_id,
            _attach_to_context=False,
        )
        self._run.attributes["kernel.run.id"] = event.run_id
        self._request, self._calls = None, {}

    def close(self) -> None:
        """End all that is open: nobody will say how it went on."""
        self._end_children("nobody listens any more")
        if self._run is not None:
            self._run.stop()
        self._run = None

    def _end_children(self, why: str) -> None:
        self._fail_request(why)
        for begun in self._calls.values():
            for call in begun:
                call.fail(Error(f"no result: {why}", "abandoned"))
        self._calls = {}

    def _finish(self, event: events.RunFinished) -> None:
        result, run = event.result, self._run
        self._end_children(f"the run was {result.status}")
        run.attributes |= {"kernel.run.status": result.status, "kernel.run.turns": result.turns}
        run.input_tokens, run.output_tokens = result.usage.input, result.usage.output
        if self.shows_content:
            run.input_messages = content.input_of([each for each in result.messages if each.role == "user"])
            run.output_messages = content.output_of(AssistantMessage(result.final_text)) if result.final_text else []
        if result.failure is None:
            run.stop()
        else:
            run.fail(_error_of(result.failure))
        self._run = None

    # ---- requests to the model ----

    def request(self, request: ModelRequest | None = None) -> Any:
        """The span of the request that is going; a new one when none is. None outside of a run."""
        if self._run is None:
            return None
        if self._request is None:
            self._request = self._handler.inference(
                self._provider,
                request_model=self._model_name,
                conversation_id=self._conversation_id,
                context=self._run.context,
                _attach_to_context=False,
            )
            if request is not None and self.shows_content:
                self._request.input_messages = content.input_of(request.messages)
                self._request.system_instruction = content.instructions_of(request)
                self._request.tool_definitions = content.tools_of(request)
        return self._request

    def _end_request(self, message: AssistantMessage) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        request.finish_reasons = [str(message.stop.value)]
        if message.usage is not None:
            usage = message.usage
            request.input_tokens, request.output_tokens = usage.input, usage.output
            request.cache_read_input_tokens, request.cache_write_input_tokens = usage.cache_read, usage.cache_write
            request.thinking_tokens = usage.reasoning
        if self.shows_content:
            request.output_messages = content.output_of(message)
        if message.stop in _CUT:
            request.fail(Error(whole(message.error or ""), str(message.stop.value)))
        else:
            request.stop()

    def _fail_request(self, why: str) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.fail(Error(f"no answer: {why}", "no_answer"))

    def _end_summary(self, outcome: str) -> None:
        """The model was asked for a summary, which is no message."""
        if outcome == "compacted" and self._request is not None:
            self._request.stop()
            self._request = None
        self._fail_request(f"the compaction was {outcome}")

    # ---- tools ----

    def _begin_call(self, event: events.ToolStarted) -> None:
        call = self._handler.tool(
            whole(event.name), agent_name=self._name, context=self._run.context, _attach_to_context=False
        )
        call.tool_call_id = whole(event.call_id)
        if self.shows_content:
            call.arguments = content.plain(event.arguments)
        self._calls.setdefault(event.call_id, []).append(call)

    def call(self, call_id: str) -> Any:
        """The span of the call that is going; calls that share an id go one by one."""
        begun = self._calls.get(call_id)
        return begun[0] if begun else None

    def _end_call(self, event: events.ToolEnded) -> None:
        begun = self._calls.get(event.call_id)
        if not begun:
            return
        call = begun.pop(0)
        if self.shows_content:
            call.tool_result = whole(event.text)
        if event.is_error:
            said = whole(event.text) if self.shows_content else None
            call.fail(Error(said, "tool_error" if event.executed else "not_executed"))
        else:
            call.stop()


def _error_of(failure: Failure) -> Error:
    return Error(whole(failure.message), whole(failure.code), failure.cause)


@final
class _TracedModel:
    """The model, with the span of its request as the current one while it is read."""

    def __init__(self, model: Any, spans: _Spans) -> None:
        self._model = model
        self._stream: Callable[..., Any] = model.stream
        self._spans = spans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __repr__(self) -> str:
        return repr(self._model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Part]:
        """What the model says."""
        span = self._spans.request(request) or _NoSpan()
        with span.activate():
            made: Any = await _value_of(self._stream(request))
        parts = aiter(made)
        try:
            while True:
                with span.activate():  # between two parts the reader's own span is the current one
                    part = await anext(parts, None)
                if part is None:
                    return
                if isinstance(part, _PIECES):
                    span.record_stream_chunk()
                yield part
        finally:
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()


def _traced_tool(name: str, execute: Callable[..., Any], spans: _Spans) -> Callable[..., Any]:
    """The tool's body, with the span of its call as the current one. *name* is for whoever debugs it."""

    async def traced(arguments: dict[str, Any], context: Any) -> Any:
        with (spans.call(context.call_id) or _NoSpan()).activate():
            return await _value_of(execute(arguments, context))

    traced.__name__ = traced.__qualname__ = name
    return traced


class _NoSpan:
    """What stands for a span where nobody listens."""

    activate = staticmethod(nullcontext)

    def record_stream_chunk(self) -> None:
        """Nothing is recorded."""


async def _value_of(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value
