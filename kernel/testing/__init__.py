"""What tests of an application need: fakes for each port, a loop without sleeping, and ways to keep events.

Everything here is public and keeps its promises as the rest of the kernel does.
"""

from kernel.testing.choosers import Exhaustive, Priorities, Seeded, Tape, TaskChooser, fifo, tapes
from kernel.testing.collect import Recorder, collect
from kernel.testing.gates import Gates
from kernel.testing.loop import Chooser, Deadlock, Livelock, SimulatedLoop, SimulationError, simulate
from kernel.testing.models import CUT_OFF, ScriptedModel, call, say

__all__ = [
    "CUT_OFF", "Chooser", "Deadlock", "Exhaustive", "Gates", "Livelock", "Priorities", "Recorder", "ScriptedModel",
    "Seeded", "SimulatedLoop", "SimulationError", "Tape", "TaskChooser", "call", "collect", "fifo", "say", "simulate",
    "tapes",
]  # fmt: skip
