-- Operations of operators and maintenance on jobs.

-- name: any_unroutable
-- Whether a job of one of these tasks is held because some worker did not know it, or because the task was paused.
SELECT EXISTS (SELECT 1 FROM windlass.jobs WHERE hold IS NOT NULL AND task = ANY($1::text[]))

-- name: change_job
-- Change the queue of a job that waits, its place and when it is due. Its age is kept or forgotten.
UPDATE windlass.jobs
SET queue = $2, place = $3, state = $4, hold = $5, ready_ms = $6, due_ms = $7, rank = rank - age + age * $8::integer,
    age = age * $8::integer
WHERE row = $1

-- name: drop_keep
-- Drop the purge time of a job that has not ended.
UPDATE windlass.jobs SET keep_until_ms = NULL WHERE row = $1

-- name: drop_result
-- Drop an expired result; the record is kept a while longer.
UPDATE windlass.jobs SET result = NULL, keep_until_ms = $2 WHERE row = $1

-- name: forget_key
-- Forget the idempotency key of a job that an operator removed.
DELETE FROM windlass.idempotency WHERE id = $1

-- name: forget_keys
-- Forget expired idempotency keys, a bounded number.
DELETE FROM windlass.idempotency WHERE (task, key) IN (
    SELECT task, key FROM windlass.idempotency WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT $2 FOR UPDATE SKIP LOCKED)

-- name: forget_replaced_puts
-- Forget puts that were remembered long enough, a bounded number.
DELETE FROM windlass.replaced_puts WHERE id IN (
    SELECT id FROM windlass.replaced_puts WHERE expires_ms <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)

-- name: forget_sessions
-- Forget dead sessions that were kept long enough.
DELETE FROM windlass.sessions WHERE gone = 2 AND expires_ms <= $1

-- name: keep_longer
-- Let the purge visit a job again when the period of its unique key is over.
UPDATE windlass.jobs SET keep_until_ms = $2 WHERE row = $1

-- name: list_kept_too_long
-- Dead or cancelled jobs that the purge should visit, each with its size in bytes.
SELECT row, id, queue, state, finished_ms, result IS NOT NULL, unique_key, period_until_ms,
       octet_length(call) + coalesce(octet_length(result), 0) + coalesce(octet_length(progress), 0)
           + (SELECT coalesce(sum(octet_length(error)), 0) FROM windlass.failures WHERE job = jobs.row)
FROM windlass.jobs WHERE state = $1 AND keep_until_ms <= $2
ORDER BY keep_until_ms, row LIMIT $3 FOR UPDATE OF jobs SKIP LOCKED

-- name: next_held_task
-- The next task, by name, with jobs that are held.
SELECT task FROM windlass.jobs WHERE hold IS NOT NULL AND task > $1 ORDER BY task LIMIT 1

-- name: load_paused
-- Jobs of one task that were held because it was paused, a bounded number.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM windlass.jobs WHERE hold IS NOT NULL AND hold = 'paused' AND task = $1 ORDER BY row LIMIT $2 FOR UPDATE SKIP LOCKED

-- name: load_unroutable
-- Jobs of one task that were held because no worker knew the task, a bounded number.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM windlass.jobs WHERE hold IS NOT NULL AND hold = 'unroutable' AND task = $1 ORDER BY row LIMIT $2
FOR UPDATE SKIP LOCKED
