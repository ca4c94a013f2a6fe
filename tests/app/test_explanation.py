"""`app.jobs.why`: what holds a job, with the command that resolves it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from tests.docs.pages import PROJECT
from windlass import JobNotFound, Windlass
from windlass.core.failures import FailureText
from windlass.core.introduction import Introduction
from windlass.engine.contract import Beat, Unroutable
from windlass.explanation import HoldKind, JobHold


@pytest.fixture(params=["sqlite-file", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path), lease="60s") as app:
        app.task(name="charge", queue="mail")(charge)
        yield app


def charge(order: int) -> None:
    """A task."""


def begin(app: Windlass, session: str = "web.1.a", **facts: Any) -> None:
    """Begin a session of a worker with two slots for all queues, unless given."""
    known = {"host": "web", "worker": 1, "child": 2, "slots": 2, "lease_ms": 60_000, **facts}
    app.engine.beat([Beat(session=session, info=Introduction(**known).pack())])


def enqueue(app: Windlass, **options: Any) -> str:
    return app.tasks["charge"].using(**options).enqueue(1).id


def kinds(app: Windlass, id: str) -> list[HoldKind]:
    return [hold.kind for hold in app.jobs.why(id).holds]


def only(app: Windlass, id: str) -> JobHold:
    (hold,) = app.jobs.why(id).holds
    return hold


# ---------------------------------------------------------------------------------------- workers


def test_no_worker_is_alive(app: Windlass) -> None:
    hold = only(app, enqueue(app))
    assert (hold.kind, hold.text) == (HoldKind.NO_WORKER, "No worker is alive.")
    assert hold.command == "windlass worker MODULE:APP -q mail"


@pytest.mark.parametrize(
    ("facts", "options", "kind", "words"),
    [
        ({"queues": ("web", "bulk:2,low:1")}, {}, "no_worker_for_queue", "serves the queue mail"),
        ({}, {"requires": ["gpu"]}, "no_worker_for_labels", "It requires gpu, and no worker"),
        ({"kind": "http", "tasks": ("other",)}, {}, "no_worker_for_task", "has the task charge"),
    ],
)
def test_no_worker_fits(
    app: Windlass, facts: dict[str, Any], options: dict[str, Any], kind: str, words: str
) -> None:
    begin(app, **facts)
    hold = only(app, enqueue(app, **options))
    assert hold.kind == kind
    assert words in hold.text


@pytest.mark.parametrize(
    ("facts", "options"),
    [
        ({"queues": ("web", "bulk:2,mail:1")}, {}),
        ({"labels": ("gpu", "large")}, {"requires": ["gpu"]}),
        ({"kind": "http", "tasks": ("other", "charge")}, {}),
    ],
)
def test_a_worker_that_fits_claims_the_next_job(
    app: Windlass, facts: dict[str, Any], options: dict[str, Any]
) -> None:
    begin(app, **facts)
    hold = only(app, enqueue(app, **options))
    assert hold.kind is HoldKind.NEXT
    assert "0 of 2 slots that could run it are busy" in hold.text


def test_quiet_workers(app: Windlass) -> None:
    begin(app)
    id = enqueue(app)
    app.command_workers(["web:1"], "quiet")
    hold = only(app, id)
    assert (hold.kind, hold.command) == (HoldKind.WORKERS_QUIET, "windlass workers resume web:1")


def test_workers_without_a_heartbeat_do_not_count(app: Windlass) -> None:
    begin(app)
    id = enqueue(app)
    app.engine.clock_offset_ms += 70_000
    assert kinds(app, id) == [HoldKind.NO_WORKER]


def test_jobs_ahead(app: Windlass) -> None:
    begin(app)
    first, second, third = (enqueue(app) for _ in range(3))
    places = [app.jobs.why(id).ahead for id in (first, second, third)]
    assert sorted(places, key=lambda place: place or 0) == [0, 1, 2]
    urgent = enqueue(app, priority=10)
    assert app.jobs.why(urgent).ahead == 0
    hold = only(app, [first, second, third][places.index(2)])
    assert hold.kind is HoldKind.BEHIND_OTHERS
    assert hold.text.startswith("3 jobs start before it in the queue mail, and 0 of 2 slots")


def test_many_jobs_ahead_are_not_counted(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.explanation.MAX_AHEAD", 3)
    begin(app)
    for _ in range(5):
        enqueue(app, priority=10)
    found = app.jobs.why(enqueue(app))
    assert (found.ahead, found.is_ahead_exact) == (3, False)
    assert found.holds[0].text.startswith("At least 3 jobs start before it")


def test_all_slots_are_busy(app: Windlass) -> None:
    hand = Hand(app)
    begin(app, hand.session, slots=1)
    enqueue(app)
    hand.take()
    hold = only(app, enqueue(app))
    assert hold.kind is HoldKind.BEHIND_OTHERS
    assert "0 jobs start before it in the queue mail, and 1 of 1 slot that" in hold.text


# ----------------------------------------------------------------------------------------- pauses


def test_paused_queue_and_task(app: Windlass) -> None:
    begin(app)
    id = enqueue(app)
    app.queue("mail").pause()
    app.tasks["charge"].pause()
    queue, task = app.jobs.why(id).holds
    assert (queue.kind, queue.text) == (HoldKind.QUEUE_PAUSED, "The queue mail is paused.")
    assert (queue.command, queue.by) == ("windlass queue resume mail", None)
    assert (task.kind, task.command) == (HoldKind.TASK_PAUSED, "windlass task resume charge")


def test_commands_are_safe_to_paste(app: Windlass) -> None:
    """A producer chooses the name of a task, and an operator pastes the command into a shell."""
    name = "x;id>&2;$(id)'"
    begin(app)
    id = app.task(name=name, queue="mail")(charge).enqueue(1).id
    app.tasks[name].pause()
    command = only(app, id).command
    assert command is not None
    assert shlex.split(command) == ["windlass", "task", "resume", name]


def test_a_pause_names_its_actor(app: Windlass) -> None:
    begin(app)
    id = enqueue(app)
    app.queue("mail").pause()
    app.audit.add(actor="token:ann", action="http.pause_queue", subject="mail")
    app.audit.add(actor="token:bob", action="http.pause_queue", subject="web")
    hold = only(app, id)
    paused_at = next(one.at for one in app.audit.list() if one.actor == "token:ann")
    assert (hold.by, hold.at) == ("token:ann", paused_at)
    assert hold.text.startswith("The queue mail was paused by token:ann at 20")
    app.audit.add(actor="cli:cat", action="queue.resume", subject="mail")
    assert only(app, id).by is None, "a program has paused it again"


# ----------------------------------------------------------------------------------- other reasons


def test_a_job_that_is_due_later(app: Windlass) -> None:
    begin(app)
    id = enqueue(app, run_after="1h")
    hold = only(app, id)
    assert (hold.kind, hold.command) == (HoldKind.SCHEDULED, f"windlass job run-now {id}")
    assert hold.at == app.job(id).info().due_at
    assert hold.text.startswith("It is due at 20")
    app.engine.clock_offset_ms += 3_700_000
    begin(app)
    assert only(app, id).text.startswith("It has been due since 20")


def test_a_failed_job_waits_for_its_next_attempt(app: Windlass) -> None:
    hand = Hand(app)
    begin(app, hand.session)
    id = enqueue(app)
    hand.fail(ValueError("no"), 60_000)
    hold = only(app, id)
    assert hold.kind is HoldKind.BACK_OFF
    assert hold.text.startswith("Attempt 1 failed. The next is due at 20")


def test_an_unroutable_job_says_why(app: Windlass) -> None:
    hand = Hand(app)
    begin(app, hand.session)
    id, claim = enqueue(app), hand.take()
    why = FailureText(type="", message="no task charge in shop:app", traceback="").pack()
    app.engine.finish([Unroutable(id=claim.id, token=claim.token, why=why)])
    hold = only(app, id)
    assert hold.kind is HoldKind.UNROUTABLE
    assert hold.text.startswith("Workers could not run it: no task charge in shop:app. A worker")
    assert hold.at is not None


def test_a_job_that_must_run_alone(app: Windlass) -> None:
    hand = Hand(app)
    begin(app, hand.session)
    ids = [enqueue(app), enqueue(app)]
    claims = [hand.take(), hand.take()]
    app.engine.close(hand.session, [claim.id for claim in claims], "died")
    begin(app)
    assert [kinds(app, id) for id in ids] == [[HoldKind.RUNS_ALONE]] * 2


def test_an_expired_job(app: Windlass) -> None:
    begin(app)
    id = enqueue(app, expires="10s")
    app.engine.clock_offset_ms += 20_000
    assert kinds(app, id) == [HoldKind.EXPIRED]


# --------------------------------------------------------------------------- running and ended jobs


def test_a_running_job_names_its_worker(app: Windlass) -> None:
    hand = Hand(app)
    begin(app, hand.session)
    id = enqueue(app)
    hand.take()
    hold = only(app, id)
    assert hold.kind is HoldKind.RUNNING
    assert hold.text.startswith(f"It runs on the worker web:1 ({hand.session}) since 20")
    app.job(id).cancel()
    assert kinds(app, id) == [HoldKind.CANCELLING, HoldKind.RUNNING]
    app.engine.clock_offset_ms += 70_000
    assert kinds(app, id)[0] is HoldKind.WORKER_SILENT


def test_an_ended_job_needs_no_reason(app: Windlass) -> None:
    hand = Hand(app)
    id = enqueue(app)
    hand.bury(ValueError("no"))
    hold = only(app, id)
    assert (hold.kind, hold.command) == (HoldKind.ENDED, f"windlass job retry {id}")
    assert hold.text.startswith("It has ended: dead (exhausted) at 20")


def test_all_kinds_are_documented() -> None:
    text = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [kind for kind in HoldKind if f"`{kind}`" not in text] == []


def test_coroutines_and_unknown_jobs(app: Windlass) -> None:
    job = app.job(enqueue(app))
    assert asyncio.run(app.jobs.awhy(job.id)) == app.jobs.why(job)
    with pytest.raises(JobNotFound):
        app.jobs.why("nothing")
