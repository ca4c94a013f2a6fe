"""The messages of the worker protocol: bodies and answers. Their rules are in the OpenAPI document.

1. Sessions: `SessionRequest`, `SessionStarted`, `BeatRequest`, `BeatAnswer`.
2. Claims: `ClaimRequest`, `ClaimsAnswer`, `ClaimedJob`.
3. Reports on claimed jobs, told apart by `outcome`, and the verdict on each.
4. `TurnRequest` reports and claims; the requests at the end report on one job.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from windlass.core.ids import RELEASE
from windlass.core.queues.labels import LABEL, MAX_WORKER_LABELS
from windlass.engine.contract import MAX_HELD_BEAT
from windlass.http.resources.fields import JobId, PlainName, QueueName, Seconds

#: The most jobs that a worker claims or reports with one request.
MAX_CLAIMS: Final = 100
MAX_REPORTS: Final = 500
#: The most bytes of the names of tasks that a session serves: a list of workers reads all of them.
MAX_TASK_BYTES: Final = 16_384
#: The longest long poll, in seconds.
MAX_WAIT_S: Final = 20
#: The largest number of a claim: a nonce of the engine begins with it, in 8 hexadecimal digits.
MAX_NUMBER: Final = 2**32 - 1

#: The end of a text. In Python `$` alone would also match before a line break at the end.
_END: Final = r"$(?!\n)"

SessionId: TypeAlias = Annotated[
    str, Meta(pattern=rf"^[A-Za-z0-9~._@+-]{{1,128}}{_END}", description="A session's id.")
]
ClaimToken: TypeAlias = Annotated[
    str, Meta(pattern=rf"^[0-9a-f]{{40}}{_END}", description="The token of a claimed job.")
]
ClaimNumber: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_NUMBER,
        description="The number of the claim in its session: one more for each new claim. The "
        "same number again returns the same jobs.",
    ),
]
ClaimLimit: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_CLAIMS)]
WaitSeconds: TypeAlias = Annotated[
    float, Meta(ge=0, le=MAX_WAIT_S, description="How long to wait for a job, in seconds.")
]


# ---------------------------------------------------------------------------------------- sessions


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker that begins to work."""

    name: Annotated[str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}}{_END}")]
    tasks: Annotated[
        tuple[PlainName, ...],
        Meta(
            min_length=1,
            max_length=500,
            description=f"Names with at most {MAX_TASK_BYTES:,} bytes in total.",
        ),
    ]
    queues: Annotated[
        tuple[QueueName, ...],
        Meta(max_length=100, description="In strict order; every allowed queue when empty."),
    ] = ()
    labels: Annotated[
        tuple[Annotated[str, Meta(pattern=rf"^{LABEL}{_END}")], ...],
        Meta(max_length=MAX_WORKER_LABELS),
    ] = ()
    slots: Annotated[int, Meta(ge=1, le=MAX_HELD_BEAT, description="Jobs at a time.")] = 1
    version: Annotated[str, Meta(max_length=100)] = ""
    release: Annotated[
        str,
        Meta(
            pattern=rf"^({RELEASE})?{_END}",
            description="The version of the code, which is stored with each attempt.",
        ),
    ] = ""


class SessionStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A session. It ends when it sends no heartbeat for `lease_s`."""

    session: str
    lease_s: float
    beat_s: float  # send a heartbeat this often


class BeatRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A heartbeat. The session keeps the jobs that it lists. Other jobs of claims up to `answered`
    go back to their queue, 10 s after the claim."""

    running: Annotated[tuple[JobId, ...], Meta(max_length=MAX_HELD_BEAT)]
    answered: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_NUMBER,
            description="The number of the newest claim whose answer the worker has. 0 gives no "
            "job back.",
        ),
    ] = 0


