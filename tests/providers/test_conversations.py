"""What both adapters send and read, over real connections: the same runs on both, and one conversation between them."""

import asyncio
import gc
import json
from typing import Any

import anthropic
import openai
import pytest

from kernel import (
    Agent,
    AssistantMessage,
    CustomMessage,
    Image,
    KernelConfig,
    ModelRequest,
    Reasoning,
    SummaryMessage,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from kernel.models.anthropic import AnthropicModel, conversation
from kernel.models.openai import OpenAIModel
from tests.providers.server import STALL, Answer, Server, event, nothing_leaks, open_files
from tests.providers.wires import ANTHROPIC, OPENAI, WIRES, Wire, openai_chunk

both = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
ran: list[tuple[int, int]] = []


@tool
def add(left: int, right: int) -> int:
    """Add two numbers."""
    ran.append((left, right))
    return left + right


CALLS = (
    ("reasoning", "Two sums."),
    ("text", "Let me see."),
    ("call", "c1", "add", '{"left": 1,', ' "right": 2}'),
    ("call", "c2", "add", '{"left": 3, "right"', ": 4}"),
)


@both
class TestARun:
    def test_parallel_calls_with_streamed_arguments(self, wire: Wire) -> None:
        """Text, reasoning and two calls, then their results, then the answer; usage with its details."""
        ran.clear()
        with nothing_leaks(), Server(wire.says(*CALLS), wire.says(("text", "3 and 7."))) as server:
            result = Agent(wire.make(server.url), tools=[add], system_prompt="Add.").run_sync("Go")
        assert (result.status, result.final_text, sorted(ran)) == ("completed", "3 and 7.", [(1, 2), (3, 4)])
        written = 1 if wire is ANTHROPIC else 0
        assert result.usage == Usage(20, 6, cache_read=8, cache_write=2 * written, reasoning=2)
        answer = result.messages[1]
        assert isinstance(answer, AssistantMessage)
        assert (answer.text, answer.reasoning) == ("Let me see.", "Two sums.")
        assert [(call.id, dict(call.arguments)) for call in answer.calls] == [
            ("c1", {"left": 1, "right": 2}), ("c2", {"left": 3, "right": 4}),
        ]  # fmt: skip
        assert [asked.path for asked in server.asked] == [wire.path, wire.path]

    def test_two_runs_without_a_loop(self, wire: Wire) -> None:
        """Each has a loop of its own, and connections that die with it."""
        with nothing_leaks(), Server(wire.says(("text", "Hi."))) as server:
            agent = Agent(wire.make(server.url))
            assert [agent.run_sync("Hi").final_text for _ in range(3)] == ["Hi."] * 3
            gc.collect()
        assert server.connections == 3

    def test_a_model_that_is_closed_opens_again(self, wire: Wire) -> None:
        async def main(url: str) -> tuple[str, str]:
            async with wire.make(url) as model:
                first = await Agent(model).prompt("Hi")
                await model.aclose()
                second = await Agent(model).prompt("Hi")
            return first.final_text, second.final_text

        with nothing_leaks(), Server(wire.says(("text", "Hi."))) as server:
            assert asyncio.run(main(server.url)) == ("Hi.", "Hi.")

    def test_a_hundred_turns_leak_nothing(self, wire: Wire) -> None:
        """No task more at the end than after the first turn, and no descriptor for each turn.

        The server lives in this process and closes its side when its thread comes to it, so that a descriptor of the last
        few connections may still be counted; a connection kept for each turn would be a hundred.
        """
        turns = 100
        answers = [wire.says(("call", f"c{number}", "add", '{"left": 1, "right": 2}')) for number in range(turns)]
        seen: list[tuple[int, int]] = []

        def listener(event: Any) -> None:
            if event.type == "turn.ended":
                seen.append((open_files(), len(asyncio.all_tasks())))

        async def main(url: str) -> Any:
            agent = Agent(wire.make(url), tools=[add], config=KernelConfig(max_turns=None))
            agent.subscribe(listener)
            result = await agent.prompt("Go")
            await agent.wait_for_idle()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            assert not [task for task in tasks if task.get_name().startswith("kernel")]
            return result

        with nothing_leaks(), Server(*answers, wire.says(("text", "done"))) as server:
            result = asyncio.run(main(server.url))
        assert (result.status, result.turns) == ("completed", turns + 1)
        (files, tasks), (last_files, last_tasks) = seen[0], seen[-2]
        assert last_tasks == tasks
        assert last_files < files + turns // 4

    def test_many_agents_share_a_model(self, wire: Wire) -> None:
        """Twenty runs at once: each gets its own answer."""
        async def main(url: str) -> list[str]:
            model = wire.make(url)
            results = await asyncio.gather(*(Agent(model).prompt(f"{number}") for number in range(20)))
            return [result.final_text for result in results]

        with nothing_leaks(), Server(wire.says(("text", "Hi."))) as server:
            assert asyncio.run(main(server.url)) == ["Hi."] * 20
        assert sorted(int(_last_text(asked.body)) for asked in server.asked) == list(range(20))

    def test_truncated(self, wire: Wire) -> None:
        """The output limit is a stop reason, and its calls are not executed."""
        ran.clear()
        answers = wire.says(("call", "c1", "add", '{"left"'), end="length"), wire.says(("text", "ok"))
        with nothing_leaks(), Server(*answers) as server:
            result = Agent(wire.make(server.url), tools=[add]).run_sync("Go")
        assert (result.final_text, ran) == ("ok", [])
        assert result.messages[2].text.startswith("not executed: the response was cut off")

    def test_an_output_is_asked_for(self, wire: Wire) -> None:
        """The provider is told of the schema in its own way; a type that is no object stands in the system prompt."""
        with nothing_leaks(), Server(wire.says(("text", '{"n": 1}')), wire.says(("text", "[1]"))) as server:
            model = wire.make(server.url)
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            assert Agent(model, output=schema).run_sync("Go").output == {"n": 1}
            assert Agent(model, output=list[int], system_prompt="Be brief.").run_sync("Go").output == [1]
        told, untold = (asked.body for asked in server.asked)
        place = told["response_format"]["json_schema"] if wire is OPENAI else told["output_config"]["format"]
        assert place["schema"] == schema | ({} if wire is OPENAI else {"additionalProperties": False})
        assert "nothing but JSON" in json.dumps(untold)
        assert "Be brief." in json.dumps(untold)
        assert not {"response_format", "output_config"} & untold.keys()

    def test_a_server_that_closes_its_connections_costs_no_retry(self, wire: Wire) -> None:
        """Small servers do so after each response and do not say it. Without TLS nothing is saved by keeping one."""
        answer = Answer([*wire.pieces(("text", "Hi."))], silent_end=True)
        with nothing_leaks(), Server(answer) as server:
            agent = Agent(wire.make(server.url), config=KernelConfig(retry=None))
            results = [agent.run_sync("Hi") for _ in range(3)]

            async def main() -> list[str]:
                return [(await agent.prompt("Hi")).status for _ in range(20)]

            assert asyncio.run(main()) == ["completed"] * 20
        assert [result.status for result in results] == ["completed"] * 3

    def test_where_connections_are_kept_they_are_used_again(self, wire: Wire) -> None:
        """A response is read to its end, which the SDK of Anthropic does not do by itself."""
        async def main(url: str) -> None:
            async with _client_of_ones_own(wire, url) as client:
                make = OpenAIModel if wire is OPENAI else AnthropicModel
                agent = Agent(make("m", client=client))
                for _ in range(5):
                    (await agent.prompt("Hi")).unwrap()

        with nothing_leaks(), Server(wire.says(("text", "Hi."))) as server:
            asyncio.run(main(server.url))
        assert (len(server.asked), server.connections) == (5, 1)


def _client_of_ones_own(wire: Wire, url: str) -> Any:
    if wire is OPENAI:
        return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")
    return anthropic.AsyncAnthropic(base_url=url, api_key="k")


def _last_text(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def sent(wire: Wire, *messages: Any, **request: Any) -> dict[str, Any]:
    """The body of a request with these messages."""
    asked = ModelRequest("r:1", messages, request.pop("system_prompt", ""), tuple(request.pop("tools", ())), **request)

    async def main(url: str) -> None:
        async for _ in wire.make(url).stream(asked):
            pass

    with nothing_leaks(), Server(wire.says(("text", "ok"))) as server:
        asyncio.run(main(server.url))
    return server.asked[0].body


HISTORY = (
    UserMessage("Hi"),
    AssistantMessage((Reasoning("hm", "sig"), Text("I look."), ToolCall("a:b.1", "add", {"left": 1}), ToolCall("", "add"))),
    ToolMessage("a:b.1", "add", ""),
    ToolMessage("", "add", "bad", is_error=True),
    UserMessage("and?"),
    AssistantMessage(()),
    SummaryMessage("before"),
    CustomMessage("ui", {}),
)


@both
class TestWhatIsSent:
    def test_ids_are_ones_that_every_provider_takes(self, wire: Wire) -> None:
        """A call and its result keep the same one, whatever another provider or the kernel had called it."""
        body = json.dumps(sent(wire, *HISTORY))
        assert "a:b.1" not in body
        messages = json.loads(body)["messages"]
        if wire is OPENAI:
            ids = [call["id"] for call in messages[1]["tool_calls"]]
            results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        else:
            ids = [block["id"] for block in messages[1]["content"] if block["type"] == "tool_use"]
            results = [block["tool_use_id"] for block in messages[2]["content"] if block["type"] == "tool_result"]
        assert ids == results
        assert len(set(ids)) == 2
        assert all(name.replace("_", "").isalnum() and len(name) <= 40 for name in ids)

    def test_nothing_empty_is_sent(self, wire: Wire) -> None:
        """No empty text, no empty message, no custom one, and a result that says nothing says so."""
        body = sent(wire, *HISTORY, UserMessage((Text(""), Image("https://example.org/a.png"))))
        said = json.dumps(body)
        assert '"text": ""' not in said
        assert '"content": ""' not in said
        assert '"content": []' not in said
        assert "(no output)" in said
        assert "ui" not in [message["role"] for message in body["messages"]]
        assert not {"system", "tools"} & body.keys()

    def test_a_foreign_signature_is_not_sent(self, wire: Wire) -> None:
        """What another provider signed would be refused, and with it every later request."""
        said = json.dumps(sent(wire, *HISTORY))
        assert "sig" not in said
        assert "hm" not in said

    def test_halves_of_characters(self, wire: Wire) -> None:
        """They can't be written in UTF-8: two that belong together are joined, one alone is replaced."""
        half, other = "\ud83d", "\ude00"
        messages = (
            UserMessage(f"a{half}"), AssistantMessage((Text(half + other), ToolCall("c", "add", {"x": other}))),
            ToolMessage("c", "add", half),
        )  # fmt: skip
        body = sent(wire, *messages, system_prompt=half)
        said = json.dumps(body, ensure_ascii=False)
        said.encode()
        assert "😀" in said
        assert "�" in said

    def test_images(self, wire: Wire) -> None:
        """By address and carried, where they stood."""
        picture = Image.of(b"abc", "image/png")
        body = sent(wire, UserMessage((Text("What"), picture, Text("is this?"), Image("https://example.org/a.png"))))
        content = body["messages"][0]["content"]
        if wire is OPENAI:
            assert [block.get("text") or block["image_url"]["url"] for block in content] == [
                "What", picture.url, "is this?", "https://example.org/a.png",
            ]  # fmt: skip
        else:
            assert content[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "YWJj"}
            assert content[3]["source"] == {"type": "url", "url": "https://example.org/a.png"}

    def test_tools_and_effort(self, wire: Wire) -> None:
        body = sent(wire, UserMessage("Hi"), tools=[add], reasoning_effort="low", system_prompt="Add.")
        given = body["tools"][0]
        given = given["function"] if wire is OPENAI else given
        assert (given["name"], given["description"]) == ("add", "Add two numbers.")
        schema = given["parameters"] if wire is OPENAI else given["input_schema"]
        assert schema["required"] == ["left", "right"]
        effort = body["reasoning_effort"] if wire is OPENAI else body["output_config"]["effort"]
        assert effort == "low"

    def test_malformed_arguments_are_an_empty_object(self, wire: Wire) -> None:
        """Providers refuse a history with arguments that are no object; the error result tells the model what they were."""
        call = ToolCall("c", "add", malformed='{"left')
        body = sent(wire, UserMessage("Hi"), AssistantMessage((call,)), ToolMessage("c", "add", "no JSON", is_error=True))
        made = body["messages"][1]
        said = made["tool_calls"][0]["function"]["arguments"] if wire is OPENAI else made["content"][0]["input"]
        assert said in ("{}", {})

    def test_the_request_is_not_changed(self, wire: Wire) -> None:
        before = repr(HISTORY)
        sent(wire, *HISTORY)
        assert repr(HISTORY) == before


class TestAnthropic:
    def test_thinking_goes_back_as_it_came(self) -> None:
        """With its signature, and what was redacted as it is; between the calls that it belongs to."""
        first = ANTHROPIC.says(("redacted", "xyz"), *CALLS)
        with nothing_leaks(), Server(first, ANTHROPIC.says(("text", "done"))) as server:
            Agent(ANTHROPIC.make(server.url), tools=[add]).run_sync("Go")
        assert server.asked[1].body["messages"][1]["content"][:3] == [
            {"type": "redacted_thinking", "data": "xyz"},
            {"type": "thinking", "thinking": "Two sums.", "signature": "sig"},
            {"type": "text", "text": "Let me see."},
        ]

    def test_strict_alternation(self) -> None:
        """Side by side are joined, results stand first, and a conversation that an assistant begins gets a beginning."""
        said = conversation(
            [
                AssistantMessage("Welcome."), UserMessage("a"), UserMessage("b"),
                AssistantMessage((ToolCall("c", "add"),)), ToolMessage("c", "add", "1"), UserMessage("left"),
                AssistantMessage("x"), AssistantMessage("y"),
            ]
        )  # fmt: skip
        assert [turn["role"] for turn in said] == ["user", "assistant", "user", "assistant", "user", "assistant"]
        assert [block["type"] for block in said[4]["content"]] == ["tool_result", "text"]
        assert [block["text"] for block in said[2]["content"]] == ["a", "b"]

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"type": "object", "properties": {"a": {"type": "object"}}},
            {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
            {"anyOf": [{"type": "object", "properties": {"a": {}}}]},
            {"type": "object", "properties": {"a": {}}},
            {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        ],
    )
    def test_objects_of_any_properties_are_asked_for_in_words(self, schema: Any) -> None:
        """The provider would allow them none at all; so is what it has no type for."""
        body = sent(ANTHROPIC, UserMessage("Hi"), output_schema=schema)
        assert "output_config" not in body
        assert json.dumps(schema) in body["system"]

    def test_what_the_provider_does_not_take_becomes_a_description(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}}
        told = sent(ANTHROPIC, UserMessage("Hi"), output_schema=schema)["output_config"]["format"]["schema"]
        assert told["additionalProperties"] is False
        assert "minimum: 3" in told["properties"]["a"]["description"]

    def test_what_is_used_by_a_cancelled_answer_is_known(self) -> None:
        """The input is told at the beginning."""
        answer = Answer([*ANTHROPIC.pieces(("text", "Hel"), end=None), STALL])
        with nothing_leaks(), Server(answer) as server:
            agent = Agent(ANTHROPIC.make(server.url))
            agent.subscribe(lambda event: agent.cancel() if event.type == "message.updated" else None)
            assert agent.run_sync("Hi").usage == Usage(10, 1, cache_read=4, cache_write=1)


