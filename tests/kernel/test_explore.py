"""The simulator: what it finds, what it says of it, and that it does the same again."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import find, settings

from kernel import Agent, Hooks, KernelConfig, ModelError, tool
from kernel.core import bound_table
from kernel.dialects import native_line
from kernel.shell import Shell
from kernel.testing import (
    ALL_FAULTS,
    FailingScheduleError,
    Report,
    ScriptedModel,
    Tape,
    call,
    explore,
    say,
    tapes,
)
from kernel.testing.faults import MENU, FaultKind
from kernel.testing.plans import Driven, Replayed, as_text, from_text
from kernel.testing.simulation import Simulation
from kernel.testing.trial import Trial
from kernel.work import Work
from tests.kernel.stateful import test_faults_are_found as planted

TILL: dict[str, int] = {}
MOVES: list[int] = []


def make_agent(**options: Any) -> Agent:
    """Two tools that race for a till, in an order that is not asyncio's own."""
    TILL["coins"] = 10
    MOVES.clear()

    @tool(**options)
    async def take(coins: int) -> str:
        """Take coins."""
        there = TILL["coins"]
        await asyncio.sleep(0)
        TILL["coins"] = there - coins
        MOVES.append(-coins)
        return "taken"

    @tool(**options)
    async def put(coins: int) -> str:
        """Put coins."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        TILL["coins"] += coins
        MOVES.append(coins)
        return "put"

    both = [call("c1", "take", coins=3), call("c2", "put", coins=5)]
    return Agent(ScriptedModel([both, say("Done.")]), tools=[take, put])


def make_safe_agent() -> Agent:
    """The same tools, which take turns."""
    return make_agent(resources=lambda arguments: ["till"])


def check_till(agent: Agent, events: Any, result: Any) -> None:
    """Nothing is lost."""
    right = 10 + sum(MOVES)
    assert TILL["coins"] == right, f"the till has {TILL['coins']} coins, and {right} are right"


def make_talker(*responses: Any, **config: Any) -> Callable[[], Agent]:
    """Agents without tools."""
    return lambda: Agent(ScriptedModel(responses or [say("a", "b")]), config=KernelConfig(**config))


def failure_of(*args: Any, **options: Any) -> FailingScheduleError:
    """What explore() finds."""
    with pytest.raises(FailingScheduleError) as caught:
        explore(*args, **options)
    return caught.value


def claims(error: FailingScheduleError) -> set[str]:
    return {problem.claim for problem in error.problems}


# ---- a fault of the user's ----


def test_a_race_is_found_and_resources_end_it() -> None:
    """The lost update is found in default settings; with a resource key there is none in the same schedules."""
    assert "the till has 7 coins, and 12 are right" in str(failure_of(make_agent, check=check_till))
    report = explore(make_safe_agent, check=check_till)
    assert (report.schedules, report.exhausted) == (200, None)
    assert report.different > 100


def test_the_plain_schedule_hides_that_race() -> None:
    """In asyncio's own order without faults nothing is lost: what is found was looked for."""
    assert explore(make_agent, check=check_till, chooser="fifo", faults=(), schedules=5).different == 1


@pytest.mark.parametrize("chooser", ["random", "priorities", "exhaustive"])
def test_each_chooser_finds_the_race(chooser: Any) -> None:
    """Whoever orders the tasks otherwise comes across it, without any fault."""
    assert claims(failure_of(make_agent, check=check_till, chooser=chooser, faults=(), schedules=400)) == {"check"}


def test_all_orders_of_a_small_scenario() -> None:
    """With a resource key, no order at all loses anything; and the report says that these were all."""
    report = explore(make_safe_agent, check=check_till, chooser="exhaustive", schedules=2_000, again=False)
    assert report.exhausted is True
    assert report.schedules == report.different > 500
    bounded = explore(make_safe_agent, check=check_till, chooser="exhaustive", schedules=50, again=False)
    assert bounded.exhausted is False
    assert ", and there are more" in str(bounded)


def test_every_place_for_one_cancel() -> None:
    """An exhaustive search with one kind of act from outside does it before each step, once in a schedule."""
    acts = ["outside cancels the run", "outside cancels the awaiting task"]
    seen: list[str] = []
    report = explore(make_looker, chooser="exhaustive", deviations=1, faults=acts, check=lambda *_: seen.append("done"))
    assert report.exhausted is True
    assert report.injected["outside cancels the run"] > 5
    assert report.injected["outside cancels the awaiting task"] > 5
    assert len(seen) == report.schedules


