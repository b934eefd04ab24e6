"""The pictures and the method table say what the machine does, and the committed ones say it now."""

import itertools
import re
from pathlib import Path

import pytest

from statechart import INTERNAL, NO_OP, ROWS, Ask, Command, Decision, Fact, Guard, Leaf, Phase, Refuse, Step, compile_table
from statechart.__main__ import decisions_text, files
from statechart.check import valuations
from statechart.decisions import dump
from statechart.draw import BRANCHING, FAILURES, LOWEST, REGION, STRAIGHT, UPWARD, dot, mermaid, read, short, with_choices
from statechart.method_table import Literals, condition, document, facts, methods
from statechart.phases import drawing
from statechart.vocabulary import Refusal

ROOT = Path(__file__).parent.parent.parent
OUTSIDE = {row.trigger for row in ROWS if row.target not in (INTERNAL, NO_OP)}


@pytest.fixture(scope="module", params=["overview", "full"])
def picture(request: pytest.FixtureRequest) -> str:
    return dot(read(), full=request.param == "full")


@pytest.mark.parametrize("path", files(ROOT / "diagrams"), ids=lambda path: path.name)
def test_what_is_committed_is_what_draw_writes(path: Path):
    """Each committed text form is up to date; else `python -m statechart draw` is due."""
    assert path.read_text(encoding="utf-8") == files(ROOT / "diagrams")[path]


def test_the_drawing_of_phases_is_found(tmp_path: Path):
    """In an installed package, else in the repository beside it; else one sentence says what to do."""
    package = tmp_path / "statechart"
    with pytest.raises(FileNotFoundError, match="reinstall phasekernel"):
        drawing(package)
    for place in (tmp_path / "diagrams" / "phases.svg", package / "phases.svg"):
        place.parent.mkdir()
        place.touch()
        assert drawing(package) == place
    assert drawing() == ROOT / "diagrams" / "phases.svg"


@pytest.mark.parametrize("name", ["lifecycle", "lifecycle-full"])
def test_each_picture_is_there(name: str):
    """There is an SVG of each DOT file, and it shows each leaf."""
    shown = set(re.findall(r">([a-z_]+)</text>", (ROOT / "diagrams" / f"{name}.svg").read_text(encoding="utf-8")))

    assert {short(leaf) for leaf in Leaf} <= shown


@pytest.mark.parametrize("leaf", Leaf)
def test_dot_shows_every_leaf(picture: str, leaf: Leaf):
    """Each leaf is a node with its name."""
    assert re.search(rf'^ *"{re.escape(leaf)}" \[label=<.*<B>{short(leaf)}</B>', picture, re.MULTILINE)


@pytest.mark.parametrize("leaf", Leaf)
def test_mermaid_shows_every_leaf(leaf: Leaf):
    """Each leaf stands on a line of its own."""
    assert re.search(rf"^ *{short(leaf)}$", mermaid(read()), re.MULTILINE)


def test_mermaid_names_are_unambiguous():
    """Mermaid knows a place by the last word of its path, and no two places share it."""
    names = [short(place) for place in read().places]

    assert len(set(names)) == len(names)


def test_mermaid_has_no_loops():
    """No edge leads from a place to itself."""
    edges = re.findall(r"^ *(\S+) --> (\S+)", mermaid(read()), re.MULTILINE)

    assert [source for source, target in edges if source == target] == []
    assert len(set(edges)) == len(edges)


def test_internal_transitions_are_no_edges(picture: str):
    """No edge carries a trigger that only ever stays in place, and none leads from a node to itself."""
    edges = [line for line in picture.splitlines() if " -> " in line]
    said = set(re.findall(r"[a-z_]+", " ".join(re.sub(r"\[[^\]]*\]", "", re.sub(r"<[^>]*>", " ", line)) for line in edges)))

    assert said & (({*Command, *Fact}) - OUTSIDE - {short(leaf) for leaf in Leaf}) == set()
    assert [line for line in edges if re.search(r'"([^"]+)" -> "\1"', line)] == []


def test_the_overview_has_no_guards():
    """The overview names triggers and no conditions."""
    assert set(re.findall(r"[a-z_]+", dot(read(), full=False))) & set(Guard) == set()


def test_the_full_picture_has_every_word():
    """The full picture names each trigger and each guard that decides where a step goes."""
    words = set(re.findall(r"[a-z_]+", dot(read(), full=True)))

    assert {*Command, *Fact} - words == set()
    moving = [row for row in ROWS if row.target not in (INTERNAL, NO_OP)]
    assert {guard for row in moving for guard in (*row.when, *row.unless)} - words == set()


def test_every_edge_of_the_machine_is_drawn():
    """The ends of the edges are the ends of the rows that go somewhere; a choice only stands between them."""
    chart = read()
    drawn = {(edge.source, edge.target) for edge in chart.edges(full=True)}
    through = with_choices(chart)
    behind = {edge.target for edge in through.edges(full=True) if edge.source == BRANCHING}
    before = {edge.source for edge in through.edges(full=True) if edge.target == BRANCHING}

    assert drawn == {(source, row.target) for row in ROWS for source in row.source if row.target not in (INTERNAL, NO_OP)}
    assert before == {Leaf.REQUESTING, Leaf.STREAMING}
    assert {(source, target) for source in before for target in behind} <= drawn


