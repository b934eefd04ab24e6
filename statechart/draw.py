"""Pictures of the live machine as DOT and Mermaid: regions, the ways between them, and what happens in place.

Everything is read from the machine of `transitions`, so a picture can't show what the library would not do. An internal
transition is never an edge: in the full picture it stands inside the box of its state, and the overview leaves it out.
All ways from one place to another share one edge, and each line of its label has the colour of its kind. Where several
states branch alike on a trigger, DOT draws the branches once, from a diamond. Mermaid, which has no colours for edges and
no hints, draws the ways between phases; those that lead into or out of a turn start or end at its border.
"""

import shutil
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from statechart.machine import PhaseMachine, machine
from statechart.method_table import Literals, condition
from statechart.vocabulary import RUNNING, TURN, Command, Fact, Guard, Leaf

COMMAND, FACT, FAILURE = "command", "fact", "failure"
FAILURES: Final = frozenset(
    {
        Fact.RESPONSE_FAILED,
        Fact.SUMMARY_FAILED,
        Fact.SUBSCRIBER_FAILED,
        Fact.DEADLINE_ELAPSED,
        Fact.GRACE_ELAPSED,
        Fact.HALTED,
    }
)

# How it looks. Nothing below decides what is drawn; a test says that each hint names what exists.

INK: Final = {COMMAND: "#1565c0", FACT: "#546e7a", FAILURE: "#c62828"}
PALE_INK: Final = "#78909c"
REGION: Final = {  # fill and border
    Leaf.IDLE: ("#c8e6c9", "#2e7d32"),
    RUNNING: ("#e3f2fd", "#1565c0"),
    TURN: ("#bbdefb", "#1565c0"),
    Leaf.CANCELLING: ("#ffe0b2", "#ef6c00"),
    Leaf.SETTLING: ("#e1bee7", "#7b1fa2"),
    Leaf.CLOSED: ("#eceff1", "#546e7a"),
}
INNER: Final = ("white", "#1565c0")
NOTICE: Final = "Written by `python -m statechart draw`; do not edit."
LABEL_WIDTH, BOX_WIDTH, BANNER_WIDTH = 24, 40, 60  # in characters
BRANCHING: Final = f"{RUNNING}.{Fact.RESPONSE_FAILED}?"
STRAIGHT: Final = frozenset(
    {
        (Leaf.IDLE, Leaf.OPENING),
        (Leaf.OPENING, Leaf.PROJECTING),
        (Leaf.PROJECTING, Leaf.REQUESTING),
        (Leaf.REQUESTING, Leaf.STREAMING),
        (Leaf.STREAMING, Leaf.TOOLS),
        (Leaf.SETTLING, Leaf.CLOSED),
    }
)
"""Edges that dot keeps as straight as it can."""
LOWEST: Final = Leaf.TOOLS
"""The leaf above the lower border of its region."""
UPWARD: Final = frozenset(
    {
        (Leaf.TOOLS, Leaf.STEERING),
        (Leaf.STEERING, Leaf.FOLLOW_UP),
        (Leaf.STEERING, Leaf.OPENING),
        (Leaf.FOLLOW_UP, Leaf.OPENING),
        (Leaf.OPENING, Leaf.COMPACTION),
        (Leaf.STREAMING, BRANCHING),
        (BRANCHING, Leaf.COMPACTION),
        (BRANCHING, Leaf.RETRY),
        (Leaf.SETTLING, Leaf.IDLE),
    }
)
"""Edges that dot is told of the other way round, so that it draws them upwards; all others it draws downwards."""


@frozen
class Way:
    """One transition of the machine: *target* is None when it stays in place, *acts* says whether it does anything."""

    trigger: Command | Fact
    source: str
    target: str | None
    needs: Literals
    acts: bool


@frozen
class Line:
    """One line of a label: triggers of one kind that go the same way under the same condition."""

    kind: str
    triggers: tuple[str, ...]
    condition: str


@frozen
class Edge:
    """All ways from one place to another."""

    source: str
    target: str
    lines: tuple[Line, ...]


