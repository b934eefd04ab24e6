"""The live view, looked at in an emulated terminal: what stands on the screen while a run goes on, and what is left."""

import json
import os
import re
import select
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest

from kernel.cli.live import View
from kernel.events import MessageUpdated, PhaseChanged, QueueChanged, RetryScheduled, ToolStarted
from kernel.frozen import EMPTY
from kernel.messages import UserMessage
from kernel.trace.file import read_trace

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
from kernel import Agent, Finished, ModelError, TextDelta, ToolCall, tool
from kernel.cli.chat import Chat
from kernel.cli.live import LiveConsole

gate = asyncio.Event()

@tool
async def build(target: str) -> str:
    '''Build.'''
    await gate.wait()
    return "built"

class Model:
    count = 0
    async def stream(self, request):
        self.count += 1
        {stream}

async def main():
    agent = Agent(Model(), tools=[build])
    agent.subscribe(lambda event: gate.set() if event.type == "queue.changed" else None)
    return await Chat(agent, LiveConsole(sys.stdout, color=True)).run("go")

sys.exit(asyncio.run(main()))
"""


class Screen:
    """A terminal of *columns* × *lines* with a program in it, and all that has scrolled away."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]", columns: int, lines: int) -> None:
        self._master = master
        self.process = process
        self.screen = pyte.HistoryScreen(columns, lines, history=1000, ratio=1e-9)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""

    @property
    def rows(self) -> list[str]:
        """All rows, those that scrolled away first, without what is blank."""
        gone = ["".join(row[column].data for column in range(self.screen.columns)) for row in self.screen.history.top]
        return [row.rstrip() for row in [*gone, *self.screen.display] if row.strip()]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def until(self, seen: Callable[[str], bool]) -> None:
        """Read until the screen looks like that."""
        while not seen(self.text):
            assert self._read(), f"it did not come:\n{self.text}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        while True:
            ended = self.process.poll() is not None
            readable, _, _ = select.select([self._master], [], [], 0 if ended else 0.05)
            if readable:
                data = os.read(self._master, 65536)
                self.raw += data
                self._stream.feed(data)
                return True
            if ended:
                return False


@contextmanager
def screen(*arguments: str, columns: int = 80, lines: int = 24, **environment: str) -> Iterator[Screen]:
    import fcntl
    import struct
    import termios

    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(lines), **environment},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        yield Screen(master, process, columns, lines)
        assert termios.tcgetattr(slave) == before, "the terminal is not as it was"
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(master)


def program(stream: str) -> str:
    return PROGRAM.replace("{stream}", textwrap.indent(textwrap.dedent(stream), " " * 8).strip())


WORKING = """
if self.count == 1:
    yield TextDelta("I look at it.\\nAnd then ")
    yield ToolCall("c1", "build", {"target": "all"})
    yield Finished()
else:
    yield TextDelta(f"You said: {request.messages[-1].text}.")
    yield Finished()
"""


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_what_stands_on_the_screen_and_what_is_left(columns: int):
    """While a tool runs: the phase, the tool with its time, and what is typed; afterwards every line, and nothing else."""
    with screen("-c", program(WORKING), columns=columns) as it:
        it.until(lambda text: "build target='all'" in text and " s  build" in text)
        assert "I look at it." in it.rows
        assert "And then" in it.rows
        assert any(" turn" in row for row in it.rows if not row.startswith("turn"))
        it.type("look lef")
        it.until(lambda text: "> look lef" in text)
        it.type("x\x7ft\n")
        assert it.end() == 0
        rows = it.rows
    expected = (
        "type a line to steer", "you (prompt): go", "I look at it.", "And then", "tool started: build",
        "tool ended: build: built", "you (steering): look left", "You said: look left.", "completed: 2 turns",
    )  # fmt: skip
    places = [rows.index(next(row for row in rows if row.startswith(start))) for start in expected]
    assert places == sorted(places)
    assert not [row for row in rows if row.startswith(">") or " s  build" in row]
    assert sum("You said" in row for row in rows) == 1


def test_the_demo_in_a_terminal_loses_no_line():
    """As `python -m kernel` is called; its lines are those of a pipe."""
    piped = subprocess.run(
        [sys.executable, "-m", "kernel"], capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=100
    ).stdout
    with screen("-m", "kernel", "--fast", columns=200, lines=60) as it:
        assert it.end() == 0
        rows = it.rows
    said = [re.sub("^(text:|note:) ?", "", line) for line in piped.splitlines() if not line.startswith("phase: ")]
    # The two tools are done in either order.
    assert sorted(row for row in rows if not row.startswith("type a line")) == sorted(line for line in said if line.strip())
    assert rows[-1] == said[-1]


def test_a_follow_up_and_a_cancel_from_the_prompt_line():
    """A line with + waits until the run would end; Ctrl-C cancels, and the terminal is as it was."""
    waiting = """
    if request.messages[-1].text == "and then":
        yield TextDelta("Then.")
        await asyncio.Event().wait()
    yield TextDelta("Working")
    await gate.wait()
    yield Finished()
    """
    with screen("-c", program(waiting)) as it:
        it.until(lambda text: "Working" in text)
        it.type("+ and then\n")
        it.until(lambda text: "Then." in text)
        it.type("\x03")
        assert it.end() == 1
        assert "you (follow-up): and then" in it.rows
        assert it.rows[-1].startswith("cancelled (Ctrl-C)")