def test_a_deadlock_of_a_listener_is_found() -> None:
    """A listener that waits, in another task, for the run that waits for it; only when a tool failed."""

    def make() -> Agent:
        @tool
        async def look() -> str:
            """Look."""
            return "seen"

        agent = Agent(ScriptedModel([[call("c1", "look")], say("Done.")]), tools=[look])

        async def report(event: Any) -> None:
            if event.type == "tool.ended" and event.is_error:
                await asyncio.create_task(agent.wait_for_idle(), name="the report")

        agent.subscribe(report)
        return agent

    error = failure_of(make, faults=["tool raises"], schedules=50)
    assert claims(error) == {"liveness"}
    assert "the report in Agent.wait_for_idle" in str(error)
    assert error.replay == "v1, tool look 1=tool raises"


def test_a_task_that_fails_unheard_is_found() -> None:
    """An exception that nobody asks for is found in the schedule in which it was raised, not at some later collection."""

    def make() -> Agent:
        kept: list[Any] = []

        async def fail() -> None:
            raise ValueError("unheard")

        def listener(event: Any) -> None:
            if event.type == "run.started" and not kept:
                kept.append(asyncio.ensure_future(fail()))

        agent = make_talker()()
        agent.subscribe(listener)
        return agent

    error = failure_of(make, schedules=1)
    assert claims(error) == {"loop"}
    assert "unheard" in str(error)


def test_a_scenario_that_fails_is_a_finding() -> None:
    """What a scenario raises fails the schedule, but for a KernelError where something was injected."""

    async def wrong(agent: Agent) -> None:
        await agent.prompt("Go.")
        raise ValueError("the scenario broke")

    async def unwrapped(agent: Agent) -> Any:
        return (await agent.prompt("Go.")).unwrap()

    assert "ValueError: the scenario broke" in str(failure_of(make_talker(), wrong, schedules=1))
    explore(make_talker(), unwrapped, faults=["stream breaks"], schedules=50)
    plain = failure_of(make_talker([ModelError("no")], retry=None), unwrapped, faults=["stream breaks"], schedules=50)
    assert claims(plain) == {"scenario"}
    assert plain.replay == "v1"


def test_a_check_gets_what_the_scenario_returned() -> None:
    """The agent, its events and the result, which is None where the scenario was cut. Its failure is the error's cause."""
    results: list[Any] = []

    async def check(agent: Agent, events: Any, result: Any) -> None:
        await asyncio.sleep(1)
        assert events[-1].type == "run.finished"
        assert agent.phase == "idle"
        results.append(None if result is None else result.final_text)

    explore(make_talker(), check=check, faults=["outside cancels the awaiting task"], schedules=60)
    assert {*results} == {"ab", None}

    def fail(*_: Any) -> None:
        raise KeyError("what the check says")

    assert isinstance(failure_of(make_talker(), check=fail, schedules=1).__cause__, KeyError)


def test_a_cancel_comes_while_everything_waits() -> None:
    """Waiting is few steps and most of the time: a cancel meets a tool that takes an hour in one schedule of ten."""

    def make() -> Agent:
        @tool
        async def build() -> str:
            """Build."""
            await asyncio.sleep(3_600)
            return "built"

        return Agent(ScriptedModel([[call("c1", "build")], say("Done.")]), tools=[build])

    met: list[bool] = []

    def check(agent: Agent, events: Any, result: Any) -> None:
        (text,) = [message.text for message in agent.messages if message.role == "tool"] or [""]
        met.append(text.startswith("cancelled"))

    explore(make, check=check, faults=["outside cancels the run"])
    assert sum(met) >= 20


@pytest.mark.parametrize("fault", ["outside follows up", "listener follows up"])
def test_what_is_injected_ends(fault: str) -> None:
    """A run that gets follow-ups wherever it waits, and waits at each event, is not fed without end and then blamed."""

    def make() -> Agent:
        async def slow(event: Any) -> None:
            await asyncio.sleep(0.1)

        agent = Agent(ScriptedModel([["a"] * 40] * 500))
        agent.subscribe(slow)
        return agent

    report = explore(make, faults=[fault], schedules=25, again=False)
    assert report.injected[fault] > 100


def test_what_only_an_injected_fault_holds_up_is_no_finding() -> None:
    """Where a stream was made to stall and nothing else ends it, the simulated user cancels, and all goes on."""
    report = explore(make_talker(stream_idle_timeout=None), faults=["stream stalls"], schedules=30)
    assert report.injected["stream stalls"] > 0
    assert report.ended["cancelled"] > 0


