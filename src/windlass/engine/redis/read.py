"""Reads over all partitions: pages of records, counters, sessions, schedules."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from windlass.core.ids import release_of
from windlass.core.queues.labels import after_lines, queue_of
from windlass.core.queues.settings import QueueSettings
from windlass.core.states import Hold, State
from windlass.engine.contract import (
    ENDED,
    MAX_HELD,
    AuditEntry,
    Document,
    DueSchedules,
    Filter,
    JobIndex,
    JobRecord,
    Page,
    ScheduleRecord,
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
from windlass.engine.redis import dead_groups, decode

#: A call of `find` reads at most this many records.
_CHUNK: Final = 500
#: The words of its reply before the entries, and for each entry.
_FIRST: Final = 3
_ENTRY: Final = 5
#: The words for each session in a reply of `sessions`.
_SESSION: Final = 6
#: The commands of a session; of two, the later one counts.
_COMMANDS: Final = tuple(SessionCommand)
#: index -> the key that holds it
_KEYS: Final = {
    JobIndex.RUNNING: "held",
    JobIndex.READY: "ready",
    JobIndex.SUSPECT: "ready",
    JobIndex.PARKED: "parked",
    JobIndex.DUE: "due",
    JobIndex.DEAD: "dead",
    JobIndex.CANCELLED: "cancelled",
    JobIndex.SUCCEEDED: "keep",
}
_SCORE: Final = re.compile(rb"[-+]?(inf|[0-9.e+-]+)")

#: Run a script with arguments in every partition and return the replies.
RunEach = Callable[[str, Sequence[bytes]], Sequence[Any]]


def find(run: RunEach, partitions: int, filter: Filter, cursor: str | None, limit: int) -> Page:
    """Merge the indexes of all partitions. Each stretch asks every partition for the next entries
    after the same position, and ends where the first partition may have more."""

    def read(index: JobIndex, position: bytes, number: int) -> Stretch[JobRecord]:
        part = max(1, min(number // partitions, _CHUNK))
        is_grouped = index is JobIndex.GROUPED
        if is_grouped:
            replies = run("find_deaths", dead_groups.of_filter(filter, position, part))
        else:
            words = _to_words(index, position, part, filter.queue)
            replies = run("find", [*words, *_choice(filter)])
        is_down = is_grouped or index in ENDED
        ends = [_place(reply[-_ENTRY], reply[1 - _ENTRY]) for reply in replies if reply[1]]
        last = (max if is_down else min)(ends, default=None)
        entries = [entry for reply in replies for entry in _to_entries(reply)]
        found = [
            (_to_position(index, place), record)
            for place, record in sorted(entries, key=itemgetter(0), reverse=is_down)
            if not _is_behind(place, last, is_down) and _matches(index, record, filter)
        ]
        is_more = last is not None
        if last is not None and index in ENDED:
            is_more = last.score >= earliest_visit_ms(filter, index)
        cost = sum(reply[2] for reply in replies)
        return Stretch(found, _to_position(index, last) if last and is_more else None, cost)

    found, following = collect(filter, cursor, limit, read)
    return Page(tuple(found), following)


class _Place(NamedTuple):
    """The place of an entry in an index."""

    score: float  # 0 in a set by name
    member: bytes


def _place(member: bytes, score: bytes) -> _Place:
    return _Place(float(score or 0), member)


def _is_behind(place: _Place, last: _Place | None, is_down: bool) -> bool:
    if last is None:
        return False
    return place < last if is_down else place > last


def _to_words(index: JobIndex, position: bytes, number: int, queue: str | None) -> list[bytes]:
    """The arguments of the script for a stretch of an index."""
    words = [_KEYS[index].encode(), b"%d" % number]
    if index is JobIndex.DUE:
        return [*words, b"after", *_read_position(index, position or b"-inf ")]
    if index in ENDED:
        return [*words, b"before", *_read_position(index, position or b"+inf ")]
    first, last = b"(", b"+"
    if index is JobIndex.READY or index is JobIndex.SUSPECT:
        mark = b"1" if index is JobIndex.SUSPECT else b"0"
        first, last = b"[" + mark, b"(%d" % (int(mark) + 1)
        if queue is not None:
            first += queue.encode() + b"\0"
            last = b"(" + mark + after_lines(queue).encode()
    return [*words, b"between", b"(" + position if position else first, last]


def _choice(filter: Filter) -> list[bytes]:
    """The parts of a filter that the script applies, so that fewer records are sent and decoded."""
    since_ms, until_ms = filter.since_ms, filter.until_ms
    return [
        (filter.task or "").encode(),
        (filter.queue or "").encode(),
        b"" if since_ms is None else b"%d" % since_ms,
        b"" if until_ms is None else b"%d" % until_ms,
    ]


def _to_position(index: JobIndex, place: _Place) -> bytes:
    """The position of a place in a cursor. An instant is before its member."""
    if index is JobIndex.DUE or index in ENDED:
        return b"%.17g %b" % (place.score, place.member)
    return place.member


def _read_position(index: JobIndex, position: bytes) -> tuple[bytes, bytes]:
    score, blank, member = position.partition(b" ")
    if not blank or not _SCORE.fullmatch(score):
        raise bad_cursor(to_cursor(index, position))
    return score, member


def _to_entries(reply: Sequence[Any]) -> Iterator[tuple[_Place, JobRecord]]:
    """Decode the reply of the script, without entries that have no record: the filter excludes it,
    or it is missing, which `check` reports."""
    now_ms = reply[0]
    for at in range(_FIRST, len(reply), _ENTRY):
        member, score, job_id, packed, progress = reply[at : at + _ENTRY]
        if packed is not None:
            record = decode.decode(packed)
            yield (
                _place(member, score),
                decode.to_record(job_id.decode(), record, now_ms, progress=progress),
            )


def _matches(index: JobIndex, record: JobRecord, filter: Filter) -> bool:
    return (
        _is_listed(index, record)
        and (filter.task is None or record.task == filter.task)
        and (filter.queue is None or queue_of(record.queue) == filter.queue)
        and (filter.state is None or record.state is filter.state)
        and (filter.hold is None or record.hold is filter.hold)
        and (filter.release is None or (release_of(record.session) or "") == filter.release)
        and filter.includes_instant(record.created_ms)
    )


def _is_listed(index: JobIndex, record: JobRecord) -> bool:
    """Whether a job belongs into the index that names it: an entry may be damaged."""
    if record.state is not State.READY:
        return index_has(index, record.state)
    if record.hold is not Hold.NONE:
        return index is JobIndex.PARKED
    return index is (JobIndex.SUSPECT if record.suspect else JobIndex.READY)


def merge_stats(bites: Sequence[tuple[int, Sequence[Any]]]) -> Stats:
    """Merge batches of counters in the order in which they were read. If a line was read twice, the
    last batch counts."""
    lines: dict[tuple[int, str], dict[State, int]] = {}
    standing: dict[tuple[int, str], tuple[int, int]] = {}
    totals: Counter[str] = Counter()
    enqueued: Counter[tuple[str, str]] = Counter()
    for partition, (_far, counts, happened, next_jobs, pairs) in bites:
        for line, states in _by_line(counts).items():
            lines[partition, line] = states
            standing.pop((partition, line), None)
        for name, number in _pairs(happened):
            totals[name] += int(number)
        for pair, number in _pairs(pairs):
            queue, _, task = pair.partition("\0")
            enqueued[queue, task] += int(number)
        for at in range(0, len(next_jobs), 3):
            standing[partition, next_jobs[at].decode()] = (next_jobs[at + 1], -next_jobs[at + 2])
    queues: dict[str, Counter[State]] = {}
    for (_, line), states in lines.items():
        queues.setdefault(line, Counter()).update(states)
    first: dict[str, tuple[int, int]] = {}  # line -> rank and age of its next job
    for (_, line), place in standing.items():
        # At equal rank, the job that has been ready for longer comes first.
        first[line] = min(first.get(line, place), place)
    return Stats(
        queues={line: dict(states) for line, states in queues.items()},
        oldest_ready_ms={line: -age_ms for line, (_, age_ms) in first.items()},
        totals={**totals, "enqueued": totals["enqueued"] + enqueued.total()},
        enqueued=dict(enqueued),
    )


def _by_line(counts: Sequence[bytes]) -> dict[str, dict[State, int]]:
    lines: dict[str, dict[State, int]] = {}
    for field, number in _pairs(counts):
        line, state = field.rsplit("\0", 1)
        lines.setdefault(line, {})[State(state)] = int(number)
    return lines


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Iterate over fields and values of a hash, without the sentinel."""
    for at in range(0, len(flat), 2):
        if flat[at]:
            yield flat[at].decode(), flat[at + 1]


