-- Statements of every transaction: records of jobs, counters and totals.

-- name: add_counter
-- Change the number of records that a queue has in a state. A counter never falls below zero, so a
-- wrong counter never stops a job; a repair corrects it.
INSERT INTO counters (queue, state, number) VALUES (?1, ?2, max(?3, 0))
ON CONFLICT (queue, state) DO UPDATE SET number = max(number + ?3, 0)

-- name: add_failure
-- Append an entry to the history of a job.
INSERT INTO failures (job, number, at_ms, event, attempt, session, error, started_ms)
SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6, (SELECT started_ms FROM jobs WHERE row = ?1)
FROM failures WHERE job = ?1

-- name: add_total
-- Count an event.
INSERT INTO totals (name, number) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET number = number + ?2

-- name: clamp_sessions
-- Shorten leases after the clock went back: no lease may be longer than a whole lease.
UPDATE sessions SET expires_ms = ?1 WHERE gone = 0 AND expires_ms > ?1

-- name: delete_failures
-- Remove the history of a removed job.
DELETE FROM failures WHERE job = ?

-- name: delete_job
-- Remove one job; its payload and history are removed too.
DELETE FROM jobs WHERE row = ?

-- name: delete_payload
-- Remove the envelope of a removed job.
DELETE FROM payloads WHERE job = ?

-- name: load_job
-- All columns of one job that a move may change, by id.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM jobs WHERE id = ?

-- name: read_meta
-- The single row of bookkeeping.
SELECT sequence, last_seen_ms, reap_after_ms, longest_lease_ms, longest_until_ms, next_lease_ms, queues FROM meta

-- name: read_queues
-- The settings of queues.
SELECT queues FROM meta WHERE one = 1

-- name: save_job
-- Write back all columns that a move may have changed.
UPDATE jobs
SET place = ?2, state = ?3, hold = ?4, reason = ?5, suspect = ?6, cancel_requested = ?7, attempt = ?8, starts = ?9,
    crashes = ?10, losses = ?11, interruptions = ?12, snoozes = ?13, strays = ?14, ready_ms = ?15, due_ms = ?16,
    expires_ms = ?17, finished_ms = ?18, keep_until_ms = ?19, session = ?20, token = ?21, last_end = ?22,
    progress = ?23, result = ?24
WHERE row = ?1

-- name: set_age
-- Store the age of the queue with a job that takes its place.
UPDATE jobs SET rank = rank - age + ?2, age = ?2 WHERE row = ?1

-- name: trim_failures
-- Forget all but the newest entries of a history.
DELETE FROM failures
WHERE job = ?1 AND number <= (SELECT max(number) FROM failures WHERE job = ?1) - ?2

-- name: write_meta
-- Write the bookkeeping back.
UPDATE meta SET sequence = ?, last_seen_ms = ?, reap_after_ms = ?, longest_lease_ms = ?, longest_until_ms = ?, next_lease_ms = ?

-- name: write_queues
-- Write the settings of queues back.
UPDATE meta SET queues = ?
