"""The HTTP side: the page, the stream of a thread, its commands, and AG-UI. It asks the agent and decides nothing.

    GET  /                        the page
    GET  /threads/NAME/events     the thread's stream: AG-UI events as server-sent events, for any number of viewers
    POST /threads/NAME/prompt     {"text": "…"}; the same for steer and follow_up
    POST /threads/NAME/cancel     {"reason": "…"}, or {}
    POST /agui                    AG-UI's RunAgentInput; answers with the events of that run
    GET  /inspect/                the AG-UI inspector

What is refused is answered with a status and `{"error": {"code", "message"}}`: 400 and 422 for what can't be read, 409 for
what the agent refuses now, with its own words. Only names of this machine are answered, and only pages of this server may
post: a page from elsewhere in the same browser could otherwise give commands.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final, final

from kernel.adapters.extras import missing

try:
    from ag_ui.core import RunAgentInput
    from agui_inspector import Agent as InspectedAgent  # type: ignore[import-untyped]
    from agui_inspector import mount_inspector
    from pydantic import ValidationError
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise missing("web", error) from error

from kernel.adapters.agui import Projection
from kernel.adapters.agui_messages import history_of, prompt_of
from kernel.errors import EventsLostError, KernelError
from kernel.events import Event
from kernel.messages import Message
from kernel.pictures import path, timeline
from kernel.run import Run
from kernel.web.hub import KEEP_ALIVE, TooManyViewersError
from kernel.web.threads import RecordedThread, Threads

HOSTS: Final = ("127.0.0.1", "localhost")
LARGEST_BODY: Final = 20 * 2**20
"""Bytes of a request: a long conversation with some pictures."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_STATIC: Final = {
    "": ("index.html", "text/html"), "page.js": ("page.js", "text/javascript"), "page.css": ("page.css", "text/css"),
}  # fmt: skip
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
_STREAM: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


def application(threads: Threads) -> Starlette:
    """The server for these conversations. All of them are ended when it is shut down."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await threads.aclose()

    endpoints = _Endpoints(threads)
    app = Starlette(
        routes=[
            *(Route(f"/{name}", _page, methods=["GET"]) for name in _STATIC),
            Route("/threads/{thread}/events", endpoints.events, methods=["GET"]),
            Route("/threads/{thread}/{picture}.svg", endpoints.picture, methods=["GET"]),
            Route("/threads/{thread}/{command}", endpoints.command, methods=["POST"]),
            Route("/agui", endpoints.agui, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS), www_redirect=False)],
        exception_handlers={HTTPException: _refused, ClientDisconnect: _left},
        lifespan=lifespan,
    )
    mount_inspector(
        app, agents=[InspectedAgent(id="kernel", url="/agui?on_disconnect=cancel")], enabled=True, path="/inspect"
    )
    return app


async def _page(request: Request) -> Response:
    name, media_type = _STATIC[request.url.path.removeprefix("/")]
    return Response(files("kernel.web").joinpath("static", name).read_bytes(), media_type=media_type, headers=_HEADERS)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, message = error.detail if isinstance(error.detail, tuple) else ("HTTP", error.detail)
    return JSONResponse({"error": {"code": code, "message": message}}, error.status_code)


async def _left(request: Request, error: Exception) -> Response:
    """The client left in the middle of its request: nothing was asked, and nobody hears the answer."""
    return Response(status_code=400)


def _refuse(status: int, code: str, message: str) -> HTTPException:
    return HTTPException(status, (code, message))  # type: ignore[arg-type]  # our own handler reads it


@final
class _Endpoints:
    """What is asked of threads."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def _ask(self, name: str, ask: Callable[[Any], Any], history: Sequence[Message] = ()) -> Any:
        """What *ask* returns of the thread of this name. One that was begun for it is forgotten when it is refused."""
        if not _NAME.fullmatch(name):
            raise _refuse(400, "BAD_THREAD", "the name of a thread is 1 to 128 letters, digits, '.', '_' or '-'")
        known = self._threads.known(name)
        try:
            return ask(self._threads.get(name, history))
        except BaseException as error:
            if not known and self._threads.known(name):
                self._threads.drop(name)
            if isinstance(error, KernelError):
                raise _refuse(409, error.code, str(error)) from error
            if isinstance(error, (TypeError, ValueError)):
                raise _refuse(422, "BAD_INPUT", str(error)) from error
            raise

    async def events(self, request: Request) -> Response:
        """The stream of a thread."""
        thread = self._ask(request.path_params["thread"], lambda thread: thread)
        frames = thread.hub.frames(request.headers.get("last-event-id"))
        try:
            first = await anext(frames)
        except TooManyViewersError as error:
            raise _refuse(503, "TOO_MANY_VIEWERS", str(error)) from error
        if isinstance(thread, RecordedThread):
            thread.begin()
        return StreamingResponse(_after(first, frames), media_type="text/event-stream", headers=_STREAM)

    async def picture(self, request: Request) -> Response:
        """The timeline or the path of a recorded trace."""
        draw = {"timeline": timeline, "path": path}.get(request.path_params["picture"])
        name = request.path_params["thread"]
        thread = self._ask(name, lambda thread: thread) if self._threads.known(name) else None
        if draw is None or not isinstance(thread, RecordedThread):
            raise _refuse(404, "NO_PICTURE", "there are timeline.svg and path.svg of a recorded trace")
        try:
            return Response(draw(thread.trace), media_type="image/svg+xml")
        except ValueError as error:
            raise _refuse(404, "NO_PICTURE", str(error)) from error

    async def command(self, request: Request) -> Response:
        """prompt, steer, follow_up, cancel; play, for a recorded trace."""
        command = _COMMANDS.get(request.path_params["command"])
        if command is None:
            raise _refuse(404, "NO_COMMAND", f"there are the commands {', '.join(_COMMANDS)}")
        said = await _json_of(request)
        if not isinstance(said, dict):
            raise _refuse(400, "BAD_REQUEST", "a JSON object is expected")
        return JSONResponse(self._ask(request.path_params["thread"], lambda thread: command(thread, said)), 202)

    async def agui(self, request: Request) -> Response:
        """One run, for a client that speaks AG-UI."""
        body = await _body_of(request)
        try:
            asked = RunAgentInput.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the request"
            raise _refuse(422, "BAD_INPUT", f"no RunAgentInput: {where}: {first['msg']}") from error
        if not _NAME.fullmatch(asked.thread_id):
            raise _refuse(422, "BAD_THREAD", "threadId is 1 to 128 letters, digits, '.', '_' or '-'")
        run = self._run(asked)
        cancels = request.query_params.get("on_disconnect") == "cancel"
        frames = _frames_of(run, Projection(asked.thread_id, run_id=asked.run_id, echo=False), cancels)
        return StreamingResponse(frames, media_type="text/event-stream", headers=_STREAM)

    def _run(self, asked: RunAgentInput) -> Run:
        try:
            prompt = prompt_of(asked.messages)
            history = () if self._threads.known(asked.thread_id) else history_of(asked.messages[:-1])
        except ValueError as error:
            raise _refuse(422, "BAD_INPUT", str(error)) from error
        return self._ask(asked.thread_id, lambda thread: thread.agent.prompt(prompt), history)  # type: ignore[no-any-return]


