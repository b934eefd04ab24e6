"""What every engine must do, run with real processes: `python -m kernel.engines.suite sqlite:FILE`.

Workers are processes of their own, and are killed, paused and started by the suite; what their tools really did is
written down outside of the engine (`plans.Folder`). A scenario is a function that takes a `Bench` and raises
AssertionError; what it returns are figures. Public, for whoever writes an engine: give `Bench` the name that `open_engine`
knows it by.
"""

from kernel.engines.suite.bench import Bench
from kernel.engines.suite.scenarios import SCENARIOS, Figures

__all__ = ["SCENARIOS", "Bench", "Figures"]
