"""`python -m kernel serve --engine` and `python -m kernel sessions`, as processes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

KERNEL = [sys.executable, "-m", "kernel"]


def ask(engine: str, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([*KERNEL, "sessions", "--engine", engine, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """The name of an engine that is served with the recorded demo."""
    name = f"sqlite:{tmp_path}/sessions.db"
    serving = subprocess.Popen(
        [*KERNEL, "serve", "--engine", name, "--fast"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    assert serving.stdout.readline() == f"serving {name}\n"
    yield name
    serving.send_signal(signal.SIGTERM)
    out, err = serving.communicate(timeout=30)
    assert (out, err, serving.returncode) == ("", "stopped\n", 0)


def test_a_session_from_its_first_prompt_to_its_end(engine: str):
    """Prompted under a key, watched, listed, shown, exported, resumed, cancelled and deleted."""
    for _ in range(2):
        assert ask(engine, "prompt", "ada", "What is here?", "--key", "1") == (0, "order 1 of ada is stored\n", "")
    code, watched, _ = ask(engine, "watch", "ada")
    events = [json.loads(line) for line in watched.splitlines()]
    assert (code, events[0]["is"], events[-1]["is"]) == (0, "RunStarted", "RunFinished")
    assert [event["position"] for event in events] == list(range(1, len(events) + 1))
    assert len(ask(engine, "watch", "ada", "--after", "3")[1].splitlines()) == len(events) - 3

    code, listed, _ = ask(engine, "list")
    assert (code, listed.split("\t")[0], f"{len(events)} events" in listed) == (0, "ada", True)
    code, shown, _ = ask(engine, "show", "ada")
    assert (code, "user: What is here?" in shown, "idle" in shown) == (0, True, True)
    code, exported, _ = ask(engine, "export", "ada")
    assert json.loads(exported.splitlines()[0])["format"] == "phasekernel.session/1"
    assert ask(engine, "resume", "ada") == (0, "order 2 of ada is stored\n", "")
    assert ask(engine, "cancel", "ada", "--reason", "enough") == (0, "order 3 of ada is stored\n", "")


@pytest.mark.parametrize("what", ["show", "watch", "export", "delete"])
def test_a_session_that_never_was_is_said_to_be_none(what: str, tmp_path: Path):
    """With exit status 1 and one line."""
    code, out, err = ask(f"sqlite:{tmp_path}/s.db", what, "ghost")

    assert (code, out) == (1, "")
    assert err == f"python -m kernel sessions: error: there is no session ghost in {tmp_path}/s.db\n"


@pytest.mark.parametrize("arguments", [["sessions", "--engine", "mongo:x", "list"], ["serve", "--engine", "mongo:x"]])
def test_an_engine_that_is_none_is_refused(arguments: list[str]):
    """The sentence says what there is."""
    done = subprocess.run([*KERNEL, *arguments], capture_output=True, text=True, timeout=60)

    assert done.returncode in (1, 2)
    assert "there is no engine 'mongo:x'; there is sqlite:FILE" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_foreign_file_is_refused_in_one_line(tmp_path: Path):
    """By both commands, without a traceback."""
    (tmp_path / "diary").write_text("Dear diary")
    engine = f"sqlite:{tmp_path}/diary"
    for command in (["sessions", "--engine", engine, "list"], ["serve", "--engine", engine]):
        done = subprocess.run([*KERNEL, *command], capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2)
        assert "is no session file" in done.stderr
        assert "Traceback" not in done.stderr