# ---- faults planted in the kernel ----


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A patch of the kernel that is taken out again, with what was bound to it."""
    bound_table.cache_clear()
    yield monkeypatch
    bound_table.cache_clear()


def make_looker() -> Agent:
    """An agent that has something of everything, as an application's would."""

    @tool
    async def look(n: int) -> str:
        """Look."""
        await asyncio.sleep(0)
        return str(n)

    both = [call("c1", "look", n=1), call("c2", "look", n=2)]
    return Agent(ScriptedModel([["Let me ", "see. ", *both], say("It is ", "fine.")]), tools=[look])


def a_cancel_is_remembered(plant: pytest.MonkeyPatch) -> None:
    """A cancel reaches the next run too."""
    begin, cancel, stale = Shell.begin, Shell.cancel, []

    def begin_and_cancel(shell: Shell, *args: Any) -> Any:
        run = begin(shell, *args)
        if stale:
            cancel(shell, stale.pop())
        return run

    def cancel_twice(shell: Shell, *args: Any) -> bool:
        done = cancel(shell, *args)
        stale[:] = ["again"] if done else []
        return done

    plant.setattr(Shell, "begin", begin_and_cancel)
    plant.setattr(Shell, "cancel", cancel_twice)


def what_is_abandoned_is_forgotten(plant: pytest.MonkeyPatch) -> None:
    """What ignores its cancel goes on, and `agent.abandoned` does not tell of it."""
    plant.setattr(Shell, "abandon", lambda *_: None)


def a_timer_stays_set(plant: pytest.MonkeyPatch) -> None:
    """The watch over a stream or a tool is not taken away when that ends."""
    plant.setattr(Work, "end_watch", lambda work: None)


FOUND: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    planted.steering_stays_queued: "G6",
    planted.cancel_misses_what_has_not_begun: "G7",
    planted.cancel_has_no_deadline: "liveness|G8",
    planted.late_reports_are_taken: "has no answer in",
    planted.a_run_finishes_twice: "G1",
    planted.listeners_hear_first: "G12",
    planted.snapshots_grow: "G14",
    planted.cut_messages_are_sent: "request",
    a_cancel_is_remembered: "next prompt: it ended as cancelled",
    what_is_abandoned_is_forgotten: "is alive though the agent idles",
    a_timer_stays_set: "is set though the agent idles",
}
"""Faults of the kernel, and what is said of each."""


@pytest.mark.parametrize(("fault", "said"), FOUND.items(), ids=[fault.__name__ for fault in FOUND])
def test_a_fault_of_the_kernel_is_found(fault: Any, said: str, plant: pytest.MonkeyPatch) -> None:
    """In default settings, with an agent that does nothing special; and its schedule does it again."""
    fault(plant)
    error = failure_of(make_looker)
    assert any(part in str(error) for part in said.split("|"))
    assert claims(failure_of(make_looker, replay=error.replay)) & claims(error)


def test_a_cancel_that_takes_too_long_is_found(plant: pytest.MonkeyPatch) -> None:
    """A run that waits out a deaf tool's minute ends by itself, and too late (G8)."""
    faults = ["tool ignores cancel", "outside cancels the run"]
    explore(make_looker, faults=faults)
    bound_table.cache_clear()
    planted.cancel_has_no_deadline(plant)
    error = failure_of(make_looker, faults=faults)
    assert claims(error) == {"G8"}
    assert "tool ignores cancel@60" in error.replay


# ---- the same again ----


def events_of(seed: int) -> list[Any]:
    """What all agents say in some schedules, without the ids of their runs."""
    told: list[Any] = []

    def keep(agent: Agent, events: Any, result: Any) -> None:
        told.append([(type(event), native_line(event)) for event in events])

    told.append(explore(make_looker, check=keep, seed=seed, schedules=6).injected)
    return told


def test_a_seed_gives_the_same_schedules() -> None:
    """Fifty seeds: each gives the same deviations and the same events, twice; and they differ from each other."""
    first = [events_of(seed) for seed in range(50)]
    assert first == [events_of(seed) for seed in range(50)]
    assert len({repr(told) for told in first}) == 50


def test_lots_are_the_same_each_time() -> None:
    """What the code around the agent draws from `random` is the same in each schedule, and the caller's lots go on."""
    drawn: list[float] = []
    for seed in (5, 6):
        random.seed(seed)
        expected = random.random()
        random.seed(seed)
        explore(make_talker(), check=lambda *_: drawn.append(random.random()), schedules=3, faults=())
        assert random.random() == expected
    assert len(drawn) == 6
    assert len(set(drawn)) == 1


