"""Reads: records, pages of records, counters, sessions. This module changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from windlass.core.history import OTHER
from windlass.core.ids import release_of
from windlass.core.queues.labels import after_lines, queue_of
from windlass.core.states import Counters, Hold, Reason, State
from windlass.engine.contract import (
    BITE,
    ENDED,
    MAX_HELD,
    MAX_PAIRS,
    Failure,
    Filter,
    Introductions,
    JobEnd,
    JobIndex,
    JobRecord,
    Page,
    SessionCommand,
    SessionRecord,
    Stats,
    Stretch,
    bad_cursor,
    collect,
    earliest_visit_ms,
    index_has,
    to_cursor,
)
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.verbs.dead_groups import find_grouped

#: A page reads these columns of a job, then those of its position in the index.
_COLUMNS: Final = 28
_STATE: Final = 4
_DUE_MS: Final = 15
_SESSION: Final = 19
_SUSPECT: Final = 21
_OTHERS: Final = (OTHER, OTHER)
_AFTER_ALL_TEXTS: Final = "\U0010ffff"
_AFTER_ALL_NUMBERS: Final = 2**62


def get(db: Statements, ids: Sequence[str], now_ms: int) -> list[JobRecord | None]:
    found = db.rows("read_jobs", db.array(ids))
    histories = _histories(db, [row[_COLUMNS - 1] for row in found])
    records = {row[0]: _to_whole_record(row, histories, now_ms) for row in found}
    return [records.get(job_id) for job_id in ids]


def _to_whole_record(
    row: Row, histories: Mapping[int, Sequence[Failure]], now_ms: int
) -> JobRecord:
    payload, result, fingerprint = row[_COLUMNS:]
    return _to_record(
        row[:_COLUMNS],
        now_ms,
        result=result,
        payload=payload,
        failures=tuple(histories.get(row[_COLUMNS - 1], ())),
        fingerprint=fingerprint or "",
    )


def _histories(db: Statements, jobs: Sequence[int]) -> dict[int, list[Failure]]:
    histories: dict[int, list[Failure]] = {}
    for job, *failure in db.rows("list_failures", db.array(jobs)) if jobs else ():
        histories.setdefault(job, []).append(_to_failure(failure))
    return histories


def ends(db: Statements, ids: Sequence[str], now_ms: int) -> list[JobEnd | None]:
    found = {row[0]: _to_end(db, row) for row in db.rows("read_ends", now_ms, db.array(ids))}
    return [found.get(job_id) for job_id in ids]


def _to_end(db: Statements, found: Row) -> JobEnd:
    job_id, task, state, reason, finished_ms, result, row = found
    newest = db.rows("newest_failure", row) if state == State.DEAD else ()
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
    cancel_requested, suspect, progress, keep_until_ms, has_result, *rest = rest
    unique_key, held_because, _number = rest
    visible = bool(has_result) and (keep_until_ms or 0) > now_ms
    return JobRecord(
        id=job_id,
        task=task,
        queue=queue,
        priority=priority,
        state=State(state),
        hold=Hold.NONE if hold is None else Hold(hold),
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


def find(db: Statements, filter: Filter, cursor: str | None, limit: int, now_ms: int) -> Page:
    def read(index: JobIndex, position: bytes, number: int) -> Stretch[Row]:
        stretch = _stretch(db, filter, index, position, number)
        places = [(_position(index, row), row) for row in stretch]
        found = [(place, row) for place, row in places if _matches(index, row, filter)]
        return Stretch(found, places[-1][0] if len(stretch) == number else None, len(stretch))

    found, following = collect(filter, cursor, limit, read)
    return Page(tuple(_to_record(row[:_COLUMNS], now_ms) for row in found), following)


def _stretch(
    db: Statements, filter: Filter, index: JobIndex, position: bytes, number: int
) -> list[Row]:
    after = _read_position(index, position)
    if index is JobIndex.RUNNING:
        return db.rows("find_running", *(after or ("", "", -1)), number)
    if index is JobIndex.READY or index is JobIndex.SUSPECT:
        start = (filter.queue or "", -1, 0, 0) if index is JobIndex.READY else _before(filter)
        below = _AFTER_ALL_TEXTS if filter.queue is None else after_lines(filter.queue)
        return db.rows(f"find_{index}", *(after or start), below, number)
    if index is JobIndex.PARKED:
        return db.rows("find_parked", *(after or ("", -1)), number)
    if index is JobIndex.DUE:
        return db.rows("find_due", *(after or (-1, -1)), number)
    if index is JobIndex.GROUPED:
        return find_grouped(db, filter, after or (_AFTER_ALL_NUMBERS, 0), number)
    latest, floor_ms = after or (_AFTER_ALL_NUMBERS, 0), earliest_visit_ms(filter, index)
    return db.rows("find_ended", str(index), *latest, floor_ms, number)


def _before(filter: Filter) -> tuple[str, int, int]:
    """The place before all jobs of a queue that must run alone, or of all queues."""
    return filter.queue or "", -_AFTER_ALL_NUMBERS, 0


def _position(index: JobIndex, row: Row) -> bytes:
    """The position of a row in an index: the values of its columns, with the row if needed."""
    _, task, queue, *_ = row
    number, last = row[_COLUMNS - 1], row[_COLUMNS:]
    match index:
        case JobIndex.RUNNING:
            place: Row = (row[_SESSION], *last, number)
        case JobIndex.READY:
            place = (queue, row[_SUSPECT], *last)
        case JobIndex.SUSPECT:
            place = (queue, *last)
        case JobIndex.PARKED:
            place = (task, number)
        case JobIndex.DUE:
            place = (row[_DUE_MS], number)
        case _:
            place = (*last, number)
    return msgspec.json.encode(place)


_POSITIONS: Final[dict[JobIndex, Any]] = {
    JobIndex.RUNNING: tuple[str, str, int],
    JobIndex.READY: tuple[str, int, int, int],
    JobIndex.SUSPECT: tuple[str, int, int],
    JobIndex.PARKED: tuple[str, int],
    **dict.fromkeys((JobIndex.DUE, JobIndex.GROUPED, *ENDED), tuple[int, int]),
}


def _read_position(index: JobIndex, position: bytes) -> Row | None:
    if not position:
        return None
    try:
        place: Row = msgspec.json.decode(position, type=_POSITIONS[index])
    except msgspec.MsgspecError:
        raise bad_cursor(to_cursor(index, position)) from None
    return place


def _matches(index: JobIndex, row: Row, filter: Filter) -> bool:
    return (
        index_has(index, row[_STATE])
        and (index is not JobIndex.READY or not row[_SUSPECT])
        and (filter.task is None or row[1] == filter.task)
        and (filter.queue is None or queue_of(row[2]) == filter.queue)
        and (filter.state is None or row[_STATE] == filter.state)
        and (filter.hold is None or row[5] == filter.hold)
        and (filter.release is None or (release_of(row[_SESSION]) or "") == filter.release)
        and filter.includes_instant(row[14])
    )


def stats(db: Statements, now_ms: int) -> Stats:
    queues: dict[str, dict[State, int]] = {}
    for queue, state, number in db.rows("list_counters"):
        queues.setdefault(queue, {})[State(state)] = number
    totals: dict[str, int] = dict(db.rows("list_totals"))
    pairs: dict[tuple[str, str], int] = {}
    for queue, task, number in db.rows("list_enqueued"):
        is_one_more = len(pairs.keys() - {_OTHERS}) >= MAX_PAIRS
        pair = _OTHERS if is_one_more else (queue, task)
        pairs[pair] = pairs.get(pair, 0) + number
    if pairs:
        totals["enqueued"] = totals.get("enqueued", 0) + sum(pairs.values())
    return Stats(
        queues=queues,
        oldest_ready_ms=dict(_oldest(db, [*queues], now_ms)),
        totals=totals,
        enqueued=pairs,
    )


def _oldest(db: Statements, queues: Sequence[str], now_ms: int) -> Iterable[tuple[str, int]]:
    for queue, ready_ms in db.rows("oldest_ready", db.array(queues)) if queues else ():
        yield queue, max(0, now_ms - ready_ms)


def sessions(db: Statements, now_ms: int) -> list[SessionRecord]:
    return [
        SessionRecord(
            session=session,
            expires_in_ms=expires_ms - now_ms,
            jobs=jobs,
            held=tuple(sorted(row[0] for row in db.rows("list_held_ids", session, MAX_HELD))),
            info=info,
            command=SessionCommand(command),
        )
        for session, expires_ms, info, command, jobs in db.rows("list_sessions")
    ]


def infos(db: Statements, names: Sequence[str]) -> list[bytes | None]:
    found: dict[str, bytes] = dict(db.rows("read_infos", db.array(names)))
    return [found.get(name) for name in names]


def introductions(db: Statements, prefix: str, cursor: str | None) -> Introductions:
    found = db.rows("list_introductions", cursor or "", prefix, BITE)
    return Introductions(dict(found), found[-1][0] if len(found) == BITE else None)
