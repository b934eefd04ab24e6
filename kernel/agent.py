"""What a user holds. Each public method is a command of the lifecycle, and asks it first.

An agent owns one conversation and carries out one run at a time. `prompt`, `continue_` and `compact` start a run and
return at once; `steer` and `follow_up` add to it; `cancel` stops it; listeners hear of all that happens.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, final

import attrs

from kernel.config import KernelConfig
from kernel.core import Core
from kernel.events import RunResult
from kernel.history import adopt_history
from kernel.inputs import (
    ClearQueues,
    Close,
    Compact,
    Configure,
    Continue,
    FollowUp,
    Input,
    Prompt,
    QueuedItem,
    Reset,
    Steer,
    Subscribe,
    Unqueue,
    WaitForIdle,
)
from kernel.listeners import Subscription
from kernel.messages import CustomMessage, InputMessage, Message, UserMessage
from kernel.outputs import output_of
from kernel.ports import Compactor, Estimator, Hooks, Listener, Model, Tool
from kernel.run import Run
from kernel.setup import Setup
from kernel.shadow import shadow
from kernel.shell import Receipt, Shell
from kernel.snapshot import AbandonedWork, AgentState, Queued
from kernel.state import ListenerFailure
from kernel.sync import run_to_end
from kernel.tools import specs_of
from kernel.transcript import MessageView
from statechart import Command, Phase


class _Unchanged:
    """The default of `configure`'s arguments."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final[Any] = _Unchanged()
_NO_HOOKS: Final = Hooks()
_NO_NAMES: Final[frozenset[str]] = frozenset()
_DEFAULT: Final = KernelConfig()


