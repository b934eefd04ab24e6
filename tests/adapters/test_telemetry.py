"""Spans: one tree for each run, each ended on every path out, nothing of what is said unless it is asked for."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util.genai.handler import TelemetryHandler

from kernel import Agent, CompactionPolicy, Finished, KernelConfig, ModelError, ReasoningDelta, TextDelta, Usage, tool
from kernel.adapters.telemetry import _Spans, instrument
from kernel.events import Event, RunFinished, RunStarted
from kernel.testing import ScriptedModel, call, simulate
from tests.adapters.streams import random_streams
from tests.pictures.stories import read_file, run_tests, wait

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Kept:
    """A provider that keeps what it is given."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.split()[0] == name]

    def children(self, parent: ReadableSpan) -> list[str]:
        own = parent.get_span_context().span_id
        return sorted(span.name for span in self.spans if span.parent is not None and span.parent.span_id == own)


def traced(script: list[Any], act: Callable[[Agent], Awaitable[object]] | None = None, **config: Any) -> Kept:
    kept = Kept()

    async def main() -> None:
        tools = [read_file, run_tests]
        agent = Agent(ScriptedModel(script), tools=tools, config=KernelConfig(**config), system_prompt="Secret prompt.")
        instrument(agent, name="helper", provider="acme", model_name="m1", tracer_provider=kept.provider)
        await (act(agent) if act is not None else agent.prompt("Secret question"))

    simulate(main())
    return kept


def notes(span: ReadableSpan) -> list[str]:
    return [event.name.removeprefix("kernel.") for event in span.events]


CALLS = [call("c1", "read_file", path="a", seconds=1), call("c2", "run_tests", seconds=2, red=True)]
SIDE_BY_SIDE = [[Usage(10, 5, cache_read=3, reasoning=2), *CALLS], [Usage(20, 7), "Secret answer"]]


def test_one_tree_for_a_run():
    """Requests and tools are below the run, with the names and kinds of the conventions."""
    kept = traced(SIDE_BY_SIDE)
    (run,) = kept.named("invoke_agent")
    assert (run.name, run.kind, run.parent) == ("invoke_agent helper", SpanKind.INTERNAL, None)
    assert kept.children(run) == ["chat m1", "chat m1", "execute_tool read_file", "execute_tool run_tests"]
    assert len({span.get_span_context().trace_id for span in kept.spans}) == 1
    assert [span.kind for span in kept.named("chat")] == [SpanKind.CLIENT] * 2


def test_attributes():
    kept = traced(SIDE_BY_SIDE)
    (run,), (first, second) = kept.named("invoke_agent"), kept.named("chat")
    assert first.attributes is not None
    assert run.attributes is not None
    assert first.attributes["gen_ai.provider.name"] == "acme"
    assert (first.attributes["gen_ai.usage.input_tokens"], first.attributes["gen_ai.usage.output_tokens"]) == (10, 5)
    assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert run.attributes["gen_ai.usage.input_tokens"] == 30
    assert (run.attributes["kernel.run.status"], run.attributes["kernel.run.turns"]) == ("completed", 2)
    ids = {span.attributes["gen_ai.conversation.id"] for span in (run, first, second)}  # type: ignore[index]
    assert len(ids) == 1
    calls = {span.attributes["gen_ai.tool.call.id"]: span.status.status_code for span in kept.named("execute_tool")}  # type: ignore[index]
    assert calls == {"c1": StatusCode.UNSET, "c2": StatusCode.ERROR}


def test_nothing_that_was_said_is_told():
    """Not the prompt, the question, the answer, an argument, or a result."""
    said = "".join(span.to_json() for span in traced(SIDE_BY_SIDE).spans)
    for secret in ("Secret", "the text of", "3 failed", '"a"', "Read a file"):
        assert secret not in said


def test_what_was_said_is_told_on_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    kept = traced([[ReasoningDelta("Secret thought"), *SIDE_BY_SIDE[0]], SIDE_BY_SIDE[1]])
    first, second = kept.named("chat")
    asked, answered = str(first.attributes), str(second.attributes)
    for secret in ("Secret prompt.", "Secret question", "Secret thought", "read_file", "Read a file"):
        assert secret in asked
    for secret in ("the text of a", "Secret answer"):
        assert secret in answered
    assert {span.attributes["gen_ai.tool.call.result"] for span in kept.named("execute_tool")} == {  # type: ignore[index]
        "the text of a", "3 failed",
    }  # fmt: skip


def test_phases_are_events_of_the_run():
    (run,) = traced([["Hi."]]).named("invoke_agent")
    assert notes(run) == ["phase.changed"] * 4
    assert dict(run.events[0].attributes or {}) == {"kernel.source": "idle", "kernel.target": "turn"}