def test_who_leaves_at_once_leaves_the_terminal_as_it_was():
    deaf = """
    yield TextDelta("Working")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
    """
    with screen("-c", program(deaf)) as it:
        it.until(lambda text: "Working" in text)
        it.type("\x03")
        it.until(lambda text: "once more leaves at once" in text)
        it.type("\x03")
        assert it.end() == 130
        assert "left" in it.rows[-1]


def test_a_retry_counts_down():
    failing = """
    if self.count == 1:
        raise ModelError("busy", retryable=True, retry_after=0.5)
    yield TextDelta("Hi.")
    yield Finished()
    """
    with screen("-c", program(failing)) as it:
        it.until(lambda text: re.search(r"^next try in 0\.[0-4] s", text, re.MULTILINE) is not None)
        assert it.end() == 0
        assert "Hi." in it.rows


def test_it_draws_seldom_and_in_one_piece():
    """Ten thousand pieces at once are a few frames; the cursor is hidden while they are drawn."""
    flood = """
    for number in range(10_000):
        yield TextDelta(f"word{number} " if number % 20 else "\\n")
        if not number % 1000:
            await asyncio.sleep(0)
    yield Finished()
    """
    with screen("-c", program(flood), lines=2000) as it:
        assert it.end() == 0
        assert "word9999" in it.text
        assert "word1 word2" in it.text
        assert it.raw.count(b"> ") < 1000


@pytest.mark.parametrize("terminal", ["dumb", ""])
def test_a_terminal_that_can_not_draw_gets_lines(terminal: str):
    with screen("-m", "kernel", "--fast", columns=200, TERM=terminal) as it:
        assert it.end() == 0
        assert b"\x1b[2K" not in it.raw
        assert "phase: idle -> turn" in it.rows


def test_what_a_model_says_can_not_command_the_terminal():
    """Control characters are made visible, in text and in what is typed."""
    evil = """
    yield TextDelta("a\\x1b[2Jb\\x07")
    yield Finished()
    """
    with screen("-c", program(evil)) as it:
        assert it.end() == 0
        assert b"\x1b[2Jb" not in it.raw
        assert "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}" in it.rows


def test_events_as_lines_of_json(tmp_path: Path):
    """Nothing else is on the standard output, and the checker of streams finds nothing wrong with them."""
    done = subprocess.run(
        [sys.executable, "-m", "kernel", "--json", "--fast"], capture_output=True, text=True, cwd=ROOT,
        stdin=subprocess.DEVNULL, timeout=100,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert (lines[0]["format"], lines[1]["is"], lines[-1]["is"]) == ("phasekernel.trace/1", "RunStarted", "RunFinished")
    assert read_trace(done.stdout.splitlines(keepends=True)).heard[-1].event.status == "completed"
    assert done.stderr.startswith("note: a recorded model answers")
    (tmp_path / "events").write_text(done.stdout)
    checked = subprocess.run(
        [sys.executable, "-m", "kernel", "check", str(tmp_path / "events")], capture_output=True, cwd=ROOT, timeout=100
    )
    assert checked.returncode == 0


def test_a_reader_that_leaves_ends_it_quietly():
    """As `head` does: no traceback, and the run's end is not waited for."""
    command = f"{sys.executable} -m kernel --json --fast | head -1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == 1


class TestView:
    """The rows of the lower part, without a terminal."""

    def rows(self, view: View, width: int = 80, now: float = 0.0) -> list[str]:
        return ["".join(text for text, _ in row) for row in view.rows(width, now)]

    @pytest.mark.parametrize("width", [20, 40, 80, 200])
    def test_no_row_is_wider_than_the_terminal(self, width: int) -> None:
        view = View(typed="x" * 300)
        view.take(PhaseChanged("r", 0, "idle", "turn"), 0.0)
        view.take(MessageUpdated("r", 1, "text", "y" * 1000), 0.0)
        for number in range(9):
            view.take(ToolStarted("r", 2, f"c{number}", "tool" * 30, EMPTY), 0.0)
        view.take(QueueChanged("r", 3, (UserMessage("a"),), (UserMessage("b"),)), 0.0)
        view.take(RetryScheduled("r", 4, 1, 3.0, "busy"), 0.0)
        rows = self.rows(view, width)
        assert all(len(row) <= width for row in rows), rows
        assert any("and 4 more calls" in row for row in rows)

    def test_what_is_not_whole_is_below_and_what_is_whole_above(self) -> None:
        view = View()
        view.take(MessageUpdated("r", 0, "text", "one\ntwo"), 0.0)
        assert [line for line, _ in view.lines] == ["one"]
        assert self.rows(view)[0] == "two"
        view.take(MessageUpdated("r", 1, "reasoning", "hm"), 0.0)
        assert [line for line, _ in view.lines] == ["one", "two"]