def test_what_does_not_fail_again_is_told() -> None:
    """A failure that hangs on something that is not simulated is told as such."""
    count = iter(range(100))

    def check(*_: Any) -> None:
        assert next(count) != 3

    assert "does not fail in the same way" in str(failure_of(make_talker(), check=check))


def test_a_failing_schedule_is_made_small() -> None:
    """Of all that deviates only what the failure needs is left: without any one of these it is gone."""

    def check(agent: Agent, events: Any, result: Any) -> None:
        origins = [event.origin for event in events if event.type == "message.accepted"]
        assert "steering" not in origins

    for seed in range(5):
        error = failure_of(make_looker, check=check, seed=seed)
        left = from_text(error.replay)
        assert len(left) == len(error.story) <= 3
        for place in left:
            fewer = {other: what for other, what in left.items() if other != place}
            explore(make_looker, check=check, replay=as_text(fewer))


def test_choices_are_made_near() -> None:
    """An answer among many is lowered as far as it goes: what matters here is only that another task went first."""

    def make() -> Agent:
        names: list[str] = []

        @tool
        async def look(n: int) -> str:
            """Look."""
            names.append(str(n))
            return ",".join(names)

        calls = [call(f"c{n}", "look", n=n) for n in range(6)]
        return Agent(ScriptedModel([calls, say("Done.")]), tools=[look])

    def check(agent: Agent, events: Any, result: Any) -> None:
        assert not any(event.type == "tool.ended" and event.text in "12345" for event in events)

    for seed in range(5):
        answers = from_text(failure_of(make, check=check, chooser="random", faults=(), seed=seed).replay)
        assert list(answers.values()) == ["1"]


def test_a_failure_is_told_as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text names the schedule, the versions, what deviates, and the lines that do it again; and they do."""
    error = failure_of(make_agent, check=check_till)
    text = str(error)
    head, _, program = text.partition("It is done again by\n")
    assert "a schedule fails (number " in head
    assert "of seed 0, ordered by " in head
    assert "phasekernel " in head
    assert "'kernel tool put' went before 'kernel tool take'" in head
    lines = [line.strip() for line in program.splitlines()]
    assert lines[:3] == [
        f"from {__name__} import make_agent", f"from {__name__} import check_till", "from kernel.testing import explore",
    ]  # fmt: skip
    assert lines[-1] == f"explore(make_agent, check=check_till, replay={error.replay!r})"
    again = failure_of(make_agent, check=check_till, replay=error.replay)
    assert (again.replay, again.problems, again.story) == (error.replay, error.problems, error.story)


def test_a_schedule_is_text_and_back() -> None:
    """Whatever deviates is written and read again."""
    deviations = {"order 3": "2", "tool look 1": "tool slow@0.5", "step 7": "outside cancels the run"}
    assert from_text(as_text(deviations)) == deviations


@pytest.mark.parametrize("text", ["", "order 1=1", "v1, order 1", "v1, order 1=x", "v1, tool look 1=tool explodes"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    """A text that explore() never printed is a ValueError."""
    with pytest.raises(ValueError, match=r"replay|invalid literal|explodes"):
        explore(make_talker(), replay=text)


# ---- Hypothesis ----


def test_an_empty_tape_is_the_plain_schedule() -> None:
    """It deviates nowhere; and a tape of zeros doesn't either."""
    for tape in ([], [0] * 50):
        assert explore(make_looker, tape=tape).injected == {}


def test_hypothesis_finds_the_race() -> None:
    """A tape finds it, and shrinks to a few numbers that are not 0."""

    def races(tape: list[int]) -> bool:
        try:
            explore(make_agent, check=check_till, tape=tape, faults=())
        except FailingScheduleError:
            return True
        return False

    tape = find(tapes(max_size=40), races, settings=settings(derandomize=True, database=None, max_examples=2_000))
    assert 0 < len([number for number in tape if number]) <= 3


def test_a_tape_drives_everything() -> None:
    """Orders, faults and one act from outside come from it."""
    menu = [fault for fault in MENU if fault.kind is FaultKind.CANCEL_RUN]
    source = Driven(Tape([8, 0, 1]), menu, first=True)
    assert [source.act("", step, menu) for step in range(9)] == [None] * 7 + menu + [None]


# ---- what it asks for ----


def make_sync() -> Agent:
    """An agent whose tool is an ordinary function."""

    @tool
    def look(n: int) -> str:
        """Look."""
        return str(n)

    return Agent(ScriptedModel([[call("c1", "look", n=4)], say("Done.")]), tools=[look])


