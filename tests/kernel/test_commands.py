"""The tool that runs commands, with real processes: what it tells, what it limits, and that nothing outlives it."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kernel import Agent, KernelConfig
from kernel.commands import commands
from kernel.testing import Recorder, ScriptedModel, call, check_tool
from tests.providers.server import nothing_leaks

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")


MARK = 1_000_000 + os.getpid()
"""Seconds that no other process on the machine sleeps."""


def run(root: Path, command: str, *, heard: Recorder | None = None, seconds: float | None = None, **options: Any) -> Any:
    """The result message of one call, by a run of an agent."""
    more = {} if seconds is None else {"seconds": seconds}
    with nothing_leaks():
        model = ScriptedModel([[call("a", "run_command", command=command, **more)], ["ok"]])
        agent = Agent(model, tools=commands(root, **options))
        if heard is not None:
            agent.subscribe(heard)
        result = agent.run_sync("Go")
    assert result.status == "completed"
    return result.messages[2]


def nobody_sleeps() -> None:
    """Wait until no process sleeps so long: a signal that nobody can refuse is obeyed a moment after it was sent."""
    while _alive(f"sleep\x00{MARK}"):
        time.sleep(0.01)


def _alive(mark: str) -> list[str]:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [line.decode(errors="replace") for line in lines if mark.encode() in line]


@pytest.mark.parametrize(
    ("command", "text", "is_error"),
    [
        ("echo hello; pwd", "hello\nROOT", False),
        ("true", "(no output)", False),
        ("printf 'no end of line'", "no end of line", False),
        ("echo out; echo err >&2", "out\nerr", False),
        ("echo said; exit 3", "said\n[exit status 3]", True),
        ("kill -9 $$", "[ended by SIGKILL]", True),
        ("cat", "(no output)", False),
        ("printf '\\377\\376'", "��", False),
        ("nonsense-nowhere 2>/dev/null", "[exit status 127]", True),
        ("echo 'Grüße 世界'", "Grüße 世界", False),
        ("cd .. && pwd", "PARENT", False),
    ],
)
def test_what_it_tells(tmp_path: Path, command: str, text: str, is_error: bool):
    """Both outputs in their order, how it ended when it did not end well, and that it has no input."""
    message = run(tmp_path, command)
    expected = text.replace("ROOT", str(tmp_path.resolve())).replace("PARENT", str(tmp_path.resolve().parent))
    assert (message.text, message.is_error) == (expected, is_error)


@pytest.mark.parametrize("command", ["", "  ", "echo a\0b"])
def test_what_is_no_command(tmp_path: Path, command: str):
    assert run(tmp_path, command).text.startswith("the command must be a text")


def test_it_takes_so_long_and_no_longer(tmp_path: Path):
    """What it had printed is kept, and its children end with it, though they ignore the polite signal."""
    command = f"echo begun; trap '' TERM; (trap '' TERM; sleep {MARK}; true) & sleep {MARK}; true"
    message = run(tmp_path, command, seconds=0.3)
    assert message.text == "begun\n[stopped after 0.3 s; what it had printed until then is above]"
    assert message.is_error
    nobody_sleeps()


def test_what_it_leaves_behind_is_ended(tmp_path: Path):
    """With it, whether it holds the output or not; nobody waits for it."""
    assert run(tmp_path, f"sleep {MARK} & sleep {MARK} >/dev/null 2>&1 & echo done").text == "done"
    nobody_sleeps()


def test_a_cancel_ends_it(tmp_path: Path):
    """Children included, before the run has ended."""
    async def main() -> Any:
        model = ScriptedModel([[call("a", "run_command", command=f"touch begun; sleep {MARK} | cat")]])
        agent = Agent(model, tools=commands(tmp_path))
        run = agent.prompt("Go")
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)  # another process makes it
        agent.cancel()
        result = await run
        nobody_sleeps()
        assert agent.abandoned == ()
        return result

    with nothing_leaks():
        result = asyncio.run(main())
    assert result.status == "cancelled"
    assert "cancelled" in result.messages[2].text


def test_a_cancel_while_it_begins_ends_it(tmp_path: Path):
    """Though the loop has not heard yet that it runs, and its children are there already."""
    begun = tmp_path / "begun"

    async def main() -> Any:
        command = f"sleep {MARK} & sleep {MARK} & touch begun; wait"
        agent = Agent(ScriptedModel([[call("a", "run_command", command=command)]]), tools=commands(tmp_path))
        run = agent.prompt("Go")
        while not begun.exists():
            await asyncio.sleep(0)
            busy = time.monotonic() + 0.05  # a loop that is busy with something else
            while not begun.exists() and time.monotonic() < busy:
                pass
        agent.cancel()
        return await run

    with nothing_leaks():
        assert asyncio.run(main()).status == "cancelled"
    nobody_sleeps()


def test_long_output_keeps_its_beginning_and_its_end(tmp_path: Path):
    """And says how much is between, whatever the pieces in which it comes."""
    for size in (9, 100, 1000):
        text = run(tmp_path, f"i=0; while [ $i -lt {size} ]; do echo line $i; i=$((i+1)); done", output_bytes=100).text
        whole = "".join(f"line {number}\n" for number in range(size))
        if len(whole) <= 100:
            assert text == whole.rstrip("\n")
        else:
            assert text == f"{whole[:50]}\n[… {len(whole) - 100} bytes are left out here …]\n{whole[-50:]}".rstrip("\n")


def test_megabytes_are_no_matter(tmp_path: Path):
    """Memory and time do not grow with what nobody is shown."""
    text = run(tmp_path, "head -c 50000000 /dev/zero | tr '\\0' x").text
    assert len(text) < 70_000
    assert "[… 49940000 bytes are left out here …]" in text


def test_its_environment_has_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only what is named, and what the application adds."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    text = run(tmp_path, "env; echo $WORD", env={"WORD": "hello"}).text
    assert "sk-secret" not in text
    assert f"PATH={os.environ['PATH']}" in text
    assert text.endswith("hello")


def test_progress_is_told(tmp_path: Path):
    heard = Recorder()
    run(tmp_path, "echo first line; true", heard=heard)
    assert [event.text for event in heard.of("tool.updated")] == ["first line"]


def test_commands_run_one_after_the_other(tmp_path: Path):
    """Two of one response do not meet."""
    command = "mkdir lock && rmdir lock"
    calls = [call(f"c{number}", "run_command", command=command) for number in range(5)]
    result = Agent(ScriptedModel([calls, ["ok"]]), tools=commands(tmp_path)).run_sync("Go")
    assert {message.text for message in result.messages if message.role == "tool"} == {"(no output)"}


def test_the_contract(tmp_path: Path):
    (run_command,) = commands(tmp_path, timeout=5)
    good = [{"command": "echo hello"}, {"command": "exit 1", "seconds": 1}]
    bad = [{"command": "true", "seconds": 0}, {"command": "true", "seconds": 6}, {"command": "true", "shell": "zsh"}]
    asyncio.run(check_tool(run_command, good=good, bad=bad)).unwrap()


@pytest.mark.parametrize("arguments", [{"timeout": 0}, {"timeout": -1}, {"output_bytes": 1}])
def test_bad_limits_are_refused(tmp_path: Path, arguments: Any):
    with pytest.raises(ValueError, match="timeout must be"):
        commands(tmp_path, **arguments)


def test_a_root_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="root must be an existing directory"):
        commands(tmp_path / "nowhere")


def test_a_deadline_of_the_run_ends_it_too(tmp_path: Path):
    agent = Agent(
        ScriptedModel([[call("a", "run_command", command=f"sleep {MARK}")]]), tools=commands(tmp_path),
        config=KernelConfig(run_deadline=0.5),
    )  # fmt: skip
    with nothing_leaks():
        result = agent.run_sync("Go")
    assert (result.status, result.failure.code) == ("failed", "RUN_DEADLINE")
    nobody_sleeps()
