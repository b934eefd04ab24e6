"""Scenario files, read and checked: what a file may say is what these classes have fields for, and nothing else.

An unknown key, at whatever depth, is refused with a sentence that names it: a misspelt key would otherwise turn a check
into one that can't fail.
"""

from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, final

import attrs
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from kernel import profiles
from kernel.config import CompactionPolicy, KernelConfig, RetryPolicy

PROFILES: Final = {
    "default": profiles.DEFAULT,
    "chapter_06": profiles.CHAPTER_06,
    "checkpoint_09": profiles.CHECKPOINT_09,
    "pi": profiles.PI_0_85,
}

_Policies = TypeVar("_Policies", KernelConfig, RetryPolicy, CompactionPolicy)
_Nth = Annotated[int, Meta(ge=1)]


class ScenarioError(ValueError):
    """A scenario that can't be run as it stands."""


class Checked(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An object of a scenario file, with all the keys that it may have."""


class OneOf(Checked, frozen=True):
    """An object that says one thing: exactly one of its keys is given, beside those that go with another one."""

    companions: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        given = [key for key, _ in self._given()]
        if len(given) != 1:
            raise ValueError(f"exactly one key must be given here, not {', '.join(given) or 'none'}")

    @property
    def said(self) -> tuple[str, Any]:
        """The key that is given, and its value."""
        return self._given()[0]

    def _given(self) -> list[tuple[str, Any]]:
        keys = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        values = [(key, getattr(self, name)) for key, name in keys if key not in self.companions]
        return [(key, value) for key, value in values if value is not UNSET]


@final
class Failure(Checked, frozen=True):
    """How a response fails."""

    message: str
    retryable: bool = False
    retry_after: float | None = None
    overflow: bool = False


@final
class Call(Checked, frozen=True):
    """A tool call. Arguments that are a string stand for what a model wrote when it was no JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)


@final
class Tokens(Checked, frozen=True):
    """The usage of a response."""

    input: Annotated[int, msgspec.Meta(ge=0)] = 0
    output: Annotated[int, msgspec.Meta(ge=0)] = 0


@final
class Part(OneOf, frozen=True):
    """A part of a response."""

    text: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    call: Call | UnsetType = UNSET
    wait: str | UnsetType = UNSET
    wait_ignoring_cancel: str | UnsetType = UNSET
    open: str | UnsetType = UNSET
    usage: Tokens | UnsetType = UNSET
    fail: Failure | UnsetType = UNSET
    end: Literal["stop", "tool_use", "length"] | UnsetType = UNSET
    eof: bool | UnsetType = UNSET


@final
class Late(Checked, frozen=True):
    """An update that comes when the tool has returned."""

    after: str
    update: str


@final
class Step(OneOf, frozen=True):
    """A step of a tool."""

    companions = frozenset({"terminate"})
    wait: str | UnsetType = UNSET
    wait_ignoring_cancel: str | UnsetType = UNSET
    open: str | UnsetType = UNSET
    update: str | UnsetType = UNSET
    late: Late | UnsetType = UNSET
    return_: str | UnsetType = field(default=UNSET, name="return")
    raise_: str | UnsetType = field(default=UNSET, name="raise")
    terminate: bool = False


@final
class ToolScript(Checked, frozen=True):
    """A tool. Its script is one for all calls, or one for each call id, `*` for the others."""

    name: str
    script: list[Step] | dict[str, list[Step]]
    mode: Literal["parallel", "sequential"] = "parallel"
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    timeout: float | None = None
    resources: list[str] = field(default_factory=list)


class Action(OneOf, frozen=True):
    """Something that is done while a run is going."""

    steer: str | UnsetType = UNSET
    follow_up: str | UnsetType = UNSET
    cancel: str | bool | UnsetType | None = UNSET
    prompt: str | UnsetType = UNSET
    open: str | UnsetType = UNSET
    reset: bool | UnsetType = UNSET
    unqueue: str | UnsetType = UNSET
    compact: bool | UnsetType = UNSET