def test_a_conversation_survives_a_change_of_the_provider():
    """Calls, results, thinking and signatures of one, sent to the other, and back again."""
    first = ANTHROPIC.says(*CALLS), ANTHROPIC.says(("text", "3 and 7."))
    second = OPENAI.says(("call", "d1", "add", '{"left": 5, "right": 6}')), OPENAI.says(("text", "11."))
    with nothing_leaks(), Server(*first, ANTHROPIC.says(("text", "Bye."))) as one, Server(*second) as other:
        agent = Agent(ANTHROPIC.make(one.url), tools=[add])
        agent.run_sync("Go")
        agent.configure(model=OPENAI.make(other.url))
        agent.run_sync("and 5 + 6?")
        agent.configure(model=ANTHROPIC.make(one.url))
        assert agent.run_sync("thanks").final_text == "Bye."
    assert "sig" not in json.dumps(other.asked[-1].body)
    assert '"signature": "sig"' in json.dumps(one.asked[-1].body)


class TestOpenAI:
    def test_reasoning_is_sent_back_where_it_is_wanted(self) -> None:
        with nothing_leaks(), Server(OPENAI.says(*CALLS), OPENAI.says(("text", "done"))) as server:
            model = OpenAIModel("m", base_url=f"{server.url}/v1", echo_reasoning=True, temperature=0.5)
            Agent(model, tools=[add]).run_sync("Go")
        assert server.asked[1].body["messages"][1]["reasoning_content"] == "Two sums."
        assert server.asked[1].body["temperature"] == 0.5

    @pytest.mark.parametrize(
        ("schema", "strict"),
        [
            ({"type": "object", "properties": {}, "additionalProperties": False}, True),
            ({"type": "object", "properties": {}}, False),
            (
                {
                    "type": "object", "additionalProperties": False, "required": ["a"],
                    "properties": {"a": {"type": "object", "properties": {"b": {}}, "additionalProperties": False}},
                },
                False,
            ),
        ],
    )  # fmt: skip
    def test_strict_is_asked_for_where_the_schema_allows_it(self, schema: Any, strict: bool) -> None:
        body = sent(OPENAI, UserMessage("Hi"), output_schema=schema)
        assert body["response_format"]["json_schema"]["strict"] is strict


    def test_what_the_sdk_has_no_type_for_is_read_without_a_word(self) -> None:
        """Text in blocks, and tokens with a decimal point: the SDK would warn of them."""
        usage = {"prompt_tokens": 3.0, "completion_tokens": 1, "total_tokens": 4}
        pieces = [
            openai_chunk({"content": [{"type": "text", "text": "Hi."}]}), openai_chunk({}, "stop"),
            openai_chunk({}, None, usage=usage), event("[DONE]"),
        ]  # fmt: skip
        with nothing_leaks(), Server(Answer(pieces)) as server:
            result = Agent(OPENAI.make(server.url)).run_sync("Hi")
        assert (result.final_text, result.usage) == ("Hi.", Usage(3, 1))


