"""Enqueueing: what is stored, what fails at once, and what an error leaves behind."""

from __future__ import annotations

import asyncio
import fcntl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from windlass import (
    Context,
    EncodeError,
    EngineUnavailable,
    IdempotencyConflict,
    Job,
    PayloadTooLarge,
    Retry,
    State,
    Task,
    Windlass,
)
from windlass.client import enqueue
from windlass.core.ids import new_nonce
from windlass.core.serialization.envelope import unpack
from windlass.engine.contract import NewJob, Placed, Plan
from windlass.task import CHUNK_BYTES
from windlass.testing.contract.world import claim_jobs

USER = UUID("6f2b1f0a-0c7e-4a3e-9d50-0d8a3c1a2b3c")


@pytest.fixture
def charge(app: Windlass) -> Task[..., str]:
    @app.task(name="shop.charge")
    def charge(user: UUID, cents: int = 100) -> str:
        return f"{user} pays {cents}"

    return charge


@pytest.fixture
def puts(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return note_puts(app, monkeypatch)


def note_puts(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that reach the engine."""
    sizes: list[int] = []
    put = app.engine.put

    def noting_put(jobs: list[NewJob]) -> list[Placed]:
        sizes.append(len(jobs))
        return put(jobs)

    monkeypatch.setattr(app.engine, "put", noting_put)
    return sizes


def stored_calls(app: Windlass) -> list[Any]:
    """The arguments of all jobs that are ready, in the order in which they would start."""
    claims = claim_jobs(app.engine, "reader.1.0000", new_nonce(1), Plan(), 10_000).claims
    calls = [(claim.task, unpack(claim.payload, claim.task).call) for claim in claims]
    return [app.tasks[task].codec.decode(bytes(call)) for task, call in calls]


# -------------------------------------------------------------------------------------------- one


def test_an_enqueued_call_is_found_by_others(app: Windlass, charge: Task[..., str]) -> None:
    job = charge.enqueue(USER, cents=250)
    assert job.created
    assert job.task == "shop.charge"
    with Windlass(app.settings.url) as other:
        assert other.job(job.id).info().state is State.READY
    assert stored_calls(app) == [((USER,), {"cents": 250})]


def test_coroutines_enqueue_the_same(app: Windlass, charge: Task[..., str]) -> None:
    job = asyncio.run(charge.aenqueue(USER, cents=250))
    assert job.created
    assert job.info().state is State.READY
    assert stored_calls(app) == [((USER,), {"cents": 250})]


def test_the_context_is_not_part_of_a_call(app: Windlass) -> None:
    @app.task(takes_context=True)
    def load(ctx: Context, path: str) -> None: ...

    load.enqueue("a.csv")
    assert stored_calls(app) == [(("a.csv",), {})]


async def in_coroutine(task: Task[..., Any], *args: Any, **kwargs: Any) -> None:
    await task.aenqueue(*args, **kwargs)


@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "bind"])
def test_wrong_arguments_fail_at_once(app: Windlass, charge: Task[..., str], way: str) -> None:
    def call(*args: Any, **kwargs: Any) -> None:
        if way == "aenqueue":
            asyncio.run(in_coroutine(charge, *args, **kwargs))
        else:
            getattr(charge, way)(*args, **kwargs)

    with pytest.raises(TypeError, match=r"shop\.charge\(\): missing a required argument: 'user'"):
        call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'queue'"):
        call(USER, queue="mail")
    with pytest.raises(EncodeError, match=r"shop\.charge\(cents=\.\.\.\)"):
        call(USER, object())
    assert stored_calls(app) == []


def test_a_call_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path}/a.db", max_payload=200) as app:

        @app.task(name="shop.note")
        def note(text: str) -> None: ...

        note.enqueue("x" * 100)
        with pytest.raises(PayloadTooLarge, match=r"The call of shop\.note takes .* limit is 200"):
            note.enqueue("x" * 200)
        assert app.engine.stats().totals["enqueued"] == 1


def test_a_delayed_call_waits(charge: Task[..., str]) -> None:
    before = datetime.now(UTC)
    info = charge.using(run_after="1h", expires="2h", priority=7, queue="slow").enqueue(USER).info()
    assert info.state is State.SCHEDULED
    assert info.due_at is not None
    assert info.expires_at is not None
    assert timedelta(hours=1) <= info.due_at - before < timedelta(hours=1, seconds=30)
    assert info.expires_at - info.due_at == timedelta(hours=1)
    assert (info.queue, info.priority) == ("slow", 7)


def test_a_call_at_an_instant_waits_for_it(charge: Task[..., str]) -> None:
    instant = datetime(2100, 1, 1, 12, 30, tzinfo=UTC)
    assert charge.using(run_after=instant).enqueue(USER).info().due_at == instant


def test_a_job_stores_only_what_its_caller_chose(app: Windlass) -> None:
    @app.task(retry=Retry(max_attempts=9), result_ttl="1d", timeout="1h")
    def work() -> None: ...

    def chosen(job: Job[None]) -> Any:
        (record,) = app.engine.get([job.id])
        assert record is not None
        return unpack(record.payload, record.task).options

    plain = chosen(work.enqueue())
    assert (plain.retry, plain.result_ttl_ms, plain.timeout_ms) == (None, None, None)
    using = work.using(retry=Retry(max_attempts=2)).using(result_ttl="5s").using(priority=1)
    options = chosen(using.enqueue())
    assert Retry.from_data(options.retry) == Retry(max_attempts=2)
    assert options.result_ttl_ms == 5_000
    assert options.timeout_ms is None
    assert chosen(work.using(timeout="90s").enqueue()).timeout_ms == 90_000


# ----------------------------------------------------------------------------------- idempotency


def test_a_key_gives_one_job(app: Windlass, charge: Task[..., str]) -> None:
    keyed = charge.using(idempotency_key="order-1")
    first, second = keyed.enqueue(USER), keyed.enqueue(USER)
    third = asyncio.run(keyed.aenqueue(USER))
    assert (first.created, second.created, third.created) == (True, False, False)
    assert first == second == third
    assert len(stored_calls(app)) == 1


def test_a_key_with_other_arguments_is_a_conflict(app: Windlass, charge: Task[..., str]) -> None:
    keyed = charge.using(idempotency_key="order-1")
    first = keyed.enqueue(USER, 1)
    with pytest.raises(IdempotencyConflict) as caught:
        keyed.enqueue(USER, 2)
    with pytest.raises(IdempotencyConflict):
        asyncio.run(keyed.aenqueue(USER, 2))
    conflict = caught.value
    assert (conflict.task, conflict.key, conflict.job_id) == ("shop.charge", "order-1", first.id)
    assert len(stored_calls(app)) == 1


def test_a_key_belongs_to_its_task(app: Windlass, charge: Task[..., str]) -> None:
    @app.task
    def other(user: UUID) -> None: ...

    assert charge.using(idempotency_key="k").enqueue(USER).created
    assert other.using(idempotency_key="k").enqueue(USER).created


# ------------------------------------------------------------------------------------------- many


def test_many_calls_are_stored_in_order_and_in_chunks(
    app: Windlass, charge: Task[..., str], puts: list[int]
) -> None:
    jobs = charge.enqueue_many(charge.bind(USER, number) for number in range(1_201))
    assert puts == [500, 500, 201]
    assert len({job.id for job in jobs}) == 1_201
    assert [args[1] for args, _ in stored_calls(app)] == list(range(1_201))
    assert all(job.created for job in jobs)


def test_coroutines_store_many_the_same(
    app: Windlass, charge: Task[..., str], puts: list[int]
) -> None:
    jobs = asyncio.run(charge.aenqueue_many((USER, number) for number in range(501)))
    assert puts == [500, 1]
    assert [args[1] for args, _ in stored_calls(app)] == list(range(501))
    assert [job.info().id for job in jobs] == [job.id for job in jobs]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_chunk_has_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """A call may have more than a chunk; it is stored alone."""
    with Windlass(f"sqlite:///{tmp_path / 'own.db'}", max_payload=10_000_000) as app:
        sizes = note_puts(app, monkeypatch)
        note = app.task(name="note")(take_note)
        texts = ["x" * size for size in [CHUNK_BYTES // 3] * 5 + [CHUNK_BYTES + 1] + [1, 1]]
        calls = [note.bind(text) for text in texts]
        jobs = asyncio.run(note.aenqueue_many(calls)) if is_async else note.enqueue_many(calls)
        assert len(jobs) == len(texts)
        assert sizes == [2, 2, 1, 1, 2]


def take_note(text: str) -> None:
    """Never run."""


def test_no_calls_are_no_jobs(charge: Task[..., str], puts: list[int]) -> None:
    assert charge.enqueue_many([]) == []
    assert puts == []


def test_calls_may_be_tuples_of_arguments(app: Windlass, charge: Task[..., str]) -> None:
    calls: list[Any] = [(USER,), (USER, 7), charge.bind(USER, cents=8)]
    charge.enqueue_many(calls)
    assert stored_calls(app) == [((USER,), {}), ((USER, 7), {}), ((USER,), {"cents": 8})]


def test_a_call_s_own_options_come_first(charge: Task[..., str]) -> None:
    calls = [charge.bind(USER), charge.using(priority=9, run_after="1h").bind(USER)]
    plain, special = charge.using(priority=1, queue="bulk").enqueue_many(calls)
    assert (plain.info().priority, plain.info().queue) == (1, "bulk")
    assert (special.info().priority, special.info().queue) == (9, "bulk")
    assert (plain.info().state, special.info().state) == (State.READY, State.SCHEDULED)


def test_arguments_are_taken_when_a_call_is_bound(app: Windlass) -> None:
    @app.task
    def work(items: list[int]) -> None: ...

    items = [1]
    call = work.bind(items)
    items.append(2)
    work.enqueue_many([call])
    assert stored_calls(app) == [(([1],), {})]


@pytest.mark.parametrize("wrong", ["abc", b"abc", {"user": 1}, 7, None])
def test_what_is_no_list_of_calls_is_refused(charge: Task[..., str], wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"found one {type(wrong).__name__}: put the calls into a"):
        charge.enqueue_many(wrong)
    with pytest.raises(TypeError, match="found one Call: put the calls into a list"):
        charge.enqueue_many(charge.bind(USER))  # type: ignore[call-overload]  # the subject


@pytest.mark.parametrize("wrong", ["abc", {"user": 1}, [USER], USER])
def test_what_is_no_call_is_refused(app: Windlass, charge: Task[..., str], wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"expects calls made by shop\.charge\.bind\(\.\.\.\)"):
        charge.enqueue_many([wrong])
    assert stored_calls(app) == []


def test_a_call_of_another_task_is_refused(app: Windlass, charge: Task[..., str]) -> None:
    @app.task(name="shop.other")
    def other(user: UUID) -> str:
        return ""

    with pytest.raises(TypeError, match=r"of shop\.charge found a call of shop\.other"):
        charge.enqueue_many([other.bind(USER)])


def test_one_key_for_many_calls_is_refused(charge: Task[..., str]) -> None:
    with pytest.raises(TypeError, match="An idempotency key stands for one call"):
        charge.using(idempotency_key="k").enqueue_many([charge.bind(USER)])


def test_keys_of_their_own_work_in_bulk(app: Windlass, charge: Task[..., str]) -> None:
    keyed = [charge.using(idempotency_key=f"k{n % 2}").bind(USER) for n in range(4)]
    assert [job.created for job in charge.enqueue_many(keyed)] == [True, True, False, False]
    assert len(stored_calls(app)) == 2


def test_an_error_tells_how_many_jobs_were_stored_before(
    app: Windlass, charge: Task[..., str]
) -> None:
    def calls() -> Iterator[Any]:
        for number in range(700):
            yield (USER, number)
        yield "oops"

    with pytest.raises(TypeError) as caught:
        charge.enqueue_many(calls())
    assert caught.value.__notes__ == ["500 jobs were enqueued before this."]
    assert len(stored_calls(app)) == 500


def test_a_conflict_leaves_the_others_of_its_chunk_stored(
    app: Windlass, charge: Task[..., str]
) -> None:
    keyed = charge.using(idempotency_key="k")
    with pytest.raises(IdempotencyConflict) as caught:
        charge.enqueue_many([keyed.bind(USER, 1), keyed.bind(USER, 2), charge.bind(USER, 3)])
    assert caught.value.__notes__ == ["2 jobs were enqueued before this."]
    assert [args[1] for args, _ in stored_calls(app)] == [1, 3]


# -------------------------------------------------------------------------------- an engine away


@contextmanager
def writers_locked_out(folder: Path) -> Iterator[None]:
    """What a stopped process that holds the writers' lock does to all others."""
    with (folder / "jobs.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_an_engine_that_does_not_answer_is_an_error_in_time(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path}/jobs.db", enqueue_timeout="300ms") as app:

        @app.task
        def work() -> None: ...

        work.enqueue()
        for attempt in (work.enqueue, lambda: asyncio.run(work.aenqueue())):
            with writers_locked_out(tmp_path):
                begin = time.monotonic()
                with pytest.raises(EngineUnavailable) as caught:
                    attempt()
                assert 0.25 < time.monotonic() - begin < 2
            (note,) = caught.value.__notes__
            assert "was not stored. The call can be repeated" in note
        assert work.enqueue().created
        assert asyncio.run(work.aenqueue()).created


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("stored", [0, 500])
def test_that_nothing_was_stored_is_said_only_of_the_first_of_many(
    app: Windlass,
    charge: Task[..., str],
    monkeypatch: pytest.MonkeyPatch,
    stored: int,
    is_async: bool,
) -> None:
    """Chunks of a long list are calls of their own, and one may be refused after the others."""
    real = app.engine.put

    def put(jobs: Sequence[NewJob]) -> Any:
        if app.engine.stats().totals.get("enqueued", 0) == stored:
            raise EngineUnavailable("full", location="here", unsent=True)
        return real(jobs)

    monkeypatch.setattr(app.engine, "put", put)
    calls = [charge.bind(USER, number) for number in range(600)]
    with pytest.raises(EngineUnavailable) as caught:
        asyncio.run(charge.aenqueue_many(calls)) if is_async else charge.enqueue_many(calls)
    assert caught.value.unsent is (stored == 0)
    assert caught.value.__notes__ == [f"{stored} jobs were enqueued before this."]


def test_that_nothing_was_stored_is_not_said_when_others_share_the_batch(
    app: Windlass, charge: Task[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = app.engine.put

    def put(jobs: Sequence[NewJob]) -> Any:
        if app.engine.stats().totals.get("enqueued"):
            raise EngineUnavailable("full", location="here", unsent=True)
        return real(jobs)

    monkeypatch.setattr(app.engine, "put", put)
    lists = [[charge.bind(USER, number).new_job()] for number in range(2)]
    with pytest.raises(EngineUnavailable) as caught:
        enqueue._put_chunks(app.engine, lists)
    assert not caught.value.unsent


def test_closing_an_app_sends_what_coroutines_handed_over(
    app: Windlass, charge: Task[..., str], tmp_path: Path
) -> None:
    charge.enqueue(USER)

    async def leave_behind() -> None:
        call = asyncio.ensure_future(charge.aenqueue(USER))
        await asyncio.sleep(0)
        assert not call.done()

    with ExitStack() as locked:
        locked.enter_context(writers_locked_out(tmp_path))
        asyncio.run(leave_behind())
        unlock = threading.Timer(0.1, locked.pop_all().close)
        unlock.start()
        app.close()
        assert "windlass-io" not in [thread.name for thread in threading.enumerate()]
        unlock.join()
    with Windlass(app.settings.url) as other:
        assert other.engine.stats().totals["enqueued"] == 2
    assert charge.enqueue(USER).created
