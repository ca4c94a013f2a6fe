"""Routes for claims of workers: claim, report, turn, and reports on one job."""

from __future__ import annotations

import msgspec

from windlass.http.problems import Problem, ProblemType, invalid
from windlass.http.resources.fields import JobId
from windlass.http.routes import WORKERS, ApiRequest, route
from windlass.http.worker_protocol.claim_service import ClaimService, WantedClaim
from windlass.http.worker_protocol.messages import (
    AckRequest,
    ClaimRequest,
    ClaimsAnswer,
    FailedReport,
    FailRequest,
    FinishAnswer,
    FinishRequest,
    JobReport,
    ProgressReport,
    ProgressRequest,
    ReleasedReport,
    ReleaseRequest,
    ReportVerdict,
    RetryReport,
    SucceededReport,
    TurnAnswer,
    TurnRequest,
)
from windlass.http.worker_protocol.report_decisions import Reporter


class ClaimPath(msgspec.Struct, frozen=True, kw_only=True):
    id: JobId


@route(
    "POST",
    "/v1/claims",
    roles=WORKERS,
    problems=[ProblemType.SESSION_GONE, ProblemType.DRAINING],
)
async def claim_jobs(call: ApiRequest, body: ClaimRequest) -> ClaimsAnswer:
    """Claim jobs for a session, and wait for one if there is none.

    After an answer was lost, send the same request again, to any instance: the same `nonce`
    returns the same jobs. Use a new one, larger by 1, after each answer. The list is empty after
    `wait_s` without a job."""
    service = call.gateway.part(ClaimService)
    claimed = await service.turn(call, await _wanted(call, body))
    return ClaimsAnswer(claims=claimed.jobs, next_due_s=claimed.next_due_s)


@route("POST", "/v1/claims/finish", roles=WORKERS, problems=[ProblemType.SESSION_GONE])
async def finish_claims(call: ApiRequest, body: FinishRequest) -> FinishAnswer:
    """Report on claimed jobs.

    Each report has its own verdict. A repeated report is harmless, and its verdict is the same."""
    service = call.gateway.part(ClaimService)
    reporter = Reporter(await service.sessions.require(call, body.session), call.principal)
    return FinishAnswer(verdicts=await service.report(body.outcomes, reporter))


@route(
    "POST",
    "/v1/turn",
    roles=WORKERS,
    problems=[ProblemType.SESSION_GONE, ProblemType.DRAINING],
)
async def turn(call: ApiRequest, body: TurnRequest) -> TurnAnswer:
    """Report on claimed jobs and claim more, in one step.

    The reports take effect at once; only the claim waits. After an answer was lost, send the same
    request again, to any instance."""
    service = call.gateway.part(ClaimService)
    claimed = await service.turn(call, await _wanted(call, body), body.outcomes)
    return TurnAnswer(verdicts=claimed.verdicts, claims=claimed.jobs, next_due_s=claimed.next_due_s)


_ONE = (ProblemType.SESSION_GONE, ProblemType.STALE_CLAIM)


@route("POST", "/v1/claims/{id}/ack", roles=WORKERS, status=204, problems=_ONE)
async def ack_claim(call: ApiRequest, path: ClaimPath, body: AckRequest) -> None:
    """Report that a job has succeeded, with its result."""
    report = SucceededReport(id=path.id, token=body.token, result=body.result)
    await _report_one(call, body.session, report)


@route("POST", "/v1/claims/{id}/fail", roles=WORKERS, status=204, problems=_ONE)
async def fail_claim(call: ApiRequest, path: ClaimPath, body: FailRequest) -> None:
    """Report that the attempt of a job has failed.

    The retry policy of the task decides whether the job is tried again, and when."""
    if body.delay_s is None:
        report: JobReport = FailedReport(
            id=path.id, token=body.token, error=body.error, rejected=body.rejected
        )
    elif body.rejected:
        raise invalid("body.delay_s", "a job that is rejected is not tried again: leave it out")
    else:
        report = RetryReport(id=path.id, token=body.token, error=body.error, delay_s=body.delay_s)
    await _report_one(call, body.session, report)


@route("POST", "/v1/claims/{id}/release", roles=WORKERS, status=204, problems=_ONE)
async def release_claim(call: ApiRequest, path: ClaimPath, body: ReleaseRequest) -> None:
    """Give a job back to its queue, without a charge."""
    report = ReleasedReport(id=path.id, token=body.token, started=body.started)
    await _report_one(call, body.session, report)


@route("POST", "/v1/claims/{id}/progress", roles=WORKERS, status=204, problems=_ONE)
async def progress_claim(call: ApiRequest, path: ClaimPath, body: ProgressRequest) -> None:
    """Report the progress of a job that continues."""
    report = ProgressReport(id=path.id, token=body.token, value=body.value, message=body.message)
    await _report_one(call, body.session, report)


async def _wanted(call: ApiRequest, body: ClaimRequest | TurnRequest) -> WantedClaim:
    session = await call.gateway.part(ClaimService).sessions.require(call, body.session)
    return WantedClaim(
        session=session,
        principal=call.principal,
        number=body.nonce,
        limit=body.limit,
        wait_s=body.wait_s,
    )


async def _report_one(call: ApiRequest, session: str, report: JobReport) -> None:
    service = call.gateway.part(ClaimService)
    reporter = Reporter(await service.sessions.require(call, session), call.principal)
    (verdict,) = await service.report((report,), reporter)
    if verdict is ReportVerdict.UNKNOWN:
        raise Problem(ProblemType.NOT_FOUND, f"There is no job {report.id}. Drop its result.")
    if verdict is ReportVerdict.STALE:
        raise Problem(
            ProblemType.STALE_CLAIM,
            f"Job {report.id} is not claimed with this token any more. Nothing was changed: drop "
            "the result, and do not send it again.",
        )
