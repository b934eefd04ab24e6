"""The scenarios. Each begins with an engine that is empty and no worker."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from kernel.engines.port import Order
from kernel.engines.suite.bench import PATIENCE, Bench, WorkerProcess, expect
from kernel.engines.suite.plans import plan, turn
from kernel.events import RunFinished, ToolEnded, TurnEnded
from kernel.messages import ToolMessage
from kernel.resuming import INTERRUPTED

Figures = dict[str, float]

TWO_TURNS: Final = plan(
    turn("Let me see.", calls=[("note", {"text": "one"})]),
    turn("And.", calls=[("note", {"text": "two"}), ("wait", {"gate": "go"}), ("once", {"gate": "go"})]),
    turn("Done."),
)


async def hello(bench: Bench) -> Figures:
    """Three turns with a tool each and an answer; a key that comes twice is one order."""
    await bench.worker()
    text = plan(*(turn("So.", calls=[("note", {"text": str(n)})]) for n in range(3)), turn("Hello."))
    numbers = {await bench.engine.submit("s", Order("prompt", text), key="once") for _ in range(3)}
    (end,) = await bench.finished("s")
    expect((len(numbers), end.result.status, end.result.final_text), (1, "completed", "Hello."), "the run")
    expect([m.text for m in await bench.messages("s") if isinstance(m, ToolMessage)], ["noted 0", "noted 1", "noted 2"], "")
    return {}


async def steer(bench: Bench) -> Figures:
    """What is steered while tools run is in the next request."""
    await bench.worker()
    await bench.prompt("s", TWO_TURNS)
    await bench.ran("wait")
    start = time.perf_counter()
    number = await bench.engine.submit("s", Order("steer", "left"))
    expect((await bench.engine.answer("s", number)).status, "taken", "the order")
    took = time.perf_counter() - start
    bench.world.open("go")
    await bench.finished("s")
    expect((await bench.said("s"))[1:], ["left"], "what was steered")
    expect((await bench.messages("s"))[-1].text, "Done.", "the answer")
    return {"steer taken, ms": took * 1000}


async def cancel(bench: Bench) -> Figures:
    """A cancel reaches a running tool; the session goes on afterwards."""
    await bench.worker()
    await bench.prompt("s", TWO_TURNS)
    await bench.ran("wait")
    start = time.perf_counter()
    await bench.engine.submit("s", Order("cancel", reason="enough"))
    await bench.until(lambda: bench.world.happened("cancelled"))
    took = time.perf_counter() - start
    (end,) = await bench.finished("s")
    expect((end.result.status, end.result.reason), ("cancelled", "enough"), "the run")
    await bench.prompt("s", plan(turn("On we go.")))
    expect([event.result.status for event in await bench.finished("s", 2)], ["cancelled", "completed"], "the runs")
    return {"cancel until the tool hears it, ms": took * 1000}


async def killed(bench: Bench) -> Figures:
    """A worker dies in turn two, with a finished and two running tools, while another one is there."""
    first = await _in_turn_two(bench)
    await bench.worker()
    start = time.perf_counter()
    await first.kill()
    return await _ends_well(bench, start)


async def killed_alone(bench: Bench) -> Figures:
    """The only worker dies, and comes back."""
    await (await _in_turn_two(bench)).kill()
    start = time.perf_counter()
    await bench.worker()
    return await _ends_well(bench, start)


async def _in_turn_two(bench: Bench) -> WorkerProcess:
    """A worker in turn two, with a finished tool whose result is stored and two running ones."""
    worker = await bench.worker()
    await bench.prompt("s", TWO_TURNS)
    await bench.ran("wait")
    await bench.ran("once")
    await _stored(bench, 2)
    return worker


async def _stored(bench: Bench, notes: int) -> None:
    """Wait until so many results of `note` are stored."""
    async with asyncio.timeout(PATIENCE):
        async for told in bench.engine.events("s"):
            if isinstance(told.event, ToolEnded) and told.event.name == "note":
                notes -= 1
                if not notes:
                    return


async def _ends_well(bench: Bench, start: float) -> Figures:
    """What may run again does, what may not does not, what had ended is not done again."""
    await bench.ran("wait", 2)
    took = time.perf_counter() - start
    bench.world.open("go")
    (end,) = await bench.finished("s")
    expect(end.result.status, "completed", "the run")
    results = {m.name: m.text for m in await bench.messages("s") if isinstance(m, ToolMessage)}
    expect(results, {"note": "noted two", "wait": "passed go", "once": INTERRUPTED}, "the results")
    times = {tool: set(bench.runs_of(tool).values()) for tool in ("note", "wait", "once")}
    expect(times, {"note": {1}, "wait": {2}, "once": {1}}, "how often each execution began")
    return {"failover, s": took}


async def paused(bench: Bench, seconds: float = 10) -> Figures:
    """A worker stands still for longer than its lease and goes on: the other one has taken over, and nothing is twice."""
    first = await _in_turn_two(bench)
    first.pause()
    await bench.worker()
    await bench.ran("wait", 2)
    bench.world.open("go")
    (end,) = await bench.finished("s")
    await asyncio.sleep(seconds)
    first.go_on()
    await bench.prompt("s", plan(turn("Again.")))
    ends = await bench.finished("s", 2)
    expect([event.result.status for event in ends], ["completed", "completed"], "the runs")
    expect(ends[0], end, "the first end")
    expect((await bench.messages("s"))[-1].text, "Again.", "the answer")
    return {}


async def late(bench: Bench, tries: int = 100) -> Figures:
    """Follow-ups at random moments around the end of a run: all of them are answered."""
    await bench.worker()
    draw = random.Random(4)
    for number in range(tries):
        await bench.prompt(f"s{number}", plan(turn("First.", calls=[("note", {"text": "x"})]), turn("Last.")))
        await asyncio.sleep(draw.uniform(0, 0.06))
        await bench.engine.submit(f"s{number}", Order("follow_up", "and?"))
    for number in range(tries):
        messages = await bench.messages(f"s{number}")
        expect(messages[-1].text, "heard and?", f"the answer in try {number}")
    return {"lost": 0}


async def shared(bench: Bench, sessions: int = 300) -> Figures:
    """Two workers share sessions: each session is served by one of them at a time, and both have some."""
    text = plan(*(turn("So.", calls=[("note", {"text": str(n)})]) for n in range(3)), turn("Hello."))
    workers = [await bench.worker(), await bench.worker()]
    start, before = time.perf_counter(), sum(worker.cpu_seconds() for worker in workers)
    for number in range(sessions):
        await bench.prompt(f"s{number}", text)
    for number in range(sessions):
        expect((await bench.messages(f"s{number}"))[-1].text, "Hello.", f"the answer of {number}")
    took = time.perf_counter() - start
    cpu = sum(worker.cpu_seconds() for worker in workers) - before
    expect(set(bench.runs_of("note").values()), {1}, "how often each execution began")
    turns = 4 * sessions
    return {"turns/s": turns / took, "CPU ms a turn": cpu * 1000 / turns}


async def long(bench: Bench, turns: int = 1000) -> Figures:
    """So many turns in one session: the cost of one does not grow."""
    await bench.worker()
    text = plan(*(turn("So.", calls=[("note", {"text": "x" * 1000})]) for _ in range(turns)), turn("Hello."))
    await bench.prompt("s", text)
    times: list[float] = []
    async for told in bench.engine.events("s"):
        if isinstance(told.event, TurnEnded):
            times.append(time.perf_counter())
        if isinstance(told.event, RunFinished):
            break
    expect(len(times), turns + 1, "turns")
    tenth = max(1, turns // 10)
    first, last = times[tenth] - times[0], times[-1] - times[-1 - tenth]
    start = time.perf_counter()
    await bench.engine.state("s")
    return {"last tenth by first": last / first, "ms a turn": first / tenth * 1000,
            "opening it, ms": (time.perf_counter() - start) * 1000}  # fmt: skip


async def big(bench: Bench, sizes: tuple[float, ...] = (0.5, 1.5, 3, 6, 20)) -> Figures:
    """Results of so many megabytes."""
    await bench.worker()
    text = plan(*(turn("So.", calls=[("big", {"size": int(size * 1_000_000)})]) for size in sizes), turn("Done."))
    await bench.prompt("s", text)
    await bench.finished("s")
    found = [len(m.text) for m in await bench.messages("s") if isinstance(m, ToolMessage)]
    expect(found, [int(size * 1_000_000) for size in sizes], "the sizes")
    return {}


async def wrong_version(bench: Bench) -> Figures:
    """A worker whose agent has other tools leaves a run that is going alone; the right one goes on with it."""
    first = await _in_turn_two(bench)
    await first.kill()
    other = await bench.worker(bare=True)
    await bench.prompt("t", plan(turn("Here.")))
    await bench.finished("t")  # it serves what it can
    await asyncio.sleep(4)
    expect(bench.runs_of("wait").total(), 1, "executions by the wrong version")
    await bench.worker()
    await bench.ran("wait", 2)
    bench.world.open("go")
    (end,) = await bench.finished("s")
    expect(end.result.status, "completed", "the run")
    await other.stop()
    return {}


async def random_kills(bench: Bench, kills: int = 10) -> Figures:
    """Workers are killed at random moments while sessions run: nothing is lost and nothing is recorded twice."""
    draw, sessions = random.Random(kills), max(8, kills)
    turns = [turn("So.", calls=[("note", {"text": str(n)}), ("once", {"gate": "go"})]) for n in range(4)]
    bench.world.open("go")
    workers = [await bench.worker(8), await bench.worker(8)]
    for number in range(sessions):
        await bench.prompt(f"s{number}", plan(*turns, turn("Hello.")))
        await bench.engine.submit(f"s{number}", Order("follow_up", "and?"))
    for _ in range(kills):
        await asyncio.sleep(draw.uniform(0, 0.4))
        victim = workers.pop(draw.randrange(2))
        await victim.kill()
        workers.append(await bench.worker(8))
    for number in range(sessions):
        messages = await bench.messages(f"s{number}")
        expect((await bench.said(f"s{number}"))[1:], ["and?"], f"what was said to {number}")
        expect(messages[-1].text, "heard and?", f"the answer of {number}")
        ids = Counter(m.call_id for m in messages if isinstance(m, ToolMessage))
        expect((len(ids), set(ids.values())), (8, {1}), f"the results of {number}")
    expect(set(bench.runs_of("once").values()), {1}, "how often what must not run twice began")
    return {"kills": kills}


SCENARIOS: Final[dict[str, Callable[[Bench], Awaitable[Figures]]]] = {
    scenario.__name__: scenario
    for scenario in (
        hello, steer, cancel, killed, killed_alone, paused, late, shared, long, big, wrong_version, random_kills,
    )
}  # fmt: skip
"""By their names, in the order in which they are best played."""
