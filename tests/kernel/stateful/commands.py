"""Every command that is given to the agent, from outside or from inside a callable, with what it must answer.

What is right is read off the compiled decision table, for the place where the agent is. Nothing is raised here: what is
wrong is noted in the world, since a caller may be a callable of the kernel's.
"""

from collections.abc import Callable
from typing import Any, Final

from attrs import define, frozen

from kernel import AgentState, CustomMessage, KernelConfig, Receipt, Run, UserMessage, errors
from statechart import Command, Leaf, Phase, Refuse
from tests.kernel.stateful.coverage import COVERAGE
from tests.kernel.stateful.listeners import WorldListener
from tests.kernel.stateful.oracle import core_of, decision_for, error_for, errors_while_idle
from tests.kernel.stateful.ports import TOOLS, WorldTool
from tests.kernel.stateful.world import SITUATIONS, RunStory, World

BAD: Final = (
    "prompt", "prompt 5", "steer", "follow_up 5", "subscribe", "unqueue", "cancel", "tools", "model", "system_prompt",
)  # fmt: skip


@define(eq=False)
class Item:
    """A queued message: after how many resets and runs it was queued, where the agent was, and whether it was taken out."""

    receipt: Receipt
    queue: str
    resets: int
    runs: int
    leaf: Leaf
    taken: bool = False


@frozen
class Kept:
    """A snapshot, and what it looked like when it was taken."""

    state: AgentState
    copy: str


