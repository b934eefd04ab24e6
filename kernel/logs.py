"""What happens, for `logging`: under the names `kernel.*`, silent until an application asks for it.

    logging.getLogger("kernel").setLevel(logging.INFO)      # with a handler of the application's, of course

* INFO: a run began, and how it ended (`kernel.run`); compactions (`kernel.compaction`).
* WARNING: a run failed (`kernel.run`); a request is tried again (`kernel.retry`); a hook or a listener failed
  (`kernel.hooks`, `kernel.listeners`); something ignored its cancellation and is still going (`kernel.abandoned`), or was
  said too late (`kernel.tools`).
* DEBUG: phases (`kernel.phase`), messages (`kernel.messages`), tool calls (`kernel.tools`), and the text of errors.

Nothing that a user, a model or a tool said is logged above DEBUG, errors included: a provider's error may repeat a prompt.
"""

import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

from kernel import events
from kernel.frozen import thaw
from kernel.messages import AssistantMessage

_KERNEL: Final = logging.getLogger("kernel")
_KERNEL.addHandler(logging.NullHandler())
_RUN, _RETRY, _COMPACTION, _HOOKS, _LISTENERS, _ABANDONED, _PHASE, _MESSAGES, _TOOLS = (
    logging.getLogger(f"kernel.{name}")
    for name in ("run", "retry", "compaction", "hooks", "listeners", "abandoned", "phase", "messages", "tools")
)


def log(event: events.Event) -> None:
    """Write what there is to write of *event*. A handler that raises costs the run nothing, and silence next to nothing."""
    written = _WRITERS.get(type(event))
    if written is not None and written[0].isEnabledFor(written[1]):
        _safely(written[2], event)


def log_abandoned(run_id: str, kind: str, name: str, call_id: str | None) -> None:
    """Something ignored its cancellation, and nobody waits for it any more."""
    said = f"{kind} {name}" if call_id is None else f"{kind} {name} (call {call_id})"
    _safely(lambda _: _ABANDONED.warning("run %s: %s ignored its cancellation and is still going", run_id, said), None)


def _safely(write: Callable[[Any], None], event: Any) -> None:
    try:
        write(event)
    except Exception:
        # An application's own handler or filter. `logging` would tell of it in the same way, under the same condition.
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()


def _started(event: events.RunStarted) -> None:
    _RUN.info("run %s began", event.run_id)


def _finished(event: events.RunFinished) -> None:
    result = event.result
    failed = result.failure is not None
    status = f"{result.status} ({result.failure.code})" if result.failure is not None else result.status
    _RUN.log(
        logging.WARNING if failed else logging.INFO,
        "run %s ended: %s, %d turns, %d requests, %d tool calls, %d tokens in, %d out",
        event.run_id, status, result.turns, result.requests, result.tool_calls, result.usage.input, result.usage.output,
    )  # fmt: skip
    if result.failure is not None:
        _RUN.debug("run %s failed: %s", event.run_id, result.failure.message, exc_info=result.failure.cause)


def _phase(event: events.PhaseChanged) -> None:
    _PHASE.debug("run %s: %s -> %s", event.run_id, event.source, event.target)


def _accepted(event: events.MessageAccepted) -> None:
    _MESSAGES.debug("run %s: %s: %s", event.run_id, event.origin, event.message.text)


def _message(event: events.MessageEnded) -> None:
    message = event.message
    if isinstance(message, AssistantMessage):
        _MESSAGES.debug("run %s: assistant (%s): %s", event.run_id, message.stop, message.text)


def _tool_started(event: events.ToolStarted) -> None:
    _TOOLS.debug("run %s: call %s of %s: %s", event.run_id, event.call_id, event.name, thaw(event.arguments))


def _tool_ended(event: events.ToolEnded) -> None:
    how = "not executed" if not event.executed else "failed" if event.is_error else "ended"
    _TOOLS.debug("run %s: call %s of %s %s: %s", event.run_id, event.call_id, event.name, how, event.text)


def _retry(event: events.RetryScheduled) -> None:
    _RETRY.warning("run %s: request failed (attempt %d), next in %.1f s", event.run_id, event.attempt, event.delay)
    _RETRY.debug("run %s: the request failed with: %s", event.run_id, event.error)


def _compaction(event: events.CompactionStarted) -> None:
    _COMPACTION.info("run %s: compaction began (%s)", event.run_id, event.reason)


def _compacted(event: events.CompactionEnded) -> None:
    _COMPACTION.info("run %s: compaction ended: %s", event.run_id, event.outcome)


def _hook(event: events.HookFailed) -> None:
    _HOOKS.warning("run %s: the hook %s failed", event.run_id, event.hook)
    _HOOKS.debug("run %s: the hook %s failed: %s", event.run_id, event.hook, event.error)


def _listener(event: events.SubscriberFailed) -> None:
    _LISTENERS.warning("run %s: a listener failed at event %d (%s)", event.run_id, event.event, event.event_type)
    _LISTENERS.debug("run %s: a listener failed: %s", event.run_id, event.error)


def _late(event: events.UpdateDiscarded) -> None:
    _TOOLS.warning("run %s: call %s said something too late, and it was discarded", event.run_id, event.call_id)


_WRITERS: Final[dict[type[events.Event], tuple[logging.Logger, int, Callable[[Any], None]]]] = {
    events.RunStarted: (_RUN, logging.INFO, _started),
    events.RunFinished: (_RUN, logging.WARNING, _finished),
    events.PhaseChanged: (_PHASE, logging.DEBUG, _phase),
    events.MessageAccepted: (_MESSAGES, logging.DEBUG, _accepted),
    events.MessageEnded: (_MESSAGES, logging.DEBUG, _message),
    events.ToolStarted: (_TOOLS, logging.DEBUG, _tool_started),
    events.ToolEnded: (_TOOLS, logging.DEBUG, _tool_ended),
    events.RetryScheduled: (_RETRY, logging.WARNING, _retry),
    events.CompactionStarted: (_COMPACTION, logging.INFO, _compaction),
    events.CompactionEnded: (_COMPACTION, logging.INFO, _compacted),
    events.HookFailed: (_HOOKS, logging.WARNING, _hook),
    events.SubscriberFailed: (_LISTENERS, logging.WARNING, _listener),
    events.UpdateDiscarded: (_TOOLS, logging.WARNING, _late),
}
"""Where each event is written, at which level at most, and by what. Where not even that is on, it is not looked at."""
