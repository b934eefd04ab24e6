"""Journals that were damaged: a torn last line is dropped, anything else is refused with the number of its line."""

import functools
import json
import pathlib
from collections.abc import Callable

import pytest

from kernel import Agent, CustomMessage, ToolCall, tool
from kernel.__main__ import main as command
from kernel.journal import JournalError, read_journal
from kernel.testing import ScriptedModel, call, simulate

HALF = "\ud83d"


@tool
async def read(path: str) -> str:
    """Read."""
    return f"{path} \u2028 é"


@functools.cache
def journal() -> tuple[str, ...]:
    """A journal with many kinds of input and all kinds of letters."""
    lines: list[str] = []
    model = ScriptedModel([[call("c", "read", path="é\u2028")], [HALF, "\ude00 ok"], ["more"]])
    agent = Agent(model, tools=[read], journal=lines.append)

    async def main() -> None:
        agent.steer("look")
        agent.follow_up(CustomMessage("note", {"deep": [1, {"é": None}]}))
        await agent.prompt("one \U0001f600")
        agent.configure(system_prompt="Be brief.")
        await agent.prompt("two")

    simulate(main())
    return tuple(lines)


def refused(lines: list[str | bytes]) -> JournalError | None:
    """The error with which these lines are refused, when they are read or when they are replayed."""
    try:
        for _ in read_journal(lines).replay():
            pass
    except JournalError as error:
        return error
    return None


def assert_refused(lines: list[str | bytes], line: int) -> None:
    error = refused(lines)
    assert error is not None
    assert error.line == line
    assert str(error).startswith(f"line {line} of the journal: ")


def test_a_last_line_that_is_torn_anywhere_is_dropped():
    """At whatever byte a crash tore the last line, what is before it is read, and nothing else."""
    file = "".join(journal()).encode("ascii")
    start = len(file) - len(journal()[-1])
    whole, before = read_journal(journal()).inputs, read_journal(journal()[:-1]).inputs
    for end in range(start, len(file) + 1):
        read = read_journal(file[:end].splitlines(keepends=True)).inputs
        assert read == (whole if end >= len(file) - 1 else before)


def test_a_last_line_of_zeros_is_torn():
    """A file system may leave zeros, or anything else, where a line had no time to come."""
    assert read_journal([*(line.encode() for line in journal()), b"\0\0\xff"]).inputs == read_journal(journal()).inputs


Damage = Callable[[list[str], int], list[str | bytes]]
DAMAGES: dict[str, tuple[Damage, int]] = {
    "left out": (lambda lines, at: [*lines[:at], *lines[at + 1 :]], 0),
    "doubled": (lambda lines, at: [*lines[: at + 1], *lines[at:]], 1),
    "moved": (lambda lines, at: [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]], 0),
    "blank before it": (lambda lines, at: [*lines[:at], "\n", *lines[at:]], 0),
    "rubbish": (lambda lines, at: [*lines[:at], b"\xff\xfe\0\x01\n", *lines[at + 1 :]], 0),
    "torn": (lambda lines, at: [*lines[:at], lines[at][:-3], *lines[at + 1 :]], 0),
    "cut short": (lambda lines, at: [*lines[:at], lines[at][:-3] + "\n", *lines[at + 1 :]], 0),
    "another line in it": (lambda lines, at: [*lines[:at], lines[at][:9] + lines[at], *lines[at + 1 :]], 0),
    "no object": (lambda lines, at: [*lines[:at], "[1]\n", *lines[at + 1 :]], 0),
    "empty object": (lambda lines, at: [*lines[:at], "{}\n", *lines[at + 1 :]], 0),
    "a header": (lambda lines, at: [*lines[:at], *lines], 0),
    "nested": (lambda lines, at: [*lines[:at], "[" * 100_000 + "\n", *lines[at + 1 :]], 0),
}
"""What is done to the line in a place, and how many lines later that shows. (A journal in a journal: in its own place.)"""


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_line_is_refused_with_its_number(name: str):
    """For each line of a journal but the last, which may be torn or not have come."""
    damage, later = DAMAGES[name]
    lines = list(journal())
    for at in range(0 if name != "a header" else 1, len(lines) - 1):
        assert_refused(damage(lines, at), at + later + 1)


def test_each_word_of_a_line_is_needed():
    """For each line: a word that is missing, one too many, or one of another kind, at the top and below it."""
    lines = list(journal())
    for at, line in enumerate(lines):
        for damaged in spoiled(json.loads(line)):
            mutant = [*lines[:at], json.dumps(damaged) + "\n", *lines[at + 1 :]]
            if json.loads(mutant[at]) != json.loads(line):
                assert_refused(mutant, at + 1)


def spoiled(data: dict) -> list[dict]:
    """*data* with one word less, one more, or one that says something of a kind that can't be right."""
    made = [data | {"zz": 1}]
    for key, value in data.items():
        made.append({name: said for name, said in data.items() if name != key})
        wrong = {"zz": [[]]} if not isinstance(value, dict) else [["zz"]]
        if not (data.get("is") == "CustomMessage" and key == "data") and key != "output_schema":
            made.append(data | {key: wrong})
        if isinstance(value, dict) and key not in ("arguments", "parameters", "data"):
            made += [data | {key: inner} for inner in spoiled(value)]
        if isinstance(value, list) and value and isinstance(value[0], dict) and key != "data":
            made += [data | {key: [inner, *value[1:]]} for inner in spoiled(value[0])]
    return made


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"\x89PNG\r\n\x1a\n", b"{}", b"[]", b'{"format": 7}', b'{"type":"run.started","sequence":0}\n', b"\xff"],
)
def test_a_foreign_file_is_refused(content: bytes):
    """What is no journal is refused at its first line."""
    assert_refused(content.splitlines(keepends=True), 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hooks", ["nobody"]), ("hooks", "transform_context"), ("hooks", [["x"]]), ("messages", [{"is": "Nothing"}])],
)
def test_a_header_that_no_agent_has_written_is_refused(key: str, value: object):
    """Hooks that there are not, and a conversation that no agent could begin with."""
    header = json.loads(journal()[0]) | {key: value}
    assert_refused([json.dumps(header) + "\n", *journal()[1:]], 1)


