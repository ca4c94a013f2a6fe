"""Groups of dead jobs. `SqlTransaction` keeps the group of each dead job.

1. `tallies` reads groups, and `label` changes the group of a job.
2. `find_grouped` reads the dead jobs of a fingerprint, the latest death first.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.states import State
from windlass.engine.contract import (
    ChangeCode,
    DeadLabel,
    DeadTallies,
    DeadTally,
    Filter,
    check_fingerprint,
    to_tallies,
)
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.transaction import SqlTransaction


def tallies(db: Statements, fingerprints: Sequence[str] | None, limit: int) -> DeadTallies:
    """Read one group more than the limit, to know whether there are more."""
    if fingerprints is None:
        found = db.rows("largest_dead_groups", limit + 1)
    else:
        found = [
            row
            for fingerprint in dict.fromkeys(fingerprints)
            for row in db.rows("dead_groups_of", limit + 1, fingerprint)
        ]
    read = [_to_tally(db, row) for row in found if row[-1] is not None]
    return to_tallies(read, limit, more=False)


def _to_tally(db: Statements, row: Row) -> DeadTally:
    fingerprint, release, queue, task, number, first_ms, last_job = row
    ((example, last_ms),) = db.rows("read_death", last_job) or (("", first_ms),)
    return DeadTally(
        fingerprint=fingerprint,
        release=release,
        queue=queue,
        task=task,
        number=number,
        first_ms=first_ms,
        last_ms=last_ms,
        example=example,
    )


def label(tx: SqlTransaction, labels: Sequence[DeadLabel]) -> list[ChangeCode]:
    for one in labels:
        check_fingerprint(one.fingerprint)
    return [_label(tx, one) for one in labels]


def _label(tx: SqlTransaction, given: DeadLabel) -> ChangeCode:
    job = tx.job(given.id)
    if job is None:
        return ChangeCode.UNKNOWN
    if job.state != State.DEAD or job.finished_ms != given.finished_ms:
        return ChangeCode.REFUSED
    tx.leave_dead_group(job.row)
    tx.enter_dead_group(job, given.fingerprint)
    return ChangeCode.DONE


def find_grouped(db: Statements, filter: Filter, before: Row, number: int) -> list[Row]:
    """Read dead jobs of a fingerprint before an instant and a row, each with its death. All groups
    are in the order of their deaths, so the first entries of each are enough."""
    chosen = (filter.fingerprint, filter.release, filter.queue, filter.task)
    deaths = [
        death
        for (group,) in db.rows("list_group_numbers", *chosen)
        for death in db.rows("find_deaths", group, *before, number)
    ]
    deaths.sort(reverse=True)
    found = ((db.rows("read_job_at", job), at_ms) for at_ms, job in deaths[:number])
    return [(*record[0], at_ms) for record, at_ms in found if record]
