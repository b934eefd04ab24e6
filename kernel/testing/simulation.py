"""One schedule: a fresh agent in a simulated loop, a scenario, faults and cancels where the schedule wants them, and then
everything that must hold whatever was done.

Theory. What is claimed afterwards is safety and liveness. Safety: the trace keeps the guarantees, what listeners see is in
the transcript already, snapshots stay as they are, nothing starts after a cancel, each queued message is in one place.
Liveness: once nothing goes wrong any more everything comes to rest, in a bounded time after a cancel, with nothing left
over, and the agent works again. Where only something injected hangs, the simulated user gives up and cancels, as a real one
would; where anything else hangs, that is a deadlock and a finding.

Weak points. What `scenario` gives the agent with `configure` has no fault points. A compactor of one's own has none.
"""

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast, final
from weakref import WeakKeyDictionary

import attrs

from kernel.agent import Agent
from kernel.effects import ModelRequest
from kernel.errors import AgentClosedError, KernelBug, KernelError, MessageLimitError, describe
from kernel.events import Event, MessageAccepted, MessageEnded, RunFinished
from kernel.messages import Finished, Part, TextDelta
from kernel.ports import Model
from kernel.setup import ToolSpec
from kernel.shell import Receipt
from kernel.testing.fault_points import FaultyListener, FaultyModel, spoil_hooks, spoil_tool
from kernel.testing.faults import Aftermath, Fault, FaultKind
from kernel.testing.inside import Inside, is_of_the_kernel
from kernel.testing.loop import Deadlock, SimulatedLoop, SimulationError
from kernel.testing.plans import Schedule, Source
from kernel.testing.requests import faults_of
from kernel.testing.trial import Outcome, Problem, Trial
from kernel.tools import FunctionTool
from kernel.trace import check as breaches_of
from statechart import Phase

PATIENCE: Final = 3600.0
"""Seconds until the simulated user gives up on something that was made to hang. Longer than all timeouts by default."""

_EPSILON: Final = 1e-6
_QUIET: Final = frozenset({Phase.CANCELLING, Phase.SETTLING, Phase.IDLE, Phase.CLOSED})


