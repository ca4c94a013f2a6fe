"""Reads: records, pages of records, counters, sessions. This module changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw

from windlass.core.queues.labels import queue_of
from windlass.core.states import Counters, Hold, Reason, State
from windlass.engine.contract import (
    BITE,
    MAX_HELD,
    Failure,
    Filter,
    Introductions,
    JobEnd,
    JobRecord,
    Page,
    SessionRecord,
    Stats,
)
from windlass.engine.sqlite.statements import Row, rows

#: A page with a filter that no index covers examines at most this many records.
SCAN_BUDGET: Final = 10_000
_AFTER_ALL_IDS: Final = "\U0010ffff"


def get(connection: apsw.Connection, ids: Sequence[str], now_ms: int) -> list[JobRecord | None]:
    return [_get(connection, job_id, now_ms) for job_id in ids]


def _get(connection: apsw.Connection, job_id: str, now_ms: int) -> JobRecord | None:
    found = rows(connection, "read_job", job_id)
    if not found:
        return None
    *_, has_result, _unique_key, _held_because, number = found[0]
    result = rows(connection, "read_result", number)[0][0] if has_result else None
    bodies = rows(connection, "read_payload", number)
    failures = rows(connection, "list_failures", number)
    return _to_record(
        found[0],
        now_ms,
        result=result,
        payload=bodies[0][0] if bodies else b"",
        failures=tuple(map(_to_failure, failures)),
    )


def ends(connection: apsw.Connection, ids: Sequence[str], now_ms: int) -> list[JobEnd | None]:
    return [_end(connection, job_id, now_ms) for job_id in ids]


def _end(connection: apsw.Connection, job_id: str, now_ms: int) -> JobEnd | None:
    found = rows(connection, "read_end", now_ms, job_id)
    if not found:
        return None
    task, state, reason, finished_ms, result, row = found[0]
    newest = rows(connection, "newest_failure", row) if state == State.DEAD else ()
    return JobEnd(
        id=job_id,
        task=task,
        state=State(state),
        reason=Reason(reason) if reason else None,
        finished_ms=finished_ms,
        result=result,
        failure=_to_failure(newest[0]) if newest else None,
    )


def _to_failure(row: Sequence[Any]) -> Failure:
    at_ms, event, attempt, session, started_ms, error = row
    return Failure(
        at_ms=at_ms,
        event=event,
        attempt=attempt,
        session=session,
        started_ms=started_ms,
        error=error,
    )


def _to_record(
    row: Sequence[Any], now_ms: int, *, result: bytes | None = None, **details: Any
) -> JobRecord:
    job_id, task, queue, priority, state, hold, reason, *rest = row
    counters, (created, due, expires, started, finished, session), rest = (
        rest[:7],
        rest[7:13],
        rest[13:],
    )
    cancel_requested, suspect, progress, result_until_ms, has_result, *rest = rest
    unique_key, held_because, _number = rest
    visible = bool(has_result) and result_until_ms > now_ms
    return JobRecord(
        id=job_id,
        task=task,
        queue=queue,
        priority=priority,
        state=State(state),
        hold=Hold(hold),
        reason=Reason(reason) if reason else None,
        counters=Counters(*counters),
        created_ms=created,
        due_ms=None if hold == Hold.PAUSED else due,
        expires_ms=expires,
        started_ms=started,
        finished_ms=finished,
        session=session,
        cancel_requested=bool(cancel_requested),
        suspect=bool(suspect),
        progress=progress,
        result=result if visible else None,
        has_result=visible,
        unique_key=unique_key,
        held_because=held_because,
        **details,
    )


def find(
    connection: apsw.Connection, filter: Filter, ids: tuple[str, str], limit: int, now_ms: int
) -> Page:
    """Read one record more than the limit, to know whether there is another page."""
    first, below = ids
    cursor: str | None = below or _AFTER_ALL_IDS
    matching: list[Row] = []
    budget, chunk = SCAN_BUDGET, limit + 1
    while cursor is not None and budget > 0 and len(matching) <= limit:
        found = _stretch(connection, filter, cursor, first, chunk)
        matching += [row for row in found if _matches(row, filter)]
        cursor = found[-1][0] if len(found) == chunk else None
        budget -= chunk
        chunk = min(2 * chunk, SCAN_BUDGET)  # few records match: read more at a time
    if len(matching) > limit:
        cursor = matching[limit - 1][0]
    return Page(tuple(_to_record(row, now_ms) for row in matching[:limit]), cursor)


def _stretch(
    connection: apsw.Connection, filter: Filter, below: str, first: str, limit: int
) -> list[Row]:
    if filter.state is State.DEAD:
        return rows(connection, "list_dead", below, first, limit, filter.task)
    return rows(connection, "list_jobs", below, first, limit)


def _matches(row: Sequence[Any], filter: Filter) -> bool:
    return (
        (filter.task is None or row[1] == filter.task)
        and (filter.queue is None or queue_of(row[2]) == filter.queue)
        and (filter.state is None or row[4] == filter.state)
        and filter.includes_instant(row[14])
    )


def stats(connection: apsw.Connection, now_ms: int) -> Stats:
    queues: dict[str, dict[State, int]] = {}
    for queue, state, number in rows(connection, "list_counters"):
        queues.setdefault(queue, {})[State(state)] = number
    return Stats(
        queues=queues,
        oldest_ready_ms=dict(_oldest(connection, queues, now_ms)),
        totals=dict(rows(connection, "list_totals")),
    )


def _oldest(
    connection: apsw.Connection, queues: Iterable[str], now_ms: int
) -> Iterable[tuple[str, int]]:
    for queue in queues:
        for (ready_ms,) in rows(connection, "oldest_ready", queue):
            yield queue, max(0, now_ms - ready_ms)


def sessions(connection: apsw.Connection, now_ms: int) -> list[SessionRecord]:
    return [
        SessionRecord(
            session=session,
            expires_in_ms=expires_ms - now_ms,
            jobs=jobs,
            held=tuple(
                sorted(row[0] for row in rows(connection, "list_held_ids", session, MAX_HELD))
            ),
            info=info,
        )
        for session, expires_ms, info, jobs in rows(connection, "list_sessions")
    ]


def introductions(connection: apsw.Connection, prefix: str, cursor: str | None) -> Introductions:
    found = rows(connection, "list_introductions", cursor or "", prefix, BITE)
    return Introductions(dict(found), found[-1][0] if len(found) == BITE else None)
