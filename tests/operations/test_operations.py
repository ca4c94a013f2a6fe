"""`app.operations` and its runner: every job changed once, whatever happens to the processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.operations.dead_jobs import bury, bury_ready, counts, ended, new_app, run, states
from tests.worker.yard import until
from windlass import (
    OperationNotFound,
    State,
    TooManyOperations,
    Unique,
    Windlass,
)
from windlass.engine.contract import MAX_DOCUMENT_CHANGES, DocumentChange, Filter, Plan
from windlass.operations.documents import ACTIVE, KIND
from windlass.operations.operations import Preview
from windlass.operations.pages import OperationAction, Pending, change_page
from windlass.operations.retention import KEPT_MS
from windlass.operations.runner import LEASE_S, OperationRunner
from windlass.testing.contract.world import claim_jobs
from windlass.testing.faults import Faults

PROCESS = Path(__file__).parent / "bulk_process.py"
#: Longer than the lease of a runner, in milliseconds.
LATER_MS = int(LEASE_S * 1000) + 1_000


# ------------------------------------------------------------------------------------- the actions


def test_dead_jobs_are_retried(app: Windlass) -> None:
    ids = bury(app, number=450)
    others = bury(app, task="mail", number=3)
    started = app.operations.start("dead.retry", actor="token:x", task="charge")
    assert (started.state, started.done, started.owner) == ("running", 0, "")
    assert started.filter["task"] == "charge"
    found = run(app, started)
    assert (found.state, counts(found)) == ("finished", (450, 0, 0))
    assert found.updated_at >= found.created_at
    assert states(app, ids) == {State.READY: 450}
    assert states(app, others) == {State.DEAD: 3}
    assert app.engine.list_documents(ACTIVE) == []
    assert app.engine.check() == []


def test_dead_jobs_are_discarded_and_logged(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    ids = bury(app, number=70)
    others = bury(app, number=2, why="another reason")
    group = next(one for one in app.dead.groups() if one.count == 70)
    started = app.operations.start("dead.discard", actor="x", fingerprint=group.fingerprint)
    found = run(app, started)
    assert (found.state, counts(found)) == ("finished", (70, 0, 0))
    assert states(app, ids) == {None: 70}
    assert states(app, others) == {State.DEAD: 2}
    lines = [line for line in caplog.messages if line.startswith("discarding ")]
    assert {line.split()[1] for line in lines} == set(ids)


def test_jobs_are_cancelled_in_every_state(app: Windlass) -> None:
    ready = [job.id for job in app.tasks["charge"].enqueue_many([(one,) for one in range(230)])]
    claims = claim_jobs(app.engine, "w", f"{1:040x}", Plan(), 3).claims
    later = app.tasks["charge"].using(run_after="1h").enqueue(1)
    other = app.tasks["mail"].enqueue("ann")
    started = app.operations.start("jobs.cancel", actor="x", queue="default")
    found = run(app, started)
    assert (found.state, counts(found)) == ("finished", (231, 0, 0))
    assert states(app, [*ready, later.id]) == {State.CANCELLED: 228, State.RUNNING: 3}
    records = app.engine.get([claim.id for claim in claims])
    assert all(record is not None and record.cancel_requested for record in records)
    assert other.info().state is State.READY
    again = run(app, app.operations.start("jobs.cancel", actor="x", task="charge"))
    assert counts(again) == (0, 0, 0), "a job whose cancellation is requested is left alone"


def test_cancellation_chooses_by_state_headers_and_time(app: Windlass) -> None:
    task = app.tasks["charge"]
    marked = task.using(headers={"user": "ann"}).enqueue(1)
    plain = task.enqueue(2)
    later = task.using(run_after="1h").enqueue(3)
    start = app.operations.start
    assert run(app, start("jobs.cancel", actor="x", headers={"user": "ann"})).done == 1
    assert run(app, start("jobs.cancel", actor="x", until="1h")).done == 0
    assert run(app, start("jobs.cancel", actor="x", since="1h", state="scheduled")).done == 1
    assert states(app, [marked.id, later.id, plain.id]) == {State.CANCELLED: 2, State.READY: 1}


def test_a_queue_is_purged(app: Windlass) -> None:
    jobs = app.tasks["mail"].enqueue_many([(str(one),) for one in range(500)])
    other = app.tasks["charge"].enqueue(1)
    claim_jobs(app.engine, "w", f"{1:040x}", Plan(), 1)
    waiting = app.operations.preview("queue.purge", queue="mail").count
    found = run(app, app.operations.start("queue.purge", actor="x", queue="mail"))
    assert (found.state, found.done) == ("finished", waiting)
    assert states(app, [job.id for job in jobs]).get(None) == waiting
    assert app.job(other.id).info().state in (State.READY, State.RUNNING)


def test_what_comes_later_is_left_alone(app: Windlass) -> None:
    """Neither a death nor an enqueue after the start."""
    early = bury(app, number=2)
    dead = app.operations.start("dead.retry", actor="x", everything=True)
    app.engine.clock_offset_ms += 10
    late = bury(app, number=2)
    assert run(app, dead).done == 2
    assert states(app, early) == {State.READY: 2}
    assert states(app, late) == {State.DEAD: 2}
    cancel = app.operations.start("jobs.cancel", actor="x", everything=True)
    app.engine.clock_offset_ms += 10
    new = app.tasks["mail"].enqueue("ann")
    assert run(app, cancel).done == 2
    assert states(app, early) == {State.CANCELLED: 2}
    assert new.info().state is State.READY
    purge = app.operations.start("queue.purge", actor="x", queue="mail")
    app.engine.clock_offset_ms += 10
    later = app.tasks["mail"].enqueue("bob")
    assert counts(run(app, purge)) == (1, 0, 0)
    assert states(app, [new.id, later.id]) == {None: 1, State.READY: 1}


def test_a_purge_frees_keys_and_takes_jobs_that_wait_for_an_instant(app: Windlass) -> None:
    task = app.task(name="once", unique=Unique(), queue="mail")(once)
    first = task.using(idempotency_key="order-1").enqueue(1)
    later = task.using(run_after="1h").enqueue(2)
    found = run(app, app.operations.start("queue.purge", actor="x", queue="mail"))
    assert counts(found) == (2, 0, 0)
    assert states(app, [first.id, later.id]) == {None: 2}
    assert task.using(idempotency_key="order-1").enqueue(1).id != first.id
    assert app.engine.check() == []


@pytest.mark.parametrize("is_repeat", [False, True])
def test_a_purge_leaves_a_job_that_has_started_meanwhile(app: Windlass, is_repeat: bool) -> None:
    """It was read as a waiting job."""
    started = app.tasks["charge"].enqueue(1)
    claim_jobs(app.engine, "w", f"{1:040x}", Plan(), 1)
    waiting, stopped = app.tasks["charge"].enqueue(2), app.tasks["charge"].enqueue(3)
    stopped.cancel()
    pending = [Pending(job.id) for job in (started, waiting, stopped)]
    found = change_page(app, OperationAction.QUEUE_PURGE, pending, is_repeat=is_repeat)
    assert (found.done, found.refused) == ((2, 1) if is_repeat else (1, 2))
    [record, removed, _] = app.engine.get([one.id for one in pending])
    assert record is not None
    assert (record.state, record.cancel_requested) == (State.RUNNING, False)
    assert removed is None


def test_ages_count_from_the_start(app: Windlass) -> None:
    old = bury(app, number=3)
    app.engine.clock_offset_ms += 3_600_000
    new = bury(app, number=2)
    start = app.operations.start
    app.engine.clock_offset_ms += 1_000
    assert run(app, start("dead.retry", actor="x", newer_than="30m")).done == 2
    assert states(app, new) == {State.READY: 2}
    assert run(app, start("dead.retry", actor="x", older_than="30m")).done == 3
    assert states(app, old) == {State.READY: 3}


def test_scopes_limit_an_operation(app: Windlass) -> None:
    charges = bury(app, number=2)
    mails = bury(app, task="mail", number=3)
    start = app.operations.start
    found = run(app, start("dead.retry", actor="x", everything=True, scopes=["ma*"]))
    assert found.done == 3
    assert states(app, charges) == {State.DEAD: 2}
    assert states(app, mails) == {State.READY: 3}
    assert run(app, start("jobs.cancel", actor="x", task="mail", scopes=["web"])).done == 0


def test_refused_jobs_are_counted(app: Windlass) -> None:
    """A dead job whose unique key another job holds stays dead."""
    task = app.task(name="once", unique=Unique())(once)
    first = task.enqueue(1)
    bury_ready(app)
    second = task.enqueue(1)
    found = run(app, app.operations.start("dead.retry", actor="x", everything=True))
    assert counts(found) == (0, 1, 0)
    assert (first.info().state, second.info().state) == (State.DEAD, State.READY)


def once(order: int) -> None:
    """A task with a unique key."""


def test_a_rate_limits_the_speed(local: Windlass) -> None:
    bury(local, number=40)
    started = local.operations.start("dead.retry", actor="x", everything=True, rate="100/s")
    began_s = time.monotonic()
    found = run(local, started)
    assert found.done == 40
    assert time.monotonic() - began_s >= 0.3


def test_slow_operations_do_not_keep_others_from_running(app: Windlass) -> None:
    bury(app, number=60)
    bury(app, task="mail", number=2)
    slow = [
        app.operations.start("dead.retry", actor="x", task="charge", rate="6/m") for _ in range(20)
    ]
    app.engine.clock_offset_ms += 10
    assert run(app, app.operations.start("dead.retry", actor="x", task="mail")).done == 2
    assert all(app.operations.get(one.id).is_running for one in slow)


def test_the_oldest_of_many_operations_runs_first(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lists begin with the newest."""
    monkeypatch.setattr("windlass.operations.runner.MARKS", 2)
    caplog.set_level("INFO", logger="windlass.operations")
    ids = []
    for _ in range(5):
        app.engine.clock_offset_ms += 10
        ids.append(app.operations.start("dead.retry", actor="x", everything=True).id)
    run(app, app.operations.get(ids[0]))
    lines = [line.split() for line in caplog.messages if line.startswith("starting operation")]
    assert [line[2].rstrip(":") for line in lines] == ids


