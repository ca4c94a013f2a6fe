"""Store encoded calls as jobs and return their handles.

1. `store` and `astore` put one job and return its handle or raise.
2. `store_many` and `astore_many` do so for many jobs, a chunk at a time, inside the middleware of
   the app.

If a queue is full, the job is put into another partition or retried, as `when_full` says.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from windlass.client.queue_full import Attempts
from windlass.core.queues.labels import queue_of
from windlass.engine.contract import NewJob, Placed, PutCode
from windlass.errors import DuplicateJob, EngineUnavailable, IdempotencyConflict, QueueFull
from windlass.job import Job
from windlass.middleware import EnqueueCall, MiddlewareStack

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.engine.contract import Engine

#: The name of an enqueue in notes on errors.
ENQUEUE: Final = "the enqueue"

_REFUSED: Final = (PutCode.CONFLICT, PutCode.DUPLICATE, PutCode.FULL)


class Prepared(Protocol):
    """An encoded call, made by `windlass.task`."""

    def enqueue_call(self) -> EnqueueCall: ...

    def new_job(self, enqueue_call: EnqueueCall | None = None) -> NewJob: ...


# --------------------------------------------------------------------------------------------- one


def store(app: Windlass, job: NewJob) -> Job[Any]:
    jobs = [job]
    try:
        placed = app.engine.put(jobs)[0]
        if placed.code is not PutCode.CREATED:
            placed = _retry_refused(app, jobs, [placed])[0]
    except EngineUnavailable as error:
        error.add_note(_delivery_note(jobs[0], error))
        raise
    return _to_handle(app, job, placed)


async def astore(app: Windlass, job: NewJob) -> Job[Any]:
    jobs = [job]
    try:
        placed = await _aput(app, jobs)
    except EngineUnavailable as error:
        error.add_note(_delivery_note(jobs[0], error))
        raise
    return _to_handle(app, job, placed)


# -------------------------------------------------------------------------------------------- many


def store_many(app: Windlass, chunks: Iterable[Sequence[Prepared]]) -> list[Job[Any]]:
    handles: list[Job[Any]] = []
    with _note_stored_count(handles):
        for chunk in chunks:
            with _with_middleware(app, chunk) as (jobs, stored):
                first = app.engine.put(jobs)
                with _maybe_stored():
                    placed = _retry_refused(app, jobs, first)
                _collect(app, jobs, placed, handles, stored)
    return handles


async def astore_many(app: Windlass, chunks: Iterable[Sequence[Prepared]]) -> list[Job[Any]]:
    handles: list[Job[Any]] = []
    with _note_stored_count(handles):
        for chunk in chunks:
            with _with_middleware(app, chunk) as (jobs, stored):
                _collect(app, jobs, await _aput_many(app, jobs), handles, stored)
    return handles


@contextmanager
def _with_middleware(
    app: Windlass, chunk: Sequence[Prepared]
) -> Iterator[tuple[list[NewJob], Sequence[EnqueueCall]]]:
    """Enter the middleware for each call of a chunk; yield the jobs and their `EnqueueCall`s."""
    if not app.enqueue_middleware:
        yield [call.new_job() for call in chunk], ()
        return
    enqueue_call = [call.enqueue_call() for call in chunk]
    with ExitStack() as stack:
        for one in enqueue_call:
            stack.enter_context(MiddlewareStack(app.enqueue_middleware, one, ENQUEUE))
        yield (
            [call.new_job(one) for call, one in zip(chunk, enqueue_call, strict=True)],
            enqueue_call,
        )


def _collect(
    app: Windlass,
    jobs: Sequence[NewJob],
    placed: Sequence[Placed],
    handles: list[Job[Any]],
    enqueue_call: Sequence[EnqueueCall],
) -> None:
    pairs = list(enumerate(zip(jobs, placed, strict=True)))
    # Conflicts are raised last: the note on the error must count all stored jobs.
    for at, (job, one) in sorted(pairs, key=lambda pair: pair[1][1].code in _REFUSED):
        handle = _to_handle(app, job, one)
        handles.append(handle)
        if enqueue_call:
            enqueue_call[at].job = handle


@contextmanager
def _note_stored_count(handles: Sequence[object]) -> Iterator[None]:
    """Add a note to an error: how many jobs were stored before it."""
    try:
        yield
    except Exception as error:
        if handles and isinstance(error, EngineUnavailable):
            error.unsent = False
        error.add_note(f"{len(handles)} jobs were enqueued before this.")
        raise


@contextmanager
def _maybe_stored() -> Iterator[None]:
    """Clear `unsent` on errors of the calls after the first: some jobs may already be stored."""
    try:
        yield
    except EngineUnavailable as error:
        error.unsent = False
        raise


# -------------------------------------------------------------------------------- with the engine


def _retry_refused(app: Windlass, jobs: list[NewJob], placed: Sequence[Placed]) -> Sequence[Placed]:
    """Retry the jobs whose queue is full, for as long as the settings allow; return the final
    answers."""
    if app.packing.older_digests:
        placed = [_settle(app, *pair) for pair in zip(jobs, placed, strict=True)]
    if all(one.code is not PutCode.FULL for one in placed):
        return placed
    attempts = Attempts(app.engine, jobs, placed)
    for pause_s in attempts.pauses(app.settings):
        time.sleep(pause_s)
        attempts.note(app.engine.put(attempts.refused()))
    return attempts.placed


async def _aput(app: Windlass, jobs: list[NewJob]) -> Placed:
    batcher, (job,) = app.batcher, jobs
    size = len(job.payload)
    placed = await _asettle(app, job, await batcher.call(_put_all, job, size))
    if placed.code is PutCode.FULL:
        attempts = Attempts(app.engine, jobs, [placed])
        for pause_s in attempts.pauses(app.settings):
            await _sleep(pause_s)
            attempts.note([await batcher.call(_put_all, attempts.refused()[0], size)])
        (placed,) = attempts.placed
    return placed


async def _aput_many(app: Windlass, jobs: list[NewJob]) -> Sequence[Placed]:
    batcher, size = app.batcher, sum(len(job.payload) for job in jobs)
    answers = zip(jobs, await batcher.call(_put_chunks, jobs, size), strict=True)
    with _maybe_stored():
        attempts = Attempts(app.engine, jobs, [await _asettle(app, *pair) for pair in answers])
        for pause_s in attempts.pauses(app.settings):
            await _sleep(pause_s)
            attempts.note(await batcher.call(_put_chunks, attempts.refused(), size))
    return attempts.placed


def _under_older_keys(app: Windlass, job: NewJob, placed: Placed) -> Iterator[NewJob]:
    """A conflicting job with the digests of older secrets: the stored call may be the same one,
    with a digest by an older secret."""
    packing = app.packing
    if placed.code is PutCode.CONFLICT and packing.older_digests:
        call = bytes(packing.unpack_call(job.payload, job.task).call)
        plain = app.task_named(job.task).codec.plain(call)
        for digest in packing.older_digests:
            yield replace(job, fingerprint=digest(plain))


def _settle(app: Windlass, job: NewJob, placed: Placed) -> Placed:
    for other in _under_older_keys(app, job, placed):
        again = app.engine.put([other])[0]
        if again.code is not PutCode.CONFLICT:
            return again
    return placed


async def _asettle(app: Windlass, job: NewJob, placed: Placed) -> Placed:
    for other in _under_older_keys(app, job, placed):
        again = await app.batcher.call(_put_all, other, len(job.payload))
        if again.code is not PutCode.CONFLICT:
            return again
    return placed


def _put_all(engine: Engine, jobs: Sequence[NewJob]) -> Sequence[Placed]:
    return engine.put(jobs)


def _put_chunks(engine: Engine, chunks: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Placed]]:
    first, *others = chunks
    placed = [engine.put(first)]
    with _maybe_stored():
        placed += [engine.put(chunk) for chunk in others]
    return placed


async def _sleep(seconds: float) -> None:
    from asyncio import sleep  # slow to import, and the caller has imported it already

    await sleep(seconds)


# ------------------------------------------------------------------------------------- the verdict


def _to_handle(app: Windlass, job: NewJob, placed: Placed) -> Job[Any]:
    if placed.code is PutCode.CONFLICT:
        raise IdempotencyConflict(job.task, job.idempotency_key or "", placed.id)
    if placed.code is PutCode.DUPLICATE:
        raise DuplicateJob(job.task, placed.id)
    if placed.code is PutCode.FULL:
        settings = app.settings
        waited_ms = settings.enqueue_timeout_ms if settings.when_full == "block" else 0
        raise QueueFull(queue_of(job.queue), job.task, waited_ms / 1000)
    return Job(app, placed.id, job.task, created=placed.code is PutCode.CREATED)


def _delivery_note(job: NewJob, error: EngineUnavailable) -> str:
    if error.unsent:
        return f"Job {job.id} was not stored. The call can be repeated."
    return (
        f"Job {job.id} may or may not have been stored. To repeat the call without running it "
        "twice, enqueue it with using(idempotency_key=...)."
    )