@final
class Simulation:
    """One run of a trial."""

    def __init__(self, trial: Trial, source: Source) -> None:
        self.trial = trial
        self.schedule = Schedule(source, trial.kinds)
        self.loop = SimulatedLoop(choose=self.schedule, max_steps=trial.max_steps)
        self.loop.set_task_factory(self._make_task)
        self.events: list[Event] = []
        self.problems: list[Problem] = []
        self.aftermath = Aftermath()
        self.agent: Agent = None  # type: ignore[assignment]  # set before anything else happens
        self.inside: Inside = None  # type: ignore[assignment]  # likewise
        self._scenario: asyncio.Task[Any] = None  # type: ignore[assignment]  # likewise
        self._receipts: list[Receipt] = []
        self._views: list[tuple[Any, tuple[Any, ...]]] = []
        self._step = -1
        self._told: float | None = None
        self._gives_up: float | None = None
        self._cut = False
        self._made = self._waits = 0
        self._ages: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()

    def run(self) -> Outcome:
        """Simulate."""
        lots = random.getstate()
        random.seed(0)
        try:
            with self.loop.active():
                self._set_up()
                self._play()
        except SimulationError as error:
            self.note("liveness", describe(error), error)
        finally:
            steps, seconds = self.loop.steps, self.loop.time()
            self.loop.shutdown()
            random.setstate(lots)
        return Outcome(schedule=self.schedule, problems=self.problems, events=self.events, steps=steps, seconds=seconds)

    def note(self, claim: str, text: str, cause: BaseException | None = None) -> None:
        """Something is wrong."""
        self.problems.append(Problem(claim, text, cause))

    # ---- before ----

    def _set_up(self) -> None:
        agent = self.agent = self.trial.make_agent()
        if not isinstance(agent, Agent) or agent.is_running:
            raise TypeError(f"make_agent must return a new kernel.Agent that is not running yet, not {agent!r}")
        self.inside = Inside(agent)
        state = agent.state
        places = {kind.place for kind in self.trial.kinds}
        agent.configure(model=self._model(state.model), tools=[self._tool(spec) for spec in state.tools])
        decide = partial(self._decide, "hook")
        self.inside.replace_hooks(lambda hooks: spoil_hooks(hooks, decide, self.aftermath))
        agent.subscribe(self._hear)
        if "listener" in places:
            agent.subscribe(FaultyListener(agent, lambda: self.schedule.fault("listener", "listener"), self.aftermath))

    def _model(self, model: Model) -> FaultyModel:
        return FaultyModel(model, lambda: self._decide("stream", "model"), self.aftermath, self._asked)

    def _asked(self, request: ModelRequest) -> None:
        for fault in faults_of(request.messages):
            self.note("request", f"{request.id.partition(':')[2]}: {fault}")

    def _tool(self, spec: ToolSpec) -> ToolSpec:
        owner = getattr(spec.execute, "__self__", None)
        if isinstance(owner, FunctionTool) and not inspect.iscoroutinefunction(owner.function):
            spec = attrs.evolve(spec, execute=self._inline(owner).execute)
        return spoil_tool(spec, lambda: self._decide("tool", f"tool {spec.name}"), self.aftermath)

    def _inline(self, tool: FunctionTool[..., Any]) -> FunctionTool[..., Any]:
        if self.trial.sync_tools == "refuse":
            raise TypeError(
                f"the tool {tool.name!r} is an ordinary function, which an agent calls in a thread, and threads have no "
                "place in a simulation: make it async, or say explore(…, sync_tools='inline'), which calls it on the loop, "
                "in one step, so that all that goes on around it is simulated but no race between two threads is found"
            )

        async def function(*args: Any, **kwargs: Any) -> Any:
            value = tool.function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        return attrs.evolve(tool, function=function)

    def _decide(self, kind: str, what: str) -> Fault | None:
        if self.agent.phase in _QUIET:
            self.note("G7", f"{what} was called in phase {self.agent.phase}")
        return self.schedule.fault(kind, what)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        entered = isinstance(event, MessageAccepted) or (isinstance(event, MessageEnded) and event.kept)
        if entered and not any(message is event.message for message in self.agent.messages):  # type: ignore[attr-defined]
            self.note("G12", f"{event.type} was told before the message was in the transcript")
        if event.type == "turn.ended":
            view = self.agent.messages
            self._views.append((view, tuple(view)))

    # ---- the play ----

    def _play(self) -> None:
        self._scenario = self._task(self.trial.scenario(self.agent), "scenario")
        self._pump(self._scenario.done)
        result = self._result(self._scenario)
        self._pump(self._task(self._wait_for_idle(), "wait_for_idle").done)
        self.schedule.mute()
        self._rest()
        self._claim()
        self._ask_check(result)
        if self.trial.again and self.agent.phase is Phase.IDLE:
            self._prompt_again()
        for found in breaches_of(self.events):
            self.note(found.guarantee, str(found))
        self._listen_to_the_loop()

    def _listen_to_the_loop(self) -> None:
        for task in self._by_age():
            # It is reported when the task is collected, and no one knows when that will be.
            if task.done() and not task.cancelled() and getattr(task, "_log_traceback", False):
                error = task.exception()
                self.note("loop", f"nobody asked for the exception of the task {task.get_name()!r}: {error!r}", error)
        for context in self.loop.exceptions:
            error = context.get("exception")
            self.note("loop", f"{context['message']}: {error!r}", error)

    def _make_task(self, loop: asyncio.AbstractEventLoop, body: Any, **options: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(body, loop=loop, **options)
        self._ages[task] = self._made = self._made + 1
        return task

    def _by_age(self) -> list["asyncio.Task[Any]"]:
        """The tasks that are still there: a set of them has no order, and names are not unique."""
        return sorted(self._ages, key=self._ages.__getitem__)

    def _task(self, body: Awaitable[Any], name: str) -> "asyncio.Task[Any]":
        if not inspect.isawaitable(body):
            raise TypeError(f"the {name} must be an async function; it returned {body!r}")
        # One that is cancelled before its first step never gets to what it would have awaited.
        return self.loop.create_task(body if inspect.iscoroutine(body) else _awaited(body), name=name)

    def _result(self, scenario: "asyncio.Task[Any]") -> Any:
        if scenario.cancelled():
            if not self._cut:
                self.note("scenario", "the scenario was cancelled, and not by the simulator")
            return None
        error = scenario.exception()
        if error is None:
            return scenario.result()
        if not (isinstance(error, KernelError) and self.schedule.injected):
            self.note("scenario", describe_error(error), error)
        return None

    async def _wait_for_idle(self) -> None:
        with suppress(AgentClosedError):
            await self.agent.wait_for_idle()

    def _pump(self, done: Callable[[], bool]) -> None:
        loop = self.loop
        while not done():
            if loop.steps != self._step:
                self._step = loop.steps
                self._act(f"step {self._step}", self._step)
            if not (loop.step() or self._wait()):
                raise Deadlock(f"nothing can happen any more at {loop.time():g} s; still waiting: {loop.stuck()}")
            self._look()

    def _wait(self) -> bool:
        """Nothing is ready: time passes, or somebody from outside does something. Whether anything did."""
        self._waits += 1
        self._act(f"wait {self._waits}", None)
        return self.loop.step() or self.loop.advance() or self._give_up()

    def _act(self, place: str, step: int | None) -> None:
        fault = self.schedule.act(place, step)
        if fault is not None:
            where = f"in phase {self.agent.phase} at {self.loop.time():g} s"
            if self._did(fault):
                self.schedule.acted(place, fault, where)

    def _did(self, fault: Fault) -> bool:
        """Whether there was anything to do it to."""
        match fault.kind:
            case FaultKind.CANCEL_RUN:
                return self.agent.cancel("cancelled by the simulator")
            case FaultKind.CANCEL_AWAITING_TASK:
                cut = _has_begun(self._scenario) and self._scenario.cancel()
                self._cut = self._cut or cut
                return cut
            case FaultKind.CANCEL_KERNEL_TASK:
                tasks = [task for task in self._by_age() if is_of_the_kernel(task) and not task.done()]
                return bool(tasks) and tasks[int(fault.amount) % len(tasks)].cancel()
        queue = self.agent.steer if fault.kind is FaultKind.STEER else self.agent.follow_up
        try:
            self._receipts.append(queue("queued by the simulator"))
        except KernelError:
            return False
        return True

    def _give_up(self) -> bool:
        """Nothing happens any more: cancel, if it is an injected fault that hangs. Whether that moved anything."""
        if not self.aftermath.hanging:
            return False
        self.agent.cancel("the simulated user gave up")
        return self.loop.step() or self.loop.advance()

    def _look(self) -> None:
        """After each step: is a cancel that was taken over in its time (G8), and is somebody still patient?"""
        now = self.loop.time()
        if self._told is not None:
            if not self.agent.is_running:
                self._told = None
            elif now > self._told + self.inside.grace + _EPSILON:
                self.note("G8", f"told to stop at {self._told:g} s, and at {now:g} s the run still goes on")
                self._told = float("inf")
        elif self.agent.phase is Phase.CANCELLING:
            self._told = now
        if not self.aftermath.hanging:
            self._gives_up = None
        elif self._gives_up is None:
            self._gives_up = now + PATIENCE
        elif now > self._gives_up:
            self._gives_up = now + PATIENCE
            self.agent.cancel("the simulated user gave up")

    # ---- after ----

    def _rest(self) -> None:
        """G13, twice: when the agent idles, and when those have ended who did not listen."""
        for _ in range(2):
            self.loop.drain()
            for left in self.inside.left(self.loop):
                self.note("G13", left)
            if self.problems or not self.aftermath.busy:
                return
            self.loop.drain(lambda: not self.aftermath.busy, time=True)

    def _claim(self) -> None:
        if self.agent.is_running:
            self.note("G13", f"wait_for_idle() returned in phase {self.agent.phase}")
        if any(tuple(view) != then for view, then in self._views):
            self.note("G14", "a view of the transcript has changed since it was taken")
        for text in self._misplaced():
            self.note("G6", text)
        failures = [event.result.failure for event in self.events if isinstance(event, RunFinished)]
        for failure in failures:
            if failure is not None and failure.code == KernelBug.code:
                self.note("kernel", failure.message, failure.cause)

    def _misplaced(self) -> Iterator[str]:
        """Each message that was queued from outside waits, has entered once, or was dropped, as its receipt says."""
        queued = self.agent.queued
        waiting = [id(message) for message in (*queued.steering, *queued.follow_up)]
        entered = [id(event.message) for event in self.events if isinstance(event, MessageAccepted)]
        for receipt in self._receipts:
            key, status = id(receipt.message), receipt.status
            right = {"queued": (1, 0), "delivered": (0, 1), "dropped": (0, 0)}[status]
            if (waiting.count(key), entered.count(key)) != right:
                yield f"a message that is {status} waits {waiting.count(key)} times and entered {entered.count(key)} times"

    def _ask_check(self, result: Any) -> None:
        if self.trial.check is None:
            return
        try:
            answer = self.trial.check(self.agent, tuple(self.events), result)
            if inspect.isawaitable(answer):
                task = self._task(answer, "check")
                self._pump(task.done)
                task.result()
        except (KeyboardInterrupt, SystemExit, SimulationError):
            raise
        except BaseException as error:  # what test libraries fail with is not always an Exception
            self.note("check", describe_error(error), error)

    def _prompt_again(self) -> None:
        """Nothing goes wrong any more: the next prompt works."""
        self.agent.configure(model=self._model(_Obliging()))
        try:
            run = self.agent.prompt("And now?")
        except MessageLimitError:
            return
        self._pump(lambda: run.result is not None and not self.agent.is_running)
        self._rest()
        result = run.result
        assert result is not None
        code = result.failure.code if result.failure is not None else None
        if result.status == "cancelled" or code in ("MODEL_FAILED", KernelBug.code):
            self.note("next prompt", f"it ended as {result.status}: {result.failure or result.reason}")


@final
class _Obliging:
    """A model that always says ok."""

    context_window = None

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Part]:
        yield TextDelta("ok")
        yield Finished()


def _has_begun(task: "asyncio.Task[Any]") -> bool:
    """Whether it has come to an await: before that there is nothing that a cancel could interrupt."""
    return inspect.getcoroutinestate(cast(Any, task.get_coro())) != inspect.CORO_CREATED


async def _awaited(body: Awaitable[Any]) -> Any:
    return await body


def describe_error(error: BaseException) -> str:
    """Its kind and its text."""
    return f"{type(error).__name__}: {describe(error)}"