@final
class Agent:
    """An agent: a model, its tools, and one conversation.

    *model* answers (`kernel.Model`). *tools* are what it may call (`@kernel.tool`). *hooks* take part in runs. *config*
    has the policies and limits. *output* is what the final answer of a run must be: a type (a class of attrs, a dataclass,
    `list[int]`) or a JSON Schema. The model is told of it, and asked again, within the limits of the run, until its answer
    fits; the value is `RunResult.output`. *messages* is a conversation to go on from: it is checked and copied; calls
    without a result get an interrupted one. *compactor* makes summaries (`kernel.compactors`), by default by the model.
    *estimator* guesses the tokens of what was not sent yet (`kernel.estimators`); by default from the length of the text.
    *journal* takes the lines of a journal of all that enters the core (`kernel.journal`), such as the `write` of a file.

    Model and tools are captured now: replacing `model.stream` or a tool's fields later changes nothing.

    Raises TypeError or ValueError naming the argument that is wrong, `MessageLimitError` for too many messages.
    """

    __slots__ = ("__weakref__", "_items", "_prefix", "_runs", "_shell")

    def __init__(
        self,
        model: Model,
        *,
        tools: Iterable[Tool] = (),
        system_prompt: str = "",
        reasoning_effort: str | None = None,
        output: Any = None,
        hooks: Hooks = _NO_HOOKS,
        config: KernelConfig = _DEFAULT,
        messages: Iterable[Message] = (),
        compactor: Compactor | None = None,
        estimator: Estimator | None = None,
        journal: Callable[[str], object] | None = None,
    ) -> None:
        if not isinstance(hooks, Hooks):
            raise TypeError(f"hooks must be a kernel.Hooks, not {hooks!r}")
        if not isinstance(config, KernelConfig):
            raise TypeError(f"config must be a kernel.KernelConfig, not {config!r}")
        empty = Setup(None, _no_stream, {})
        setup = _changed(
            empty, model=model, tools=tools, system_prompt=system_prompt, reasoning_effort=reasoning_effort, output=output
        )
        _refuse_without("compactor", compactor, "summarize")
        _refuse_without("estimator", estimator, "estimate")
        names = _NO_NAMES
        if hooks is not _NO_HOOKS:
            names = frozenset(name for name in attrs.fields_dict(Hooks) if getattr(hooks, name) is not None)
        # A journal begins with a conversation that was taken, so that a refused agent leaves no header behind.
        conversation = messages if journal is None else adopt_history(messages, config.message_limit)
        record = None if journal is None else _writer(journal, config, setup, names, conversation)
        core = Core(config, setup, names, conversation, record=record, shadow=shadow())
        self._shell = Shell(core, hooks, compactor, estimator)
        self._prefix = os.urandom(4).hex()
        self._runs = self._items = 0

    # ---- runs ----

    def prompt(self, message: str | InputMessage) -> Run:
        """Start a run with *message*. Returns at once; iterate the run for its events, await it for its result.

        Raises AgentBusyError while a run is going (use `steer` or `follow_up`), MessageLimitError when the transcript has
        no room, AgentClosedError, WrongLoopError without a running loop, TypeError or ValueError for a bad message.
        """
        self._shell.guard(Command.PROMPT, "prompt")
        checked = _input("message", message)
        return self._begin(lambda run_id: Prompt(run_id, checked), "prompt")

    def continue_(self) -> Run:
        """Start a run from what is there: queued steering first, else the tail of the transcript, else a queued follow-up.

        Raises NothingToContinueError when there is none of these, or no message at all; otherwise as `prompt`.
        Source: checkpoint 09.
        """
        return self._begin(Continue, "continue_")

    def compact(self) -> Run:
        """Start a run that replaces older messages by a summary; the originals go to `state.archive`.

        Raises NothingToCompactError when nothing but a summary is older than the kept turns; otherwise as `prompt`.
        """
        return self._begin(Compact, "compact")

    def run_sync(self, message: str | InputMessage) -> RunResult:
        """`prompt` and its result, for scripts and notebooks. Refused inside a running loop."""
        return run_to_end(lambda: self.prompt(message), self._shell)

    def cancel(self, reason: str | None = None) -> bool:
        """Stop the run. True when this call did it; False when nothing runs or the outcome is already decided.

        Everything in flight is told to stop and has `cancel_grace` seconds to do so; no model request, hook or tool body
        starts any more. Queued messages stay queued.
        """
        return self._shell.cancel(reason)

    def abort(self) -> bool:
        """`cancel()` without a reason."""
        return self.cancel()

    async def wait_for_idle(self) -> None:
        """Return when no run is going: when it has settled, awaited listeners included. Never raises a run's failure.

        Raises ReentrancyError in a tool, hook or awaited listener of the run itself.
        """
        self._shell.command(WaitForIdle(), "wait_for_idle")
        while self._shell.drive is not None:
            self._shell.refuse_reentry("wait_for_idle()")
            await self._shell.drive.run

    # ---- queues ----

    def steer(self, message: str | InputMessage) -> Receipt:
        """Queue a message for the next boundary between turns; while idle, for the next run.

        Raises QueueFullError, MessageLimitError when it could never be answered, AgentClosedError, TypeError, ValueError.
        """
        self._shell.guard(Command.STEER, "steer")
        return self._enqueue(Steer, message, "steer")

    def follow_up(self, message: str | InputMessage) -> Receipt:
        """Queue a message for when the run would otherwise end. Raises as `steer`."""
        self._shell.guard(Command.FOLLOW_UP, "follow_up")
        return self._enqueue(FollowUp, message, "follow_up")

    def unqueue(self, receipt: Receipt) -> InputMessage | None:
        """Take one message out of its queue, and return it; None when it was not there any more."""
        self._shell.guard(Command.UNQUEUE, "unqueue")
        if not isinstance(receipt, Receipt):
            raise TypeError(f"receipt must be what steer() or follow_up() returned, not {receipt!r}")
        waits = self._shell.receipts.get(receipt.id) is receipt
        self._shell.command(Unqueue(receipt.id if waits else -1), "unqueue")
        return receipt.message if waits else None

    def clear_queues(self) -> Queued:
        """Take all messages out of both queues, and return them."""
        taken = self.queued
        self._shell.command(ClearQueues(), "clear_queues")
        return taken

    # ---- listeners and configuration ----

    def subscribe(self, listener: Listener) -> Subscription:
        """Have *listener* called with each event from now on, in the order of subscription.

        It may be async; then it is awaited (or only observed: `KernelConfig.subscribers`). Returns a callable, which is
        also a context manager, that ends the subscription.
        """
        self._shell.guard(Command.SUBSCRIBE, "subscribe")
        if not callable(listener):
            raise TypeError(f"listener must be callable, not {listener!r}")
        self._shell.command(Subscribe(), "subscribe")
        return self._shell.listeners.add(listener)

    def configure(
        self,
        *,
        model: Model = UNCHANGED,
        tools: Iterable[Tool] = UNCHANGED,
        system_prompt: str = UNCHANGED,
        reasoning_effort: str | None = UNCHANGED,
        output: Any = UNCHANGED,
    ) -> None:
        """Replace what is given; while a run is going, from its next turn on."""
        self._shell.guard(Command.CONFIGURE, "configure")
        state = self._shell.core.state
        setup = _changed(
            state.staged or state.setup,
            model=model,
            tools=tools,
            system_prompt=system_prompt,
            reasoning_effort=reasoning_effort,
            output=output,
        )
        self._shell.command(Configure(setup), "configure")

    def reset(self) -> None:
        """Forget transcript, archive, queues, errors; keep configuration and listeners. Raises AgentBusyError in a run."""
        self._shell.command(Reset(), "reset")

    # ---- the end ----

    async def aclose(self) -> None:
        """Cancel the run if there is one, wait until it has settled, and refuse everything afterwards."""
        self._shell.check("aclose")
        self._shell.refuse_reentry("aclose()")
        self._shell.command(Close(), "aclose")
        while self._shell.drive is not None:
            await self._shell.drive.run

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---- snapshots ----

    @property
    def state(self) -> AgentState:
        """Everything at once, as a value that never changes."""
        return self._shell.snapshot()

    @property
    def messages(self) -> MessageView:
        """The transcript: an immutable sequence, new at each access, at a cost that does not grow."""
        return self._shell.core.state.transcript.messages

    @property
    def phase(self) -> Phase:
        """What the agent is doing."""
        return self._shell.core.state.phase

    @property
    def is_running(self) -> bool:
        """Whether a run is going, its settling included."""
        return self._shell.core.state.run is not None

    @property
    def queued(self) -> Queued:
        """The messages that wait."""
        return Queued(*self._shell.core.state.queued)

    @property
    def subscriber_errors(self) -> Sequence[ListenerFailure]:
        """The newest failures of listeners; `state.subscriber_error_count` counts all."""
        return tuple(self._shell.core.state.listener_failures)

    @property
    def abandoned(self) -> tuple[AbandonedWork, ...]:
        """What ignored its cancellation and is still going."""
        return tuple(self._shell.abandoned.values())

    def __repr__(self) -> str:
        return f"<Agent {self.phase}, {len(self.messages)} messages>"

    def _begin(self, command: Callable[[str], Prompt | Continue | Compact], name: str) -> Run:
        run = self._shell.begin(command(f"{self._prefix}-{self._runs + 1}"), name)
        self._runs += 1  # only now: what is refused changes nothing
        return run

    def _enqueue(self, command: Callable[[QueuedItem], Steer | FollowUp], message: Any, name: str) -> Receipt:
        checked = _input("message", message)
        self._items += 1
        receipt = Receipt(self._items, checked)
        self._shell.command(command(QueuedItem(receipt.id, receipt.message)), name)
        self._shell.receipts[receipt.id] = receipt
        return receipt


