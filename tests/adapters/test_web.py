"""The server, over real connections on the loopback interface: its pages, its stream, its commands, what it refuses."""

import asyncio
from typing import Any

import pytest

from kernel.testing import call  # noqa: F401
from kernel.web import hub as hub_module
from kernel.web.app import LARGEST_BODY
from kernel.web.threads import THREADS, RecordedThread
from tests.adapters.web_server import BUSY, JSON, TRACE, finished, run, serving


class TestPages:
    def test_the_page_and_its_files(self) -> None:
        """Nothing is loaded from elsewhere, and nothing inline is run."""

        async def main() -> None:
            async with serving([]) as it:
                for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
                    answered = await it.client.get(path)
                    assert (answered.status_code, answered.headers["content-type"].split(";")[0]) == (200, kind)
                    assert "script-src 'self'" in answered.headers["content-security-policy"]
                    assert "https://" not in answered.text
                inspector = await it.client.get("/inspect/")
                assert inspector.status_code == 200
                assert (await it.client.get("/inspect/config.json")).json()["agents"][0]["id"] == "kernel"

        run(main)

    @pytest.mark.parametrize("path", ["/nothing", "/threads", "/threads/main", "/../pyproject.toml", "/static/index.html"])
    def test_there_is_nothing_else(self, path: str) -> None:
        async def main() -> None:
            async with serving([]) as it:
                assert (await it.client.get(path)).status_code in (404, 405)

        run(main)


class TestTalking:
    def test_a_run_is_seen_as_it_goes(self) -> None:
        async def main() -> None:
            async with serving([["Hel", "lo."]]) as it, it.watching() as watching:
                answered = await it.post("/threads/main/prompt", {"text": "Hi"})
                assert (answered.status_code, list(answered.json())) == (202, ["run"])
                viewer = await watching.until(finished)
                assert viewer.texts == [("user", "Hi"), ("assistant", "Hello.")]
                assert viewer.ends == ["success"]

        run(main)

    def test_steer_and_follow_up(self) -> None:
        """They wait where all can see them, and come where they belong."""

        async def main() -> None:
            async with serving(BUSY) as it, it.watching() as watching:
                await it.post("/threads/main/prompt", {"text": "Hi"})
                await watching.until(lambda viewer: bool(viewer.state.get("running")))
                assert (await it.post("/threads/main/follow_up", {"text": "later"})).json() == {"queued": True}
                assert (await it.post("/threads/main/steer", {"text": "now"})).status_code == 202
                viewer = await watching.until(lambda viewer: bool(viewer.state["steering"]))
                assert (viewer.state["steering"], viewer.state["follow_up"]) == (["now"], ["later"])
                it.gate.set()
                viewer = await watching.until(finished)
                assert [text for role, text in viewer.texts if role == "user"] == ["Hi", "now", "later"]

        run(main)

    def test_cancel(self) -> None:
        async def main() -> None:
            async with serving(BUSY) as it, it.watching() as watching:
                await it.post("/threads/main/prompt", {"text": "Hi"})
                await watching.until(lambda viewer: bool(viewer.state.get("running")))
                assert (await it.post("/threads/main/cancel", {"reason": "enough"})).json() == {"cancelled": True}
                assert (await watching.until(finished)).ends == ["cancelled"]
                assert (await it.post("/threads/main/cancel")).json() == {"cancelled": False}

        run(main)

    def test_threads_do_not_hear_each_other(self) -> None:
        async def main() -> None:
            async with serving([["Hi."]]) as it, it.watching("a") as a, it.watching("b") as b:
                await it.post("/threads/b/prompt", {"text": "to b"})
                assert (await b.until(finished)).texts[0] == ("user", "to b")
                await it.post("/threads/a/prompt", {"text": "to a"})
                assert (await a.until(finished)).texts == [("user", "to a"), ("assistant", "Hi.")]

        run(main)