@frozen
class Chart:
    """What a picture shows: the places in their order, where the machine starts, and the ways between them."""

    initial: str
    places: tuple[str, ...]
    ways: tuple[Way, ...]

    def inside(self, place: str) -> list[str]:
        """The places directly inside *place*; the outermost ones for the empty name."""
        return [name for name in self.places if name.rpartition(".")[0] == place]

    def edges(self, full: bool) -> list[Edge]:
        """The ways that go somewhere, merged; the conditions are left out unless *full*."""
        going: dict[tuple[str, str], list[Way]] = {}
        for way in self.ways:
            if way.target is not None:
                going.setdefault((way.source, way.target), []).append(way)
        return [Edge(source, target, _lines(ways, full)) for (source, target), ways in going.items()]

    def in_place(self, place: str, acting: bool) -> tuple[Line, ...]:
        """The internal transitions of *place*: those that do something, or else those that do nothing."""
        staying = [way for way in self.ways if way.source == place and way.target is None]
        return _lines([way for way in staying if way.acts is acting], full=True)


def kind_of(trigger: Command | Fact) -> str:
    """Which colour a trigger has."""
    if isinstance(trigger, Command):
        return COMMAND
    return FAILURE if trigger in FAILURES else FACT


def is_choice(place: str) -> bool:
    """Whether a place is a diamond and not a state."""
    return place.endswith("?")


def short(place: str) -> str:
    """The last word of a path."""
    return place.rpartition(".")[2]


def read(live: PhaseMachine | None = None) -> Chart:
    """The chart of the live machine (or of *live*)."""
    subject = live if live is not None else machine()
    return Chart(str(subject.initial), tuple(subject.get_nested_state_names()), tuple(_ways(subject)))


def _ways(live: PhaseMachine) -> Iterator[Way]:
    for trigger in (*Command, *Fact):
        for transition in live.get_transitions(trigger):
            needs = frozenset((Guard(str(asked.func)), asked.target) for asked in transition.conditions)
            yield Way(trigger, transition.source, transition.dest, needs, bool(transition.after))


def with_choices(chart: Chart) -> Chart:
    """The same chart; where several states branch alike on a trigger, they are led through one diamond."""
    ways = tuple(_through_choices(chart.ways))
    diamonds = dict.fromkeys(way.source for way in ways if is_choice(way.source))
    return evolve(chart, places=(*chart.places, *diamonds), ways=ways)


def _through_choices(ways: Iterable[Way]) -> Iterator[Way]:
    answers: dict[tuple[Command | Fact, str], list[Way]] = {}
    for way in ways:
        answers.setdefault((way.trigger, way.source), []).append(way)
    alike: dict[tuple[Command | Fact, frozenset[tuple[Literals, str | None]]], list[list[Way]]] = {}
    for (trigger, _), group in answers.items():
        alike.setdefault((trigger, frozenset((way.needs, way.target) for way in group)), []).append(group)
    for (trigger, branches), groups in alike.items():
        if len(groups) > 1 and len({target for _, target in branches if target is not None}) > 1:
            diamond = f"{groups[0][0].source.partition('.')[0]}.{trigger}?"
            yield from (Way(trigger, group[0].source, diamond, frozenset(), True) for group in groups)
            yield from (evolve(way, source=diamond) for way in groups[0])
        else:
            yield from (way for group in groups for way in group)


def _lines(ways: Iterable[Way], full: bool) -> tuple[Line, ...]:
    """One line for each kind and condition; commands come first, then facts, then failures."""
    needs: dict[Command | Fact, list[Literals]] = {}
    for way in ways:
        needs.setdefault(way.trigger, []).append(way.needs)
    merged: dict[tuple[str, str], list[str]] = {}
    for trigger, alternatives in needs.items():
        said = condition(alternatives) if full else ""
        merged.setdefault((kind_of(trigger), said), []).append(str(trigger))
    found = [Line(kind, tuple(triggers), said) for (kind, said), triggers in merged.items()]
    return tuple(sorted(found, key=lambda line: list(INK).index(line.kind)))


def between_phases(chart: Chart) -> Chart:
    """The same chart; ways that lead into or out of the turn start or end at its border instead of at one of its leaves."""

    def lifted(place: str) -> str:
        return TURN if place.startswith(f"{TURN}.") else place

    def lift(way: Way) -> Way:
        if way.target is None or lifted(way.source) == lifted(way.target):
            return way
        return evolve(way, source=lifted(way.source), target=lifted(way.target))

    return evolve(chart, ways=tuple(map(lift, chart.ways)))


