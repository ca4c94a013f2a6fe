"""`app.jobs`, `app.stats()` and `app.workers()`: looking at jobs and workers from Python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from tests.soon import is_once
from tests.worker.yard import until
from windlass import (
    DuplicateJob,
    EncodeError,
    FailureText,
    InvalidTask,
    JobFailed,
    JobInfo,
    JobNotFound,
    Retry,
    State,
    Unique,
    Windlass,
)
from windlass.core.states import Hold
from windlass.engine.contract import ChangeCode, Claim, Succeeded, Unroutable, Verdict
from windlass.jobs import PAGE, WHOLE_PAGE, JobChoice, Jobs, now
from windlass.twins import Steps

UNKNOWN = "01m7gk6tx900smjc57av0rnpgb"
HOUR_MS = 3_600_000


@pytest.fixture(params=["sqlite-file", "redis", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        app.task(name="charge")(charge)
        app.task(name="mail", queue="mail")(mail)
        yield app


@pytest.fixture
def hand(app: Windlass) -> Hand:
    return Hand(app)


def charge(order: int) -> None:
    """A task."""


def mail(to: str) -> None:
    """Another one."""


def ids_of(jobs: Iterator[JobInfo]) -> list[str]:
    return [job.id for job in jobs]


async def collect(app: Windlass, choice: JobChoice) -> list[JobInfo]:
    return [job async for job in app.jobs.alist(**choice)]


# ----------------------------------------------------------------------------------------- listing


def test_a_list_has_what_is_asked_for(app: Windlass, hand: Hand) -> None:
    dead = app.tasks["charge"].enqueue(1)
    hand.bury(ValueError("no"))
    sent = (
        app.tasks["mail"].using(headers={"user": "ann", "trace": "1", "shop": "1"}).enqueue("ann")
    )
    later = (
        app.tasks["charge"].using(run_after="1h", headers={"user": "bob", "shop": "1"}).enqueue(2)
    )
    by_state = [sent.id, later.id, dead.id]
    cases: list[tuple[JobChoice, list[str]]] = [
        ({}, by_state),
        ({"state": State.DEAD}, [dead.id]),
        ({"state": "scheduled"}, [later.id]),
        ({"task": "charge"}, [later.id, dead.id]),
        ({"queue": "mail"}, [sent.id]),
        ({"queue": "mail", "state": State.DEAD}, []),
        ({"headers": {"user": "ann"}}, [sent.id]),
        ({"headers": {"user": "bob", "trace": "1"}}, []),
        ({"limit": 2}, by_state[:2]),
        ({"headers": {"user": "bob"}, "limit": 1}, [later.id]),
        ({"headers": {"shop": "1"}, "limit": 1}, [sent.id]),
    ]
    for choice, expected in cases:
        assert ids_of(app.jobs.list(**choice)) == expected, choice
        assert [job.id for job in asyncio.run(collect(app, choice))] == expected, choice
    (with_headers,) = app.jobs.list(headers={"user": "ann"})
    assert with_headers == sent.info()


def test_a_list_is_cut_by_time(app: Windlass) -> None:
    """Ages are by the engine's clock, and an instant is compared with the enqueue."""
    old = app.tasks["charge"].enqueue(1)
    app.engine.clock_offset_ms += 2 * HOUR_MS
    new = app.tasks["charge"].enqueue(2)
    border = new.info().enqueued_at
    cases: list[tuple[JobChoice, list[str]]] = [
        ({"since": "1h"}, [new.id]),
        ({"until": "1h"}, [old.id]),
        ({"since": "3h", "until": timedelta(hours=1)}, [old.id]),
        ({"since": "3h"}, [old.id, new.id]),
        ({"since": border}, [new.id]),
        ({"until": border}, [old.id]),
        ({"until": border + timedelta(milliseconds=1)}, [old.id, new.id]),
    ]
    for choice, expected in cases:
        assert sorted(ids_of(app.jobs.list(**choice))) == sorted(expected), choice


def test_a_list_reads_page_by_page(app: Windlass) -> None:
    """While jobs come and go, every job that stays is listed once."""
    before = [job.id for job in app.tasks["charge"].enqueue_many((n,) for n in range(PAGE + 50))]
    listed = app.jobs.list()
    first = next(listed).id
    app.engine.cancel([first])
    app.tasks["charge"].using(priority=1).enqueue(-1)
    rest = ids_of(job for job in listed if job.state is State.READY)
    assert sorted([first, *rest]) == sorted(before)
    assert len(list(app.jobs.list(limit=PAGE + 1))) == PAGE + 1


