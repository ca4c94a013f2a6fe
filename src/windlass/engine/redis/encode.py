"""Encode values of the contract as the flat arguments of a script.

Fields that Lua reads are sent as one MessagePack head per item. Bodies, results and errors are
separate, unencoded arguments. `size_of_...` says how many bytes an item has, for calls of bounded
size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from windlass.core.queues.labels import queue_of
from windlass.core.states import Event
from windlass.engine.contract import (
    IDEMPOTENCY_MS,
    MAX_ALL_STEPS_BYTES,
    MAX_AUDIT,
    MAX_DOCUMENTS,
    MAX_STEPS,
    MAX_WHY,
    SWEEP_BYTES,
    WATCH_MS,
    AuditEntry,
    Beat,
    Buried,
    DocumentChange,
    JobChange,
    NewJob,
    NewStep,
    Outcome,
    Plan,
    Progressed,
    QueueChange,
    Released,
    Retried,
    Revival,
    ScheduleChange,
    Snoozed,
    Succeeded,
    UniqueKey,
    Unroutable,
    check_fingerprint,
)
from windlass.engine.contract.jobs import check_times
from windlass.errors import EngineError

_encode = msgspec.msgpack.Encoder().encode
_NOT_SET: Final = -1
_UNIQUE_HEAD: Final = 14  # words in the head of a job with a unique key
#: A call of more bytes is stored apart from its record, as in `lib/layout.lua`.
MOST_INLINE_CALL: Final = 1024
#: The rank of priority 0. Lower ranks come first in line.
_RANK: Final = 100
_FRONT: Final = struct.Struct(">bHH")
_kind_of: Final = attrgetter("queue", "task", "priority")
_SUCCEED: Final = str(Event.SUCCEED)  # text is encoded faster than a member of an enumeration


def of_watch(channel: str, ids: Sequence[str]) -> list[bytes]:
    return [channel.encode(), b"%d" % WATCH_MS, *of_texts(ids)]


def are_plain(jobs: Sequence[NewJob]) -> bool:
    """Whether the script `put` can store all of these jobs: they have no keys, are ready at once
    and never expire, and their calls fit into their records."""
    for job in jobs:
        if (
            job.idempotency_key is not None
            or job.unique is not None
            or job.run_in_ms
            or not job.run_after_ms is job.expires_ms is job.expires_in_ms is None
            or len(job.payload) > MOST_INLINE_CALL
        ):
            return False
    return True


def of_plain_jobs(jobs: Sequence[NewJob]) -> list[bytes]:
    """Encode plain jobs, by runs of jobs with the same queue, task and priority."""
    arguments: list[bytes] = []
    for kind, run in groupby(jobs, _kind_of):
        queue, rank, counter, front = _of_kind(*kind)
        of_run = list(run)
        arguments += (queue, rank, b"%d" % len(of_run), counter)
        for job in of_run:
            arguments += (job.id.encode(), front + job.payload)
    return arguments


@lru_cache(maxsize=1024)
def _of_kind(queue: str, task: str, priority: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Encode what all plain jobs of a task in a queue have in common: the queue, the rank, the
    counter of the queue and task, and their records from the priority to the call, as in
    `lib/layout.lua`."""
    check_name("queue", queue)
    words = queue.encode(), task.encode()
    front = _FRONT.pack(priority, *map(len, words)) + b"".join(words)
    counter = b"e:%b\0%b" % (queue_of(queue).encode(), words[1])
    return words[0], b"%d" % (_RANK - priority), counter, front


def of_jobs(jobs: Sequence[NewJob], idempotency_ms: int = IDEMPOTENCY_MS) -> list[bytes]:
    """Inlined: for a single job, every function call shows in measurements."""
    arguments: list[bytes] = []
    for job in jobs:
        if "\0" in job.queue:
            check_name("queue", job.queue)
        after_ms, ends_ms, lasts_ms = job.run_after_ms, job.expires_ms, job.expires_in_ms
        if (
            job.run_in_ms
            or job.unique is not None
            or not after_ms is ends_ms is lasts_ms is None  # `has_times`, inlined
        ):
            check_times(job)
        head: tuple[object, ...] = (
            job.id,
            job.task,
            job.queue,
            job.priority,
            _NOT_SET if after_ms is None else max(0, after_ms),
            job.run_in_ms,
            _NOT_SET if ends_ms is None else max(0, ends_ms),
            _NOT_SET if lasts_ms is None else max(0, lasts_ms),
            False if job.idempotency_key is None else job.scoped_key,
            job.fingerprint,
        )
        if job.unique is not None:
            head += _of_unique(job.unique)
        if idempotency_ms != IDEMPOTENCY_MS and job.idempotency_key is not None:
            head = _with_retention(head, idempotency_ms)
        arguments += (_encode(head), job.payload)
    return arguments


