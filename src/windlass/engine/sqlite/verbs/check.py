"""`check`: verify that the file is intact and that indexes, counters and records agree.

Each query below selects rows that should not exist; every row becomes a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import apsw

from windlass.core.queues.settings import QueueSettings
from windlass.engine.sqlite import line_index
from windlass.engine.sqlite.transaction import unpack_settings

#: The sentences, with the columns of a query as {0}, {1} ...
NO_PAYLOAD: Final = "Job {0} has no payload."
PAYLOAD_WITHOUT_JOB: Final = "A payload is stored for row {0}, which is no job."
FAILURE_WITHOUT_JOB: Final = "A failure is stored for row {0}, which is no job."
UNKNOWN_SESSION: Final = (
    "Job {0} is running for session {1}, which is unknown: no worker will ever take it back."
)
COUNTERS: Final = "Queue {0} counts {2} jobs as {1}, but there are {3}."
BEYOND_SEQUENCE: Final = "Job {0} has a place or row beyond the sequence."
HELD_ELSEWHERE: Final = "Job {0} is held as {1} in state {2}."
KEEP_TIME: Final = "Job {0} is {1}, and its time to be kept is {2}."
DUE_TIME: Final = "Job {0} is {1}, held as {2}, and its due time is {3}."
WRONG_UNIQUE_KEY: Final = (
    "Unique key {1} of task {0} leads to job {2}, which has another one or does not exist."
)
LOST_UNIQUE_KEY: Final = (
    "Job {0} is {1} and holds the unique key {2}, but that does not lead to it."
)
SCHEDULE_WITHOUT_BODY: Final = "Schedule {0} has no body."
BODY_WITHOUT_SCHEDULE: Final = "A body is stored for row {0}, which is no schedule."

#: sentence -> query for offenders
DISAGREEMENTS: Final = {
    NO_PAYLOAD: (
        "SELECT id FROM jobs WHERE NOT EXISTS (SELECT 1 FROM payloads WHERE job = jobs.row)"
    ),
    PAYLOAD_WITHOUT_JOB: (
        "SELECT job FROM payloads WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE row = payloads.job)"
    ),
    FAILURE_WITHOUT_JOB: (
        "SELECT DISTINCT job FROM failures "
        "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE row = failures.job)"
    ),
    UNKNOWN_SESSION: (
        "SELECT id, session FROM jobs WHERE state = 'running' "
        "AND NOT EXISTS (SELECT 1 FROM sessions WHERE session = jobs.session AND gone < 2)"
    ),
    COUNTERS: (
        "SELECT queue, state, sum(counted), sum(stored) FROM ("
        "SELECT queue, state, number AS counted, 0 AS stored FROM counters WHERE number > 0 "
        "UNION ALL SELECT queue, state, 0, count(*) FROM jobs GROUP BY queue, state) "
        "GROUP BY queue, state HAVING sum(counted) <> sum(stored)"
    ),
    BEYOND_SEQUENCE: (
        "SELECT id FROM jobs, meta WHERE jobs.place > meta.sequence OR jobs.row > meta.sequence"
    ),
    HELD_ELSEWHERE: ("SELECT id, hold, state FROM jobs WHERE hold <> 'none' AND state <> 'ready'"),
    KEEP_TIME: (
        "SELECT id, state, coalesce(keep_until_ms, 'not set') FROM jobs "
        "WHERE (state IN ('succeeded', 'dead', 'cancelled')) <> (keep_until_ms IS NOT NULL)"
    ),
    DUE_TIME: (
        "SELECT id, state, hold, coalesce(due_ms, 'not set') FROM jobs "
        "WHERE (state IN ('scheduled', 'retrying') OR hold = 'unroutable') "
        "<> (due_ms IS NOT NULL)"
    ),
    "Job {0} is in state {1}, which does not exist.": (
        "SELECT id, state FROM jobs WHERE state NOT IN ('waiting', 'scheduled', 'ready', "
        "'running', 'retrying', 'succeeded', 'dead', 'cancelled')"
    ),
    WRONG_UNIQUE_KEY: (
        "SELECT task, key, id FROM unique_keys WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE "
        "id = unique_keys.id AND task = unique_keys.task AND unique_key = unique_keys.key)"
    ),
    LOST_UNIQUE_KEY: (
        "SELECT id, state, unique_key FROM jobs "
        "WHERE (unique_until IN ('end', 'success') AND state IN "
        "('waiting', 'scheduled', 'ready', 'retrying', 'running') "
        "OR unique_until = 'success' AND state = 'dead') "
        "AND NOT EXISTS (SELECT 1 FROM unique_keys "
        "WHERE task = jobs.task AND key = jobs.unique_key AND id = jobs.id)"
    ),
    "Job {0} was started {1} times, but its budgets account for {2}.": (
        "SELECT id, starts, attempt + crashes + losses + interruptions + snoozes FROM jobs "
        "WHERE starts <> attempt + crashes + losses + interruptions + snoozes"
    ),
    SCHEDULE_WITHOUT_BODY: (
        "SELECT name FROM schedules "
        "WHERE NOT EXISTS (SELECT 1 FROM schedule_bodies WHERE schedule = schedules.row)"
    ),
    BODY_WITHOUT_SCHEDULE: (
        "SELECT schedule FROM schedule_bodies "
        "WHERE NOT EXISTS (SELECT 1 FROM schedules WHERE row = schedule_bodies.schedule)"
    ),
}


def check(connection: apsw.Connection) -> list[str]:
    stored = connection.execute("SELECT queues FROM meta").fetchall()[0][0]
    lines = wrong_lines(connection, unpack_settings(stored))
    return [
        *file_problems(connection),
        *_disagreements(connection),
        *(text for _, text in lines),
    ]


def file_problems(connection: apsw.Connection) -> Iterator[str]:
    for (text,) in connection.execute("PRAGMA integrity_check").fetchall():
        if text != "ok":
            yield f"The file is damaged: {text}"


def _disagreements(connection: apsw.Connection) -> Iterator[str]:
    for sentence, query in DISAGREEMENTS.items():
        for row in connection.execute(query).fetchall():
            yield sentence.format(*row)


def wrong_lines(
    connection: apsw.Connection, settings: Mapping[str, QueueSettings]
) -> Iterator[tuple[str, str]]:
    """Lines that the index does not list by their first job, each with a sentence."""
    listed = (
        str(line) for (line,) in connection.execute("SELECT DISTINCT line FROM lines").fetchall()
    )
    for line in sorted({*listed, *line_index.ready_lines(connection)}):
        kept, right = line_index.compare(connection, line, settings)
        if kept != right:
            yield line, f"Line {line} is not listed by its first job."
