"""Where Pi and the kernel differ on purpose, one named rule for each difference.

A rule that *rewrites* says in what way Pi's lines differ, and makes ours of them: all the rest must be the same. A rule
that *cuts* says from which line on the two go different ways: all before it must be the same, and nothing behind it is
compared. A rule that does neither is for what random scenarios leave out. Whether a rule applies is read from Pi's lines
and marks alone; ours are left as they are, but for the sentences that each of the two says in its own words.

Each has a small scenario that shows the difference. `docs/pi-differences.md` is made of the rules by
`python -m tests.differential.page`.
"""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, Final

from attrs import frozen

from tests.differential.differences import (
    Lines,
    at_a_hang_after_an_abort,
    at_a_truncated_result,
    at_an_abort_in_an_update,
    at_calls_not_begun,
    at_mark,
    without_calls_of_cut_messages,
    without_cut_messages,
    without_error_of_an_abort,
    without_requests_after_an_abort,
    without_unsaid_messages,
    worded,
)
from tests.differential.pi import Line, Played


@frozen
class Rule:
    """A difference. `share`: the part of all random scenarios that a rule may cut short, and no more."""

    name: str
    pi: str
    here: str
    decided_by: str
    scenario: Line
    rewrite: Callable[[Lines], Lines] | None = None
    cut: Callable[[Played], int | None] | None = None
    share: float = 0.0


@frozen
class Comparison:
    """What the rules left of the two: the lines to be the same, who applied, and where the rest was cut off."""

    ours: Lines
    theirs: Lines
    rules: tuple[str, ...]
    cut_by: str | None

    @property
    def same(self) -> bool:
        """Whether the lines are the same, up to where they were cut."""
        return self.ours == self.theirs


def compare(ours: Played, theirs: Played, rules: "tuple[Rule, ...] | None" = None) -> Comparison:
    """The lines of both, after all rules, or after *rules* alone."""
    rules = RULES if rules is None else rules
    cuts = [(place, rule.name) for rule in rules if rule.cut and (place := rule.cut(theirs)) is not None]
    place, cut_by = min(cuts, default=(len(theirs.lines), None))
    lines, applied = theirs.lines[:place], [cut_by] if cut_by else []
    for rule in rules:
        if rule.rewrite:
            before, lines = lines, rule.rewrite(lines)
            applied += [rule.name] if lines != before else []
    lines = [line for line in lines if "mark" not in line]
    mine = [worded(line, 1) for line in ours.lines] if OWN_SENTENCES in rules else ours.lines
    if cut_by:
        return Comparison(mine[: len(lines)], lines, tuple(applied), cut_by)
    return Comparison([*mine, {"stuck": ours.stuck}], [*lines, {"stuck": theirs.stuck}], tuple(applied), None)


# ---- the rules ----


def _call(id: str, name: str = "t", **arguments: Any) -> Line:
    return {"call": {"id": id, "name": name, "arguments": arguments}}


def _when(event: str, *do: Line) -> Line:
    return {"event": {"type": event}, "do": list(do)}


PROMPT: Final = [{"prompt": "P"}]
TOOL: Final = [{"name": "t", "script": [{"return": "A"}]}]
CANCEL: Final = {"cancel": "user"}

OWN_SENTENCES: Final = Rule(
    "own sentences",
    "Results that Pi itself makes up are in its words.",
    "They are in ours; what they say of is the same.",
    "dialect",
    {"model": [[_call("c1", "nobody")], [{"text": "ok"}]], "drive": PROMPT},
    rewrite=lambda lines: [worded(line, 0) for line in lines],
)

