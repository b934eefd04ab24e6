"""What each fact, guard and action means, a second time: in Promela, from the words of the vocabulary.

The same as `statechart.model`, `statechart.guard_meaning` and `statechart.action_meaning`, written anew and not translated:
nobody's opinion is worth much twice when it is only copied. Nothing here is believed alone. Spin prints every step of this
model, the exploration makes every step of the other one, and a test wants the two sets of steps to be equal.

How it is read. The numbers of the state vector have their own names, but for `has_run`, since `run` is a word of Promela. A
guard is an expression; `trigger` and each `pick_…` in it are filled in before it is asked, so that whether there is a step
is known before it is begun. An action is a sequence of statements that never blocks. What nothing else asks about is simply
left open there, by an `if` with more than one way; where a guard has picked already, the action takes that (`pick_…`).
"""

from typing import Final

from statechart.vocabulary import Action, Fact, Guard

RENAMED: Final = {"run": "has_run"}

SAYS: Final[dict[Fact, str]] = {
    Fact.ADVANCE: "pending",
    Fact.PROJECTED: "going == PROJECTION",
    Fact.RESPONSE_STARTED: "going == REQUEST && place == AT_REQUESTING",
    Fact.RESPONSE_COMPLETED: "going == REQUEST && place != AT_REQUESTING",
    Fact.RESPONSE_FAILED: "going == REQUEST",
    Fact.CALL_PREPARED: "preparing > 0",
    Fact.TOOL_SETTLED: "running > 0",
    Fact.HOOK_RETURNED: "hooks > 0 || going == STOP_HOOK",
    Fact.OUTPUT_CHECKED: "going == CHECK",
    Fact.SUMMARIZED: "going == SUMMARY",
    Fact.SUMMARY_FAILED: "going == SUMMARY",
    Fact.BACKOFF_ELAPSED: "backoff == TICKING",
    Fact.GRACE_ELAPSED: "grace == TICKING",
    Fact.DEADLINE_ELAPSED: "deadline",
    Fact.SUBSCRIBER_FAILED: "budget > 0",
    Fact.HALTED: "has_run && !halted",
    Fact.SETTLED: "finished",
}
"""When a fact may come."""

USES: Final[dict[Fact, str]] = {
    Fact.ADVANCE: "pending = 0",
    Fact.BACKOFF_ELAPSED: "backoff = OVER",
    Fact.GRACE_ELAPSED: "grace = OVER",
    Fact.DEADLINE_ELAPSED: "deadline = 0",
    Fact.SUBSCRIBER_FAILED: "budget--",
    Fact.HALTED: "halted = 1",
}
"""What a fact uses up by coming."""

LUCK: Final = (Fact.GRACE_ELAPSED, Fact.DEADLINE_ELAPSED, Fact.SUBSCRIBER_FAILED, Fact.HALTED)
"""Facts that nobody may wait for: rescue, or mishap."""

GUARDS: Final[dict[Guard, str]] = {
    Guard.PROMPT_FITS: "pick_fits",
    Guard.QUEUE_HAS_ROOM: "steering + follow_up < QUEUE",
    Guard.ITEM_FITS: "pick_fits",
    Guard.HAS_MESSAGES: "tail != EMPTY",
    Guard.HAS_STEERING: "steering > 0",
    Guard.HAS_FOLLOW_UP: "follow_up > 0",
    Guard.TAIL_OWED: "tail == OWED",
    Guard.COMPACTABLE: "compaction == MANUAL || compaction == THRESHOLD || (tail != EMPTY && pick_compactable)",
    Guard.STEERING_JOINS: "steering > 0 && !drained",
    Guard.COMPACTION_DUE: "!threshold_tried && pick_due",
    Guard.OVERFLOW_RECOVERABLE: "pick_overflow && !overflow_tried",
    Guard.RETRYABLE: "pick_passing && !pick_overflow && attempts + 1 < ATTEMPTS",
    Guard.USAGE_LEFT: "!pick_spent",
    Guard.RESPONSE_FITS: "pick_fits",
    Guard.CALLS_RUNNABLE: "pick_calls > 0 && !pick_truncated",
    Guard.BATCH_OVER: (
        "open_calls == 1 && (trigger == BY_HOOK_RETURNED || (trigger == BY_CALL_PREPARED && pick_unfit)"
        " || (trigger == BY_TOOL_SETTLED && !pick_result_hook))"
    ),
    Guard.STOP_UNASKED: "stop == UNASKED && pick_stop_hook",
    Guard.STOP_WANTED: "stop == STOP",
    Guard.TURN_LEFT: "turn < TURNS",
    Guard.TURN_OWED: "owed",
    Guard.OUTPUT_DUE: "pick_output && tail == ANSWERED && answer == UNCHECKED",
    Guard.OUTPUT_WRONG: "answer == WRONG",
    Guard.CORRECTION_FITS: "pick_fits",
    Guard.COMPACTION_MANUAL: "compaction == MANUAL",
    Guard.COMPACTION_THRESHOLD: "compaction == THRESHOLD",
    Guard.SUMMARY_SHRINKS: "pick_shrinks",
    Guard.FAILS_RUN: "pick_fails_run",
    Guard.UNDOES_OUTCOME: "outcome == WELL && !finished && pick_fails_run",
    Guard.UNWOUND: "going == NOTHING && !preparing && !running && !hooks",
    Guard.CLOSE_WANTED: "close_wanted",
}
"""When each guard says yes."""

