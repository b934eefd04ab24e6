"""The simulated loop: virtual time, a given order, and no way to hang."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from kernel.testing import Deadlock, Livelock, SimulatedLoop, SimulationError, simulate


def test_an_hour_costs_nothing() -> None:
    """Time jumps to the next timer when nothing is ready."""

    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert simulate(main()) == 3600


def test_timers_of_one_moment_keep_their_order() -> None:
    """Of timers that are due at the same time, the first one set runs first, whatever was set for earlier."""
    said: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for name, delay in (("b", 1), ("c", 1), ("a", 0.5), ("d", 1)):
            loop.call_later(delay, said.append, name)
        await asyncio.sleep(2)

    simulate(main())
    assert said == ["a", "b", "c", "d"]


def test_a_cancelled_timer_does_not_run() -> None:
    """A timer that was cancelled neither runs nor moves the time."""
    loop = SimulatedLoop()
    with loop.active():
        loop.call_later(5, pytest.fail, "it ran").cancel()
        assert loop.timers() == 0
        assert not loop.advance()
    assert loop.time() == 0
    loop.shutdown()


def test_timeouts_and_task_groups_work() -> None:
    """What asyncio offers for structure runs on it."""

    async def main() -> list[str]:
        said: list[str] = []
        async with asyncio.TaskGroup() as group:
            for name, delay in (("late", 2), ("early", 1)):
                group.create_task(_say_after(delay, name, said))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        return said

    assert simulate(main()) == ["early", "late"]


async def _say_after(delay: float, name: str, said: list[str]) -> None:
    await asyncio.sleep(delay)
    said.append(name)


def test_a_deadlock_names_who_is_stuck() -> None:
    """When nothing can happen any more, the error says which tasks wait, and in what."""

    async def main() -> None:
        waiter = asyncio.create_task(asyncio.Event().wait(), name="the waiter")
        await waiter

    with pytest.raises(Deadlock, match=r"the waiter in Event\.wait"):
        simulate(main())


def test_a_livelock_is_ended() -> None:
    """A task that never waits for anything is stopped after so many steps."""

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="no end after 100 steps"):
        simulate(main(), max_steps=100)


def test_both_are_simulation_errors() -> None:
    """One class catches whatever keeps a simulation from its end."""
    assert issubclass(Deadlock, SimulationError)
    assert issubclass(Livelock, SimulationError)


def test_what_main_raises_comes_out() -> None:
    """An exception of the main coroutine is raised by the simulation."""

    async def main() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        simulate(main())


async def _interleaved() -> list[tuple[int, int]]:
    said: list[tuple[int, int]] = []

    async def work(name: int) -> None:
        for step in range(4):
            said.append((name, step))
            await asyncio.sleep(0)

    await asyncio.gather(*(work(name) for name in range(3)))
    return said


def test_without_a_chooser_the_order_is_that_of_asyncio() -> None:
    """First in, first out: the same order as in asyncio's own loop."""
    assert simulate(_interleaved()) == asyncio.run(_interleaved())


def test_a_chooser_finds_other_orders() -> None:
    """Other choices give other orders, and the same choices give the same one."""
    orders = [tuple(simulate(_interleaved(), choose=random.Random(seed).randrange)) for seed in range(8)]
    again = [tuple(simulate(_interleaved(), choose=random.Random(seed).randrange)) for seed in range(8)]
    assert len(set(orders)) > 1
    assert orders == again


def test_a_chooser_keeps_the_order_within_a_task() -> None:
    """Whatever is chosen, the steps of one task stay in order."""
    for seed in range(8):
        said = simulate(_interleaved(), choose=random.Random(seed).randrange)
        for name in range(3):
            assert [step for who, step in said if who == name] == [0, 1, 2, 3]


def test_plain_callbacks_stay_in_order() -> None:
    """A chooser never swaps two callbacks that belong to no task."""
    for seed in range(8):
        said: list[int] = []
        loop = SimulatedLoop(choose=random.Random(seed).randrange)
        with loop.active():
            for number in range(5):
                loop.call_soon(said.append, number)
            loop.drain()
        loop.shutdown()
        assert said == [0, 1, 2, 3, 4]


