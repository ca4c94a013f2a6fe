-- Unique keys.

-- name: declare_unique
-- Store the settings of a unique key with a new job.
UPDATE jobs SET unique_key = ?2, unique_until = ?3, period_until_ms = ?4 WHERE row = ?1

-- name: find_holder
-- The latest job under a unique key, and all columns that decide whether it holds the key.
SELECT jobs.id, jobs.state, jobs.unique_until, coalesce(jobs.period_until_ms, 0), jobs.expires_ms
FROM unique_keys JOIN jobs ON jobs.id = unique_keys.id AND jobs.unique_key = unique_keys.key
WHERE unique_keys.task = ? AND unique_keys.key = ?

-- name: find_replaced
-- The job that took over the call of this put; a later put may have replaced that call since.
SELECT id FROM jobs WHERE replaced_by = ?1
UNION ALL
SELECT job FROM replaced_puts WHERE id = ?1 AND expires_ms > ?2

-- name: forget_unique_key
-- Forget the unique key of a removed job, unless the key points to another job by now.
DELETE FROM unique_keys
WHERE id = ?1 AND (task, key) = (SELECT task, unique_key FROM jobs WHERE id = ?1)

-- name: keep_replaced_put
-- Remember, until an instant, the put that gave a job its current call, before a later put replaces
-- that call.
INSERT INTO replaced_puts (id, job, expires_ms)
SELECT replaced_by, id, ?2 FROM jobs WHERE row = ?1 AND replaced_by IS NOT NULL
ON CONFLICT (id) DO UPDATE SET job = excluded.job, expires_ms = excluded.expires_ms

-- name: keep_unique_key
-- Point a unique key to this job.
INSERT INTO unique_keys (task, key, id) VALUES (?, ?, ?)
ON CONFLICT (task, key) DO UPDATE SET id = excluded.id

-- name: read_unique_key
-- The unique key of one job.
SELECT unique_key FROM jobs WHERE id = ?

-- name: replace_job
-- Replace the call of a waiting job by the call of another put, with fresh budgets. Its age is kept
-- or forgotten.
UPDATE jobs
SET queue = ?2, rank = ?3 + age * ?12, age = age * ?12, place = ?4, state = ?5, ready_ms = ?6, due_ms = ?7, expires_ms = ?8, unique_until = ?9,
    period_until_ms = ?10, replaced_by = ?11, hold = NULL, suspect = 0, attempt = 0, starts = 0, crashes = 0,
    losses = 0, interruptions = 0, snoozes = 0, strays = 0, progress = NULL, held_because = NULL
WHERE row = ?1

-- name: replace_payload
-- Replace the envelope of a job by a large one.
INSERT INTO payloads (job, body) VALUES (?1, ?2) ON CONFLICT (job) DO UPDATE SET body = ?2

-- name: set_call
-- Store a small envelope in the record, or none because the envelope is large.
UPDATE jobs SET call = ?2 WHERE row = ?1