PARTS: Final = """\
#define open_calls (waiting + announced + preparing + ready + running + hooks_due + hooks)
#define works (going != NOTHING || preparing || running || hooks)

inline start(work) {
  if :: works -> collided++ :: else fi;
  going = work; started++
}
inline drop_calls() {
  sequential = 0; waiting = 0; announced = 0; ready = 0; hooks_due = 0
}
inline announce_next() {
  if
  :: waiting > 0 -> waiting--; announced = 1; pending = 1
  :: waiting == 0 && open_calls > 0 -> pending = 1
  :: else
  fi
}
inline move_on() {
  if
  :: sequential -> announce_next()
  :: !sequential && ready > 0 -> pending = 1
  :: else
  fi
}
inline decide(how) {
  if :: trigger == BY_SUBSCRIBER_FAILED && outcome == WELL && told == 0 -> undone++ :: else fi;
  outcome = how; decided++
}
"""
"""What more than one action does."""

_END_COMPACTION: Final = "going = NOTHING; compaction = 0"
_CLEAR_QUEUES: Final = "dropped = dropped + steering + follow_up; steering = 0; follow_up = 0"
_DROP_RESPONSE: Final = "going = NOTHING; message = 0"
_START_GRACE: Final = "if :: grace == NO_TIMER -> grace = TICKING :: else fi"