_settings: Final = msgspec.msgpack.Decoder(dict[str, QueueSettings])


def merge_settings(replies: Sequence[bytes]) -> dict[str, QueueSettings]:
    """Merge the settings of all partitions. A change that was interrupted reached only some of
    them: a queue or task counts as paused if it is paused anywhere, because its jobs wait there."""
    merged: dict[str, QueueSettings] = {}
    for packed in replies:
        for name, own in (_settings.decode(packed) if packed else {}).items():
            known = merged.setdefault(name, own)
            if own.paused and not known.paused:
                merged[name] = msgspec.structs.replace(known, paused=True)
    return merged


def merge_sessions(replies: Sequence[Sequence[Any]]) -> list[SessionRecord]:
    """Merge session records. A session exists in each partition that it claimed from; heartbeats
    renew it in all of them."""
    found: dict[str, SessionRecord] = {}
    for reply in replies:
        for at in range(0, len(reply), _SESSION):
            name, expires_in_ms, jobs, info, command, ids = reply[at : at + _SESSION]
            name = name.decode()
            known = found.get(name) or SessionRecord(
                session=name, expires_in_ms=expires_in_ms, jobs=0
            )
            held = {*known.held, *(id.decode() for id in ids)}
            found[name] = SessionRecord(
                session=name,
                expires_in_ms=max(expires_in_ms, known.expires_in_ms),
                jobs=jobs + known.jobs,
                held=tuple(sorted(held)[:MAX_HELD]),
                info=info or known.info,
                command=merge_commands([command, known.command.encode()]),
            )
    return [found[name] for name in sorted(found)]


