"""Due occurrences of a schedule: which become jobs, their job ids, and their start times.

1. `due` returns the occurrences to enqueue and the next stored occurrence. Its work is bounded,
   even after a long outage.
2. `occurrence_id` derives the job id of an occurrence, so that two workers, or a retry after a
   crash, make only one job.
3. `run_ms` adds the jitter.
4. `next_after_change` returns the next stored occurrence when a schedule is replaced.

All instants are occurrences in UTC milliseconds by the engine's clock. Jitter only delays the start
of the job: it changes neither the order of occurrences nor their ids.
"""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.core.ids import blake2b, derived_id
from windlass.core.schedules.triggers import All, Schedule

#: An occurrence is on time up to this delay. So a schedule of one second loses no run when a worker
#: is killed or paused for a moment.
ON_TIME_MS: Final = 10_000


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """The due occurrences of a schedule at an instant."""

    occurrences: tuple[int, ...] = ()  # to enqueue now, in order
    next_ms: int | None  # the next occurrence; None when the schedule is over
    skipped_ms: tuple[int, int] | None = None  # the first and the last skipped occurrence


def due(schedule: Schedule, next_ms: int, now_ms: int) -> Due:
    """The due occurrences at `now_ms`. `next_ms` is the stored next occurrence.

    When all due occurrences are on time, all of them run. Otherwise `missed` decides: "skip" runs
    the newest occurrence if it is on time, "once" runs it in any case, and `All` runs the newest
    occurrences up to its limit. Skipped occurrences are older than those that run.
    """
    first_ms = schedule.next_after(next_ms - 1)  # `next_ms`, unless the schedule changed
    if first_ms is None or first_ms > now_ms:
        return Due(next_ms=first_ms)
    kept = _kept(schedule, first_ms, now_ms)
    return Due(
        occurrences=kept,
        next_ms=schedule.next_after(now_ms),
        skipped_ms=_skipped(schedule, first_ms, kept[0] if kept else now_ms + 1),
    )


def _kept(schedule: Schedule, first_ms: int, now_ms: int) -> tuple[int, ...]:
    if now_ms - first_ms <= ON_TIME_MS:
        return _newest(schedule, first_ms, now_ms, ON_TIME_MS)
    match schedule.missed:
        case "skip":
            return _newest(schedule, max(first_ms, now_ms - ON_TIME_MS), now_ms, 1)
        case "once":
            return _newest(schedule, first_ms, now_ms, 1)
        case All(limit=limit):
            return _newest(schedule, first_ms, now_ms, limit)


def _newest(schedule: Schedule, first_ms: int, now_ms: int, limit: int) -> tuple[int, ...]:
    """At most `limit` of the newest occurrences between two instants, in order."""
    found: list[int] = []
    at_ms = schedule.last_until(now_ms)
    while at_ms is not None and at_ms >= first_ms and len(found) < limit:
        found.append(at_ms)
        at_ms = schedule.last_until(at_ms - 1)
    return tuple(reversed(found))


def _skipped(schedule: Schedule, first_ms: int, end_ms: int) -> tuple[int, int] | None:
    last_ms = schedule.last_until(end_ms - 1)
    return None if last_ms is None or last_ms < first_ms else (first_ms, last_ms)


def next_after_change(schedule: Schedule, next_ms: int | None, now_ms: int) -> int | None:
    """The next occurrence of a new schedule. `next_ms` is the stored next of the replaced one.

    When `next_ms` is due and not yet enqueued, the new schedule continues from there: the change
    must not lose an occurrence that both schedules have.
    """
    outstanding_ms = now_ms if next_ms is None else min(next_ms - 1, now_ms)
    return schedule.next_after(outstanding_ms)


def occurrence_id(name: str, occurrence_ms: int, partition: int = 0) -> str:
    """The id of the job for an occurrence: the same in every process."""
    return derived_id(occurrence_ms, f"schedule:{name}", partition)


def run_ms(schedule: Schedule, name: str, occurrence_ms: int) -> int:
    """The start time of the job for an occurrence: the occurrence plus its jitter."""
    digest = blake2b(f"jitter:{occurrence_ms}:{name}".encode(), digest_size=8).digest()
    return occurrence_ms + int.from_bytes(digest) % (schedule.jitter_ms + 1)