def test_headers_are_looked_for_on_every_page(app: Windlass) -> None:
    task = app.tasks["charge"]
    marked = task.using(headers={"user": "ann"}).enqueue(0)
    task.enqueue_many((number,) for number in range(WHOLE_PAGE + 1))
    assert ids_of(app.jobs.list(headers={"user": "ann"}, limit=1)) == [marked.id]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"state": "waitin"}, "state must be one of waiting, .*, found 'waitin'"),
        ({"queue": "a b"}, "found 'a b'"),
        ({"since": "yesterday"}, "since must be seconds as a number"),
        (
            {"until": datetime.now(UTC).replace(tzinfo=None)},
            "until must be a datetime with a time zone",
        ),
        ({"limit": 0}, "limit must be a whole number of at least 1"),
        ({"limit": "10"}, "limit must be a whole number of at least 1.*, found '10'"),
        ({"since": "1m", "until": "1h"}, "since is later than until.*: swap them"),
        (
            {"since": datetime.now(UTC), "until": datetime.now(UTC) - timedelta(hours=1)},
            "since is later than until",
        ),
        ({"stat": "dead"}, "app.jobs takes no stat. Did you mean state\\? It takes state, task, "),
        ({"task": charge}, "task must be a task or its name, found <function charge"),
        ({"headers": {"a": 1}}, "headers: a must be text, found 1"),
        ({"headers": ["a"]}, "headers must be a dict of text to text"),
    ],
)
def test_a_wrong_choice_is_refused_at_once(choice: Any, message: str) -> None:
    """Not only when the first job is read."""
    jobs = Windlass("sqlite:///:memory:").jobs
    for looking in (jobs.list, jobs.alist, partial(_first, jobs)):
        with pytest.raises((TypeError, ValueError), match=message):
            looking(**choice)


def test_a_wrong_age_may_be_meant_as_an_instant() -> None:
    with pytest.raises(ValueError, match="since must be seconds as a number") as raised:
        Windlass("sqlite:///:memory:").jobs.list(since="2030-01-31T08:00+01:00")
    assert raised.value.__notes__ == ["since may also be a datetime with a time zone."]


def _first(jobs: Jobs, **choice: Any) -> object:
    return next(jobs.changing(now, **choice))


def test_a_task_is_chosen_by_itself_or_by_its_whole_name(app: Windlass) -> None:
    app.task(name="shop.pay")(refuse).enqueue()
    task = app.tasks["charge"]
    job = task.enqueue(1)
    assert ids_of(app.jobs.list(task=task)) == ids_of(app.jobs.list(task="charge")) == [job.id]
    assert ids_of(app.jobs.list(task=task.using(priority=1))) == [job.id]
    assert ids_of(app.jobs.list(task="pay")) == []


# ----------------------------------------------------------------------------------------- by id


def test_many_jobs_are_read_by_id(app: Windlass, hand: Hand) -> None:
    dead = app.tasks["charge"].using(headers={"user": "ann"}).enqueue(1)
    hand.bury(ValueError("no such order"))
    sent = app.tasks["mail"].enqueue("ann")
    found = app.jobs.get_many([sent.id, UNKNOWN, dead.id, sent.id])
    assert found == [sent.info(), None, dead.info(), sent.info()]
    assert found == asyncio.run(app.jobs.aget_many(iter([sent.id, UNKNOWN, dead.id, sent.id])))
    assert found[2] is not None
    assert found[2].error is not None
    assert (found[2].error.message, found[2].headers) == ("no such order", {"user": "ann"})
    assert app.jobs.get_many([]) == []


def test_an_encrypted_error_is_decrypted(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path}/sealed.db", secret="s" * 32, encrypt=True) as app:
        job = app.task(name="charge", retry=Retry(max_attempts=1))(refuse).enqueue()
        with app.worker(), pytest.raises(JobFailed):
            job.result(timeout=20)
        [found] = app.jobs.get_many([job.id])
    assert found is not None
    assert found.error is not None
    assert found.error.message == "no such order"


def refuse() -> None:
    raise ValueError("no such order")


def test_ids_that_are_none_are_refused(app: Windlass) -> None:
    with pytest.raises(TypeError, match="write \\['x'\\]"):
        app.jobs.get_many("x")
    for id in ("a b", ""):
        with pytest.raises(ValueError, match="an id must be 1 to 64 characters"):
            app.jobs.get_many([UNKNOWN, id])
    given: Any = [1]
    with pytest.raises(TypeError, match="an id must be text, found 1"):
        app.jobs.get_many(given)


def test_handles_are_taken_for_ids(app: Windlass) -> None:
    jobs = app.tasks["charge"].enqueue_many([(1,), (2,)])
    assert app.jobs.get_many(jobs) == app.jobs.get_many([job.id for job in jobs])


