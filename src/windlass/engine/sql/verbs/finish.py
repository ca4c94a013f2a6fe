"""Finish claims with their outcomes, each fenced by its token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar, cast

from windlass.core.states import Event, Hold, State, stray_delay_ms
from windlass.engine.contract import (
    MAX_WHY,
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
from windlass.engine.sql.transaction import JobRow, SqlTransaction, end_mark
from windlass.engine.sql.wakeup import ReadyLine

_EVENTS: Final[dict[type[Outcome], Event]] = {
    Succeeded: Event.SUCCEED,
    Retried: Event.RETRY,
    Buried: Event.BURY,
    Released: Event.RELEASE,
    Snoozed: Event.SNOOZE,
    Unroutable: Event.UNROUTABLE,
}
_size_of: Final = attrgetter("size")

#: The id and token of a claim.
Key = tuple[str, str]
Tx = TypeVar("Tx", bound=SqlTransaction)
#: End claims with success; return the keys of those whose token is not current.
SucceedBatch = Callable[[Tx, Sequence[Succeeded]], Collection[Key]]


def finish(tx: Tx, outcomes: Sequence[Outcome], succeed_batch: SucceedBatch[Tx]) -> list[Verdict]:
    """Finish claims. Successes in a row are one batch, by the statements of the engine."""
    verdicts: list[Verdict] = []
    for kind, run in groupby(outcomes, type):
        if kind is Succeeded:
            verdicts += _succeed(tx, cast("list[Succeeded]", list(run)), succeed_batch)
        else:
            verdicts += [_apply(tx, outcome) for outcome in run]
    return verdicts


def _succeed(tx: Tx, outcomes: list[Succeeded], succeed_batch: SucceedBatch[Tx]) -> list[Verdict]:
    """End claims with success, the hot path. Of several ends of one claim, the first counts."""
    firsts = {(outcome.id, outcome.token): outcome for outcome in reversed(outcomes)}
    others: set[Key] = set()  # whose token is not current
    for batch in batches([*firsts.values()], _size_of):
        others.update(succeed_batch(tx, batch))
    tx.totals["succeeded"] += len(firsts) - len(others)
    tx.ended += [outcome.id for outcome in outcomes]
    if not others and len(firsts) == len(outcomes):
        return [Verdict.OK] * len(outcomes)
    return [_judge(tx, outcome, others) for outcome in outcomes]


def _judge(tx: SqlTransaction, outcome: Succeeded, others: set[Key]) -> Verdict:
    """The verdict on a success after its batch; a further one in the same call is a repeat."""
    key = (outcome.id, outcome.token)
    if key not in others:
        others.add(key)
        return Verdict.OK
    return _repeated_or_stale(tx, outcome, tx.first("find_claim", outcome.id))


def _apply(tx: SqlTransaction, outcome: Outcome) -> Verdict:
    if isinstance(outcome, Progressed):
        row = tx.one("note_progress", outcome.id, outcome.token, outcome.progress)
        return Verdict.OK if row else _stale(tx)
    job = tx.job_to_end(outcome.id)
    if job is None or job.token != outcome.token:
        last = None if job is None else job.last_end
        return _repeated_or_stale(tx, outcome, last)
    job.last_end = end_mark(outcome.token, _EVENTS[type(outcome)])
    _move(tx, job, outcome)
    return Verdict.OK


def _move(tx: SqlTransaction, job: JobRow, outcome: Outcome) -> None:
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


def _park(tx: SqlTransaction, job: JobRow, why: bytes) -> None:
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


def _repeated_or_stale(tx: SqlTransaction, outcome: Outcome, last_end: int | None) -> Verdict:
    """Recognise a repeat of the same end. A different end is stale: the first took effect."""
    if last_end == end_mark(outcome.token, _EVENTS[type(outcome)]):
        return Verdict.REPEATED
    return _stale(tx)


def find_verdict(tx: SqlTransaction, outcome: Outcome) -> Verdict:
    """Tell whether an end has taken effect, and change nothing. `OK`: the claim is current."""
    job = tx.job(outcome.id)
    if job is not None and job.token == outcome.token:
        return Verdict.OK
    mark = end_mark(outcome.token, _EVENTS[type(outcome)])
    return Verdict.REPEATED if job is not None and job.last_end == mark else Verdict.STALE


def _stale(tx: SqlTransaction) -> Verdict:
    tx.totals["stale"] += 1
    return Verdict.STALE