def _input(argument: str, message: Any) -> InputMessage:
    if isinstance(message, str):
        message = UserMessage(message)
    if isinstance(message, CustomMessage):
        return message
    if not isinstance(message, UserMessage):
        raise TypeError(f"{argument} must be a string, a UserMessage or a CustomMessage, not {message!r}")
    if not message.text.strip() and not message.images:
        raise ValueError(f"{argument} must not be empty")
    return message


def _refuse_without(argument: str, port: Any, method: str) -> None:
    if port is not None and (isinstance(port, type) or not callable(getattr(port, method, None))):
        raise TypeError(f"{argument} must be an object with a method {method}, not {port!r}")


def _writer(
    journal: Callable[[str], object], config: KernelConfig, setup: Setup, hooks: frozenset[str], messages: Iterable[Message]
) -> Callable[[Input], None]:
    if not callable(journal):
        raise TypeError(f"journal must be callable with a line, not {journal!r}")
    from kernel.journal import JournalWriter  # brings the codec, which most agents do not need

    return JournalWriter(journal, config, setup, hooks, messages).record


def _no_stream(request: Any) -> Any:
    raise NotImplementedError


def _changed(setup: Setup, *, model: Any, tools: Any, system_prompt: Any, reasoning_effort: Any, output: Any) -> Setup:
    """*setup* with what is given captured in it; nothing is changed when anything is wrong."""
    changes: dict[str, Any] = {}
    if model is not UNCHANGED:
        stream = getattr(model, "stream", None)
        if isinstance(model, type) or not callable(stream):
            raise TypeError(f"model must be an object with a stream method, not {model!r}")
        window = getattr(model, "context_window", None)
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise ValueError(f"model.context_window must be a positive int or None, not {window!r}")
        changes |= {"model": model, "stream": stream, "context_window": window}
    if tools is not UNCHANGED:
        changes["tools"] = specs_of(tools)
    if system_prompt is not UNCHANGED:
        if not isinstance(system_prompt, str):
            raise TypeError(f"system_prompt must be a string, not {system_prompt!r}")
        changes["system_prompt"] = system_prompt
    if reasoning_effort is not UNCHANGED:
        if reasoning_effort is not None and not isinstance(reasoning_effort, str):
            raise TypeError(f"reasoning_effort must be a string or None, not {reasoning_effort!r}")
        changes["reasoning_effort"] = reasoning_effort
    if output is not UNCHANGED:
        changes["output"] = output_of(output)
    return attrs.evolve(setup, **changes)
