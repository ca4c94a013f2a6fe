"""The engine contract for schedules: their records and changes, and the verbs with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

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


class ScheduleVerbs(Protocol):
    """Read and change schedules."""

    def schedule_partition(self, name: str) -> int:
        """Compute the partition of a schedule and of the ids of its jobs. Makes no request."""

    def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        """Apply changes, each completely or not at all. True means that the change applies, through
        this call or an earlier one with the same revision. At most 1,000 jobs in total."""

    def get_schedules(self, names: Sequence[str]) -> list[ScheduleRecord | None]: ...

    def list_schedules(self, after: str = "", limit: int = 100) -> list[ScheduleRecord]:
        """List the next schedules, in the order of their names."""

    def due_schedules(self, skip: Sequence[str] = (), limit: int = 100) -> DueSchedules:
        """List schedules that are due, except those in `skip`; at most `limit` per partition.
        Changes nothing."""

    def remove_schedule(self, name: str) -> bool:
        """Remove a schedule and keep its jobs; return whether it existed. A repeat gives False."""
