"""The same routes on other engines than SQLite, as far as they depend on the engine."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.contract.variants import fresh_url
from tests.http.resources import (
    test_dead_letters,
    test_history,
    test_job_edit,
    test_jobs,
    test_new_jobs,
    test_operations,
    test_queues,
    test_workers,
)

CHOSEN: dict[ModuleType, tuple[str, ...]] = {
    test_dead_letters: (
        "test_a_scoped_filter_leaves_other_queues_alone",
        "test_dead_jobs_are_counted",
        "test_dead_jobs_are_grouped",
        "test_jobs_are_discarded_by_id",
        "test_jobs_are_retried_by_id",
    ),
    test_history: (
        "test_a_scoped_caller_sees_its_queues",
        "test_pages_have_everything_once",
        "test_the_history_is_that_of_the_app",
        "test_the_scale_is_the_load",
    ),
    test_job_edit: (
        "test_a_dead_job_becomes_ready_with_new_arguments",
        "test_all_parts_change_together",
        "test_large_numbers_and_texts_survive",
    ),
    test_jobs: (
        "test_a_retry_of_a_job_whose_key_is_taken",
        "test_a_wait_ends_with_the_job",
        "test_a_wrong_query_is_refused",
        "test_an_unknown_job_is_not_found",
        "test_cancel",
        "test_jobs_are_filtered",
        "test_what_is_no_id_is_refused",
    ),
    test_new_jobs: (
        "test_a_bulk_has_an_answer_for_each_job",
        "test_a_full_queue_refuses_jobs",
        "test_a_job_may_start_at_an_instant",
        "test_a_repeated_bulk_stores_nothing_twice",
        "test_all_options_reach_the_job",
        "test_the_same_key_stores_a_job_once",
        "test_the_same_key_with_another_call_is_refused",
    ),
    test_operations: (
        "test_a_token_is_created_used_and_revoked",
        "test_changes_are_in_the_trail",
        "test_operations_are_listed_newest_first",
    ),
    test_queues: (
        "test_a_queue_is_purged_by_an_operation",
        "test_queues_are_listed",
        "test_stats_count_jobs",
    ),
    test_workers: (
        "test_a_command_reaches_the_next_heartbeat",
        "test_a_session_that_has_ended_is_gone",
        "test_workers_and_their_jobs_are_listed",
    ),
}
#: pytest finds them here again, with the fixtures of this module.
for _module, _names in CHOSEN.items():
    globals().update({name: getattr(_module, name) for name in _names})
kill = test_dead_letters.kill
past = test_history.past


@pytest.fixture(params=["redis", "postgres"])
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)
