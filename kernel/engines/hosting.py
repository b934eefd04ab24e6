"""A session in a process that serves it: its agent, what of it must be stored, and the orders that wait for their moment.

Theory. What enters the core is recorded, and handed to the engine in *batches*, each of which is stored as a whole or not
at all: inputs, the events that they caused, and what became of orders. Nothing that the world could notice (a request, a
tool, a hook) begins before the inputs that led to it are stored; that is all that a crash needs to be harmless. Inputs that
are lost have had no consequence, and an order is done only when its inputs are. Pieces of a response are recorded too, but
ask for no storing themselves: they go with what follows.

When the engine says that another process owns the session now, nothing of it counts any more: the agent is stopped here and
records nothing.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, final

from attrs import frozen

from kernel.agent import Agent
from kernel.codec import Codec, explain
from kernel.core import Core
from kernel.engines.port import SAYING, STARTING, Order, WrongVersionError
from kernel.errors import KernelError, describe
from kernel.events import Event, MessageUpdated, ToolUpdated
from kernel.idle import core_of, idle_of
from kernel.inputs import Input, ModelPart, ToolSettled, ToolUpdate
from kernel.jsonl import from_line, to_line
from kernel.resuming import Outstanding
from kernel.run import Run
from kernel.setup import Setup
from kernel.shadow import shadow
from kernel.state import CoreState
from statechart.decisions import fingerprint

FORMAT: Final = "phasekernel.session/1"
_PIECES: Final = (ModelPart, ToolUpdate)
Outcome = tuple[int, str, str | None, str | None]
"""Of an order: its number, and the fields of its `Answer`."""


@final
@frozen
class Batch:
    """What is stored together. *base* replaces what the log began with; *idle*: nothing is left to be done."""

    inputs: str
    events: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    base: str | None
    idle: bool


@final
@frozen
class Kept:
    """A session as it was stored: what its log begins with, and the inputs of each batch since."""

    base: str
    batches: tuple[str, ...]


@final
class Pending:
    """Inputs that are not stored yet, and who waits for that."""

    __slots__ = ("events", "inputs", "outcomes", "stored")

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        self.stored = asyncio.Event()


def base_of(state: CoreState, codec: Codec) -> str:
    """What a log can begin with: the state of an idle core, and what is known of its agent."""
    said = {
        "format": FORMAT,
        "table": fingerprint(),
        "config": codec.dump_config(state.config),
        "setup": codec.dump_setup(state.setup),
        "hooks": sorted(state.hooks),
        "idle": codec.dump_idle(idle_of(state)),
    }
    return to_line(said)


@final
@frozen
class Replayed:
    """A core as its log left it, and what it had asked for without an answer."""

    core: Core
    outstanding: Outstanding


def replay(kept: Kept, setup: Setup | None = None) -> Replayed:
    """The core of a session, with the model and tools of *setup*, or to be looked at only. Raises WrongVersionError."""
    try:
        codec = Codec(setup)
        base = from_line(kept.base)
        if base["format"] != FORMAT:
            raise ValueError(f"its format is {base['format']!r}, and this version reads {FORMAT!r}")
        if kept.batches and base["table"] != fingerprint():
            raise ValueError("the lifecycle has changed since its run began")
        core = core_of(
            codec.load_idle(base["idle"]), codec.load_config(base["config"]), codec.load_setup(base["setup"]),
            frozenset(base["hooks"]), shadow=shadow(),
        )  # fmt: skip
        outstanding = Outstanding()
        for batch in kept.batches:
            for line in batch.splitlines():
                input = codec.load_input(from_line(line))
                outstanding.note(input, core.receive(input))
    except Exception as error:
        raise WrongVersionError(
            f"what is stored of the session can't be gone on with by this agent: {explain(error)}. Serve it with the "
            "version that began the run, or cancel the run there first"
        ) from error
    return Replayed(core, outstanding)


@final
class Host:
    """The one that carries a session out in this process.

    *wants_storing* is called when there is something to store; the engine then takes it with `take`, and says what came of
    it with `stored` or `lose`. *tell* takes the pieces that are kept nowhere. *base_every*: after so many inputs the log
    begins anew, when the agent is idle.
    """

    def __init__(
        self,
        session: str,
        agent: Agent,
        kept: Kept | None,
        wants_storing: Callable[["Host"], None],
        tell: Callable[[str, Event], None],
        base_every: int,
    ) -> None:
        self.session = session
        self.agent = agent
        self.lost = False
        self._wants_storing = wants_storing
        self._tell = tell
        self._base_every = base_every
        self._waiting: deque[tuple[int, Order]] = deque()
        self._pending = Pending()
        self._storing: Pending | None = None
        self._since_base = 0
        self._watching: asyncio.Task[None] | None = None
        shell = agent._shell
        state = shell.core.state
        self._codec = Codec(state.setup)
        self._base: str | None = None
        self._begin(None if kept is None else replay(kept, state.setup))

    def _begin(self, replayed: Replayed | None) -> None:
        shell = self.agent._shell
        if replayed is None:
            core = shell.core
        elif replayed.core.state.run is None:  # between runs the agent's own configuration is taken up
            own = shell.core.state
            core = core_of(idle_of(replayed.core.state), own.config, own.setup, own.hooks, shadow=shadow())
        else:
            core = replayed.core
        if core.state.run is None:
            self._base = base_of(core.state, self._codec)
        core.record = self._record
        shell.restore(core, self._stored)
        state = core.state
        self.agent._items = max((item.id for item in (*state.steering, *state.follow_up)), default=0)
        if replayed is not None and state.run is not None:
            self._watch(shell.resume(*replayed.outstanding.of(core)))
        for number, held in list(state.abandoned.items()):  # whoever held it went with its process
            shell.report(ToolSettled(number, held.call_id, (), ended="cancelled"))

    # ---- what is stored ----

    def _record(self, input: Input) -> None:
        pending = self._pending
        pending.inputs.append(input)
        for effect in self.agent._shell.core.state.effects:
            if isinstance(effect, Event):
                if isinstance(effect, (MessageUpdated, ToolUpdated)):
                    self._tell(self.session, effect)
                else:
                    pending.events.append(effect)
        if not isinstance(input, _PIECES):
            self._wants_storing(self)

    def _stored(self) -> Awaitable[None] | None:
        if self.lost:
            return None
        pending = self._pending if self._pending.inputs else self._storing
        return None if pending is None else _wait(pending.stored)

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to store."""
        return bool(self._pending.inputs or self._pending.outcomes or self._base)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be done until the next order."""
        return not self.agent.is_running and not self._waiting and self._watching is None

    def take(self) -> Batch:
        """All that there is to store. To be followed by `stored` or `lose`, before anything is taken again."""
        pending, self._pending = self._pending, Pending()
        self._storing = pending
        dump = self._codec
        base, self._base = self._base, None
        self._since_base += len(pending.inputs)
        state = self.agent._shell.core.state
        if base is None and state.run is None and self._since_base >= self._base_every:
            base, self._since_base = base_of(state, dump), 0
            inputs = ""  # the base has them already
        else:
            inputs = "".join(to_line(dump.dump_input(input)) for input in pending.inputs)
        events = tuple(to_line(dump.dump_event(event)) for event in pending.events)
        return Batch(inputs, events, tuple(pending.outcomes), base, self.is_idle)

    def stored(self) -> None:
        """What was taken is stored."""
        done, self._storing = self._storing, None
        if done is not None:
            done.stored.set()

    def lose(self) -> None:
        """Another process owns the session. Stop everything here, and record nothing."""
        self.lost = True
        shell = self.agent._shell
        shell.core.record = None
        self._waiting.clear()
        if self.agent.is_running:
            self.agent.cancel("another process owns the session")
        for pending in (self._storing, self._pending):
            if pending is not None:
                pending.stored.set()

    # ---- orders ----

    def give(self, number: int, order: Order) -> None:
        """Carry out *order*, at once or when its moment comes."""
        if self.lost:
            return
        if self._must_wait(order) or (self._waiting and order.kind in STARTING):
            self._waiting.append((number, order))
        else:
            self._carry_out(number, order)

    def _must_wait(self, order: Order) -> bool:
        """What starts a run, while one is going; and what is said to one that does not look into its queues any more."""
        if order.kind in STARTING:
            return self.agent.is_running
        return order.kind in SAYING and self.agent.is_running and not self.agent._shell.core.is_running

    def _carry_out(self, number: int, order: Order) -> None:
        try:
            run = self._do(order)
            outcome: Outcome = (number, "taken", None, None)
        except (KernelError, TypeError, ValueError) as error:
            run, outcome = None, (number, "refused", getattr(error, "code", "INVALID"), describe(error))
        self._pending.outcomes.append(outcome)
        self._wants_storing(self)
        if run is not None:
            self._watch(run)

    def _do(self, order: Order) -> Run | None:
        agent, message = self.agent, order.message
        match order.kind:
            case "steer" | "follow_up" if agent.is_running:
                assert message is not None
                (agent.steer if order.kind == "steer" else agent.follow_up)(message)
            case "prompt" | "steer" | "follow_up":
                assert message is not None
                return agent.prompt(message)
            case "continue":
                return agent.continue_()
            case "compact":
                return agent.compact()
            case "cancel":
                agent.cancel(order.reason)
            case "clear_queues":
                agent.clear_queues()
            case "reset":
                agent.reset()
        return None

    def _watch(self, run: Run) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._see_end(run), name=f"kernel session {self.session}")

    async def _see_end(self, run: Run) -> None:
        await run
        self._watching = None
        while self._waiting and not self.lost and not self._must_wait(self._waiting[0][1]):
            self._carry_out(*self._waiting.popleft())
        self._wants_storing(self)


async def _wait(stored: asyncio.Event) -> None:
    await stored.wait()
