"""Each rule is needed, and says how the two differ: its scenario, played on both."""

import pytest

from tests.differential.page import FIRST
from tests.differential.pi import Pi, plays
from tests.differential.rules import RULES, Rule, compare, first_difference, without

pytestmark = pytest.mark.pi


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_two_differ_as_the_rule_says(rule: Rule, pi: Pi) -> None:
    """The first lines that differ are those of the page, and with the rule there is no difference."""
    ours, theirs = plays(rule.scenario), pi.plays(rule.scenario)
    here, there = first_difference(ours, theirs, rule.name)
    assert {"here": here, "pi": there} == FIRST[rule.name]
    assert not compare(ours, theirs, without(rule.name)).same
    if rule.rewrite or rule.cut:
        left = compare(ours, theirs)
        assert left.same
        assert rule.name in left.rules
