"""The clauses of G9 to G16: what is kept, what is left, what never changes, and what is bounded. See `clauses`."""

from typing import Final

from tests.kernel.planted import control as c
from tests.kernel.planted import kept as k
from tests.kernel.planted import structure as s
from tests.kernel.planted import values as v
from tests.kernel.planted.kit import Clause

BOUND = "test_guarantees_control.py::TestG8Bounded::test_"
RETRY = "test_guarantees_values.py::TestG9Retry::test_"
COUNT = "test_guarantees_kept.py::TestG9Retry::test_"
SHRINK = "test_guarantees_values.py::TestG10Compaction::test_"
LIMIT = "test_compaction.py::TestThreshold::test_"
FULL = "test_compaction.py::TestOverflow::test_"
HAND = "test_compaction.py::TestByHand::test_"
CUTS = "test_compaction.py::TestWhereItCuts::test_"
STOP = "test_compaction.py::TestCancel::test_"
STREAM = "test_guarantees_values.py::TestG11Streams::test_"
TOLD = "test_guarantees_kept.py::TestG11Streams::test_"
AFTER = "test_guarantees_values.py::TestG12ToldAfterwards::test_"
QUEUES = "test_guarantees_kept.py::TestG12ToldAfterwards::test_"
LEFT = "test_guarantees_values.py::TestG13NothingLeft::test_"
SAME = "test_guarantees_values.py::TestG14Snapshots::test_"
GIVEN = "test_guarantees_kept.py::TestG14Snapshots::test_"
HOOK = "test_guarantees_values.py::TestG15Hooks::test_"
LATER = "test_guarantees_kept.py::TestG15Hooks::test_"
READ = "test_guarantees_values.py::TestG16Bounded::test_"
LIMITS = "test_guarantees_kept.py::TestG16Bounded::test_"
IN_TIME = f"{BOUND}whatever_ignores_the_cancel_is_abandoned_in_time"

