-- New jobs and idempotency keys.

-- name: count_waiting
-- The number of jobs in one line that wait to run.
SELECT coalesce(sum(number), 0) FROM counters
WHERE queue = ? AND state IN ('waiting', 'scheduled', 'ready', 'retrying')

-- name: find_key
-- The job that an idempotency key belongs to, while the key is remembered.
SELECT id, fingerprint FROM idempotency WHERE task = ? AND key = ? AND expires_ms > ?

-- name: insert_job
-- Store a new job, ready or scheduled. A known id changes nothing.
INSERT INTO jobs (row, id, task, queue, rank, place, state, created_ms, due_ms, expires_ms, call)
VALUES (?1, ?2, ?3, ?4, ?5, ?1, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (id) DO NOTHING

-- name: insert_payload
-- Store the large envelope of a new job.
INSERT INTO payloads (job, body) VALUES (?, ?)

-- name: keep_key
-- Remember an idempotency key; an expired entry is overwritten.
INSERT INTO idempotency (task, key, id, fingerprint, expires_ms) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task, key) DO UPDATE
SET id = excluded.id, fingerprint = excluded.fingerprint, expires_ms = excluded.expires_ms

-- name: list_rows
-- The row numbers of jobs between two numbers, both included.
SELECT row FROM jobs WHERE row BETWEEN ? AND ?

-- name: last_row
-- The highest row number of a job.
SELECT max(row) FROM jobs