def test_retries_are_events_of_one_request():
    """One span over all tries, as the conventions want it."""
    fails = ModelError("overloaded", retryable=True, retry_after=1.0)
    kept = traced([[fails], [fails], ["Hi."]])
    (request,) = kept.named("chat")
    assert notes(request) == ["retry.scheduled", "retry.scheduled"]
    assert request.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("script", "config", "status", "error"),
    [
        ([[ModelError("broken")]], {}, "failed", "MODEL_FAILED"),
        ([["x", wait(9)]], {"run_deadline": 1}, "failed", "RUN_DEADLINE"),
        ([[call("c", "read_file", path="a", seconds=9)]], {"run_deadline": 1}, "failed", "RUN_DEADLINE"),
        ([[call("c", "read_file", path="a", seconds=0)]] * 2, {"max_turns": 1}, "max_turns", None),
    ],
)
def test_ends(script: list[Any], config: dict[str, Any], status: str, error: str | None):
    """A failed run is an error of its kind; each span is ended."""
    (run,) = traced(script, **config).named("invoke_agent")
    assert run.attributes is not None
    assert (run.attributes["kernel.run.status"], run.attributes.get("error.type")) == (status, error)
    assert run.status.status_code is (StatusCode.ERROR if error else StatusCode.UNSET)


def test_a_cancelled_run_is_no_error():
    """But the request and the call that it cut are."""

    async def act(agent: Agent) -> None:
        run = agent.prompt("Go")
        asyncio.get_running_loop().call_later(1, agent.cancel)
        await run

    kept = traced([[call("c", "read_file", path="a", seconds=9), call("d", "run_tests", seconds=9)]], act)
    (run,) = kept.named("invoke_agent")
    assert run.attributes is not None
    assert (run.status.status_code, run.attributes["kernel.run.status"]) == (StatusCode.UNSET, "cancelled")
    assert [span.status.status_code for span in kept.named("execute_tool")] == [StatusCode.ERROR] * 2


def test_a_summary_is_a_request_too():
    """Below the run, and ended with the compaction."""

    async def act(agent: Agent) -> None:
        for _ in range(3):
            await agent.prompt("Say something of some length, so that there is something to make shorter.")
        await agent.compact()

    kept = traced([[f"{'word ' * 50}"]] * 3 + [["They talked."]], act, compaction=CompactionPolicy(keep_turns=1))
    run = kept.named("invoke_agent")[-1]
    assert kept.children(run) == ["chat m1"]
    assert "compaction.ended" in notes(run)


class TestTheCurrentSpan:
    def test_of_a_tool_a_thread_and_a_stream(self) -> None:
        """What they do themselves is shown inside of their span, also side by side."""
        kept = Kept()

        @tool
        async def fetch(url: str) -> str:
            """Fetch."""
            with kept.provider.get_tracer("mine").start_as_current_span(f"GET {url}"):
                await asyncio.sleep(0.001)
            return "fetched"

        @tool
        def query(table: str) -> str:
            """Query, in a thread."""
            with kept.provider.get_tracer("mine").start_as_current_span(f"SELECT {table}"):
                return "rows"

        class Model:
            asked = 0

            async def stream(self, request: Any) -> Any:
                self.asked += 1
                with kept.provider.get_tracer("mine").start_as_current_span(f"POST {self.asked}"):
                    await asyncio.sleep(0)
                for part in script[self.asked - 1]:
                    yield part

        script: list[Any] = [
            [call("c1", "fetch", url="a"), call("c2", "fetch", url="b"), call("c3", "query", table="t"), Finished()],
            [TextDelta("Done."), Finished()],
        ]

        async def main() -> None:
            agent = Agent(Model(), tools=[fetch, query])
            instrument(agent, tracer_provider=kept.provider)
            with kept.provider.get_tracer("mine").start_as_current_span("the caller"):
                await agent.prompt("Go")

        asyncio.run(main())
        parents = {span.get_span_context().span_id: span for span in kept.spans}
        above = {
            span.name: parents[span.parent.span_id].name
            + str((parents[span.parent.span_id].attributes or {}).get("gen_ai.tool.call.id", ""))
            for span in kept.spans
            if span.parent is not None
        }
        assert above == {
            "GET a": "execute_tool fetchc1", "GET b": "execute_tool fetchc2", "SELECT t": "execute_tool queryc3",
            "POST 1": "chat", "POST 2": "chat", "chat": "invoke_agent agent", "execute_tool fetch": "invoke_agent agent",
            "execute_tool query": "invoke_agent agent", "invoke_agent agent": "the caller",
        }  # fmt: skip

    def test_an_agent_in_a_tool_is_inside_of_it(self) -> None:
        kept = Kept()

        @tool
        async def ask(question: str) -> str:
            """Ask another agent."""
            inner = Agent(ScriptedModel([["42."]]))
            instrument(inner, name="inner", tracer_provider=kept.provider)
            return (await inner.prompt(question)).final_text

        async def main() -> None:
            agent = Agent(ScriptedModel([[call("c", "ask", question="?")], ["It is 42."]]), tools=[ask])
            instrument(agent, name="outer", tracer_provider=kept.provider)
            await agent.prompt("Go")

        simulate(main())
        (call_span,) = kept.named("execute_tool")
        assert kept.children(call_span) == ["invoke_agent inner"]

    def test_agents_at_the_same_time_have_trees_of_their_own(self) -> None:
        kept = Kept()

        async def main() -> None:
            agents = [Agent(ScriptedModel(SIDE_BY_SIDE), tools=[read_file, run_tests]) for _ in range(5)]
            for number, agent in enumerate(agents):
                instrument(agent, name=f"n{number}", model_name="m", tracer_provider=kept.provider)
            await asyncio.gather(*(agent.prompt("Go") for agent in agents))

        simulate(main())
        runs = kept.named("invoke_agent")
        assert len(runs) == len({run.get_span_context().trace_id for run in runs}) == 5
        assert Counter(tuple(kept.children(run)) for run in runs) == {
            ("chat m", "chat m", "execute_tool read_file", "execute_tool run_tests"): 5
        }


