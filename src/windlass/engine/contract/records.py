"""What an engine keeps beside jobs, in the words of its contract: schedules, sessions, counters and
the settings of queues; and what it says of its own place and upkeep (`Finding`, `Tended`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from windlass.core.queues.settings import QueueSettings
from windlass.core.states import State
from windlass.engine.contract.jobs import NewJob


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule is to be from now on, and what follows from that, in one step. It counts only
    if the schedule is still in the revision `expected`, which is "" where there must be none yet.

    To fire is such a change: the instant of the next occurrence, and the jobs of this one. So of
    all who fire an occurrence one does, and whoever does so again after a lost reply does nothing.

    Engines look into neither `body` nor `note`. The jobs, and those to be watched and cancelled,
    belong into the partition of the schedule."""

    name: str
    expected: str
    revision: str  # unlike all before: the change is recognised by it when it is repeated
    due_ms: int | None  # when to look at it again; None for not at all
    note: bytes  # how far it has come
    body: bytes | None = None  # when and what; None leaves it as it is
    watched: tuple[str, ...] = ()  # jobs of which it is told whether they have ended
    cancelled: tuple[str, ...] = ()  # jobs to be cancelled, as by `cancel`
    jobs: tuple[NewJob, ...] = ()  # to be put, as by `put`


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    revision: str
    due_ms: int | None
    body: bytes
    note: bytes
    watched: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()  # those of `watched` that are there and have not ended


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules to be looked at now, the earliest first; they stay so until they are changed."""

    now_ms: int  # of the engine's clock, for whoever decides what to do about them
    records: tuple[ScheduleRecord, ...] = ()
    more: bool = False  # the limit was reached: when these are changed, look again
    next_in_ms: int | None = None  # when the next one is due that is not yet


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was not declared dead. When its lease has run out, perhaps it is."""

    session: str
    expires_in_ms: int
    jobs: int
    held: tuple[str, ...] = ()  # the ids of its jobs, sorted; at most MAX_HELD of them
    info: bytes = b""  # what it said of itself last


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters, read and never counted. `totals` only grow."""

    queues: Mapping[str, Mapping[State, int]]
    oldest_ready_ms: Mapping[str, int]  # per queue, how long the next in line has been ready
    totals: Mapping[str, int]


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue whose settings are not the usual ones."""

    queue: str
    paused: bool = False  # nothing of it is claimed; jobs keep their place
    ageing_ms: int = 0  # so much waiting is worth a level of priority; 0: none is
    max_waiting: int = 0  # with so many that wait, `put` takes no more in; 0: there is no bound


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change in the settings of a queue; None leaves it as it is."""

    paused: bool | None = None
    ageing_ms: int | None = None  # for what becomes ready from now on; 0 switches it off
    max_waiting: int | None = None  # of each line of the queue; 0 takes the bound away


def list_records(settings: Mapping[str, QueueSettings]) -> list[QueueRecord]:
    """The queues among these whose settings are not the usual ones, by name."""
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
    """One bite of `purge`: how many were removed, and how to go on; None when all was seen."""

    number: int
    cursor: str | None


class Introductions(msgspec.Struct, frozen=True):
    """One bite of `introductions`: session -> info, and how to go on; None when all was seen."""

    infos: dict[str, bytes]
    cursor: str | None


class Grade(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    ADVICE = "advice"  # it works, and could be safer or faster
    PROBLEM = "problem"  # it does not work, or will lose jobs


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at in the place where jobs live."""

    grade: Grade
    subject: str  # a word or two: the same whatever the grade
    text: str  # what was found and, unless it is ok, what to do


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """One bite of `repair`: a sentence for each thing that was set right, or would be, and for each
    that cannot be; and how to go on, None at the end."""

    fixed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    cursor: str | None = None


class Tended(msgspec.Struct, frozen=True, kw_only=True):
    reaped: int = 0
    purged: int = 0
    doomed: tuple[str, ...] = ()  # dead jobs whose time has passed and that were not named
    more: bool = False  # the bite was full: call again
    #: What was stored before is gone: the place was emptied, or came back without its data. Said
    #: once by each engine object.
    emptied: bool = False
