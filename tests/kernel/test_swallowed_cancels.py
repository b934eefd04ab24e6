"""Whatever swallows its cancellation and comes back as if nothing had been: the run is cancelled all the same, at once."""

import asyncio
from typing import Any

import pytest

from kernel import Agent, CompactionPolicy, Finished, Hooks, KernelConfig, TextDelta
from kernel.testing import call, simulate
from kernel.trace import check
from tests.kernel.helpers import USAGE_ONLY, Act, ticks, turns, unpaired

WORKS = (
    "transform_context", "convert_to_llm", "before_tool_call", "after_tool_result", "should_stop_after_turn", "model",
    "tool", "compactor",
)  # fmt: skip


class Deaf:
    """Each of its callables waits until it is cancelled, takes no notice of that, and answers well."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.reached = asyncio.Event()
        self.context_window = None

    async def swallow(self) -> None:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    def hooks(self) -> Hooks:
        if self.kind not in WORKS[:5]:
            return Hooks()

        async def hook(*arguments: Any) -> Any:
            if not self.reached.is_set():
                await self.swallow()
            return arguments[0] if self.kind in WORKS[:2] else None

        return Hooks(**{self.kind: hook})

    async def body(self, *_: Any) -> str:
        if self.kind == "tool":
            await self.swallow()
        return "ok"

    async def summarize(self, _: Any) -> str:
        await self.swallow()
        return "short"

    async def stream(self, request: Any) -> Any:
        if self.kind == "model" and not self.reached.is_set():
            yield TextDelta("par")
            await self.swallow()
        elif not self.reached.is_set():
            yield call("c1", "act")
        else:
            yield TextDelta("b")
        yield Finished()


@pytest.mark.parametrize("kind", WORKS)
def test_what_swallows_its_cancel_ends_the_run_as_cancelled(kind: str) -> None:
    """Its report is released and no more: the outcome stays, every call has its result, and the next prompt works."""
    heard: list[Any] = []

    async def main() -> tuple[Any, Any, Any]:
        deaf = Deaf(kind)
        config = KernelConfig(compaction=CompactionPolicy(keep_turns=1))
        agent = Agent(
            deaf, tools=[Act(body=deaf.body)], hooks=deaf.hooks(), config=config, messages=turns(3), compactor=deaf,
            estimator=USAGE_ONLY,
        )  # fmt: skip
        agent.subscribe(heard.append)
        run = agent.compact() if kind == "compactor" else agent.prompt("Hi")
        await deaf.reached.wait()
        await ticks()
        began = asyncio.get_running_loop().time()
        assert agent.cancel("enough")
        result = await run
        took = asyncio.get_running_loop().time() - began
        again = await agent.prompt("again")
        assert unpaired(agent.messages) == []
        assert asyncio.get_running_loop().exceptions == []  # type: ignore[attr-defined]
        return result, again, took

    result, again, took = simulate(main())
    assert (result.status, result.reason, result.error, took) == ("cancelled", "enough", None, 0.0)
    assert again.status == "completed"
    assert check(heard) == []
