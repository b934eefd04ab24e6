"""The lifecycle with its meaning as a Promela model, so that spin goes through all states of it and checks promises in LTL.

It is the product that `statechart.model` describes, in another language and for another search. Each way through a cell
of the decision table is one atomic step. Shared with the exploration: the decision table itself, which is read off the live
machine, the names of the state vector, what is forgotten where (`LIVES`), and the bounds. Written a second time, and thus
an opinion of its own: when a fact may come and what it uses up, what guards and actions mean (`promela_meaning`), what is
a step and in what order it is made (here), the promises (`promela_promises`), and the whole search, which is spin's.

Not independent: both meanings were written by us, so a misunderstanding of the kernel can be in both. That the first one is
right about the real core is what the tests say that play its paths there; that the second is the same as the first is said
by a test that compares all steps of both at small bounds, and the numbers of states at larger ones.

Two ways to compile it, by the preprocessor. Plainly, what the last step did stays in the state, for the formulas to ask,
and a command of `STILL` that changes nothing is a step too, as is a fact that nobody answers. With `-DBARE` the state is
the vector alone and there are no formulas: what spin stores is then, state by state, what the exploration reaches.
`-DTRACED` besides makes it print each step.

Spin wants `-o2`: what it does to dead variables otherwise loses states here (spin 6.5.2: 670 of 698).

Weak point: an action that leaves something open does not know what another action of the same step has left open, but for
what a guard has picked; the exploration picks it once. No step of ours has two such actions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from attrs import asdict, frozen

from statechart import world
from statechart.decisions import Ask, Decision, Decisions, Refuse, Step
from statechart.exports.promela_meaning import ACTIONS, GUARDS, LUCK, PARTS, RENAMED, SAYS, USES
from statechart.exports.promela_promises import PROPERTIES, STILL, WORDS
from statechart.vocabulary import Action, Command, Fact, Guard, Leaf
from statechart.world import LEAVES, LIVES, VECTOR, Bounds

TRIGGERS: Final = (*Command, *Fact)
NOTED: Final = {
    "trigger": "by",
    "deed": "what",
    "from": "place",
    "waited": "steering + follow_up",
    "was_outcome": "outcome",
    "could_enter": "drains && !works && open_calls == 0",
    "could_follow": "steering == 0 && (place == AT_IDLE || (place == AT_FOLLOW_UP && !owed))",
}
"""What a step notes of the state before it."""
DONE: Final = ("refused", "unanswered", "begun", "ended", "started", "collided", "steered", "followed", "dropped")
"""What it does, from 0."""
COUNTED: Final = ("decided", "undone", "told")
"""What is counted through a run."""
CONSTANTS: Final = (
    ("EMPTY", "ANSWERED", "OWED"),
    ("UNDECIDED", "WELL", "ILL"),
    ("MANUAL", "THRESHOLD", "OVERFLOW"),
    ("NOTHING", "PROJECTION", "REQUEST", "STOP_HOOK", "SUMMARY", "CHECK"),
    ("NO_TIMER", "TICKING", "OVER"),
    ("UNASKED", "GO_ON", "STOP"),
    ("UNCHECKED", "RIGHT", "WRONG"),
)
UNPICKED: Final = 255
HEAD: Final = """\
/* Written by `python -m statechart export promela`; do not edit.

   spin -o2 -a FILE && gcc -w -DNOREDUCE -o pan pan.c     and, for each formula: ./pan -a -m1000000 -N NAME
   spin -o2 -DBARE -a FILE && gcc -w -DNOREDUCE -DSAFETY -o pan pan.c && ./pan -m1000000     counts the states

   Without -o2 spin loses states; gcc needs minutes when it optimizes. */