def test_driving_by_hand() -> None:
    """Step by step: what is ready runs on `step`, what waits for time on `advance`."""
    loop = SimulatedLoop()
    with loop.active():
        task = loop.create_task(asyncio.sleep(7, "done"))
        assert loop.step()
        assert not loop.step()
        assert not task.done()
        assert loop.timers() == 1
        assert loop.advance()
        loop.drain()
        assert (task.result(), loop.time()) == ("done", 7)
        assert not loop.step()
        assert not loop.advance()
    assert loop.shutdown() == []


def test_drain_stops_where_it_is_told() -> None:
    """`drain` ends when its condition holds, and follows timers only when asked."""
    loop = SimulatedLoop()
    said: list[str] = []
    with loop.active():
        for name in "abc":
            loop.call_soon(said.append, name)
        loop.call_later(1, said.append, "timer")
        loop.drain(until=lambda: len(said) == 2)
        assert said == ["a", "b"]
        loop.drain()
        assert said == ["a", "b", "c"]
        loop.drain(time=True)
    assert said == ["a", "b", "c", "timer"]
    loop.shutdown()


def test_shutdown_tells_what_was_left() -> None:
    """Tasks that had not ended are cancelled, and returned."""
    loop = SimulatedLoop()

    async def main() -> None:
        loop.create_task(asyncio.sleep(9), name="left behind")
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    left = loop.shutdown()
    assert [(task.get_name(), task.cancelled()) for task in left] == [("left behind", True)]
    assert loop.is_closed()


def test_shutdown_gives_up_on_what_ignores_it() -> None:
    """A task that swallows every cancellation does not keep `shutdown` from its end."""
    loop = SimulatedLoop()

    async def deaf() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    with loop.active():
        task = loop.create_task(deaf())
        loop.drain()
    assert loop.shutdown() == [task]
    assert not task.done()


def test_exceptions_are_collected() -> None:
    """What asyncio would log is kept."""
    loop = SimulatedLoop()
    with loop.active():
        loop.call_soon(lambda: 1 / 0)
        loop.drain()
    assert [type(each["exception"]) for each in loop.exceptions] == [ZeroDivisionError]
    loop.shutdown()


def test_async_generators_are_closed() -> None:
    """A generator that was left early runs its cleanup: at once when it is dropped, else at shutdown."""
    closed: list[str] = []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(name)

    kept = numbers("kept")

    async def main() -> None:
        async for _ in numbers("dropped"):
            break
        await asyncio.sleep(1)
        assert closed == ["dropped"]
        await anext(kept)

    simulate(main())
    assert closed == ["dropped", "kept"]


def test_it_serves_a_runner() -> None:
    """Asyncio's own Runner can be given this loop."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(asyncio.sleep(60, "a minute")) == "a minute"


def test_threads_are_refused() -> None:
    """A function for a thread is refused by name."""
    loop = SimulatedLoop()
    with pytest.raises(RuntimeError, match="no threads"):
        loop.run_in_executor(None, print)
    loop.shutdown()


def test_a_closed_loop_takes_nothing() -> None:
    """After the shutdown nothing can be scheduled."""
    loop = SimulatedLoop()
    loop.shutdown()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)


def test_two_loops_do_not_run_in_each_other() -> None:
    """A loop can't be made active inside another one."""
    outer, inner = SimulatedLoop(), SimulatedLoop()
    with outer.active(), pytest.raises(RuntimeError, match="running here already"), inner.active():
        pass
    outer.shutdown()
    inner.shutdown()


def test_run_forever_ends_when_it_is_stopped() -> None:
    """`stop` ends `run_forever` after the step in which it was called."""
    loop = SimulatedLoop()
    loop.call_later(5, loop.stop)
    loop.call_later(6, pytest.fail, "it went on")
    loop.run_forever()
    assert loop.time() == 5
    loop.shutdown()
