-- Copies of jobs and idempotency keys, for another engine and from one.

-- name: read_copies
-- What copies have in addition to the records: when each job took its place, the age of its queue at that time, the next
-- visit of the purge, and what ends the hold of its unique key.
SELECT id, coalesce(ready_ms, created_ms), age, keep_until_ms, unique_until, coalesce(period_until_ms, 0)
FROM jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: copy_steps
-- The steps of some jobs, in any order.
SELECT jobs.id, steps.name, steps.value FROM jobs CROSS JOIN steps ON steps.job = jobs.row
WHERE jobs.id IN (SELECT value FROM json_each(?))

-- name: insert_copy
-- Store a copied job.
INSERT INTO jobs (
    row, id, task, queue, rank, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
    interruptions, snoozes, strays, created_ms, ready_ms, due_ms, expires_ms, started_ms, finished_ms, keep_until_ms,
    session, progress, unique_key, unique_until, period_until_ms, age, held_because, call
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?1, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
    ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32
)

-- name: insert_failure
-- Store an entry of the history of a copied job.
INSERT INTO failures (job, number, at_ms, event, attempt, session, started_ms, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: list_keys
-- The next idempotency keys that are remembered.
SELECT task, key, id, fingerprint, expires_ms FROM idempotency
WHERE (task, key) > (?1, ?2) AND expires_ms > ?3 ORDER BY task, key LIMIT ?4

-- name: list_unique_keys
-- The next unique keys, each with the job that was stored last under it, its state, and the instant before which it
-- does not release the key.
SELECT unique_keys.task, unique_keys.key, jobs.id, jobs.state, coalesce(jobs.period_until_ms, 0)
FROM unique_keys JOIN jobs ON jobs.id = unique_keys.id AND jobs.unique_key = unique_keys.key
WHERE (unique_keys.task, unique_keys.key) > (?1, ?2) ORDER BY unique_keys.task, unique_keys.key LIMIT ?3