@final
class Drive(Action, frozen=True):
    """What the caller does: any action, and what takes a caller who can wait."""

    continue_: bool | UnsetType = field(default=UNSET, name="continue")
    wait_for_idle: bool | UnsetType = UNSET


class HookScript(Checked, frozen=True):
    """What a hook does: it waits for a gate, then it raises, or has nothing to say."""

    wait: str | None = None
    raise_: str | None = field(default=None, name="raise")


@final
class BlockScript(HookScript, frozen=True):
    """What `before_tool_call` does for one tool."""

    block: str | None = None


@final
class HookScripts(Checked, frozen=True):
    """The hooks that there are."""

    before_tool_call: dict[str, BlockScript] | None = None
    should_stop_after_turn: bool | HookScript | None = None
    transform_context: HookScript | None = None
    after_tool_result: HookScript | None = None


@final
class Subscriber(Checked, frozen=True):
    """A further listener: it raises at the nth event of a type, or is slow at each."""

    raise_on: str | None = None
    nth: _Nth = 1
    message: str = "the listener failed"
    slow: str | None = None


@final
class Rule(Checked, frozen=True):
    """At the nth event that the pattern matches, the actions are done."""

    event: dict[str, Any]
    do: list[Action]
    nth: _Nth = 1


@final
class Summary(Checked, frozen=True):
    """How a summary is made."""

    text: str = "summary"
    do: list[Action] = field(default_factory=list)
    wait: str | None = None


@final
class Scenario(Checked, frozen=True):
    """A whole scenario. What is expected of it (`expect`, `pi`) is for its judge."""

    name: str = ""
    why: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    tools: list[ToolScript] = field(default_factory=list)
    model: list[list[Part]] = field(default_factory=list)
    hooks: HookScripts = field(default_factory=HookScripts)
    subscribers: list[Subscriber] = field(default_factory=list)
    when: list[Rule] = field(default_factory=list)
    drive: list[Drive] = field(default_factory=list)
    expect: dict[str, Any] = field(default_factory=dict)
    pi: list[dict[str, Any]] = field(default_factory=list)


@final
@attrs.frozen
class Settings:
    """What `config` of a scenario comes to."""

    config: KernelConfig
    system_prompt: str
    summary: Summary | None


def parse(text: bytes | str) -> Scenario:
    """The scenario that *text* is; ScenarioError when it is none."""
    try:
        scenario = msgspec.json.decode(text, type=Scenario)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScenarioError(f"not a scenario: {error}") from error
    settings_of(scenario, "default")
    return scenario


def settings_of(scenario: Scenario, profile: str) -> Settings:
    """The configuration of *scenario*, under *profile* unless it names one itself."""
    given = dict(scenario.config)
    profile = given.pop("profile", profile)
    if not isinstance(profile, str) or profile not in PROFILES:
        raise ScenarioError(f"config: there is no profile {profile!r}; there are {', '.join(PROFILES)}")
    system_prompt = given.pop("system_prompt", "")
    summary = None
    compaction = given.get("compaction")
    if isinstance(compaction, dict) and "summary" in compaction:
        given["compaction"] = {key: value for key, value in compaction.items() if key != "summary"}
        summary = _summary(compaction["summary"])
    if isinstance(given.get("retry"), dict):
        given["retry"] = _made(RetryPolicy(), given["retry"], "config.retry")
    if isinstance(given.get("compaction"), dict):
        given["compaction"] = _made(CompactionPolicy(), given["compaction"], "config.compaction")
    return Settings(_made(PROFILES[profile], given, "config"), system_prompt, summary)


def _summary(value: Any) -> Summary:
    try:
        return Summary(text=value) if isinstance(value, str) else msgspec.convert(value, Summary)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"config.compaction.summary: {error}") from error


def _made(start: _Policies, given: dict[str, Any], place: str) -> _Policies:
    known = attrs.fields_dict(type(start))
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ScenarioError(f"{place} has no key {unknown[0]!r}; it has {', '.join(known)}")
    try:
        return attrs.evolve(start, **given)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"{place}: {error.args[0]}") from error
