"""Sessions: heartbeats, claims with a lost reply, and processes that died."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windlass.core.states import Event
from windlass.engine.contract import (
    GONE_SESSION_MS,
    UNKNOWN_NONCE_MS,
    Beat,
    Closed,
    Pulse,
    SessionCommand,
    check_held,
)
from windlass.engine.sql.transaction import JobRow, SqlTransaction, end_mark
from windlass.engine.sql.verbs.upkeep import EMPTY


def beat(tx: SqlTransaction, beats: Sequence[Beat]) -> list[Pulse]:
    check_held(beats)
    tx.note_seen()
    return [_beat(tx, one) for one in beats]


def _beat(tx: SqlTransaction, sign: Beat) -> Pulse:
    known = tx.one("read_command", sign.session)
    gone, command = known or (False, SessionCommand.RUN)
    if gone:
        return Pulse(session=sign.session, alive=False)
    if sign.info:
        tx.run("introduce_session", sign.session, tx.now_ms + tx.options.lease_ms, sign.info)
    elif known is None:
        return Pulse(session=sign.session, alive=True, lost=sign.held or ())
    tx.run("keep_session", sign.session, tx.now_ms + tx.options.lease_ms)
    if sign.nonces is not None:
        _give_back_unknown(tx, sign, sign.nonces)
    return Pulse(
        session=sign.session,
        alive=True,
        cancel=tuple(row[0] for row in tx.rows("list_cancel_requests", sign.session)),
        lost=() if sign.held is None else _compare_held(tx, sign, sign.held),
        command=SessionCommand(command),
    )


def _old_claims(tx: SqlTransaction, session: str) -> list[JobRow]:
    """Load jobs that a session has held so long that the reply to their claim must have arrived."""
    return tx.load("load_unknown_nonces", session, tx.now_ms - UNKNOWN_NONCE_MS, tx.now_ms)


def _give_back_unknown(tx: SqlTransaction, sign: Beat, nonces: Collection[str]) -> None:
    """Release claims that no child knows, because the reply was lost, and so cannot finish."""
    for job in _old_claims(tx, sign.session):
        if job.token is not None and job.token not in nonces and job.token <= sign.newest:
            tx.move(job, Event.RELEASE, started=False)


def _compare_held(tx: SqlTransaction, sign: Beat, held: Sequence[str]) -> tuple[str, ...]:
    """Release jobs that the worker does not have; return the jobs whose claim the worker has
    lost."""
    listed = frozenset(held)
    for job in _old_claims(tx, sign.session):
        if job.id not in listed and job.token is not None and job.token <= sign.newest:
            tx.move(job, Event.RELEASE, started=False)
    lost = {job_id for (job_id,) in tx.rows("not_held", sign.session, tx.array(held))}
    return tuple(job_id for job_id in held if job_id in lost)


def set_command(tx: SqlTransaction, sessions: Sequence[str], command: SessionCommand) -> list[bool]:
    return [_set_command(tx, session, command) for session in sessions]


def _set_command(tx: SqlTransaction, session: str, command: SessionCommand) -> bool:
    return bool(tx.change("command_session", session, str(command)))


def release(tx: SqlTransaction, session: str, nonce: str) -> int:
    tx.run("use_up_nonce", session, tx.now_ms + tx.options.lease_ms, nonce)
    jobs = tx.load("load_held_under", session, nonce)
    for job in jobs:
        job.last_end = end_mark(nonce, Event.RELEASE)
        tx.move(job, Event.RELEASE, started=False)
    return len(jobs)


def close(tx: SqlTransaction, session: str, suspects: Sequence[str], cause: str) -> Closed:
    """End a session: charge a single suspect, or mark several to run alone."""
    event = Event.CRASH if len(set(suspects)) == 1 else Event.SUSPECT
    blamed = released = 0
    for job in _end(tx, session):
        if job.id in suspects:
            tx.move(job, event, error=cause.encode(), suspected=True)
            blamed += 1
        else:
            tx.move(job, Event.RELEASE)  # counted: the job may end unreported again and again
            released += 1
    if event is Event.CRASH:
        return Closed(crashed=blamed, released=released)
    return Closed(suspected=blamed, released=released)


def lose(tx: SqlTransaction, session: str, cause: str) -> int:
    tx.totals["sessions_lost"] += len(tx.rows("read_infos", tx.array([session])))
    jobs = _end(tx, session)
    for job in jobs:
        tx.move(job, Event.LOSE, error=cause.encode())
    return len(jobs)


def _end(tx: SqlTransaction, session: str) -> list[JobRow]:
    """Declare a session dead, and load the jobs that it held. In this order: the last claim of a
    killed process may be about to commit, and no other transaction would take its jobs back."""
    tx.run("end_session", session, tx.now_ms + GONE_SESSION_MS, EMPTY)
    return tx.load("load_held", session, -1)
