"""Random scripts: what a model says, what tools and hooks do, and what listeners command at which event.

A script is data. It says nothing of how its run is used, so that one script can be played in each of the ways there are.
"""

import asyncio
from functools import partial
from typing import Any

from attrs import frozen
from hypothesis import strategies as st

from kernel import Block, Finished, Hooks, ModelError, ReasoningDelta, StopReason, ToolResult
from kernel.testing import CUT_OFF, call
from tests.faults.probe import Probe
from tests.kernel.helpers import Act, ticks, turns

TOOLS = ("ok", "raises", "fatal", "waits", "sleeps", "updates", "terminates", "swallows", "alone", "shares", "hangs",
         "nobody")  # fmt: skip
ENDS = ("done", "length", "cut off", "transient", "fatal", "overflow", "stalls")
PARTS = st.sampled_from(["text", "reasoning", "wait", "sleep", *TOOLS])
DEEDS = ("steer", "follow_up", "cancel", "clear", "unqueue", "configure", "subscribe", "raise", "prompt")


@frozen
class Script:
    """One script: the parts and the end of each response, deeds at events, hooks that do something, and policies."""

    responses: tuple[tuple[tuple[str, ...], str], ...]
    deeds: tuple[tuple[int, str], ...]
    hooks: frozenset[str]
    policies: tuple[tuple[str, Any], ...]
    past: int


SCRIPTS = st.builds(
    Script,
    st.lists(
        st.tuples(st.lists(PARTS, max_size=4).map(tuple), st.sampled_from(ENDS) | st.just("done")), max_size=5
    ).map(tuple),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(DEEDS)), max_size=4).map(tuple),
    st.frozensets(st.sampled_from(["context", "before", "after", "stop", "context fails", "after fails"]), max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "tool_execution": st.just("sequential"),
            "steering_mode": st.just("all"),
            "follow_up_mode": st.just("all"),
            "interrupted_message": st.just("discard"),
            "failure_message": st.just("result_only"),
            "subscriber_failure": st.just("fail_run"),
            "subscribers": st.just("observe"),
            "max_turns": st.integers(1, 3),
            "retry": st.none(),
            "compaction": st.none(),
            "tool_timeout": st.just(7.0),
            "run_deadline": st.sampled_from([5.0, 40.0]),
        },
    ).map(lambda policies: tuple(sorted(policies.items()))),
    st.integers(0, 4),
)


async def _swallows(*_: Any) -> str:
    try:
        await asyncio.sleep(3)
    except asyncio.CancelledError:
        return "swallowed"
    return "slept"


async def _waits(*_: Any) -> str:
    await ticks(3)
    return "waited"


def _updates(_: Any, context: Any) -> str:
    context.update("half")
    return "updated"


def _raises(error: BaseException) -> Any:
    def body(*_: Any) -> None:
        raise error

    return body


class _Fatal(BaseException):
    """What no `except Exception` catches."""


def tools() -> list[Act]:
    """A tool of each kind; nobody is not among them."""
    return [
        Act("ok"),
        Act("raises", _raises(ValueError("no"))),
        Act("fatal", _raises(_Fatal())),
        Act("waits", _waits),
        Act("sleeps", lambda *_: asyncio.sleep(2, "slept")),
        Act("updates", _updates),
        Act("terminates", ToolResult("over", terminate=True)),
        Act("swallows", _swallows),
        Act("alone", lambda *_: asyncio.sleep(1, "alone"), mode="sequential"),
        Act("shares", lambda *_: asyncio.sleep(1, "shared"), resources=lambda _: ("file",)),
        Act("hangs", lambda *_: asyncio.sleep(50, "at last")),
    ]


def _hooks(names: frozenset[str]) -> Hooks:
    async def context(messages: Any) -> Any:
        await ticks(2)
        if "context fails" in names:
            raise ValueError("no context")
        return messages

    async def before(call: Any, _: Any) -> Any:
        await asyncio.sleep(1)
        return Block("not this") if call.id.endswith("1") else None

    async def after(_: Any) -> None:
        await ticks(1)
        if "after fails" in names:
            raise ValueError("no after")

    return Hooks(
        transform_context=context if names & {"context", "context fails"} else None,
        before_tool_call=before if "before" in names else None,
        after_tool_result=after if names & {"after", "after fails"} else None,
        should_stop_after_turn=(lambda state: len(state.messages) > 6) if "stop" in names else None,
    )


def _lines(turn: int, parts: tuple[str, ...], end: str) -> list[Any]:
    plain: dict[str, Any] = {
        "text": f"text {turn} ", "reasoning": ReasoningDelta("hm"),
        "wait": lambda: ticks(3), "sleep": lambda: asyncio.sleep(1),
    }  # fmt: skip
    lines = [plain.get(part) or call(f"t{turn}c{place}", part) for place, part in enumerate(parts)]
    ends: dict[str, Any] = {
        "done": [],
        "length": [Finished(StopReason.LENGTH)],
        "cut off": [CUT_OFF],
        "transient": [ModelError("busy", retryable=True)],
        "fatal": [ModelError("gone")],
        "overflow": [ModelError("full", overflow=True)],
        "stalls": [asyncio.Event().wait],
    }
    return [*lines, *ends[end]]


class Summary:
    """A compactor that takes its time."""

    async def summarize(self, _: Any) -> str:
        await asyncio.sleep(1)
        return "so far"


def build(script: Script) -> Probe:
    """A probe that plays *script*."""
    probe = Probe(
        *(_lines(turn, *response) for turn, response in enumerate(script.responses)),
        tools=tools(), hooks=_hooks(script.hooks), messages=turns(script.past), compactor=Summary(),
        stream_idle_timeout=20, **dict(script.policies),
    )  # fmt: skip
    def do(deed: str) -> None:
        agent, number = probe.agent, len(probe.receipts)
        if deed in ("steer", "follow_up"):
            getattr(probe, deed)(f"{deed} {number}")
        elif deed == "cancel":
            agent.cancel("enough")
        elif deed == "clear":
            agent.clear_queues()
        elif deed == "unqueue" and probe.receipts:
            agent.unqueue(probe.receipts[0])
        elif deed == "configure":
            agent.configure(system_prompt="Be kind.")
        elif deed == "subscribe":
            agent.subscribe(lambda _: None)
        elif deed == "prompt":
            agent.prompt("in between")  # a run is going: refused, and the listener has failed
        elif deed == "raise":
            raise ValueError("a listener fails")


    for place, deed in script.deeds:
        probe.at(place, partial(do, deed))
    return probe
