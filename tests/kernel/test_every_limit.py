"""Every number of the configuration, read off it: named, documented with its reason, granted at it, refused one past it."""

import ast
import asyncio
import contextlib
import inspect
import itertools
import pathlib
from collections.abc import Callable
from typing import Any, get_args

import attrs
import pytest

from kernel import (
    CompactionPolicy,
    EventsLostError,
    KernelConfig,
    ModelError,
    QueueFullError,
    ReasoningDelta,
    RetryPolicy,
    Usage,
    UsageLimit,
)
from kernel.effects import StartTimer
from kernel.inputs import ResponseFailed, SubscriberFailure, TimerDue
from kernel.state import ERRORS_KEPT
from kernel.testing import call, collect
from tests.kernel.helpers import Act, Bench, Stage, failure, play, ticks, turns


def calls(count: int) -> list[Any]:
    return [call(f"c{number}", "act") for number in range(count)]


Use = Callable[[Any, Any], bool]
"""Whether what is asked for, *amount*, is granted under the limit *limit*."""


def limited(name: str, limit: Any, *responses: Any, **arguments: Any) -> Any:
    """The result of a run under this limit."""
    return play(Stage(*responses, **{name: limit}, **arguments).run())


def sleeping(seconds: float) -> Act:
    async def body(*_: Any) -> str:
        await asyncio.sleep(seconds)
        return "done"

    return Act(body=body)


def takes_turns(limit: int, amount: int) -> bool:
    script = [calls(1)] * (amount - 1)
    return limited("max_turns", limit, *script, ["done"], tools=[Act()]).status == "completed"


def queues(limit: int, amount: int) -> bool:
    agent = Stage(queue_limit=limit).agent
    with contextlib.suppress(QueueFullError):
        for number in range(amount):
            (agent.steer if number % 2 else agent.follow_up)(f"{number}")
    waiting = agent.queued
    return len(waiting.steering) + len(waiting.follow_up) == amount


def holds_messages(limit: int, amount: int) -> bool:
    """A prompt, calls with their results, and an answer; the rest is history."""
    history = turns(amount)[: amount - 5]
    return limited("message_limit", limit, calls(2), ["done"], tools=[Act()], messages=history).status == "completed"


def runs_calls(limit: int, amount: int) -> bool:
    return limited("call_limit", limit, calls(amount), ["done"], tools=[Act()]).status == "completed"


def lets_clean_up(limit: float, amount: float) -> bool:
    stage = Stage(calls(1), cancel_grace=limit)

    async def body(*_: Any) -> str:
        try:
            await stage.gates.wait("never")
        finally:
            await asyncio.sleep(amount)
            raise RuntimeError("cleaned up")

    stage.agent.configure(tools=[Act(body=body)])

    async def main() -> str:
        run = stage.agent.prompt("Hi")
        await ticks()
        stage.agent.cancel()
        await run
        await asyncio.sleep(amount)
        return stage.said[-1][1]

    return play(main()) == "cleaned up"


def lets_a_tool_work(limit: float, amount: float) -> bool:
    stage = Stage(calls(1), ["done"], tools=[sleeping(amount)], tool_timeout=limit)
    play(stage.run())
    return stage.said[2] == ("tool", "done")


def lets_a_model_think(limit: float, amount: float) -> bool:
    script = [lambda: asyncio.sleep(amount), "a"]
    return limited("stream_idle_timeout", limit, script, retry=None).status == "completed"


def lets_a_run_take(limit: float, amount: float) -> bool:
    script = [calls(1), [lambda: asyncio.sleep(amount / 2), "a"]]
    return limited("run_deadline", limit, *script, tools=[sleeping(amount / 2)]).status == "completed"


def keeps_events(limit: int, amount: int) -> bool:
    """Pieces that can't be put together, as many as make so many events."""
    plain = Stage(["a"])
    play(plain.run())
    pieces = [("a", ReasoningDelta("b"))[number % 2] for number in range(1 + amount - len(plain.heard.events))]
    stage = Stage(pieces, event_buffer=limit)

    async def main() -> list[Any]:
        run = stage.agent.prompt("Hi")
        await run
        return await collect(run)

    try:
        return len(play(main())) == amount
    except EventsLostError:
        return False


def asks_again(limit: int, amount: int) -> bool:
    busy = ModelError("busy", retryable=True)
    return limited("retry", RetryPolicy(max_attempts=limit), *[[busy]] * (amount - 1), ["done"]).status == "completed"


def waits(attempts: int, policy: RetryPolicy, **fields: Any) -> list[float]:
    """The waits of a core whose every request fails, when the largest number is drawn."""
    bench = Bench(retry=policy)
    bench.prompt()
    bench.to_request()
    for _ in range(attempts):
        bench.put(ResponseFailed(bench.work, failure(retryable=True, **fields), jitter=1.0))
        bench.put(TimerDue(bench.last(StartTimer).timer))
        bench.advance()
    return [timer.seconds for timer in bench.all(StartTimer)]


