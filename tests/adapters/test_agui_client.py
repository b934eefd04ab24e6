"""AG-UI's own client, from npm, finds the same streams in order. It also rebuilds the conversation from the server."""

import json
from collections.abc import Callable

import pytest

from tests.adapters.outside import PACKAGES, package, run_node, verified
from tests.adapters.streams import many_random_streams
from tests.adapters.test_agui import STREAMS, projected
from tests.adapters.test_browser import QUESTION, served

pytestmark = pytest.mark.views


def test_recorded_streams_are_in_order(say: Callable[[str], None]):
    """Those of the cases and of the stories."""
    streams = {name: projected(events) for name, events in STREAMS.items() if events}
    said = dict(zip(streams, verified(list(streams.values())), strict=True))
    assert {name: complaint for name, complaint in said.items() if complaint is not None} == {}
    say(f"AG-UI: {PACKAGES['@ag-ui/client']} takes {len(streams)} recorded streams")


def test_random_streams_are_in_order(say: Callable[[str], None]):
    """Also from the middle on, and cut off."""
    streams = [projected(events) for events in many_random_streams(600, seed=1) if events]
    complaints = [complaint for complaint in verified(streams) if complaint is not None]
    assert complaints == []
    say(f"AG-UI: {PACKAGES['@ag-ui/client']} takes {len(streams)} random streams")


def test_the_client_can_find_something():
    """An end that is missing, and an event after the end."""
    said = projected(STREAMS["three seconds"])
    end = next(place for place, event in enumerate(said) if event["type"] == "TEXT_MESSAGE_END")
    first, second = verified([said[:end] + said[end + 1 :], [*said, said[-1]]])
    assert "RUN_FINISHED" in str(first) or "TEXT_MESSAGE" in str(first)
    assert second is not None


def test_the_client_talks_to_the_server():
    """It rebuilds the conversation, tool results included, and the state."""
    package("@ag-ui/client")
    with served("--fast") as url:
        done = run_node("client.mjs", "", f"{url}agui", QUESTION)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["seen"][0], said["seen"][-1]) == ("RUN_STARTED", "RUN_FINISHED")
    roles = [message["role"] for message in said["messages"]]
    assert (roles[0], roles.count("tool"), roles[-1]) == ("user", 2, "assistant")
    assert said["messages"][-1]["content"]
    assert (said["state"]["phase"], said["state"]["running"]) == ("idle", [])