class Counting(SpanExporter):
    """Counts spans that ended."""

    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []

    def export(self, spans: Any) -> Any:
        self.ended += spans


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(random_streams())
def test_every_span_is_ended(events: list[Event]):
    """Whatever happens in a run, when it is over all its spans are, and all are in its trace; or when nobody listens."""
    counting = Counting()
    begun: list[Any] = []
    provider = TracerProvider()
    processor = SimpleSpanProcessor(counting)
    starts = processor.on_start

    def on_start(span: Any, parent_context: Any = None) -> None:
        begun.append(span)
        starts(span, parent_context)

    processor.on_start = on_start  # type: ignore[method-assign]
    provider.add_span_processor(processor)
    handler = TelemetryHandler(tracer_provider=provider)
    spans = _Spans(handler, name="a", provider="p", model_name="m", conversation_id="c")
    for event in events:
        spans.take(event)
        if isinstance(event, RunFinished):
            assert len(begun) == len(counting.ended)
    spans.close()
    assert len(begun) == len(counting.ended)
    assert not spans._failed
    runs = sum(isinstance(event, RunStarted) for event in events)
    assert len({span.get_span_context().trace_id for span in begun}) == runs


def test_without_a_setup_there_is_nothing():
    """No provider: the run is as ever, and no span is made."""

    async def main() -> str:
        agent = Agent(ScriptedModel(SIDE_BY_SIDE), tools=[read_file, run_tests])
        instrument(agent)
        return (await agent.prompt("Go")).status

    assert simulate(main()) == "completed"
    assert not trace.get_current_span().is_recording()


def test_a_failure_in_here_costs_the_run_nothing(caplog: pytest.LogCaptureFixture):
    """It is said once, and not that a listener failed."""

    class Broken(TracerProvider):
        def get_tracer(self, *args: Any, **more: Any) -> Any:
            tracer = super().get_tracer(*args, **more)
            tracer.start_span = None  # type: ignore[assignment,method-assign]
            return tracer

    async def main() -> None:
        agent = Agent(ScriptedModel([["Hi."], ["Ho."]]), config=KernelConfig(subscriber_failure="fail_run"))
        instrument(agent, tracer_provider=Broken())
        for _ in range(2):
            assert (await agent.prompt("Go")).status == "completed"

    simulate(main())
    assert caplog.text.count("spans are missing from here on") == 1


def test_it_can_be_ended():
    """Also in the middle of a run, whose spans are then ended."""
    kept = Kept()

    async def main() -> None:
        agent = Agent(ScriptedModel([["Hi", wait(2), "."], ["Ho."]]))
        end = instrument(agent, tracer_provider=kept.provider)
        asyncio.get_running_loop().call_later(1, end)
        assert (await agent.prompt("Go")).final_text == "Hi."
        await agent.prompt("Go")

    simulate(main())
    assert [span.name.split()[0] for span in kept.spans] == ["chat", "invoke_agent"]


def test_the_model_is_still_itself():
    """Whoever asks the agent for its model gets one that answers as before."""

    async def main() -> None:
        model = ScriptedModel([["Hi."]], context_window=1000)
        agent = Agent(model)
        instrument(agent)
        assert (agent.state.model.context_window, agent.state.model.requests) == (1000, [])
        await agent.prompt("Go")
        assert len(model.requests) == 1

    simulate(main())