@pytest.mark.slow  # enqueues many jobs
def test_twenty_thousand_are_read_in_a_second(app: Windlass) -> None:
    ids = [job.id for job in app.tasks["charge"].enqueue_many((n,) for n in range(20_000))]

    def is_quick() -> bool:
        begin_s = time.perf_counter()
        found = app.jobs.get_many(ids)
        took_s = time.perf_counter() - begin_s
        assert [job.id for job in found if job is not None] == ids
        return took_s < 1

    assert is_once(is_quick)


# ------------------------------------------------------------------------------- stats and workers


def test_stats_count_by_queue_and_state(app: Windlass, hand: Hand) -> None:
    assert app.stats().jobs == {}
    app.tasks["charge"].enqueue(1)
    hand.bury(ValueError("no"))
    app.tasks["mail"].enqueue("ann")
    app.tasks["mail"].using(requires="gpu", run_after="1h").enqueue("bob")
    app.engine.clock_offset_ms += HOUR_MS // 2
    stats = app.stats()
    assert {name: dict(queue.jobs) for name, queue in stats.queues.items()} == {
        "default": {State.DEAD: 1},
        "mail": {State.READY: 1, State.SCHEDULED: 1},  # with labels and without
    }
    assert stats.jobs == {State.READY: 1, State.SCHEDULED: 1, State.DEAD: 1}
    assert stats.totals["enqueued"] == 3
    assert stats.queues["default"].oldest_ready is None
    waits = stats.queues["mail"].oldest_ready
    assert waits is not None
    assert timedelta(minutes=30) <= waits < timedelta(minutes=31)
    assert asyncio.run(app.astats()).jobs == stats.jobs


def test_workers_are_listed_with_what_they_run(app: Windlass) -> None:
    assert app.workers() == asyncio.run(app.aworkers()) == []
    with app.worker(queues=["mail"], slots=2):
        until(app.workers, "the worker to be known")
        [worker] = app.workers()
        assert (worker.queues, worker.slots) == (("mail",), 2)
        assert worker.started_at is not None
        assert worker.started_at <= datetime.now(UTC)
        assert [one.pid for one in asyncio.run(app.aworkers())] == [worker.pid]


# ---------------------------------------------------------------------------------------- changing


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
def test_an_ended_job_is_edited_and_ready_again(app: Windlass, hand: Hand, state: State) -> None:
    job = app.tasks["charge"].using(headers={"user": "ann"}).enqueue(1)
    if state is State.DEAD:
        hand.bury(ValueError("no such order"))
    else:
        job.cancel()
    assert job.edit(2)
    assert (job.info().state, job.info().headers) == (State.READY, {"user": "ann"})
    assert b'"args":[2]' in hand.take().payload
    assert app.engine.check() == []


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.RETRYING])
def test_a_waiting_job_is_edited_where_it_waits(app: Windlass, hand: Hand, state: State) -> None:
    task = app.tasks["charge"].using(headers={"user": "ann"})
    job = (task.using(run_after="1h") if state is State.SCHEDULED else task).enqueue(1)
    if state is State.RETRYING:
        hand.fail(ValueError("no"), delay_ms=HOUR_MS)
    before = job.info()
    assert before.state is state
    assert asyncio.run(job.aedit(2))
    assert job.info() == before
    app.engine.clock_offset_ms += 2 * HOUR_MS
    assert b'"args":[2]' in hand.take().payload
    assert app.engine.check() == []