def test_too_many_active_operations_are_refused(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.operations.control.MAX_ACTIVE", 2)
    started = [app.operations.start("queue.purge", actor="x", queue="mail") for _ in range(2)]
    with pytest.raises(TooManyOperations, match="2 bulk operations are running"):
        app.operations.start("queue.purge", actor="x", queue="mail")
    assert len(app.operations.list()) == 2
    app.operations.stop(started[0].id)
    assert app.operations.start("queue.purge", actor="x", queue="mail").is_running


# ------------------------------------------------------------------------------ crashes and races


@contextmanager
def process(
    url: str, verb: str, number: int, lease_s: float = LEASE_S
) -> Iterator[subprocess.Popen[str]]:
    """A process with a runner that has halted after a call."""
    started = subprocess.Popen(
        [sys.executable, str(PROCESS), url, verb, str(number), str(lease_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "halted\n"
        yield started
    finally:
        started.kill()
        started.wait()
        for stream in (started.stdin, started.stdout):
            if stream is not None:
                stream.close()


@pytest.mark.parametrize(
    ("action", "verb", "after"),
    [
        ("dead.retry", "revive", State.READY),
        ("dead.discard", "discard", None),
        ("jobs.cancel", "cancel", State.CANCELLED),
    ],
)
def test_another_runner_continues_after_a_kill(
    app: Windlass, action: str, verb: str, after: State | None
) -> None:
    """Killed between the change of a page and the write of its counts."""
    number = 510
    if action == "jobs.cancel":
        ids = [job.id for job in app.tasks["charge"].enqueue_many([(n,) for n in range(number)])]
    else:
        ids = bury(app, number=number)
    started = app.operations.start(action, actor="x", task="charge")
    with process(app.settings.url, verb, 2) as runner:
        changed = states(app, ids).get(after, 0)
        assert 0 < changed < number
        runner.kill()
        runner.wait()
    between = app.operations.get(started.id)
    assert between.is_running
    assert between.done < changed
    app.engine.clock_offset_ms += LATER_MS
    found = run(app, started)
    assert (found.state, counts(found)) == ("finished", (number, 0, 0))
    assert states(app, ids) == {after: number}
    assert app.engine.check() == []


@pytest.mark.parametrize("verb", ["change_jobs", "cancel", "discard"])
def test_a_purge_that_is_killed_between_its_verbs_is_counted_exactly(
    app: Windlass, verb: str
) -> None:
    number = 510
    ids = [job.id for job in app.tasks["charge"].enqueue_many([(n,) for n in range(number)])]
    started = app.operations.start("queue.purge", actor="x", queue="default")
    with process(app.settings.url, verb, 2) as runner:
        assert 0 < states(app, ids).get(None, 0) < number
        runner.kill()
        runner.wait()
    app.engine.clock_offset_ms += LATER_MS
    found = run(app, started)
    assert (found.state, counts(found)) == ("finished", (number, 0, 0))
    assert states(app, ids) == {None: number}
    assert app.engine.check() == []


def test_a_job_that_dies_again_is_not_retried_again(app: Windlass) -> None:
    """Killed in the first page, which is read again from the beginning."""
    ids = bury(app, number=5)
    started = app.operations.start("dead.retry", actor="x", everything=True)
    with process(app.settings.url, "revive", 1) as runner:
        runner.kill()
        runner.wait()
    assert states(app, ids) == {State.READY: 5}
    app.engine.clock_offset_ms += 10
    bury_ready(app)
    app.engine.clock_offset_ms += LATER_MS
    found = run(app, started)
    assert counts(found) == (5, 0, 0)
    assert states(app, ids) == {State.DEAD: 5}, "each was retried once"


def test_a_kill_before_the_change_leaves_no_job_out(app: Windlass) -> None:
    """Killed between the write of a page and the change of its jobs."""
    ids = bury(app, number=210)
    started = app.operations.start("dead.retry", actor="x", everything=True)
    with process(app.settings.url, "change_documents", 2) as runner:  # taken over, then a page
        assert states(app, ids) == {State.DEAD: 210}
        runner.kill()
        runner.wait()
    app.engine.clock_offset_ms += LATER_MS
    found = run(app, started)
    assert counts(found) == (210, 0, 0)
    assert states(app, ids) == {State.READY: 210}


def test_a_frozen_runner_changes_nothing_when_it_wakes(app: Windlass) -> None:
    ids = bury(app, number=210)
    started = app.operations.start("dead.retry", actor="x", everything=True)
    with process(app.settings.url, "revive", 1) as runner:
        app.engine.clock_offset_ms += LATER_MS
        found = run(app, started)
        assert counts(found) == (210, 0, 0)
        bury_ready(app)
        late = bury(app, number=3)
        runner.send_signal(signal.SIGUSR1)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "continued\n"
        assert runner.stdin is not None
        runner.stdin.close()  # it stops, and finishes what it has begun
        runner.wait(30)
    assert app.operations.get(started.id) == found
    assert states(app, [*ids, *late]) == {State.DEAD: 213}


def test_a_frozen_runner_does_not_change_the_pages_that_it_has_read(app: Windlass) -> None:
    """It has read a page of two operations, halts in the first, and its deadline passes."""
    jobs = [app.tasks["charge"].enqueue(1), app.tasks["mail"].enqueue("ann")]
    started = [
        app.operations.start("jobs.cancel", actor="x", task=task) for task in ("charge", "mail")
    ]
    with process(app.settings.url, "cancel", 1, lease_s=0.3) as runner:
        with OperationRunner(app):
            assert [ended(app, one).done for one in started] == [1, 1]
        for job in jobs:
            job.retry()
        runner.send_signal(signal.SIGUSR1)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "continued\n"
        other = app.operations.start("jobs.cancel", actor="x", task="none")
        assert ended(app, other).done == 0  # it has let go of the others, and does this one
    assert [job.info().state for job in jobs] == [State.READY, State.READY]


def test_an_owned_operation_is_left_to_its_owner(app: Windlass) -> None:
    ids = bury(app, number=210)
    started = app.operations.start("dead.retry", actor="x", everything=True)
    with process(app.settings.url, "revive", 1) as runner:
        with OperationRunner(app) as other:
            other.wake()
            mine = app.operations.start("dead.retry", actor="x", task="none")
            other.wake()
            ended(app, mine)  # it has looked at both
            assert states(app, ids) == {State.READY: 200, State.DEAD: 10}
        assert app.operations.get(started.id).is_running
        runner.send_signal(signal.SIGUSR1)
        assert counts(ended(app, started)) == (210, 0, 0)


def test_many_runners_change_each_job_once(local: Windlass) -> None:
    ids = bury(local, number=900)
    started = [local.operations.start("dead.retry", actor="x", queue="default") for _ in range(3)]
    with OperationRunner(local), OperationRunner(local), OperationRunner(local):
        found = [ended(local, one) for one in started]
    assert sum(one.done for one in found) == 900
    assert states(local, ids) == {State.READY: 900}


def test_a_runner_that_stops_leaves_the_rest_to_the_next(local: Windlass) -> None:
    """At once, without waiting for a deadline, and with exact counts."""
    bury(local, number=30)
    started = local.operations.start("dead.retry", actor="x", everything=True, rate="20/s")
    with OperationRunner(local):
        until(lambda: local.stats().jobs.get(State.READY, 0) >= 3, "some jobs are retried")
    between = local.operations.get(started.id)
    assert between.owner == ""
    assert between.done == local.stats().jobs[State.READY]
    [refused] = [one.id for one in local.jobs.list(state="dead", limit=1)]
    local.dead.retry(refused)
    found = run(local, started)
    assert counts(found) == (29, 1, 0), "a job that another caller has retried is not counted"


# ---------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("verb", ["revive", "change_documents", "find", "get_documents"])
@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_engine_that_is_away_delays_only(
    local: Windlass, verb: str, fault: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.operations.runner.RETRY_S", 0.01)
    ids = bury(local, number=410)
    started = local.operations.start("dead.retry", actor="x", everything=True)
    with new_app(local.settings.url) as app:
        faults = Faults(app.engine)
        if after:
            faults.delay(0, verb, times=after)
        getattr(faults, fault)(verb)
        app.wrap_engine(lambda _engine: faults.engine)
        with OperationRunner(app):
            found = ended(local, started)
        assert faults.pending == 0 or verb == "get_documents"
    assert (found.state, counts(found)) == ("finished", (410, 0, 0))
    assert states(local, ids) == {State.READY: 410}


def test_an_error_ends_the_operation(local: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    bury(local, number=3)
    started = local.operations.start("dead.retry", actor="x", everything=True)
    [document] = local.engine.list_documents(KIND)
    broken = msgspec.json.decode(document.body) | {"cursor": "nonsense"}
    change(local, document.key, document.revision, msgspec.json.encode(broken))
    found = run(local, started)
    assert found.state == "failed"
    assert "Expected the cursor of a page" in found.error
    assert local.engine.list_documents(ACTIVE) == []
    assert local.audit.list()[0].outcome == "failed"


def change(app: Windlass, key: str, expected: str, body: bytes | None, kind: str = KIND) -> None:
    made = DocumentChange(kind=kind, key=key, expected=expected, revision="by-hand", body=body)
    assert app.engine.change_documents([made]) == [True]


def test_an_unreadable_operation_does_not_hide_the_others(local: Windlass) -> None:
    for key in ("0" * 26, "z" * 26):
        change(local, key, "", b'{"action":"world.end"}')
        change(local, key, "", b"{}", kind=ACTIVE)
    bury(local, number=1)
    started = local.operations.start("dead.retry", actor="x", everything=True)
    assert run(local, started).done == 1
    assert [one.id for one in local.operations.list()] == [started.id]


def test_an_operation_that_becomes_unreadable_does_not_keep_others_from_running(
    local: Windlass,
) -> None:
    """A newer version has written it, while this runner worked on it."""
    ids = bury(local, number=30)
    slow = local.operations.start("dead.retry", actor="x", everything=True, rate="10/s")
    with OperationRunner(local) as runner:
        until(lambda: states(local, ids).get(State.READY, 0) >= 2, "some jobs are retried")
        while True:
            (document,) = local.engine.get_documents(KIND, [slow.id])
            assert document is not None
            body = b'{"action":"world.end"}'
            made = DocumentChange(
                kind=KIND, key=slow.id, expected=document.revision, revision="r" * 26, body=body
            )
            if local.engine.change_documents([made])[0]:
                break
        other = local.operations.start("dead.discard", actor="x", everything=True)
        runner.wake()
        until(lambda: local.operations.get(other.id).state == "finished", "the other one ends")


# ----------------------------------------------------------------------------------- stop and list


def test_a_stopped_operation_changes_nothing_more(app: Windlass) -> None:
    ids = bury(app, number=60)
    started = app.operations.start("dead.retry", actor="x", everything=True, rate="20/s")
    with OperationRunner(app):
        until(lambda: states(app, ids).get(State.READY, 0) >= 2, "some jobs are retried")
        stopped = app.operations.stop(started.id)
        assert stopped.state == "stopped"
        until(lambda: app.operations.get(started.id).owner == "", "the runner has settled")
        found = app.operations.get(started.id)
        assert found.state == "stopped"
        assert 2 <= found.done < 60
        assert states(app, ids) == {State.READY: found.done, State.DEAD: 60 - found.done}
    assert app.operations.stop(started.id) == found
    assert app.engine.list_documents(ACTIVE) == []


def test_an_operation_that_waits_for_a_runner_is_stopped(app: Windlass) -> None:
    ids = bury(app, number=2)
    started = app.operations.start("dead.retry", actor="x", everything=True)
    assert asyncio.run(app.operations.astop(started.id)).state == "stopped"
    with OperationRunner(app) as runner:
        other = app.operations.start("dead.retry", actor="x", task="none")
        runner.wake()
        ended(app, other)
    assert states(app, ids) == {State.DEAD: 2}


def test_operations_are_listed_newest_first(app: Windlass) -> None:
    started = []
    for _ in range(5):
        app.engine.clock_offset_ms += 1_000
        started.append(app.operations.start("queue.purge", actor="x", queue="mail"))
    ids = [one.id for one in reversed(started)]
    assert [one.id for one in app.operations.list()] == ids
    assert [one.id for one in app.operations.list(limit=2)] == ids[:2]
    assert [one.id for one in app.operations.list(after=ids[1], limit=2)] == ids[2:4]
    assert asyncio.run(app.operations.alist()) == app.operations.list()
    assert app.operations.get(ids[0]) == app.operations.list()[0]


def test_an_unknown_operation_is_told(app: Windlass) -> None:
    for method in (app.operations.get, app.operations.stop):
        with pytest.raises(OperationNotFound, match="no operation nothing in "):
            method("nothing")


def test_the_end_is_in_the_audit_trail(local: Windlass) -> None:
    bury(local, number=3)
    started = local.operations.start("dead.retry", actor="token:deploy", everything=True)
    run(local, started)
    [record] = local.audit.list()
    assert (record.actor, record.action) == ("token:deploy", "operation.finished")
    assert record.subject == started.id
    assert record.details["action"] == "dead.retry"
    assert record.details["done"] == 3


def test_ended_operations_are_removed(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.operations.retention.MAX_KEPT", 2)
    old = app.operations.start("queue.purge", actor="x", queue="mail")
    app.operations.stop(old.id)
    app.engine.clock_offset_ms += KEPT_MS + 1_000
    new = []
    for _ in range(3):
        app.engine.clock_offset_ms += 1_000
        new.append(app.operations.start("queue.purge", actor="x", queue="mail").id)
        app.operations.stop(new[-1])
    app.engine.clock_offset_ms += 1_000
    waiting = app.operations.start("queue.purge", actor="x", queue="mail")
    with OperationRunner(app):
        ended(app, waiting)
        kept = [waiting.id, *reversed(new[1:])]
        until(lambda: len(app.operations.list()) <= 3, "the old ones are removed")
    assert [one.id for one in app.operations.list()] == kept


def test_an_operation_is_kept_for_seven_days(app: Windlass) -> None:
    ids = []
    for _ in range(2):
        ids.append(app.operations.start("queue.purge", actor="x", queue="mail").id)
        app.operations.stop(ids[-1])
        app.engine.clock_offset_ms += KEPT_MS - 60_000
    with OperationRunner(app):
        until(lambda: len(app.operations.list()) == 1, "the old one is removed")
    assert app.operations.get(ids[1]).state == "stopped"


def test_many_ended_operations_are_removed(
    local: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one call of the engine takes."""
    monkeypatch.setattr("windlass.operations.retention.MAX_KEPT", 2)
    for _ in range(MAX_DOCUMENT_CHANGES + 5):
        local.operations.stop(local.operations.start("queue.purge", actor="x", queue="mail").id)
    with OperationRunner(local):
        until(lambda: len(local.operations.list()) == 2, "the old ones are removed")


def test_a_mark_of_an_operation_that_was_never_stored_is_removed(local: Windlass) -> None:
    started = local.operations.start("queue.purge", actor="x", queue="mail")
    local.operations.stop(started.id)
    [document] = local.engine.list_documents(KIND)
    change(local, started.id, document.revision, None)
    mark = DocumentChange(kind=ACTIVE, key=started.id, expected="", revision=started.id, body=b"{}")
    local.engine.change_documents([mark])
    with OperationRunner(local) as runner:
        local.engine.clock_offset_ms += 700_000
        runner.wake()
        until(lambda: not local.engine.list_documents(ACTIVE), "the mark is removed")


# ---------------------------------------------------------------------------------------- previews


def test_a_preview_counts_what_would_be_changed(app: Windlass) -> None:
    bury(app, number=30, why="one")
    bury(app, number=4, why="another reason")
    bury(app, task="mail", number=5)
    app.tasks["charge"].enqueue(1)
    app.tasks["mail"].using(run_after="1h").enqueue("ann")
    group = max(app.dead.groups(task="charge"), key=lambda one: one.count)
    preview: Callable[..., Preview] = app.operations.preview
    dead_choices: list[tuple[int, dict[str, Any]]] = [
        (39, {"everything": True}),
        (34, {"queue": "default"}),
        (34, {"task": "charge"}),
        (5, {"task": "mail", "older_than": 0}),
        (0, {"everything": True, "scopes": ["web"]}),
        (5, {"everything": True, "scopes": ["m*"]}),
        (30, {"fingerprint": group.fingerprint, "task": "charge"}),
    ]
    for expected, choice in dead_choices:
        app.engine.clock_offset_ms += 1
        for action in ("dead.retry", "dead.discard"):
            assert preview(action, **choice) == Preview(count=expected, is_exact=True), choice
    live_choices: list[tuple[int, dict[str, Any]]] = [
        (2, {"everything": True}),
        (1, {"task": "charge"}),
        (1, {"state": "scheduled"}),
        (1, {"since": "1h", "queue": "mail"}),
    ]
    for expected, choice in live_choices:
        assert preview("jobs.cancel", **choice) == Preview(count=expected, is_exact=True), choice
    assert preview("queue.purge", queue="mail") == Preview(count=1, is_exact=True)
    assert asyncio.run(app.operations.apreview("queue.purge", queue="mail")).count == 1
    assert app.operations.list() == []


def test_a_preview_is_bounded(local: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(local, number=250)
    monkeypatch.setattr("windlass.operations.operations.MAX_PREVIEW", 100)
    known = local.operations.preview("dead.retry", task="charge")
    assert known == Preview(count=250, is_exact=True)  # the groups have it
    cut = local.operations.preview("dead.retry", task="charge", newer_than="1h")
    assert cut == Preview(count=100, is_exact=False)
    exact = local.operations.preview("dead.retry", everything=True)
    assert exact == Preview(count=250, is_exact=True), "the engine counts these"
    monkeypatch.setattr("windlass.operations.operations.MAX_PREVIEW", 10_000)
    monkeypatch.setattr("windlass.operations.operations.PREVIEW_S", 0.0)
    assert not local.operations.preview("dead.retry", newer_than="1h").is_exact


# ----------------------------------------------------------------------------------------- choices


@pytest.mark.parametrize(
    ("action", "choice", "words"),
    [
        ("dead.burn", {}, "action must be one of dead.retry, dead.discard, jobs.cancel"),
        ("dead.retry", {}, "Expected which jobs are meant: task, queue, fingerprint"),
        ("dead.retry", {"task": None}, "Expected which jobs are meant"),
        ("dead.retry", {"task": "a", "everything": True}, "found task and everything=True"),
        ("dead.retry", {"state": "ready"}, "An operation dead.retry takes no state"),
        ("jobs.cancel", {}, "Expected which jobs are meant: task, queue, state"),
        ("jobs.cancel", {"state": "dead"}, "state must be one of ready, scheduled"),
        ("queue.purge", {}, "queue.purge needs a queue"),
        ("queue.purge", {"queue": "a b"}, "queue must be 1 to 64 characters"),
        ("queue.purge", {"queue": "web", "scopes": ["mail*"]}, r"one of mail\*, found 'web'"),
        ("dead.retry", {"everything": True, "rate": "fast"}, "rate must be text such as"),
        ("dead.retry", {"everything": True, "rate": 0.0002}, r"at least one job per hour \(1/h\)"),
        ("dead.retry", {"everything": True, "scopes": ["a b"]}, "queues must be names or patterns"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(
    local: Windlass, action: str, choice: dict[str, Any], words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        local.operations.start(action, actor="x", **choice)
    assert local.operations.list() == []
    assert local.engine.list_documents(ACTIVE) == []


def test_an_unreadable_job_is_counted_as_failed(
    local: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    [id] = bury(local, number=1)
    pending = [Pending(id, local.engine.get([id])[0].finished_ms)]  # type: ignore[union-attr]  # exists

    def choke(ids: object) -> Any:
        raise ValueError("'burned' is not a valid Reason")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.engine, "get", choke)
        found = change_page(local, OperationAction.DEAD_DISCARD, pending, is_repeat=False)
    assert (found.done, found.refused, found.failed) == (0, 0, 1)
    assert f"skipping unreadable job {id}" in caplog.text
    assert local.engine.find(Filter(state=State.DEAD)).records != ()
