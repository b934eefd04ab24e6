"""The model and the tools of the scripted world."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Final

from kernel import (
    Finished,
    ModelError,
    ModelRequest,
    Phase,
    ReasoningDelta,
    ReentrancyError,
    StopReason,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    Usage,
)
from tests.kernel.stateful.world import Body, World

TOOLS: Final = ("plain", "ordered", "writer", "timed")

# ---- the model ----


class WorldModel:
    """A model that says what the tape says."""

    def __init__(self, world: World, context_window: int | None) -> None:
        self._world = world
        self.context_window = context_window

    def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        """A response."""
        self._world.asked(request)
        return self._play(request)

    async def _play(self, request: ModelRequest) -> AsyncIterator[Any]:
        world = self._world
        wish, world.wish = world.wish, None
        if wish in ("busy", "overflow"):
            raise ModelError(wish, retryable=wish == "busy", overflow=wish == "overflow")
        if wish == "writers":
            # The first one takes its time, the second one does not, and the third one wants what the first one holds.
            world.fates = [2, 0]
            for name in ("writer", "plain", "writer"):
                yield self._call(name)
        if wish == "say":
            yield TextDelta("ok")
        if wish in ("writers", "say"):
            yield Finished()
            return
        if wish == "call":
            for _ in range(1 + world.tape.take(4)):
                yield self._call(("writer", "plain", "writer", "timed", "ordered")[world.tape.take(5)])
        for _ in range((1, 2, 0, 3, 4)[world.tape.take(5)]):
            roll = world.tape.take(64)
            await world.sleep((0, 0, 1, 3)[roll // 16])
            for part in self._piece(roll % 16):
                yield part
        if self.context_window is not None:
            yield Usage(30 * len(request.messages), 1)
        roll = world.tape.take(30)
        stop = await self._end(roll)
        if roll == 13:
            yield "what is this?"
        elif roll != 12:
            yield Finished(stop)

    def _piece(self, kind: int) -> list[Any]:
        match kind:
            case 1 | 2 | 3:
                return [self._call(("plain", "plain", "ordered", "writer", "timed")[self._world.tape.take(5)])]
            case 4:
                name = ("plain", "writer")[self._world.tape.take(2)]
                return self._streamed(name, ('{"n": 1', ', "path": "a"}'))
            case 5:
                return [ReasoningDelta("hm"), ReasoningDelta("", "signed")]
            case 6:
                return [self._call("unknown")]
            case 7:
                return [ToolCall(self._id(), "plain", {"n": "one"})]
            case 8:
                return self._streamed("plain", ('{"n": 1',))
            case 9:
                return [Usage(200, 1)]
            case 10:
                return [TextDelta("")]
            case 11 | 12:
                self._world.act(("cancel", "steer", "follow_up", "configure")[self._world.tape.take(4)])
                return [TextDelta("acted ")]
            case 13:
                twice = self._call("plain")
                return [twice, twice]
            case _:
                return [TextDelta("ok "), TextDelta("ok ")]

    def _id(self) -> str:
        self._world.calls += 1
        return f"c{self._world.calls}"

    def _call(self, name: str) -> ToolCall:
        return ToolCall(self._id(), name, {"n": 1, "path": "a"})

    def _streamed(self, name: str, pieces: tuple[str, ...]) -> list[ToolCallDelta]:
        id = self._id()
        first = ToolCallDelta(self._world.calls, id, name)
        return [first, *(ToolCallDelta(self._world.calls, arguments=piece) for piece in pieces)]

    async def _end(self, roll: int) -> StopReason | None:
        match roll:
            case 1 | 2 | 3:
                raise ModelError("busy", retryable=True)
            case 4:
                raise ModelError("busy", retryable=True, retry_after=7.0)
            case 5:
                raise ModelError("bad key")
            case 6:
                raise ValueError("")
            case 7 | 8:
                raise ModelError("too long", overflow=True)
            case 9:
                await self._world.hang()
            case 10:
                await self._world.ignore_cancel()
            case 11:
                raise asyncio.CancelledError
            case 14:
                return StopReason.LENGTH
            case 15:
                return StopReason.ERROR
        return None


# ---- the tools ----


class WorldTool:
    """A tool that does what the tape says."""

    description = "does something"
    parameters: Final = {"type": "object"}

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.mode = "sequential" if name == "ordered" else "parallel"
        self.timeout = 2.0 if name == "timed" else None

    def resources(self, arguments: dict[str, Any]) -> Sequence[str]:
        """A writer holds its path."""
        return (arguments["path"],) if self.name == "writer" else ()

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Only n matters, which must be a number."""
        if "spoiled" in arguments:
            self._world.note(f"G14: {self.name} got the arguments that somebody else had changed")
        if not isinstance(arguments.get("n"), int):
            raise ValueError(f"n must be an int, not {arguments}")
        return arguments

    def execute(self, arguments: dict[str, Any], context: Any) -> Awaitable[Any]:
        """The body begins at once, and goes on when it is awaited."""
        world = self._world
        world.begin(f"the body of {context.call_id}", Phase.TURN, context.run_id)
        world.bodies.append(Body(context.run_id, context.call_id))
        key = arguments["path"] if self.name == "writer" else None
        arguments["spoiled"] = True
        self._check_order(context.call_id, key)
        return self._hold(key, context)

    def _check_order(self, call_id: str, key: str | None) -> None:
        """In sequential mode calls take turns, and those that share a key run one by one in source order."""
        world = self._world
        ended = {event.call_id for event in world.recorder.of("tool.ended")}  # type: ignore[attr-defined]
        busy = [call for call in world.running if call not in ended and call != call_id]
        if busy and (world.sequential or self.mode == "sequential"):
            world.note(f"{call_id} began while {busy} were running, and one at a time is right")
        if key is None:
            return
        number = int(call_id.removeprefix("c"))
        if key in world.keys:
            world.note(f"{call_id} and {world.keys[key]} hold {key} at the same time")
        if number < world.last_holders.get(key, 0):
            world.note(f"c{world.last_holders[key]} got {key} before {call_id}")
        world.keys[key], world.last_holders[key] = call_id, number

    async def _hold(self, key: str | None, context: Any) -> Any:
        world = self._world
        world.running.append(context.call_id)
        try:
            return await self._body(context)
        finally:
            world.running.remove(context.call_id)
            world.keys.pop(key or "", None)

    async def _body(self, context: Any) -> Any:
        world = self._world
        how = world.fates.pop(0) if world.fates else world.tape.take(18)
        match how:
            case 1:
                raise ValueError("the tool broke")
            case 2 | 3:
                await world.sleep(how - 1)
            case 4:
                context.update("half")
                await world.sleep(1)
                context.update("almost")
            case 5:
                await world.hang()
            case 6 | 7:
                await world.ignore_cancel()
                context.update("late")
            case 8:
                world.terminated.add(context.call_id)
                return ToolResult("the end", terminate=True)
            case 9:
                return object()
            case 10:
                world.act("cancel")
                await world.sleep(1)
            case 11 | 12:
                world.act(("steer", "follow_up", "configure", "clear_queues")[world.tape.take(4)])
            case 13 | 14:
                self._update_later(context)
            case 15:
                raise asyncio.CancelledError
            case 16:
                await self._wait_for_run()
            case 17:
                return await self._stubborn()
        return "done"

    def _update_later(self, context: Any) -> None:
        world = self._world

        def update() -> None:
            world.timers -= 1
            context.update("too late")

        world.timers += 1
        world.loop.call_later(1 + world.tape.take(2), update)

    async def _wait_for_run(self) -> None:
        try:
            await self._world.runs[-1].run
        except ReentrancyError:
            return
        self._world.note("a tool could wait for its own run")

    async def _stubborn(self) -> str:
        """Not to be cancelled once, but soon done."""
        world = self._world
        world.stubborn += 1
        world.delays += 1
        try:
            await world.hang()
        except asyncio.CancelledError:
            await world.sleep(0.5)
        finally:
            world.stubborn -= 1
        return "done all the same"
