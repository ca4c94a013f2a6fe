"""Jobs: read, list, explain, wait for the result, cancel and retry them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from windlass.access_tokens import RIGHTS, Right
from windlass.calls.json_calls import result_as_json
from windlass.core.durations import instant_ms
from windlass.core.states import Reason, State
from windlass.engine.contract import CancelCode, Engine, Filter, JobRecord, Page, is_chosen
from windlass.errors import DuplicateJob, JobNotFound
from windlass.http.access import unauthenticated
from windlass.http.problems import Problem, ProblemType, invalid
from windlass.http.resources.fields import (
    Fingerprint,
    Instant,
    JobId,
    PageLimit,
    PlainName,
    QueueName,
    Release,
)
from windlass.http.resources.job_view import (
    JobAnswer,
    JobError,
    JobSummary,
    describe_error,
    describe_job,
    summarize,
)
from windlass.http.resources.scope import (
    check_job,
    find_job,
    no_such_job,
    require_named_queue,
    shown_duplicate,
)
from windlass.http.resources.waiting_requests import WaitingRequests
from windlass.http.resources.why_view import WhyAnswer, describe_why
from windlass.http.routes import JOB_READERS, OPERATORS, VIEWERS, ApiRequest, route
from windlass.job import latest_error
from windlass.twins import arun

#: The longest wait for a result, in seconds.
MAX_WAIT_S: Final = 20


class JobPath(msgspec.Struct, frozen=True, kw_only=True):
    id: JobId


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: State | None = None
    task: PlainName | None = None
    queue: QueueName | None = None
    since: Instant | None = None  # enqueued at this instant or later
    until: Instant | None = None  # enqueued before this instant
    fingerprint: Fingerprint | None = None  # only dead jobs with this fingerprint
    release: Release | None = None  # only jobs that died in this release
    #: Only the job that holds this unique key of the task.
    key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    cursor: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None
    limit: PageLimit = 50


class ResultQuery(msgspec.Struct, frozen=True, kw_only=True):
    #: Wait for the end of the job for at most this long.
    wait_s: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 0.0


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a list. A page may be short, or even empty, and still have a cursor."""

    jobs: tuple[JobSummary, ...]
    cursor: str | None  # of the next page; null at the end


class ResultAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a job; only its state before it has ended."""

    id: str
    state: State
    reason: Reason | None  # why it ended as dead or cancelled
    result: msgspec.Raw | None  # null also for a job without a result
    error: JobError | None  # of a dead job
    problem: str | None  # why there is no result: it has expired, or cannot be shown


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was cancelled, or will be: a running job ends as cancelled unless it succeeds."""

    id: str
    outcome: CancelCode


class RetryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is ready again."""

    id: str
    state: State


@route("GET", "/v1/jobs", roles=VIEWERS)
async def list_jobs(call: ApiRequest, query: JobQuery) -> JobPage:
    """List jobs, state by state.

    Running jobs come first, then ready ones in the order in which they start, then scheduled and
    retrying ones by due time, then dead, cancelled and succeeded ones, each the latest first. A
    page reads a bounded number of jobs: with a filter that few jobs match it may be empty, and its
    cursor continues. By fingerprint, or by the unique key of a task, an index finds the jobs."""
    require_named_queue(call.principal, query.queue)
    if query.key is not None and query.task is None:
        raise invalid("query.key", "expected a task too: a unique key belongs to a task")
    wanted = Filter(
        state=query.state,
        task=query.task,
        queue=query.queue,
        since_ms=None if query.since is None else instant_ms(query.since, name="since"),
        until_ms=None if query.until is None else instant_ms(query.until, name="until"),
        fingerprint=query.fingerprint,
        release=query.release,
    )
    engine = call.gateway.app.engine
    if query.key is not None:
        holder = await call.gateway.call(_find_holder, engine, wanted, query.key)
        return JobPage(jobs=tuple(map(summarize, holder)), cursor=None)
    page: Page = await call.gateway.call(engine.find, wanted, query.cursor, query.limit)
    return JobPage(jobs=tuple(map(summarize, page.records)), cursor=page.cursor)


@route("GET", "/v1/jobs/{id}", roles=JOB_READERS)
async def read_job(call: ApiRequest, path: JobPath) -> JobAnswer:
    """Read a job: state, times, arguments, history, progress and log.

    Arguments and headers are redacted by name."""
    record = await find_job(call, path.id)
    return await call.gateway.call(describe_job, call.gateway.app, record)


@route("GET", "/v1/jobs/{id}/why", roles=JOB_READERS)
async def explain_job(call: ApiRequest, path: JobPath) -> WhyAnswer:
    """Read why a job does not run.

    Lists what holds the job, in the order in which to resolve it: a sentence and a command each. A
    job that runs or has ended says so. The place in line is exact up to 500 jobs ahead. Who has
    paused a queue is for callers that may read the audit trail: not for producers, nor for callers
    for some queues."""
    await check_job(call, path.id)
    found = await call.gateway.call(call.gateway.app.jobs.why, path.id)
    may_read_audit = call.principal.role in RIGHTS[Right.READ_AUDIT]
    return describe_why(found, shows_actors=may_read_audit and call.principal.sees_all)


@route("GET", "/v1/jobs/{id}/result", roles=JOB_READERS)
async def read_result(call: ApiRequest, path: JobPath, query: ResultQuery) -> ResultAnswer:
    """Read the result of a job, and wait for it if it has not ended.

    The answer comes when the job ends, and at the latest after `wait_s`. Before its end only the
    state is known: repeat the request. The result is not redacted."""
    record = await find_job(call, path.id)
    if query.wait_s and not record.state.is_final:
        waiting = call.gateway.part(WaitingRequests)
        await waiting.wait(call, _until_ended(call, path.id, query.wait_s))
        if not await call.is_admitted():  # its token was revoked meanwhile
            raise unauthenticated(call.headers)
        record = await find_job(call, path.id)
    return await call.gateway.call(_describe_result, call, record)


def _find_holder(engine: Engine, wanted: Filter, key: str) -> list[JobRecord]:
    """Look a unique key up, which leads to at most one job."""
    (id,) = engine.holders([(wanted.task or "", key)])
    found = [] if id is None else engine.get([id])
    return [one for one in found if one is not None and is_chosen(one, wanted)]


async def _until_ended(call: ApiRequest, id: str, wait_s: float) -> None:
    app = call.gateway.app
    try:
        await arun(app, app.job(id).ending(wait_s))
    except (TimeoutError, JobNotFound):
        return


def _describe_result(call: ApiRequest, record: JobRecord) -> ResultAnswer:
    app = call.gateway.app
    shown = result_as_json(app, record)
    problem = shown.problem or None
    if record.state is State.SUCCEEDED and record.result is None:
        problem = "the result is not stored any more"
    error = None
    if record.state is State.DEAD:
        error = latest_error(app.packing.reveal_failures(record))
    return ResultAnswer(
        id=record.id,
        state=record.state,
        reason=record.reason,
        result=shown.result,
        error=describe_error(error),
        problem=problem,
    )


@route("POST", "/v1/jobs/{id}/cancel", roles=OPERATORS, problems=[ProblemType.CONFLICT])
async def cancel_job(call: ApiRequest, path: JobPath) -> CancelAnswer:
    """Keep a job from running, or from running again.

    A waiting job is cancelled at once. The worker interrupts a running job, which ends as cancelled
    unless it succeeds."""
    await check_job(call, path.id)
    (code,) = await call.gateway.call(call.gateway.app.engine.cancel, [path.id])
    if code is CancelCode.UNKNOWN:
        raise no_such_job(path.id)
    if code is CancelCode.FINAL:
        raise Problem(ProblemType.CONFLICT, f"Job {path.id} has already ended.")
    return CancelAnswer(id=path.id, outcome=code)


@route(
    "POST",
    "/v1/jobs/{id}/retry",
    roles=OPERATORS,
    problems=[ProblemType.CONFLICT, ProblemType.DUPLICATE],
)
async def retry_job(call: ApiRequest, path: JobPath) -> RetryAnswer:
    """Make a dead or cancelled job ready again, with all its attempts.

    The job keeps its history."""
    await check_job(call, path.id)
    job = call.gateway.app.job(path.id)
    try:
        is_ready = await call.gateway.call(job.retry)
    except JobNotFound:
        raise no_such_job(path.id) from None
    except DuplicateJob as error:
        raise await shown_duplicate(call, error) from None
    if not is_ready:
        raise Problem(
            ProblemType.CONFLICT,
            f"Job {path.id} is neither dead nor cancelled: only such jobs can be retried.",
        )
    return RetryAnswer(id=path.id, state=State.READY)
