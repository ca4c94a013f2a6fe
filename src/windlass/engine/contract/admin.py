"""The engine contract for operators and maintenance: queue settings, counters, reports (`Tended`,
`Repaired`, `Migrated`, `Finding`), and the operations on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from windlass.core.queues.settings import QueueSettings, without_tasks
from windlass.core.states import State

#: One call promotes, reaps, expires, adopts or purges at most this many jobs per partition.
BITE: Final = 200
#: One call of `tend` reports doomed jobs with at most this many bytes in total, or a single larger
#: job. The caller reads these jobs before their removal, perhaps over a slow link.
SWEEP_BYTES: Final = 4 * 1024 * 1024


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters that the engine maintains. `totals` only grow."""

    queues: Mapping[str, Mapping[State, int]]
    oldest_ready_ms: Mapping[str, int]  # queue -> how long its next job has been ready
    totals: Mapping[str, int]
    #: Queue (without labels) and task -> how many jobs were enqueued. A pair that was not used for
    #: a day may start again at 0. Pairs beyond `MAX_PAIRS` count under `core.history.OTHER`.
    enqueued: Mapping[tuple[str, str], int] = {}


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with settings other than the default."""

    queue: str
    paused: bool = False  # no worker claims from the queue; jobs keep their place
    ageing_ms: int = 0  # waiting time that is worth one level of priority; 0: no ageing
    max_waiting: int = 0  # `put` refuses jobs when this many wait; 0: no limit


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of queue settings. None keeps the stored value."""

    paused: bool | None = None
    ageing_ms: int | None = None  # for jobs that become ready from now on; 0 switches ageing off
    max_waiting: int | None = None  # per line of the queue; 0 removes the limit
    least_age: int | None = None  # raise the age of the queue to this; it never decreases


def list_records(settings: Mapping[str, QueueSettings]) -> list[QueueRecord]:
    """List the queues with settings other than the default, by name."""
    records = [
        QueueRecord(
            queue=queue,
            paused=own.paused,
            ageing_ms=own.ageing_ms,
            max_waiting=own.max_waiting,
        )
        for queue, own in sorted(without_tasks(settings).items())
    ]
    return [record for record in records if record != QueueRecord(queue=record.queue)]


class Emptied(msgspec.Struct, frozen=True):
    """One batch of `purge`: the number of removed jobs and the next cursor, None at the end."""

    number: int
    cursor: str | None


class Grade(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    ADVICE = "advice"  # the place works, and could be safer or faster
    PROBLEM = "problem"  # the place does not work, or will lose jobs


class Finding(msgspec.Struct, frozen=True):
    """One result of `examine`, about the place that stores jobs."""

    grade: Grade
    subject: str  # one or two words, the same for every grade
    text: str  # the fact and, unless the grade is ok, how to fix it


class EngineSpace(msgspec.Struct, frozen=True):
    """The memory, or disk, of the place that stores jobs, in bytes."""

    used: int
    limit: int  # how much can be used in all; 0 if that is not known


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one batch of `repair`: a sentence per fix, made or planned; a sentence per damage
    that cannot be fixed; and the next cursor, None at the end."""

    fixed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    cursor: str | None = None


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one batch of `migrate_jobs`: the number of moved jobs; the number of jobs that are
    left, because a live worker of the old version runs them; the number of steps by which the whole
    place was brought forward; and the next cursor, None at the end."""

    moved: int = 0
    left: int = 0
    steps: int = 0
    cursor: str | None = None


class EndedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose process was suspended in the middle of it, and which was ended because it kept
    its locks."""

    client: str  # the process as the server knows it
    silent_ms: int  # for how long the process had been silent


class Tended(msgspec.Struct, frozen=True, kw_only=True):
    reaped: int = 0
    purged: int = 0
    doomed: tuple[str, ...] = ()  # dead jobs that are past their retention and not in `known`
    more: bool = False  # the batch was full: call again
    #: The stored data is gone: the server or file was emptied, or restarted without its data. Each
    #: engine object reports a loss once.
    emptied: bool = False
    ended_calls: tuple[EndedCall, ...] = ()


class AdminVerbs(Protocol):
    """Manage queues, run maintenance, and diagnose the place that stores jobs."""

    def queues(self) -> list[QueueRecord]:
        """List the queues with settings other than the default, by name."""

    def change_queue(self, queue: str, change: QueueChange) -> None:
        """Change the settings of a queue, even without jobs. A repeated call is harmless."""

    def pause_task(self, task: str) -> None:
        """Pause a task: no job of it starts from now on, in any queue. A claim that meets such a
        job holds it as paused, and it keeps its place; other jobs start. Repeating is harmless."""

    def resume_task(self, task: str) -> int:
        """Resume a task, and make jobs ready at once that were held, at their old places, as
        `adopt` does; return their number. Call again until it is 0."""

    def paused_tasks(self) -> list[str]:
        """List the paused tasks, by name."""

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        """Remove one bounded batch of waiting jobs of a queue (ready, scheduled and retrying, not
        running) and free their idempotency and unique keys. Call again with the returned cursor.
        Jobs that enter the queue in the meantime may stay."""

    def adopt(self, tasks: Sequence[str]) -> int:
        """Make jobs of these tasks ready at once that are held as unroutable, or as paused although
        their task is not any more, at most `BITE` per partition; return their number. `BITE` or
        more means that more are likely; only 0 means that none are left. Leaves out paused
        tasks."""

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        """Do one bounded batch of maintenance: reap expired sessions, purge records past their
        retention, and make jobs ready that are held as paused although their task is not paused,
        because the caller of `resume_task` has died between its steps. A record that holds a unique
        key for a period is kept for the whole period.

        With `known`, a dead job is purged only if `known` names it. Other dead jobs past their
        retention are returned as `doomed`, with at most `SWEEP_BYTES` of payloads and histories, or
        a single larger job. The caller logs doomed jobs and then names them, so that no dead job
        vanishes unlogged, however often the call is repeated. An engine may end a batch early to
        limit its bytes; `more` reports this."""

    def stats(self) -> Stats: ...

    def check(self) -> list[str]:
        """Compare indexes, counters and records; return a sentence for each disagreement."""

    def repair(self, cursor: str | None = None, *, change: bool = False) -> Repaired:
        """Fix one bounded batch of the errors that `check` finds: rebuild indexes and counters from
        the records, which stay unchanged. Without `change`, only report the fixes. Call again with
        the returned cursor. Workers may keep running. No data that could be a job is removed: a job
        without a payload gets an empty one and becomes a dead letter when it runs."""

    def is_used(self) -> bool:
        """Return whether this store was set up, which its first use does. Creates nothing."""

    def examine(self) -> list[Finding]:
        """Diagnose the store of the jobs, for `windlass doctor`: versions, durability, space and
        permissions. Changes and creates nothing. A reason to refuse the first use is returned as a
        problem; only a store that does not answer raises."""

    def space(self) -> EngineSpace:
        """Read how full the store is. Cheap enough for every few seconds."""

    def migrate(self) -> int:
        """Prepare the store for this version; return its format. Migrates an older format if that
        takes one step, and otherwise refuses the format."""

    def migrate_jobs(self, cursor: str | None = None) -> Migrated:
        """Move one bounded batch of jobs of an older format, which `migrate` refuses, to the format
        of this version. Call again with the returned cursor. A repeated migration moves the jobs
        that an earlier one left, and jobs that were added since."""

    def shutdown(self) -> None:
        """Close connections and end threads. The object stays usable and reconnects."""