class TestManyBrowsers:
    def test_all_see_the_same_order(self) -> None:
        """Those that were there at the beginning frame by frame; one that comes later sees the same in the end."""

        async def main() -> None:
            async with serving(BUSY) as it, it.watching() as one, it.watching() as other:
                await one.until(lambda viewer: bool(viewer.ids))
                await other.until(lambda viewer: bool(viewer.ids))
                await it.post("/threads/main/prompt", {"text": "Hi"})
                await one.until(lambda viewer: bool(viewer.state.get("running")))
                async with it.watching() as late:
                    it.gate.set()
                    views = [await each.until(finished) for each in (one, other, late)]
                    ids = min((view.ids for view in views[:2]), key=len)  # one may have read on a bit after the end
                    assert views[0].ids[: len(ids)] == views[1].ids[: len(ids)] == ids
                    assert views[2].texts == views[0].texts
                    assert views[2].state == views[0].state

        run(main)

    def test_one_that_is_gone_costs_nothing(self) -> None:
        """Its connection ends in the middle of a run, which does not notice."""

        async def main() -> None:
            async with serving(BUSY) as it, it.watching() as watching:
                async with it.watching() as gone:
                    await gone.until(lambda viewer: bool(viewer.ids))
                    await it.post("/threads/main/prompt", {"text": "Hi"})
                    await gone.until(lambda viewer: bool(viewer.state.get("running")))
                it.gate.set()
                assert (await watching.until(finished)).ends == ["success"]
                while it.threads.get("main").hub.viewers > 1:
                    await asyncio.sleep(0.001)

        run(main)

    def test_one_that_never_reads_costs_nothing(self) -> None:
        """Megabytes are said that it does not take: the run ends, the others see it, and what is held for it is bounded."""
        flood = [f"{'word ' * 40}{number}" for number in range(3 * hub_module.RECENT)]

        async def main() -> None:
            async with serving([flood]) as it, it.watching() as watching:
                reader, writer = await asyncio.open_connection("127.0.0.1", it.port, limit=1024)
                writer.write(b"GET /threads/main/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                await it.post("/threads/main/prompt", {"text": "Hi"})
                viewer = await watching.until(finished)
                assert viewer.texts[-1] == ("assistant", "".join(flood))
                assert it.agent.phase == "idle"
                writer.close()
                while it.threads.get("main").hub.viewers > 1:
                    await asyncio.sleep(0.001)

        run(main)

    def test_one_that_comes_back_misses_nothing_and_doubles_nothing(self) -> None:
        async def main() -> None:
            async with serving(BUSY) as it:
                async with it.watching() as watching:
                    await watching.until(lambda viewer: bool(viewer.ids))
                    await it.post("/threads/main/prompt", {"text": "Hi"})
                    seen = await watching.until(lambda viewer: bool(viewer.state.get("running")))
                it.gate.set()
                while it.agent.is_running:
                    await asyncio.sleep(0.001)
                async with it.watching(headers={"last-event-id": seen.ids[-1]}) as back:
                    back.viewer = seen
                    viewer = await back.until(finished)
                    assert viewer.texts == [("user", "Hi"), ("assistant", "Done.")]
                    assert (viewer.snapshots, viewer.calls) == (1, {"c1": ["work", "worked on x"]})
                    assert len(set(viewer.ids)) == len(viewer.ids)

        run(main)


RUBBISH: list[tuple[str, dict[str, Any], int, str]] = [
    ("prompt", {"content": b"not JSON", "headers": JSON}, 400, "BAD_REQUEST"),
    ("prompt", {"content": b"\xff\xfe\x00", "headers": JSON}, 400, "BAD_REQUEST"),
    ("prompt", {"content": b"[" * 100_000, "headers": JSON}, 400, "BAD_REQUEST"),
    ("prompt", {"json": ["text"]}, 400, "BAD_REQUEST"),
    ("prompt", {"json": {}}, 422, "BAD_INPUT"),
    ("prompt", {"json": {"text": 5}}, 422, "BAD_INPUT"),
    ("prompt", {"json": {"text": None}}, 422, "BAD_INPUT"),
    ("steer", {"json": {"text": "  "}}, 422, "BAD_INPUT"),
    ("follow_up", {"json": {"text": ""}}, 422, "BAD_INPUT"),
    ("cancel", {"json": {"reason": 5}}, 422, "BAD_INPUT"),
    ("play", {"json": {}}, 422, "BAD_INPUT"),
    ("play", {"json": {"speed": "fast"}}, 422, "BAD_INPUT"),
    ("nothing", {"json": {}}, 404, "NO_COMMAND"),
    ("prompt", {"content": b'{"text": "Hi"}', "headers": {"content-type": "text/plain"}}, 415, "NOT_JSON"),
    ("prompt", {"json": {"text": "Hi"}, "headers": {"origin": "https://example.org"}}, 403, "FOREIGN_PAGE"),
    ("cancel", {"json": {}, "headers": {"origin": "null"}}, 403, "FOREIGN_PAGE"),
    ("prompt", {"json": {"text": "Hi"}}, 409, "AGENT_BUSY"),
]


class TestBadInput:
    def test_rubbish_is_refused_and_changes_nothing(self) -> None:
        """Each with a status, a code and a sentence; the run that is going goes on as if nothing had been said."""

        async def main() -> None:
            async with serving(BUSY) as it, it.watching() as watching:
                await it.post("/threads/main/prompt", {"text": "Hi"})
                await watching.until(lambda viewer: bool(viewer.state.get("running")))
                before = it.agent.state
                for command, request, status, code in RUBBISH:
                    error = await it.refused(status, f"/threads/main/{command}", **request)
                    assert error["code"] == code, (command, request, error)
                    assert error["message"]
                    assert it.agent.state == before
                it.gate.set()
                assert (await watching.until(finished)).texts == [("user", "Hi"), ("assistant", "Done.")]

        run(main)

    def test_no_thread_is_begun_for_what_is_refused(self) -> None:
        """An unknown name stays unknown; what is accepted begins it."""

        async def main() -> None:
            async with serving([["Hi."]]) as it:
                for command, request, status, _ in RUBBISH[:-1]:
                    await it.refused(status, f"/threads/new/{command}", **request)
                await it.client.get("/threads/new/timeline.svg")
                assert not it.threads.known("new")
                assert (await it.post("/threads/new/prompt", {"text": "Hi"})).status_code == 202
                assert it.threads.known("new")

        run(main)

    def test_a_refusal_is_the_agents_own(self) -> None:
        """It says what was asked, in which phase, and what to do instead."""

        async def main() -> None:
            async with serving(BUSY) as it, it.watching() as watching:
                await it.post("/threads/main/prompt", {"text": "Hi"})
                await watching.until(lambda viewer: bool(viewer.state.get("running")))
                error = await it.refused(409, "/threads/main/prompt", {"text": "Ho"})
                assert "steer" in error["message"]

        run(main)

    @pytest.mark.parametrize("name", ["a b", "a%2Fb", "%00", "x" * 129, "é"])
    def test_a_name_that_is_none(self, name: str) -> None:
        async def main() -> None:
            async with serving([]) as it:
                answered = await it.client.post(f"/threads/{name}/prompt", json={"text": "Hi"})
                assert answered.status_code in (400, 404)
                assert not it.threads.known(name)

        run(main)

    def test_a_request_that_is_too_large(self) -> None:
        """It is not read to its end."""

        async def main() -> None:
            async with serving([]) as it:
                body = b'"' + b"x" * LARGEST_BODY
                error = await it.refused(413, "/threads/main/prompt", content=body, headers=JSON)
                assert error["code"] == "TOO_LARGE"

        run(main)

    def test_only_names_of_this_machine_are_answered(self) -> None:
        """A foreign name that leads here (DNS rebinding) is refused, for the page and for commands."""

        async def main() -> None:
            async with serving([["Hi."]]) as it:
                for host, status in (("example.org", 400), ("127.0.0.1.example.org", 400), ("localhost:5", 200)):
                    assert (await it.client.get("/", headers={"host": host})).status_code == status
                answered = await it.client.post(
                    "/threads/main/prompt", json={"text": "x"}, headers={"host": "example.org", "origin": "http://example.org"}
                )
                assert answered.status_code == 400
                assert len(it.agent.messages) == 0

        run(main)

    def test_a_request_that_breaks_off(self, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing is asked of the agent, and it is no error of the server's."""

        async def main() -> None:
            async with serving([["Hi."]]) as it:
                _, writer = await asyncio.open_connection("127.0.0.1", it.port)
                head = "POST /threads/main/prompt HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                writer.write(f'{head}content-length: 99\r\n\r\n{{"text": '.encode())
                await writer.drain()
                writer.close()
                while it.server_connections:
                    await asyncio.sleep(0.001)
                assert (await it.client.get("/")).status_code == 200
                assert len(it.agent.messages) == 0

        run(main)
        assert [record for record in caplog.records if record.name != "agui_inspector"] == []

    def test_bytes_that_are_no_http(self) -> None:
        """The connection is closed, and the server goes on."""

        async def main() -> None:
            async with serving([["Hi."]]) as it:
                reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
                writer.write(b"\x16\x03\x01\x02\x00" * 100 + b"\r\n\r\n")
                assert b"400" in await reader.read()
                writer.close()
                assert (await it.client.get("/")).status_code == 200

        run(main)


class TestRecorded:
    def test_a_trace_is_played(self) -> None:
        """From its beginning, as soon as somebody looks; it can be played again, and not be talked to."""

        async def main() -> None:
            thread = RecordedThread("recorded", TRACE, speed=100)
            async with serving([], recorded=thread) as it, it.watching("recorded") as watching:
                viewer = await watching.until(finished)
                said = [text for role, text in viewer.texts if role == "user"]
                assert said == ["Mend the tests.", "Leave b.py alone.", "Then write documentation."]
                error = await it.refused(409, "/threads/recorded/prompt", {"text": "Hi"})
                assert error["code"] == "RECORDED"
                assert (await it.post("/threads/recorded/play", {"speed": 50})).json() == {"playing": True}
                await watching.until(lambda viewer: viewer.snapshots == 2 and bool(viewer.ends))

        run(main)

    def test_its_pictures(self) -> None:
        async def main() -> None:
            async with serving([], recorded=RecordedThread("recorded", TRACE)) as it:
                for name in ("timeline", "path"):
                    answered = await it.client.get(f"/threads/recorded/{name}.svg")
                    assert (answered.status_code, answered.headers["content-type"]) == (200, "image/svg+xml")
                for path in ("recorded/other", "main/timeline"):
                    assert (await it.client.get(f"/threads/{path}.svg")).status_code == 404

        run(main)


class TestThreads:
    def test_the_oldest_that_nobody_needs_makes_room(self) -> None:
        """One that runs or is watched stays; when all do, a new one is refused."""

        async def main() -> None:
            async with serving(BUSY) as it, it.watching("watched"):
                await it.post("/threads/running/prompt", {"text": "Hi"})
                for number in range(THREADS - 2):
                    await it.post(f"/threads/idle{number}/cancel")
                await it.post("/threads/new/cancel")
                known = [it.threads.known(name) for name in ("watched", "running", "idle0", "idle1", "new")]
                assert known == [True, True, False, True, True]
                for number in range(THREADS - 2):
                    await it.post(f"/threads/idle{number}/prompt", {"text": "Hi"})
                error = await it.refused(409, "/threads/one-more/cancel", {})
                assert error["code"] == "TOO_MANY_THREADS"

        run(main)

    def test_the_end_of_the_server_is_the_end_of_its_runs(self) -> None:
        """They are cancelled and have settled; viewers see the end of the stream."""

        async def main() -> None:
            async with serving(BUSY) as it:
                await it.post("/threads/main/prompt", {"text": "Hi"})
                agent = it.agent
            assert agent.phase == "closed"
            assert [task for task in asyncio.all_tasks() if task.get_name().startswith("kernel")] == []

        run(main)
