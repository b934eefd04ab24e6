"""The clauses of G1 to G8: what a run says, what is queued, and what a cancel does. See `clauses`."""

from typing import Final

from tests.kernel.planted import control as c
from tests.kernel.planted import structure as s
from tests.kernel.planted.kit import Clause
from tests.kernel.stateful import test_faults_are_found as found

END = "test_guarantees.py::TestG1OneEnd::test_"
NEST = "test_guarantees.py::TestG2Nesting::test_"
TEXT = "test_guarantees.py::TestG3Messages::test_"
PAIR = "test_guarantees.py::TestG4Pairing::test_"
TURN = "test_guarantees.py::TestG5EndOfTurn::test_"
STEER = "test_guarantees_control.py::TestG6Steering::test_"
START = "test_guarantees_control.py::TestG7NothingStarts::test_"
BOUND = "test_guarantees_control.py::TestG8Bounded::test_"
REACH = "test_guarantees_kept.py::TestG8Bounded::test_"
ANY_END = f"{END}a_cancel_anywhere_gives_one_end"
WAY_OUT = f"{END}each_way_out_has_one_run_finished"
ALL_CLOSES = f"{NEST}all_that_opens_closes"
DETOUR = f"{NEST}a_detour_that_is_cancelled_closes_too"
EACH_CALL = f"{PAIR}each_kind_of_call_has_one_result_in_source_order"
LEFT_OPEN = f"{PAIR}what_an_end_leaves_open_is_answered"
WAITS = f"{STEER}steering_waits_for_the_end_of_the_turn"
ANY_STEP = f"{START}a_cancel_between_any_two_steps_of_the_loop"
IN_TIME = f"{BOUND}whatever_ignores_the_cancel_is_abandoned_in_time"
LATE = f"{BOUND}what_comes_late_is_discarded_in_the_next_run_too"
DECIDED = f"{REACH}what_comes_when_the_outcome_is_decided_does_not_change_it"

