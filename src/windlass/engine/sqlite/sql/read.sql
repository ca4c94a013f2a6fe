-- Reads: records, pages of records, counters and sessions.

-- name: list_counters
-- The number of records per queue and state.
SELECT queue, state, number FROM counters WHERE number > 0

-- name: list_dead
-- A stretch of dead records below an id and down to another, newest first.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       result_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs WHERE state = 'dead' AND id < ?1 AND id >= ?2 AND (?4 IS NULL OR task = ?4) ORDER BY id DESC LIMIT ?3

-- name: list_failures
-- The history of one job, oldest first.
SELECT at_ms, event, attempt, session, started_ms, error FROM failures WHERE job = ? ORDER BY number

-- name: list_held_ids
-- Some of the jobs that a session holds.
SELECT id FROM jobs WHERE state = 'running' AND session = ?1 LIMIT ?2

-- name: list_introductions
-- The info of live sessions with a name prefix, a bounded number.
SELECT session, info FROM sessions
WHERE session > ?1 AND session >= ?2 AND session < ?2 || char(1114111) AND gone = 0 AND info <> x''
ORDER BY session LIMIT ?3

-- name: list_jobs
-- A stretch of records below an id and down to another, newest first.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       result_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs WHERE id < ? AND id >= ? ORDER BY id DESC LIMIT ?

-- name: list_sessions
-- Live sessions and the number of jobs that each holds.
SELECT session, expires_ms, info,
       (SELECT count(*) FROM jobs WHERE state = 'running' AND jobs.session = sessions.session)
FROM sessions WHERE gone = 0 ORDER BY session

-- name: list_totals
-- The totals of events.
SELECT name, number FROM totals

-- name: newest_failure
-- The newest entry in the history of one job.
SELECT at_ms, event, attempt, session, started_ms, error FROM failures WHERE job = ? ORDER BY number DESC LIMIT 1

-- name: oldest_ready
-- When the job that is next in line in a queue took its place.
SELECT ready_ms FROM jobs
WHERE state = 'ready' AND hold = 'none' AND queue = ? AND suspect = 0 ORDER BY rank, place LIMIT 1

-- name: read_end
-- The state of one job, with its result while that is stored.
SELECT task, state, reason, finished_ms, CASE WHEN result_until_ms > ? THEN result END, row FROM jobs WHERE id = ?

-- name: read_job
-- The record of one job, for display.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       result_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM jobs WHERE id = ?

-- name: read_payload
-- The envelope of one job.
SELECT body FROM payloads WHERE job = ?

-- name: read_result
-- The stored result of one job.
SELECT result FROM jobs WHERE row = ?
