"""`check`: verify that the file is intact and that indexes, counters and records agree.

Each query below selects rows that should not exist; every row becomes a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import apsw

from windlass.engine.sql import contradictions
from windlass.engine.sql.contradictions import Contradiction
from windlass.engine.sql.transaction import read_settings
from windlass.engine.sql.verbs.queues import ready_lines
from windlass.engine.sqlite import line_index
from windlass.engine.sqlite.statements import SQLiteStatements


class Disagreement(NamedTuple):
    """A contradiction, and how to find and fix it in this engine."""

    kind: Contradiction
    query: str  # selects the wrong rows
    statement: str = ""  # has the columns as parameters, and `:now`, `:lease`, `:keep`


DISAGREEMENTS: Final = (
    Disagreement(
        Contradiction(
            "Job {0} has no payload.",
            "it gets an empty one, with which it becomes a dead letter when it is run",
        ),
        "SELECT id FROM jobs WHERE call IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM payloads WHERE job = jobs.row)",
        "UPDATE jobs SET call = x'' WHERE id = :c0",
    ),
    Disagreement(
        Contradiction(
            "A payload is stored for row {0}, which is no job with a large call.",
            "it is removed",
        ),
        "SELECT job FROM payloads "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE row = payloads.job AND call IS NULL)",
        "DELETE FROM payloads WHERE job = :c0",
    ),
    Disagreement(
        contradictions.FAILURE_OF_NO_JOB,
        "SELECT DISTINCT job FROM failures "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE row = failures.job)",
        "DELETE FROM failures WHERE job = :c0",
    ),
    Disagreement(
        contradictions.STEP_OF_NO_JOB,
        "SELECT DISTINCT job FROM steps "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE row = steps.job)",
        "DELETE FROM steps WHERE job = :c0",
    ),
    Disagreement(
        contradictions.UNKNOWN_SESSION,
        "SELECT id, session FROM jobs WHERE state = 'running' "
        "AND NOT EXISTS (SELECT 1 FROM sessions WHERE session = jobs.session AND gone < 2)",
        "INSERT INTO sessions (session, expires_ms) "
        "SELECT :c1, :now + :lease WHERE :c1 IS NOT NULL "
        "ON CONFLICT (session) DO UPDATE SET gone = min(gone, 1)",
    ),
    Disagreement(
        contradictions.WRONG_COUNTER,
        "SELECT queue, state, sum(counted), sum(stored) FROM ("
        "SELECT queue, state, number AS counted, 0 AS stored FROM counters WHERE number > 0 "
        "UNION ALL SELECT queue, state, 0, count(*) FROM jobs GROUP BY queue, state) "
        "GROUP BY queue, state HAVING sum(counted) <> sum(stored)",
        "INSERT INTO counters (queue, state, number) VALUES (:c0, :c1, :c3) "
        "ON CONFLICT (queue, state) DO UPDATE SET number = :c3",
    ),
    Disagreement(
        contradictions.BEYOND_SEQUENCE,
        "SELECT id FROM jobs, meta WHERE jobs.place > meta.sequence OR jobs.row > meta.sequence",
        "UPDATE meta SET sequence = max(sequence, "
        "(SELECT max(place, row) FROM jobs WHERE id = :c0))",
    ),
    Disagreement(
        contradictions.WRONG_HOLD,
        "SELECT id, hold, state FROM jobs WHERE hold IS NOT NULL AND state <> 'ready'",
        "UPDATE jobs SET hold = NULL WHERE id = :c0",
    ),
    Disagreement(
        contradictions.WRONG_RETENTION,
        "SELECT id, state, coalesce(keep_until_ms, 'not set') FROM jobs "
        "WHERE (state IN ('succeeded', 'dead', 'cancelled')) <> (keep_until_ms IS NOT NULL)",
        "UPDATE jobs SET keep_until_ms = CASE WHEN state IN ('succeeded', 'dead', 'cancelled') "
        "THEN coalesce(finished_ms, :now) + :keep END, "
        "finished_ms = CASE WHEN state IN ('succeeded', 'dead', 'cancelled') "
        "THEN coalesce(finished_ms, :now) ELSE finished_ms END WHERE id = :c0",
    ),
    Disagreement(
        contradictions.WRONG_DUE_TIME,
        "SELECT id, state, coalesce(hold, 'none'), coalesce(due_ms, 'not set') FROM jobs "
        "WHERE (state IN ('scheduled', 'retrying') OR hold IS NOT NULL) "
        "<> (due_ms IS NOT NULL)",
        "UPDATE jobs SET due_ms = CASE WHEN state IN ('scheduled', 'retrying') "
        "OR hold IS NOT NULL THEN coalesce(due_ms, :now) END WHERE id = :c0",
    ),
    Disagreement(
        contradictions.UNKNOWN_STATE,
        "SELECT id, state FROM jobs WHERE state NOT IN ('waiting', 'scheduled', 'ready', "
        "'running', 'retrying', 'succeeded', 'dead', 'cancelled')",
    ),
    Disagreement(
        contradictions.KEY_OF_NO_JOB,
        "SELECT task, key, id FROM unique_keys WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE "
        "id = unique_keys.id AND task = unique_keys.task AND unique_key = unique_keys.key)",
        "DELETE FROM unique_keys WHERE task = :c0 AND key = :c1",
    ),
    Disagreement(
        contradictions.LOST_KEY,
        "SELECT id, state, unique_key FROM jobs "
        "WHERE (unique_until IN ('end', 'success') AND state IN "
        "('waiting', 'scheduled', 'ready', 'retrying', 'running') "
        "OR unique_until = 'success' AND state = 'dead') "
        "AND NOT EXISTS (SELECT 1 FROM unique_keys "
        "WHERE task = jobs.task AND key = jobs.unique_key AND id = jobs.id)",
        "INSERT INTO unique_keys (task, key, id) SELECT task, unique_key, id FROM jobs "
        "WHERE id = :c0 ON CONFLICT (task, key) DO NOTHING",
    ),
    Disagreement(
        contradictions.WRONG_BUDGETS,
        "SELECT id, starts, attempt + crashes + losses + interruptions + snoozes FROM jobs "
        "WHERE starts <> attempt + crashes + losses + interruptions + snoozes",
    ),
    Disagreement(
        contradictions.DEATH_OF_NO_JOB,
        "SELECT job FROM deaths WHERE NOT EXISTS ("
        "SELECT 1 FROM dead_jobs JOIN dead_groups USING (release, queue, task) "
        "WHERE row = job AND number = dead_group AND dead_jobs.at_ms = deaths.at_ms)",
        "DELETE FROM deaths WHERE job = :c0",
    ),
    Disagreement(
        contradictions.DEAD_WITHOUT_GROUP,
        "SELECT id FROM dead_jobs WHERE row NOT IN (SELECT job FROM deaths)",
        "INSERT INTO dead_groups (fingerprint, release, queue, task, jobs) "
        "SELECT '', release, queue, task, 0 FROM dead_jobs WHERE id = :c0 "
        "ON CONFLICT DO NOTHING; "
        "INSERT INTO deaths (job, dead_group, at_ms) "
        "SELECT row, number, at_ms FROM dead_jobs JOIN dead_groups USING (release, queue, task) "
        "WHERE fingerprint = '' AND id = :c0",
    ),
    Disagreement(
        contradictions.WRONG_GROUP_SIZE,
        "SELECT number, task, jobs, "
        "(SELECT count(*) FROM deaths WHERE dead_group = number) AS stored "
        "FROM dead_groups WHERE jobs <> stored",
        "UPDATE dead_groups SET jobs = :c3 WHERE number = :c0",
    ),
    Disagreement(
        contradictions.EMPTY_GROUP,
        "SELECT number, task FROM dead_groups WHERE jobs = 0",
        "DELETE FROM dead_groups WHERE number = :c0",
    ),
    Disagreement(
        contradictions.SCHEDULE_WITHOUT_BODY,
        "SELECT name FROM schedules "
        "WHERE NOT EXISTS (SELECT 1 FROM schedule_bodies WHERE schedule = schedules.row)",
        "DELETE FROM schedules WHERE name = :c0",
    ),
    Disagreement(
        contradictions.BODY_OF_NO_SCHEDULE,
        "SELECT schedule FROM schedule_bodies "
        "WHERE NOT EXISTS (SELECT 1 FROM schedules WHERE row = schedule_bodies.schedule)",
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
    for wrong in DISAGREEMENTS:
        for row in connection.execute(wrong.query).fetchall():
            yield wrong.kind.describe(row)


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
