"""Claiming: promote what is due, take back what is lost, then lease what is next in line."""

from __future__ import annotations

from collections import Counter

import apsw
import msgspec

from windlass.core.states import Counters, Event, Hold, Reason, State
from windlass.engine.contract import BITE, Batch, Claim, Plan
from windlass.engine.sqlite.statements import Row, first, rows, sql
from windlass.engine.sqlite.transaction import JobRow, Transaction

#: How long a dead session is remembered, so that its late beats are answered.
GONE_SESSION_MS = 60 * 60 * 1000


def has_work(connection: apsw.Connection, plan: Plan, now_ms: int) -> bool:
    """Whether a claim would change anything. Reads only, and little."""
    due = first(connection, "next_due")
    if due is not None and due <= now_ms:
        return True
    if first(connection, "any_session_to_reap", now_ms):
        return True
    if not plan.queues:
        return bool(first(connection, "any_ready", plan.suspects))
    return any(first(connection, "any_ready_in", name, plan.suspects) for name in plan.queues)


def holds(connection: apsw.Connection, session: str, nonce: str) -> bool:
    """Whether an earlier claim under this nonce still has jobs: then the claim is a repetition."""
    return bool(rows(connection, "list_claims", session, nonce))


def idle_batch(
    connection: apsw.Connection, session: str, plan: Plan, now_ms: int, *, more: bool = False
) -> Batch:
    """The answer when there is nothing to lease."""
    if is_gone(connection, session):
        return Batch(gone=True)
    due = first(connection, "next_due")
    return Batch(
        next_in_ms=0 if more else None if due is None else max(0, due - now_ms),
        suspects=suspects_wait(connection, plan),
    )


def is_gone(connection: apsw.Connection, session: str) -> bool:
    """Whether a session was declared dead; it may have happened a moment ago, by its own claim."""
    known = rows(connection, "find_session", session)
    return bool(known and known[0][1])


def suspects_wait(connection: apsw.Connection, plan: Plan) -> bool:
    queues = {row[0] for row in rows(connection, "list_suspect_queues")}
    return bool(queues.intersection(plan.queues) if plan.queues else queues)


def claim(tx: Transaction, session: str, nonce: str, plan: Plan, limit: int) -> Batch:
    if is_gone(tx.connection, session):
        return Batch(gone=True)
    held = _in_turn(tx.rows("list_claims", session, nonce), plan)
    more = False
    if not held and has_work(tx.connection, plan, tx.now_ms):
        tx.notice()
        more = promote(tx) | reap(tx)
        if not is_gone(tx.connection, session):
            held = _lease(tx, session, nonce, plan, limit)
    idle = idle_batch(tx.connection, session, plan, tx.now_ms, more=more)
    claims = tuple(_to_claim(tx, nonce, row) for row in held)
    return msgspec.structs.replace(idle, claims=claims)


def promote(tx: Transaction) -> bool:
    """Make ready what is due, a bounded number; whether there may be more."""
    jobs = tx.load("load_due", tx.now_ms, BITE)
    for job in jobs:
        if job.hold == Hold.UNROUTABLE:
            offer_again(tx, job)
        else:
            tx.move(job, Event.DUE)
    return len(jobs) == BITE


def offer_again(tx: Transaction, job: JobRow) -> None:
    """End the hold of a job that no worker knew: it is still in its old place."""
    job.hold, job.due_ms = Hold.NONE, None
    tx.save(job)
    tx.made_ready += 1


def reap(tx: Transaction) -> bool:
    """Take back the jobs of silent sessions, a bounded number; whether there may be more.

    The first bite declares the session dead in the same commit, so that it cannot be revived."""
    if tx.now_ms < tx.reap_after_ms:
        return False
    left = BITE
    for (session,) in tx.rows("list_silent_sessions", tx.now_ms):
        tx.run("end_session", session, tx.now_ms + GONE_SESSION_MS)
        jobs = tx.load("load_held", session, left)
        for job in jobs:
            tx.move(job, Event.LOSE, error=b"")
        left -= len(jobs)
        if not left:
            return True
    return False


def _lease(tx: Transaction, session: str, nonce: str, plan: Plan, limit: int) -> list[Row]:
    taken: list[Row] = []
    while len(taken) < limit:
        found = _next_in_line(tx, plan, limit - len(taken))
        fresh = [row for row in found if not _is_expired(tx, row)]
        for row in found:
            if _is_expired(tx, row):
                _expire(tx, row[3])
        tx.connection.executemany(
            sql("take_job"), ((session, nonce, tx.now_ms, row[2]) for row in fresh)
        )
        for queue, number in Counter(row[5] for row in fresh).items():
            tx.count_move(queue, State.READY, State.RUNNING, number)
        taken += [_counted(row) for row in fresh]
        if len(fresh) == len(found):
            break
    if taken:
        tx.run("keep_session", session, tx.now_ms + tx.options.lease_ms)
        tx.made_ready = max(0, tx.made_ready - len(taken))
    return taken


def _next_in_line(tx: Transaction, plan: Plan, limit: int) -> list[Row]:
    if plan.queues:
        found: list[Row] = []
        for queue in dict.fromkeys(plan.queues):
            found += tx.rows("list_ready", queue, plan.suspects, limit - len(found))
            if len(found) == limit:
                break
        return found
    queues = [queue for (queue,) in tx.rows("list_ready_queues")]
    merged = [row for queue in queues for row in tx.rows("list_ready", queue, plan.suspects, limit)]
    merged.sort()  # rank and place come first, and places never repeat
    return merged[:limit]


def _in_turn(held: list[Row], plan: Plan) -> list[Row]:
    """Claims in the order in which they were given: queue by queue where the plan names them."""
    precedence = {queue: number for number, queue in enumerate(reversed(plan.queues))}
    return sorted(held, key=lambda row: (-precedence.get(row[5], -1), row[0], row[1]))


def _is_expired(tx: Transaction, row: Row) -> bool:
    expires_ms: int | None = row[14]
    return expires_ms is not None and expires_ms <= tx.now_ms


def _expire(tx: Transaction, job_id: str) -> None:
    job = tx.job(job_id)
    assert job is not None, "it was read in this transaction"
    tx.move(job, Event.EXPIRE, reason=Reason.EXPIRED)


def _counted(row: Row) -> Row:
    """The row as it is after the claim: one attempt and one start more."""
    return (*row[:6], row[6] + 1, row[7] + 1, *row[8:])


def _to_claim(tx: Transaction, nonce: str, row: Row) -> Claim:
    rank, _place, number, job_id, task, queue, *counters, created_ms, _expires, suspect = row
    return Claim(
        id=job_id,
        token=nonce,
        task=task,
        queue=queue,
        priority=-rank,
        payload=first(tx.connection, "read_payload", number),
        counters=Counters(*counters),
        created_ms=created_ms,
        suspect=bool(suspect),
    )
