"""The journal: what went into a core, written down, gives the same events again."""

import json
import pathlib

import attrs
import pytest

from kernel import Agent, KernelConfig, ToolCall, tool
from kernel.__main__ import main as command
from kernel.codec import Codec
from kernel.errors import Failure
from kernel.events import Event
from kernel.inputs import Configure, Input, Projected, Prompt, ResponseFailed
from kernel.journal import FORMAT, JournalError, JournalWriter, read_journal
from kernel.messages import AssistantMessage, CustomMessage, SummaryMessage, Text, UserMessage
from kernel.scenario import parse, play
from kernel.setup import Setup
from kernel.testing import Recorder, ScriptedModel, call, simulate

CASES = sorted((pathlib.Path(__file__).parent.parent / "conformance" / "cases").glob("*.json"))


@tool
async def read(path: str) -> str:
    """Read."""
    return path


def written() -> tuple[list[str], list[Event]]:
    """The journal of two runs, and their events."""
    lines: list[str] = []
    agent = Agent(ScriptedModel([[call("c", "read", path="x")], ["ok"], ["more"]]), tools=[read], journal=lines.append)
    heard = Recorder()
    agent.subscribe(heard)

    async def main() -> None:
        agent.steer("look")
        await agent.prompt("one")
        agent.configure(system_prompt="Be brief.")
        await agent.prompt(CustomMessage("note", {"deep": [1, {"er": None}]}))

    simulate(main())
    return lines, list(heard.events)


def replayed(lines: list[str]) -> list[Event]:
    return [effect for effects in read_journal(lines).replay() for effect in effects if isinstance(effect, Event)]