class TestMaking:
    def test_a_key_is_needed_for_the_provider_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One sentence that says which variable; a server of one's own needs none."""
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(ValueError, match="set OPENAI_API_KEY"):
            OpenAIModel("gpt")
        with pytest.raises(ValueError, match="set ANTHROPIC_API_KEY"):
            AnthropicModel("claude")
        assert repr(OpenAIModel("llama", base_url="http://user:pw@127.0.0.1:80/v1?key=1")) == (
            "OpenAIModel('llama', http://127.0.0.1:80)"
        )
        assert "sk" not in repr(AnthropicModel("claude", api_key="sk-1"))

    def test_the_environment_says_where(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:81/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:82")
        assert "127.0.0.1:81" in repr(OpenAIModel("m"))
        assert "127.0.0.1:82" in repr(AnthropicModel("m"))

    @pytest.mark.parametrize("make", [OpenAIModel, AnthropicModel])
    @pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://a:b", "/v1"])
    def test_an_address_that_is_none_is_refused(self, make: Any, url: str) -> None:
        with pytest.raises(ValueError, match="base_url"):
            make("m", base_url=url)

    @pytest.mark.parametrize("make", [OpenAIModel, AnthropicModel])
    @pytest.mark.parametrize(
        "arguments", [{"name": ""}, {"name": 3}, {"messages": []}, {"stream": False}, {"client": 3}, {"api_key": " "},
                      {"api_key": "sk-\u00e9"}, {"api_key": "sk-a\nb"}]
    )
    def test_bad_arguments_are_refused(self, make: Any, arguments: Any) -> None:
        where = {} if "client" in arguments else {"base_url": "http://127.0.0.1:1"}
        with pytest.raises((TypeError, ValueError)):
            make(**{"name": "m"} | where | arguments)

    @both
    def test_a_line_end_after_the_key_is_not_part_of_it(self, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
        """As it comes out of a file; it could not be sent, and what can't be sent is shown by those who would send it."""
        monkeypatch.setenv("OPENAI_API_KEY" if wire is OPENAI else "ANTHROPIC_API_KEY", "sk-very-secret\n")
        with nothing_leaks(), Server(wire.says(("text", "Hi."))) as server:
            address = f"{server.url}/v1" if wire is OPENAI else server.url
            model = (OpenAIModel if wire is OPENAI else AnthropicModel)("m", base_url=address)
            assert Agent(model).run_sync("Hi").final_text == "Hi."
        assert "sk-very-secret" in str(server.asked[0].headers)

    @both
    def test_a_client_of_ones_own_is_not_closed_and_does_not_retry(self, wire: Wire) -> None:
        async def main(url: str) -> None:
            client = _client_of_ones_own(wire, url)
            async with (OpenAIModel if wire is OPENAI else AnthropicModel)("m", client=client) as model:
                result = await Agent(model, config=KernelConfig(retry=None)).prompt("Hi")
            assert result.status == "failed"
            assert not client.is_closed()
            await client.close()

        with nothing_leaks(), Server(wire.fails(500, "api_error", "oops")) as server:
            asyncio.run(main(server.url))
        assert len(server.asked) == 1
