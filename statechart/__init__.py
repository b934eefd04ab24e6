"""What a run may do: the lifecycle of an agent as a declared statechart. Pure; knows no message, model, tool or clock."""

from statechart.decisions import Ask, Decision, Decisions, Refuse, Step, compile_table, decisions
from statechart.table import INTERNAL, NO_OP, ROWS, Row
from statechart.vocabulary import RUNNING, Action, Command, Fact, Guard, Leaf, Phase, Refusal, phase_of

__all__ = [
    "INTERNAL",
    "NO_OP",
    "ROWS",
    "RUNNING",
    "Action",
    "Ask",
    "Command",
    "Decision",
    "Decisions",
    "Fact",
    "Guard",
    "Leaf",
    "Phase",
    "Refusal",
    "Refuse",
    "Row",
    "Step",
    "compile_table",
    "decisions",
    "phase_of",
]
