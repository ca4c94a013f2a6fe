"""A sandbox runs jobs like a worker, when the test drains and at the time of the test's clock."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from windlass import (
    Context,
    Cron,
    EndlessDrain,
    EngineError,
    Every,
    JobEvent,
    JobFailed,
    Reason,
    Reject,
    Retry,
    RetryLater,
    Snooze,
    State,
    Tasks,
    TimedOut,
    Unique,
    Windlass,
    current_context,
)
from windlass.engine.contract import Beat, Plan
from windlass.testing import Sandbox
from windlass.testing.contract.world import claim_jobs
from windlass.testing.sandbox import START

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


# ----------------------------------------------------------------------------------------- binding


def test_jobs_of_the_app_are_in_the_sandbox_and_nowhere_else(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        task = app.task(name="nothing")(nothing)
        before = task.enqueue()
        with Sandbox(app) as box:
            inside = task.enqueue()
            assert [job.id for job in box.jobs()] == [inside.id]
        after = task.enqueue()
        found = app.engine.get([before.id, inside.id, after.id])
        assert [record is not None for record in found] == [True, False, True]


def test_jobs_that_were_enqueued_together_are_seen_in_their_order(app: Windlass) -> None:
    task = app.task(name="nothing")(nothing)
    with Sandbox(app) as box:
        ids = [job.id for job in task.enqueue_many([()] * 20)]
        assert [job.id for job in box.jobs()] == ids


def nothing() -> None:
    """A task that does nothing."""


def test_an_app_that_was_closed_inside_stays_in_the_sandbox(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="nothing")(nothing)
    task.enqueue()
    app.close()
    task.enqueue()
    assert len(box.jobs(task)) == 2


def test_afterwards_the_app_has_its_own_engine_again(app: Windlass) -> None:
    task = app.task(name="nothing")(nothing)
    with Sandbox(app):
        task.enqueue()
    with pytest.raises(EngineError, match="no/such/folder"):
        task.enqueue()


def test_what_a_coroutine_left_on_its_way_ends_in_the_sandbox(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        task = app.task(name="nothing")(nothing)
        with Sandbox(app) as box:
            box.faults.delay("50ms")
            asyncio.run(cut_short(task.aenqueue()))
            asyncio.run(cut_short(task.aenqueue()))  # waits for the one before
        app.close()  # sends what is left
        assert app.engine.stats().totals == {}


@pytest.mark.slow  # the end of a sandbox waits for 2 s
def test_what_comes_after_the_end_ends_there_too(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        task = app.task(name="nothing")(nothing)
        with Sandbox(app) as box:
            box.faults.delay("3s")
            asyncio.run(cut_short(task.aenqueue()))
            asyncio.run(cut_short(task.aenqueue()))
        late = [thread for thread in threading.enumerate() if thread.name == "windlass-io"]
        for thread in late:
            thread.join(10)
        assert late
        assert app.engine.stats().totals == {}


def test_a_result_is_not_waited_for_where_nothing_runs(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="nothing")(nothing)
    job = task.enqueue()
    with pytest.raises(TimeoutError, match=r"call drain\(\)"):
        job.result()
    with pytest.raises(TimeoutError, match=r"call drain\(\)"):
        asyncio.run(job.aresult())
    box.drain()
    assert job.result() is None


def test_a_worker_inside_leaves_the_sandbox_to_the_app(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="nothing")(nothing)
    task.enqueue()
    with app.worker():
        pass
    app.close()
    task.enqueue()
    assert len(box.jobs(task)) == 2


async def cut_short(coroutine: Coroutine[Any, Any, object]) -> None:
    enqueueing = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    enqueueing.cancel()


def test_an_app_is_in_one_sandbox_at_a_time(app: Windlass, box: Sandbox) -> None:
    with pytest.raises(RuntimeError, match="in a sandbox already"), Sandbox(app):
        pass
    with pytest.raises(RuntimeError, match="entered before"), box:
        pass
    assert box.jobs() == []


def test_one_that_was_not_entered_says_so(app: Windlass) -> None:
    with pytest.raises(RuntimeError, match="with Sandbox"):
        Sandbox(app).jobs()


# ----------------------------------------------------------------------------------------- running


def test_arguments_are_encoded_and_results_come_back(app: Windlass, box: Sandbox) -> None:
    @app.task(name="shift")
    def shift(at: datetime, *, by: timedelta) -> datetime:
        return at + by

    job = shift.enqueue(NOON, by=timedelta(hours=1))
    [seen] = box.jobs(shift)
    assert (seen.state, seen.result) == (State.READY, None)
    assert seen.arguments == {"at": NOON, "by": timedelta(hours=1)}
    [ran] = box.drain()
    assert ran.result == job.result(timeout=0) == NOON + timedelta(hours=1)
    assert (ran.id, ran.task, ran.state, ran.attempts) == (job.id, "shift", State.SUCCEEDED, 1)
    assert box.drain() == ()


def test_what_a_job_enqueues_is_run_too(app: Windlass, box: Sandbox) -> None:
    ran: list[int] = []

    @app.task(name="count")
    def count_down(number: int) -> None:
        ran.append(number)
        if number:
            count_down.enqueue(number - 1)

    count_down.enqueue(3)
    drained = box.drain()
    assert ran == [3, 2, 1, 0]
    assert [job.arguments["number"] for job in drained.succeeded] == ran


def test_groups_aliases_and_names_alone(app: Windlass, box: Sandbox) -> None:
    group = Tasks(prefix="billing")

    @group.task(aliases=["pay"])
    def charge(cents: int) -> int:
        return cents

    app.include(group)
    app.task_named("pay").enqueue(3)
    charge.enqueue(5)
    assert [job.arguments for job in box.jobs()] == [{"cents": 3}, {"cents": 5}]
    assert [job.result for job in box.drain()] == [3, 5]
    app.task_named("of.others").enqueue(1, two=2)
    [job] = box.jobs(app.task_named("of.others"))
    assert job.arguments == {"args": [1], "kwargs": {"two": 2}}
    by_name: Any = "of.others"
    with pytest.raises(TypeError, match=r"jobs takes a task, as in jobs\(resize\), found 'of\.oth"):
        box.jobs(by_name)


def test_modules_to_be_included_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Windlass("sqlite:////there/is/no/such/folder/jobs.db", include=["included_tasks"])
    module = ModuleType("included_app")
    module.__dict__["app"] = app
    (tmp_path / "included_tasks.py").write_text(
        "from included_app import app\n\n@app.task(name='included')\ndef included() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "included_app", module)
    monkeypatch.delitem(sys.modules, "included_tasks", raising=False)
    with Sandbox(app) as box:
        app.task_named("included").enqueue()
        assert len(box.drain().succeeded) == 1


def test_jobs_are_told_of_in_the_order_of_their_enqueues(app: Windlass, box: Sandbox) -> None:
    @app.task(name="number")
    def number(value: int) -> None: ...

    for value in range(150):  # more than a page of them, and many in one millisecond
        number.enqueue(value)
    assert [job.arguments["value"] for job in box.jobs(number)] == list(range(150))
    assert [job.arguments["value"] for job in box.drain()] == list(range(150))


def test_plain_functions_run_in_the_calling_thread_without_a_loop(
    app: Windlass, box: Sandbox
) -> None:
    @app.task(name="where")
    def where() -> int:
        assert asyncio.run(asyncio.sleep(0, "a loop of its own")) == "a loop of its own"
        return threading.get_ident()

    where.enqueue()
    [ran] = box.drain()
    assert ran.result == threading.get_ident()


def test_context_variables_do_not_pass_from_one_job_to_the_next(
    app: Windlass, box: Sandbox
) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    @app.task(name="leak")
    def leak() -> str:
        found = variable.get()
        variable.set("set")
        return found

    variable.set("by the test")
    leak.enqueue_many([(), ()])
    assert [job.result for job in box.drain()] == ["unset", "unset"]


def test_lifespan_middleware_context_and_progress(tmp_path: Path) -> None:
    told: list[str] = []

    async def lifespan() -> AsyncIterator[str]:
        told.append("enter")
        yield "state"
        told.append("leave")

    app = Windlass("sqlite:////there/is/no/such/folder/jobs.db", lifespan=lifespan)

    @app.around_run
    def around(ctx: Context) -> Iterator[None]:
        told.append(f"before {ctx.task}")
        yield
        told.append("after")

    @app.task(name="plain", takes_context=True)
    def plain(ctx: Context) -> str:
        ctx.progress(0.5, "half")
        assert current_context() is ctx
        return str(ctx.state)

    @app.task(name="coroutine")
    async def coroutine() -> str:
        await asyncio.sleep(0)
        return str(current_context().state)

    with Sandbox(app) as box:
        plain.enqueue()
        coroutine.enqueue()
        drained = box.drain()
    assert [job.result for job in drained] == ["state", "state"]
    assert drained[0].progress is not None
    assert drained[0].progress.message == "half"
    assert told == ["enter", "before plain", "after", "before coroutine", "after", "leave"]


def test_a_lifespan_that_fails_fails_the_drain() -> None:
    def lifespan() -> Iterator[None]:
        yield
        raise OSError("the pool is gone")

    app = Windlass("sqlite:////there/is/no/such/folder/jobs.db", lifespan=lifespan)
    with Sandbox(app) as box, pytest.raises(OSError, match="the pool is gone"):
        box.drain()


def test_a_task_of_a_process_of_its_own_runs_here(app: Windlass, box: Sandbox) -> None:
    app.task(name="alone", run_in="process")(nothing).enqueue()
    assert len(box.drain().succeeded) == 1


def test_jobs_that_require_labels_run(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="nothing", requires="gpu")(nothing)
    task.using(requires=["large", "x86"]).enqueue()
    task.enqueue()
    assert len(box.drain().succeeded) == 2


def test_a_paused_queue_is_left_alone(app: Windlass, box: Sandbox) -> None:
    app.task(name="nothing", queue="mail")(nothing).enqueue()
    app.queue("mail").pause()
    assert box.drain() == ()
    app.queue("mail").resume()
    assert len(box.drain()) == 1


def test_one_unique_key_is_one_job(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="nothing", unique=Unique())(nothing)
    assert task.enqueue() == task.enqueue()
    assert len(box.drain()) == 1


# ---------------------------------------------------------------------------------------- failures


def test_an_error_is_seen_by_the_test(app: Windlass, box: Sandbox) -> None:
    ran: list[str] = []

    @app.task(name="fail")
    def fail(word: str) -> None:
        ran.append(word)
        raise ValueError(word)

    fail.enqueue_many([("first",), ("second",)])
    with pytest.raises(ValueError, match="first") as raised:
        box.drain()
    assert ran == ["first", "second"]
    notes = "\n".join(raised.value.__notes__)
    assert "of task fail in attempt 1" in notes
    assert "1 more runs failed: ValueError" in notes
    assert [frame.name for frame in raised.traceback][-1] == "fail"


def test_retries_come_when_their_time_has_come(app: Windlass, box: Sandbox) -> None:
    @app.task(name="fail", retry=Retry(3, delays=["1m", "1h"], jitter=0))
    def fail() -> None:
        raise ValueError("always")

    fail.enqueue()
    [job] = box.drain(raise_errors=False).failed
    assert (job.state, job.attempts) == (State.RETRYING, 1)
    assert job.error is not None
    assert (job.error.type, job.error.message) == ("ValueError", "always")
    assert box.drain(raise_errors=False) == ()
    box.advance("1m")
    assert len(box.drain(raise_errors=False)) == 1
    box.advance("59m")
    assert box.drain(raise_errors=False) == ()
    box.advance("1m")
    [job] = box.drain(raise_errors=False).dead
    assert (job.reason, job.attempts) == (Reason.EXHAUSTED, 3)


def test_reject_retry_later_and_snooze(app: Windlass, box: Sandbox) -> None:
    @app.task(name="reject")
    def reject() -> None:
        raise Reject("no such user")

    @app.task(name="later")
    def later() -> None:
        raise RetryLater("5m")

    @app.task(name="snooze", takes_context=True)
    def snooze(ctx: Context) -> None:
        if not box.jobs(snooze)[0].snoozes:
            raise Snooze("1h")

    snooze.enqueue()
    assert [job.state for job in box.drain()] == [State.SCHEDULED]
    reject.enqueue()
    later.enqueue()
    drained = box.drain(raise_errors=False)
    assert [(job.task, job.state) for job in drained] == [
        ("reject", State.DEAD),
        ("later", State.RETRYING),
    ]
    box.advance("1h")
    assert [job.task for job in box.drain(raise_errors=False).succeeded] == ["snooze"]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_time_out_is_kept_by_a_real_clock(app: Windlass, box: Sandbox, kind: str) -> None:
    @app.task(name="plain", timeout="50ms", retry=Retry(1))
    def plain() -> None:
        while True:
            time.sleep(0.001)

    @app.task(name="coroutine", timeout="50ms", retry=Retry(1))
    async def coroutine() -> None:
        await asyncio.Event().wait()

    app.tasks[kind].enqueue()
    with pytest.raises(TimedOut, match="50ms"):
        box.drain()
    assert [job.reason for job in box.jobs()] == [Reason.TIMED_OUT]


def test_a_result_that_cannot_be_stored_is_seen(app: Windlass, box: Sandbox) -> None:
    @app.task(name="odd")
    def odd() -> object:
        return object()

    odd.enqueue()
    with pytest.raises(JobFailed, match="bad_result"):
        box.drain()


def test_who_interrupts_a_test_is_heeded_at_once(app: Windlass, box: Sandbox) -> None:
    @app.task(name="interrupt")
    def interrupt() -> None:
        raise KeyboardInterrupt

    interrupt.enqueue_many([(), ()])
    with pytest.raises(KeyboardInterrupt):
        box.drain(raise_errors=False)
    assert [job.state for job in box.jobs()] == [State.RETRYING, State.READY]


def test_a_drain_ends(app: Windlass, box: Sandbox) -> None:
    @app.task(name="again")
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(EndlessDrain, match="after 20 jobs one of task again"):
        box.drain(limit=20)
    assert [job.state for job in box.jobs()].count(State.SUCCEEDED) == 20
    assert box.jobs()[-1].state is State.READY
    assert box.jobs()[-1].attempts == 0


def test_a_task_cannot_drain(app: Windlass, box: Sandbox) -> None:
    @app.task(name="drain")
    def drain() -> None:
        box.drain()

    drain.enqueue()
    with pytest.raises(RuntimeError, match="is already running"):
        box.drain()


def test_idempotency_keys_are_remembered_for_as_long_as_the_app_says() -> None:
    app = Windlass("sqlite:///:memory:", idempotency_ttl="1h")
    task = app.task(name="nothing")(nothing).using(idempotency_key="key")
    with Sandbox(app) as box:
        first = task.enqueue()
        box.advance("59m")
        assert task.enqueue().id == first.id
        box.advance("2m")
        assert task.enqueue().id != first.id


def test_a_job_of_an_unknown_task_waits_for_one_who_knows_it(app: Windlass, box: Sandbox) -> None:
    other = Windlass("sqlite:///:memory:")
    task = other.task(name="nothing")(nothing)
    with other.replace_engine(app.engine):
        task.enqueue(*())
    assert box.drain() == ()
    [job] = box.jobs()
    assert (job.hold, job.arguments) == ("unroutable", {})
    assert job.held_because == "task nothing has no code in the app of this test"
    app.task(name="nothing")(nothing)
    assert len(box.drain().succeeded) == 1
    with pytest.raises(ValueError, match="not a task of"):
        box.jobs(other.task(name="else")(nothing))


# ------------------------------------------------------------------------------------------- clock


def test_a_job_is_run_when_it_is_due(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="nothing")(nothing)
    task.using(run_after="2h").enqueue()
    task.using(run_after=box.now + timedelta(hours=2)).enqueue()
    box.advance("1h59m")
    assert box.drain() == ()
    box.advance("1m")
    assert len(box.drain()) == 2


def test_the_clock_begins_where_it_is_told_to(app: Windlass) -> None:
    with Sandbox(app, now=NOON) as box:
        assert NOON <= box.now < NOON + timedelta(seconds=10)
        before = box.now
        assert box.advance("3d") - before >= timedelta(days=3)
        app.task(name="nothing")(nothing).enqueue()
        assert before + timedelta(days=3) <= box.jobs()[0].enqueued_at <= box.now
    with pytest.raises(ValueError, match="naive"):
        Sandbox(app, now=datetime(2026, 3, 1))  # noqa: DTZ001  # it is refused


def test_every_sandbox_begins_at_the_same_time(app: Windlass) -> None:
    for _ in range(2):
        with Sandbox(app) as box:
            assert START <= box.now < START + timedelta(seconds=10)


def test_jobs_expire_and_results_are_forgotten(app: Windlass, box: Sandbox) -> None:
    task = app.task(name="nothing", result_ttl="1h")(nothing)
    task.enqueue()
    box.drain()
    late = task.using(run_after="1h", expires="2h").enqueue()
    box.advance("3h")
    assert box.drain() == ()
    assert [(job.id, job.reason) for job in box.jobs()] == [(late.id, Reason.EXPIRED)]


def test_schedules_do_not_fire_unless_they_are_asked_for(app: Windlass, box: Sandbox) -> None:
    app.task(name="tick", schedule=Every("10m"))(nothing)
    app.schedules.save("late", app.tasks["tick"].bind(), Every("10m"))
    box.advance("1d")
    assert box.drain() == ()


def test_schedules_fire(app: Windlass) -> None:
    app.task(name="report", schedule=Cron("0 3 * * *"))(nothing)
    app.task(name="tick", schedule=Every("10m"))(nothing)
    with Sandbox(app, now=NOON, schedules=True) as box:
        for _ in range(6):
            box.advance("10m")
            assert [job.task for job in box.drain()] == ["tick"]
        box.advance("14h")
        assert {job.task for job in box.drain()} == {"report", "tick"}
        box.advance("3d")  # no worker has declared them for longer than a day
        assert {job.task for job in box.drain()} == {"report", "tick"}


def test_a_job_may_move_the_clock(app: Windlass, box: Sandbox) -> None:
    @app.task(name="move")
    def move() -> None:
        box.advance("1d")

    move.enqueue_many([(), ()])
    assert len(box.drain().succeeded) == 2


def test_a_drain_whose_session_was_lost_goes_on_with_another(app: Windlass, box: Sandbox) -> None:
    """Other sessions send heartbeats and this one does not: the next worker gets its job."""
    workers: list[str | None] = []

    @app.task(name="lose")
    def lose() -> None:
        workers.append(box.jobs(lose)[0].worker)
        if len(workers) == 1:
            for _ in range(4):
                box.advance("10s")
                app.engine.beat([Beat(session="another")])
            claim_jobs(app.engine, "another", "nonce", Plan(), 0)

    lose.enqueue()
    assert len(box.drain().succeeded) == 1
    assert len(set(workers)) == 2


# --------------------------------------------------------------------------------------- coroutines


def test_coroutines_run_on_the_loop_of_the_test(app: Windlass, box: Sandbox) -> None:
    @app.task(name="plain")
    def plain() -> bool:
        assert asyncio.run(asyncio.sleep(0, True))
        return threading.current_thread() is threading.main_thread()

    @app.task(name="coroutine")
    async def coroutine() -> int:
        await plain.aenqueue()
        return id(asyncio.get_running_loop())

    async def test() -> int:
        await coroutine.aenqueue()
        first, second = await box.adrain()
        assert first.result == id(asyncio.get_running_loop())
        assert second.result is False
        with pytest.raises(RuntimeError, match=r"await box\.adrain"):
            box.drain()
        return len(box.jobs())

    assert asyncio.run(test()) == 2


def test_a_drain_that_is_cancelled_gives_its_job_back(app: Windlass, box: Sandbox) -> None:
    begun = asyncio.Event()
    left: list[str] = []

    @app.task(name="wait")
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.append("the job")

    async def test() -> None:
        wait.enqueue()
        draining = asyncio.ensure_future(box.adrain())
        await begun.wait()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        assert left == ["the job"]

    asyncio.run(test())
    [job] = box.jobs()
    assert (job.state, job.attempts) == (State.READY, 0)


# ------------------------------------------------------------------------------------------- hooks


def test_hooks_run_after_each_job(app: Windlass, box: Sandbox) -> None:
    seen: list[str] = []

    @app.on_retry
    async def retried(event: JobEvent) -> None:
        await asyncio.sleep(0)
        seen.append(f"retry {event.attempt} {type(event.error).__name__}")

    @app.on_dead
    def died(event: JobEvent) -> None:
        seen.append(f"dead {event.attempt} {event.reason}")

    def succeeded(event: JobEvent) -> None:
        seen.append(f"success {event.args} {event.result}")
        raise ValueError("of a hook")

    @app.task(name="double", on_success=succeeded)
    async def double(number: int, /) -> int:
        seen.append("run")
        return 2 * number

    @app.task(name="fail", retry=Retry(2, delays=[60], jitter=0))
    def fail() -> None:
        raise KeyError

    fail.enqueue()
    double.enqueue(3), double.enqueue(4)
    box.drain(raise_errors=False)
    assert seen == [
        "retry 1 KeyError",
        *("run", "success (3,) 6"),
        *("run", "success (4,) 8"),
    ]
    box.advance(60)
    asyncio.run(box.adrain(raise_errors=False))
    assert seen[-1] == "dead 2 exhausted"


def test_the_error_of_a_hook_is_logged(
    app: Windlass, box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    app.on_success(lambda event: 1 // 0)
    app.task(name="nothing")(nothing).enqueue()
    assert len(box.drain().succeeded) == 1
    assert "of task nothing" in caplog.text
    assert "ZeroDivisionError" in caplog.text
