"""`check_tool`: does a tool keep the contract of `kernel.Tool`?"""

import asyncio
import copy
import inspect
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

from kernel.errors import describe
from kernel.frozen import thaw
from kernel.ports import Tool
from kernel.setup import ToolSpec
from kernel.testing.contracts import SETTLING, Broken, ContractReport, Examiner, leaving_nothing
from kernel.tools import spec_of, to_result

_OTHER: Final[dict[str, Any]] = {
    "string": 7, "integer": "x", "number": "x", "boolean": "x", "array": "x", "object": "x", "null": "x",
}  # fmt: skip
"""For each type of JSON Schema a value of another one."""


async def check_tool(
    tool: Tool,
    *,
    good: Sequence[Mapping[str, Any]],
    bad: Sequence[Mapping[str, Any]] = (),
    patience: float = 30.0,
) -> ContractReport:
    """Run *tool* through its contract. It is really executed, several times, with each of the *good* arguments.

    *bad* are arguments that it must refuse, beside those that the check makes of the good ones: without something that is
    required, and with a value of another type. *patience* is in seconds, for each promise. The report has a line for each
    promise; `unwrap` raises when one is broken. In a test of yours:

    >>> import asyncio
    >>> from kernel import tool
    >>> from kernel.testing import check_tool
    >>> @tool
    ... def add(left: int, right: int = 1) -> int:
    ...     '''Add two numbers.'''
    ...     return left + right
    >>> asyncio.run(check_tool(add, good=[{"left": 2}], bad=[{"left": None}])).unwrap().passed
    True
    """
    check = _Check(tool, [dict(arguments) for arguments in good], [dict(arguments) for arguments in bad])
    if not check.good:
        raise ValueError("good must have arguments that the tool takes: without any, nothing can be seen of it")
    examiner = Examiner(patience)
    for promise, look in check.promises():
        await examiner.look(promise, look)
    return ContractReport(f"tool {getattr(tool, 'name', tool)!r}", tuple(examiner.findings))


@final
class Context:
    """What a tool gets beside its arguments, outside of a run. `updates` is what it said."""

    run_id = "check"

    def __init__(self) -> None:
        self.call_id = "check"
        self.cancelled = False
        self.updates: list[str] = []
        self.held: asyncio.Future[None] | None = None

    def update(self, text: str) -> None:
        """Keep what was said."""
        if not isinstance(text, str):
            raise TypeError(f"update() takes a string, not {text!r}")
        self.updates.append(text)

    def hold(self, ended: "asyncio.Future[None]", _thread: threading.Thread | None = None) -> None:
        """Something of the call goes on until *ended*."""
        self.held = ended


@final
class _Check:
    def __init__(self, tool: Any, good: list[dict[str, Any]], bad: list[dict[str, Any]]) -> None:
        self._tool = tool
        self.good = good
        self.bad = bad

    def promises(self) -> Iterable[tuple[str, Any]]:
        """Each promise in words, and how to look at it."""
        return (
            ("an agent takes it: name, description, schema and limits are ones", self.shape),
            ("a model is told what it does", self.description),
            ("arguments that are right are taken, and not changed", self.accepts),
            ("arguments that are wrong are refused, in words from which a model can mend them", self.refuses),
            ("resources() names what a call holds, with strings", self.resources),
            ("it returns what can be told to a model", self.executes),
            ("calls at once do not disturb each other", self.together),
            ("cancelled, it lets go", self.cancelled),
        )

    @property
    def spec(self) -> ToolSpec:
        """Raises what an agent would raise."""
        return spec_of(self._tool)

    async def shape(self) -> None:
        """Everything that an agent looks at when it is handed in."""
        _ = self.spec

    async def description(self) -> None:
        """And of each parameter it is told at least its type or what it may be."""
        if not self.spec.description.strip():
            raise Broken("its description is empty: write a docstring")
        untold = [name for name, told in self.spec.parameters.get("properties", {}).items() if not told]
        if untold:
            raise Broken(f"of these parameters nothing is told: {', '.join(untold)}")

    async def accepts(self) -> None:
        """With a copy, as the kernel does it."""
        for arguments in self.good:
            given = copy.deepcopy(arguments)
            try:
                self.spec.validate(given)
            except Exception as error:
                raise Broken(f"{arguments} is refused: {describe(error)}") from error
            if given != arguments:
                raise Broken(f"{arguments} became {given}")

    async def refuses(self) -> None:
        """What is required and missing, what has another type, and what the caller says is bad."""
        for arguments in [*self.bad, *self._spoiled()]:
            try:
                self.spec.validate(copy.deepcopy(arguments))
            except Exception as error:
                if len(str(error).split()) < 3:
                    raise Broken(f"{arguments} is refused with no more than {str(error)!r}") from error
            else:
                raise Broken(f"{arguments} is taken")

    def _spoiled(self) -> Iterator[dict[str, Any]]:
        schema = thaw(self.spec.parameters)
        for arguments in self.good:
            for name in schema.get("required", ()):
                yield {key: value for key, value in arguments.items() if key != name}
            for name, told in schema.get("properties", {}).items():
                kind = told.get("type") if isinstance(told, dict) else None
                if isinstance(kind, str) and name in arguments:
                    yield arguments | {name: _OTHER[kind]}

    async def resources(self) -> None:
        """Where it has any."""
        spec = self.spec
        for arguments in self.good if spec.resources is not None else ():
            assert spec.resources is not None
            keys = spec.resources(spec.validate(copy.deepcopy(arguments)))
            if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
                raise Broken(f"for {arguments} it answers {keys!r}")

    async def _run(self, arguments: dict[str, Any], context: Context) -> Any:
        value = self.spec.execute(self.spec.validate(copy.deepcopy(arguments)), context)
        return await value if inspect.isawaitable(value) else value

    async def executes(self) -> None:
        """With each of the good arguments. An error result is a result."""
        with leaving_nothing() as look:
            for arguments in self.good:
                context = Context()
                try:
                    to_result(await self._run(arguments, context))
                except Exception as error:
                    raise Broken(f"with {arguments} it raises {type(error).__name__}: {describe(error)}") from error
                context.update("what is said after the end is nobody's harm")
            await look()

    async def together(self) -> None:
        """Twice the same, unless it says that it wants to be alone."""
        if self.spec.mode == "sequential" or self.spec.resources is not None:
            return
        await asyncio.gather(*(self._run(self.good[0], Context()) for _ in range(2)))

    async def cancelled(self) -> None:
        """In its first step, and a little later. What works in a thread sees `context.cancelled`."""
        for steps in (1, 3):
            context = Context()
            with leaving_nothing() as look:
                task = asyncio.create_task(self._run(self.good[0], context))
                for _ in range(steps):
                    await asyncio.sleep(0)
                context.cancelled = True
                task.cancel()
                _, deaf = await asyncio.wait({task}, timeout=SETTLING)
                if deaf:
                    raise Broken(f"it goes on {SETTLING} s after it was cancelled")
                if not task.cancelled():
                    task.exception()
                if context.held is not None:
                    await asyncio.wait({context.held})
                await look()