CLAUSES: Final[dict[str, tuple[Clause, ...]]] = {
    "G1": (
        Clause(
            "`run.started` comes first",
            {s.a_run_begins_in_silence: (WAY_OUT,), s.a_phase_is_told_before_its_run: (WAY_OUT,)},
        ),
        Clause("exactly one `run.finished`", {found.a_run_finishes_twice: (WAY_OUT, ANY_END)}),
        Clause(
            "whatever happened",
            {s.a_cancelled_run_never_finishes: (ANY_END,), s.a_failed_run_never_finishes: (WAY_OUT, ALL_CLOSES)},
        ),
        Clause(
            "nothing comes after it",
            {s.the_end_is_not_the_last_word: (f"{END}what_is_commanded_at_the_end_is_not_told",)},
        ),
    ),
    "G2": (
        Clause("a turn closes", {s.a_turn_stays_open: (ALL_CLOSES, f"{NEST}a_turn_that_ends_is_the_one_that_began")}),
        Clause("a message closes", {s.a_message_stays_open: (ALL_CLOSES, ANY_END)}),
        Clause("a tool closes", {s.tools_stay_open: (ALL_CLOSES, ANY_END)}),
        Clause("a retry closes", {s.a_backoff_stays_open: (DETOUR,)}),
        Clause("a compaction closes", {s.a_compaction_stays_open: (DETOUR,)}),
        Clause("in order, and properly nested", {s.the_turn_closes_first: (DETOUR, ANY_END, ALL_CLOSES)}),
    ),
    "G3": (
        Clause("a message is started, updated, ended", {s.a_message_starts_late: (f"{TEXT}the_text_is_its_deltas",)}),
        Clause(
            "its text is its deltas put together",
            {
                s.a_piece_is_lost: (f"{TEXT}the_text_is_its_deltas",),
                s.reasoning_is_text: (f"{TEXT}the_text_is_its_deltas",),
            },
        ),
    ),
    "G4": (
        Clause(
            "each call has exactly one result",
            {s.a_result_comes_twice: (EACH_CALL,), found.a_call_is_left_open: (LEFT_OPEN,)},
        ),
        Clause("before any other message", {s.steering_comes_before_the_results: (WAITS,)}),
        Clause("in source order", {s.results_come_as_they_complete: (f"{PAIR}tools_end_in_the_order_in_which_they_end",)}),
        Clause("on a cancel too", {s.a_cancel_leaves_calls_open: (LEFT_OPEN,)}),
        Clause("on a failure too", {s.a_failure_leaves_calls_open: (LEFT_OPEN,)}),
        Clause("on a limit too", {s.a_limit_leaves_calls_open: (LEFT_OPEN,)}),
        Clause(
            "what is synthesized says whether the call was executed",
            {s.synthesized_results_are_not_marked: (LEFT_OPEN, EACH_CALL), s.interrupted_is_not_executed: (LEFT_OPEN,)},
        ),
        Clause(
            "`tool.ended` comes as tools complete",
            {s.tools_end_in_source_order: (f"{PAIR}tools_end_in_the_order_in_which_they_end",)},
        ),
        Clause("work that finished is kept", {s.finished_work_is_lost: (f"{PAIR}a_cancel_keeps_what_finished",)}),
    ),
    "G5": (
        Clause(
            "all tool events come before `turn.ended`",
            {s.a_turn_ends_before_its_tools: (f"{TURN}all_of_a_turn_is_said_before_it_ends",)},
        ),
        Clause(
            "all results come before it, and it lists them",
            {
                s.a_turn_ends_before_its_results: (f"{TURN}all_of_a_turn_is_said_before_it_ends",),
                s.results_are_not_listed: (f"{TURN}all_of_a_turn_is_said_before_it_ends",),
            },
        ),
    ),
    "G6": (
        Clause("steering enters only at a completed turn", {c.steering_enters_at_once: (WAITS,)}),
        Clause(
            "or with the prompt, when it was queued before that drain point",
            {c.steering_never_joins_the_prompt: (f"{STEER}steering_in_the_first_turn_joins_the_prompt",)},
        ),
        Clause(
            "a follow-up enters only when the run would otherwise end",
            {
                c.a_follow_up_is_taken_for_steering: (
                    f"{STEER}steering_comes_before_follow_ups",
                    f"{STEER}a_follow_up_waits_until_nothing_is_owed",
                ),
                found.follow_ups_push_in: (f"{STEER}a_follow_up_waits_until_nothing_is_owed",),
            },
        ),
        Clause(
            "neither merges messages",
            {
                c.items_are_merged: (f"{STEER}a_mode_says_how_many_enter_at_once",),
                c.a_mode_is_not_heard: (f"{STEER}a_mode_says_how_many_enter_at_once",),
            },
        ),
        Clause("none is lost", {c.a_cancel_loses_what_waits: (f"{STEER}a_cancel_leaves_what_waits_in_its_queue",)}),
        Clause(
            "none is doubled",
            {
                found.steering_stays_queued: (
                    f"{STEER}steering_at_the_last_moment_gets_its_turn",
                    f"{STEER}a_cancel_leaves_what_waits_in_its_queue",
                )
            },
        ),
        Clause(
            "each is in a queue, in the transcript, or reported as dropped",
            {
                c.what_is_taken_out_is_not_reported: (f"{STEER}what_is_taken_out_is_reported",),
                c.receipts_are_not_told: (f"{STEER}a_cancel_leaves_what_waits_in_its_queue",),
            },
        ),
        Clause(
            "the last poll is one step with the decision",
            {c.the_last_poll_is_early: (f"{STEER}steering_at_the_last_moment_gets_its_turn",)},
        ),
        Clause(
            "later items stay queued",
            {c.the_end_takes_what_waits: (f"{STEER}after_the_outcome_is_decided_items_wait",)},
        ),
    ),
    "G7": (
        Clause("no model request starts after an accepted cancel", {c.a_request_goes_out_after_a_cancel: (ANY_STEP,)}),
        Clause(
            "no hook starts after it",
            {
                c.a_hook_begins_after_a_cancel: (ANY_STEP,),
                c.a_batch_goes_on_after_a_cancel: (f"{START}no_request_hook_or_body_starts_after_a_cancel",),
            },
        ),
        Clause("no tool body starts after it", {c.a_tool_begins_after_a_cancel: (ANY_STEP,)}),
        Clause(
            "a cancel wins against a completion that has not been adopted",
            {c.a_completion_beats_the_cancel: (f"{START}a_model_that_swallows_the_cancel_changes_nothing",)},
        ),
        Clause(
            "who cancelled decides, not an exception's text",
            {c.the_text_decides: (f"{START}who_cancelled_decides_and_not_the_text",)},
        ),
    ),
    "G8": (
        Clause(
            "a cancel reaches every phase",
            dict.fromkeys(c.NO_CANCEL.values(), (f"{REACH}it_reaches_every_phase",)),
        ),
        Clause("there is one deadline for the run", {c.each_cancel_starts_a_grace: (f"{REACH}there_is_one_deadline",)}),
        Clause(
            "`cancel_grace` from the accepted cancel",
            {c.the_grace_is_longer: (IN_TIME, f"{REACH}there_is_one_deadline"), found.cancel_has_no_deadline: (IN_TIME,)},
        ),
        Clause(
            "a stream, tool, hook or listener that ignores it is abandoned",
            dict.fromkeys((c.nothing_is_abandoned, c.listeners_are_waited_for, *c.FORGOTTEN.values()), (IN_TIME,)),
        ),
        Clause(
            "what it says later is discarded, with `update.discarded`",
            {c.a_late_word_is_progress: (LATE,), c.a_late_word_is_not_told: (LATE,)},
        ),
        Clause("also in the next run", {c.the_next_run_hears_nothing: (LATE,)}),
        Clause(
            "in `settling` a cancel answers False",
            {c.settling_answers_true: (f"{BOUND}settling_answers_false_and_keeps_the_outcome", DECIDED)},
        ),
        Clause(
            "there neither a cancel nor a close changes the outcome",
            {c.a_late_cancel_decides: (DECIDED,), c.a_late_close_decides: (DECIDED,)},
        ),
        Clause(
            "but it starts the deadline of listeners that are awaited",
            {c.settling_has_no_deadline: (f"{BOUND}settling_answers_false_and_keeps_the_outcome",)},
        ),
        Clause(
            "a sync tool blocks its daemon thread alone",
            {c.threads_hold_the_process: (f"{REACH}a_function_that_blocks_is_left_in_its_thread",)},
        ),
    ),
}
