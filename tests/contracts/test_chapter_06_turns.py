"""Chapter 06, part 3: the hook surface with its error semantics, and tools that run together with results in order."""

import asyncio
from typing import Any

import attrs
import pytest

from kernel import Block, CustomMessage, StopReason, ToolContext, ToolMessage, UserMessage, tool
from kernel.profiles import CHAPTER_06
from kernel.testing import Gates, ScriptedModel, call, say
from tests.contracts.support import Agent, Hooks, fail, heard, lines, on, passing, read, requests, roles, simulated, told

# ---- hooks and no inheritance ----


def _boom(*arguments: Any) -> Any:
    raise RuntimeError("boom")


def _model() -> ScriptedModel:
    return ScriptedModel([["a", call("A", "read")], say("b"), say("c")])


def _with(model: ScriptedModel, **hooks: Any) -> Agent:
    return Agent(model, tools=[read], hooks=Hooks(**hooks), config=CHAPTER_06)


def _texts(agent: Agent) -> list[str]:
    return [message.text for message in agent.messages]


def test_the_hook_surface_is_the_chapters():
    """There are its five hooks, and none must be there."""
    assert list(attrs.fields_dict(Hooks)) == [
        "transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn",
    ]  # fmt: skip
    assert attrs.asdict(Hooks()) == dict.fromkeys(attrs.fields_dict(Hooks))


def test_the_agent_is_not_meant_to_be_inherited():
    """The agent is declared final: what it should do otherwise goes through hooks."""
    assert Agent.__final__


@pytest.mark.parametrize("hook", attrs.fields_dict(Hooks))
@simulated
async def test_a_hook_may_be_sync_or_async(hook: str):
    """Both kinds of function do the same."""
    identity = {"transform_context": lambda messages: messages, "convert_to_llm": lambda messages: messages}
    plain = identity.get(hook, lambda *arguments: None)

    async def awaited(*arguments: Any) -> Any:
        await passing(1)
        return plain(*arguments)

    heard_of = []
    for function in (plain, awaited):
        recorder, result = await told(_with(_model(), **{hook: function}))
        assert result.status == "completed"
        heard_of.append(lines(recorder.events, "native"))
    assert heard_of[0] == heard_of[1]


@simulated
async def test_hooks_come_in_their_order():
    """The context is projected, then converted, then asked about; a call is judged before it runs; the turn comes last."""
    order: list[str] = []

    def note(name: str, answer: Any = None) -> Any:
        return lambda *arguments: (order.append(name), answer or arguments[0])[1]

    hooks = {name: note(name) for name in ("transform_context", "convert_to_llm")}
    hooks |= {"before_tool_call": lambda call, arguments: order.append("before_tool_call")}
    hooks |= {"after_tool_result": lambda result: order.append("after_tool_result")}
    hooks |= {"should_stop_after_turn": lambda state: order.append("should_stop_after_turn")}
    await _with(_model(), **hooks).prompt("Hi")
    turn = ["transform_context", "convert_to_llm"]
    assert order == [
        *turn, "before_tool_call", "after_tool_result", "should_stop_after_turn", *turn, "should_stop_after_turn",
    ]  # fmt: skip


@simulated
async def test_transform_context_projects_each_request_and_stores_nothing():
    """The model sees what the hook made of the conversation; the conversation stays whole."""
    model = _model()
    agent = _with(model, transform_context=lambda messages: [UserMessage("injected"), *messages[-1:]])
    await agent.prompt("Hi")
    assert requests(model) == [["user:injected", "user:Hi"], ["user:injected", "tool:A"]]
    assert roles(agent.messages) == ["user:Hi", "assistant:a", "tool:A", "assistant:b"]


