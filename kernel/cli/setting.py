"""The scene of the demo: what is asked, in which directory, and what the model is told."""

from pathlib import Path
from typing import Final

SYSTEM_PROMPT: Final = "You help people with their files. Be brief. Start with: I will look at the files."
QUESTION: Final = "Please look at the files here. What are they about?"
SAMPLE: Final = Path(__file__).parent.parent / "recordings" / "sample"
"""The directory that the recorded answers are about."""
