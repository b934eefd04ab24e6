"""Random scenarios, played on the kernel and on Pi: the same lines, but for what a rule with a name says."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.differential.pi import Pi, plays
from tests.differential.rules import RULES, compare
from tests.differential.scenarios import scenario_of, smaller

CHUNK: Final = 250
CHUNKS: Final = 8
COUNT: Final = CHUNK * CHUNKS

pytestmark = pytest.mark.pi


class Tally:
    """What the scenarios came to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.cuts: Counter[str] = Counter()
        self.seconds = 0.0


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


def differs(scenario: Any, pi: Pi) -> bool:
    """Whether the lines of the two differ in a way that no rule names. What can't be played at all does not count."""
    try:
        return not compare(plays(scenario), pi.plays(scenario)).same
    except Exception:
        return False


def report(seed: int, scenario: Any, pi: Pi) -> str:
    """The difference, on the smallest scenario that has one."""
    small = smaller(scenario, lambda less: differs(less, pi))
    left = compare(plays(small), pi.plays(small))
    pairs = zip([*left.ours, None], [*left.theirs, None], strict=False)
    ours, theirs = next((ours, theirs) for ours, theirs in pairs if ours != theirs)
    return f"seed {seed}, made smaller:\n{json.dumps(small)}\nrules: {left.rules}\nours: {ours}\nPi's: {theirs}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_scenarios_give_the_same_lines(chunk: int, pi: Pi, tally: Tally) -> None:
    """On each scenario of the chunk, the lines of the kernel and of Pi are the same after all rules."""
    start = time.perf_counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        scenario = scenario_of(seed)
        ours, theirs = plays(scenario), pi.plays(scenario)
        left = compare(ours, theirs)
        assert left.same, report(seed, scenario, pi)
        tally.rules.update(left.rules)
        tally.cuts.update([left.cut_by] if left.cut_by else [])
        tally.counts["scenarios"] += 1
        tally.counts["whole"] += left.cut_by is None
        tally.counts["unruled"] += not left.rules
        tally.counts["stuck"] += ours.stuck
        tally.counts["lines"] += len(ours.lines)
        tally.counts["compared"] += len(left.theirs)
        for type in ("turn_start", "tool_execution_end", "tool_execution_update"):
            tally.counts[type] += any(line.get("type") == type for line in left.theirs)
    tally.seconds += time.perf_counter() - start


def test_no_rule_takes_more_than_its_share(pi: Pi, tally: Tally, say: Callable[[str], None]) -> None:
    """Enough scenarios were compared to their end, and each rule applied, but to no more of them than it may cut short."""
    counts = tally.counts
    if counts["scenarios"] < COUNT:
        pytest.skip("not all chunks were played")
    say(
        f"{counts['scenarios']} random scenarios in {tally.seconds:.0f} s, {counts['compared']} of {counts['lines']} lines "
        f"compared; {counts['whole']} to their end, {counts['unruled']} with no rule at all; {counts['stuck']} wait "
        f"in vain at the end, on both; {counts['tool_execution_end']} have tools"
    )
    for rule in RULES:
        applied, cut = tally.rules[rule.name], tally.cuts[rule.name]
        limit = f", cut short {cut / COUNT:.1%} (at most {rule.share:.0%})" if rule.cut else ""
        say(f"  {rule.name}: {applied}{limit}")
        assert applied > 0 or not (rule.rewrite or rule.cut), f"no random scenario shows {rule.name!r}"
        assert cut <= rule.share * COUNT or not rule.cut, f"{rule.name!r} cuts {cut} of {COUNT} scenarios short"
    assert counts["whole"] >= max(500, 0.6 * COUNT)
    assert counts["unruled"] >= max(500, 0.3 * COUNT)
    assert counts["tool_execution_end"] >= 0.4 * COUNT
    assert counts["stuck"] <= 0.35 * COUNT
