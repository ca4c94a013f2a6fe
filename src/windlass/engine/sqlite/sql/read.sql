-- Reads: records, pages of records, counters and sessions.

-- name: find_due
-- A stretch of jobs that wait for an instant, after an instant and row.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs INDEXED BY jobs_due WHERE due_ms = ?1 AND row > ?2
UNION ALL
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs INDEXED BY jobs_due WHERE due_ms > ?1 ORDER BY due_ms, row LIMIT ?3

-- name: find_ended
-- A stretch of ended jobs of one state, before a visit of the purge and a row, down to another visit.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, keep_until_ms
FROM jobs INDEXED BY jobs_ended WHERE state = ?1 AND keep_until_ms = ?2 AND row < ?3
UNION ALL
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, keep_until_ms
FROM jobs INDEXED BY jobs_ended WHERE state = ?1 AND keep_until_ms < ?2 AND keep_until_ms >= ?4
ORDER BY keep_until_ms DESC, row DESC LIMIT ?5

-- name: find_parked
-- A stretch of held jobs after a task and row. In two parts, because a comparison of both columns would read all jobs
-- of the task.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs INDEXED BY jobs_parked WHERE hold IS NOT NULL AND task = ?1 AND row > ?2
UNION ALL
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs INDEXED BY jobs_parked WHERE hold IS NOT NULL AND task > ?1 ORDER BY task, row LIMIT ?3

-- name: find_ready
-- A stretch of ready jobs after a place in a line, in lines below a name. Jobs that must run alone are among them: in
-- the index they follow the others of their line.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, rank, place
FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold IS NULL AND (queue, suspect, rank, place) > (?1, ?2, ?3, ?4) AND queue < ?5
ORDER BY queue, suspect, rank, place LIMIT ?6

-- name: find_running
-- A stretch of running jobs after a session, token and row.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, token
FROM jobs INDEXED BY jobs_held WHERE state = 'running' AND (session, token, row) > (?1, ?2, ?3)
ORDER BY session, token, row LIMIT ?4

-- name: find_suspect
-- A stretch of ready jobs that must run alone, after a place in a line, in lines below a name.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, rank, place
FROM jobs INDEXED BY jobs_suspect
WHERE suspect = 1 AND state = 'ready' AND hold IS NULL AND (queue, rank, place) > (?1, ?2, ?3) AND queue < ?4
ORDER BY queue, rank, place LIMIT ?5

-- name: list_counters
-- The number of records per queue and state.
SELECT queue, state, number FROM counters WHERE number > 0

-- name: list_failures
-- The histories of jobs, which are given as an array of rows, oldest entry first.
SELECT job, at_ms, event, attempt, session, started_ms, error
FROM failures WHERE job IN (SELECT value FROM json_each(?)) ORDER BY job, number

-- name: list_held_ids
-- Some of the jobs that a session holds.
SELECT id FROM jobs WHERE state = 'running' AND session = ?1 LIMIT ?2

-- name: list_introductions
-- The info of live sessions with a name prefix, a bounded number.
SELECT session, info FROM sessions
WHERE session > ?1 AND session >= ?2 AND session < ?2 || char(1114111) AND gone = 0 AND info <> x''
ORDER BY session LIMIT ?3

-- name: list_sessions
-- Live sessions and the number of jobs that each holds.
SELECT session, expires_ms, info, command,
       (SELECT count(*) FROM jobs WHERE state = 'running' AND jobs.session = sessions.session)
FROM sessions WHERE gone = 0 ORDER BY session

-- name: list_totals
-- The totals of events.
SELECT name, number FROM totals

-- name: newest_failure
-- The newest entry in the history of one job.
SELECT at_ms, event, attempt, session, started_ms, error FROM failures WHERE job = ? ORDER BY number DESC LIMIT 1

-- name: oldest_ready
-- When the jobs that are next in these lines, which are given as an array, took their place.
SELECT * FROM (
    SELECT given.value, (
        SELECT coalesce(ready_ms, created_ms) FROM jobs
        WHERE state = 'ready' AND hold IS NULL AND queue = given.value AND suspect = 0 ORDER BY rank, place LIMIT 1
    ) AS ready_ms
    FROM json_each(?) AS given
) WHERE ready_ms IS NOT NULL

-- name: read_ends
-- The states of jobs, with their results while these are stored.
SELECT id, task, state, reason, finished_ms, CASE WHEN keep_until_ms > ?1 THEN result END, row
FROM jobs WHERE id IN (SELECT value FROM json_each(?2))

-- name: read_infos
-- The info of live sessions with these names.
SELECT session, info FROM json_each(?) AS given JOIN sessions ON session = given.value
WHERE gone = 0 AND info <> x''

-- name: read_jobs
-- The records of jobs, for display: with payload, result and fingerprint.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row,
       coalesce(call, (SELECT body FROM payloads WHERE job = row), x''), result,
       CASE WHEN state = 'dead' THEN (SELECT fingerprint FROM deaths JOIN dead_groups ON number = dead_group WHERE job = row) END
FROM jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: read_payload
-- The envelope of one job: small ones stand in the record, large ones in a table of their own.
SELECT coalesce(call, (SELECT body FROM payloads WHERE job = row), x'') FROM jobs WHERE row = ?
