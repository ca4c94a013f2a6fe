"""Engine contract types for everything except jobs: schedules, sessions, counters, queue settings,
and the reports of maintenance and diagnostics (`Tended`, `Finding`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from windlass.core.queues.settings import QueueSettings
from windlass.core.states import State
from windlass.engine.contract.jobs import NewJob


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A compare-and-set of one schedule, with the jobs that follow from it, in one atomic step. The
    change applies only if the schedule is still in the revision `expected`. An empty `expected`
    means that the schedule must not exist yet.

    To fire a schedule is also a change: it stores the instant of the next occurrence and puts the
    jobs of this one. So exactly one caller fires each occurrence, and a repeat after a lost reply
    changes nothing.

    Engines do not decode `body` and `note`. The jobs in `jobs`, `watched` and `cancelled` must
    belong to the partition of the schedule."""

    name: str
    expected: str
    revision: str  # unique: identifies the change when it is repeated
    due_ms: int | None  # when to examine the schedule again; None for never
    note: bytes  # the progress of the schedule
    body: bytes | None = None  # the declaration; None keeps the stored one
    watched: tuple[str, ...] = ()  # jobs whose end the schedule tracks
    cancelled: tuple[str, ...] = ()  # jobs to cancel, as `cancel` does
    jobs: tuple[NewJob, ...] = ()  # jobs to put, as `put` does


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    revision: str
    due_ms: int | None
    body: bytes
    note: bytes
    watched: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()  # the ids in `watched` that exist and have not ended


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules that are due, earliest first. A schedule stays due until it is changed."""

    now_ms: int  # the engine's clock, for the caller that decides what to do
    records: tuple[ScheduleRecord, ...] = ()
    more: bool = False  # the limit was reached: change these, then call again
    next_in_ms: int | None = None  # time until the next schedule that is not due yet


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was not declared dead. Its lease may have run out."""

    session: str
    expires_in_ms: int
    jobs: int
    held: tuple[str, ...] = ()  # the ids of its jobs, sorted; at most MAX_HELD
    info: bytes = b""  # the `info` of its last heartbeat that had one


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters that the engine maintains. `totals` only grow."""

    queues: Mapping[str, Mapping[State, int]]
    oldest_ready_ms: Mapping[str, int]  # per queue, how long its next job has been ready
    totals: Mapping[str, int]


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with settings other than the default."""

    queue: str
    paused: bool = False  # no worker claims from it; jobs keep their place
    ageing_ms: int = 0  # waiting time that is worth one level of priority; 0: no ageing
    max_waiting: int = 0  # `put` refuses jobs when this many wait; 0: no limit


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of queue settings. None keeps the stored value."""

    paused: bool | None = None
    ageing_ms: int | None = None  # for jobs that become ready from now on; 0 switches it off
    max_waiting: int | None = None  # per line of the queue; 0 removes the limit


def list_records(settings: Mapping[str, QueueSettings]) -> list[QueueRecord]:
    """List the queues with settings other than the default, by name."""
    records = [
        QueueRecord(
            queue=queue,
            paused=own.paused,
            ageing_ms=own.ageing_ms,
            max_waiting=own.max_waiting,
        )
        for queue, own in sorted(settings.items())
    ]
    return [record for record in records if record != QueueRecord(queue=record.queue)]


class Emptied(msgspec.Struct, frozen=True):
    """One batch of `purge`: the number of removed jobs and the next cursor, None at the end."""

    number: int
    cursor: str | None


class Introductions(msgspec.Struct, frozen=True):
    """One batch of `introductions`: session -> info, and the next cursor, None at the end."""

    infos: dict[str, bytes]
    cursor: str | None


class Grade(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    ADVICE = "advice"  # it works, and could be safer or faster
    PROBLEM = "problem"  # it does not work, or will lose jobs


class Finding(msgspec.Struct, frozen=True):
    """One result of a diagnostic check of the place that stores jobs."""

    grade: Grade
    subject: str  # one or two words, the same for every grade
    text: str  # what was found and, unless the grade is ok, what to do


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of `repair`: a sentence per fix, made or planned; a sentence per damage that cannot
    be fixed; and the next cursor, None at the end."""

    fixed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    cursor: str | None = None


class Tended(msgspec.Struct, frozen=True, kw_only=True):
    reaped: int = 0
    purged: int = 0
    doomed: tuple[str, ...] = ()  # dead jobs that are past their retention and not in `known`
    more: bool = False  # the batch was full: call again
    #: The stored data is gone: the place was emptied, or restarted without its data. Each engine
    #: object reports this once.
    emptied: bool = False
