"""What an agent works with: a model, tools, a system prompt. Captured when it is handed in, so that later changes of the
objects change nothing; replaced as a whole by `configure`, at the next boundary while a run is going.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, final

from attrs import field, frozen

from kernel.frozen import FrozenDict
from kernel.values import Value


@final
@frozen(eq=False, repr=False)
class ToolSpec(Value):
    """A tool as it was when it was handed in."""

    name: str
    description: str
    parameters: FrozenDict
    execute: Callable[..., Any] = field(repr=False)
    validate: Callable[[dict[str, Any]], dict[str, Any]] = field(repr=False)
    mode: Literal["parallel", "sequential"] = "parallel"
    timeout: float | None = None
    resources: Callable[[dict[str, Any]], Sequence[str]] | None = field(default=None, repr=False)
    replay: Literal["never", "safe"] = "never"


@final
@frozen(eq=False, repr=False)
class OutputSpec(Value):
    """What a run's final answer must fit. `check` makes the value of the answer's text, or raises what is wrong with it."""

    schema: FrozenDict
    check: Callable[[str], Any] = field(repr=False)


@final
@frozen(eq=False, repr=False)
class Setup(Value):
    """What the next request is made with. `stream` is the model's bound method; the core never calls any of these."""

    model: Any = field(repr=False)
    stream: Callable[..., Any] = field(repr=False)
    tools: Mapping[str, ToolSpec]
    system_prompt: str = ""
    reasoning_effort: str | None = None
    context_window: int | None = None
    output: OutputSpec | None = None
