"""Enqueue jobs: one, or up to a thousand.

1. The task checks the arguments by its annotations or its schema. An unknown task is refused.
2. `Idempotency-Key` becomes the idempotency key of the job, and of each job of a bulk with its
   index. So a request that is repeated after a lost answer stores nothing twice.
3. A job carries the name of its caller in a header, and the trace of the request: `traceparent` and
   `tracestate` as they came, or the span of the enqueue if the app is instrumented.

Arguments are checked in threads of the gateway: classes of the app may run any code. Jobs of
several requests share the calls of the engine.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from windlass.app import Windlass
from windlass.calls.json_calls import read_call
from windlass.client.options import HIGHEST_PRIORITY, LOWEST_PRIORITY, CallOptions
from windlass.core.foreign_words import suggest_dotted
from windlass.core.headers import with_trace
from windlass.core.queues.labels import queue_of
from windlass.errors import (
    DuplicateJob,
    EngineUnavailable,
    IdempotencyConflict,
    InvalidCall,
    WindlassError,
)
from windlass.http.access import Principal
from windlass.http.problems import (
    FieldProblem,
    Problem,
    ProblemDocument,
    ProblemType,
    invalid,
    problem_of,
)
from windlass.http.resources.fields import Instant, PlainName, QueueName, Seconds
from windlass.http.resources.scope import foreign_duplicate, may_see_job, shown_duplicate
from windlass.http.routes import PRODUCERS, ApiRequest, Reply, route
from windlass.job import Job
from windlass.task import Call, Task

#: The most jobs of one request.
MAX_BULK: Final = 1_000
#: The most positional arguments of a call, and the most keyword arguments. Each takes a check.
MAX_ARGUMENTS: Final = 1_000
#: Problems that an enqueue can answer with.
_PROBLEMS: Final = (
    ProblemType.IDEMPOTENCY_CONFLICT,
    ProblemType.DUPLICATE,
    ProblemType.QUEUE_FULL,
)
_KEY: Final = re.compile(r"[!-~]{1,128}")
#: The trace of a request, as the W3C defines its headers. Anything else is ignored.
_TRACE_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACE_STATE: Final = re.compile(r"[ -~\t]{1,512}")
#: An argument of a starred parameter, such as numbers[3].
_STARRED: Final = re.compile(r"\w+\[(\d+)\]")

Positional: TypeAlias = Annotated[tuple[msgspec.Raw, ...], Meta(max_length=MAX_ARGUMENTS)]
Keywords: TypeAlias = Annotated[dict[str, msgspec.Raw], Meta(max_length=MAX_ARGUMENTS)]


class JobBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue."""

    task: PlainName
    args: Positional = ()
    kwargs: Keywords = {}
    queue: QueueName | None = None  # without it, the queue of the task
    priority: Annotated[int, Meta(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None
    run_in_s: Seconds | None = None  # start this much later
    run_at: Instant | None = None  # or at this instant
    expires_in_s: Seconds | None = None  # cancel the job if it has not started by then
    headers: dict[str, str] = {}


class BulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to enqueue together."""

    jobs: Annotated[tuple[JobBody, ...], Meta(min_length=1, max_length=MAX_BULK)]


class EnqueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job."""

    id: str
    task: str
    queue: str
    created: bool  # false: an earlier job has the idempotency key or the unique key


class BulkItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one job: stored, or a problem."""

    job: EnqueuedJob | None = None
    problem: ProblemDocument | None = None


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An entry for each job, in the order of the request."""

    jobs: tuple[BulkItem, ...]
    created: int
    refused: int


@route(
    "POST",
    "/v1/jobs",
    roles=PRODUCERS,
    status=201,
    problems=_PROBLEMS,
    takes_idempotency_key=True,
    other_answers={200: EnqueuedJob},
)
async def enqueue_job(call: ApiRequest, body: JobBody) -> EnqueuedJob | Reply:
    """Enqueue a job.

    The task must be one of the app, or declared by a signature or a schema: its arguments are
    checked. 200 with `created: false` means that an earlier job has the idempotency key or the
    unique key. The headers `traceparent` and `tracestate` of the request go into those of the
    job."""
    key, trace = _idempotency_key(call), _trace_headers(call)
    bound = await call.gateway.call(
        _bind, call.gateway.app, call.principal, body, key, "body", trace
    )
    with _traced(call, 1):
        job = await _store(call, bound, key)
    return job if job.created else Reply(200, job)


@route(
    "POST",
    "/v1/jobs/bulk",
    roles=PRODUCERS,
    problems=_PROBLEMS,
    takes_idempotency_key=True,
)
async def enqueue_jobs(call: ApiRequest, body: BulkBody) -> BulkAnswer:
    """Enqueue up to 1,000 jobs.

    All jobs are checked before any is stored: one that is invalid refuses the request. Each job
    then has an answer of its own, because a queue may be full or a key may be taken. With an
    idempotency key, each job has that key and its index. The headers `traceparent` and
    `tracestate` of the request go into those of each job."""
    key, trace = _idempotency_key(call), _trace_headers(call)
    keys = [None if key is None else f"{key}:{at}" for at in range(len(body.jobs))]
    bound = await call.gateway.call(
        _bind_all, call.gateway.app, call.principal, body.jobs, keys, trace
    )
    with _traced(call, len(bound)):
        storing = (_store(call, one, key) for one in bound)
        stored = await asyncio.gather(*storing, return_exceptions=True)
    away = [one for one in stored if isinstance(one, EngineUnavailable)]
    if len(away) == len(stored):
        raise away[0]
    items = tuple(map(_to_item, stored))
    return BulkAnswer(
        jobs=items,
        created=sum(item.job is not None and item.job.created for item in items),
        refused=sum(item.problem is not None for item in items),
    )


def _to_item(stored: EnqueuedJob | BaseException) -> BulkItem:
    if isinstance(stored, EnqueuedJob):
        return BulkItem(job=stored)
    if isinstance(stored, WindlassError | Problem):
        return BulkItem(problem=problem_of(stored).document)
    raise stored


def _idempotency_key(call: ApiRequest) -> str | None:
    key = call.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise invalid("header.idempotency-key", "expected 1 to 128 characters of ASCII")
    return key


# ---------------------------------------------------------------------------------------- tracing


def _trace_headers(call: ApiRequest) -> dict[str, str]:
    """The trace of the request, for the headers of its jobs. Empty if the app is instrumented: then
    the span of the enqueue continues the trace."""
    parent, state = call.headers.get("traceparent", ""), call.headers.get("tracestate", "")
    if call.gateway.app.tracing is not None or not _TRACE_PARENT.fullmatch(parent):
        return {}
    is_valid = _TRACE_STATE.fullmatch(state) is not None
    return {"traceparent": parent, **({"tracestate": state} if is_valid else {})}


def _traced(call: ApiRequest, count: int) -> AbstractContextManager[object]:
    tracing = call.gateway.app.tracing
    return nullcontext() if tracing is None else tracing.request(call.headers, count)


# --------------------------------------------------------------------------------------- checking


def _bind_all(
    app: Windlass,
    principal: Principal,
    bodies: Sequence[JobBody],
    keys: Sequence[str | None],
    trace: Mapping[str, str],
) -> list[Call[Any]]:
    """Check jobs, and encode their arguments. The first one that is invalid refuses all."""
    return [
        _bind(app, principal, body, key, f"body.jobs[{at}]", trace)
        for at, (body, key) in enumerate(zip(bodies, keys, strict=True))
    ]


def _bind(
    app: Windlass,
    principal: Principal,
    body: JobBody,
    key: str | None,
    place: str,
    trace: Mapping[str, str],
) -> Call[Any]:
    task = find_task(app, principal, body.task, f"{place}.task")
    task = _with_options(task, body, key, place).sent_by(principal.name)
    if trace and len(with_trace(task.headers, trace)) > len(task.headers):
        task = task.using(headers=trace)
    principal.require_queue(task.queue)
    check_sent_size(app, task, body.args, body.kwargs, place)
    try:
        args, kwargs = read_call(task, body.args, body.kwargs)
    except InvalidCall as error:
        raise misfit(error, task, body.args, body.kwargs, place) from None
    bound = task.bind(*args, **kwargs)
    try:
        task.builder.pack(bound.encoded)  # too large, with its headers?
    except ValueError as error:  # too many headers
        raise invalid(f"{place}.headers", str(error)) from None
    return bound


def check_sent_size(
    app: Windlass,
    task: Task[..., Any],
    args: Sequence[msgspec.Raw],
    kwargs: Mapping[str, msgspec.Raw],
    place: str,
) -> None:
    """Refuse arguments that are too large as they were sent, before the long check of each."""
    size = sum(memoryview(raw).nbytes for raw in (*args, *kwargs.values()))
    limit = app.settings.max_payload
    if size > limit:
        raise Problem(
            ProblemType.TOO_LARGE,
            f"{place}: the arguments of {task.name} take {size:,} bytes as they were sent, and the "
            f"limit is {limit:,} (the setting max_payload). Store the data elsewhere and pass a "
            "reference to it.",
        )


def find_task(app: Windlass, principal: Principal, name: str, place: str) -> Task[..., Any]:
    """The task of this name, which checks its calls. Suggests only tasks of the caller's queues."""
    task = app.find_task(name)
    if task is None:
        tasks = {**app.known_tasks, **app.remote_tasks}
        known = [name for name, task in tasks.items() if principal.may_use(task.queue)]
        raise invalid(
            place,
            f"there is no task {name}.{suggest_dotted(name, known)} A task of another program must "
            "be declared in the app, by app.task_named with a signature or a schema",
        )
    return task


def _with_options(
    task: Task[..., Any], body: JobBody, key: str | None, place: str
) -> Task[..., Any]:
    if body.run_in_s is not None and body.run_at is not None:
        raise invalid(f"{place}.run_at", "expected run_in_s or run_at, found both")
    options: CallOptions = {}
    if body.queue is not None:
        options["queue"] = body.queue
    if body.priority is not None:
        options["priority"] = body.priority
    if body.headers:
        options["headers"] = body.headers
    if body.expires_in_s is not None:
        options["expires"] = body.expires_in_s
    if key is not None:
        options["idempotency_key"] = key
    run_after = body.run_at if body.run_in_s is None else body.run_in_s
    if run_after is not None:
        options["run_after"] = run_after
    try:
        return task.using(**options)
    except (TypeError, ValueError) as error:
        raise invalid(place, str(error)) from None


def misfit(
    error: InvalidCall,
    task: Task[..., Any],
    args: Sequence[msgspec.Raw],
    kwargs: Mapping[str, msgspec.Raw],
    place: str,
) -> Problem:
    """The problem with arguments that do not fit their task."""
    fields = [
        FieldProblem(
            path=f"{place}{_argument(task, problem.parameter, len(args), kwargs)}"
            f"{problem.path.removeprefix('$')}",
            detail=problem.message,
        )
        for problem in error.problems
    ]
    return Problem(ProblemType.INVALID, f"{error}.", fields=fields)


def _argument(
    task: Task[..., Any], parameter: str, count: int, kwargs: Mapping[str, msgspec.Raw]
) -> str:
    """The place of the argument of a parameter in the body."""
    if parameter in kwargs or not parameter:
        return f".kwargs.{parameter}" if parameter else ""
    signature = task.codecs["json"].signature
    names = [slot.name for slot in signature.positional][:count]
    if parameter in names:
        return f".args[{names.index(parameter)}]"
    starred = _STARRED.fullmatch(parameter)
    if starred is not None:
        return f".args[{len(signature.positional) + int(starred[1])}]"
    return f".kwargs.{parameter}"  # it is missing


# ---------------------------------------------------------------------------------------- storing


async def _store(call: ApiRequest, bound: Call[Any], key: str | None) -> EnqueuedJob:
    """Store a job together with those of other requests."""
    try:
        (job,) = await call.gateway.app.aenqueue_many([bound])
    except DuplicateJob as error:
        raise await shown_duplicate(call, error) from None
    except IdempotencyConflict as error:
        if await may_see_job(call, error.job_id):
            raise
        raise _foreign_key() from None
    queue = bound.task.queue if job.created else await _queue_of_existing(call, job, key)
    return EnqueuedJob(id=job.id, task=bound.task.name, queue=queue, created=job.created)


async def _queue_of_existing(call: ApiRequest, job: Job[Any], key: str | None) -> str:
    """The queue of an earlier job, which the caller must be allowed to know."""
    engine = call.gateway.app.engine
    (record,) = await call.gateway.call(engine.get, [job.id])
    if record is None:
        raise Problem(
            ProblemType.CONFLICT,
            "An earlier job had the key, and was removed. Send the request again.",
        )
    queue = queue_of(record.queue)
    if not call.principal.may_use(queue):
        is_unique = key is None
        if record.unique_key is not None:  # while the job holds it, no other key helps
            (holder,) = await call.gateway.call(engine.holders, [(record.task, record.unique_key)])
            is_unique = is_unique or holder == record.id
        raise foreign_duplicate() if is_unique else _foreign_key()
    return queue


def _foreign_key() -> Problem:
    return Problem(
        ProblemType.IDEMPOTENCY_CONFLICT,
        "The key belongs to a job of a queue that the access token is not for. Send another key.",
    )
