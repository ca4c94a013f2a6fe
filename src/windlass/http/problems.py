"""Problem documents (RFC 9457): every error that the API answers with.

1. `ProblemType` lists all kinds, each with its status and title. The OpenAPI document and the
   reference name them.
2. `Problem` is raised by handlers and becomes the answer.
3. `problem_of` turns errors of windlass into problems. Any other error is a bug and answers 500
   without its text, which may contain arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from windlass.engine.contract.documents import too_many_documents
from windlass.errors import (
    AccessTokenNotFound,
    DuplicateAccessToken,
    DuplicateJob,
    EncodeError,
    EngineError,
    EngineUnavailable,
    IdempotencyConflict,
    InvalidCall,
    InvalidCursor,
    InvalidTask,
    JobNotFound,
    NotDead,
    OperationNotFound,
    OperationRefused,
    PayloadTooLarge,
    QueueFull,
    ScheduleNotFound,
    TooManyOperations,
    WindlassError,
)

PREFIX: Final = "urn:windlass:problem:"
MEDIA_TYPE: Final = "application/problem+json"


class ProblemType(Enum):
    """A kind of problem: its name at the end of `type`, its status and its title."""

    BAD_REQUEST = ("bad-request", 400, "The request cannot be read")
    UNAUTHENTICATED = ("unauthenticated", 401, "An access token is required")
    FORBIDDEN = ("forbidden", 403, "The access token does not allow this")
    CROSS_SITE = ("cross-site", 403, "Requests of other web sites are refused")
    NOT_FOUND = ("not-found", 404, "There is no such resource")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "The resource does not have this method")
    TIMED_OUT = ("request-timeout", 408, "The request took too long to arrive")
    STALE_CLAIM = ("stale-claim", 409, "The job is not claimed with this token any more")
    CONFLICT = ("conflict", 409, "The state of the resource does not allow this")
    DUPLICATE = ("duplicate-job", 409, "Another job holds the unique key")
    SESSION_GONE = ("session-gone", 410, "The session has ended")
    TOO_LARGE = ("too-large", 413, "The request is too large")
    UNSUPPORTED_MEDIA = ("unsupported-media-type", 415, "The body must be JSON")
    WRONG_HOST = ("wrong-host", 421, "This host name is not served here")
    INVALID = ("invalid", 422, "The content of the request is invalid")
    IDEMPOTENCY_CONFLICT = ("idempotency-conflict", 422, "The key belongs to another request")
    TOO_MANY = ("too-many-requests", 429, "Too many requests")
    INTERNAL = ("internal", 500, "The server failed")
    ENGINE_AWAY = ("engine-away", 503, "The engine does not answer")
    DRAINING = ("draining", 503, "This instance is shutting down")
    OVERLOADED = ("overloaded", 503, "This instance has too much to do")
    QUEUE_FULL = ("queue-full", 503, "The queue is full")

    @property
    def uri(self) -> str:
        return PREFIX + self.value[0]

    @property
    def status(self) -> int:
        return self.value[1]

    @property
    def title(self) -> str:
        return self.value[2]


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a request that is invalid."""

    path: str  # such as body.args[0], query.limit or header.idempotency-key
    detail: str


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error, as RFC 9457 defines it."""

    type: str
    title: str
    status: int
    detail: str
    fields: tuple[FieldProblem, ...] = ()


class Problem(Exception):
    """An answer with a problem document."""

    def __init__(
        self,
        kind: ProblemType,
        detail: str,
        *,
        fields: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.fields = tuple(fields)
        self.headers = dict(headers or {})

    @property
    def document(self) -> ProblemDocument:
        return ProblemDocument(
            type=self.kind.uri,
            title=self.kind.title,
            status=self.kind.status,
            detail=str(self),
            fields=self.fields,
        )


#: Errors of windlass that a request causes, the special ones first.
_KINDS: Final[Sequence[tuple[type[WindlassError], ProblemType]]] = (
    (EngineUnavailable, ProblemType.ENGINE_AWAY),
    (IdempotencyConflict, ProblemType.IDEMPOTENCY_CONFLICT),
    (DuplicateJob, ProblemType.DUPLICATE),
    (QueueFull, ProblemType.QUEUE_FULL),
    (PayloadTooLarge, ProblemType.TOO_LARGE),
    (EncodeError, ProblemType.INVALID),
    (InvalidTask, ProblemType.INVALID),
    (JobNotFound, ProblemType.NOT_FOUND),
    (ScheduleNotFound, ProblemType.NOT_FOUND),
    (AccessTokenNotFound, ProblemType.NOT_FOUND),
    (OperationNotFound, ProblemType.NOT_FOUND),
    (TooManyOperations, ProblemType.TOO_MANY),
    (OperationRefused, ProblemType.INVALID),
    (NotDead, ProblemType.CONFLICT),
    (DuplicateAccessToken, ProblemType.CONFLICT),
    (InvalidCall, ProblemType.INVALID),
    (InvalidCursor, ProblemType.INVALID),
    (EngineError, ProblemType.INTERNAL),
)
#: How the error about a full kind of documents begins. It is the one error of an engine that a
#: request causes; the texts of others may tell where the jobs are stored.
_TOO_MANY_DOCUMENTS: Final = str(too_many_documents("\n")).partition("\n")[0]
_RETRY_AFTER: Final = frozenset(
    {ProblemType.ENGINE_AWAY, ProblemType.DRAINING, ProblemType.OVERLOADED, ProblemType.QUEUE_FULL}
)


def problem_of(error: Exception, *, is_read: bool = False) -> Problem:
    """Turn an error into the problem that the client sees. A request that only reads has no effect
    that could be unknown."""
    if isinstance(error, Problem):
        found = error
    else:
        kind = _kind_of(error)
        found = Problem(kind, _detail_of(error, kind, is_read=is_read))
    if found.kind in _RETRY_AFTER:
        found.headers.setdefault("Retry-After", "1")
    return found


def _kind_of(error: Exception) -> ProblemType:
    if isinstance(error, EngineError) and str(error).startswith(_TOO_MANY_DOCUMENTS):
        return ProblemType.CONFLICT  # some access tokens, for example, must be removed
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), ProblemType.INTERNAL)


def _detail_of(error: Exception, kind: ProblemType, *, is_read: bool) -> str:
    """What the client may know. Where the jobs are stored is not for clients."""
    if kind is ProblemType.INTERNAL:
        return "The log of the server has the details."
    if kind is ProblemType.ENGINE_AWAY and is_read:
        return "The engine did not answer in time. Repeat the request after a moment."
    if kind is ProblemType.ENGINE_AWAY:
        return (
            "The engine did not answer in time, so it is unknown whether the request had an "
            "effect. Repeat the same request: with its idempotency key or nonce, that is harmless."
        )
    if hasattr(error, "location"):
        error.location = ""
    return str(error)


def invalid(path: str, detail: str) -> Problem:
    """A problem with one field."""
    return Problem(
        ProblemType.INVALID,
        f"{path}: {detail}.",
        fields=[FieldProblem(path=path, detail=detail)],
    )
