"""Pictures of what happened, as SVG: `timeline` shows a trace over time, `path` marks on the phase diagram where it went.

Both read a trace (`kernel.trace.file`) and decide nothing: what is drawn is what listeners heard.
"""

from kernel.pictures.path import path
from kernel.pictures.timeline import timeline

__all__ = ["path", "timeline"]
