"""What `check` looks for in this engine: the queries that find wrong rows, and the statements that
fix them.

A query selects rows that should not exist. What a constraint or an index of the server enforces is
not among them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from windlass.engine.sql import contradictions
from windlass.engine.sql.contradictions import Contradiction


class TableWalk(NamedTuple):
    """A table that is read in stretches, in the order of an index."""

    table: str
    columns: tuple[str, ...]

    @property
    def key(self) -> str:
        return ", ".join(f"{self.table}.{column}" for column in self.columns)


class Disagreement(NamedTuple):
    """A contradiction, and how to find and fix it in this engine."""

    kind: Contradiction
    walk: TableWalk | None  # None: the query reads whole tables
    query: str  # selects the wrong rows of a `{stretch}`
    #: Has the columns as parameters, `:c0` and so on, and `:now`, `:lease`, `:keep`. It changes a
    #: row only if the row is still wrong: transactions of workers come between.
    statement: str = ""
    #: Columns with the names of a lock to take first: a kind of lock, then columns.
    lock: tuple[str, int, int] | tuple[str, int] | None = None


_JOBS: Final = TableWalk("jobs", ("row",))
_ENDED: Final = TableWalk("ended", ("keep_until_ms", "row"))
_FAILURES: Final = TableWalk("failures", ("job",))
_STEPS: Final = TableWalk("steps", ("job",))
_UNIQUE_KEYS: Final = TableWalk("unique_keys", ("task", "key"))
_DEATHS: Final = TableWalk("deaths", ("job",))
_DEAD_GROUPS: Final = TableWalk("dead_groups", ("number",))
_SCHEDULES: Final = TableWalk("schedules", ("row",))
_BODIES: Final = TableWalk("schedule_bodies", ("schedule",))

#: Parts of several statements, by the name that stands for them. A part may use those below it.
PARTS: Final = {
    # A row of `deaths` names the group and the instant of death of a dead job.
    "{is_of_dead_job}": """EXISTS (
        SELECT 1 FROM (
            SELECT task, coalesce(finished_ms, 0) AS at_ms, {group}
            FROM windlass.jobs WHERE jobs.row = deaths.job AND state = 'dead'
        ) AS dead JOIN windlass.dead_groups USING (release, queue, task)
        WHERE number = deaths.dead_group AND dead.at_ms = deaths.at_ms
    )""",
    # The release in the group of a dead job is the end of the name of its session.
    "{group}": """
        split_part(jobs.queue, '+', 1) AS queue,
        CASE WHEN strpos(jobs.session, '@') > 0
             THEN substr(jobs.session, strpos(jobs.session, '@') + 1) ELSE '' END AS release
    """,
    "{holds_key}": """(
        unique_until IN ('end', 'success')
            AND state IN ('waiting', 'scheduled', 'ready', 'retrying', 'running')
        OR unique_until = 'success' AND state = 'dead'
    )""",
}

#: Adds the difference that one query has found: workers change the counter meanwhile.
_CORRECT_COUNTER: Final = """
INSERT INTO windlass.deltas (kind, name, part, number)
VALUES ('jobs', :c0, :c1, :c3::bigint - :c2::bigint)
"""

DISAGREEMENTS: Final = (
    Disagreement(
        contradictions.FAILURE_OF_NO_JOB,
        _FAILURES,
        """
        SELECT DISTINCT job FROM windlass.failures WHERE {stretch}
        AND NOT EXISTS (SELECT 1 FROM windlass.jobs WHERE jobs.row = failures.job)
        AND NOT EXISTS (SELECT 1 FROM windlass.ended WHERE ended.row = failures.job)
        """,
        """
        DELETE FROM windlass.failures WHERE job = :c0
        AND NOT EXISTS (SELECT 1 FROM windlass.jobs WHERE jobs.row = failures.job)
        AND NOT EXISTS (SELECT 1 FROM windlass.ended WHERE ended.row = failures.job)
        """,
    ),
    Disagreement(
        contradictions.STEP_OF_NO_JOB,
        _STEPS,
        """
        SELECT DISTINCT job FROM windlass.steps WHERE {stretch}
        AND NOT EXISTS (SELECT 1 FROM windlass.jobs WHERE jobs.row = steps.job)
        AND NOT EXISTS (SELECT 1 FROM windlass.ended WHERE ended.row = steps.job)
        """,
        """
        DELETE FROM windlass.steps WHERE job = :c0
        AND NOT EXISTS (SELECT 1 FROM windlass.jobs WHERE jobs.row = steps.job)
        AND NOT EXISTS (SELECT 1 FROM windlass.ended WHERE ended.row = steps.job)
        """,
    ),
    Disagreement(
        Contradiction("Job {0} has succeeded, and is stored as {1} as well."),
        _JOBS,
        """
        SELECT id, state FROM windlass.jobs WHERE {stretch}
        AND EXISTS (SELECT 1 FROM windlass.ended WHERE ended.id = jobs.id)
        """,
    ),
    Disagreement(
        contradictions.UNKNOWN_SESSION,
        _JOBS,
        """
        SELECT id, session FROM windlass.jobs WHERE {stretch} AND state = 'running' AND NOT EXISTS (
            SELECT 1 FROM windlass.sessions WHERE sessions.session = jobs.session AND gone < 2)
        """,
        """
        WITH held AS (
            SELECT session FROM windlass.jobs
            WHERE id = :c0 AND state = 'running' AND session = :c1 FOR UPDATE
        )
        INSERT INTO windlass.sessions (session, expires_ms)
        SELECT session, :now::bigint + :lease::bigint FROM held
        ON CONFLICT (session) DO UPDATE SET gone = least(sessions.gone, 1)
        """,
    ),
    Disagreement(
        contradictions.WRONG_COUNTER,
        None,
        """
        SELECT queue, state, sum(counted)::bigint, sum(stored)::bigint FROM (
            SELECT name AS queue, part AS state, number AS counted, 0 AS stored
            FROM windlass.counters WHERE kind = 'jobs' AND part <> 'succeeded'
            UNION ALL
            SELECT name, part, number, 0 FROM windlass.deltas
            WHERE kind = 'jobs' AND part <> 'succeeded'
            UNION ALL
            SELECT queue, state, 0, count(*) FROM windlass.jobs GROUP BY queue, state
        ) AS found GROUP BY queue, state HAVING sum(counted) <> sum(stored)
        """,
        _CORRECT_COUNTER,
    ),
    Disagreement(
        contradictions.WRONG_COUNTER,
        None,
        """
        SELECT queue, 'succeeded', sum(counted)::bigint, sum(stored)::bigint FROM (
            SELECT name AS queue, number AS counted, 0 AS stored
            FROM windlass.counters WHERE kind = 'jobs' AND part = 'succeeded'
            UNION ALL
            SELECT name, number, 0 FROM windlass.deltas WHERE kind = 'jobs' AND part = 'succeeded'
            UNION ALL
            SELECT queue, 0, count(*) FROM windlass.ended GROUP BY queue
        ) AS found GROUP BY queue HAVING sum(counted) <> sum(stored)
        """,
        _CORRECT_COUNTER,
    ),
    Disagreement(
        contradictions.BEYOND_SEQUENCE,
        _JOBS,
        """
        SELECT id FROM windlass.jobs, windlass.numbers
        WHERE {stretch} AND greatest(jobs.row, jobs.place) > last_value
        """,
        # With room for the numbers that other transactions take at this moment.
        """
        SELECT setval('windlass.numbers', greatest(jobs.row, jobs.place) + 10000)
        FROM windlass.jobs, windlass.numbers
        WHERE id = :c0 AND greatest(jobs.row, jobs.place) > last_value
        """,
    ),
    Disagreement(
        contradictions.BEYOND_SEQUENCE,
        _ENDED,
        """
        SELECT id FROM windlass.ended, windlass.numbers WHERE {stretch} AND ended.row > last_value
        """,
        """
        SELECT setval('windlass.numbers', max(ended.row) + 10000)
        FROM windlass.ended, windlass.numbers
        WHERE id = :c0 AND ended.row > last_value GROUP BY last_value
        """,
    ),
    Disagreement(
        Contradiction("Sequence {0} is at {1}, and a row has {2}.", "it continues after the row"),
        None,
        """
        SELECT 'schedules_row_seq', last_value, greatest FROM windlass.schedules_row_seq,
            (SELECT max(row) AS greatest FROM windlass.schedules) AS found
        WHERE greatest > last_value
        UNION ALL
        SELECT 'audit_row_seq', last_value, greatest FROM windlass.audit_row_seq,
            (SELECT max(row) AS greatest FROM windlass.audit) AS found
        WHERE greatest > last_value
        UNION ALL
        SELECT 'dead_groups_number_seq', last_value, greatest FROM windlass.dead_groups_number_seq,
            (SELECT max(number) AS greatest FROM windlass.dead_groups) AS found
        WHERE greatest > last_value
        """,
        "SELECT setval(('windlass.' || :c0::text)::regclass, :c2::bigint + 1000)",
    ),
    Disagreement(
        contradictions.WRONG_HOLD,
        _JOBS,
        """
        SELECT id, hold, state FROM windlass.jobs
        WHERE {stretch} AND hold IS NOT NULL AND state <> 'ready'
        """,
        "UPDATE windlass.jobs SET hold = NULL WHERE id = :c0 AND state <> 'ready'",
    ),
    Disagreement(
        contradictions.WRONG_RETENTION,
        _JOBS,
        """
        SELECT id, state, coalesce(keep_until_ms::text, 'not set') FROM windlass.jobs
        WHERE {stretch} AND (state IN ('dead', 'cancelled')) <> (keep_until_ms IS NOT NULL)
        """,
        """
        UPDATE windlass.jobs
        SET keep_until_ms = CASE WHEN state IN ('dead', 'cancelled')
                THEN coalesce(finished_ms, :now::bigint) + :keep::bigint END,
            finished_ms = CASE WHEN state IN ('dead', 'cancelled')
                THEN coalesce(finished_ms, :now::bigint) ELSE finished_ms END
        WHERE id = :c0 AND (state IN ('dead', 'cancelled')) <> (keep_until_ms IS NOT NULL)
        """,
    ),
    Disagreement(
        contradictions.WRONG_DUE_TIME,
        _JOBS,
        """
        SELECT id, state, coalesce(hold, 'none'), coalesce(due_ms::text, 'not set')
        FROM windlass.jobs WHERE {stretch}
        AND (state IN ('scheduled', 'retrying') OR hold IS NOT NULL) <> (due_ms IS NOT NULL)
        """,
        """
        UPDATE windlass.jobs SET due_ms = CASE WHEN state IN ('scheduled', 'retrying')
            OR hold IS NOT NULL THEN coalesce(due_ms, :now::bigint) END
        WHERE id = :c0
        AND (state IN ('scheduled', 'retrying') OR hold IS NOT NULL) <> (due_ms IS NOT NULL)
        """,
    ),
    Disagreement(
        contradictions.UNKNOWN_STATE,
        _JOBS,
        """
        SELECT id, state FROM windlass.jobs WHERE {stretch} AND state NOT IN (
            'waiting', 'scheduled', 'ready', 'running', 'retrying', 'dead', 'cancelled')
        """,
    ),
    Disagreement(
        contradictions.KEY_OF_NO_JOB,
        _UNIQUE_KEYS,
        """
        SELECT task, key, id FROM windlass.unique_keys WHERE {stretch}
        AND NOT EXISTS (SELECT 1 FROM windlass.jobs WHERE jobs.id = unique_keys.id
            AND jobs.task = unique_keys.task AND jobs.unique_key = unique_keys.key)
        AND NOT EXISTS (SELECT 1 FROM windlass.ended WHERE ended.id = unique_keys.id
            AND ended.task = unique_keys.task AND ended.unique_key = unique_keys.key)
        """,
        """
        DELETE FROM windlass.unique_keys WHERE task = :c0 AND key = :c1 AND id = :c2
        AND NOT EXISTS (SELECT 1 FROM windlass.jobs WHERE jobs.id = unique_keys.id
            AND jobs.task = unique_keys.task AND jobs.unique_key = unique_keys.key)
        AND NOT EXISTS (SELECT 1 FROM windlass.ended WHERE ended.id = unique_keys.id
            AND ended.task = unique_keys.task AND ended.unique_key = unique_keys.key)
        """,
        ("key", 0, 1),
    ),
    Disagreement(
        contradictions.LOST_KEY,
        _JOBS,
        """
        SELECT id, state, unique_key, task FROM windlass.jobs WHERE {stretch} AND {holds_key}
        AND NOT EXISTS (SELECT 1 FROM windlass.unique_keys WHERE unique_keys.task = jobs.task
            AND unique_keys.key = jobs.unique_key AND unique_keys.id = jobs.id)
        """,
        """
        WITH holder AS (
            SELECT task, unique_key, id FROM windlass.jobs
            WHERE id = :c0 AND {holds_key} FOR UPDATE
        )
        INSERT INTO windlass.unique_keys (task, key, id) SELECT task, unique_key, id FROM holder
        ON CONFLICT (task, key) DO NOTHING
        """,
        ("key", 3, 2),
    ),
    *(
        Disagreement(
            contradictions.WRONG_BUDGETS,
            walk,
            """
            SELECT id, starts, attempt + crashes + losses + interruptions + snoozes
            FROM windlass.{table} WHERE {stretch}
            AND starts <> attempt + crashes + losses + interruptions + snoozes
            """,
        )
        for walk in (_JOBS, _ENDED)
    ),
    Disagreement(
        contradictions.DEATH_OF_NO_JOB,
        _DEATHS,
        "SELECT job FROM windlass.deaths WHERE {stretch} AND NOT {is_of_dead_job}",
        "DELETE FROM windlass.deaths WHERE job = :c0 AND NOT {is_of_dead_job}",
    ),
    Disagreement(
        contradictions.DEAD_WITHOUT_GROUP,
        _JOBS,
        """
        SELECT id FROM windlass.jobs WHERE {stretch} AND state = 'dead'
        AND NOT EXISTS (SELECT 1 FROM windlass.deaths WHERE deaths.job = jobs.row)
        """,
        """
        WITH dead AS MATERIALIZED (
            SELECT row, task, coalesce(finished_ms, 0) AS at_ms, {group}
            FROM windlass.jobs WHERE id = :c0 AND state = 'dead'
            AND NOT EXISTS (SELECT 1 FROM windlass.deaths WHERE deaths.job = jobs.row)
            FOR UPDATE
        ), grouped AS (
            INSERT INTO windlass.dead_groups (fingerprint, release, queue, task, jobs)
            SELECT '', release, queue, task, 1 FROM dead
            ON CONFLICT (fingerprint, release, queue, task)
            DO UPDATE SET jobs = dead_groups.jobs + 1 RETURNING number
        )
        INSERT INTO windlass.deaths (job, dead_group, at_ms)
        SELECT row, number, at_ms FROM dead, grouped
        """,
    ),
    Disagreement(
        contradictions.WRONG_GROUP_SIZE,
        _DEAD_GROUPS,
        """
        SELECT * FROM (
            SELECT number, task, jobs,
                (SELECT count(*) FROM windlass.deaths WHERE dead_group = number) AS stored
            FROM windlass.dead_groups WHERE {stretch}
        ) AS found WHERE jobs <> stored
        """,
        """
        UPDATE windlass.dead_groups SET jobs = jobs + :c3::bigint - :c2::bigint WHERE number = :c0
        """,
    ),
    Disagreement(
        contradictions.EMPTY_GROUP,
        _DEAD_GROUPS,
        "SELECT number, task FROM windlass.dead_groups WHERE {stretch} AND jobs = 0",
        "DELETE FROM windlass.dead_groups WHERE number = :c0 AND jobs = 0",
    ),
    Disagreement(
        contradictions.SCHEDULE_WITHOUT_BODY,
        _SCHEDULES,
        """
        SELECT name FROM windlass.schedules WHERE {stretch}
        AND NOT EXISTS (SELECT 1 FROM windlass.schedule_bodies WHERE schedule = schedules.row)
        """,
        """
        DELETE FROM windlass.schedules WHERE name = :c0
        AND NOT EXISTS (SELECT 1 FROM windlass.schedule_bodies WHERE schedule = schedules.row)
        """,
        ("schedule", 0),
    ),
    Disagreement(
        contradictions.BODY_OF_NO_SCHEDULE,
        _BODIES,
        """
        SELECT schedule FROM windlass.schedule_bodies WHERE {stretch}
        AND NOT EXISTS (SELECT 1 FROM windlass.schedules WHERE row = schedule_bodies.schedule)
        """,
        """
        DELETE FROM windlass.schedule_bodies WHERE schedule = :c0
        AND NOT EXISTS (SELECT 1 FROM windlass.schedules WHERE row = schedule_bodies.schedule)
        """,
    ),
)