ACTIONS: Final[dict[Action, str]] = {
    **dict.fromkeys((Action.ANNOUNCE_PHASE, Action.CONFIGURE, Action.STAGE_CONFIGURATION, Action.CLOSE), ""),
    **dict.fromkeys((Action.RECORD_LISTENER_FAILURE, Action.ABANDON_LISTENERS), ""),
    Action.BEGIN_RUN: """begun++; decided = 0; undone = 0; told = 0;
  has_run = 1; outcome = UNDECIDED; deadline = 1; turn = 0; drained = 0""",
    Action.END_RUN: "ended++; has_run = 0; outcome = UNDECIDED; finished = 0; deadline = 0; halted = 0; grace = NO_TIMER",
    Action.RESET: f"tail = EMPTY; {_CLEAR_QUEUES}",
    Action.ENQUEUE_STEERING: "steering++",
    Action.ENQUEUE_FOLLOW_UP: "follow_up++",
    Action.UNQUEUE: """if
  :: steering > 0 -> steering--; dropped++
  :: follow_up > 0 -> follow_up--; dropped++
  :: skip /* it is not there any more */
  fi""",
    Action.CLEAR_QUEUES: _CLEAR_QUEUES,
    Action.OPEN_TURN: """turn++; turn_open = 1; drop_calls();
  owed = 0; stop = UNASKED; answer = UNCHECKED; attempts = 0; overflow_tried = 0; threshold_tried = 0""",
    Action.ACCEPT_PROMPT: "tail = OWED",
    Action.ACCEPT_STEERING: """drained = 1;
  if
  :: steering > 0 -> steered = 1; tail = OWED
  :: steering > 0 -> steered = steering; tail = OWED
  :: steering == 0 -> steered = 0
  fi;
  steering = steering - steered""",
    Action.ACCEPT_FOLLOW_UP: """if
  :: follow_up > 0 -> followed = 1; tail = OWED
  :: follow_up > 0 -> followed = follow_up; tail = OWED
  :: follow_up == 0 -> followed = 0
  fi;
  follow_up = follow_up - followed""",
    Action.ACCEPT_CORRECTION: "tail = OWED",
    Action.AWAIT_DELIVERY: "pending = 1",
    Action.PROJECT: "drained = 1; start(PROJECTION)",
    Action.PREPARE_REQUEST: "going = NOTHING",
    Action.SEND_REQUEST: "start(REQUEST)",
    Action.OPEN_MESSAGE: "message = 1",
    Action.ADOPT_RESPONSE: """going = NOTHING; message = 0; attempts = 0; owed = 0;
  if :: pick_calls == UNPICKED -> select(pick_calls : 0 .. CALLS) :: else fi;
  waiting = pick_calls;
  tail = (waiting > 0 -> OWED : ANSWERED)""",
    Action.REFUSE_RESPONSE: f"{_DROP_RESPONSE}; decide(ILL)",
    Action.FAIL_RESPONSE: f"{_DROP_RESPONSE}; decide(ILL)",
    Action.DISCARD_RESPONSE: _DROP_RESPONSE,
    Action.END_TURN: "turn_open = 0; drop_calls()",
    Action.OPEN_BATCH: """if
  :: waiting > 1 -> sequential = 1
  :: sequential = 0
  fi;
  announce_next()""",
    Action.ADVANCE_BATCH: """hooks = hooks + hooks_due; started = started + hooks_due; hooks_due = 0;
  if
  :: announced -> announced = 0; preparing = 1; started++
  :: !announced && !preparing && ready > 0 ->
    do /* some of those that are ready, so that at least one runs */
    :: ready > 0 -> ready--; running++; started++
    :: running > 0 -> break
    od
  :: else
  fi""",
    Action.TAKE_PREPARED: """preparing = 0;
  if :: pick_unfit == UNPICKED -> select(pick_unfit : 0 .. 1) :: else fi;
  if
  :: pick_unfit -> owed = 1; announce_next()
  :: !pick_unfit && sequential -> ready++; pending = 1
  :: !pick_unfit && !sequential -> ready++; announce_next()
  fi""",
    Action.TAKE_RESULT: """running--;
  if :: owed = 1 :: skip fi;
  if :: pick_result_hook == UNPICKED -> select(pick_result_hook : 0 .. 1) :: else fi;
  if
  :: pick_result_hook -> hooks_due++; pending = 1
  :: else -> move_on()
  fi""",
    Action.TAKE_HOOK: "hooks--; move_on()",
    Action.CLOSE_BATCH: "if :: open_calls > 0 -> owed = 1 :: else fi; drop_calls()",
    Action.ASK_STOP: "start(STOP_HOOK)",
    Action.TAKE_STOP_ANSWER: "going = NOTHING; if :: stop = STOP :: stop = GO_ON fi",
    Action.CHECK_OUTPUT: "start(CHECK)",
    Action.TAKE_OUTPUT: "going = NOTHING; if :: answer = RIGHT :: answer = WRONG fi",
    Action.START_BACKOFF: "attempts++; backoff = TICKING",
    Action.END_BACKOFF: "backoff = NO_TIMER",
    Action.START_COMPACTION: """drained = 1;
  if
  :: trigger == BY_COMPACT -> compaction = MANUAL
  :: trigger == BY_RESPONSE_FAILED -> compaction = OVERFLOW; overflow_tried = 1
  :: else -> compaction = THRESHOLD; threshold_tried = 1
  fi""",
    Action.SUMMARIZE: "start(SUMMARY)",
    Action.ADOPT_SUMMARY: _END_COMPACTION,
    Action.DECLINE_COMPACTION: _END_COMPACTION,
    Action.FAIL_COMPACTION: _END_COMPACTION,
    Action.COMPLETE: "decide(WELL)",
    Action.STOP: "decide(WELL)",
    Action.EXHAUST_TURNS: "decide(WELL)",
    Action.FAIL: "decide(ILL)",
    Action.ACCEPT_CANCEL: "decide(ILL)",
    Action.FAIL_BY_DEADLINE: "decide(ILL)",
    Action.FAIL_BY_LISTENER: "decide(ILL)",
    Action.FAIL_BY_USAGE: "decide(ILL)",
    Action.FAIL_BY_OUTPUT: "decide(ILL)",
    Action.HALT: "decide(ILL)",
    Action.STOP_WORK: f"{_START_GRACE}; if :: backoff != NO_TIMER -> backoff = OVER :: else fi",
    Action.RELEASE_WORK: """if
  :: trigger == BY_CALL_PREPARED -> preparing = 0
  :: trigger == BY_HOOK_RETURNED && hooks > 0 -> hooks--
  :: else -> going = NOTHING
  fi""",
    Action.RELEASE_TOOL: "running--",
    Action.ABANDON_WORK: "going = NOTHING; preparing = 0; running = 0; hooks = 0",
    Action.UNWIND: "turn_open = 0; message = 0; compaction = 0; backoff = NO_TIMER; drop_calls()",
    Action.FINISH: "told++; finished = 1",
    Action.START_GRACE: _START_GRACE,
    Action.REQUEST_CLOSE: "close_wanted = 1",
}
"""What each action does. Nothing, where it does what no guard asks about."""