def mermaid(chart: Chart) -> str:
    """The overview as a Mermaid state diagram."""
    simple = between_phases(chart)
    index = simple.places.index
    edges = sorted(
        simple.edges(full=False),
        key=lambda edge: (index(edge.target), edge.source == RUNNING, index(edge.source)),
    )
    within = [edge for edge in edges if edge.source.startswith(f"{TURN}.")]
    body = [
        "direction TB",
        f"[*] --> {short(chart.initial)}",
        *(line for place in chart.inside("") for line in _mermaid_place(simple, place, within)),
        *(_mermaid_edge(edge) for edge in edges if edge not in within),
        *(f"classDef {short(place)} fill:{fill},stroke:{border},color:#000" for place, (fill, border) in REGION.items()),
        *(f"class {short(place)} {short(place)}" for place in REGION),
    ]
    return "\n".join([f"%% {NOTICE}", "stateDiagram-v2", *_indented(body), ""])


def _mermaid_place(chart: Chart, place: str, within: list[Edge]) -> list[str]:
    inside = chart.inside(place)
    if not inside:
        return [short(place)]
    body = [line for inner in inside for line in _mermaid_place(chart, inner, within)]
    if place == TURN:
        body = ["direction LR", *body, *map(_mermaid_edge, within)]
    return [f"state {short(place)} {{", *_indented(body), "}"]


def _mermaid_edge(edge: Edge) -> str:
    """The longest trigger comes first, since Mermaid lets the next box cover the end of a label."""
    triggers = sorted((trigger for line in edge.lines for trigger in line.triggers), key=len, reverse=True)
    return f"{short(edge.source)} --> {short(edge.target)} : {'<br>'.join(triggers)}"


def dot(chart: Chart, full: bool) -> str:
    """The chart in the language of graphviz; with conditions and with what happens in place when *full*."""
    chart = with_choices(chart)
    spacing = "nodesep=0.4 ranksep=0.35" if full else "nodesep=0.5 ranksep=0.4"
    body = [
        f'graph [compound=true rankdir=TB fontname="Arial" fontsize=14 pad=0.3 {spacing}];',
        f"label=<{_dot_legend(full)}>; labelloc=b; labeljust=l;",
        'node [shape=plain fontname="Arial" fontsize=13];',
        'edge [fontname="Arial" fontsize=11 arrowsize=0.7 penwidth=1.2];',
        'start [shape=circle style=filled fillcolor=black width=0.16 fixedsize=true label=""];',
        *(line for place in chart.inside("") for line in _dot_place(chart, place, full)),
        f'start -> "{chart.initial}" [color="{INK[FACT]}"];',
        *(_dot_edge(chart, edge) for edge in chart.edges(full)),
    ]
    return "\n".join([f"// {NOTICE}", "digraph lifecycle {", *_indented(body), "}", ""])


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _dot_legend(full: bool) -> str:
    words = {COMMAND: "a caller's command", FACT: "a fact that the shell reports", FAILURE: "a failure or an end by force"}
    rows = [row for kind, text in words.items() for row in _dot_text(text, BANNER_WIDTH, INK[kind], 10)]
    if full:
        rows += _dot_text("in a box: what happens there without leaving it; in brackets: when", 80, PALE_INK, 10)
    return _dot_table(rows)


def _dot_place(chart: Chart, place: str, full: bool) -> list[str]:
    if is_choice(place):
        ink = f'fillcolor="#ffcdd2" color="{INK[FAILURE]}"'
        return [f'"{place}" [shape=diamond label="" width=0.22 height=0.22 style=filled {ink}];']
    if not chart.inside(place):
        return [f'"{place}" [label=<{_dot_box(chart, place, full)}>];']
    fill, border = REGION[place]
    look = f'labelloc=t; labeljust=l; style="rounded,filled"; fillcolor="{fill}"; color="{border}";'
    title = _dot_table([_dot_row(f"<B>{short(place)}</B>"), *_dot_in_place(chart, place, full, BANNER_WIDTH)])
    body = [
        f"label=<{title}>; {look}",
        *(line for inner in chart.inside(place) for line in _dot_place(chart, inner, full)),
        *_dot_exit(chart, place),
    ]
    return [f'subgraph "cluster_{place}" {{', *_indented(body), "}"]


