"""Sessions: signs of life, claims whose reply was lost, and processes that are gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windlass.core.states import Event
from windlass.engine.contract import UNKNOWN_NONCE_MS, Beat, Closed, Pulse
from windlass.engine.sqlite.claiming import GONE_SESSION_MS
from windlass.engine.sqlite.transaction import JobRow, Transaction


def beat(tx: Transaction, beats: Sequence[Beat]) -> list[Pulse]:
    tx.notice()
    return [_beat(tx, one) for one in beats]


def _beat(tx: Transaction, sign: Beat) -> Pulse:
    known = tx.one("find_session", sign.session)
    if known is None:
        return Pulse(session=sign.session, alive=True)
    if known[1]:
        return Pulse(session=sign.session, alive=False)
    tx.run("keep_session", sign.session, tx.now_ms + tx.options.lease_ms)
    if sign.nonces is not None:
        _give_back_unknown(tx, sign.session, sign.nonces)
    cancel = tuple(row[0] for row in tx.rows("list_cancel_requests", sign.session))
    return Pulse(session=sign.session, alive=True, cancel=cancel)


def _give_back_unknown(tx: Transaction, session: str, nonces: Collection[str]) -> None:
    """A claim whose reply never arrived is known to no child; nobody will ever finish it."""
    for job in tx.load("load_unknown_nonces", session, tx.now_ms - UNKNOWN_NONCE_MS):
        if job.token not in nonces:
            tx.move(job, Event.RELEASE, started=False)


def release(tx: Transaction, session: str, nonce: str) -> int:
    jobs = tx.load("load_held_under", session, nonce)
    for job in jobs:
        job.last_token = nonce
        tx.move(job, Event.RELEASE, started=False)
    return len(jobs)


def close(tx: Transaction, session: str, suspects: Sequence[str], cause: str) -> Closed:
    jobs = tx.load("load_held", session, -1)
    suspected = [job for job in jobs if job.id in suspects]
    innocent = [job for job in jobs if job.id not in suspects]
    blame(tx, suspected, cause)
    for job in innocent:
        tx.move(job, Event.RELEASE, started=False)
    tx.run("end_session", session, tx.now_ms + GONE_SESSION_MS)
    alone = len(suspected) == 1
    return Closed(
        crashed=len(suspected) if alone else 0,
        suspected=0 if alone else len(suspected),
        released=len(innocent),
    )


def blame(tx: Transaction, suspected: Sequence[JobRow], cause: str) -> None:
    """One suspect is the culprit; several have to run alone until it is known which one it is."""
    event = Event.CRASH if len(suspected) == 1 else Event.SUSPECT
    for job in suspected:
        tx.move(job, event, error=cause.encode(), suspected=True)