class Commands:
    """Gives commands, checks the answers, and remembers what was accepted."""

    def __init__(self, world: World, config: KernelConfig) -> None:
        self.world = world
        self.config = config
        world.sequential = config.tool_execution == "sequential"
        self.items: list[Item] = []
        self.listeners: list[WorldListener] = []
        self.kept: list[Kept] = []
        self.resets = 0
        self.takings = 0
        self.closing = False
        self.forgotten = 0
        self.history = 0
        self.prompts = ["p0"]
        self.said = 0
        self.tasks: list[Any] = []
        world.act = self.act

    # ---- the oracle ----

    def give(self, command: Command, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Give *command* by *call*: whether it was accepted, and what it returned."""
        agent, core = self.world.agent, core_of(self.world.agent)
        self._notice_death()
        leaf, decided = core.leaf, decision_for(core, command)
        while_idle = errors_while_idle(agent, self.config, command) if leaf is Leaf.IDLE else None
        before = self._picture()
        if isinstance(decided, Refuse):
            COVERAGE.note(core, None, command)
        answer = error = None
        try:
            answer = call()
        except Exception as raised:
            error = raised
        kind = type(error) if error is not None else None
        if kind is not error_for(decided) or (while_idle is not None and kind not in while_idle):
            self.world.note(f"{command} in {leaf} raised {error!r}; right is {decided}, or one of {while_idle}")
        elif error is None and core.leaf is not decided.target:
            self.world.note(f"{command} went from {leaf} to {core.leaf}; right is {decided}")
        elif error is not None:
            SITUATIONS[f"refused: {type(error).__name__}"] += 1
            if f"in phase {agent.phase}" not in str(error):
                self.world.note(f"the error of {command} does not name the phase: {error}")
            if self._picture() != before:
                self.world.note(f"{command} was refused in {leaf} and changed something")
        return error is None, answer

    def _notice_death(self) -> None:
        """A run whose task is gone is found dead by the next command, before that is decided."""
        if self.world.runs and self.world.runs[-1].killed:
            self.world.agent._shell.check("a command")

    def _picture(self) -> Any:
        agent = self.world.agent
        statuses = [item.receipt.status for item in self.items]
        return agent.state, len(self.world.recorder.events), statuses, core_of(agent).barrier

    def act(self, name: str) -> None:
        """A command by its name, from inside a callable."""
        if name == "subscribe":
            self.subscribe("quiet", "run.started", "cancel", 0)
        elif name in ("unqueue", "unsubscribe", "configure"):
            getattr(self, name)(0)
        elif name in ("await run", "wait_for_idle"):
            self.world.loop.create_task(self._wait_for_idle(), name="a test's wait")
        elif name == "aclose":
            self.aclose()
        else:
            getattr(self, name)()

    # ---- runs ----

    def _message(self, kind: int) -> Any:
        self.said += 1
        text = f"m{self.said}"
        return (text, UserMessage(text), CustomMessage(text))[kind]

    def prompt(self, kind: int = 0) -> None:
        """Start a run."""
        message = self._message(kind)
        self._begin(Command.PROMPT, lambda: self.world.agent.prompt(message), text=f"m{self.said}")

    def continue_(self) -> None:
        """Go on."""
        self._begin(Command.CONTINUE, self.world.agent.continue_)

    def compact(self) -> None:
        """Compact by hand."""
        self._begin(Command.COMPACT, self.world.agent.compact)

    def _begin(self, command: Command, call: Callable[[], Run], text: str | None = None) -> None:
        accepted, run = self.give(command, call)
        if accepted:
            world, steering = self.world, len(self.world.agent.queued.steering)
            story = RunStory(run, world.loop.time(), str(command), text, len(self.prompts) - 1, steering, self.takings)
            world.runs.append(story)
            story.waiters = [world.loop.create_task(self._wait(story), name=f"a test's wait {n}") for n in range(2)]
            if (mode := world.tape.take(4)) != 1:
                story.reader = world.loop.create_task(self._read(story, mode), name="a test's reader")

    async def _wait(self, story: RunStory) -> Any:
        result = await story.run
        if story.ended is None:
            story.ended = self.world.loop.time()
            if story.delays == self.world.delays and story.ended > (story.cancelled or 0.0) and not story.killed:
                self.world.note(f"cancelled at {story.cancelled}, ended at {story.ended}, and nothing was in the way")
            hurried = result.status in ("cancelled", "failed") or story.told_to_settle is not None
            deadline = self.config.run_deadline
            hurried = hurried or (deadline is not None and story.ended >= story.began + deadline)
            if self.config.subscribers == "await" and self.world.listening[story.run.id] and not hurried:
                self.world.note(f"run {story.run.id} has settled, and a listener of its events has not")
        return result

    async def _read(self, story: RunStory, mode: int) -> None:
        try:
            async for event in story.run:
                story.read.append(event)
                if mode == 3:
                    await self.world.sleep(1)
        except errors.EventsLostError as error:
            story.lost = error
            SITUATIONS["a reader lost events"] += 1

    def cancel(self, reason: str | None = None, by_run: bool = False) -> None:
        """Stop the run."""
        world, core = self.world, core_of(self.world.agent)
        self._notice_death()
        leaf, story = core.leaf, world.runs[-1] if world.runs else None
        call = story.run.cancel if by_run and story is not None else world.agent.cancel
        accepted, answer = self.give(Command.CANCEL, lambda: call(reason))
        right = accepted and leaf.startswith("running.")
        if answer is not right:
            world.note(f"cancel in {leaf} answered {answer}")
        self._told_to_stop(leaf, reason)

    def _told_to_stop(self, leaf: Leaf, reason: str | None) -> None:
        story = self.world.runs[-1] if self.world.runs else None
        if story is None:
            return
        now = self.world.loop.time()
        if leaf.startswith("running."):
            story.cancelled, story.reason = now, reason
            busy = self.world.deaf + self.world.stubborn + self.world.listening.total()
            story.delays = None if busy else self.world.delays
            SITUATIONS[f"cancel in {leaf.rpartition('.')[2]}"] += 1
        if leaf is Leaf.SETTLING and story.told_to_settle is None:
            story.told_to_settle = now
            SITUATIONS["cancel in settling"] += 1

    def aclose(self) -> None:
        """Close in a task of its own."""
        self.closing = True

        async def close() -> None:
            # The command is the first step of the coroutine: nothing can come in between.
            self._notice_death()
            self._told_to_stop(core_of(self.world.agent).leaf, "closed")
            await self.world.agent.aclose()
            if self.world.agent.phase is not Phase.CLOSED:
                self.world.note(f"aclose() returned in phase {self.world.agent.phase}")

        self.tasks.append(self.world.loop.create_task(close(), name="a test's close"))

    def wait_for_idle(self) -> None:
        """Wait in a task of its own."""
        self.tasks.append(self.world.loop.create_task(self._wait_for_idle(), name="a test's wait"))

    async def _wait_for_idle(self) -> None:
        waited_for = len(self.world.runs)
        await self.world.agent.wait_for_idle()
        if any(story.run.result is None for story in self.world.runs[:waited_for]):
            self.world.note("wait_for_idle() returned before the run had settled")

    # ---- queues ----

    def steer(self, kind: int = 0) -> None:
        """Queue steering."""
        message = self._message(kind)
        self._keep("steering", *self.give(Command.STEER, lambda: self.world.agent.steer(message)))

    def follow_up(self, kind: int = 0) -> None:
        """Queue a follow-up."""
        message = self._message(kind)
        self._keep("follow_up", *self.give(Command.FOLLOW_UP, lambda: self.world.agent.follow_up(message)))

    def _keep(self, queue: str, accepted: bool, receipt: Receipt) -> None:
        if accepted:
            leaf = core_of(self.world.agent).leaf
            self.items.append(Item(receipt, queue, self.resets, len(self.world.runs), leaf))
            if receipt.status != "queued":
                self.world.note(f"a new receipt is {receipt.status}")

    def unqueue(self, which: int) -> None:
        """Take one of all messages that were ever queued out again."""
        if not self.items:
            return
        item = self.items[-1 - which % len(self.items)]
        receipt, status = item.receipt, item.receipt.status
        accepted, answer = self.give(Command.UNQUEUE, lambda: self.world.agent.unqueue(receipt))
        right = (receipt.message, "dropped") if status == "queued" else (None, status)
        if accepted and status == "queued":
            self._taken([item])
        if accepted and (answer, receipt.status) != right:
            self.world.note(f"unqueue of what was {status} answered {answer}, and it is {receipt.status}")

    def clear_queues(self) -> None:
        """Take all out."""
        waiting, items = self.world.agent.queued, self.queued_items()
        accepted, answer = self.give(Command.CLEAR_QUEUES, self.world.agent.clear_queues)
        if accepted:
            self._taken(items)
            if answer != waiting or self.queued_items():
                self.world.note(f"clear_queues returned {answer} of {waiting}")

    def _taken(self, items: list[Item]) -> None:
        self.takings += 1
        for item in items:
            item.taken = True

    def queued_items(self) -> list[Item]:
        """Those whose receipts say that they wait."""
        return [item for item in self.items if item.receipt.status == "queued"]

    # ---- the rest ----

    def reset(self) -> None:
        """Forget the conversation."""
        items = self.queued_items()
        accepted, _ = self.give(Command.RESET, self.world.agent.reset)
        if accepted:
            self._taken(items)
            self.resets += 1
            self.forgotten, self.history = len(self.world.recorder.events), 0
            state = self.world.agent.state
            if state.messages or state.archive or self.queued_items() or state.subscriber_error_count:
                self.world.note("reset() left something")

    def configure(self, what: int) -> None:
        """Change the system prompt, and sometimes the tools too."""
        agent = self.world.agent
        text = f"p{len(self.prompts)}"
        tools = [WorldTool(self.world, name) for name in (TOOLS if what == 0 else TOOLS[:1])]
        accepted, _ = self.give(Command.CONFIGURE, lambda: agent.configure(system_prompt=text, tools=tools))
        if accepted:
            self.prompts.append(text)

    def subscribe(self, kind: str, at: str, deed: str, times: int) -> None:
        """A new listener."""
        listener = WorldListener(self.world, kind, at, deed, times)
        accepted, subscription = self.give(Command.SUBSCRIBE, lambda: self.world.agent.subscribe(listener))
        if accepted:
            listener.subscription = subscription
            self.listeners.append(listener)

    def unsubscribe(self, which: int) -> None:
        """One of all listeners that ever were; one that listens no more is a no-op."""
        if self.listeners:
            self.listeners[which % len(self.listeners)].unsubscribe()

    def snapshot(self) -> None:
        """Keep the state, and how it looks."""
        state = self.world.agent.state
        self.kept.append(Kept(state, repr(state)))

    def bad_input(self, which: str) -> None:
        """Something that is refused for what it is, or before that for where the agent is, and changes nothing."""
        agent: Any = self.world.agent
        twice = [WorldTool(self.world, "plain")] * 2
        call: Callable[[], Any] = {
            "prompt": lambda: agent.prompt("  "),
            "prompt 5": lambda: agent.prompt(5),
            "steer": lambda: agent.steer(""),
            "follow_up 5": lambda: agent.follow_up(5),
            "subscribe": lambda: agent.subscribe("me"),
            "unqueue": lambda: agent.unqueue(1),
            "cancel": lambda: agent.cancel(5),
            "tools": lambda: agent.configure(tools=twice, system_prompt="never"),
            "model": lambda: agent.configure(model=object()),
            "system_prompt": lambda: agent.configure(system_prompt=None),
        }[which]
        self._notice_death()
        before = self._picture()
        try:
            call()
        except (TypeError, ValueError, errors.AgentBusyError, errors.AgentClosedError):
            if self._picture() != before:
                self.world.note(f"a bad {which} changed something")
        else:
            self.world.note(f"a bad {which} was taken")
