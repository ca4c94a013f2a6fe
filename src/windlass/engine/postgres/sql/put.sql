-- New jobs and idempotency keys.

-- name: count_waiting
-- The number of jobs in one line that wait to run.
SELECT coalesce(sum(number), 0)::bigint FROM (
    SELECT number FROM windlass.counters
    WHERE kind = 'jobs' AND name = $1 AND part IN ('waiting', 'scheduled', 'ready', 'retrying')
    UNION ALL
    SELECT number FROM windlass.deltas
    WHERE kind = 'jobs' AND name = $1 AND part IN ('waiting', 'scheduled', 'ready', 'retrying')
) AS found

-- name: delete_repeated
-- Remove jobs that this transaction has just stored although they succeeded before: the first of these statements
-- may not have seen that. Returns their rows.
DELETE FROM windlass.jobs
WHERE row = ANY($1::text::bigint[]) AND EXISTS (SELECT 1 FROM windlass.ended WHERE ended.id = ANY(ARRAY[jobs.id]))
RETURNING row

-- name: find_key
-- The job that an idempotency key belongs to, while the key is remembered.
SELECT id, fingerprint FROM windlass.idempotency WHERE task = $1 AND key = $2 AND expires_ms + 0 > $3

-- name: find_keys
-- The jobs that idempotency keys belong to, also keys that have expired: arrays of tasks and keys.
SELECT found.*
FROM unnest($1::text[], $2::text[]) AS given (task, key) CROSS JOIN LATERAL (
    SELECT task, key, id, fingerprint, expires_ms FROM windlass.idempotency
    WHERE task = given.task AND key = given.key LIMIT 1
) AS found

-- name: find_known
-- The ids among these that are stored.
SELECT id FROM unnest($1::text[]) AS given (id)
WHERE EXISTS (SELECT 1 FROM windlass.jobs WHERE jobs.id = ANY(ARRAY[given.id]))
   OR EXISTS (SELECT 1 FROM windlass.ended WHERE ended.id = ANY(ARRAY[given.id]))

-- name: insert_jobs
-- Store new jobs, ready or scheduled, in the order of the arrays; return those that were not known.
INSERT INTO windlass.jobs (row, place, id, task, queue, rank, state, created_ms, due_ms, expires_ms, call)
SELECT number, number, id, task, queue, rank, state, created_ms, due_ms, expires_ms, call
FROM (
    SELECT nextval('windlass.numbers') AS number, given.*
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text::integer[], $5::text[], $6::text::bigint[], $7::text::bigint[], $8::text::bigint[],
        $9::bytea[]) AS given (id, task, queue, rank, state, created_ms, due_ms, expires_ms, call)
) AS numbered
ON CONFLICT (id) DO NOTHING
RETURNING row, id

-- name: keep_key
-- Remember an idempotency key; an expired entry is overwritten.
INSERT INTO windlass.idempotency (task, key, id, fingerprint, expires_ms) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (task, key) DO UPDATE
SET id = excluded.id, fingerprint = excluded.fingerprint, expires_ms = excluded.expires_ms

-- name: keep_keys
-- Remember idempotency keys: arrays of tasks, keys, ids and fingerprints. No key comes twice.
INSERT INTO windlass.idempotency (task, key, id, fingerprint, expires_ms)
SELECT task, key, id, fingerprint, $5::bigint
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS given (task, key, id, fingerprint)
ON CONFLICT (task, key) DO UPDATE
SET id = excluded.id, fingerprint = excluded.fingerprint, expires_ms = excluded.expires_ms