def waits_first(limit: float, amount: float) -> bool:
    return max(waits(1, RetryPolicy(base_delay=limit))) >= amount


def waits_at_most(limit: float, amount: float) -> bool:
    policy = RetryPolicy(base_delay=limit / 3, max_delay=limit, max_attempts=9)
    drawn, told = waits(5, policy), waits(1, policy, retry_after=amount)
    assert (max(drawn) >= amount) == (max(told) >= amount)
    return max(drawn) >= amount


def is_roomy(tokens: int, policy: CompactionPolicy) -> bool:
    """Whether a turn after a response of so many tokens begins without a compaction; the rest is not counted here."""

    class Summary:
        async def summarize(self, messages: Any) -> str:
            return "short"

    script = [Usage(tokens), *calls(1)], ["b"]
    stage = Stage(*script, tools=[Act()], messages=turns(4), compactor=Summary(), compaction=policy)
    play(stage.run())
    return "compaction.started" not in stage.types


def leaves_free(limit: int, amount: int) -> bool:
    """A reserve is the one limit from below: *amount* tokens are free."""
    return is_roomy(2000 - amount, CompactionPolicy(reserve=limit, window=2000))


def fits_the_window(limit: int, amount: int) -> bool:
    return is_roomy(amount, CompactionPolicy(reserve=0, window=limit))


def keeps_turns(limit: int, amount: int) -> bool:
    class Summary:
        async def summarize(self, messages: Any) -> str:
            return "short"

    history = turns(amount + 2)
    stage = Stage(messages=history, compactor=Summary(), compaction=CompactionPolicy(keep_turns=limit))

    async def main() -> None:
        await stage.agent.compact()

    play(main())
    return history[-2 * amount] in stage.agent.messages


def tokens_used(limit: int, amount: int) -> bool:
    """*amount* tokens are used before the last request, which is sent while one is left."""
    script = [Usage(amount - 1), *calls(1)], ["done"]
    return limited("usage_limit", UsageLimit(tokens=limit), *script, tools=[Act()]).status == "completed"


def requests_made(limit: int, amount: int) -> bool:
    script = [calls(1)] * (amount - 1)
    return limited("usage_limit", UsageLimit(requests=limit), *script, ["done"], tools=[Act()]).status == "completed"


def calls_made(limit: int, amount: int) -> bool:
    script = calls(amount - 1), calls(1), ["done"]
    return limited("usage_limit", UsageLimit(tool_calls=limit), *script, tools=[Act()]).status == "completed"


LIMITS: dict[tuple[type, str], tuple[Use, Any, Any]] = {
    (KernelConfig, "max_turns"): (takes_turns, 3, 1),
    (KernelConfig, "queue_limit"): (queues, 5, 1),
    (KernelConfig, "message_limit"): (holds_messages, 9, 1),
    (KernelConfig, "call_limit"): (runs_calls, 3, 1),
    (KernelConfig, "cancel_grace"): (lets_clean_up, 5.0, 0.1),
    (KernelConfig, "tool_timeout"): (lets_a_tool_work, 10.0, 0.1),
    (KernelConfig, "stream_idle_timeout"): (lets_a_model_think, 10.0, 0.1),
    (KernelConfig, "run_deadline"): (lets_a_run_take, 10.0, 0.1),
    (KernelConfig, "event_buffer"): (keeps_events, 30, 1),
    (UsageLimit, "tokens"): (tokens_used, 100, 1),
    (UsageLimit, "requests"): (requests_made, 4, 1),
    (UsageLimit, "tool_calls"): (calls_made, 4, 1),
    (RetryPolicy, "max_attempts"): (asks_again, 4, 1),
    (RetryPolicy, "base_delay"): (waits_first, 2.0, 0.1),
    (RetryPolicy, "max_delay"): (waits_at_most, 7.0, 0.1),
    (CompactionPolicy, "reserve"): (leaves_free, 100, -1),
    (CompactionPolicy, "keep_turns"): (keeps_turns, 3, 1),
    (CompactionPolicy, "window"): (fits_the_window, 500, 1),
}
"""How each limit is used, a number for it, and what "one past it" means. A moment past a time is enough."""
NUMBERS = [
    (owner, field.name)
    for owner in (KernelConfig, UsageLimit, RetryPolicy, CompactionPolicy)
    for field in attrs.fields(owner)
    if {int, float} & {field.type, *get_args(field.type)}
]


def takes_seconds(owner: type, name: str) -> bool:
    return any(float in {field.type, *get_args(field.type)} for field in attrs.fields(owner) if field.name == name)