RULES: Final = (
    Rule(
        "a cut message is not sent again",
        "An answer that failed or was aborted is in the next request.",
        "It stays in the conversation and in no request.",
        "cut messages",
        {"model": [[{"text": "a"}, {"fail": {"message": "boom"}}], [{"text": "b"}]], "drive": [*PROMPT, {"prompt": "Q"}]},
        rewrite=without_cut_messages,
    ),
    Rule(
        "no request after a cancel",
        "The model is asked once more after an abort, and its empty answer recorded.",
        "No request, no turn and no message follow a cancel.",
        "G7",
        {"tools": TOOL, "model": [[_call("c1")], [{"text": "b"}]], "when": [_when("tool.ended", CANCEL)], "drive": PROMPT},
        rewrite=without_requests_after_an_abort,
    ),
    Rule(
        "an abort is no error",
        'An aborted message has the error text "Request was aborted".',
        "It has none.",
        "G7",
        {"model": [[{"text": "a"}, {"text": "b"}]], "when": [_when("message.updated", CANCEL)], "drive": PROMPT},
        rewrite=without_error_of_an_abort,
    ),
    Rule(
        "nothing is made up",
        "An answer that was aborted before it had text or reasoning stays as an empty message.",
        "It leaves none.",
        "G3",
        {"model": [[{"wait": "g"}]], "when": [_when("message.started", CANCEL)], "drive": PROMPT},
        rewrite=without_unsaid_messages,
    ),
    Rule(
        "a failed answer leaves no open call",
        "An answer that failed keeps its calls, which are never answered.",
        "It keeps its text alone.",
        "G4",
        {"tools": TOOL, "model": [[_call("c1"), {"fail": {"message": "boom"}}]], "drive": PROMPT},
        rewrite=without_calls_of_cut_messages,
    ),
    OWN_SENTENCES,
    Rule(
        "calls not begun at a cancel are closed",
        "Of the calls that had not begun at an abort, some are told to be aborted, others have neither events nor results.",
        "Each has its start, its end and its result, in source order.",
        "G2, G4",
        {"tools": TOOL, "model": [[_call("c1"), _call("c2")]], "when": [_when("tool.started", CANCEL)], "drive": PROMPT},
        cut=at_calls_not_begun,
        share=0.08,
    ),
    Rule(
        "an update is told when the tool lets go",
        "A listener hears an update inside the tool's own call, so that an abort in "
        "it reaches the tool before its next step.",
        "The update is told in its turn; the tool has gone on to its next wait.",
        "G12",
        {
            "tools": [
                {"name": "t", "script": [{"update": "u"}, {"wait": "g"}]},
                {"name": "u", "script": [{"return": "B"}]},
            ],
            "model": [[_call("c1"), _call("c2", "u")]],
            "when": [_when("tool.updated", CANCEL)],
            "drive": PROMPT,
        },
        cut=at_an_abort_in_an_update,
        share=0.02,
    ),
    Rule(
        "what is queued stays queued after a cancel",
        "Queued messages enter the turn that an abort still opens.",
        "They stay queued.",
        "G7",
        {"model": [[{"text": "a"}]], "when": [_when("turn.ended", {"steer": "S"}, CANCEL)], "drive": PROMPT},
        cut=at_mark("taken after an abort"),
        share=0.07,
    ),
    Rule(
        "what ignores a cancel is given up",
        "What ignores the signal holds the agent for ever.",
        "It is given up after `cancel_grace`.",
        "G8, G13",
        {"model": [[{"wait_ignoring_cancel": "never"}]], "when": [_when("message.started", CANCEL)], "drive": PROMPT},
        cut=at_a_hang_after_an_abort,
        share=0.02,
    ),
    Rule(
        "a silent stream is a failure",
        "A stream that says nothing more, or ends without an end, hangs the run.",
        "It fails the run after `stream_idle_timeout`, or at once.",
        "G11",
        {"model": [[{"text": "a"}, {"eof": True}]], "drive": PROMPT},
        cut=at_mark("a silent stream"),
        share=0.15,
    ),
    Rule(
        "a cut message is no tail",
        "`continue()` after a failure or an abort takes a queued follow-up, or is refused.",
        "It asks the model again.",
        "cut messages",
        {"model": [[{"fail": {"message": "boom"}}], [{"text": "b"}]], "drive": [*PROMPT, {"continue": True}]},
        cut=at_mark("continue after a cut message"),
        share=0.12,
    ),
    Rule(
        "a context hook falls back",
        "A context hook that throws fails the run.",
        "The run goes on with the hook's input.",
        "G15",
        {"model": [[{"text": "a"}]], "hooks": {"transform_context": {"raise": "h"}}, "drive": PROMPT},
        cut=at_mark("hook raised", hook="transform_context"),
        share=0.03,
    ),
    Rule(
        "a call ends before the hook that is told of it",
        "A call has ended when the hook behind it has returned, which may change the result.",
        "It has ended when the tool has; the hook is told of the result.",
        "chapter 06",
        {"tools": TOOL, "model": [[_call("c1")]], "hooks": {"after_tool_result": {"wait": "g"}}, "drive": PROMPT},
        cut=at_mark("hook waits", hook="after_tool_result"),
        share=0.04,
    ),
    Rule(
        "a failing hook leaves the result",
        "A hook that throws after a call makes its result an error.",
        "The result stays, and the failure is told.",
        "G15",
        {
            "tools": TOOL,
            "model": [[_call("c1")], [{"text": "b"}]],
            "hooks": {"after_tool_result": {"raise": "h"}},
            "drive": PROMPT,
        },
        cut=at_mark("hook raised", hook="after_tool_result"),
        share=0.02,
    ),
    Rule(
        "a failing stop hook says no",
        "A stop hook that throws fails the run after its turn has ended.",
        "It counts as no.",
        "G15",
        {"model": [[{"text": "a"}]], "hooks": {"should_stop_after_turn": {"raise": "h"}}, "drive": PROMPT},
        cut=at_mark("hook raised", hook="should_stop_after_turn"),
        share=0.02,
    ),
    Rule(
        "a truncated answer closes its calls together",
        "The calls of a truncated answer are closed one by one, each with its result message.",
        "All end, then the results are recorded, as in any parallel batch.",
        "G4",
        {"tools": TOOL, "model": [[_call("c1"), _call("c2"), {"end": "length"}], [{"text": "b"}]], "drive": PROMPT},
        cut=at_a_truncated_result,
        share=0.04,
    ),
    Rule(
        "a cancel stops a provider that ignores it",
        "A provider that ignores the signal completes the run as if there had been no abort.",
        "The kernel stops by itself.",
        "G7",
        {
            "model": [[{"wait_ignoring_cancel": "g"}, {"text": "a"}, {"end": "stop"}]],
            "when": [_when("message.started", CANCEL, {"open": "g"})],
            "drive": PROMPT,
        },
    ),
    Rule(
        "calls that share an id run one after the other",
        "Calls of one id run together.",
        "They run one after the other: what is said of one can't be taken for the other's.",
        "G2, G4",
        {"tools": TOOL, "model": [[_call("c1"), _call("c1")], [{"text": "b"}]], "drive": PROMPT},
    ),
    Rule(
        "a failing listener leaves the message closed",
        "A listener that throws in an answer loses it, and a second message begins.",
        "The message ends once, as the failure's, with what had been said.",
        "G2, G3",
        {"model": [[{"text": "a"}]], "subscribers": [{"raise_on": "message.updated"}], "drive": PROMPT},
    ),
    Rule(
        "a failing listener leaves no open call",
        "A listener that throws among the tools leaves calls without results.",
        "All calls are closed before the failure's message.",
        "G4, G5",
        {"tools": TOOL, "model": [[_call("c1")]], "subscribers": [{"raise_on": "tool.started"}], "drive": PROMPT},
    ),
    Rule(
        "a listener that fails at the end ends nothing twice",
        "A listener that throws at the end gives a second end.",
        "One end; the failure is recorded.",
        "G1",
        {"model": [[{"text": "a"}]], "subscribers": [{"raise_on": "run.finished"}], "drive": PROMPT},
    ),
)
"""All rules. Rewriting rules apply in this order."""


def without(name: str) -> tuple[Rule, ...]:
    """All rules but one."""
    return tuple(rule for rule in RULES if rule.name != name)


def first_difference(ours: Played, theirs: Played, name: str) -> tuple[Line | None, Line | None]:
    """Ours and Pi's at the first line that differs when all rules but this one were heeded; None where one has no more
    lines. Of a last line, what is the same is left out.
    """
    left = compare(ours, theirs, without(name))
    our, their = next((pair for pair in zip_longest(left.ours, left.theirs) if pair[0] != pair[1]), (None, None))
    if our and their and our.get("type") == their.get("type") == "final":
        keys = [key for key in their if our[key] != their[key]]
        return {key: our[key] for key in keys}, {key: their[key] for key in keys}
    return our, their