def test_each_hint_names_what_exists():
    """A hint for the layout is for an edge, a region or a leaf that is drawn."""
    chart = with_choices(read())
    edges = {(edge.source, edge.target) for edge in chart.edges(full=False)}

    assert edges >= UPWARD
    assert edges >= STRAIGHT
    assert set(chart.places) >= {*REGION, BRANCHING, LOWEST}
    assert {*chart.inside(""), *(place for place in chart.places if chart.inside(place))} == set(REGION)


def test_failures_have_their_colour():
    """Red are the facts that say that something failed, ran out of time or is gone."""
    assert {name for name in Fact if re.search("failed|halted|grace|deadline", name)} == FAILURES


@pytest.mark.parametrize("command", Command)
def test_the_method_table_has_a_cell_for_each_phase(command: Command):
    """Each method has a row, with something in the column of each phase."""
    (row,) = [line for line in methods(compile_table()).splitlines() if line.startswith(f"| `{command}` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")[1:]]

    assert len(cells) == len(Phase)
    assert all(re.search(r"→|internal|no-op|✗", cell) for cell in cells)


def test_the_method_table_says_what_happens():
    """A move, a refusal with its code and a condition are all there to read."""
    page = document(compile_table())

    assert "| `prompt` | → turn [prompt_fits]<br>✗ AGENT_MESSAGE_LIMIT | ✗ AGENT_BUSY |" in page
    assert "1. internal [queue_has_room ∧ item_fits]; ✗ AGENT_MESSAGE_LIMIT [queue_has_room ∧ ¬item_fits]; ✗ QUEUE" in page


def test_leaves_of_a_phase_that_differ_are_told_apart():
    """When the leaves of a phase answer differently, the cell says which one does what."""
    table = compile_table()
    table[Leaf.TOOLS]["cancel"] = Refuse(Refusal.BUSY)

    assert "opening: → cancelling" in methods(table)
    assert "tools: ✗ AGENT_BUSY" in methods(table)


def test_a_fact_that_can_not_come_is_a_dash():
    """Where no row knows a fact, its cell is a dash, also behind a guard."""
    table = compile_table()
    table[Leaf.RETRY][Fact.SETTLED] = Ask(Guard.UNWOUND, Step(Leaf.IDLE, ()), None)

    assert "→ idle [unwound]<br>–" in facts(table)


def holds(alternatives: list[Literals], answers: dict[Guard, bool]) -> bool:
    return any(all(answers[guard] is answer for guard, answer in literals) for literals in alternatives)


def means(text: str, answers: dict[Guard, bool]) -> bool:
    """What a condition says, read by Python."""
    words = text.replace("∧", " and ").replace("∨", " or ").replace("¬", " not ")
    return bool(eval(words or "True", {}, {str(guard): answer for guard, answer in answers.items()}))


def alternatives_of(decision: Decision, so_far: Literals = frozenset()) -> dict[Decision, list[Literals]]:
    """The cases of each outcome of a decision."""
    if not isinstance(decision, Ask):
        return {decision: [so_far]}
    found: dict[Decision, list[Literals]] = {}
    for answer, way in ((True, decision.yes), (False, decision.no)):
        for outcome, cases in alternatives_of(way, so_far | {(decision.guard, answer)}).items():
            found.setdefault(outcome, []).extend(cases)
    return found


DECISIONS = [decision for row in compile_table().values() for decision in row.values() if isinstance(decision, Ask)]


def test_conditions_mean_what_they_stand_for():
    """For every outcome of every cell, the short condition is true in exactly the cases of that outcome."""
    for cases in itertools.chain.from_iterable(alternatives_of(decision).values() for decision in DECISIONS):
        text = condition(cases)
        for answers in valuations({guard for literals in cases for guard, _ in literals}):
            assert means(text, dict(answers)) is holds(cases, dict(answers)), text


@pytest.mark.parametrize(
    ("alternatives", "text"),
    [
        ([{}], ""),
        ([{"a": True}, {"a": False}], ""),
        ([{"a": True}], "has_messages"),
        ([{"a": False}], "¬has_messages"),
        ([{"b": False, "a": True}], "has_messages ∧ ¬has_steering"),
        ([{"a": True}, {"a": False, "b": True}], "has_messages ∨ has_steering"),
        ([{"a": True, "b": True}, {"a": True, "b": False, "c": True}], "has_messages ∧ (has_follow_up ∨ has_steering)"),
        (
            [{"a": True, "b": True}, {"a": False, "c": True}],
            "(has_follow_up ∧ ¬has_messages) ∨ (has_messages ∧ has_steering)",
        ),
    ],
)
def test_conditions_are_short(alternatives: list[dict[str, bool]], text: str):
    """What is always true is not said, what is shared is said once, and no answer is named that does not matter."""
    names = {"a": Guard.HAS_MESSAGES, "b": Guard.HAS_STEERING, "c": Guard.HAS_FOLLOW_UP}
    literals = [frozenset((names[name], answer) for name, answer in each.items()) for each in alternatives]

    assert condition(literals) == text


def test_the_decisions_have_a_line_for_each_cell():
    """The shipped file has one line for each leaf and trigger, so that a change is a short diff."""
    table = compile_table()
    lines = decisions_text(dump(table)).splitlines()
    cells = [line for line in lines if line.startswith('"') and line.rstrip(",").endswith(("]", "}"))]

    assert len(cells) == sum(map(len, table.values()))