def _with_retention(head: tuple[object, ...], idempotency_ms: int) -> tuple[object, ...]:
    """Add how long the key is remembered, after the words of a unique key, if it has one."""
    return (*head, *(False,) * (_UNIQUE_HEAD - len(head)), idempotency_ms)


def _of_unique(unique: UniqueKey) -> tuple[object, ...]:
    check_name("unique key", unique.key)
    return unique.key, unique.until, unique.period_ms, unique.on_conflict


def of_outcomes(outcomes: Sequence[Outcome]) -> list[bytes]:
    """Encode all heads in one array, five items each, then the bytes of each outcome. No outcomes
    give no arguments. Successes, the usual case, come first and take a fast path."""
    heads: list[object] = []
    bodies: list[bytes] = []
    for outcome in outcomes:
        if type(outcome) is Succeeded:
            result = outcome.result
            has_result = result is not None
            heads += (outcome.id, outcome.token, _SUCCEED, has_result, outcome.result_ttl_ms)
            bodies.append(result or b"")
        else:
            details, body = _details(outcome)
            heads += (outcome.id, outcome.token, *details)
            bodies.append(body)
    return [_encode(heads), *bodies] if heads else []


def _details(outcome: Outcome) -> tuple[tuple[Event, object, object], bytes]:
    """Encode an outcome other than a success: its event, two words for the script, and the bytes to
    store. The words depend on the event, as `ENDINGS` in `lib/finish.lua` takes them; False fills
    a word that the event does not use."""
    match outcome:
        case Retried(delay_ms=delay_ms, error=error):
            return (Event.RETRY, delay_ms, False), error
        case Buried(reason=reason, error=error, started=started, fingerprint=fingerprint):
            check_fingerprint(fingerprint)
            return (Event.BURY, f"{reason} {fingerprint}", started), error
        case Released(started=started, alone=alone):
            return (Event.RELEASE, started, alone), b""
        case Snoozed(delay_ms=delay_ms):
            return (Event.SNOOZE, delay_ms, False), b""
        case Unroutable(why=why):
            return (Event.UNROUTABLE, False, False), why[:MAX_WHY]
        case Progressed(progress=progress):
            return (Event.PROGRESS, False, False), progress
        case _:
            raise TypeError(f"Expected one of the outcomes of the contract, found {outcome!r}.")


def of_plan(plan: Plan) -> list[bytes]:
    queues = [queue.encode() for queue in plan.queues]
    shares: list[bytes] = []
    for share in plan.shares:
        shares += (b"%d" % share.first, b"%d" % share.number, share.turns)
    numbers = [b"%d" % len(part) for part in (queues, plan.shares, plan.labels)]
    suspects = b"1" if plan.suspects else b"0"
    if plan.tasks:
        suspects += _encode(plan.tasks)
    return [suspects, *numbers, *queues, *shares, *of_texts(plan.labels)]


