-- The statements of producers, relays and operators on PostgreSQL.

-- name: insert
-- The numbers of the rows ascend in the order of the jobs.
INSERT INTO windlass_outbox.jobs (id, body)
SELECT id, body FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS new (id, body, number)
ORDER BY number

-- name: has_rows
SELECT EXISTS (SELECT FROM windlass_outbox.jobs WHERE due_ms = 0)
    OR EXISTS (
        SELECT FROM windlass_outbox.jobs
        WHERE due_ms > 0 AND due_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    )

-- name: set_limits
-- Of this transaction only, because a pool between us and the server may lend the session to others.
SELECT set_config('statement_timeout', $1::text, true),
    set_config('idle_in_transaction_session_timeout', $2::text, true)

-- name: next_fresh
SELECT position, octet_length(body) FROM windlass_outbox.jobs
WHERE due_ms = 0
ORDER BY position LIMIT $1::bigint
FOR UPDATE SKIP LOCKED

-- name: next_postponed
SELECT position, octet_length(body) FROM windlass_outbox.jobs
WHERE due_ms > 0 AND due_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
ORDER BY due_ms LIMIT $1::bigint
FOR UPDATE SKIP LOCKED

-- name: read
SELECT position, id, body,
    greatest(0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - created_ms), tries
FROM windlass_outbox.jobs
WHERE position = ANY($1::bigint[])
ORDER BY position

-- name: delete
DELETE FROM windlass_outbox.jobs WHERE position = ANY($1::bigint[])

-- name: postpone
UPDATE windlass_outbox.jobs AS job
SET due_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + new.delay_ms,
    tries = tries + 1,
    error = new.error
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS new (position, delay_ms, error)
WHERE job.position = new.position

-- name: count
SELECT count(*), count(*) FILTER (WHERE tries > 0)
FROM (SELECT tries FROM windlass_outbox.jobs ORDER BY position LIMIT $1::bigint) AS counted

-- name: oldest
SELECT greatest(0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - created_ms)
FROM windlass_outbox.jobs
WHERE due_ms = 0
ORDER BY position LIMIT 1

-- name: first_refused
SELECT id, tries, error
FROM (
    SELECT position, id, tries, error FROM windlass_outbox.jobs ORDER BY position LIMIT $1::bigint
) AS counted
WHERE tries > 0
ORDER BY position LIMIT 1

-- name: has_tables
SELECT to_regclass('windlass_outbox.format') IS NOT NULL

-- name: version
SELECT max(version) FROM windlass_outbox.format

-- name: lock_migration
-- Several programs may migrate at once, at the start of a deployment.
SELECT pg_advisory_xact_lock(hashtext('windlass_outbox'))