class TestEveryLimit:
    def test_none_is_forgotten(self) -> None:
        """The table below has every number of the configuration, and nothing else."""
        assert set(LIMITS) == set(NUMBERS)

    @pytest.mark.parametrize(("owner", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
    def test_at_the_limit_and_one_past_it(self, owner: type, name: str) -> None:
        """As much as the limit is granted, one more is not, and with a limit of one more it is."""
        use, limit, step = LIMITS[owner, name]
        just = limit - step / 2 if isinstance(step, float) else limit  # two timers of one moment have no order
        assert use(limit, just)
        assert not use(limit, just + step)
        assert use(limit + step, just + step)

    @pytest.mark.parametrize(("owner", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
    def test_it_is_documented_with_its_reason(self, owner: type, name: str) -> None:
        """The page about profiles and the source give each number's default and why it is that."""
        default = next(field.default for field in attrs.fields(owner) if field.name == name)
        shown = name if owner is KernelConfig else f"{owner.__name__}.{name}"
        rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith(f"| `{shown}` |")]
        assert len(rows) == 1
        assert rows[0][2].strip() == ("none" if default is None else str(default))
        assert len(rows[0][-2].split()) >= 5
        assert len(documented(owner).get(name, "").split()) >= 5

    def test_every_policy_is_documented(self) -> None:
        """Each field of the configuration says in the source what it means."""
        assert set(documented(KernelConfig)) == {field.name for field in attrs.fields(KernelConfig)}


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "profiles.md"


def documented(owner: type) -> dict[str, str]:
    """The text below each field of the class."""
    (tree,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip


@pytest.mark.parametrize(("failures", "kept"), [(ERRORS_KEPT, ERRORS_KEPT), (ERRORS_KEPT + 1, ERRORS_KEPT)])
def test_failures_of_listeners_are_kept_up_to_a_fixed_number(failures: int, kept: int) -> None:
    """256 are kept, one more pushes the oldest out; all are counted, and the page says so."""
    bench = Bench()
    for number in range(failures):
        bench.put(SubscriberFailure("r0", "turn.started", number, failure()))
    state = bench.state
    assert (len(state.listener_failures), state.listener_failure_count) == (kept, failures)
    assert state.listener_failures[0].event == failures - kept
    assert f"the newest {ERRORS_KEPT} failures" in PAGE.read_text()


class TestZero:
    """Nothing is a number too: no time, no wait, no reserve."""

    def test_no_time_for_a_tool(self) -> None:
        """A body that answers at once has answered; one that waits has timed out."""
        stage = Stage(calls(1), ["done"], tools=[Act()], tool_timeout=0)
        play(stage.run())
        assert stage.said[2] == ("tool", "ok")
        stage = Stage(calls(1), ["done"], tools=[sleeping(0.001)], tool_timeout=0)
        play(stage.run())
        assert stage.said[2][1].startswith("timed out")

    def test_a_tools_own_zero_is_not_none(self) -> None:
        """A tool's own timeout of nothing goes before the configuration's."""
        act = sleeping(1)
        act.timeout = 0  # type: ignore[attr-defined]
        stage = Stage(calls(1), ["done"], tools=[act], tool_timeout=10)
        play(stage.run())
        assert stage.said[2][1].startswith("timed out: act took longer than 0 s")

    def test_no_silence_of_a_model(self) -> None:
        """A model that answers at once is heard; one that waits has stalled, and that is retried as ever."""
        assert limited("stream_idle_timeout", 0, ["a"]).status == "completed"
        stage = Stage(*[[lambda: asyncio.sleep(1), "a"]] * 3, stream_idle_timeout=0)
        assert (play(stage.run()).status, len(stage.model.requests)) == ("failed", 3)

    def test_no_time_for_a_run(self) -> None:
        """A run with no time fails with its code, at once."""
        result = limited("run_deadline", 0, [lambda: asyncio.sleep(1), "a"])
        assert (result.status, result.error.code) == ("failed", "RUN_DEADLINE")

    @pytest.mark.parametrize("policy", [RetryPolicy(base_delay=0), RetryPolicy(max_delay=0)], ids=["base", "cap"])
    def test_no_wait_before_a_retry(self, policy: RetryPolicy) -> None:
        """Without a delay the same request is sent again at once; a cap of nothing is one for the provider's wish too."""
        after = 30 if policy.max_delay == 0 else None
        stage = Stage([ModelError("busy", retryable=True, retry_after=after)], ["a"], retry=policy)

        async def main() -> float:
            await stage.run()
            return asyncio.get_running_loop().time()

        assert play(main()) == 0
        assert [event.delay for event in stage.heard.of("retry.scheduled")] == [0]

    @pytest.mark.parametrize(("owner", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
    def test_a_number_is_zero_where_that_means_something(self, owner: type, name: str) -> None:
        """Seconds and a reserve may be nothing; a count of nothing would be an agent that can't do anything."""
        if not takes_seconds(owner, name) and name != "reserve":
            with pytest.raises(ValueError, match=name):
                owner(**{name: 0})
        else:
            assert getattr(owner(**{name: 0}), name) == 0


@pytest.mark.parametrize(("owner", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_a_number_that_no_clock_can_wait_is_refused(owner: type, name: str) -> None:
    """Seconds past what a float holds are a ValueError that names them; a count may be as large as one likes."""
    if takes_seconds(owner, name):
        for value in (10**400, float("inf"), float("nan"), -(10**400)):
            with pytest.raises(ValueError, match=name):
                owner(**{name: value})
    else:
        assert getattr(owner(**{name: 10**400}), name) == 10**400
