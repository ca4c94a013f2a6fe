"""Store encoded calls as jobs and return their handles.

1. `store` and `astore` put one job and return its handle or raise.
2. `store_many` does so for many jobs, a chunk at a time, inside the middleware and the tracing of
   the app.
3. With `using(connection=...)` the jobs are stored in the transaction of the caller (`within`).
4. If a queue is full, other partitions are tried, unless a key binds the job to its partition. With
   `when_full="block"` the job is then retried until `enqueue_timeout`; otherwise it is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from windlass.client.connections.connection import CallerConnection
from windlass.client.job_builder import Chunk
from windlass.client.within import put_within
from windlass.core.queues.labels import queue_of
from windlass.engine.contract import Engine, NewJob, Placed, PutCode
from windlass.errors import DuplicateJob, EngineUnavailable, IdempotencyConflict, QueueFull
from windlass.job import Job
from windlass.middleware import EnqueueCall, MiddlewareStack
from windlass.twins import Pause, Steps, arun, ask, run, verb

if TYPE_CHECKING:
    from windlass.app import Windlass

#: The name of an enqueue in notes on errors.
ENQUEUE: Final = "the enqueue"
#: The largest number of other partitions to try: refused producers must not overload a server with
#: hundreds of partitions.
MOST_PARTITIONS: Final = 7
#: Back-off between tries: first pause, growth, longest pause, in seconds.
FIRST_S: Final = 0.02
GROWTH: Final = 1.5
LONGEST_S: Final = 0.25

Put: TypeAlias = Callable[[list[NewJob]], Steps[Sequence[Placed]]]

_REFUSED: Final = (PutCode.CONFLICT, PutCode.DUPLICATE, PutCode.FULL)
#: The answers after which a job may be put again.
_REPEATED: Final = frozenset({PutCode.CONFLICT, PutCode.FULL})


# --------------------------------------------------------------------------------------------- one


def store(app: Windlass, job: NewJob, connection: CallerConnection | None = None) -> Job[Any]:
    if connection is not None:
        (placed,) = run(app, _put_within(app, connection, [job]))
        return _to_handle(app, job, placed, 0.0, is_pending=True)
    jobs = [job]
    try:
        placed = app.engine.put(jobs)[0]
        if placed.code is not PutCode.CREATED:
            (placed,) = run(app, _retry_refused(app, jobs, [placed]))
    except EngineUnavailable as error:
        error.add_note(_delivery_note(jobs[0], error))
        raise
    return _to_handle(app, job, placed, time.monotonic())


async def astore(
    app: Windlass, job: NewJob, connection: CallerConnection | None = None
) -> Job[Any]:
    if connection is not None:
        (placed,) = await arun(app, _put_within(app, connection, [job]))
        return _to_handle(app, job, placed, 0.0, is_pending=True)
    jobs = [job]
    try:
        placed = await app.batcher.call(_put_each, job, len(job.payload))
        if placed.code is not PutCode.CREATED:
            (placed,) = await arun(app, _retry_refused(app, jobs, [placed]))
    except EngineUnavailable as error:
        error.add_note(_delivery_note(jobs[0], error))
        raise
    return _to_handle(app, job, placed, time.monotonic())


# -------------------------------------------------------------------------------------------- many


def store_many(app: Windlass, chunks: Iterable[Chunk]) -> Steps[list[Job[Any]]]:
    handles: list[Job[Any]] = []
    if app.tracing is None:
        return (yield from _store_chunks(app, chunks, handles))
    with app.tracing.bulk(handles):
        return (yield from _store_chunks(app, chunks, handles))


def _store_chunks(
    app: Windlass, chunks: Iterable[Chunk], handles: list[Job[Any]]
) -> Steps[list[Job[Any]]]:
    with _note_stored_count(handles):
        for chunk in chunks:
            connection = chunk[0][0].connection
            with _with_middleware(app, chunk) as (jobs, stored):
                if connection is not None:
                    placed = yield from _put_within(app, connection, jobs)
                else:
                    placed = yield from _put_all(app, jobs)
                _collect(app, jobs, placed, handles, stored, is_pending=connection is not None)
    return handles


@contextmanager
def _with_middleware(
    app: Windlass, chunk: Chunk
) -> Iterator[tuple[list[NewJob], Sequence[EnqueueCall]]]:
    """Enter the middleware for each call of a chunk; yield the jobs and their `EnqueueCall`s."""
    if not app.enqueue_middleware:
        yield [job for builder, calls in chunk for job in builder.build_all(calls)], ()
        return
    entered = [
        (builder, call, builder.enqueue_call()) for builder, calls in chunk for call in calls
    ]
    with ExitStack() as stack:
        for _, _, one in entered:
            stack.enter_context(MiddlewareStack(app.enqueue_middleware, one, ENQUEUE))
        yield (
            [builder.build(call, one) for builder, call, one in entered],
            [one for _, _, one in entered],
        )


def _collect(
    app: Windlass,
    jobs: Sequence[NewJob],
    placed: Sequence[Placed],
    handles: list[Job[Any]],
    enqueue_call: Sequence[EnqueueCall],
    *,
    is_pending: bool,
) -> None:
    since, refused = time.monotonic(), None
    calls: Sequence[EnqueueCall | None] = enqueue_call or [None] * len(jobs)
    for job, one, call in zip(jobs, placed, calls, strict=True):
        if one.code in _REFUSED:
            refused = refused or (job, one)
            continue
        handle = _to_handle(app, job, one, since, is_pending=is_pending)
        handles.append(handle)
        if call is not None:
            call.job = handle
    # Raised last: the note on the error must count all stored jobs.
    if refused is not None:
        raise _refusal(app, *refused, is_pending=is_pending)


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
    """Clear `unsent` on errors of later calls: earlier calls may have stored some jobs."""
    try:
        yield
    except EngineUnavailable as error:
        error.unsent = False
        raise


# -------------------------------------------------------------------------------- with the engine


def _put(jobs: list[NewJob]) -> Steps[Sequence[Placed]]:
    """Put jobs as one chunk. The batcher joins single jobs of several coroutines."""
    size = sum(map(len, [job.payload for job in jobs]))
    if len(jobs) == 1:
        return [(yield from ask(_put_each, jobs[0], size))]
    return (yield from ask(_put_chunks, jobs, size))


def _put_all(app: Windlass, jobs: list[NewJob]) -> Steps[Sequence[Placed]]:
    """Put jobs, and retry those that a full queue refused."""
    placed = yield from _put(jobs)
    if not _REPEATED.isdisjoint([one.code for one in placed]):
        with _maybe_stored():
            return (yield from _retry_refused(app, jobs, placed))
    return placed


_put_each = verb(Engine.put)


def _put_chunks(engine: Engine, chunks: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Placed]]:
    first, *others = chunks
    placed = [engine.put(first)]
    with _maybe_stored():
        placed += [engine.put(chunk) for chunk in others]
    return placed


def _retry_refused(
    app: Windlass, jobs: list[NewJob], placed: Sequence[Placed]
) -> Steps[Sequence[Placed]]:
    """Retry jobs that a full queue refused, for as long as the settings allow. Returns the final
    answers."""
    answers = yield from _settle_all(app, jobs, placed, _put)
    for pause_s in chain(_partition_by_partition(app.engine, jobs, answers), _in_time(app)):
        full = [at for at, one in enumerate(answers) if one.code is PutCode.FULL]
        if not full:
            break
        yield Pause(pause_s)
        for at in full:  # the id names the partition
            jobs[at] = _in_next_partition(app.engine, jobs[at])
        again = yield from _put([jobs[at] for at in full])
        for at, one in zip(full, again, strict=True):
            answers[at] = one
    return answers


def _put_within(
    app: Windlass, connection: CallerConnection, jobs: list[NewJob]
) -> Steps[Sequence[Placed]]:
    """Put jobs in the transaction of the caller, which must not wait for room in a queue."""
    put = partial(put_within, app, connection)
    return (yield from _settle_all(app, jobs, (yield from put(jobs)), put))


def _settle_all(
    app: Windlass, jobs: Sequence[NewJob], placed: Sequence[Placed], put: Put
) -> Steps[list[Placed]]:
    answers = list(placed)
    for at, job in enumerate(jobs if app.packing.older_digests else ()):
        answers[at] = yield from _settle(app, job, answers[at], put)
    return answers


def _settle(app: Windlass, job: NewJob, placed: Placed, put: Put) -> Steps[Placed]:
    """Put a conflicting job again with the digests of older secrets: the stored job may have the
    same call, with a digest by an older secret."""
    if placed.code is PutCode.CONFLICT:
        packing = app.packing
        call = bytes(packing.unpack_call(job.payload, job.task).call)
        plain = app.task_named(job.task).codec.plain(call)
        for digest in packing.older_digests:
            (again,) = yield from put([replace(job, fingerprint=digest(plain))])
            if again.code is not PutCode.CONFLICT:
                return again
    return placed


# ------------------------------------------------------------------------------------ a full queue


def _partition_by_partition(
    engine: Engine, jobs: Sequence[NewJob], placed: Sequence[Placed]
) -> Iterator[float]:
    """Pauses of 0 s, one for each other partition to try, because its share of the bound may have
    room. None if a key binds the job to its partition."""
    for job, one in zip(jobs, placed, strict=True):
        if one.code is PutCode.FULL and _is_unbound(job):
            return iter([0.0] * min(len(engine.elsewhere(job.id)), MOST_PARTITIONS))
    return iter(())


def _in_next_partition(engine: Engine, job: NewJob) -> NewJob:
    if not _is_unbound(job):
        return job
    return replace(job, id=next(iter(engine.elsewhere(job.id)), job.id))


def _in_time(app: Windlass) -> Iterator[float]:
    """The pauses between tries until `enqueue_timeout`. None with `when_full="reject"`."""
    if app.settings.when_full == "reject":
        return
    end, pause = time.monotonic() + app.settings.enqueue_timeout_ms / 1000, FIRST_S
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * GROWTH, LONGEST_S)


def _is_unbound(job: NewJob) -> bool:
    return job.idempotency_key is None and job.unique is None


# ------------------------------------------------------------------------------------- the verdict


def _to_handle(
    app: Windlass, job: NewJob, placed: Placed, since: float, *, is_pending: bool = False
) -> Job[Any]:
    """The handle on a stored job. `since` is the end of the enqueue. With `is_pending` the job is
    stored once the caller has committed."""
    if placed.code is PutCode.CREATED:
        return Job(app, placed.id, job.task, True, since, is_pending=is_pending)
    if placed.code in _REFUSED:
        raise _refusal(app, job, placed, is_pending=is_pending)
    return Job(app, placed.id, job.task)


def _refusal(app: Windlass, job: NewJob, placed: Placed, *, is_pending: bool) -> Exception:
    if placed.code is PutCode.CONFLICT:
        return IdempotencyConflict(job.task, job.idempotency_key or "", placed.id)
    if placed.code is PutCode.DUPLICATE:
        return DuplicateJob(job.task, placed.id)
    settings = app.settings
    has_waited = settings.when_full == "block" and not is_pending
    waited_ms = settings.enqueue_timeout_ms if has_waited else 0
    return QueueFull(queue_of(job.queue), job.task, waited_ms / 1000)


def _delivery_note(job: NewJob, error: EngineUnavailable) -> str:
    if error.unsent:
        return f"Job {job.id} was not stored. The call can be repeated."
    return (
        f"Job {job.id} may or may not have been stored. To repeat the call without running it "
        "twice, enqueue it with using(idempotency_key=...)."
    )
