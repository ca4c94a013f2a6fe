"""A bulk retry stops by itself when its jobs fail again; operations pause and resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.operations.dead_jobs import bury, bury_ready, counts, ended, run, states
from tests.worker.yard import until
from windlass import Operation, OperationNotFound, OperationRefused, State, Windlass
from windlass.core.states import Reason
from windlass.engine.contract import Buried, Outcome, Plan, Retried, Succeeded
from windlass.operations.documents import ACTIVE, read_mark, remove_mark
from windlass.operations.replay import MAX_WATCHED, WINDOW, ReplayWatch, WatchedJob
from windlass.operations.runner import OperationRunner
from windlass.testing.contract.world import claim_jobs


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at retried jobs before every step."""
    monkeypatch.setattr("windlass.operations.runner.PROGRESS_S", 0.0)


def work(app: Windlass, finish: Callable[[int, Any], Outcome], operation: Operation) -> Operation:
    """Run the operation, and let each job that it retries end as `finish` says."""
    number = 0
    with OperationRunner(app):
        while (found := app.operations.get(operation.id)).is_running:
            batch = claim_jobs(app.engine, "w", f"{2**60 + number:040x}", Plan(), 10)
            outcomes = [finish(number + at, one) for at, one in enumerate(batch.claims)]
            number += 1 + len(outcomes)
            if outcomes:
                app.engine.finish(outcomes)
    return found


def die(_number: int, claim: Any) -> Outcome:
    return Buried(id=claim.id, token=claim.token, reason=Reason.EXHAUSTED, error=b"")


def fail(_number: int, claim: Any) -> Outcome:
    return Retried(id=claim.id, token=claim.token, delay_ms=3_600_000, error=b"")


def succeed(_number: int, claim: Any) -> Outcome:
    return Succeeded(id=claim.id, token=claim.token, result_ttl_ms=3_600_000)


# ------------------------------------------------------------------------------------------ rule


@pytest.mark.parametrize("finish", [die, fail])
def test_a_retry_stops_by_itself_when_its_jobs_fail_again(
    app: Windlass, finish: Callable[[int, Any], Outcome]
) -> None:
    ids = bury(app, number=200)
    started = app.operations.start("dead.retry", actor="x", everything=True, rate="100/s")
    assert (started.stop_after, started.total) == (10, 200)
    found = work(app, finish, started)
    assert (found.state, found.owner) == ("paused", "")
    assert (
        found.reason == f"{found.failed_again} of the last {found.failed_again} retried jobs "
        "failed again"
    )
    assert 10 <= found.failed_again <= found.done < 200
    assert app.engine.list_documents(ACTIVE) == []
    again = State.DEAD if finish is die else State.RETRYING
    assert states(app, ids)[State.DEAD] >= 200 - found.done
    assert sum(states(app, ids).values()) == 200
    assert again in states(app, ids)
    [entry] = app.audit.list()
    assert (entry.action, entry.details["reason"]) == ("operation.paused", found.reason)


def test_a_resumed_retry_does_each_job_once(app: Windlass) -> None:
    ids = bury(app, number=120)
    started = app.operations.start("dead.retry", actor="x", everything=True, rate="200/s")
    paused = work(app, fail, started)
    assert paused.is_paused
    resumed = app.operations.resume(started.id)
    assert (resumed.state, resumed.reason, resumed.done) == ("running", "", paused.done)
    found = work(app, succeed, started)
    assert (found.state, counts(found)) == ("finished", (120, 0, 0))
    assert states(app, ids).get(State.DEAD, 0) == 0
    records = [record for record in app.engine.get(ids) if record is not None]
    assert {len(record.failures) for record in records if record.state is State.SUCCEEDED} == {1}
    assert app.engine.check() == []


def test_a_retry_that_may_fail_runs_to_its_end(local: Windlass) -> None:
    bury(local, number=60)
    start = local.operations.start
    started = start("dead.retry", actor="x", everything=True, rate="200/s", stop_after=0)
    found = work(local, die, started)
    assert (found.state, found.done, found.failed_again) == ("finished", 60, 0)


def test_some_failures_among_many_successes_do_not_stop_a_retry() -> None:
    watch = ReplayWatch(stop_after=10, recent="f" * 9 + "s" * (WINDOW - 9))
    assert watch.verdict == ""
    worse = ReplayWatch(stop_after=10, recent="f" * 10 + "s" * (WINDOW - 10))
    assert worse.verdict == "10 of the last 100 retried jobs failed again"
    assert ReplayWatch(stop_after=0, recent="f" * WINDOW).verdict == ""


def test_old_outcomes_leave_the_window(local: Windlass) -> None:
    [id] = bury(local, number=1)
    watch = ReplayWatch(stop_after=5, recent="f" * WINDOW).watching([WatchedJob(id, 1)])
    local.dead.retry(id)
    local.engine.clock_offset_ms += 10
    assert watch.observed(local.engine).watched == watch.watched, "the job is ready"
    [claim] = claim_jobs(local.engine, "w", f"{2**60:040x}", Plan(), 1).claims
    local.engine.finish([succeed(0, claim)])
    seen = watch.observed(local.engine)
    assert (seen.watched, seen.recent) == ((), "f" * (WINDOW - 1) + "s")


def test_a_job_that_was_not_retried_does_not_count(local: Windlass) -> None:
    [dead] = local.engine.get(bury(local, number=1))
    assert dead is not None
    jobs = [WatchedJob(dead.id, dead.finished_ms), WatchedJob("removed", 1)]
    seen = ReplayWatch(stop_after=1).watching(jobs).observed(local.engine)
    assert (seen.watched, seen.recent, seen.verdict) == ((), "", "")


