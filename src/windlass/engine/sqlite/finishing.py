"""Finishing: what became of claims, each fenced by its token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from windlass.core.states import Event, Hold, State, stray_delay_ms
from windlass.engine.contract import (
    MIN_RECORD_MS,
    Buried,
    Outcome,
    Progressed,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Unroutable,
    Verdict,
)
from windlass.engine.sqlite.statements import Row
from windlass.engine.sqlite.transaction import JobRow, Transaction

_EVENTS: Final[dict[type[Outcome], Event]] = {
    Succeeded: Event.SUCCEED,
    Retried: Event.RETRY,
    Buried: Event.BURY,
    Released: Event.RELEASE,
    Snoozed: Event.SNOOZE,
    Unroutable: Event.UNROUTABLE,
}


def finish(tx: Transaction, outcomes: Sequence[Outcome]) -> list[Verdict]:
    return [_apply(tx, outcome) for outcome in outcomes]


def _apply(tx: Transaction, outcome: Outcome) -> Verdict:
    if isinstance(outcome, Succeeded):
        return _succeed(tx, outcome)
    if isinstance(outcome, Progressed):
        row = tx.one("note_progress", outcome.id, outcome.token, outcome.progress)
        return Verdict.OK if row else _stale(tx)
    job = tx.job(outcome.id)
    if job is None or job.token != outcome.token:
        last = None if job is None else (job.last_token, job.last_event)
        return _repeated_or_stale(tx, outcome, last)
    job.last_token, job.last_event = outcome.token, _EVENTS[type(outcome)]
    _move(tx, job, outcome)
    return Verdict.OK


def _succeed(tx: Transaction, outcome: Succeeded) -> Verdict:
    """The hot one: a narrow look at the job, then one statement that ends it."""
    found = tx.one("find_claim", outcome.id)
    if found is None or found[2] != outcome.token:
        return _repeated_or_stale(tx, outcome, found and found[3:])
    stored = outcome.result if outcome.result_ttl_ms > 0 else None
    result_until = None if stored is None else tx.now_ms + outcome.result_ttl_ms
    keep_until = tx.now_ms + max(outcome.result_ttl_ms, MIN_RECORD_MS)
    if result_until is not None:
        keep_until = min(keep_until, result_until)  # the purge first drops the result alone
    tx.run("succeed_job", found[0], outcome.token, tx.now_ms, keep_until, result_until, stored)
    tx.count_move(found[1], State.RUNNING, State.SUCCEEDED)
    tx.totals["succeeded"] += 1
    return Verdict.OK


def _move(tx: Transaction, job: JobRow, outcome: Outcome) -> None:
    match outcome:
        case Retried():
            tx.move(job, Event.RETRY, delay_ms=outcome.delay_ms, error=outcome.error)
        case Buried():
            tx.move(
                job,
                Event.BURY,
                started=outcome.started,
                reason=outcome.reason,
                error=outcome.error,
            )
        case Released():
            tx.move(job, Event.RELEASE, started=outcome.started)
        case Snoozed():
            tx.move(job, Event.SNOOZE, delay_ms=outcome.delay_ms)
        case Unroutable():
            _park(tx, job)
        case _:
            raise TypeError(f"Expected one of the outcomes of the contract, found {outcome!r}.")


def _park(tx: Transaction, job: JobRow) -> None:
    """Nobody here knows the task: it keeps its place and rests for a while, each time longer."""
    delay_ms = stray_delay_ms(job.strays)
    tx.move(job, Event.UNROUTABLE)
    if job.state == State.READY:
        job.hold, job.due_ms = Hold.UNROUTABLE, tx.now_ms + delay_ms
        tx.save(job)
        tx.made_ready -= 1


def _repeated_or_stale(tx: Transaction, outcome: Outcome, last: Row | None) -> Verdict:
    """The same end told twice is fine. Another end is not: the first one has been acted upon."""
    if last == (outcome.token, _EVENTS[type(outcome)]):
        return Verdict.OK
    return _stale(tx)


def _stale(tx: Transaction) -> Verdict:
    tx.totals["stale"] += 1
    return Verdict.STALE
