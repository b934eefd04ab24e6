"""Without its extra each adapter says, when it is imported, what to install."""

import subprocess
import sys

import pytest

from tests.adapters.outside import ROOT


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("kernel.adapters.agui", "ag_ui", "web"),
        ("kernel.adapters.agui_messages", "ag_ui", "web"),
        ("kernel.adapters.acp", "acp", "acp"),
        ("kernel.adapters.acp_updates", "acp", "acp"),
        ("kernel.adapters.telemetry", "opentelemetry", "otel"),
        ("kernel.adapters.telemetry_content", "opentelemetry", "otel"),
        ("kernel.web.app", "starlette", "web"),
        ("kernel.web.app", "agui_inspector", "web"),
        ("kernel.web.hub", "ag_ui", "web"),
    ],
)
def test_what_is_missing_is_said(module: str, library: str, extra: str):
    program = f"""
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import {module}
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f'is missing: pip install "phasekernel[{extra}]"')
