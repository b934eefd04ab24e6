"""AG-UI over HTTP: a run for a client that somebody else wrote, and what it can't have."""

import json
from typing import Any

import pytest

from kernel import Image, UserMessage
from tests.adapters.test_agui import judged
from tests.adapters.web_server import BUSY, finished, run, serving


def asked(*texts: str, thread: str = "t1", **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"id": f"m{place}", "role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return {"threadId": thread, "runId": "r1", "messages": messages, "state": {}, "tools": [], "context": []} | more


def shown(kind: str, url: str) -> dict[str, Any]:
    content = [{"type": kind, "source": {"type": "url", "value": url}}]
    return asked() | {"messages": [{"id": "1", "role": "user", "content": content}]}


HI = asked("Hi")


def said_by(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


class TestAgui:
    def test_a_run_for_a_client(self) -> None:
        """Its own names of the thread and the run, and in an order that the judge likes."""

        async def main() -> None:
            async with serving(BUSY) as it:
                it.gate.set()
                said = said_by((await it.post("/agui", asked("Hi"))).text)
                assert judged(said) == []
                assert (said[0]["threadId"], said[0]["runId"], said[-1]["runId"]) == ("t1", "r1", "r1")
                assert said[-1]["outcome"] == {"type": "success"}
                assert [event["content"] for event in said if event["type"] == "TOOL_CALL_RESULT"] == ["worked on x"]
                starts = [event.get("role") for event in said if event["type"] == "TEXT_MESSAGE_START"]
                assert starts == ["assistant"]

        run(main)

    def test_a_thread_that_is_new_goes_on_from_what_the_client_knows(self) -> None:
        """As after a restart of the server; one that is known here is not told its own past again."""

        async def main() -> None:
            async with serving([["Three."], ["Five."]]) as it:
                await it.post("/agui", asked("One?", "Two.", "Three?"))
                agent = it.threads.get("t1").agent
                assert [message.text for message in agent.messages] == ["One?", "Two.", "Three?", "Three."]
                await it.post("/agui", asked("x", "y", "Five?"))
                assert [message.text for message in agent.messages][4:] == ["Five?", "Five."]

        run(main)

    def test_an_image(self) -> None:
        async def main() -> None:
            async with serving([["A cat."]]) as it:
                image = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
                content = [{"type": "text", "text": "What is it?"}, image]
                message = {"id": "m", "role": "user", "content": content}
                assert (await it.post("/agui", asked() | {"messages": [message]})).status_code == 200
                first = it.threads.get("t1").agent.messages[0]
                assert isinstance(first, UserMessage)
                assert first.images == (Image("data:image/png;base64,aGk="),)

        run(main)

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            ({}, "threadId"),
            ({"threadId": "t", "runId": "r"}, "messages"),
            (asked(), "must be the user's"),
            (asked("Hi", "Ho"), "must be the user's"),
            (asked(" "), "must not be empty"),
            (asked("Hi", thread="a/b"), "threadId is 1 to 128 letters"),
            (asked("Hi") | {"messages": [{"id": "1", "role": "nobody", "content": "x"}]}, "messages"),
            (
                asked() | {"messages": [{"id": "1", "role": "tool", "toolCallId": "c", "content": "x"}, *HI["messages"]]},
                "answers no call before it",
            ),
            (shown("audio", "x"), "text and images can"),
            (shown("image", "no"), "url"),
        ],
    )  # fmt: skip
    def test_what_can_not_be_read_is_said(self, said: dict[str, Any], why: str) -> None:
        """And no thread is begun for it."""

        async def main() -> None:
            async with serving([["Hi."]]) as it:
                error = await it.refused(422, "/agui", said)
                assert why in error["message"]
                assert not it.threads.known("t1")

        run(main)

    def test_a_thread_that_is_busy(self) -> None:
        async def main() -> None:
            async with serving(BUSY) as it, it.watching("t1") as watching:
                await it.post("/threads/t1/prompt", {"text": "Hi"})
                await watching.until(lambda viewer: bool(viewer.state.get("running")))
                assert (await it.refused(409, "/agui", asked("Ho")))["code"] == "AGENT_BUSY"

        run(main)

    @pytest.mark.parametrize(
        ("query", "end", "reason"), [("", "success", None), ("?on_disconnect=cancel", "cancelled", "the client left")]
    )
    def test_a_client_that_leaves(self, query: str, end: str, reason: str | None) -> None:
        """The run goes on without it, unless it owns the run: then that is cancelled, with a reason (CHD-6)."""

        async def main() -> None:
            async with serving(BUSY) as it, it.watching("t1") as watching:
                await watching.until(lambda viewer: bool(viewer.ids))
                async with it.client.stream("POST", f"/agui{query}", json=asked("Hi")) as answered:
                    async for text in answered.aiter_text():
                        if "kernel.tool.started" in text:
                            break
                if end == "success":
                    it.gate.set()
                viewer = await watching.until(finished)
                assert (viewer.ends, viewer.reason) == ([end], reason)

        run(main)
