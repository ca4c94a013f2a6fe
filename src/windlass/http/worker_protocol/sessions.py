"""Routes for the sessions of workers: begin, heartbeat, end.

A gateway never sends a heartbeat on its own: a remote worker that falls silent loses its jobs.
"""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.engine.contract import Beat, SessionCommand
from windlass.http.problems import ProblemType
from windlass.http.routes import WORKERS, ApiRequest, route
from windlass.http.worker_protocol.claim_service import ClaimService
from windlass.http.worker_protocol.messages import (
    BeatAnswer,
    BeatRequest,
    SessionId,
    SessionRequest,
    SessionStarted,
    SessionState,
)
from windlass.http.worker_protocol.remote_sessions import session_gone

#: A worker sends this many heartbeats in one lease.
BEATS: Final = 3

_STATES: Final = {
    SessionCommand.RUN: SessionState.OK,
    SessionCommand.QUIET: SessionState.QUIET,
    SessionCommand.STOP: SessionState.STOP,
}


class RemoteSessionPath(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId


@route("POST", "/v1/sessions", roles=WORKERS, status=201)
async def begin_session(call: ApiRequest, body: SessionRequest) -> SessionStarted:
    """Begin the session of a worker.

    The session holds the jobs that the worker claims. It serves the named tasks and queues, or
    every queue that the access token is for. Send a heartbeat every `beat_s`: after `lease_s`
    without one, the session ends and its jobs go to other workers."""
    service = call.gateway.part(ClaimService)
    session = await service.sessions.begin(body, call.principal)
    if call.principal.sees_all:
        await call.gateway.call_for_worker(service.adoption.adopt, session.info.tasks)
    lease_s = session.info.lease_ms / 1000
    return SessionStarted(session=session.id, lease_s=lease_s, beat_s=lease_s / BEATS)


@route("POST", "/v1/sessions/{session}/beat", roles=WORKERS, problems=[ProblemType.SESSION_GONE])
async def beat_session(call: ApiRequest, path: RemoteSessionPath, body: BeatRequest) -> BeatAnswer:
    """Send a heartbeat, with the ids of all jobs that the worker has.

    The answer names jobs that the worker must drop, and jobs to cancel. Report a cancelled job as
    released or failed; a success still counts. A job that the heartbeat does not list goes back to
    its queue if its claim is not later than the claim `answered`, and older than 10 s: the answer
    to its claim was lost. So a heartbeat that arrives late does no harm."""
    service, engine = call.gateway.part(ClaimService), call.gateway.app.engine
    session = await service.sessions.require(call, path.session)
    newest = session.nonce(body.answered) if body.answered else ""
    beat = Beat(session=session.id, held=tuple(dict.fromkeys(body.running)), newest=newest)
    (pulse,) = await call.gateway.call_for_worker(engine.beat, [beat])
    if not pulse.alive:
        service.sessions.forget(session.id)
        await call.gateway.call_for_worker(service.sessions.lose, session.id)
        raise session_gone(session.id)
    return BeatAnswer(state=_STATES[pulse.command], cancel=pulse.cancel, lost=pulse.lost)


@route("DELETE", "/v1/sessions/{session}", roles=WORKERS, status=204)
async def end_session(call: ApiRequest, path: RemoteSessionPath) -> None:
    """End a session. Its jobs go back to their queues, without a charge.

    Ending a session that has ended is harmless."""
    sessions = call.gateway.part(ClaimService).sessions
    session = await sessions.find(call, path.session)
    if session is not None:
        await sessions.end(session)
