"""`check`: verify that the file is intact and that indexes, counters and records agree.

Each query below selects rows that should not exist; every row becomes a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import apsw

from windlass.engine.sql.transaction import read_settings
from windlass.engine.sql.verbs.queues import ready_lines
from windlass.engine.sqlite import line_index
from windlass.engine.sqlite.statements import SQLiteStatements


class Disagreement(NamedTuple):
    """A contradiction in the stored data, and its fix. Without a fix, it is only reported."""

    sentence: str  # with placeholders {0}, {1} ... for the columns of the query
    query: str  # selects the wrong rows
    fix: str = ""  # says in words what `statement` does
    statement: str = ""  # has the columns as parameters, and `:now`, `:lease`, `:keep`


DISAGREEMENTS: Final = (
    Disagreement(
        "Job {0} has no payload.",
        "SELECT id FROM jobs WHERE call IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM payloads WHERE job = jobs.row)",
        "it gets an empty one, with which it becomes a dead letter when it is run",
        "UPDATE jobs SET call = x'' WHERE id = :c0",
    ),
    Disagreement(
        "A payload is stored for row {0}, which is no job with a large call.",
        "SELECT job FROM payloads "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE row = payloads.job AND call IS NULL)",
        "it is removed",
        "DELETE FROM payloads WHERE job = :c0",
    ),
    Disagreement(
        "A failure is stored for row {0}, which is no job.",
        "SELECT DISTINCT job FROM failures "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE row = failures.job)",
        "it is removed",
        "DELETE FROM failures WHERE job = :c0",
    ),
    Disagreement(
        "Job {0} is running for session {1}, which is unknown: no worker will ever take it back.",
        "SELECT id, session FROM jobs WHERE state = 'running' "
        "AND NOT EXISTS (SELECT 1 FROM sessions WHERE session = jobs.session AND gone < 2)",
        "the session gets a lease, and beats or loses the job",
        "INSERT INTO sessions (session, expires_ms) "
        "SELECT :c1, :now + :lease WHERE :c1 IS NOT NULL "
        "ON CONFLICT (session) DO UPDATE SET gone = min(gone, 1)",
    ),
    Disagreement(
        "Queue {0} counts {2} jobs as {1}, but there are {3}.",
        "SELECT queue, state, sum(counted), sum(stored) FROM ("
        "SELECT queue, state, number AS counted, 0 AS stored FROM counters WHERE number > 0 "
        "UNION ALL SELECT queue, state, 0, count(*) FROM jobs GROUP BY queue, state) "
        "GROUP BY queue, state HAVING sum(counted) <> sum(stored)",
        "corrected",
        "INSERT INTO counters (queue, state, number) VALUES (:c0, :c1, :c3) "
        "ON CONFLICT (queue, state) DO UPDATE SET number = :c3",
    ),
    Disagreement(
        "Job {0} has a place or row beyond the sequence.",
        "SELECT id FROM jobs, meta WHERE jobs.place > meta.sequence OR jobs.row > meta.sequence",
        "the sequence continues after it",
        "UPDATE meta SET sequence = max(sequence, "
        "(SELECT max(place, row) FROM jobs WHERE id = :c0))",
    ),
    Disagreement(
        "Job {0} is held as {1} in state {2}.",
        "SELECT id, hold, state FROM jobs WHERE hold IS NOT NULL AND state <> 'ready'",
        "the hold ends",
        "UPDATE jobs SET hold = NULL WHERE id = :c0",
    ),
    Disagreement(
        "Job {0} is {1}, and its time to be kept is {2}.",
        "SELECT id, state, coalesce(keep_until_ms, 'not set') FROM jobs "
        "WHERE (state IN ('succeeded', 'dead', 'cancelled')) <> (keep_until_ms IS NOT NULL)",
        "corrected",
        "UPDATE jobs SET keep_until_ms = CASE WHEN state IN ('succeeded', 'dead', 'cancelled') "
        "THEN coalesce(finished_ms, :now) + :keep END, "
        "finished_ms = CASE WHEN state IN ('succeeded', 'dead', 'cancelled') "
        "THEN coalesce(finished_ms, :now) ELSE finished_ms END WHERE id = :c0",
    ),
    Disagreement(
        "Job {0} is {1}, held as {2}, and its due time is {3}.",
        "SELECT id, state, coalesce(hold, 'none'), coalesce(due_ms, 'not set') FROM jobs "
        "WHERE (state IN ('scheduled', 'retrying') OR hold IS NOT NULL) "
        "<> (due_ms IS NOT NULL)",
        "corrected",
        "UPDATE jobs SET due_ms = CASE WHEN state IN ('scheduled', 'retrying') "
        "OR hold IS NOT NULL THEN coalesce(due_ms, :now) END WHERE id = :c0",
    ),
    Disagreement(
        "Job {0} is in state {1}, which does not exist.",
        "SELECT id, state FROM jobs WHERE state NOT IN ('waiting', 'scheduled', 'ready', "
        "'running', 'retrying', 'succeeded', 'dead', 'cancelled')",
    ),
    Disagreement(
        "Unique key {1} of task {0} leads to job {2}, which has another one or does not exist.",
        "SELECT task, key, id FROM unique_keys WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE "
        "id = unique_keys.id AND task = unique_keys.task AND unique_key = unique_keys.key)",
        "it leads nowhere",
        "DELETE FROM unique_keys WHERE task = :c0 AND key = :c1",
    ),
    Disagreement(
        "Job {0} is {1} and holds the unique key {2}, but that does not lead to it.",
        "SELECT id, state, unique_key FROM jobs "
        "WHERE (unique_until IN ('end', 'success') AND state IN "
        "('waiting', 'scheduled', 'ready', 'retrying', 'running') "
        "OR unique_until = 'success' AND state = 'dead') "
        "AND NOT EXISTS (SELECT 1 FROM unique_keys "
        "WHERE task = jobs.task AND key = jobs.unique_key AND id = jobs.id)",
        "it leads to it",
        "INSERT INTO unique_keys (task, key, id) SELECT task, unique_key, id FROM jobs "
        "WHERE id = :c0 ON CONFLICT (task, key) DO NOTHING",
    ),
    Disagreement(
        "Job {0} was started {1} times, but its budgets account for {2}.",
        "SELECT id, starts, attempt + crashes + losses + interruptions + snoozes FROM jobs "
        "WHERE starts <> attempt + crashes + losses + interruptions + snoozes",
    ),
    Disagreement(
        "Row {0} is in a group of dead jobs, but is no dead job, or of another group or instant.",
        "SELECT job FROM deaths WHERE NOT EXISTS ("
        "SELECT 1 FROM dead_jobs JOIN dead_groups USING (release, queue, task) "
        "WHERE row = job AND number = dead_group AND dead_jobs.at_ms = deaths.at_ms)",
        "it leaves the group",
        "DELETE FROM deaths WHERE job = :c0",
    ),
    Disagreement(
        "Job {0} is dead and in no group.",
        "SELECT id FROM dead_jobs WHERE row NOT IN (SELECT job FROM deaths)",
        "it gets one, without a fingerprint",
        "INSERT INTO dead_groups (fingerprint, release, queue, task, jobs) "
        "SELECT '', release, queue, task, 0 FROM dead_jobs WHERE id = :c0 "
        "ON CONFLICT DO NOTHING; "
        "INSERT INTO deaths (job, dead_group, at_ms) "
        "SELECT row, number, at_ms FROM dead_jobs JOIN dead_groups USING (release, queue, task) "
        "WHERE fingerprint = '' AND id = :c0",
    ),
    Disagreement(
        "A group of dead jobs of task {1} counts {2}, but there are {3}.",
        "SELECT number, task, jobs, "
        "(SELECT count(*) FROM deaths WHERE dead_group = number) AS stored "
        "FROM dead_groups WHERE jobs <> stored",
        "corrected",
        "UPDATE dead_groups SET jobs = :c3 WHERE number = :c0",
    ),
    Disagreement(
        "A group of dead jobs of task {1} is empty.",
        "SELECT number, task FROM dead_groups WHERE jobs = 0",
        "it is removed",
        "DELETE FROM dead_groups WHERE number = :c0",
    ),
    Disagreement(
        "Schedule {0} has no body.",
        "SELECT name FROM schedules "
        "WHERE NOT EXISTS (SELECT 1 FROM schedule_bodies WHERE schedule = schedules.row)",
        "what is left of it is removed; the app declares it again",
        "DELETE FROM schedules WHERE name = :c0",
    ),
    Disagreement(
        "A body is stored for row {0}, which is no schedule.",
        "SELECT schedule FROM schedule_bodies "
        "WHERE NOT EXISTS (SELECT 1 FROM schedules WHERE row = schedule_bodies.schedule)",
        "it is removed",
        "DELETE FROM schedule_bodies WHERE schedule = :c0",
    ),
)


def check(connection: apsw.Connection) -> list[str]:
    return [
        *file_problems(connection),
        *_disagreements(connection),
        *(text for _, text in wrong_lines(connection)),
    ]


def file_problems(connection: apsw.Connection) -> Iterator[str]:
    for (text,) in connection.execute("PRAGMA integrity_check").fetchall():
        if text != "ok":
            yield f"The file is damaged: {text}"


def _disagreements(connection: apsw.Connection) -> Iterator[str]:
    for kind in DISAGREEMENTS:
        for row in connection.execute(kind.query).fetchall():
            yield kind.sentence.format(*row)


def wrong_lines(connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    """Find lines that the index does not list by their first job; yield each with a sentence."""
    db = SQLiteStatements(connection)
    settings = read_settings(db)
    listed = (
        str(line) for (line,) in connection.execute("SELECT DISTINCT line FROM lines").fetchall()
    )
    for line in sorted({*listed, *ready_lines(db)}):
        kept, right = line_index.compare(connection, line, settings)
        if kept != right:
            yield line, f"Line {line} is not listed by its first job."