def test_the_number_of_watched_jobs_is_bounded() -> None:
    jobs = [WatchedJob(str(number), 1) for number in range(2 * MAX_WATCHED)]
    watch = ReplayWatch(stop_after=1).watching(jobs)
    assert watch.watched == tuple(jobs[:MAX_WATCHED])
    assert watch.watching(jobs).watched == watch.watched
    assert ReplayWatch().watching(jobs).watched == ()


@pytest.mark.parametrize(
    ("action", "stop_after", "words"),
    [
        ("dead.retry", -1, "stop_after must be a number of failures up to 100, .* found -1"),
        ("dead.retry", 101, "found 101"),
        ("dead.discard", 1, "An operation dead.discard takes no stop_after"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(
    local: Windlass, action: str, stop_after: int, words: str
) -> None:
    with pytest.raises((TypeError, OperationRefused), match=words):
        local.operations.start(action, actor="x", everything=True, stop_after=stop_after)
    assert local.operations.list() == []


# -------------------------------------------------------------------------------- pause and resume


def test_a_paused_operation_waits_and_continues(app: Windlass) -> None:
    ids = bury(app, number=30)
    started = app.operations.start("dead.retry", actor="x", everything=True, rate="20/s")
    with OperationRunner(app) as runner:
        until(lambda: states(app, ids).get(State.READY, 0) >= 2, "some jobs are retried")
        paused = app.operations.pause(started.id, actor="token:ann")
        assert (paused.state, paused.reason) == ("paused", "paused by token:ann")
        assert app.engine.list_documents(ACTIVE) == []
        until(lambda: app.operations.get(started.id).owner == "", "the runner has settled")
        found = app.operations.get(started.id)
        assert states(app, ids) == {State.READY: found.done, State.DEAD: 30 - found.done}
        assert app.operations.pause(started.id, actor="x") == found
        app.operations.resume(started.id)
        runner.wake()
        assert counts(ended(app, started)) == (30, 0, 0)
    assert states(app, ids) == {State.READY: 30}
    assert app.engine.list_documents(ACTIVE) == []


def test_an_operation_that_no_runner_has_seen_pauses(local: Windlass) -> None:
    ids = bury(local, number=3)
    started = local.operations.start("dead.retry", actor="x", everything=True)
    assert asyncio.run(local.operations.apause(started.id, actor="x")).is_paused
    with OperationRunner(local) as runner:
        other = local.operations.start("dead.retry", actor="x", task="none")
        runner.wake()
        ended(local, other)
    assert states(local, ids) == {State.DEAD: 3}
    asyncio.run(local.operations.aresume(started.id))
    assert run(local, started).done == 3


def test_a_paused_operation_can_be_stopped_but_an_ended_one_not_resumed(local: Windlass) -> None:
    started = local.operations.start("dead.retry", actor="x", everything=True)
    local.operations.pause(started.id, actor="x")
    assert local.operations.stop(started.id).state == "stopped"
    with pytest.raises(OperationRefused, match=r"is stopped, and only a paused one"):
        local.operations.resume(started.id)
    assert local.operations.pause(started.id, actor="x").state == "stopped"
    with OperationRunner(local):
        until(lambda: not local.engine.list_documents(ACTIVE), "the mark is removed")


def test_a_late_pause_does_not_hide_a_resumption(local: Windlass) -> None:
    """A process has seen the operation paused, and removes its mark after the resumption."""
    started = local.operations.start("dead.retry", actor="x", everything=True)
    seen = read_mark(local.engine, started.id)
    local.operations.pause(started.id, actor="x")
    local.operations.resume(started.id)
    remove_mark(local.engine, started.id, seen)
    assert run(local, started).state == "finished"


def test_a_running_operation_without_a_mark_is_resumed(local: Windlass) -> None:
    """Its resumption was killed before the mark was stored."""
    started = local.operations.start("dead.retry", actor="x", everything=True)
    remove_mark(local.engine, started.id, read_mark(local.engine, started.id))
    assert local.operations.resume(started.id).is_running
    assert run(local, started).state == "finished"


def test_a_resumption_needs_room(local: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    started = local.operations.start("dead.retry", actor="x", everything=True)
    local.operations.pause(started.id, actor="x")
    monkeypatch.setattr("windlass.operations.control.MAX_ACTIVE", 1)
    local.operations.start("queue.purge", actor="x", queue="mail")
    with pytest.raises(OperationRefused, match="1 bulk operations are running"):
        local.operations.resume(started.id)
    assert local.operations.get(started.id).is_paused


def test_a_runner_for_one_operation_leaves_the_others_alone(local: Windlass) -> None:
    bury(local, number=2)
    other = local.operations.start("dead.retry", actor="x", task="none")
    mine = local.operations.start("dead.retry", actor="x", everything=True)
    with OperationRunner(local, only=mine.id):
        assert ended(local, mine).done == 2
    assert local.operations.get(other.id).owner == ""
    assert local.operations.get(other.id).is_running


def test_unknown_operations_are_told(local: Windlass) -> None:
    with pytest.raises(OperationNotFound):
        local.operations.pause("nothing", actor="x")
    with pytest.raises(OperationNotFound):
        local.operations.resume("nothing")
    assert local.engine.list_documents(ACTIVE) == []


def test_the_total_is_what_matched_at_the_start(
    local: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(local, number=5)
    bury(local, task="mail", number=2)
    start = local.operations.start
    assert start("dead.retry", actor="x", everything=True).total == 7
    assert start("dead.retry", actor="x", task="mail").total == 2
    monkeypatch.setattr("windlass.operations.operations.TOTAL_S", -1.0)
    assert start("dead.retry", actor="x", task="mail", newer_than="1h").total is None
    bury_ready(local)