class SessionState(StrEnum):
    """What an operator asks of the worker."""

    OK = "ok"  # continue
    QUIET = "quiet"  # finish the running jobs, and claim no more
    STOP = "stop"  # finish the running jobs, and end


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker should know."""

    state: SessionState
    cancel: tuple[str, ...]  # jobs whose cancellation was requested
    lost: tuple[str, ...]  # listed jobs that the session does not hold any more: drop them


# ------------------------------------------------------------------------------------------ claims


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim of jobs."""

    session: SessionId
    nonce: ClaimNumber
    limit: ClaimLimit = 1
    wait_s: WaitSeconds = 0.0


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is leased to a session."""

    id: str
    token: str  # send it with every report on the job
    task: str
    queue: str
    args: list[msgspec.Raw]
    kwargs: dict[str, msgspec.Raw]
    attempt: int  # from 1
    max_attempts: int
    priority: int
    headers: dict[str, str]
    enqueued_at: datetime
    timeout_s: float | None  # how long the job may run; null without a limit
    deadline: datetime | None  # the same as an instant, by the clock of the server
    alone: bool = False  # run nothing else until this job has ended: it may have killed workers


class ClaimsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Claimed jobs, in the order in which they should start."""

    claims: tuple[ClaimedJob, ...]
    next_due_s: float | None  # when the next job is due; 0: claim again now; null if unknown


# ----------------------------------------------------------------------------------------- reports


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error. Long texts are cut in the middle."""

    type: Annotated[str, Meta(min_length=1, max_length=256)]
    message: Annotated[str, Meta(max_length=1_000_000)] = ""
    traceback: Annotated[str, Meta(max_length=1_000_000)] = ""


class _Report(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="outcome"
):
    """A report on a claimed job."""

    id: JobId
    token: ClaimToken


class SucceededReport(_Report, frozen=True, kw_only=True, tag="succeeded"):
    """The job has succeeded."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # null if it is left out


class FailedReport(_Report, frozen=True, kw_only=True, tag="failed"):
    """The attempt has failed. The retry policy of the task decides what follows."""

    error: ErrorReport
    rejected: bool = False  # pointless to repeat: a dead letter now


class RetryReport(_Report, frozen=True, kw_only=True, tag="retry"):
    """The attempt has failed, and the next one has its own delay. Without attempts left, the job
    becomes a dead letter."""

    delay_s: Seconds
    error: ErrorReport


class ReleasedReport(_Report, frozen=True, kw_only=True, tag="released"):
    """The job goes back to its old place, without a charge."""

    started: bool = True  # whether its code has begun


class SnoozedReport(_Report, frozen=True, kw_only=True, tag="snoozed"):
    """The job is to run again later. Not a failure: no attempt is charged."""

    delay_s: Seconds


class ProgressReport(_Report, frozen=True, kw_only=True, tag="progress"):
    """The job continues."""

    value: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1_000)] = ""


JobReport: TypeAlias = (
    SucceededReport | FailedReport | RetryReport | ReleasedReport | SnoozedReport | ProgressReport
)


class ReportVerdict(StrEnum):
    """What became of a report."""

    OK = "ok"  # applied, by this request or by an earlier one
    STALE = "stale"  # the session does not hold the job with this token any more: drop the result
    UNKNOWN = "unknown"  # there is no such job in queues of the caller: drop the result


class FinishRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reports on claimed jobs."""

    session: SessionId
    outcomes: Annotated[tuple[JobReport, ...], Meta(min_length=1, max_length=MAX_REPORTS)]


class FinishAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for each report, in the same order."""

    verdicts: tuple[ReportVerdict, ...]


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reports on claimed jobs, and a claim."""

    session: SessionId
    outcomes: Annotated[tuple[JobReport, ...], Meta(max_length=MAX_REPORTS)] = ()
    nonce: ClaimNumber
    limit: ClaimLimit = 1
    wait_s: WaitSeconds = 0.0


class TurnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for each report, in the same order, and claimed jobs."""

    verdicts: tuple[ReportVerdict, ...]
    claims: tuple[ClaimedJob, ...]
    next_due_s: float | None


# ---------------------------------------------------------------------------- reports on one job


class _OneRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: SessionId
    token: ClaimToken


class AckRequest(_OneRequest, frozen=True, kw_only=True):
    """The job has succeeded."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # null if it is left out


class FailRequest(_OneRequest, frozen=True, kw_only=True):
    """The attempt has failed."""

    error: ErrorReport
    rejected: bool = False  # pointless to repeat: a dead letter now
    delay_s: Seconds | None = None  # until the next attempt, instead of the delay of the policy


class ReleaseRequest(_OneRequest, frozen=True, kw_only=True):
    """The job goes back to its old place."""

    started: bool = True  # whether its code has begun


class ProgressRequest(_OneRequest, frozen=True, kw_only=True):
    """The job continues."""

    value: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1_000)] = ""
