"""What tests of an application need: fakes for each port, a loop without sleeping, and ways to keep events.

Everything here is public and keeps its promises as the rest of the kernel does.
"""

from kernel.testing.choosers import Exhaustive, Priorities, Seeded, Tape, TaskChooser, fifo, tapes
from kernel.testing.collect import Recorder, collect
from kernel.testing.fault_points import faulty_hook, faulty_listener, faulty_model, faulty_tool
from kernel.testing.faults import ALL_FAULTS, Fault, FaultKind, InjectedError
from kernel.testing.gates import Gates
from kernel.testing.loop import Chooser, Deadlock, Livelock, SimulatedLoop, SimulationError, simulate
from kernel.testing.models import CUT_OFF, ScriptedModel, call, say

__all__ = [
    "ALL_FAULTS", "CUT_OFF", "Chooser", "Deadlock", "Exhaustive", "Fault", "FaultKind", "Gates", "InjectedError",
    "Livelock", "Priorities", "Recorder", "ScriptedModel", "Seeded", "SimulatedLoop", "SimulationError", "Tape",
    "TaskChooser", "call", "collect", "faulty_hook", "faulty_listener", "faulty_model", "faulty_tool", "fifo", "say",
    "simulate", "tapes",
]  # fmt: skip
