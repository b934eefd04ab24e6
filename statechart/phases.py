"""A picture of what a user sees: the phases, and the ways between them, with ids by which a run's path can be marked.

It is read from the live machine like the other pictures (`statechart.draw`), and merged: leaves that show as one phase are
one box, and all transitions from one phase to another are one arrow. The drawing is shipped with the package, so that
whoever looks at a run needs no graphviz.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from statechart.draw import FAILURES, INK, NOTICE, REGION, kind_of, read
from statechart.vocabulary import TURN, Command, Fact, Leaf, Phase, phase_of

NAME: Final = "phases"
_FILLS: Final = {Phase.TURN: REGION[TURN], **{phase_of(leaf): REGION[leaf] for leaf in Leaf if leaf in REGION}}
_PLAIN: Final = ("white", "#1565c0")
_RANKS: Final = ((Phase.RETRY, Phase.STEERING, Phase.COMPACTION),)
_ROOM: Final = "\N{NO-BREAK SPACE}" * 6
"""Where nobody's command leads: the room for how often a run went there."""
_UPWARD: Final = frozenset(
    {
        (Phase.SETTLING, Phase.IDLE),
        (Phase.STEERING, Phase.TURN),
        (Phase.FOLLOW_UP, Phase.TURN),
        (Phase.RETRY, Phase.TURN),
        (Phase.COMPACTION, Phase.TURN),
    }
)
"""Ways that lead back: dot is told of them the other way round, so that it draws them upwards."""


def ways_between() -> dict[tuple[Phase, Phase], tuple[Command | Fact, ...]]:
    """What leads from each phase to another one, in the order of the declaration."""
    found: dict[tuple[Phase, Phase], dict[Command | Fact, None]] = {}
    for way in read().ways:
        for leaf in Leaf:
            if way.target is None or not (leaf == way.source or leaf.startswith(f"{way.source}.")):
                continue
            source, target = phase_of(leaf), phase_of(Leaf(way.target))
            if source is not target:
                found.setdefault((source, target), {})[way.trigger] = None
    return {pair: tuple(triggers) for pair, triggers in sorted(found.items())}


def place_id(phase: str) -> str:
    """The id of a phase's box in the drawing."""
    return f"phase-{phase}"


def way_id(source: str, target: str) -> str:
    """The id of an arrow in the drawing."""
    return f"way-{source}-{target}"


def phases_dot() -> str:
    """The picture in the language of graphviz."""
    return "\n".join([f"// {NOTICE}", "digraph phases {", *(f"  {line}" for line in _body()), "}", ""])


def _body() -> Iterator[str]:
    yield 'graph [rankdir=TB fontname="Arial" pad=0.3 nodesep=0.45 ranksep=0.45];'
    yield 'node [shape=box style="rounded,filled" fontname="Arial" fontsize=14 height=0.62 width=1.4];'
    yield 'edge [fontname="Arial" fontsize=11 arrowsize=0.7];'
    for phase in Phase:
        fill, border = _FILLS.get(phase, _PLAIN)
        yield f'"{phase}" [id="{place_id(phase)}" fillcolor="{fill}" color="{border}"];'
    for rank in _RANKS:
        names = " ".join(f'"{phase}";' for phase in rank)
        yield f"{{ rank=same; {names} }}"
    for (source, target), triggers in ways_between().items():
        yield _arrow(source, target, triggers)


def _arrow(source: Phase, target: Phase, triggers: tuple[Command | Fact, ...]) -> str:
    ink = INK[kind_of(next((trigger for trigger in triggers if trigger not in FAILURES), triggers[0]))]
    label = next((f" {trigger} " for trigger in triggers if isinstance(trigger, Command)), _ROOM)
    tail, head, back = (target, source, " dir=back") if (source, target) in _UPWARD else (source, target, "")
    return f'"{tail}" -> "{head}" [id="{way_id(source, target)}" label="{label}" color="{ink}" fontcolor="{ink}"{back}];'


def drawing(package: Path = Path(__file__).parent) -> Path:
    """Where the drawing is: in the installed package, or in the repository beside it. Raises FileNotFoundError."""
    for path in (package / f"{NAME}.svg", package.parent / "diagrams" / f"{NAME}.svg"):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{NAME}.svg is neither in {package} nor in {package.parent / 'diagrams'}: reinstall phasekernel"
    )
