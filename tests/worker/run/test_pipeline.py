"""The outcome of a job, for every way in which a task can end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.apps.scripted import Script
from tests.worker.yard import PROJECT, Yard, until
from windlass.app import Windlass
from windlass.core.failures import FailureText
from windlass.core.ids import new_id
from windlass.core.states import Hold, Reason, State
from windlass.engine.contract import BITE, JobRecord, NewJob, Plan, Unroutable
from windlass.testing.contract.world import claim_jobs


def last_error(record: JobRecord) -> FailureText:
    return FailureText.unpack(record.failures[-1].error)


def test_plain_functions_and_coroutines_run(yard: Yard) -> None:
    plain, coroutine = yard.plain("p", "sleep:0.01"), yard.coroutine("c", "sleep:0.01")
    yard.start()
    assert plain.result(timeout=20) == "p done"
    assert coroutine.result(timeout=20) == "c done"
    assert [line.attempt for line in yard.events("end")] == [1, 1]


def test_jobs_enqueued_while_a_worker_waits_are_picked_up_at_once(yard: Yard) -> None:
    yard.start().await_log("ready")
    for number in range(5):
        assert yard.plain(f"job{number}").result(timeout=20) == f"job{number} done"


def test_a_failure_is_retried_until_it_succeeds(yard: Yard) -> None:
    job = yard.plain("late", "fail_before:3")
    yard.start()
    assert job.result(timeout=20) == "late done"
    record = yard.record(job)
    assert record.counters.attempt == 3
    assert [last_error(record).type, len(record.failures)] == ["ValueError", 2]


def test_a_job_that_keeps_failing_is_dead_after_its_attempts(yard: Yard) -> None:
    job = yard.plain("doomed", "fail")
    yard.start()
    record = yard.await_state(job, State.DEAD)
    assert (record.reason, record.counters.attempt) == (Reason.EXHAUSTED, 3)
    assert len(yard.events("start", "doomed")) == 3
    assert "told to fail" in last_error(record).traceback


@pytest.mark.local
def test_a_rejected_job_is_dead_at_once(yard: Yard) -> None:
    job = yard.coroutine("refused", "reject")
    yard.start()
    record = yard.await_state(job, State.DEAD)
    assert (record.reason, record.counters.attempt) == (Reason.REJECTED, 1)


def test_a_snoozed_job_comes_back_uncharged(yard: Yard) -> None:
    job = yard.plain("sleepy", f"snooze_once:{yard.folder / 'snoozed'}")
    yard.start()
    assert job.result(timeout=20) == "sleepy done"
    counters = yard.record(job).counters
    assert (counters.attempt, counters.snoozes, counters.starts) == (1, 1, 2)


def test_progress_is_seen_while_the_job_runs(yard: Yard) -> None:
    gate = yard.folder / "gate"
    job = yard.plain("steady", "progress:0.1", "progress:0.5", f"await:{gate}")
    yard.start()
    until(lambda: b"0.5" in (yard.record(job).progress or b""), "progress of 0.5")
    gate.touch()
    assert job.result(timeout=20) == "steady done"


@pytest.mark.local
def test_whatever_a_task_raises_fails_its_job_and_nothing_else(yard: Yard) -> None:
    worker = yard.start()
    worker.await_log("ready")
    children = worker.children()
    everywhere = ("interrupt", "leave", "unprintable")
    rude = [yard.coroutine(step, step) for step in (*everywhere, "cancel")]
    rude += [yard.plain(step, step) for step in everywhere]
    for job in rude:
        assert yard.await_state(job, State.DEAD).reason is Reason.EXHAUSTED
    for kind in (yard.plain, yard.coroutine):
        assert kind("polite").result(timeout=20) == "polite done"
    assert worker.children() == children


@pytest.mark.local
def test_what_a_background_coroutine_raises_costs_nobody_anything(yard: Yard) -> None:
    worker = yard.start(slots=2)
    neighbour = yard.coroutine("neighbour", "sleep:0.5")
    yard.await_start("neighbour")
    yard.coroutine("origin", "leave_coroutine:exiting")
    worker.await_log("SystemExit stopped the event loop, restarting it")
    for job in (neighbour, yard.coroutine("later", "sleep:0.01")):
        assert job.result(timeout=20).endswith("done")
        assert yard.record(job).counters.starts == 1
    assert "died" not in worker.log()


def test_a_job_of_an_unknown_task_is_kept(yard: Yard) -> None:
    stray = NewJob(id=new_id(1), task="not.here", queue="default", payload=b"{}")
    yard.app.engine.put([stray])
    worker = yard.start()
    assert yard.plain("known").result(timeout=20) == "known done"
    until(lambda: yard.record(stray.id).hold is Hold.UNROUTABLE, "the hold")
    record = yard.record(stray.id)
    assert (record.state, record.counters.attempt) == (State.READY, 0)
    worker.await_log("task not.here has no code in this app")


UNDECODABLE = [
    b"\xff\x00 not json",
    b'{"args":["x",[]}',
    b'{"args":[1,2]}',
    b'{"version":1,"task":"plain","call":{"args":[1,2]}}',
    b'{"version":1,"task":"plain","call":{"args":["x",[]]},"options":{"retry":{"no":1}}}',
]


@pytest.mark.local
def test_bytes_that_make_no_call_are_dead_and_were_never_started(yard: Yard) -> None:
    bad = [
        NewJob(id=new_id(1), task="plain", queue="default", payload=payload)
        for payload in UNDECODABLE
    ]
    yard.app.engine.put(bad)
    yard.start()
    for job in bad:
        record = yard.await_state(job.id, State.DEAD)
        assert (record.reason, record.counters.starts) == (Reason.UNDECODABLE, 0)
    assert yard.events("start") == []


@pytest.mark.local
def test_a_call_for_another_version_of_the_function_is_left_to_workers_of_it(yard: Yard) -> None:
    payload = b'{"version":1,"task":"plain","call":{"args":["only one"]}}'
    other = NewJob(id=new_id(1), task="plain", queue="default", payload=payload)
    yard.app.engine.put([other])
    worker = yard.start()
    until(lambda: yard.record(other.id).hold is Hold.UNROUTABLE, "the hold")
    record = yard.record(other.id)
    assert (record.state, record.counters.attempt, record.counters.starts) == (State.READY, 0, 0)
    worker.await_log("leaving it to workers of another version: plain(): missing")


@pytest.mark.local
def test_a_newer_format_is_left_to_newer_workers(yard: Yard) -> None:
    newer = NewJob(id=new_id(1), task="plain", queue="default", payload=b'{"version":99}')
    yard.app.engine.put([newer])
    yard.start()
    until(lambda: yard.record(newer.id).hold is Hold.UNROUTABLE, "the hold")
    assert yard.record(newer.id).state is State.READY


@pytest.mark.local
def test_a_result_that_cannot_be_stored_is_dead(yard: Yard) -> None:
    job = yard.script.bad_result.enqueue()
    yard.start()
    assert yard.await_state(job.id, State.DEAD).reason is Reason.BAD_RESULT


@pytest.mark.local
def test_a_result_that_is_not_kept_is_not_encoded(yard: Yard) -> None:
    job = yard.script.bad_result.using(result_ttl=0).enqueue()
    yard.start()
    yard.await_state(job.id, State.SUCCEEDED)


@pytest.mark.local
def test_what_one_job_leaves_in_context_variables_the_next_does_not_see(yard: Yard) -> None:
    for kind in (yard.plain, yard.coroutine):
        kind("first", "remember:secret")
        kind("second", "remember:secret")
    yard.start(slots=1)
    yard.await_count(State.SUCCEEDED, 4)
    assert [line for line in yard.lines() if "found" in line] == ["found nothing"] * 4


@pytest.mark.local
@pytest.mark.parametrize("app", ["tests.worker.apps.scripted:app", "tests.worker.apps.eager:app"])
def test_the_url_of_the_worker_wins_for_what_its_tasks_enqueue_too(
    yard: Yard, tmp_path: Path, app: str
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    other = Windlass(url)
    Script(other).plain.enqueue("parent", ["enqueue:child"])
    yard.start(app=app, url=url)
    until(lambda: yard.events("end", "child"), "the end of the child")
    assert not any(yard.app.engine.stats().totals.values())
    other.close()


@pytest.fixture
def yard_on_a_file(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path, "30s", "10s", 3, f"sqlite:///{tmp_path / 'jobs.db'}")
    yield yard
    yard.close()


@pytest.mark.parametrize("by_option", [False, True])
def test_a_relative_url_starts_in_the_folder_of_the_worker(
    yard_on_a_file: Yard, by_option: bool
) -> None:
    """Also when the import of the app changes the current folder."""
    yard = yard_on_a_file
    url = f"sqlite:///{os.path.relpath(yard.folder / 'jobs.db', PROJECT)}"
    elsewhere = yard.folder / "far" / "away"
    elsewhere.mkdir(parents=True)
    job = yard.plain("found")
    yard.start(
        app="tests.worker.apps.wandering:app",
        url=url if by_option else None,
        environment={
            "SCRIPT_ELSEWHERE": str(elsewhere),
            **({} if by_option else {"WINDLASS_URL": url}),
        },
    )
    assert job.result(timeout=20) == "found done"


@pytest.mark.local
def test_an_app_that_dies_without_a_word_ends_the_worker_with_another_code(yard: Yard) -> None:
    yard.trap.touch()
    worker = yard.start()
    assert worker.wait() == 1
    assert "cannot serve tests.worker.apps.scripted:app: exit code 7" in worker.log()


@pytest.mark.local
def test_an_app_that_cannot_be_imported_ends_the_worker_with_its_traceback(yard: Yard) -> None:
    worker = yard.start(app="tests.worker.apps.broken:app")
    assert worker.wait() == 2
    assert "RuntimeError: this module is broken on purpose" in worker.log()
    assert worker.log().count("Traceback") == 1
    frames = re.findall(r'File "(.+?)", line', worker.log())
    assert [Path(frame).name for frame in frames] == ["broken.py"], "only those of the app"


@pytest.mark.local
def test_a_task_that_no_call_can_reach_ends_the_worker_with_a_sentence(yard: Yard) -> None:
    worker = yard.start(app="tests.worker.apps.unreachable:app")
    assert worker.wait() == 2
    assert "gate" in worker.log()
    assert "wait_for" in worker.log()
    assert "Traceback" not in worker.log()


def test_a_starting_worker_adopts_all_that_it_knows(yard: Yard) -> None:
    """More than one bite of jobs that no worker knew, at rest for longer than the test."""
    count = BITE + 20
    script, engine = yard.script.nothing, yard.app.engine
    script.enqueue_many(script.bind() for _ in range(count))
    engine.clock_offset_ms = 3_600_000  # their rest ends in an hour
    claims = claim_jobs(engine, "stranger", "nonce", Plan(), count).claims
    engine.finish([Unroutable(id=claim.id, token=claim.token) for claim in claims])
    engine.clock_offset_ms = 0
    yard.start()
    yard.await_count(State.SUCCEEDED, count)


@pytest.mark.local
def test_an_app_without_tasks_is_warned_of(yard: Yard) -> None:
    """The tasks are declared in a module that is never imported."""
    worker = yard.start(app="tests.worker.apps.empty:app")
    worker.await_log("app tests.worker.apps.empty:app has no tasks")


@pytest.mark.local
def test_an_app_that_is_not_there_ends_the_worker_with_a_sentence(yard: Yard) -> None:
    worker = yard.start(app="tests.worker.apps.scripted:nowhere")
    assert worker.wait() == 2
    assert "has no nowhere. It holds the app app: write" in worker.log()
    assert "Traceback" not in worker.log()