@simulated
async def test_convert_to_llm_lets_an_application_keep_its_own_messages():
    """A custom message is stored as it is, and reaches the model as the hook puts it."""

    def convert(messages: Any) -> Any:
        return [UserMessage(f"ran {m.data}") if isinstance(m, CustomMessage) else m for m in messages]

    model = _model()
    agent = _with(model, convert_to_llm=convert)
    await agent.prompt(CustomMessage("command", "ls"))
    assert requests(model)[0] == ["user:ran ls"]
    assert agent.messages[0] == CustomMessage("command", "ls")


@simulated
async def test_without_conversion_custom_messages_stay_inside():
    """What is not a message of the protocol is left out of requests unless a hook rewrites it."""
    model = _model()
    agent = Agent(model, tools=[read], messages=[CustomMessage("command", "ls")], config=CHAPTER_06)
    await agent.prompt("Hi")
    assert requests(model)[0] == ["user:Hi"]


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@simulated
async def test_a_failing_projection_falls_back_to_its_input(hook: str):
    """A context hook that raises does not destroy the run: the model gets what the hook was given."""
    model = _model()
    recorder, result = await told(_with(model, **{hook: _boom}))
    assert (result.status, requests(model)[0]) == ("completed", ["user:Hi"])
    assert [(event.hook, event.error) for event in recorder.of("hook.failed")] == [(hook, "boom")] * 2


@simulated
async def test_abort_reaches_a_hook():
    """A context hook that hangs is stopped with the run, and no request is sent."""
    gates, model = Gates(), _model()

    async def hang(messages: Any) -> Any:
        asyncio.get_running_loop().call_soon(agent.abort)
        await gates.wait("never")

    agent = _with(model, transform_context=hang)
    assert (await agent.prompt("Hi")).status == "cancelled"
    assert model.requests == []


@pytest.mark.parametrize("answer", [Block("not today"), "not today"], ids=["block", "reason"])
@simulated
async def test_before_tool_call_denies_with_an_error_result(answer: Any):
    """A denial is a result that the model can see; the tool does not run, and the run goes on."""
    agent = _with(_model(), before_tool_call=lambda call, arguments: answer)
    recorder, result = await told(agent)
    assert result.status == "completed"
    assert agent.messages[2] == ToolMessage("A", "read", "not today", is_error=True, executed=False)
    assert [event.executed for event in recorder.of("tool.ended")] == [False]


@simulated
async def test_before_tool_call_that_raises_is_an_error_result():
    """An exception of the permission check is that call's error, and not the end of the task."""
    agent = _with(_model(), before_tool_call=_boom)
    _, result = await told(agent)
    assert (result.status, agent.messages[2].text, agent.messages[2].is_error) == ("completed", "boom", True)


@simulated
async def test_before_tool_call_sees_the_call():
    """It gets the call, and arguments of its own that it may change without changing the call."""
    seen: list[Any] = []

    def before(asked: Any, arguments: dict[str, Any]) -> None:
        seen.append((asked.id, asked.name, dict(arguments)))
        arguments["path"] = "/etc/passwd"

    agent = Agent(
        ScriptedModel([[call("A", "read", path="x")], say("b")]),
        tools=[read],
        hooks=Hooks(before_tool_call=before),
        config=CHAPTER_06,
    )
    await agent.prompt("Hi")
    assert seen == [("A", "read", {"path": "x"})]
    assert agent.messages[2].text == "text of x"


@simulated
async def test_after_tool_result_gets_each_result():
    """It is given the message that will be recorded."""
    seen: list[Any] = []
    agent = _with(_model(), after_tool_result=seen.append)
    await agent.prompt("Hi")
    assert seen == [agent.messages[2]]


@simulated
async def test_after_tool_result_that_raises_leaves_the_result():
    """Its failure is told, and changes neither the result nor the run."""
    agent = _with(_model(), after_tool_result=_boom)
    recorder, result = await told(agent)
    assert (result.status, agent.messages[2].text) == ("completed", "text of notes.txt")
    assert [(event.hook, event.call_id) for event in recorder.of("hook.failed")] == [("after_tool_result", "A")]