def test_threads_are_refused_with_what_to_do() -> None:
    """A tool that is an ordinary function is refused; inline, it is called on the loop and does what it does."""
    with pytest.raises(TypeError, match=r"'look' is an ordinary function.*make it async, or say explore\(…, sync_tools"):
        explore(make_sync)
    texts: list[str] = []

    def check(agent: Agent, events: Any, result: Any) -> None:
        texts.extend(message.text for message in agent.messages if message.role == "tool")

    explore(make_sync, check=check, sync_tools="inline", faults=(), schedules=5)
    assert texts == ["4"] * 5


def test_hooks_have_fault_points() -> None:
    """Each hook that the agent was made with goes wrong now and then, and the run goes on (G15)."""

    def make() -> Agent:
        hooks = Hooks(transform_context=lambda messages: messages, should_stop_after_turn=lambda state: False)
        return Agent(ScriptedModel([say("a")]), hooks=hooks)

    report = explore(make, faults=["hook raises"], schedules=60)
    assert report.injected["hook raises"] > 0
    assert set(report.ended) == {"completed"}


def test_all_faults_are_injected_some_time() -> None:
    """In some hundred schedules of an agent with everything, each kind is injected: none is a word only."""

    def make() -> Agent:
        agent = make_looker()
        return Agent(
            agent.state.model, tools=agent.state.tools, hooks=Hooks(after_tool_result=lambda result: None),
            config=KernelConfig(cancel_grace=1),
        )  # fmt: skip

    injected = explore(make, schedules=300).injected
    assert {FaultKind(what.partition("@")[0]) for what in injected if what != "order"} == ALL_FAULTS


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"schedules": 0}, "schedules must be at least 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"chooser": "exhaustive", "deviations": -1}, "deviations must be at least 0"),
        ({"replay": "v1", "tape": []}, "replay and tape are one schedule each"),
        ({"faults": ["explode"]}, "faults has 'explode', and the kinds are stream breaks, "),
        ({"chooser": "lucky"}, "chooser must be mixed"),
        ({"faults": ["tool explodes"]}, "tool explodes"),
        ({"sync_tools": "yes"}, "sync_tools must be"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Any, error: str) -> None:
    """A ValueError names the argument."""
    with pytest.raises(ValueError, match=error):
        explore(make_talker(), **options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"schedules": "5"}, "schedules must be an int"),
        ({"schedules": 2.5}, "schedules must be an int"),
        ({"max_steps": None}, "max_steps must be an int"),
        ({"deviations": True}, "deviations must be an int"),
        ({"faults": "tool slow"}, r"faults must be a collection of kinds, such as \['tool slow'\]"),
        ({"replay": 5}, "replay must be a text"),
        ({"tape": ["a"]}, "a tape must have whole numbers"),
        ({"check": 5}, "check must be a function"),
        ({"scenario": 5}, "scenario must be a function"),
        ({"make_agent": 5}, "make_agent must be a function"),
    ],
    ids=str,
)
def test_what_is_of_a_wrong_type_is_refused(options: Any, error: str) -> None:
    """A TypeError names the argument, before anything is simulated."""
    with pytest.raises(TypeError, match=error):
        explore(**{"make_agent": lambda: pytest.fail("it was simulated")} | options)


def test_what_is_no_agent_is_refused() -> None:
    """make_agent must make one, and a new one that does not run."""
    with pytest.raises(TypeError, match="make_agent must return a new"):
        explore(lambda: "me")  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="the scenario must be an async"):
        explore(make_talker(), lambda agent: 5)  # type: ignore[arg-type,return-value]


def test_inside_a_running_loop_it_says_what_to_do() -> None:
    """It runs loops of its own."""

    async def main() -> Report:
        return explore(make_talker())

    with pytest.raises(RuntimeError, match="call it from an ordinary function"):
        asyncio.run(main())


def test_a_closed_agent_is_at_rest() -> None:
    """A scenario may close its agent."""

    async def scenario(agent: Agent) -> None:
        async with agent:
            await agent.prompt("Go.")

    explore(make_talker(), scenario, schedules=60)


def test_a_simulation_leaves_nothing_behind() -> None:
    """Its loop is closed, whatever happened."""
    waits = lambda agent: asyncio.Event().wait()  # noqa: E731
    trial = Trial(make_talker(), waits, None, kinds=frozenset(), max_steps=1_000, sync_tools="refuse", again=True)
    simulation = Simulation(trial, Replayed({}))
    outcome = simulation.run()
    assert [problem.claim for problem in outcome.problems] == ["liveness"]
    assert simulation.loop.is_closed()