def _dot_exit(chart: Chart, place: str) -> list[str]:
    """An unseen point at the lower border of a region, from which the edges start that leave it as a whole."""
    if all(way.source != place or way.target is None for way in chart.ways):
        return []
    return [
        f'"{place} border" [shape=point style=invis width=0.01];',
        f'"{LOWEST}" -> "{place} border" [style=invis weight=20];',
    ]


def _dot_box(chart: Chart, place: str, full: bool) -> str:
    """The box of a leaf, with a second compartment for what happens in place."""
    fill, border = REGION.get(place, INNER)
    rows = [f'<TR><TD CELLPADDING="6"> <B>{short(place)}</B> </TD></TR>']
    if inner := _dot_in_place(chart, place, full, BOX_WIDTH):
        rows += ["<HR/>", "<TR><TD></TD></TR>", *inner, "<TR><TD></TD></TR>"]
    return _dot_table(rows, f'BORDER="1" CELLBORDER="0" STYLE="ROUNDED" BGCOLOR="{fill}" COLOR="{border}"')


def _dot_in_place(chart: Chart, place: str, full: bool, width: int) -> list[str]:
    if not full:
        return []
    rows = []
    for line in chart.in_place(place, acting=True):
        text = ", ".join(line.triggers) + (f" [{line.condition}]" if line.condition else "")
        rows += _dot_text(text, width, INK[line.kind], 9)
    still = [trigger for line in chart.in_place(place, acting=False) for trigger in line.triggers]
    return rows + (_dot_text(f"no-op: {', '.join(still)}", width, PALE_INK, 9) if still else [])


def _dot_edge(chart: Chart, edge: Edge) -> str:
    tail, head = edge.source, edge.target
    attributes = [f"label=<{_dot_label(edge)}>"] if _dot_label(edge) else []
    attributes.append(f'color="{":".join(dict.fromkeys(INK[line.kind] for line in edge.lines))}"')
    if chart.inside(tail):
        attributes.append(f'ltail="cluster_{tail}"')
        tail = f"{tail} border"
    if (edge.source, edge.target) in UPWARD:
        tail, head = head, tail
        attributes.append("dir=back")
    if (edge.source, edge.target) in STRAIGHT:
        attributes.append("weight=20")
    return f'"{tail}" -> "{head}" [{" ".join(attributes)}];'


def _dot_label(edge: Edge) -> str:
    """The lines of an edge; behind a diamond the trigger is known, so that only the condition is said."""
    rows = []
    for line in edge.lines:
        triggers = (", ".join(line.triggers),) if line.condition else line.triggers
        for trigger in () if is_choice(edge.source) else triggers:
            rows += _dot_text(trigger, LABEL_WIDTH, INK[line.kind], 11)
        rows += _dot_text(f"[{line.condition}]", LABEL_WIDTH, INK[line.kind], 9) if line.condition else []
    return _dot_table(rows) if rows else ""


def _dot_text(text: str, width: int, ink: str, size: int) -> list[str]:
    parts = textwrap.wrap(text, width, break_long_words=False)
    return [_dot_row(f'<FONT COLOR="{ink}" POINT-SIZE="{size}">&#160;{escape(part)}&#160;</FONT>') for part in parts]


def _dot_row(content: str) -> str:
    return f'<TR><TD ALIGN="LEFT">{content}</TD></TR>'


def _dot_table(rows: list[str], look: str = 'BORDER="0"') -> str:
    return f'<TABLE CELLSPACING="0" CELLPADDING="1" {look}>{"".join(rows)}</TABLE>'


def texts() -> dict[str, str]:
    """The text forms of all pictures, by file name."""
    chart = read()
    return {
        "lifecycle.dot": dot(chart, full=False),
        "lifecycle-full.dot": dot(chart, full=True),
        "lifecycle.mmd": mermaid(chart),
    }


def render(folder: Path) -> list[Path] | None:
    """Turn each DOT file of *folder* into an SVG beside it, and say which; None when graphviz is not installed."""
    program = shutil.which("dot")
    if program is None:
        return None
    pictures = {source: source.with_suffix(".svg") for source in sorted(folder.glob("*.dot"))}
    for source, picture in pictures.items():
        subprocess.run([program, "-Tsvg", str(source), "-o", str(picture)], check=True)
    return list(pictures.values())
