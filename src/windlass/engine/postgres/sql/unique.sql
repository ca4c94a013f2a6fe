-- Unique keys.

-- name: declare_unique
-- Store the settings of a unique key with a new job.
UPDATE windlass.jobs SET unique_key = $2, unique_until = $3, period_until_ms = $4 WHERE row = $1

-- name: find_holder
-- The latest job under a unique key, and all columns that decide whether it holds the key.
SELECT found.*
FROM windlass.unique_keys AS known CROSS JOIN LATERAL (
    SELECT id, state, unique_until, coalesce(period_until_ms, 0), expires_ms
    FROM windlass.jobs WHERE jobs.id = known.id AND jobs.unique_key = known.key
    UNION ALL
    SELECT id, 'succeeded', unique_until, coalesce(period_until_ms, 0), expires_ms
    FROM windlass.ended WHERE ended.id = known.id AND ended.unique_key = known.key
) AS found
WHERE known.task = $1 AND known.key = $2

-- name: find_holders
-- The latest jobs under unique keys, with all columns that decide whether they hold the keys: arrays of tasks and
-- keys. Each row begins with its task and key.
SELECT known.task, known.key, found.*
FROM unnest($1::text[], $2::text[]) AS given (task, key) CROSS JOIN LATERAL (
    SELECT task, key, id FROM windlass.unique_keys WHERE task = given.task AND key = given.key LIMIT 1
) AS known CROSS JOIN LATERAL (
    SELECT id, state, unique_until, coalesce(period_until_ms, 0), expires_ms
    FROM windlass.jobs WHERE jobs.id = ANY(ARRAY[known.id]) AND unique_key || '' = known.key
    UNION ALL
    SELECT id, 'succeeded', unique_until, coalesce(period_until_ms, 0), expires_ms
    FROM windlass.ended WHERE ended.id = ANY(ARRAY[known.id]) AND unique_key || '' = known.key
) AS found

-- name: find_replaced
-- The job that took over the call of this put; a later put may have replaced that call since.
SELECT id FROM windlass.jobs WHERE replaced_by = $1
UNION ALL
SELECT job FROM windlass.replaced_puts WHERE id = $1 AND expires_ms + 0 > $2

-- name: find_replaced_puts
-- The jobs that took over the calls of these puts, also of puts that were remembered long enough. Each row begins with
-- its put; of two rows for a put, the first one counts.
SELECT given.id, found.job, found.expires_ms
FROM unnest($1::text[]) AS given (id) CROSS JOIN LATERAL (
    SELECT id AS job, NULL::bigint AS expires_ms FROM windlass.jobs WHERE replaced_by = ANY(ARRAY[given.id])
    UNION ALL
    SELECT job, expires_ms FROM windlass.replaced_puts WHERE replaced_puts.id = ANY(ARRAY[given.id])
) AS found

-- name: forget_unique_key
-- Forget the unique key of a removed job, unless the key points to another job by now.
DELETE FROM windlass.unique_keys
WHERE id = $1 AND (task, key) = (SELECT task, unique_key FROM windlass.jobs WHERE id = $1)

-- name: keep_replaced_put
-- Remember, until an instant, the put that gave a job its current call, before a later put replaces that call.
INSERT INTO windlass.replaced_puts (id, job, expires_ms)
SELECT replaced_by, id, $2 FROM windlass.jobs WHERE row = $1 AND coalesce(replaced_by, '') <> ''
ON CONFLICT (id) DO UPDATE SET job = excluded.job, expires_ms = excluded.expires_ms

-- name: keep_unique_key
-- Point a unique key to this job.
INSERT INTO windlass.unique_keys (task, key, id) VALUES ($1, $2, $3)
ON CONFLICT (task, key) DO UPDATE SET id = excluded.id

-- name: keep_unique_keys
-- Point unique keys to jobs: arrays of tasks, keys and ids. No key comes twice.
INSERT INTO windlass.unique_keys (task, key, id)
SELECT task, key, id FROM unnest($1::text[], $2::text[], $3::text[]) AS given (task, key, id)
ON CONFLICT (task, key) DO UPDATE SET id = excluded.id

-- name: keys_of_jobs
-- The tasks and unique keys of some jobs. A job never changes its key.
SELECT task, unique_key FROM windlass.jobs WHERE id = ANY($1::text[]) AND unique_key IS NOT NULL

-- name: read_unique_key
-- The unique key of one job.
SELECT unique_key FROM windlass.jobs WHERE id = $1

-- name: replace_job
-- Replace the call of a waiting job by the call of another put, with fresh budgets. Its age is kept or forgotten.
UPDATE windlass.jobs
SET queue = $2, rank = $3::integer + age * $12::integer, age = age * $12::integer, place = $4, state = $5, ready_ms = $6,
    due_ms = $7, expires_ms = $8, unique_until = $9, period_until_ms = $10, replaced_by = $11, hold = NULL, suspect = 0,
    attempt = 0, starts = 0, crashes = 0, losses = 0, interruptions = 0, snoozes = 0, strays = 0, progress = NULL,
    held_because = NULL
WHERE row = $1