CLAUSES: Final[dict[str, tuple[Clause, ...]]] = {
    "G9": (
        Clause(
            "a retry resends the same request",
            {k.a_retry_asks_with_what_was_said: (f"{RETRY}a_retry_is_the_same_request_in_the_same_turn",)},
        ),
        Clause("it is the same turn", {k.a_retry_is_a_turn: (f"{RETRY}a_retry_is_the_same_request_in_the_same_turn",)}),
        Clause(
            "it leaves no partial message behind",
            {k.a_retry_leaves_its_message: (f"{RETRY}a_retry_is_the_same_request_in_the_same_turn",)},
        ),
        Clause(
            "its counter restarts after a success",
            {k.attempts_are_counted_on: (f"{COUNT}the_counter_restarts_after_a_success",)},
        ),
    ),
    "G10": (
        Clause(
            "a compaction cuts only where no call is open",
            {k.a_cut_parts_calls_and_results: (f"{CUTS}no_call_is_open_on_either_side",)},
        ),
        Clause(
            "a turn recovers from one overflow at most",
            {k.an_overflow_is_recovered_again: (f"{SHRINK}an_overflow_is_recovered_once",)},
        ),
        Clause(
            "the old history stays until the new one is whole",
            {k.the_old_history_goes_first: (f"{SHRINK}the_old_history_stays_until_the_summary_is_there",)},
        ),
        Clause(
            "it can be cancelled",
            {
                k.a_compactor_is_not_told_to_stop: (f"{STOP}it_can_be_cancelled",),
                c.NO_CANCEL["compaction"]: (f"{STOP}it_can_be_cancelled",),
            },
        ),
        Clause(
            "the summary is a message of role `summary`",
            {k.a_summary_is_a_users_word: (f"{HAND}it_is_a_run_without_a_turn", f"{HAND}the_originals_are_archived")},
        ),
        Clause(
            "the originals stay in `state.archive`",
            {k.originals_are_thrown_away: (f"{HAND}the_originals_are_archived",)},
        ),
        Clause("`compact()` is a run without a turn", {k.compact_opens_a_turn: (f"{HAND}it_is_a_run_without_a_turn",)}),
        Clause(
            "declined after an overflow, it fails the run",
            {k.a_declined_overflow_goes_on: (f"{FULL}when_it_does_not_help_the_run_fails",)},
        ),
        Clause(
            "with nothing older but a summary, `compact()` is refused",
            {k.compact_does_with_nothing: (f"{HAND}with_nothing_older_it_is_refused", f"{HAND}twice_is_refused")},
        ),
        Clause(
            "and a threshold starts nothing",
            {k.a_threshold_starts_with_nothing: (f"{LIMIT}with_nothing_older_it_starts_nothing",)},
        ),
        Clause(
            "and an overflow announces `declined`",
            {k.an_overflow_is_declined_in_silence: (f"{FULL}with_nothing_older_it_is_declined_aloud",)},
        ),
        Clause(
            "a failed summary fails an overflow or manual run",
            {
                k.a_failed_summary_goes_on: (
                    f"{FULL}when_it_does_not_help_the_run_fails",
                    f"{SHRINK}the_old_history_stays_until_the_summary_is_there",
                )
            },
        ),
        Clause(
            "after a threshold the run goes on",
            {k.a_threshold_fails_the_run: (f"{LIMIT}when_it_does_not_help_the_run_goes_on",)},
        ),
    ),
    "G11": (
        Clause(
            "a stream that ends without a terminal part is a failure",
            {k.a_stream_may_just_end: (f"{STREAM}a_stream_without_an_end_is_a_failure",)},
        ),
        Clause(
            "one that stalls is a failure, never a hang",
            {k.a_stream_may_stall: (f"{STREAM}a_stalled_stream_is_a_failure",)},
        ),
        Clause(
            "one that breaks the protocol is a failure",
            {k.a_broken_protocol_is_an_end: (f"{STREAM}a_part_that_is_none_is_the_models_fault",)},
        ),
        Clause(
            "with an explicit event",
            {
                s.a_failure_looks_like_a_cancel: (f"{TOLD}a_broken_stream_is_told_as_a_failure",),
                s.a_failure_has_no_message: (f"{TOLD}a_broken_stream_is_told_as_a_failure",),
            },
        ),
        Clause(
            "a truncated response executes no call",
            {k.truncated_calls_run: (f"{STREAM}a_truncated_response_runs_no_tool",)},
        ),
    ),
    "G12": (
        Clause(
            "at a `message.ended` that is kept the message is in the transcript",
            {
                k.answers_are_told_first: (f"{AFTER}a_listener_sees_what_it_is_told_of",),
                k.results_are_told_first: (f"{AFTER}a_listener_sees_what_it_is_told_of",),
            },
        ),
        Clause(
            "and at a `message.accepted`",
            {k.users_are_told_first: (f"{AFTER}a_listener_sees_what_it_is_told_of",)},
        ),
        Clause(
            "the queues are as they are told",
            {k.queues_are_told_first: (f"{QUEUES}the_queues_are_as_they_are_told",)},
        ),
    ),
    "G13": (
        Clause(
            "no task is left",
            {
                k.work_leaves_a_task: (
                    f"{LEFT}after_a_run_no_task_and_no_timer_is_alive",
                    f"{LEFT}a_reader_that_waits_for_idle_finds_nothing_left",
                )
            },
        ),
        Clause(
            "no timer is left",
            {
                k.work_leaves_its_timer: (
                    f"{LEFT}after_a_run_no_task_and_no_timer_is_alive",
                    f"{LEFT}what_was_abandoned_leaves_no_timer",
                )
            },
        ),
        Clause(
            "no reference is left",
            {k.runs_are_remembered: (f"{LEFT}an_agent_that_is_dropped_is_gone",)},
        ),
        Clause(
            "`agent.abandoned` lists what ignores everything, until it ends",
            {k.what_was_abandoned_is_listed_for_ever: (IN_TIME,), c.FORGOTTEN["tool"]: (IN_TIME,)},
        ),
        Clause("the next `prompt` works", {k.a_cancelled_agent_is_used_up: (IN_TIME,)}),
    ),
    "G14": (
        Clause("snapshots never change", {v.old_views_grow: (f"{SAME}what_was_handed_out_never_changes",)}),
        Clause(
            "deeply: arguments, blocks and schemas are immutable",
            dict.fromkeys(
                (v.arguments_can_be_changed, v.lists_stay_lists, v.blocks_can_be_changed),
                (f"{GIVEN}all_that_is_handed_out_is_immutable",),
            ),
        ),
        Clause(
            "each tool and hook has its own copy of the arguments",
            {v.all_get_the_same_arguments: (f"{SAME}a_tool_gets_its_own_arguments",)},
        ),
        Clause(
            "nothing handed in is mutated",
            {
                v.what_is_handed_in_is_kept: (
                    f"{GIVEN}what_was_handed_in_is_not_changed",
                    f"{SAME}what_was_handed_in_is_not_kept",
                )
            },
        ),
    ),
    "G15": (
        Clause(
            "`transform_context` that fails falls back to its input",
            {v.a_failed_transform_empties_the_context: (f"{HOOK}a_context_hook_falls_back",)},
        ),
        Clause(
            "`convert_to_llm` that fails falls back to leaving custom messages out",
            {
                v.a_failed_conversion_empties_the_context: (f"{HOOK}a_context_hook_falls_back",),
                v.models_see_custom_messages: (
                    f"{HOOK}a_context_hook_falls_back",
                    f"{HOOK}a_custom_message_that_no_hook_rewrote_is_left_out",
                ),
            },
        ),
        Clause("both report it", {v.a_failed_context_hook_is_not_told: (f"{HOOK}a_context_hook_falls_back",)}),
        Clause(
            "`before_tool_call` that raises is the call's error result",
            {v.a_hook_that_raises_allows: (f"{HOOK}a_call_that_is_blocked_is_an_error_result",)},
        ),
        Clause(
            "and so is one that blocks",
            {v.a_hook_can_not_block: (f"{HOOK}a_call_that_is_blocked_is_an_error_result",)},
        ),
        Clause(
            "`after_tool_result` that raises leaves the result",
            {
                v.a_failed_hook_spoils_the_result: (
                    f"{LATER}after_a_result_nothing_the_hook_does_changes_it",
                    f"{HOOK}a_later_hook_that_fails_is_reported_and_no_more",
                )
            },
        ),
        Clause(
            "and is reported",
            {v.a_failed_after_hook_is_not_told: (f"{LATER}after_a_result_nothing_the_hook_does_changes_it",)},
        ),
        Clause(
            "`should_stop_after_turn` that raises counts as False, and is reported",
            {
                v.a_failed_stop_hook_stops: (f"{HOOK}a_later_hook_that_fails_is_reported_and_no_more",),
                v.a_failed_stop_hook_is_not_told: (f"{HOOK}a_later_hook_that_fails_is_reported_and_no_more",),
            },
        ),
    ),
    "G16": (
        Clause("the queues are bounded", {v.queues_are_not_bounded: (f"{LIMITS}the_queues_are",)}),
        Clause("the transcript", {v.the_transcript_is_not_bounded: (f"{LIMITS}the_transcript_is",)}),
        Clause("turns", {v.turns_are_not_bounded: (f"{LIMITS}the_turns_are",)}),
        Clause("retries", {v.retries_are_not_bounded: (f"{LIMITS}the_retries_are",)}),
        Clause("the calls in a response", {v.calls_are_not_bounded: (f"{LIMITS}the_calls_of_a_response_are",)}),
        Clause(
            "the events held for a consumer that does not read",
            {v.a_reader_holds_everything: (f"{READ}a_consumer_that_does_not_read_holds_a_bounded_number",)},
        ),
        Clause(
            "deltas of one message coalesce, and so do updates of one call",
            {
                v.deltas_are_kept_apart: (
                    f"{LIMITS}deltas_for_one_who_does_not_read_become_one",
                    f"{LIMITS}updates_for_one_who_does_not_read_become_one",
                )
            },
        ),
        Clause(
            "into one event that says how many it stands for",
            {
                v.joined_pieces_are_not_counted: (
                    f"{LIMITS}deltas_for_one_who_does_not_read_become_one",
                    f"{LIMITS}updates_for_one_who_does_not_read_become_one",
                )
            },
        ),
        Clause(
            "past `event_buffer` the iterator says which events are missing",
            {v.the_missing_range_is_wrong: (f"{READ}a_consumer_that_does_not_read_holds_a_bounded_number",)},
        ),
        Clause(
            "while the run and the subscribers go on",
            {
                v.a_lagging_reader_ends_the_run: (f"{READ}a_consumer_that_does_not_read_holds_a_bounded_number",),
                v.a_lagging_reader_silences_listeners: (f"{LIMITS}listeners_miss_nothing_of_what_a_reader_lost",),
            },
        ),
    ),
}
