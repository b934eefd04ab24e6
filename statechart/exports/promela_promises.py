"""What spin is asked: promises in linear temporal logic, written without an eye on `statechart.promises`.

They look at what is in the state, and at the last step: its `trigger`, the place it was `from`, how many items had `waited`
and whether one `could_enter` or `could_follow`, whether it was `refused`; how often it had something `begun`, `ended`,
`started` or `collided`, and how many items it `steered`, `followed` or `dropped`. How often an outcome was `decided`, a
good one was `undone` by a listener, and `run.finished` was `told` is counted through a run. Nothing is fair but that a step
is taken when there is one.

There is no operator for the next step in them, since Debian's spin is built without it.
"""

from typing import Final

from attrs import frozen

from statechart.vocabulary import Command

STILL: Final = (Command.CANCEL, Command.CLOSE, Command.STEER, Command.FOLLOW_UP)
"""Commands that a formula speaks of: for those it matters that they came, also where they change nothing."""


@frozen
class Property:
    """A promise: its name, what it says in words, and the formula."""

    name: str
    promise: str
    formula: str


WORDS: Final = {
    "resting": "place == AT_IDLE || place == AT_CLOSED",
    "in_run": "!resting",
    "stopping": "place == AT_CANCELLING || place == AT_SETTLING",
    "drains": "place == AT_IDLE || place == AT_STEERING || place == AT_FOLLOW_UP || (place == AT_OPENING && !drained)",
    "entered": "steered + followed > 0",
    "came_to_rest": "resting && ended == 1",
    "rested": "from == AT_IDLE || from == AT_CLOSED",
    "was_stopping": "from == AT_CANCELLING || from == AT_SETTLING",
    "told_to_stop": "trigger == BY_CANCEL || trigger == BY_CLOSE || trigger == BY_DEADLINE_ELAPSED",
    "queued": "(trigger == BY_STEER || trigger == BY_FOLLOW_UP) && !refused",
    "open": "turn_open || message || backoff || compaction || open_calls > 0",
    "left_over": "pending || finished || grace || deadline || halted || has_run",
}
"""What the formulas say by a word."""

PROPERTIES: Final = (
    Property("ends", "a run that was begun comes to an end", "[] (in_run -> <> resting)"),
    Property(
        "finished_once",
        "a run says run.finished exactly once, with an outcome, and comes to rest",
        "[] (begun -> ((in_run && (told == 0 || was_outcome != UNDECIDED)) U (came_to_rest && told == 1)))",
    ),
    Property(
        "decided_once",
        "a run gets exactly one outcome; only a failing listener may undo a good one, once, before it is told",
        "[] (begun -> ((in_run && decided <= 1 + undone) U (came_to_rest && undone <= 1 && decided == 1 + undone)))",
    ),
    Property(
        "begins",
        "a run begins from idle and nowhere else, and what leaves rest begins one",
        "[] ((begun -> (begun == 1 && from == AT_IDLE)) && ((rested && in_run) -> begun))",
    ),
    Property(
        "drain_points",
        "items enter where nothing is going on: with what opens a run or a turn, or in an opening that has not drained",
        "[] (entered -> (could_enter && place == AT_OPENING))",
    ),
    Property(
        "follow_ups",
        "a follow-up enters when nothing steers, and in a run when nothing is owed either",
        "[] (followed -> could_follow)",
    ),
    Property(
        "conserved",
        "each item that was accepted waits, has entered or was dropped",
        "[] (waited + queued == steering + follow_up + steered + followed + dropped)",
    ),
    Property(
        "cancel_answered",
        "cancel, close and the deadline stop a run wherever it is: it is cancelling, and its outcome is ill",
        "[] ((told_to_stop && !rested && !was_stopping) -> (place == AT_CANCELLING && outcome == ILL))",
    ),
    Property(
        "cancel_settles",
        "cancelling leads to settling and nowhere else, settling to rest, and the time for it is running meanwhile",
        "[] (place == AT_CANCELLING -> ((place == AT_CANCELLING && grace == TICKING) U (place == AT_SETTLING U resting)))",
    ),
    Property(
        "stays_stopped",
        "once a run has its outcome, by a cancel or otherwise, nothing starts and nothing enters until it is over",
        "[] ((in_run && outcome != UNDECIDED) -> ((started == 0 && !entered) U resting))",
    ),
    Property(
        "delivered_first",
        "what starts does so when everything that was said before has been heard",
        "[] (started -> trigger == BY_ADVANCE)",
    ),
    Property("one_thing", "a request, hook or summary never starts beside another, or beside tools", "[] (collided == 0)"),
    Property(
        "outcome_held",
        "who stops has an outcome, and an ill one while cancelling; nobody else has one",
        "[] ((stopping == (outcome != UNDECIDED)) && (place != AT_CANCELLING || outcome == ILL))",
    ),
    Property(
        "nothing_open",
        "while a run settles nothing is open or going on, and at rest nothing of it is left",
        "[] ((in_run && place != AT_SETTLING) || (!works && !open && !(resting && left_over)))",
    ),
    Property("closes", "an agent that was told to close begins no run any more", "[] (close_wanted -> [] (begun == 0))"),
    Property("answered", "each fact that may come has a step", "[] !unanswered"),
    Property(
        "relies",
        "in a run something is always to come that leads on without luck or rescue",
        "[] (in_run -> dependable)",
    ),
)
"""What has to hold."""
