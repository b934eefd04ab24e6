"""Going on with a run whose process is gone: what its core had asked for, and nobody has answered yet.

Theory. Replaying the inputs of a journal gives the core as it was, and with it the effects that were asked for. Those
whose answer is among the inputs are done. Of the others, what may be asked again is asked again; what may not gets the
answer that is true: a tool that must not run twice was interrupted and may have run, a response of which a part is already
in the state was cut. Timers begin anew. Listeners of before are gone with their process.
"""

from typing import Final, final

from kernel.core import Core
from kernel.effects import Barrier, CallModel, Effect, RunTool, Settle, Start, StartTimer
from kernel.errors import Failure
from kernel.inputs import Advance, Input, ResponseFailed, Settled, ToolSettled
from kernel.messages import Text
from statechart import Leaf

INTERRUPTED: Final = (
    "interrupted: the process in which this call was running is gone; it may have run, wholly or in part. "
    "Find out what it did before you call it again"
)
CUT: Final = Failure(
    "interrupted: the process that read the response is gone", code="INTERRUPTED", retryable=True
)


@final
class Outstanding:
    """The effects of a core that no input has answered. Told of each step of a replay, in order."""

    def __init__(self) -> None:
        self._works: dict[int, Start] = {}
        self._timers: dict[int, StartTimer] = {}
        self._barrier: Barrier | None = None
        self._settle: Settle | None = None

    def note(self, input: Input, effects: list[Effect]) -> None:
        """*input* was taken, and asked for *effects*."""
        if type(input) is Advance and self._barrier is not None and input.token == self._barrier.token:
            self._barrier = None
        elif type(input) is Settled:
            self._settle = None
        for effect in effects:
            if isinstance(effect, Start):
                self._works[effect.work] = effect
            elif type(effect) is StartTimer:
                self._timers[effect.timer] = effect
            elif type(effect) is Barrier:
                self._barrier = effect
            elif type(effect) is Settle:
                self._settle = effect

    def of(self, core: Core) -> tuple[list[Effect], list[Input]]:
        """What must be asked again of the run of *core*, and what is answered here instead."""
        state = core.state
        again: list[Effect] = []
        answers: list[Input] = []
        for work, effect in self._works.items():
            if work not in state.works:
                continue
            answer = self._answer(core, work, effect)
            if answer is None:
                again.append(effect)
            else:
                answers.append(answer)
        armed = set(state.live.timers.values())
        again += [timer for number, timer in self._timers.items() if number in armed]
        again += [mark for mark in (self._barrier, self._settle) if mark is not None]
        return again, answers

    def _answer(self, core: Core, work: int, effect: Start) -> Input | None:
        if type(effect) is CallModel and core.state.leaf is Leaf.STREAMING:
            return ResponseFailed(work, CUT)
        if type(effect) is not RunTool:
            return None  # where the run was cancelled meanwhile, it is answered without being begun
        call = effect.call
        if core.is_running and core.state.setup.tools[call.name].replay == "safe":
            return None
        ended = "returned" if core.is_running else "cancelled"
        return ToolSettled(work, call.id, (Text(INTERRUPTED),), is_error=True, ended=ended)  # type: ignore[arg-type]
