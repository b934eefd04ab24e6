"""I9: how a run is used changes nothing of what it says and leaves. And the ten invariants, under random scripts."""

from hypothesis import HealthCheck, example, given, settings

from tests.faults.probe import hold
from tests.faults.scripts import SCRIPTS, Script, build

THREE_TURNS = ((("text", "ok", "sleeps"), "done"), (("raises", "updates"), "done"), (("text",), "done"))
PLAIN = Script(THREE_TURNS, (), frozenset(), (), 0)
STEERED = Script(THREE_TURNS, ((14, "steer"), (20, "cancel")), frozenset({"before", "after"}), (), 2)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCRIPTS)
@example(PLAIN)
@example(STEERED)
@example(Script(((("text",), "transient"), (("swallows", "hangs"), "done")), ((22, "cancel"),), frozenset(), (), 0))
@example(Script(((("text",), "overflow"), (("ok",), "done")), ((9, "follow_up"),), frozenset(), (), 4))
def test_each_way_of_using_a_run_is_the_same(script: Script) -> None:
    """Iterated, awaited, only listened to, or without a loop: one script gives one transcript and one stream of events."""
    hold(lambda: build(script))
