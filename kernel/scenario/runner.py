"""Plays a scenario on a real agent, in simulated time, and tells its lines as they come.

The first listener of the agent is the runner's own: it tells the lines of each event, and then does what the rules of
the scenario want done at that event, so that a command is given in the very place in which the event is heard.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

from kernel.agent import Agent
from kernel.dialects import Line, message_line, message_summary, native_line, projector
from kernel.errors import KernelError
from kernel.estimators import UsageOnlyEstimator
from kernel.events import Event, MessageAccepted
from kernel.scenario.format import Action, Drive, Rule, Scenario, ScenarioError, Settings, Summary, settings_of
from kernel.scenario.ports import ScriptedCompactor, ScriptedTool, scripted_hooks, scripted_listener, scripted_model
from kernel.shell import Receipt
from kernel.testing import Chooser, Gates, SimulatedLoop

Tell = Callable[[Line], object]

PROFILE_OF: Mapping[str, str] = {
    "native": "default",
    "chapter_06": "chapter_06",
    "checkpoint_09": "checkpoint_09",
    "pi": "pi",
}
"""The profile under which a dialect runs, unless the scenario names one."""


def play(
    scenario: Scenario,
    dialect: str,
    tell: Tell,
    *,
    choose: Chooser | None = None,
    journal: Callable[[str], object] | None = None,
) -> None:
    """Run *scenario*, and hand each line of it to *tell* when it comes. With *choose*, tasks take turns as it says.
    *journal* takes the lines of the agent's journal.

    Raises ScenarioError when it can't be set up, and `kernel.testing.Deadlock` when it stops where nothing can go on.
    """
    loop = SimulatedLoop(choose=choose)
    try:
        with loop.active(), _fixed_chance():
            stage = Stage(scenario, settings_of(scenario, PROFILE_OF[dialect]), dialect, tell, journal)
            try:
                loop.run_until_complete(stage.perform())
            finally:
                stage.close()  # what the end of the loop does to a run that is stuck is no part of the scenario
    finally:
        loop.shutdown()


@contextmanager
def _fixed_chance() -> Iterator[None]:
    """The jitter of a backoff is random; here it is the same each time."""
    state = random.getstate()
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(state)


@final
class Stage:
    """An agent in the world of a scenario, and the one who drives it."""

    def __init__(
        self,
        scenario: Scenario,
        settings: Settings,
        dialect: str,
        tell: Tell,
        journal: Callable[[str], object] | None = None,
    ) -> None:
        self._scenario = scenario
        self._dialect = dialect
        self._tell = tell
        self._over = False
        self._lines_of = projector(dialect)
        self._gates = Gates()
        self._receipts: list[Receipt] = []
        self._matches = [0] * len(scenario.when)
        self._model = scripted_model(scenario.model, self._gates)
        self._agent = self._made(settings, journal)
        self._agent.subscribe(self._hear)
        for script in scenario.subscribers:
            self._agent.subscribe(scripted_listener(script, self._gates))

    def _made(self, settings: Settings, journal: Callable[[str], object] | None) -> Agent:
        try:
            return Agent(
                self._model,
                tools=[ScriptedTool(script, self._gates) for script in self._scenario.tools],
                system_prompt=settings.system_prompt,
                hooks=scripted_hooks(self._scenario.hooks, self._gates),
                config=settings.config,
                compactor=ScriptedCompactor(settings.summary or Summary(), self._gates, self._act),
                estimator=UsageOnlyEstimator(),
                journal=journal,
            )
        except (TypeError, ValueError) as error:
            raise ScenarioError(f"the agent refuses this: {error}") from error

    async def perform(self) -> None:
        """Drive the agent to the end of the scenario, and tell the last line."""
        for step in self._scenario.drive:
            await self._drive(step)
        self._tell(self._final())
        self.close()

    def close(self) -> None:
        """Tell nothing more."""
        self._over = True

    async def _drive(self, step: Drive) -> None:
        name, _ = step.said
        if name != "wait_for_idle":
            self._do(step)
        if name in ("prompt", "continue", "compact", "wait_for_idle"):
            await self._agent.wait_for_idle()

    # ---- inside the first listener ----

    def _hear(self, event: Event) -> None:
        if self._over:
            return
        for line in self._lines_of(event):
            self._tell(line)
        native = native_line(event) or {}
        if isinstance(event, MessageAccepted):
            native["role"] = "user"
        for place, rule in enumerate(self._scenario.when):
            if _fits(rule, native):
                self._matches[place] += 1
                if self._matches[place] == rule.nth:
                    self._act(rule.do)

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        name, value = action.said
        try:
            if name == "cancel":
                cancelled = self._agent.cancel(value if isinstance(value, str) else None)
                if self._dialect != "pi":
                    self._tell({"did": "cancel", "value": cancelled})
            else:
                self._command(name, value)
        except (KernelError, TypeError, ValueError) as error:
            code = getattr(error, "code", type(error).__name__)
            self._tell({"refused": name} if self._dialect == "pi" else {"refused": name, "code": code})

    def _command(self, name: str, value: Any) -> None:
        match name:
            case "prompt":
                self._agent.prompt(value)
            case "continue":
                self._agent.continue_()
            case "compact":
                self._agent.compact()
            case "reset":
                self._agent.reset()
            case "open":
                self._gates.open(value)
            case "unqueue":
                self._unqueue(value)
            case "steer":
                self._receipts.append(self._agent.steer(value))
            case "follow_up":
                self._receipts.append(self._agent.follow_up(value))

    def _unqueue(self, text: str) -> None:
        """Take the first message with this text out that still waits."""
        for receipt in self._receipts:
            if receipt.status == "queued" and receipt.message.text == text:
                self._agent.unqueue(receipt)
                return

    # ---- the last line ----

    def _final(self) -> Line:
        agent, state = self._agent, self._agent.state
        steering = [message.text for message in agent.queued.steering]
        follow_up = [message.text for message in agent.queued.follow_up]
        told: Line = {
            "type": "final",
            "phase": str(agent.phase),
            "running": agent.is_running,
            "pending": list(state.pending_tool_calls),
            "queued": {"steering": steering, "follow_up": follow_up},
            "messages": [message_line(message, self._dialect) for message in agent.messages],
            "requests": [[message_summary(message) for message in request.messages] for request in self._model.requests],
            "subscriber_errors": state.subscriber_error_count,
        }
        if self._dialect == "pi":
            told["queued"] = bool(steering or follow_up)
            del told["phase"], told["subscriber_errors"]
        return told


def _fits(rule: Rule, line: Line) -> bool:
    return all(key in line and line[key] == value for key, value in rule.event.items())