@simulated
async def test_should_stop_after_turn_ends_the_run():
    """It sees the state after the whole turn; yes ends the run there, although the model is owed an answer."""
    seen: list[Any] = []

    def stop(state: Any) -> bool:
        seen.append(roles(state.messages))
        return True

    model = _model()
    _, result = await told(_with(model, should_stop_after_turn=stop))
    assert (result.status, len(model.requests)) == ("stopped", 1)
    assert seen == [["user:Hi", "assistant:a", "tool:A"]]


@simulated
async def test_should_stop_after_turn_that_raises_counts_as_no():
    """Its failure is told, and the run goes on."""
    recorder, result = await told(_with(_model(), should_stop_after_turn=_boom))
    assert result.status == "completed"
    assert len(recorder.of("hook.failed")) == 2


# ---- tools together, results in order ----


class _Bench:
    """Tools that note what they do and end when their gate opens."""

    def __init__(self) -> None:
        self.gates = Gates()
        self.notes: list[str] = []

    def tool(self, name: str, *, gate: str = "", **options: Any) -> Any:
        async def body(context: ToolContext) -> str:
            self.notes.append(f"{name} runs")
            if gate:
                await self.gates.wait(gate)
            self.notes.append(f"{name} ends")
            return name

        return tool(name=name, description="Note.", **options)(body)

    def agent(self, *tools: Any, **options: Any) -> Agent:
        calls = [call(each.name.upper(), each.name) for each in tools]
        return Agent(ScriptedModel([calls, say("x")]), tools=tools, config=CHAPTER_06, **options)


@simulated
async def test_calls_are_prepared_one_after_the_other_in_source_order():
    """The check of the second call begins when that of the first is done, however long it takes."""
    bench = _Bench()

    async def before(asked: Any, arguments: Any) -> None:
        bench.notes.append(f"{asked.id} checked?")
        await passing(3 if asked.id == "A" else 1)
        bench.notes.append(f"{asked.id} checked")

    agent = bench.agent(bench.tool("a"), bench.tool("b"), hooks=Hooks(before_tool_call=before))
    await agent.prompt("Hi")
    assert bench.notes[:4] == ["A checked?", "A checked", "B checked?", "B checked"]


@simulated
async def test_calls_are_executed_together():
    """Both calls run before either has ended."""
    bench = _Bench()
    agent = bench.agent(bench.tool("a", gate="go"), bench.tool("b", gate="go"))
    asyncio.get_running_loop().call_later(1, bench.gates.open, "go")
    await agent.prompt("Hi")
    assert bench.notes[:2] == ["a runs", "b runs"]


@simulated
async def test_a_tool_may_ask_to_run_alone():
    """With a tool that declares itself sequential, the calls of the answer run one after the other."""
    bench = _Bench()
    agent = bench.agent(bench.tool("a"), bench.tool("b", mode="sequential"), bench.tool("c"))
    await agent.prompt("Hi")
    assert bench.notes == [f"{name} {what}" for name in "abc" for what in ("runs", "ends")]


async def _a_slow_and_b_fast() -> list[str]:
    bench = _Bench()
    agent = bench.agent(bench.tool("a", gate="go"), bench.tool("b"))
    on(agent, "tool.ended", bench.gates.opening("go"))
    recorder, _ = await told(agent)
    return lines(recorder.events, "chapter_06")


@simulated
async def test_ends_come_as_calls_complete():
    """The faster call is told to have ended first, whatever its place in the answer."""
    said = [line for line in await _a_slow_and_b_fast() if line.startswith("tool_execution")]
    assert said == ["tool_execution_start A", "tool_execution_start B", "tool_execution_end B b", "tool_execution_end A a"]


@simulated
async def test_results_enter_in_source_order():
    """The model and the log see the results as the answer had asked for them."""
    said = [line for line in await _a_slow_and_b_fast() if line.startswith("message_end tool")]
    assert said == ["message_end tool A a", "message_end tool B b"]


