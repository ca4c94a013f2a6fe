"""Finish claims with their outcomes, each fenced by its token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, cast

from windlass.core.durations import LATEST_MS
from windlass.core.states import Event, Hold, State, stray_delay_ms
from windlass.engine.contract import (
    MAX_WHY,
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
    batches,
    check_fingerprint,
)
from windlass.engine.sqlite.statements import Row, as_array, first
from windlass.engine.sqlite.transaction import JobRow, Transaction, end_mark
from windlass.engine.sqlite.wakeup import ReadyLine

_EVENTS: Final[dict[type[Outcome], Event]] = {
    Succeeded: Event.SUCCEED,
    Retried: Event.RETRY,
    Buried: Event.BURY,
    Released: Event.RELEASE,
    Snoozed: Event.SNOOZE,
    Unroutable: Event.UNROUTABLE,
}
_size_of: Final = attrgetter("size")
_key_of: Final = attrgetter("id", "token")


def finish(tx: Transaction, outcomes: Sequence[Outcome]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for kind, run in groupby(outcomes, type):
        if kind is Succeeded:
            verdicts += _succeed(tx, cast("list[Succeeded]", list(run)))
        else:
            verdicts += [_apply(tx, outcome) for outcome in run]
    return verdicts


def _succeed(tx: Transaction, outcomes: list[Succeeded]) -> list[Verdict]:
    """End claims with success, the hot path. Of several ends of one claim, the first counts."""
    firsts = {(outcome.id, outcome.token): outcome for outcome in reversed(outcomes)}
    others: set[tuple[str, str]] = set()  # whose token is not current
    for batch in batches([*firsts.values()], _size_of):
        _succeed_batch(tx, batch, others)
    tx.totals["succeeded"] += len(firsts) - len(others)
    tx.ended += [outcome.id for outcome in outcomes]
    if not others and len(firsts) == len(outcomes):
        return [Verdict.OK] * len(outcomes)
    return [_judge(tx, outcome, others) for outcome in outcomes]


def _judge(tx: Transaction, outcome: Succeeded, others: set[tuple[str, str]]) -> Verdict:
    """The verdict on a success after its batch; a further one in the same call is a repeat."""
    key = (outcome.id, outcome.token)
    if key not in others:
        others.add(key)
        return Verdict.OK
    return _repeated_or_stale(tx, outcome, first(tx.connection, "find_claim", outcome.id))


def _succeed_batch(
    tx: Transaction, outcomes: Sequence[Succeeded], others: set[tuple[str, str]]
) -> None:
    """End claims, and add those that this call cannot end to `others`. All results are one value,
    which the statement cuts into pieces: inside an array, results would have to be hex-encoded."""
    results: list[bytes] = []
    rows: list[Row] = []
    begin = 1  # SQLite counts from 1
    for outcome in outcomes:
        mark = end_mark(outcome.token, Event.SUCCEED)
        keep_until = tx.now_ms + max(outcome.result_ttl_ms, MIN_RECORD_MS)
        size = None
        if outcome.result is not None and outcome.result_ttl_ms > 0:
            # The purge first drops only the result.
            keep_until = min(tx.now_ms + outcome.result_ttl_ms, LATEST_MS)
            size = len(outcome.result)
            results.append(outcome.result)
        rows.append((outcome.id, outcome.token, keep_until, mark, begin, size))
        begin += size or 0
    claims = as_array(rows)
    ended = 0
    for queue, number in tx.rows("count_claims", claims):
        tx.count_move(queue, State.RUNNING, State.SUCCEEDED, number)
        ended += number
    if ended < len(outcomes):  # look before the tokens are gone
        current = set(tx.rows("current_claims", claims))
        others.update(key for key in map(_key_of, outcomes) if key not in current)
    results.append(b"\0")  # never empty: a piece of an empty value would be NULL
    tx.run("succeed_jobs", claims, tx.now_ms, b"".join(results))


def _apply(tx: Transaction, outcome: Outcome) -> Verdict:
    if isinstance(outcome, Progressed):
        row = tx.one("note_progress", outcome.id, outcome.token, outcome.progress)
        return Verdict.OK if row else _stale(tx)
    job = tx.job(outcome.id)
    if job is None or job.token != outcome.token:
        last = None if job is None else job.last_end
        return _repeated_or_stale(tx, outcome, last)
    job.last_end = end_mark(outcome.token, _EVENTS[type(outcome)])
    _move(tx, job, outcome)
    return Verdict.OK


def _move(tx: Transaction, job: JobRow, outcome: Outcome) -> None:
    match outcome:
        case Retried():
            tx.move(job, Event.RETRY, delay_ms=outcome.delay_ms, error=outcome.error)
        case Buried():
            check_fingerprint(outcome.fingerprint)
            tx.move(
                job,
                Event.BURY,
                started=outcome.started,
                reason=outcome.reason,
                error=outcome.error,
                fingerprint=outcome.fingerprint,
            )
        case Released():
            tx.move(job, Event.RELEASE, started=outcome.started, suspected=outcome.alone)
        case Snoozed():
            tx.move(job, Event.SNOOZE, delay_ms=outcome.delay_ms)
        case Unroutable():
            _park(tx, job, outcome.why)
        case _:
            raise TypeError(f"Expected one of the outcomes of the contract, found {outcome!r}.")


def _park(tx: Transaction, job: JobRow, why: bytes) -> None:
    """Hold a job that this worker cannot route: it keeps its place and rests, longer each time."""
    delay_ms = stray_delay_ms(job.strays)
    job.progress = None
    tx.move(job, Event.UNROUTABLE)
    if job.state == State.READY:
        job.hold, job.due_ms = Hold.UNROUTABLE, tx.now_ms + delay_ms
        tx.save(job)
        if why:
            tx.run("note_why_held", job.row, why[:MAX_WHY])
        tx.made_ready[ReadyLine(job.queue, bool(job.suspect))] -= 1


def _repeated_or_stale(tx: Transaction, outcome: Outcome, last_end: int | None) -> Verdict:
    """Recognise a repeat of the same end. A different end is stale: the first took effect."""
    if last_end == end_mark(outcome.token, _EVENTS[type(outcome)]):
        return Verdict.REPEATED
    return _stale(tx)


def _stale(tx: Transaction) -> Verdict:
    tx.totals["stale"] += 1
    return Verdict.STALE