"""
_PICK: Final = re.compile(r"\bpick_\w+")
_FILLED: Final = re.compile(r"\b(?:trigger|pick_\w+)")


_Deed = tuple[Leaf | None, tuple[Action, ...]]
"""Where it goes, if it goes, and what it does."""


@frozen
class _Way:
    """One end of a cell: what the guards must answer, and what is decided."""

    leaf: Leaf
    trigger: Command | Fact
    answers: tuple[tuple[Guard, bool], ...]
    decision: Decision

    @property
    def is_paid(self) -> bool:
        return isinstance(self.trigger, Command) or self.trigger is Fact.SUBSCRIBER_FAILED

    @property
    def is_step(self) -> bool:
        """Whether the world moves: a fact that a row knows, or what costs something and does something."""
        if not isinstance(self.decision, Step):
            return False
        changes = self.decision.target is not self.leaf or any(ACTIONS[action] for action in self.decision.do)
        return changes or not self.is_paid


def promela(table: Decisions, bounds: Bounds) -> str:
    """The model of *table* within *bounds* as text."""
    ways = [way for leaf in Leaf for trigger in TRIGGERS for way in _ways(leaf, trigger, (), table[leaf].get(trigger))]
    sections = (
        (HEAD,),
        _constants(bounds),
        _variables(),
        (PARTS,),
        (f"#define {word} ({text})" for word, text in WORDS.items()),
        _meanings(),
        _surroundings(),
        _process(ways, bounds),
        _promises(),
    )
    return "\n".join("\n".join(section) for section in sections) + "\n"


def _ways(leaf: Leaf, trigger: Command | Fact, answers: tuple[tuple[Guard, bool], ...], node: Decision) -> Iterator[_Way]:
    if isinstance(node, Ask):
        yield from _ways(leaf, trigger, (*answers, (node.guard, True)), node.yes)
        yield from _ways(leaf, trigger, (*answers, (node.guard, False)), node.no)
    else:
        yield _Way(leaf, trigger, answers, node)


def _constants(bounds: Bounds) -> Iterator[str]:
    for name, value in asdict(bounds).items():
        yield f"#define {name.upper()} {value}"
    for name in (name for group in CONSTANTS for name in group):
        yield f"#define {name} {getattr(world, name)}"
    yield f"#define UNPICKED {UNPICKED}"
    for leaf in LEAVES:
        yield f"#define {_at(leaf)} {LEAVES.index(leaf)}"
    for number, trigger in enumerate(TRIGGERS, 1):
        yield f"#define {_by(trigger)} {number}"
    yield ""


def _variables() -> Iterator[str]:
    for name in VECTOR:
        yield f"byte {_named(name)}" + (" = COMMANDS;" if name == "budget" else ";")
    yield f"byte {', '.join((*NOTED, *DONE, *COUNTED))};"
    yield f"byte {', '.join(f'{pick} = UNPICKED' for pick in _picks(ACTIONS.values()))};"
    yield "#ifdef TRACED"
    yield f"byte {', '.join(map(_before, VECTOR))};"
    yield "#endif\n"


def _meanings() -> Iterator[str]:
    for guard, text in GUARDS.items():
        filled = ", ".join(_to_fill(guard))
        yield f"#define asks_{guard}{f'({filled})' if filled else ''} ({text})"
    for fact, text in SAYS.items():
        yield f"#define says_{fact} ({text})"
    yield ""
    for action, text in ACTIONS.items():
        if text:
            yield f"inline do_{action}() {{\n  {text}\n}}"
    yield ""


def _surroundings() -> Iterator[str]:
    """What comes before the actions of a step and after them."""
    yield "inline use_up() {\n  if"
    for fact, text in USES.items():
        yield f"  :: trigger == {_by(fact)} -> {text}"
    yield f"  :: trigger < {_by(TRIGGERS[len(Command)])} -> budget-- /* a command */\n  :: else\n  fi\n}}"
    yield "inline forget() {\n  if"
    for leaf in LEAVES:
        dead = [_named(name) for name, leaves in LIVES.items() if leaf not in leaves]
        yield f"  :: place == {_at(leaf)} -> {_at_once(f'{name} = 0' for name in dead)}"
    yield "  fi\n}"
    unpick = [f"{pick} = UNPICKED" for pick in _picks(ACTIONS.values())]
    yield "#ifdef TRACED"
    yield f"inline note() {{ {_at_once(f'{_before(name)} = {_named(name)}' for name in VECTOR)} }}"
    told = "; ".join(f'printf(" %d", {number})' for number in (*map(_before, VECTOR), *map(_named, VECTOR)))
    lost = _at_once(f"{_before(name)} = 0" for name in VECTOR)
    yield f'inline tell() {{\n  printf("step %d", trigger); {told}; printf("\\n");\n  {lost}\n}}'
    yield "#else\ninline note() { skip }\ninline tell() { skip }\n#endif"
    yield "#ifdef BARE"
    yield "inline begin_step(by, what) { trigger = by; deed = what; note() }"
    unseen = (f"{name} = 0" for name in (*NOTED, *DONE, *COUNTED))
    yield f"inline end_step() {{ tell(); {_at_once((*unpick, *unseen))} }}"
    yield "#else"
    noted = (f"{name} = {text}" for name, text in NOTED.items())
    yield f"inline begin_step(by, what) {{ {_at_once((*noted, *(f'{name} = 0' for name in DONE)))} }}"
    yield f"inline end_step() {{ {_at_once((*unpick, 'deed = 0'))} }}"
    yield "#endif\n"


def _process(ways: Iterable[_Way], bounds: Bounds) -> Iterator[str]:
    """Choose a way, and do its deed. Ways that do the same share its code: gcc needs minutes where each has its own."""
    deeds: dict[_Deed, int] = {}
    yield "active proctype lifecycle() {\nend:\n  do\n  :: atomic {\n    if"
    for way in ways:
        if way.is_step:
            yield from _options(way, bounds, deeds)
    yield "#ifndef BARE"
    for way in ways:
        if not way.is_step and (way.decision is None or way.trigger in STILL):
            yield from _options(way, bounds, deeds)
    yield "#endif\n    fi;\n    use_up();\n    if"
    for (target, do), deed in deeds.items():
        what = (f"place = {_at(target)}" if target else "", *(f"do_{action}()" for action in do))
        yield f"    :: deed == {deed} -> {'; '.join(filter(None, what)) or 'skip'}"
    yield "    fi;\n    forget();\n    end_step()\n  }\n  od\n}\n"


def _options(way: _Way, bounds: Bounds, deeds: dict[_Deed, int]) -> Iterator[str]:
    """The beginning of a step, once for each combination of what its guards pick."""
    step = way.decision if isinstance(way.decision, Step) else Step(way.leaf, ())
    do = tuple(action for action in step.do if ACTIONS[action])
    deed = deeds.setdefault((step.target if step.target is not way.leaf else None, do), len(deeds) + 1)
    remembered = _picks(ACTIONS[action] for action in do)
    answer = "; refused = 1" if isinstance(way.decision, Refuse) else "" if way.decision else "; unanswered = 1"
    for picks in _valuations(way, bounds):
        kept = "".join(f"; {name} = {value}" for name, value in picks.items() if name in remembered)
        yield f"    :: {_condition(way, picks)} -> begin_step({_by(way.trigger)}, {deed}){answer}{kept}"


def _valuations(way: _Way, bounds: Bounds) -> Iterator[dict[str, int]]:
    """What the guards of a way may pick; where a pick is all that a guard asks, it is what the guard answers."""
    known = {GUARDS[guard]: (int(yes),) for guard, yes in way.answers}
    names = _picks(GUARDS[guard] for guard, _ in way.answers)
    ranges = (known.get(name, range(bounds.calls + 1) if name == "pick_calls" else (0, 1)) for name in names)
    for values in product(*ranges):
        yield dict(zip(names, values, strict=True))


def _condition(way: _Way, picks: Mapping[str, int]) -> str:
    comes = f"says_{way.trigger}" if isinstance(way.trigger, Fact) else "budget > 0"
    return " && ".join((f"place == {_at(way.leaf)}", comes, *_answers(way, picks)))


def _answers(way: _Way, picks: Mapping[str, int]) -> Iterator[str]:
    for guard, yes in way.answers:
        filled = ", ".join(_by(way.trigger) if name == "trigger" else str(picks[name]) for name in _to_fill(guard))
        yield f"{'' if yes else '!'}asks_{guard}{f'({filled})' if filled else ''}"


def _promises() -> Iterator[str]:
    yield "#ifndef BARE"
    yield f"#define dependable ({' || '.join(f'says_{fact}' for fact in Fact if fact not in LUCK)})"
    for each in PROPERTIES:
        yield f"/* {each.promise} */\nltl {each.name} {{ {each.formula} }}"
    yield "#endif"


def _at_once(statements: Iterable[str]) -> str:
    return f"d_step {{ {'; '.join(statements) or 'skip'} }}"


def _picks(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for text in texts for name in _PICK.findall(text)))


def _to_fill(guard: Guard) -> list[str]:
    return list(dict.fromkeys(_FILLED.findall(GUARDS[guard])))


def _named(name: str) -> str:
    return RENAMED.get(name, name)


def _before(name: str) -> str:
    return f"before_{name}"


def _short(leaf: Leaf) -> str:
    return leaf.rpartition(".")[2]


def _at(leaf: Leaf) -> str:
    return f"AT_{_short(leaf).upper()}"


def _by(trigger: Command | Fact) -> str:
    return f"BY_{trigger.strip('_').upper()}"
