"""Operations of operators and maintenance on jobs: cancel, revive, discard, adopt, purge."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from windlass.core.queues.settings import paused_tasks
from windlass.core.states import Event, State, is_allowed
from windlass.engine.contract import (
    BITE,
    MIN_RECORD_MS,
    SWEEP_BYTES,
    CancelCode,
    ChangeCode,
    Revival,
    Tended,
)
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.transaction import (
    JobRow,
    SqlTransaction,
    read_settings,
    unpack_paused,
)
from windlass.engine.sql.verbs import change, history, unique, upkeep


def cancel(tx: SqlTransaction, ids: Sequence[str]) -> list[CancelCode]:
    return [_cancel(tx, tx.job(job_id)) for job_id in ids]


def _cancel(tx: SqlTransaction, job: JobRow | None) -> CancelCode:
    if job is None:
        return CancelCode.UNKNOWN
    if job.state == State.RUNNING:
        job.cancel_requested = 1
        tx.save(job)
        return CancelCode.REQUESTED
    if not is_allowed(State(job.state), Event.CANCEL):
        return CancelCode.CANCELLED if job.state == State.CANCELLED else CancelCode.FINAL
    tx.move(job, Event.CANCEL)
    return CancelCode.CANCELLED


def revive(tx: SqlTransaction, revivals: Sequence[Revival]) -> list[ChangeCode]:
    return [_revive(tx, tx.job(revival.id), revival) for revival in revivals]


def _revive(tx: SqlTransaction, job: JobRow | None, revival: Revival) -> ChangeCode:
    if job is None:
        return ChangeCode.UNKNOWN
    if not is_allowed(State(job.state), Event.REVIVE):
        return ChangeCode.REFUSED
    if revival.finished_ms not in (None, job.finished_ms):
        return ChangeCode.REFUSED
    if not unique.take(tx, job):
        return ChangeCode.DUPLICATE
    job.reason = job.finished_ms = job.keep_until_ms = None
    job.result = job.progress = None
    job.expires_ms = None  # otherwise the job would expire again
    job.cancel_requested = 0
    tx.run("note_why_held", job.row, None)
    old = None
    if revival.payload is not None:
        old = change.replace_payload(tx, job.row, revival.payload)
    tx.move(job, Event.REVIVE, error=old)
    return ChangeCode.DONE


def discard(tx: SqlTransaction, ids: Sequence[str], seen: Mapping[str, int]) -> list[ChangeCode]:
    return [_discard(tx, tx.job(job_id), seen.get(job_id)) for job_id in ids]


def _discard(tx: SqlTransaction, job: JobRow | None, seen_ms: int | None) -> ChangeCode:
    if job is None:
        return ChangeCode.UNKNOWN
    if not is_allowed(State(job.state), Event.DISCARD):
        return ChangeCode.REFUSED
    if seen_ms not in (None, job.finished_ms):
        return ChangeCode.REFUSED
    unique.forget(tx, job.id)
    tx.remove(job.row, job.queue, job.state)
    tx.ended.append(job.id)
    tx.run("forget_key", job.id)  # otherwise the key would point to a removed job
    return ChangeCode.DONE


def can_adopt(db: Statements, tasks: Sequence[str]) -> bool:
    paused = paused_tasks(read_settings(db))
    return bool(db.first("any_unroutable", db.array(_without(tasks, paused))))


def _without(tasks: Sequence[str], paused: Sequence[str]) -> Sequence[str]:
    return [task for task in tasks if task not in paused] if paused else tasks


def adopt(tx: SqlTransaction, tasks: Sequence[str]) -> int:
    adopted = 0
    for task in _without(tasks, unpack_paused(tx.queues)):
        for statement in ("load_unroutable", "load_paused"):
            for job in tx.load(statement, task, BITE - adopted):
                upkeep.offer_again(tx, job)
                adopted += 1
    return adopted


def _resume_rest(tx: SqlTransaction) -> int:
    """Make jobs ready that an interrupted resume left held; return their number."""
    resumed, task, paused = 0, "", unpack_paused(tx.queues)
    while resumed < BITE and (task := tx.first("next_held_task", task)) is not None:
        if task not in paused:
            jobs = tx.load("load_paused", task, BITE - resumed)
            for job in jobs:
                upkeep.offer_again(tx, job)
            resumed += len(jobs)
    return resumed


def tend(tx: SqlTransaction, known: Collection[str] | None) -> Tended:
    tx.note_seen()
    before = tx.totals["lost"]
    more = upkeep.reap(tx)
    visited = _visited(tx)
    doomed: list[str] = []
    chosen = _within_budget(visited)
    purged = sum(_purge(tx, known, doomed, *row) for *row, _ in chosen)
    more = more or len(visited) == BITE or len(chosen) < len(visited)
    more = _resume_rest(tx) == BITE or more
    more = tx.change("forget_keys", tx.now_ms, BITE) == BITE or more
    more = tx.change("forget_replaced_puts", tx.now_ms, BITE) == BITE or more
    tx.run("forget_sessions", tx.now_ms)
    tx.run("forget_empty_counters")
    more = history.keep_history(tx) or more
    return Tended(
        reaped=tx.totals["lost"] - before, purged=purged, doomed=tuple(sorted(doomed)), more=more
    )


def _visited(tx: SqlTransaction) -> list[Row]:
    """List the ended jobs that the purge visits now. Dead jobs come last: they may have to stay,
    and must not keep the purge from the others."""
    visited: list[Row] = []
    for state in (State.SUCCEEDED, State.CANCELLED, State.DEAD):
        room = BITE - len(visited)
        visited += tx.rows("list_kept_too_long", str(state), tx.now_ms, room) if room else ()
    return visited


def _within_budget(visited: Sequence[Row]) -> Sequence[Row]:
    """Choose the first jobs, up to `SWEEP_BYTES` in total and at least one. The caller reads doomed
    jobs, and a removal holds the lock until it has found all pages of a job."""
    number = sum(total <= SWEEP_BYTES for total in accumulate(row[-1] for row in visited))
    return visited[: max(1, number)]


def _purge(
    tx: SqlTransaction,
    known: Collection[str] | None,
    doomed: list[str],
    row: int,
    job_id: str,
    queue: str,
    state: str,
    finished_ms: int | None,
    has_result: bool,
    unique_key: str | None,
    period_until_ms: int | None,
) -> bool:
    """Remove a record, or only its result while the record is still needed."""
    if finished_ms is None:
        tx.run("drop_keep", row)
        tx.totals["orphans"] += 1
        return False
    record_until_ms = max(finished_ms + MIN_RECORD_MS, period_until_ms or 0)
    if has_result and record_until_ms > tx.now_ms:
        tx.run("drop_result", row, record_until_ms)
        return False
    if period_until_ms is not None and period_until_ms > tx.now_ms:
        tx.run("keep_longer", row, period_until_ms)
        return False
    if state == State.DEAD and known is not None and job_id not in known:
        doomed.append(job_id)
        return False
    if unique_key is not None:
        unique.forget(tx, job_id)
    tx.remove(row, queue, state)
    return True
