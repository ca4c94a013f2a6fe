-- Operations of operators and maintenance on jobs.

-- name: any_unroutable
-- Whether a job of one of these tasks, given as an array, is held because some worker did not know it, or
-- because the task was paused.
SELECT EXISTS (SELECT 1 FROM jobs WHERE hold IS NOT NULL AND task IN (SELECT value FROM json_each(?1)))

-- name: change_job
-- Change the queue of a job that waits, its place and when it is due. Its age is kept or forgotten.
UPDATE jobs
SET queue = ?2, place = ?3, state = ?4, hold = ?5, ready_ms = ?6, due_ms = ?7, rank = rank - age + age * ?8, age = age * ?8
WHERE row = ?1

-- name: drop_keep
-- Drop the purge time of a job that has not ended.
UPDATE jobs SET keep_until_ms = NULL WHERE row = ?

-- name: drop_result
-- Drop an expired result; the record is kept a while longer.
UPDATE jobs SET result = NULL, keep_until_ms = ?2 WHERE row = ?1

-- name: forget_empty_counters
-- Forget counters that are zero.
DELETE FROM counters WHERE number = 0

-- name: forget_key
-- Forget the idempotency key of a job that an operator removed.
DELETE FROM idempotency WHERE id = ?

-- name: forget_keys
-- Forget expired idempotency keys, a bounded number.
DELETE FROM idempotency
WHERE (task, key) IN (SELECT task, key FROM idempotency WHERE expires_ms <= ? LIMIT ?)

-- name: forget_replaced_puts
-- Forget puts that were remembered long enough, a bounded number.
DELETE FROM replaced_puts WHERE id IN (SELECT id FROM replaced_puts WHERE expires_ms <= ? LIMIT ?)

-- name: forget_sessions
-- Forget dead sessions that were kept long enough.
DELETE FROM sessions WHERE gone = 2 AND expires_ms <= ?1

-- name: keep_longer
-- Let the purge visit a job again when the period of its unique key is over.
UPDATE jobs SET keep_until_ms = ?2 WHERE row = ?1

-- name: list_kept_too_long
-- Ended jobs of one state that the purge should visit, each with its size in bytes.
SELECT row, id, queue, state, finished_ms, result IS NOT NULL, unique_key, period_until_ms,
       coalesce(length(call), (SELECT length(body) FROM payloads WHERE job = jobs.row), 0)
           + coalesce(length(result), 0) + coalesce(length(progress), 0)
           + (SELECT coalesce(sum(length(error)), 0) FROM failures WHERE job = jobs.row)
FROM jobs WHERE state = ? AND keep_until_ms <= ? ORDER BY keep_until_ms LIMIT ?

-- name: next_held_task
-- The next task, by name, with jobs that are held.
SELECT task FROM jobs INDEXED BY jobs_parked WHERE hold IS NOT NULL AND task > ? ORDER BY task LIMIT 1

-- name: load_paused
-- Jobs of one task that were held because it was paused, a bounded number.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM jobs WHERE hold IS NOT NULL AND hold = 'paused' AND task = ? ORDER BY row LIMIT ?

-- name: load_unroutable
-- Jobs of one task that were held because no worker knew the task, a bounded number.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM jobs WHERE hold IS NOT NULL AND hold = 'unroutable' AND task = ? ORDER BY row LIMIT ?