def test_the_same_inputs_give_the_same_events():
    """A journal, read without any model or tool, gives the events that were heard."""
    lines, heard = written()

    assert replayed(lines) == heard


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_scenario_can_be_told_from_its_inputs(path: pathlib.Path, tmp_path: pathlib.Path, capsys):
    """For each scenario, replaying its journal prints the events that the scenario printed."""
    told: list[dict] = []
    play(parse(path.read_bytes()), "native", told.append)

    assert command(["journal", "write", str(path), str(tmp_path / "journal")]) == 0
    assert command(["journal", "replay", str(tmp_path / "journal")]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [line for line in json.loads(json.dumps(told)) if "sequence" in line]


def test_a_torn_last_line_is_dropped():
    """What a crash leaves of a last line is not an input; all before it is."""
    lines, heard = written()
    torn = lines[-1][: len(lines[-1]) // 2]

    assert read_journal([*lines[:-1], torn]).inputs == read_journal(lines[:-1]).inputs
    assert replayed([*lines, '{"is"']) == heard


@pytest.mark.parametrize(
    ("spoil", "line", "why"),
    [
        (lambda lines: ["", *lines], 1, "header"),
        (lambda lines: [], 1, "header"),
        (lambda lines: [lines[0].replace(FORMAT, "phasekernel.journal/9"), *lines[1:]], 1, "this version reads"),
        (lambda lines: [lines[0].replace('"hooks"', '"hoks"'), *lines[1:]], 1, "the header is wrong"),
        (lambda lines: [*lines[:3], "{torn\n", *lines[3:]], 4, "is not JSON"),
        (lambda lines: [*lines[:3], "{torn\n"], 4, "is not JSON"),
        (lambda lines: [*lines[:2], '{"is":"Nothing"}\n', *lines[2:]], 3, "is not an input"),
        (lambda lines: [*lines[:2], "[]\n", *lines[2:]], 3, "is not an input"),
    ],
    ids=["blank", "empty", "newer", "header", "in the middle", "at the end", "unknown", "list"],
)
def test_anything_else_that_is_wrong_is_refused(spoil, line: int, why: str):
    """A journal that was damaged elsewhere is refused with the number of the line, and nothing of it is used."""
    lines, _ = written()

    with pytest.raises(JournalError, match=why) as refused:
        read_journal(spoil(lines))
    assert refused.value.line == line


def test_a_journal_that_can_not_be_written_ends_there(caplog):
    """When writing fails, the run goes on, the error is logged and kept, and nothing is written after the hole."""
    said: list[str] = []

    def full(line: str) -> None:
        if len(said) == 2:
            raise OSError("disk full")
        said.append(line)

    agent = Agent(ScriptedModel([["ok"]]), journal=full)

    async def main() -> str:
        return (await agent.prompt("Hi")).status

    assert simulate(main()) == "completed"
    assert len(said) == 2
    assert [record.getMessage() for record in caplog.records] == ["the journal ends here: disk full"]


SETUP = Setup(None, print, {}, "Be brief.", "high", 1000)


@pytest.mark.parametrize(
    "input",
    [
        Prompt("r", CustomMessage("note", {"a": [1]})),
        Configure(SETUP),
        Projected(3, (UserMessage("x"), AssistantMessage((Text("a"), ToolCall("c", "n", {"b": [1]})), "tool_use"))),
        Projected(3, (SummaryMessage("s"),), (("convert_to_llm", "boom"),)),
        ResponseFailed(4, Failure("429", retryable=True, retry_after=2.5), 0.25),
    ],
    ids=["prompt", "configure", "projected", "hook failed", "failed"],
)
def test_an_input_comes_back_as_it_was(input: Input):
    """Encoded as JSON and decoded again, an input is equal to itself."""
    codec = Codec(SETUP)

    assert codec.load_input(json.loads(json.dumps(codec.dump_input(input)))) == input


def test_events_come_back_as_they_were():
    """Encoded as JSON and decoded again, each event of a run is equal to itself, deeply frozen again."""
    codec = Codec()
    _, heard = written()

    assert [codec.load_event(json.loads(json.dumps(codec.dump_event(event)))) for event in heard] == heard


def test_tools_that_the_reader_does_not_have_are_named():
    """Read with a setup, a journal needs the tools that it speaks of."""
    lines, _ = written()

    with pytest.raises(JournalError, match="names tools that the setup does not have: read"):
        read_journal(lines, SETUP)


def test_a_journal_begins_with_what_the_agent_began_with():
    """The header has the configuration and the conversation, so that a journal stands alone."""
    lines: list[str] = []
    history = [UserMessage("a"), AssistantMessage("b")]
    JournalWriter(lines.append, KernelConfig(max_turns=3), SETUP, {"before_tool_call"}, history)
    read = read_journal(lines)

    assert (read.config.max_turns, read.hooks, list(read.messages)) == (3, {"before_tool_call"}, history)
    assert (read.setup.system_prompt, read.setup.reasoning_effort) == ("Be brief.", "high")


class TestCheck:
    def lines(self, name: str, tmp_path: pathlib.Path, *, pi: bool = False) -> pathlib.Path:
        case = next(path for path in CASES if path.stem == name)
        told: list[dict] = json.loads(case.read_text())["pi"] if pi else []
        if not pi:
            play(parse(case.read_bytes()), "native", told.append)
        path = tmp_path / "stream"
        path.write_text("".join(json.dumps(line) + "\n" for line in told))
        return path

    @pytest.mark.parametrize("pi", [False, True])
    def test_a_good_stream_has_no_breach(self, pi: bool, tmp_path: pathlib.Path, capsys):
        """A stream in the native words, or in Pi's, is judged by the same rules."""
        path = self.lines("parallel-tools-complete-out-of-order", tmp_path, pi=pi)

        assert command(["check", str(path)]) == 0
        assert capsys.readouterr().out.endswith("0 breaches\n")

    @pytest.mark.parametrize("pi", [False, True])
    def test_a_lost_result_is_named(self, pi: bool, tmp_path: pathlib.Path, capsys):
        """A call whose result message was taken out of the stream is told of, and the exit status is 1."""
        path = self.lines("parallel-tools-complete-out-of-order", tmp_path, pi=pi)
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not ('"role": "tool"' in line and "c2" in line)))

        assert command(["check", str(path)]) == 1
        assert "G4" in capsys.readouterr().out

    def test_encoded_events_are_taken(self, tmp_path: pathlib.Path, capsys):
        """Events as the codec writes them are judged as well."""
        _, heard = written()
        codec = Codec()
        path = tmp_path / "events"
        path.write_text("".join(json.dumps(codec.dump_event(event)) + "\n" for event in heard))

        assert command(["check", str(path)]) == 0

    def test_the_first_breach_comes_first_with_its_line(self, tmp_path: pathlib.Path, capsys):
        """What is printed first is the first event that breaks a guarantee, where it stands in the file."""
        path = self.lines("parallel-tools-complete-out-of-order", tmp_path)
        lines = path.read_text().splitlines(keepends=True)
        place = next(place for place, line in enumerate(lines) if '"turn.ended"' in line)
        path.write_text("\n" + "".join([*lines[:place], *lines[place + 1 :]]))

        assert command(["check", str(path)]) == 1
        assert capsys.readouterr().out.startswith(f"line {place + 2}: G1 at {place + 1}: ")

    def test_events_keep_their_run(self, tmp_path: pathlib.Path, capsys):
        """Encoded events say of which run they are, and one of another run among them is found."""
        _, heard = written()
        codec = Codec()
        events = [heard[0], attrs.evolve(heard[1], run_id="another"), *heard[2:]]
        path = tmp_path / "events"
        path.write_text("".join(json.dumps(codec.dump_event(event)) + "\n" for event in events))

        assert command(["check", str(path)]) == 1
        assert capsys.readouterr().out.startswith("line 2: G1 at 1: an event of run another")

    def test_a_stream_that_was_cut_off(self, tmp_path: pathlib.Path, capsys):
        """Without its end a stream breaks G1, unless it is said to be cut off."""
        path = self.lines("text-turn", tmp_path)
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:6]))

        assert command(["check", str(path)]) == 1
        assert command(["check", "--cut", str(path)]) == 0

    def test_only_a_newline_ends_a_line(self, tmp_path: pathlib.Path, capsys):
        """Other characters that some take for the end of a line may stand in a text."""
        path = self.lines("text-turn", tmp_path)
        odd = '{"type": "run.started", "sequence": 0, "note": "\u2028\x85"}'
        path.write_text("\n".join([odd, *path.read_text().splitlines()[1:]]), encoding="utf-8")

        assert command(["check", str(path)]) == 0

    @pytest.mark.parametrize(
        ("content", "line"),
        [
            (b'{"type":"run.started","sequence":0}\n[1]\n', 2),
            (b'{"type":"run.started","sequence":0}\n{"type":"run.fin', 2),
            (b'{"type":"run.started","sequence":0}\n\n{"type":"tool.ended","sequence":1}\n', 3),
            (b'{"type":"run.started","sequence":0}\n{"type":"nothing","sequence":1}\n', 2),
            (b'{"type":"agent_start"}\n{"type":"turn_started"}\n', 2),
            (b'{"type":"agent_start"}\n{"type":"message_end","role":"user"}\n', 2),
            (b'{"type":"run.started","sequence":"0"}\n', 1),
            (b'{"type":["run.started"]}\n', 1),
            (b'{"is":"RunStarted","run_id":"r","sequence":0}\n{"is":"TurnStarted","run_id":"r","sequence":1}\n', 2),
            (b'{"is":"Nothing"}\n', 1),
            (b'{"name":"a foreign file"}\n', 1),
            (b"\x89PNG\r\n\x1a\n", 1),
            (b"[" * 100_000, 1),
        ],
    )
    def test_rubbish_is_refused_with_its_line(self, content: bytes, line: int, tmp_path: pathlib.Path, capsys):
        """What is no stream is refused with the number of the line, exit status 2."""
        path = tmp_path / "rubbish"
        path.write_bytes(content)

        assert command(["check", str(path)]) == 2
        printed = capsys.readouterr()
        assert f"line {line}: " in printed.err
        assert printed.err.count("\n") == 1
        assert printed.out == ""

    @pytest.mark.parametrize("content", ["", "\n", '{"refused":"prompt"}\n', '{"type":"final"}\n'])
    def test_a_file_without_events_is_no_stream(self, content: str, tmp_path: pathlib.Path, capsys):
        """An empty file has not held anything."""
        path = tmp_path / "empty"
        path.write_text(content)

        assert command(["check", str(path)]) == 2
        assert "there is no event in it" in capsys.readouterr().err

    def test_a_file_that_is_not_there_is_told(self, tmp_path: pathlib.Path, capsys):
        """The system's own sentence, and no traceback."""
        assert command(["check", str(tmp_path / "nowhere")]) == 2
        assert "No such file" in capsys.readouterr().err
