"""ACP: what an editor sees of a session, over real streams."""

import asyncio
from pathlib import Path
from typing import Any

import acp
import pytest

from kernel import Finished, Image, KernelConfig, ModelError, ReasoningDelta, UserMessage
from kernel.adapters.acp import SESSIONS
from kernel.adapters.acp_sessions import SessionStore
from kernel.testing import call
from tests.adapters.acp_editor import BUSY, connected, run


class TestASession:
    def test_what_it_can_do_is_told(self, tmp_path: Path) -> None:
        """Version 1, whatever was asked for; sessions, images and embedded text; nothing to authenticate with."""

        async def main() -> None:
            async with connected([], tmp_path) as it:
                said = await it.connection.initialize(protocol_version=99)
                able = said.agent_capabilities
                assert (said.protocol_version, said.agent_info.name, said.auth_methods) == (1, "phasekernel", [])
                prompts = able.prompt_capabilities
                assert (able.load_session, prompts.image, prompts.embedded_context) == (True, True, True)
                assert not prompts.audio

        run(main)

    def test_a_prompt(self, tmp_path: Path) -> None:
        """Text and thoughts as they come; a call as it is asked for, runs, says something and ends."""

        async def main() -> None:
            script = [[ReasoningDelta("Hm."), "Well. ", call("c1", "work", path="a.py")], ["Do", "ne."]]
            async with connected(script, tmp_path) as it:
                session = await it.begin()
                it.gate.set()
                answered = await it.ask(session, "Go")
                assert answered.stop_reason == "end_turn"
                assert (it.editor.text(), it.editor.text("agent_thought_chunk")) == ("Well. Done.", "Hm.")
                (asked,) = it.editor.of("tool_call")
                assert (asked.title, asked.kind, asked.raw_input) == ("work a.py", "other", {"path": "a.py"})
                assert asked.locations[0].path == str(it.root / "a.py")
                ((id, statuses),) = it.editor.calls().items()
                assert id == asked.tool_call_id
                assert statuses == ["pending", "in_progress", None, "completed", "completed"]
                assert it.editor.of("tool_call_update")[1].content[0].content.text == "half of it"
                assert it.editor.of("tool_call_update")[-1].content[0].content.text == "worked on a.py"

        run(main)

    def test_ids_that_a_model_uses_again(self, tmp_path: Path) -> None:
        """Each call is its own in the session."""

        async def main() -> None:
            one = [call("c", "write_file", path="a"), call("c", "write_file", path="b")]
            async with connected([one, ["x"], [call("c", "write_file", path="c")], ["y"]], tmp_path) as it:
                session = await it.begin()
                for _ in range(2):
                    await it.ask(session, "Go")
                ends = {id: statuses[-1] for id, statuses in it.editor.calls().items()}
                assert ends == {"c.1": "completed", "c.2": "completed", "c.3": "completed"}

        run(main)

    @pytest.mark.parametrize(
        ("script", "config", "reason"),
        [
            ([["Hi."]], {}, "end_turn"),
            ([[call("c", "write_file", path="a")]] * 3, {"max_turns": 2}, "max_turn_requests"),
        ],
    )
    def test_how_it_ended(self, script: Any, config: dict[str, Any], reason: str, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(script, tmp_path, config=KernelConfig(**config)) as it:
                assert (await it.ask(await it.begin(), "Go")).stop_reason == reason

        run(main)

    def test_a_response_that_was_cut_off(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected([["Hal", Finished("length")]], tmp_path) as it:
                assert (await it.ask(await it.begin(), "Go")).stop_reason == "max_tokens"

        run(main)

    def test_a_failed_run_is_an_error(self, tmp_path: Path) -> None:
        """With the kernel's words and code; the session goes on."""

        async def main() -> None:
            async with connected([[ModelError("the provider is down")], ["Hi."]], tmp_path) as it:
                session = await it.begin()
                with pytest.raises(acp.RequestError, match="the provider is down") as caught:
                    await it.ask(session, "Go")
                assert caught.value.data == {"code": "MODEL_FAILED"}
                assert (await it.ask(session, "Again")).stop_reason == "end_turn"

        run(main)

    def test_cancel(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                await it.connection.cancel(session_id=session)
                assert (await going).stop_reason == "cancelled"
                assert next(iter(it.editor.calls().values()))[-1] == "failed"

        run(main)

    def test_sessions_do_not_hear_each_other(self, tmp_path: Path) -> None:
        """Two at a time, each with its own conversation."""

        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                one, other = await it.begin(), await it.begin()
                going = asyncio.ensure_future(it.ask(one, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                it.gate.set()
                assert (await it.ask(other, "Go")).stop_reason == (await going).stop_reason == "end_turn"
                assert len(it.agent(one).messages) == len(it.agent(other).messages) == 4

        run(main)


class TestWhatIsSaid:
    def test_blocks(self, tmp_path: Path) -> None:
        """Text, links, embedded text and images are one message."""

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                session = await it.begin()
                await it.ask(
                    session, "Look:", acp.resource_link_block("a.py", "file:///a.py"),
                    acp.resource_block(acp.embedded_text_resource("file:///b.py", "b = 1")),
                    acp.image_block("aGk=", "image/png"),
                )  # fmt: skip
                message = it.agent(session).messages[0]
                assert isinstance(message, UserMessage)
                assert message.text == (
                    'Look:[a.py](file:///a.py)\n<resource uri="file:///b.py">\nb = 1\n</resource>\n'
                )
                assert message.images == (Image("data:image/png;base64,aGk="),)

        run(main)

    @pytest.mark.parametrize(
        ("blocks", "why"),
        [
            ([], "must not be empty"),
            ([acp.text_block("  ")], "must not be empty"),
            ([acp.audio_block("aGk=", "audio/wav")], "type 'audio' can't be read"),
            ([acp.image_block("aGk=", "text/plain")], "image"),
        ],
    )
    def test_what_can_not_be_read_is_said(self, blocks: list[Any], why: str, tmp_path: Path) -> None:
        """And no run is begun."""

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                session = await it.begin()
                with pytest.raises(acp.RequestError, match=why):
                    await it.ask(session, *blocks)
                assert len(it.agent(session).messages) == 0

        run(main)


WRITES = [[call("c1", "write_file", path="a")], [call("c2", "write_file", path="b")], ["Done."]]


class TestPermission:
    @pytest.mark.parametrize(
        ("answers", "asked", "results"),
        [
            (["once", "once"], 2, ["wrote a", "wrote b"]),
            (["always"], 1, ["wrote a", "wrote b"]),
            (["reject", "once"], 2, ["the user did not allow it", "wrote b"]),
        ],
    )
    def test_the_user_is_asked(self, answers: list[str | None], asked: int, results: list[str], tmp_path: Path) -> None:
        """Once, for ever, or not at all; the model reads a rejection."""

        async def main() -> None:
            async with connected(WRITES, tmp_path, frozenset({"write_file"})) as it:
                session = await it.begin()
                it.editor.answers = answers
                assert (await it.ask(session, "Go")).stop_reason == "end_turn"
                said = [message.text for message in it.agent(session).messages if message.role == "tool"]
                assert said == results
                assert len(it.editor.asked) == asked
                described, options = it.editor.asked[0]
                assert (described.title, options) == ("write_file a", ["once", "always", "reject"])
                assert described.tool_call_id in it.editor.calls()

        run(main)

    def test_a_cancel_while_the_user_thinks(self, tmp_path: Path) -> None:
        """The question is dropped, and nothing is written."""

        async def main() -> None:
            async with connected(WRITES, tmp_path, frozenset({"write_file"})) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.asked))
                await it.connection.cancel(session_id=session)
                assert (await going).stop_reason == "cancelled"
                assert "wrote" not in str(it.agent(session).messages)

        run(main)

    def test_what_needs_none_is_not_asked_for(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path, frozenset({"write_file"})) as it:
                it.gate.set()
                await it.ask(await it.begin(), "Go")
                assert it.editor.asked == []

        run(main)


class TestLoading:
    def test_a_session_goes_on(self, tmp_path: Path) -> None:
        """After the agent's process has ended: all of it is told, and the model is sent it."""

        async def main() -> None:
            async with connected([[ReasoningDelta("Hm."), *BUSY[0]], BUSY[1]], tmp_path) as it:
                session = await it.begin()
                it.gate.set()
                await it.ask(session, "Go")
            async with connected([["More."]], tmp_path) as it:
                await it.connection.initialize(protocol_version=1)
                await it.connection.load_session(cwd=str(it.root), session_id=session, mcp_servers=[])
                assert it.editor.text("user_message_chunk") == "Go"
                assert it.editor.text() == "Well. Done."
                assert list(it.editor.calls().values()) == [["pending", "completed"]]
                assert (await it.ask(session, "On")).stop_reason == "end_turn"
                assert [message.text for message in it.agent(session).messages][-2:] == ["On", "More."]

        run(main)

    def test_a_cancelled_run_is_stored(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                await it.connection.cancel(session_id=session)
                await going
                stored = SessionStore(tmp_path / "sessions").load(session)
                assert [message.role for message in stored.messages] == ["user", "assistant", "tool"]

        run(main)

    @pytest.mark.parametrize(
        ("id", "content", "why"),
        [
            ("0" * 32, None, "there is no session"),
            ("../../etc/passwd", None, "is no id of a session"),
            ("", None, "is no id of a session"),
            ("0" * 32, "", "can't be read"),
            ("0" * 32, '{"format": "another"}', "is no session of this version"),
            ("0" * 32, '{"format":"phasekernel.session/1","cwd":"/","messages":[{"is":"Nobody"}]}', "is damaged"),
        ],
    )
    def test_what_can_not_be_loaded_is_said(self, id: str, content: str | None, why: str, tmp_path: Path) -> None:
        """And changes nothing, the file included."""

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                path = tmp_path / "sessions" / f"{'0' * 32}.json"
                if content is not None:
                    path.parent.mkdir()
                    path.write_text(content)
                with pytest.raises(acp.RequestError, match=why):
                    await it.connection.load_session(cwd=str(it.root), session_id=id, mcp_servers=[])
                assert it.agent_side._sessions == {}
                assert content is None or path.read_text() == content

        run(main)

    def test_a_load_that_is_refused_changes_nothing(self, tmp_path: Path) -> None:
        """The session that is open stays open."""

        async def main() -> None:
            async with connected([["Hi."], ["Ho."]], tmp_path) as it:
                session = await it.begin()
                await it.ask(session, "Go")
                with pytest.raises(acp.RequestError, match="absolute path of a directory"):
                    await it.connection.load_session(cwd="/nowhere/at/all", session_id=session, mcp_servers=[])
                assert (await it.ask(session, "On")).stop_reason == "end_turn"
                assert [message.text for message in it.agent(session).messages] == ["Go", "Hi.", "On", "Ho."]

        run(main)

    def test_sessions_are_bounded(self, tmp_path: Path) -> None:
        """An idle one makes room; when all of them run, a new one is refused."""

        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                sessions = [await it.begin() for _ in range(SESSIONS + 1)]
                assert list(it.agent_side._sessions) == sessions[1:]
                going = [asyncio.ensure_future(it.ask(session, "Go")) for session in sessions[1:]]
                await it.editor.until(lambda: len(it.editor.of("tool_call_update")) >= 2 * SESSIONS)
                with pytest.raises(acp.RequestError, match="sessions are running"):
                    await it.begin()
                it.gate.set()
                assert {answered.stop_reason for answered in await asyncio.gather(*going)} == {"end_turn"}

        run(main)

    def test_one_that_is_going_is_not_loaded(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with connected(BUSY, tmp_path) as it:
                session = await it.begin()
                going = asyncio.ensure_future(it.ask(session, "Go"))
                await it.editor.until(lambda: bool(it.editor.of("tool_call_update")))
                with pytest.raises(acp.RequestError, match="a run is going in it"):
                    await it.connection.load_session(cwd=str(it.root), session_id=session, mcp_servers=[])
                it.gate.set()
                assert (await going).stop_reason == "end_turn"

        run(main)

    def test_a_disk_that_is_full_costs_the_run_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """It is logged; what was stored before stays."""
        (tmp_path / "sessions").write_text("a file, and no folder")

        async def main() -> None:
            async with connected([["Hi."]], tmp_path) as it:
                assert (await it.ask(await it.begin(), "Go")).stop_reason == "end_turn"

        run(main)
        assert "could not be stored" in caplog.text
