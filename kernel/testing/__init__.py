"""What tests of an application need: fakes for each port, a loop without sleeping, ways to keep events, and a simulator.

Everything here is public and keeps its promises as the rest of the kernel does. `docs/simulator.md` is about `explore`.
"""

from kernel.testing.check_model import check_model
from kernel.testing.check_tool import check_tool
from kernel.testing.choosers import Exhaustive, Priorities, Seeded, Tape, TaskChooser, fifo, tapes
from kernel.testing.collect import Recorder, collect
from kernel.testing.contracts import ContractBrokenError, ContractReport, Finding
from kernel.testing.explore import FailingScheduleError, Report, explore, prompt_and_wait
from kernel.testing.fault_points import faulty_hook, faulty_listener, faulty_model, faulty_tool
from kernel.testing.faults import ALL_FAULTS, Fault, FaultKind, InjectedError
from kernel.testing.gates import Gates
from kernel.testing.loop import Chooser, Deadlock, Livelock, SimulatedLoop, SimulationError, simulate
from kernel.testing.models import CUT_OFF, ScriptedModel, call, say
from kernel.testing.trial import Problem

__all__ = [
    "ALL_FAULTS", "CUT_OFF", "Chooser", "ContractBrokenError", "ContractReport", "Deadlock", "Exhaustive",
    "FailingScheduleError", "Fault", "FaultKind", "Finding", "Gates", "InjectedError", "Livelock", "Priorities",
    "Problem", "Recorder", "Report", "ScriptedModel", "Seeded", "SimulatedLoop", "SimulationError", "Tape",
    "TaskChooser", "call", "check_model", "check_tool", "collect", "explore", "faulty_hook", "faulty_listener",
    "faulty_model", "faulty_tool", "fifo", "prompt_and_wait", "say", "simulate", "tapes",
]  # fmt: skip
