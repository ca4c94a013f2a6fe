"""The engine contract for schedules: records, changes, and the operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from windlass.engine.contract.jobs import NewJob


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A compare-and-set of one schedule, with its new jobs, in one atomic step. The change applies
    only if the schedule is still in the revision `expected`. An empty `expected` means that the
    schedule must not exist yet.

    To fire a schedule is also a change: the change stores the instant of the next occurrence and
    puts the jobs of the current occurrence. So exactly one caller fires each occurrence, and a
    repeat after a lost reply changes nothing.

    Engines do not decode `body` and `note`. The jobs in `jobs`, `watched` and `cancelled` must
    belong to the partition of the schedule."""

    name: str
    expected: str
    revision: str  # unique: identifies a repeated change
    due_ms: int | None  # when to examine the schedule again; None for never
    note: bytes  # the progress of the schedule
    body: bytes | None = None  # the declaration; None keeps the stored declaration
    watched: tuple[str, ...] = ()  # jobs of the schedule to check for their end
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

    now_ms: int  # the engine's clock, for decisions of the caller
    records: tuple[ScheduleRecord, ...] = ()
    more: bool = False  # the limit was reached: change these schedules, then call again
    next_in_ms: int | None = None  # time until the next schedule that is not due yet


class ScheduleVerbs(Protocol):
    """Read and change schedules."""

    def schedule_partition(self, name: str) -> int:
        """Compute the partition of a schedule and of its jobs. Makes no request."""

    def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        """Apply changes, each completely or not at all. True means that this call, or an earlier
        call with the same revision, applied the change. At most 1,000 jobs in total."""

    def get_schedules(self, names: Sequence[str]) -> list[ScheduleRecord | None]: ...

    def list_schedules(self, after: str = "", limit: int = 100) -> list[ScheduleRecord]:
        """List the next schedules, in the order of their names."""

    def due_schedules(self, skip: Sequence[str] = (), limit: int = 100) -> DueSchedules:
        """List schedules that are due, except those in `skip`; at most `limit` per partition.
        Changes nothing."""

    def remove_schedule(self, name: str) -> bool:
        """Remove a schedule but not its jobs; return False if the schedule does not exist."""
