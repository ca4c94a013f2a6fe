-- Copies of jobs and idempotency keys, for another engine and from one.

-- name: read_copies
-- What copies have in addition to the records: when each job took its place, the age of its queue at that time, the next
-- visit of the purge, and what ends the hold of its unique key.
SELECT id, coalesce(ready_ms, created_ms), age, keep_until_ms, unique_until, coalesce(period_until_ms, 0)
FROM windlass.jobs WHERE id = ANY($1::text[])
UNION ALL
SELECT id, coalesce(ready_ms, created_ms), 0, keep_until_ms, unique_until, coalesce(period_until_ms, 0)
FROM windlass.ended WHERE id = ANY($1::text[])

-- name: copy_steps
-- The steps of some jobs, in any order.
SELECT found.id, steps.name, steps.value FROM (
    SELECT id, row FROM windlass.jobs WHERE id = ANY($1::text[])
    UNION ALL
    SELECT id, row FROM windlass.ended WHERE id = ANY($1::text[])
) AS found JOIN windlass.steps ON steps.job = ANY(ARRAY[found.row])

-- name: insert_copy
-- Store a copied job that has not succeeded.
INSERT INTO windlass.jobs (
    row, place, id, task, queue, rank, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
    interruptions, snoozes, strays, created_ms, ready_ms, due_ms, expires_ms, started_ms, finished_ms, keep_until_ms,
    session, progress, unique_key, unique_until, period_until_ms, age, held_because, call
)
VALUES (
    $32::bigint, $32::bigint, $1, $2, $3, $4::integer, $5, $6, $7, $8::smallint, $9::smallint, $10::integer, $11::integer,
    $12::integer, $13::integer, $14::integer, $15::integer, $16::integer, $17::bigint, $18::bigint, $19::bigint,
    $20::bigint, $21::bigint, $22::bigint, $23::bigint, $24, $25::bytea, $26, $27, $28::bigint, $29::integer, $30::bytea,
    $31::bytea
)

-- name: insert_ended_copy
-- Store a copied job that succeeded, outside of the ring, by the parameters of `insert_copy`; return its row.
INSERT INTO windlass.ended (
    row, slot, id, task, queue, priority, attempt, starts, crashes, losses, interruptions, snoozes, strays, created_ms,
    ready_ms, expires_ms, started_ms, finished_ms, keep_until_ms, result_until_ms, last_end, session, progress, unique_key,
    unique_until, period_until_ms, call
)
SELECT nextval('windlass.numbers'), $32::bigint, $1, $2, $3, $29::integer - $4::integer, $10::integer, $11::integer,
    $12::integer, $13::integer, $14::integer, $15::integer, $16::integer, $17::bigint, $18::bigint, $20::bigint,
    $21::bigint, $22::bigint, $23::bigint, 0, 0, $24, $25::bytea, $26, $27, $28::bigint, $31::bytea
WHERE $5::text = 'succeeded' AND $6::text IS NULL AND $7::text IS NULL AND $8::smallint = 0 AND $9::smallint >= 0
      AND $19::bigint IS NULL AND $30::bytea IS NULL
RETURNING row

-- name: insert_failure
-- Store an entry of the history of a copied job.
INSERT INTO windlass.failures (job, number, at_ms, event, attempt, session, started_ms, error)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: list_keys
-- The next idempotency keys that are remembered.
SELECT task, key, id, fingerprint, expires_ms FROM windlass.idempotency
WHERE (task, key) > ($1, $2) AND expires_ms > $3 ORDER BY task, key LIMIT $4

-- name: list_unique_keys
-- The next unique keys, each with the job that was stored last under it, its state, and the instant before which it
-- does not release the key.
SELECT known.task, known.key, found.* FROM (
    SELECT task, key, id FROM windlass.unique_keys WHERE (task, key) > ($1, $2) ORDER BY task, key LIMIT $3
) AS known CROSS JOIN LATERAL (
    SELECT id, state, coalesce(period_until_ms, 0)
    FROM windlass.jobs WHERE jobs.id = known.id AND jobs.unique_key = known.key
    UNION ALL
    SELECT id, 'succeeded', coalesce(period_until_ms, 0)
    FROM windlass.ended WHERE ended.id = known.id AND ended.unique_key = known.key
) AS found
ORDER BY known.task, known.key

-- name: list_writers
-- The other open transactions that have read `meta`. Each transaction reads `meta` before the clock and before jobs.
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = 'windlass.meta'::regclass AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND pid IS DISTINCT FROM pg_backend_pid()
