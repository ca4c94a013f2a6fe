"""Sessions of remote workers, as every instance of the API reads them.

1. `RemoteSession` is a session with its plan and the nonces of its claims. All of it is stored in
   the engine, as the `info` of the session.
2. `RemoteSessions` begins and ends sessions, and finds the session of a request: it must be alive,
   belong to the caller, and serve only queues of the caller.

A number of the client and the secret of the session give the nonce of a claim. So every instance
makes the same nonce of the same number, a repeated claim finds the jobs of the first one, and no
other client can guess the token of a job.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.core.ids import new_session, release_of
from windlass.core.introduction import HTTP, RemoteIntroduction
from windlass.core.queues.labels import read_labels
from windlass.core.queues.plans import QUEUE_NAME
from windlass.engine.contract import Beat, Plan
from windlass.engine.releases import note_release
from windlass.http.access import Principal
from windlass.http.problems import Problem, ProblemType, invalid
from windlass.http.routes import ApiRequest
from windlass.http.worker_protocol.messages import MAX_TASK_BYTES, SessionRequest
from windlass.http.worker_protocol.session_limit import SessionLimit

if TYPE_CHECKING:
    from windlass.http.gateway import Gateway

#: How long an instance remembers a session, in seconds. The engine still refuses a dead one.
REMEMBERED_S: Final = 5.0
#: An instance remembers at most this many sessions.
MAX_REMEMBERED: Final = 5_000
#: The names of these sessions sort after those of native workers, whose first session logs for all.
MARK: Final = "~"


class RemoteSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the worker protocol."""

    id: str
    info: RemoteIntroduction
    plan: Plan
    alone: Plan  # jobs that must run alone

    @classmethod
    def of(cls, id: str, info: RemoteIntroduction) -> RemoteSession:
        plan = Plan(queues=info.queues, labels=info.labels, tasks=info.tasks)
        alone = msgspec.structs.replace(plan, suspects=True)
        return cls(id=id, info=info, plan=plan, alone=alone)

    def nonce(self, number: int) -> str:
        """The nonce of a claim. Nonces sort as text in the order of the numbers."""
        place = f"{number:08x}"
        digest = hmac.digest(self.info.secret.encode(), place.encode(), "sha256")
        return place + digest[:16].hex()

    def has_made(self, token: str) -> bool:
        """Whether a token is a nonce of this session, and so of one of its claims."""
        return hmac.compare_digest(token, self.nonce(int(token[:8], 16)))


class RemoteSessions:
    """The sessions that an instance serves. Used on the event loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._limit = SessionLimit(gateway.app, gateway.options.max_sessions)
        self._remembered: OrderedDict[str, tuple[float, RemoteSession]] = OrderedDict()

    async def begin(self, request: SessionRequest, principal: Principal) -> RemoteSession:
        """Store a new session in the engine."""
        info = RemoteIntroduction(
            host=request.name,
            kind=HTTP,
            tasks=_tasks_of(request),
            queues=_queues_for(request, principal),
            labels=read_labels(request.labels, most=len(request.labels)),
            slots=request.slots,
            version=request.version,
            started_ms=time.time_ns() // 1_000_000,
            lease_ms=self._gateway.app.settings.lease_ms,
            principal=principal.name,
            secret=secrets.token_hex(32),
        )
        session = RemoteSession.of(f"{MARK}{new_session(request.name, 0, request.release)}", info)
        await self._gateway.call_for_worker(self._introduce, session)
        self._remember(session)
        return session

    async def require(self, call: ApiRequest, id: str) -> RemoteSession:
        """Return a live session of the caller."""
        session = await self.find(call, id)
        if session is None:
            raise session_gone(id)
        return session

    async def find(self, call: ApiRequest, id: str) -> RemoteSession | None:
        """The same, or None if the session has ended. A session of another caller is refused."""
        session = self._recall(id)
        if session is None:
            session = await self._gateway.call_for_worker(self._read, id)
            if session is None:
                return None
            self._remember(session)
        _check_owner(session, call.principal)
        return session

    async def end(self, session: RemoteSession) -> None:
        """End a session. Its jobs go back to their queues, without a charge."""
        self.forget(session.id)
        await self._gateway.call_for_worker(self._close, session)

    def lose(self, id: str) -> None:
        """End a session that has expired in all partitions of the engine: some of them may not have
        noticed it yet, and would still find the session. Called by a thread of the gateway."""
        self._gateway.app.engine.lose(id, "its lease has expired")

    def forget(self, id: str) -> None:
        self._remembered.pop(id, None)

    def _close(self, session: RemoteSession) -> None:
        """End a session. Called by a thread of the gateway: the limit may wait for a count."""
        self._gateway.app.engine.close(session.id, (), "ended by its worker")
        self._limit.give_back(session.info.principal)

    def _introduce(self, session: RemoteSession) -> None:
        self._limit.take(session.info.principal)
        engine = self._gateway.app.engine
        engine.beat([Beat(session=session.id, info=session.info.pack())])
        if (release := release_of(session.id)) is not None:
            note_release(engine, release)

    def _read(self, id: str) -> RemoteSession | None:
        (packed,) = self._gateway.app.engine.infos([id])
        info = RemoteIntroduction.unpack(packed or b"")
        return RemoteSession.of(id, info) if info.kind == HTTP and info.secret else None

    def _recall(self, id: str) -> RemoteSession | None:
        until, session = self._remembered.get(id, (0.0, None))
        return session if time.monotonic() < until else None

    def _remember(self, session: RemoteSession) -> None:
        self._remembered.pop(session.id, None)
        self._remembered[session.id] = (time.monotonic() + REMEMBERED_S, session)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)


def session_gone(id: str) -> Problem:
    return Problem(
        ProblemType.SESSION_GONE,
        f"The session {id} has ended: it was closed, or sent no heartbeat in time. Drop all jobs "
        "of the session, and begin a new one.",
    )


def _tasks_of(request: SessionRequest) -> tuple[str, ...]:
    tasks = tuple(dict.fromkeys(request.tasks))
    size = sum(len(task.encode()) for task in tasks)
    if size > MAX_TASK_BYTES:
        raise invalid(
            "body.tasks",
            f"expected names with at most {MAX_TASK_BYTES:,} bytes in total, found {size:,}: begin "
            "several sessions with a part of the tasks each",
        )
    return tasks


def _queues_for(request: SessionRequest, principal: Principal) -> tuple[str, ...]:
    """The queues of a new session: those that it names, or else all of the caller."""
    for queue in request.queues:
        principal.require_queue(queue)
    if request.queues or principal.sees_all:
        return tuple(dict.fromkeys(request.queues))
    patterns = [scope for scope in principal.queues if not QUEUE_NAME.fullmatch(scope)]
    if patterns:
        raise invalid(
            "body.queues",
            f"expected the names of queues: the access token of {principal.name} is for "
            f"{', '.join(patterns)}, and jobs cannot be claimed by a pattern",
        )
    return principal.queues


def _check_owner(session: RemoteSession, principal: Principal) -> None:
    if session.info.principal != principal.name:
        raise Problem(
            ProblemType.FORBIDDEN,
            f"The session {session.id} belongs to another caller than {principal.name}. Begin a "
            "session of your own.",
        )
    for queue in session.info.queues:
        principal.require_queue(queue)
    if not session.info.queues and not principal.sees_all:
        raise Problem(
            ProblemType.FORBIDDEN,
            f"The session {session.id} is for all queues, and the access token of "
            f"{principal.name} is not any more. Begin a new session.",
        )
