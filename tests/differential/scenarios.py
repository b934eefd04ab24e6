"""Random scenarios in the part of the language that Pi has counterparts for, one for each seed; and how one is made small.

Whatever `pi_runner.mjs` can play may come. What Pi has nothing for does not come: retries, compaction, limits, timeouts,
resources, single queued items taken out again. Nor does what ends in a difference at once, of which `rules.py` has a
scenario each: a model or tool that ignores a cancel, a listener that raises, a stream without an end, calls that share an
id. Texts of queued messages and ids of calls are distinct, so that a difference says which message it is about.

The draw is plain and seeded: Hypothesis repeats itself in a language as wide as this one (two scenarios in three had no
tool call in them), and a seed is shorter to pass on.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

Data = dict[str, Any]

TYPES: Final = [
    "run.started", "turn.started", "message.accepted", "message.started", "message.updated", "message.ended",
    "tool.started", "tool.updated", "tool.ended", "turn.ended", "run.finished",
]  # fmt: skip
"""Native events of which Pi tells as well."""

NAMES: Final = ("t", "u", "v")
"""The tools. `v` wants an argument."""

NEEDS: Final = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
OPEN: Final = [{"open": "g"}, {"open": "h"}]
WAIT: Final = [{"wait": "g"}, {"wait": "h"}]


def scenario_of(seed: int) -> Data:
    """The scenario of this seed. One in three has no cancel, one in three no failing model or hook, one in two no hooks."""
    draw = _Draw(seed)
    cancel, fails, hooks = draw.chance(2 / 3), draw.chance(2 / 3), draw.chance(1 / 2)
    made = {
        "config": draw.config(),
        "tools": [draw.tool(name) for name in NAMES],
        "model": [draw.response(fails) for _ in range(draw.up_to(2, 8))],
        "hooks": draw.hooks(fails) if hooks else {},
        "subscribers": [{"slow": "g"}] if draw.chance(1 / 30) else [],
        "when": [*(draw.rule(cancel) for _ in range(draw.up_to(0, 5))), *draw.opening()],
        "drive": [{"prompt": "P"}, *(draw.step() for _ in range(draw.up_to(0, 4)))],
    }
    return _told_apart(made)


class _Draw:
    """Draws parts of scenarios."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.one = self._random.choice
        self.up_to = self._random.randint

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def some(self, choices: list[Any], most: int, least: int = 0) -> list[Any]:
        return [self.one(choices) for _ in range(self.up_to(least, most))]

    def config(self) -> Data:
        modes = {
            "steering_mode": ["one", "all"],
            "follow_up_mode": ["one", "all"],
            "tool_execution": ["parallel", "sequential"],
        }
        made = {key: self.one(values) for key, values in modes.items() if self.chance(1 / 2)}
        return {**made, "system_prompt": "be brief"} if self.chance(1 / 8) else made

    def tool(self, name: str) -> Data:
        updates = [{"update": "u1"}, {"update": "u2"}, {"late": {"after": "g", "update": "l"}}]
        steps = self.some([*WAIT * 2, *OPEN * 3, *updates * 2], 3)
        end = self.one([*[{"return": "A"}] * 4, {"return": "A", "terminate": True}, {"raise": "e"}])
        made = {"name": name, "script": [*steps, end]}
        if self.chance(1 / 6):
            made["mode"] = "sequential"
        return {**made, "parameters": NEEDS} if name == "v" else made

    def response(self, fails: bool) -> list[Data]:
        texts = [{"text": "a"}, {"text": "b"}, {"reasoning": "r"}]
        calls = [{"call": {"name": name, "arguments": {"path": "x"}}} for name in NAMES]
        odd_calls = [{"call": {"name": name, "arguments": {}}} for name in ("v", "nobody")]
        others = [*WAIT, *OPEN, {"usage": {"input": 1}}, {"text": ""}]
        parts = self.some([*texts * 5, *calls * 7, *odd_calls, *others], 5)
        if fails and self.chance(1 / 12):
            return [*parts, {"fail": {"message": "boom"}}]
        if fails and self.chance(1 / 20):
            return [*parts, {"end": "length"}]
        return [*parts, {"end": "stop"}] if self.chance(1 / 10) else parts

    def hooks(self, fails: bool) -> Data:
        odd = [{"raise": "h"}] if fails and self.chance(1 / 3) else []
        before = {name: self.one([{"block": "no"}, {"raise": "h"}, *WAIT]) for name in NAMES if self.chance(1 / 3)}
        made: Data = {"before_tool_call": before} if self.chance(2 / 3) else {}
        for hook in ("transform_context", "after_tool_result", "should_stop_after_turn"):
            if self.chance(1 / 3):
                made[hook] = self.one([{}, {}, *WAIT, *odd])
        return {**made, "should_stop_after_turn": self.chance(1 / 4)} if self.chance(1 / 6) else made

    def rule(self, cancel: bool) -> Data:
        roles = [{"type": f"message.{end}", "role": role} for end in ("started", "ended") for role in ("assistant", "tool")]
        event = self.one([*({"type": type} for type in TYPES), *roles])
        plain = [*[{"steer": "S"}, {"follow_up": "F"}] * 3, *OPEN, {"prompt": "P"}, {"reset": True}]
        cancels = [{"cancel": "user"}] if cancel and self.chance(1 / 3) else []
        return {"event": event, "nth": self.up_to(1, 4), "do": [*self.some(plain, 2, 1 - len(cancels)), *cancels]}

    def opening(self) -> list[Data]:
        """Rules that open the gates at some time: else most scenarios would end where somebody waits in vain."""
        event = self.one(
            [{"type": "message.accepted"}, {"type": "message.started", "role": "assistant"}, {"type": "tool.ended"}]
        )
        late = [{"event": {"type": "turn.started"}, "nth": self.up_to(2, 3), "do": OPEN}] if self.chance(1 / 2) else []
        return late + (
            [{"event": event, "nth": self.up_to(1, 2), "do": self.some(OPEN, 2, 1)}] if self.chance(3 / 4) else []
        )

    def step(self) -> Data:
        rare = [{"open": "g"}, {"wait_for_idle": True}, {"cancel": "idle"}, {"reset": True}]
        made: Data = self.one([*[{"prompt": "P"}, {"continue": True}, {"steer": "S"}, {"follow_up": "F"}] * 3, *rare])
        return made