def _text_of(said: dict[str, Any]) -> str:
    text = said.get("text")
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, not {text!r}")
    return text


def _cancel(thread: Any, said: dict[str, Any]) -> dict[str, Any]:
    reason = said.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"reason must be a string, not {reason!r}")
    return {"cancelled": thread.agent.cancel(reason)}


def _queue(name: str) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    def queue(thread: Any, said: dict[str, Any]) -> dict[str, Any]:
        getattr(thread.agent, name)(_text_of(said))
        return {"queued": True}

    return queue


def _play(thread: Any, said: dict[str, Any]) -> dict[str, Any]:
    speed = said.get("speed", 1.0)
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0.01 <= speed <= 1e6:
        raise ValueError(f"speed must be a number from 0.01 to 1,000,000, not {speed!r}")
    if not isinstance(thread, RecordedThread):
        raise ValueError("an agent is talked to here, and no trace is played")
    thread.play(float(speed))
    return {"playing": True}


_COMMANDS: Final[dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]]] = {
    "prompt": lambda thread, said: {"run": thread.agent.prompt(_text_of(said)).id},
    "steer": _queue("steer"),
    "follow_up": _queue("follow_up"),
    "cancel": _cancel,
    "play": _play,
}


# ---- requests and answers ----


async def _body_of(request: Request) -> bytes:
    """The body of a post from this server's own pages, or from no page."""
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}":
        raise _refuse(403, "FOREIGN_PAGE", f"a page of {origin} may not give commands here")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise _refuse(415, "NOT_JSON", "the content type must be application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise _refuse(413, "TOO_LARGE", f"a request has {LARGEST_BODY} bytes at most")
    return bytes(body)


async def _json_of(request: Request) -> Any:
    try:
        return json.loads(await _body_of(request) or b"{}")
    except (ValueError, RecursionError) as error:
        raise _refuse(400, "BAD_REQUEST", f"the request is not JSON: {error}") from error


async def _after(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for frame in rest:
        yield frame


async def _frames_of(run: Run, project: Projection, cancels: bool) -> AsyncIterator[str]:
    """The events of a run as server-sent events. A client that leaves is not the run's end, unless it *cancels*."""
    try:
        async for event in _with_silences(run):
            if event is None:
                yield ": keep-alive\n\n"
            else:
                yield _encoded(project(event, time.time()))
    except EventsLostError as error:
        yield _encoded(project.cut(str(error), time.time()))
    finally:
        if cancels and run.result is None:
            run.cancel("the client left")


def _encoded(made: Sequence[Any]) -> str:
    return "".join(f"data: {each.model_dump_json(by_alias=True)}\n\n" for each in made)


async def _with_silences(run: Run) -> AsyncIterator[Event | None]:
    """The events of *run*, and None after each silence of `KEEP_ALIVE` seconds."""
    while True:
        coming: Awaitable[Event] = asyncio.ensure_future(anext(run))
        try:
            while not (await asyncio.wait({coming}, timeout=KEEP_ALIVE))[0]:  # type: ignore[type-var]
                yield None
        except BaseException:
            coming.cancel()  # type: ignore[attr-defined]
            raise
        try:
            yield await coming
        except StopAsyncIteration:
            return