def test_an_edit_logs_the_state_of_a_job_that_has_not_ended(
    app: Windlass, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    job = app.tasks["charge"].enqueue(1)
    job.edit(2)
    assert f'changing the arguments of {job.id} charge ready {{"args":[1]}}' in caplog.text
    hand.bury(ValueError("no"))
    job.edit(3)
    assert f'changing the arguments of {job.id} charge exhausted {{"args":[2]}}' in caplog.text


def test_an_edited_job_that_no_worker_could_run_is_tried_at_once(app: Windlass, hand: Hand) -> None:
    job = app.tasks["charge"].enqueue(1)
    claim = hand.take()
    why = FailureText(message="too many arguments").pack()
    app.engine.finish([Unroutable(id=job.id, token=claim.token, why=why)])
    assert job.info().hold is Hold.UNROUTABLE
    assert job.edit(3)
    info = job.info()
    assert (info.state, info.hold, info.due_at) == (State.READY, Hold.NONE, None)
    assert hand.take().id == job.id
    assert app.engine.check() == []


def test_an_edited_job_of_a_paused_task_stays_held(app: Windlass, hand: Hand) -> None:
    task = app.tasks["charge"]
    job = task.enqueue(1)
    task.pause()
    assert hand.find() == ()
    assert job.edit(2)
    assert job.info().hold is Hold.PAUSED
    task.resume()
    assert b'"args":[2]' in hand.take().payload


def test_a_job_that_runs_or_succeeded_is_not_changed(app: Windlass, hand: Hand) -> None:
    job = app.tasks["charge"].enqueue(1)
    claim = hand.take()
    assert [job.edit(2), job.run_now(), job.move("mail")] == [False, False, False]
    outcome = Succeeded(id=claim.id, token=claim.token, result=None, result_ttl_ms=60_000)
    assert app.engine.finish([outcome]) == [Verdict.OK]
    assert not asyncio.run(job.aedit(2))
    assert not asyncio.run(job.arun_now())
    assert not asyncio.run(job.amove("mail"))


def test_a_job_runs_now(app: Windlass, hand: Hand) -> None:
    later = app.tasks["charge"].using(run_after="1h").enqueue(1)
    assert later.run_now()
    assert later.run_now()  # and stays ready
    assert later.info().state is State.READY
    hand.fail(ValueError("no"), delay_ms=HOUR_MS)
    assert asyncio.run(later.arun_now())
    assert hand.take().id == later.id
    assert app.engine.check() == []


def test_a_job_moves_to_another_queue(app: Windlass, hand: Hand) -> None:
    """With its labels, and while it is scheduled."""
    ready = app.tasks["charge"].using(requires="gpu").enqueue(1)
    later = app.tasks["charge"].using(run_after="1h").enqueue(2)
    assert ready.move("bulk")
    assert asyncio.run(later.amove("bulk"))
    assert (ready.info().queue, ready.info().requires) == ("bulk", ("gpu",))
    assert (later.info().queue, later.info().state) == ("bulk", State.SCHEDULED)
    assert app.queue("bulk").info().jobs == {State.READY: 1, State.SCHEDULED: 1}
    assert app.queue("default").info().jobs == {}
    with pytest.raises(ValueError, match="found 'a b'"):
        later.move("a b")
    for change in (app.job(UNKNOWN).run_now, lambda: app.job(UNKNOWN).move("bulk")):
        with pytest.raises(JobNotFound):
            change()
    assert app.engine.check() == []


def after_first_step(app: Windlass, steps: Steps[bool], meanwhile: Callable[[], object]) -> bool:
    """The result of these steps, when something happens after the first one."""
    answer = next(steps).run(app)
    meanwhile()
    with suppress(StopIteration):
        while True:
            answer = steps.send(answer).run(app)
    return bool(answer is ChangeCode.DONE)


def test_a_job_that_changes_meanwhile_is_read_again(app: Windlass, hand: Hand) -> None:
    task = app.tasks["charge"]
    job = task.using(run_after="1h").enqueue(1)
    assert after_first_step(app, app.jobs.editing(job.id, [2], {}), job.run_now)
    assert after_first_step(app, app.jobs.moving(job.id, "bulk"), lambda: job.move("mail"))
    assert (job.info().queue, job.info().state) == ("bulk", State.READY)
    assert not after_first_step(app, app.jobs.moving(job.id, "mail"), hand.take)
    assert job.info().queue == "bulk"
    other, claims = task.enqueue(3), list[Claim]()
    steps = app.jobs.editing(other.id, [4], {})
    assert not after_first_step(app, steps, lambda: claims.append(hand.take()))
    assert b'"args":[3]' in claims[0].payload


def test_an_edit_keeps_the_headers_of_a_call_that_replaced_another(app: Windlass) -> None:
    """A put that replaces the call of a unique job leaves its state as it was."""
    task = app.task(name="latest", unique=Unique(on_conflict="replace"))(charge)
    job = task.using(headers={"by": "ann"}).enqueue(1)

    def replace() -> None:
        assert task.using(headers={"by": "bob"}).enqueue(1).id == job.id

    assert after_first_step(app, app.jobs.editing(job.id, [2], {}), replace)
    info = job.info()
    assert (info.state, info.headers) == (State.READY, {"by": "bob"})


def test_an_edit_is_checked(app: Windlass, hand: Hand) -> None:
    job, strange = app.tasks["charge"].enqueue(1), app.task_named("chargee").enqueue(1)
    for one in (job, strange):
        one.cancel()
    with pytest.raises(TypeError, match="missing a required argument"):
        job.edit()
    with pytest.raises(EncodeError):
        job.edit(object())
    with pytest.raises(InvalidTask, match=r"no task chargee.* Did you mean charge\?"):
        strange.edit(2)
    with pytest.raises(JobNotFound):
        app.job(UNKNOWN).edit(2)
    assert {job.info().state, strange.info().state} == {State.CANCELLED}


def test_a_taken_key_keeps_a_job_from_being_edited(app: Windlass) -> None:
    task = app.task(name="once", unique=Unique())(charge)
    job = task.enqueue(1)
    job.cancel()
    other = task.enqueue(1)
    with pytest.raises(DuplicateJob, match=other.id):
        job.edit(2)
    assert job.info().state is State.CANCELLED