def test_a_conversation_that_no_agent_can_begin_with_is_refused():
    """The header's conversation is checked as an agent's `messages=` is: a result without its call is poison."""
    orphan = {"is": "ToolMessage", "call_id": "c", "name": "n", "content": [], "is_error": False, "executed": True}
    header = json.loads(journal()[0]) | {"messages": [orphan]}
    assert_refused([json.dumps(header) + "\n", *journal()[1:]], 1)


def test_an_input_that_does_not_fit_is_refused_when_it_is_replayed():
    """A journal whose lines are right, one by one, and can't have come in this order, is refused where that shows."""
    lines = [json.loads(line) for line in journal()]
    prompts = [at for at, line in enumerate(lines) if line.get("is") == "Prompt"]
    twice = [*lines[: prompts[0] + 1], *lines[prompts[0] :]]
    numbered = [
        json.dumps(line | ({"line": number} if "line" in line else {})) + "\n" for number, line in enumerate(twice, 1)
    ]
    assert_refused(numbered, prompts[0] + 2)


# ---- the commands ----


def run(*arguments: str | pathlib.Path) -> int:
    return command(["journal", *map(str, arguments)])


SCENARIO = json.dumps({"model": [[{"text": "\u00e9\u2028"}]], "drive": [{"prompt": "Hi"}]})


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{}\n", "é".encode("latin-1"), b"[" * 100_000])
def test_replay_says_which_line_is_wrong(content: bytes, tmp_path: pathlib.Path, capsys):
    """A file that is no journal is told of in one line on standard error, with the exit status 2."""
    path = tmp_path / "journal"
    path.write_bytes(content)

    assert run("replay", path) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("line 1 of the journal: ")
    assert printed.err.count("\n") == 1


def test_a_torn_file_is_replayed(tmp_path: pathlib.Path, capsys):
    """What a crash left is replayed to the events that were told."""
    path = tmp_path / "journal"
    path.write_bytes("".join(journal()).encode()[:-5])

    assert run("replay", path) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["type"] == "run.started"


def test_a_bad_scenario_costs_nobody_a_journal(tmp_path: pathlib.Path, capsys):
    """The scenario is read before the file is opened for writing."""
    scenario, path = tmp_path / "scenario", tmp_path / "journal"
    scenario.write_text("{")
    path.write_text("precious")

    assert run("write", scenario, path) == 2
    assert path.read_text() == "precious"


def test_a_scenario_that_stops_leaves_its_journal(tmp_path: pathlib.Path, capsys):
    """Where nothing can go on, the journal has what there was up to there, and the exit status is 3."""
    scenario, path = tmp_path / "scenario", tmp_path / "journal"
    tools = [{"name": "t", "script": [{"wait": "never"}, {"return": "A"}]}]
    model = [[{"call": {"id": "c", "name": "t"}}]]
    scenario.write_text(json.dumps({"tools": tools, "model": model, "drive": [{"prompt": "Hi"}]}))

    assert run("write", scenario, path) == 3
    assert run("replay", path) == 0
    assert "tool.started" in capsys.readouterr().out


def test_a_journal_that_can_not_be_written_is_told(tmp_path: pathlib.Path, capsys):
    """A full disk is an error, though the agent goes on without its journal."""
    scenario, full = tmp_path / "scenario", pathlib.Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no device that is always full")
    scenario.write_text(SCENARIO)

    assert run("write", scenario, full) == 2
    assert "No space left" in capsys.readouterr().err


def test_a_journal_is_read_on_any_machine(tmp_path: pathlib.Path, capsys):
    """The file is ASCII whatever was said, and what is printed is too."""
    scenario, path = tmp_path / "scenario", tmp_path / "journal"
    scenario.write_text(SCENARIO)

    assert run("write", scenario, path) == 0
    assert path.read_bytes().isascii()
    assert run("replay", path) == 0
    assert capsys.readouterr().out.isascii()


def test_a_value_that_json_can_not_say_ends_the_journal(caplog):
    """The run goes on; the journal ends with an error that says why, and what is in it can be replayed."""
    lines: list[str] = []
    agent = Agent(ScriptedModel([["ok"]]), journal=lines.append)

    async def main() -> str:
        return (await agent.prompt(CustomMessage("note", {"raw": b"x"}))).status

    assert simulate(main()) == "completed"
    assert [record.getMessage() for record in caplog.records] == ["the journal ends here: JSON can't say b'x'"]
    assert read_journal(lines).inputs == ()


def test_halves_of_a_character_do_not_end_the_journal():
    """A model that cuts a character in two, in a text and in arguments, is written down exactly."""
    lines: list[str] = []
    odd = ToolCall("c", "read", {"path": HALF})
    agent = Agent(ScriptedModel([[HALF, "\ude00", odd], ["ok"]]), tools=[read], journal=lines.append)

    async def main() -> None:
        await agent.prompt(HALF + "\ude00")

    simulate(main())
    replayed = read_journal(lines)
    core = replayed.core()
    for _ in replayed.replay(core):
        pass
    assert list(core.state.transcript.context) == list(agent.messages)
