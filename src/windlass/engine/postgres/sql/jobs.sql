-- Statements of every transaction: records of jobs, counters and totals.

-- name: add_deltas
-- Change numbers of records and totals of events: arrays of kinds, names, parts and changes.
INSERT INTO windlass.deltas (kind, name, part, number)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text::bigint[])

-- name: add_failure
-- Append an entry to the history of a job.
INSERT INTO windlass.failures (job, number, at_ms, event, attempt, session, error, started_ms)
SELECT $1, coalesce(max(number), 0) + 1, $2, $3, $4, $5, $6, (SELECT started_ms FROM windlass.jobs WHERE row = $1)
FROM windlass.failures WHERE job = $1

-- name: begin_read
-- Begin a transaction that sees one instant.
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: begin_write
-- Begin a transaction that writes. Behind a pooler, the role may have another level by default.
BEGIN ISOLATION LEVEL READ COMMITTED

-- name: commit
-- End a transaction.
COMMIT

-- name: begin
-- The clock of the server, and the single row of bookkeeping. For tests, `=` and an instant stop the clock. Fails with
-- a division by zero if the schema has another format, so that all statements after it fail too.
SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
            ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END,
       format / (format = $2::integer)::integer, identity, queues, last_seen_ms,
       reap_after_ms, longest_lease_ms, longest_until_ms, next_lease_ms
FROM windlass.meta WHERE one = 1

-- name: begin_within
-- Do what `begin` does in a transaction of the caller, in which no statement may fail: the format is compared
-- afterwards.
SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
            ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END,
       format, identity, queues, last_seen_ms, reap_after_ms, longest_lease_ms, longest_until_ms, next_lease_ms
FROM windlass.meta WHERE one = 1

-- name: read_clock
-- The clock of the server; for tests, `=` and an instant stop the clock.
SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
            ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END

-- name: clamp_sessions
-- Shorten leases after the clock went back: no lease may be longer than a whole lease.
UPDATE windlass.sessions SET expires_ms = $1 WHERE gone = 0 AND expires_ms > $1

-- name: delete_job
-- Remove one job with its history and its steps.
WITH history AS (DELETE FROM windlass.failures WHERE job = $1), steps AS (DELETE FROM windlass.steps WHERE job = $1)
DELETE FROM windlass.jobs WHERE row = $1

-- name: is_known
-- Whether a job is stored.
SELECT EXISTS (SELECT 1 FROM windlass.jobs WHERE id = $1) OR EXISTS (SELECT 1 FROM windlass.ended WHERE id = $1)

-- name: limit_idle
-- Let the server end this transaction if its client falls silent from now on.
SELECT set_config('idle_in_transaction_session_timeout', $1::text, true)

-- name: load_job
-- All columns of one job that a move may change, by id.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM windlass.jobs WHERE id = $1 FOR UPDATE

-- name: load_ended_job
-- All columns that a move may change, of a job that succeeded, by id.
SELECT row, id, task, queue, row, 'succeeded', NULL::text, NULL::text, 0, 0, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, NULL::bigint, expires_ms, finished_ms, keep_until_ms, session,
       NULL::text, last_end, progress, result
FROM windlass.ended WHERE id = $1 ORDER BY finished_ms DESC LIMIT 1

-- name: lock_holders
-- Keep the jobs that unique keys lead to from changing: arrays of tasks and keys.
SELECT 1 FROM windlass.jobs WHERE id = ANY(ARRAY(
    SELECT id FROM unnest($1::text[], $2::text[]) AS given (task, key) CROSS JOIN LATERAL (
        SELECT id FROM windlass.unique_keys WHERE task = given.task AND key = given.key LIMIT 1
    ) AS known
)) ORDER BY row + 0 FOR UPDATE

-- name: lock_waiting_holders
-- Keep the jobs that unique keys lead to from changing, unless they run: arrays of tasks and keys. The end of a running
-- job must not wait for this transaction.
SELECT 1 FROM windlass.jobs WHERE state <> 'running' AND id = ANY(ARRAY(
    SELECT id FROM unnest($1::text[], $2::text[]) AS given (task, key) CROSS JOIN LATERAL (
        SELECT id FROM windlass.unique_keys WHERE task = given.task AND key = given.key LIMIT 1
    ) AS known
)) ORDER BY row + 0 FOR UPDATE

-- name: lock_names
-- Wait, for one number after the other, until no other transaction has locked it.
SELECT count(pg_advisory_xact_lock(number)) FROM unnest($1::text::bigint[]) AS given (number)

-- name: lock_queues
-- Keep other transactions from changing the settings of queues, and read them.
SELECT queues FROM windlass.meta WHERE one = 1 FOR UPDATE

-- name: next_numbers
-- New places in line.
SELECT nextval('windlass.numbers') FROM generate_series(1, $1::integer)

-- name: read_queues
-- The settings of queues.
SELECT queues FROM windlass.meta WHERE one = 1

-- name: save_job
-- Write back all columns that a move may have changed.
UPDATE windlass.jobs
SET place = $2, state = $3, hold = $4, reason = $5, suspect = $6, cancel_requested = $7, attempt = $8, starts = $9,
    crashes = $10, losses = $11, interruptions = $12, snoozes = $13, strays = $14, ready_ms = $15, due_ms = $16,
    expires_ms = $17, finished_ms = $18, keep_until_ms = $19, session = $20, token = $21, last_end = $22,
    progress = $23, result = $24
WHERE row = $1

-- name: set_age
-- Store the age of the queue with a job that takes its place.
UPDATE windlass.jobs SET rank = rank - age + $2::integer, age = $2::integer WHERE row = $1

-- name: set_call
-- Replace the envelope of a job.
UPDATE windlass.jobs SET call = $2 WHERE row = $1

-- name: trim_failures
-- Forget all but the newest entries of a history.
DELETE FROM windlass.failures
WHERE job = $1 AND number <= (SELECT max(number) FROM windlass.failures WHERE job = $1) - $2

-- name: write_meta
-- Write the bookkeeping back. NULL keeps the stored value.
UPDATE windlass.meta
SET last_seen_ms = $1, reap_after_ms = coalesce($2, reap_after_ms), longest_lease_ms = coalesce($3, longest_lease_ms),
    longest_until_ms = coalesce($4, longest_until_ms), next_lease_ms = coalesce($5, next_lease_ms)
WHERE one = 1

-- name: write_queues
-- Write the settings of queues back.
UPDATE windlass.meta SET queues = $1 WHERE one = 1