TOLD: Final = ("steer", "follow_up", "prompt")


def _told_apart(scenario: Data) -> Data:
    """The scenario, with a number in the text of each message and in the id of each call."""
    number = iter(range(1, 1000))

    def apart(action: Data) -> Data:
        return {key: f"{value}{next(number)}" if key in TOLD else value for key, value in action.items()}

    def numbered(part: Data, id: str) -> Data:
        return {"call": {"id": id, **part["call"]}} if "call" in part else part

    answers = enumerate(scenario["model"])
    model = [[numbered(part, f"c{place}{at}") for at, part in enumerate(parts)] for place, parts in answers]
    when = [{**rule, "do": [apart(action) for action in rule["do"]]} for rule in scenario["when"]]
    return {**scenario, "model": model, "when": when, "drive": [apart(step) for step in scenario["drive"]]}


# ---- smaller ----


def smaller(scenario: Data, fails: Callable[[Data], bool]) -> Data:
    """A scenario that still *fails*, from which nothing can be left out without mending it."""
    while (less := next((less for less in _lesser(scenario) if fails(less)), None)) is not None:
        scenario = less
    return scenario


def _lesser(value: Any) -> Iterator[Any]:
    """*value* with one thing left out, outer things first. A part, a step, an action and a pattern stay whole."""
    if isinstance(value, dict) and not any(isinstance(one, dict | list) for one in value.values()):
        return
    places = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    if isinstance(value, list) and len(value) > 2:
        yield from (value[: len(value) // 2], value[len(value) // 2 :])
    for place in places:
        if place not in WHOLE:
            yield _changed(value, place)
    for place in places:
        for less in _lesser(value[place]):
            yield _changed(value, place, less)


GONE: Final = object()
WHOLE: Final = ("event", "do", "call", "script", "name")


def _changed(value: Any, place: Any, to: Any = GONE) -> Any:
    if isinstance(value, dict):
        return {key: to if key == place else one for key, one in value.items() if key != place or to is not GONE}
    return [to if at == place else one for at, one in enumerate(value) if at != place or to is not GONE]