@simulated
async def test_progress_is_told_while_a_tool_runs():
    """Updates come between the start and the end of their call."""

    @tool
    async def count(context: ToolContext) -> str:
        """Count."""
        context.update("1")
        context.update("2")
        return "3"

    recorder, _ = await told(Agent(ScriptedModel([[call("A", "count")], say("x")]), tools=[count], config=CHAPTER_06))
    said = [line for line in lines(recorder.events, "chapter_06") if line.startswith("tool_execution")]
    assert said == ["tool_execution_start A", *(f"tool_execution_update A {n}" for n in "12"), "tool_execution_end A 3"]


@simulated
async def test_late_progress_is_discarded():
    """What a tool says after it has ended is no progress any more; that it came is told, and what it was is not."""
    later: list[Any] = []

    @tool
    async def leave(context: ToolContext) -> str:
        """Leave something behind that still talks."""
        later.append(lambda: context.update("too late"))
        return "done"

    agent = Agent(ScriptedModel([[call("A", "leave")], say("x")]), tools=[leave], config=CHAPTER_06)
    on(agent, "turn.ended", lambda: later[0]())
    recorder, result = await told(agent)
    assert result.status == "completed"
    assert recorder.of("tool.updated") == []
    assert [event.call_id for event in recorder.of("update.discarded")] == ["A"]


# ---- the conflict of two writers ----


def _writer(files: dict[str, str], resources: Any) -> Any:
    @tool(resources=resources)
    async def append(path: str, text: str) -> str:
        """Add text to a file, reading it first."""
        old = files[path]
        await passing(1)
        files[path] = old + text
        return files[path]

    return append


async def _two_writes(resources: Any, paths: str) -> tuple[dict[str, str], float]:
    files = dict.fromkeys(paths, "0")
    calls = [call(str(n), "append", path=path, text=str(n)) for n, path in enumerate(paths, 1)]
    agent = Agent(ScriptedModel([calls, say("x")]), tools=[_writer(files, resources)], config=CHAPTER_06)
    began = asyncio.get_running_loop().time()
    await agent.prompt("Hi")
    return files, asyncio.get_running_loop().time() - began


@simulated
async def test_writers_of_one_file_lose_what_the_other_wrote():
    """Two calls that read, compute and write together overwrite each other when nothing keeps them apart."""
    assert await _two_writes(None, "ff") == ({"f": "02"}, 1)


@simulated
async def test_calls_that_share_a_resource_run_in_source_order():
    """Declared as one resource, the file is written by one call after the other, and both changes are in it."""
    assert await _two_writes(lambda arguments: [arguments["path"]], "ff") == ({"f": "012"}, 2)


@simulated
async def test_calls_of_different_resources_still_run_together():
    """Only those wait that touch the same thing."""
    assert await _two_writes(lambda arguments: [arguments["path"]], "fg") == ({"f": "01", "g": "02"}, 1)


@simulated
async def test_an_abort_frees_what_calls_held():
    """The writer of the next run does not wait for a file that an aborted one had reserved."""
    files = {"f": "0"}
    answers = [[call("1", "append", path="f", text="1")], [call("2", "append", path="f", text="2")], say("x")]
    append = _writer(files, lambda arguments: [arguments["path"]])
    agent = Agent(ScriptedModel(answers), tools=[append, fail], config=CHAPTER_06)
    on(agent, "tool.started", lambda: asyncio.get_running_loop().call_later(0.5, agent.abort))
    recorder = heard(agent)
    assert (await agent.prompt("Hi")).status == "cancelled"
    assert (await agent.prompt("again")).status == "completed"
    assert files == {"f": "02"}
    assert [event.is_error for event in recorder.of("tool.ended")] == [True, False]
    assert agent.messages[1].stop is StopReason.TOOL_USE