def merge_commands(replies: Sequence[bytes]) -> SessionCommand:
    """Merge the command of a session in all partitions; empty where it has none. A partition may
    not know a session or, after an interrupted call, have an earlier command."""
    commands = [SessionCommand(text.decode()) for text in replies if text]
    return max(commands, key=_COMMANDS.index, default=SessionCommand.RUN)


def to_document(member: bytes) -> Document:
    kind, key, revision, body = member.split(b"\0", 3)
    return Document(kind=kind.decode(), key=key.decode(), revision=revision.decode(), body=body)


def to_audit_entry(member: bytes) -> AuditEntry:
    id, at_ms, body = member.split(b"\0", 2)
    return AuditEntry(id=id.decode(), at_ms=int(at_ms), body=body)


class _StoredSchedule(msgspec.Struct, array_like=True, frozen=True):
    revision: str
    due_ms: int  # -1 for never
    watched: tuple[str, ...]


_stored_schedule: Final = msgspec.msgpack.Decoder(_StoredSchedule)


def to_schedule(parts: Sequence[bytes]) -> ScheduleRecord:
    name, packed, note, body, *unfinished = parts
    stored = _stored_schedule.decode(packed)
    return ScheduleRecord(
        name=name.decode(),
        revision=stored.revision,
        due_ms=stored.due_ms if stored.due_ms >= 0 else None,
        body=body,
        note=note,
        watched=stored.watched,
        unfinished=tuple(id.decode() for id in unfinished),
    )


def merge_due(replies: Sequence[Sequence[Any]]) -> DueSchedules:
    """Merge due schedules, with the earliest clock: no schedule may run too early."""
    pages = [[to_schedule(parts) for parts in reply[3:]] for reply in replies]
    later = [reply[1] for reply in replies if reply[1] >= 0]
    return DueSchedules(
        now_ms=min(reply[0] for reply in replies),
        records=tuple(heapq.merge(*pages, key=lambda record: (record.due_ms, record.name))),
        more=any(reply[2] for reply in replies),
        next_in_ms=min(later, default=None),
    )


def merge_schedules(replies: Sequence[Sequence[Any]], limit: int) -> list[ScheduleRecord]:
    found = (to_schedule(parts) for reply in replies for parts in reply[3:])
    return sorted(found, key=lambda record: record.name)[:limit]