def of_change(queue: str, change: QueueChange, partitions: int) -> list[bytes]:
    """Encode a change of settings; "" keeps a value. Each partition has a part of a limit."""
    paused = {True: b"1", False: b"0", None: b""}[change.paused]
    ageing = b"" if change.ageing_ms is None else b"%d" % change.ageing_ms
    age = b"" if change.least_age is None else b"%d" % change.least_age
    if change.max_waiting is None:
        return [queue.encode(), paused, ageing, b"", b"", age]
    part = -(-change.max_waiting // partitions)
    return [queue.encode(), paused, ageing, b"%d" % change.max_waiting, b"%d" % part, age]


def of_beats(
    beats: Sequence[Beat], is_home: Callable[[str], bool], held: Sequence[Sequence[str] | None]
) -> list[bytes]:
    """Encode heartbeats for one partition. The `info` of a session is stored in one partition, its
    home. `held` has, for each heartbeat, its jobs in this partition."""
    arguments: list[bytes] = []
    for beat, here in zip(beats, held, strict=True):
        info = beat.info if beat.info and is_home(beat.session) else b""
        arguments += (beat.session.encode(), beat.newest.encode(), info)
        arguments += (*_of_list(beat.nonces), *_of_list(here))
    return arguments


def _of_list(texts: Sequence[str] | None) -> list[bytes]:
    """Encode texts after their number, which is -1 if there is no list."""
    return [b"-1"] if texts is None else [b"%d" % len(texts), *of_texts(texts)]


def of_document_changes(changes: Sequence[DocumentChange]) -> list[bytes]:
    arguments = [b"%d" % MAX_DOCUMENTS]
    for change in changes:
        arguments += of_texts((change.kind, change.key, change.expected, change.revision))
        arguments += (b"0", b"") if change.body is None else (b"1", change.body)
    return arguments


def of_steps(steps: Sequence[NewStep]) -> list[bytes]:
    arguments = [b"%d" % MAX_STEPS, b"%d" % MAX_ALL_STEPS_BYTES]
    for new in steps:
        arguments += (*of_texts((new.id, new.token, new.step.name)), new.step.value)
    return arguments


def of_audit_entries(entries: Sequence[AuditEntry]) -> list[bytes]:
    arguments = [b"%d" % MAX_AUDIT]
    for entry in entries:
        arguments += (entry.id.encode(), entry.body)
    return arguments


def of_changes(changes: Sequence[ScheduleChange]) -> list[bytes]:
    arguments: list[bytes] = []
    for change in changes:
        head = (
            change.name,
            change.expected,
            change.revision,
            _instant(change.due_ms),
            change.body is not None,
            change.cancelled,
            len(change.jobs),
        )
        record = (change.revision, _instant(change.due_ms), change.watched)
        arguments += (_encode(head), _encode(record), change.note, change.body or b"")
        arguments += of_jobs(change.jobs)
    return arguments


def of_revivals(revivals: Sequence[Revival]) -> list[bytes]:
    """Encode revivals. An empty payload keeps the stored one: no real payload is empty."""
    arguments: list[bytes] = []
    for revival in revivals:
        finished = b"%d" % _instant(revival.finished_ms)
        arguments += (revival.id.encode(), finished, revival.payload or b"")
    return arguments


def of_job_changes(changes: Sequence[JobChange]) -> list[bytes]:
    arguments: list[bytes] = []
    for change in changes:
        if change.queue is not None:
            check_name("queue", change.queue)
        head = (
            change.id,
            change.seen or "",
            change.queue or "",
            _NOT_SET if change.run_in_ms is None else max(0, change.run_in_ms),
            change.payload is not None,
            change.seen_payload is not None,
        )
        arguments += (_encode(head), change.payload or b"", change.seen_payload or b"")
    return arguments


def of_known(known: Sequence[str] | None, here: Sequence[str]) -> list[bytes]:
    """Encode whether dead jobs must be named, the byte limit of unnamed ones, and the names."""
    return [b"0" if known is None else b"1", b"%d" % SWEEP_BYTES, *of_texts(here)]


def of_texts(texts: Sequence[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def check_name(what: str, name: str) -> None:
    """Refuse a zero byte, which separates names inside the indexes."""
    if "\0" in name:
        raise EngineError(f"Expected a {what} without a zero byte, found {name[:80]!r}.")


def _instant(milliseconds: int | None) -> int:
    return _NOT_SET if milliseconds is None else max(0, milliseconds)


# ------------------------------------------------------------------------------------------ sizes

size_of_outcome: Final[Callable[[Outcome], int]] = attrgetter("size")
size_of_job_change: Final[Callable[[JobChange], int]] = attrgetter("size")


def size_of_job(job: NewJob) -> int:
    return len(job.payload)


def size_of_revival(revival: Revival) -> int:
    return len(revival.payload or b"")


def size_of_change(change: ScheduleChange) -> int:
    return len(change.body or b"") + sum(map(size_of_job, change.jobs))


def size_of_entry(entry: AuditEntry) -> int:
    return len(entry.body)
