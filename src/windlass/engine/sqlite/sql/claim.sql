-- Claims: due jobs, silent sessions, and the jobs to lease.

-- name: any_silent_session
-- Whether a lease ran out, or a dead session still has jobs to take back.
SELECT EXISTS (SELECT 1 FROM sessions WHERE gone = 0 AND expires_ms <= ?1)
    OR EXISTS (SELECT 1 FROM sessions WHERE gone = 1)

-- name: drop_due
-- Drop the due time of a job that does not wait for an instant.
UPDATE jobs SET due_ms = NULL WHERE row = ?

-- name: list_claims
-- The jobs that a session still holds under one token, in the order of their claim. The last column is when a job
-- took its place in line, relative to its claim.
SELECT rank, place, row, id, queue, expires_ms,
       task, attempt, starts, crashes, losses, interruptions, snoozes, strays, created_ms, suspect, age - rank, call,
       coalesce(ready_ms, created_ms) - started_ms
FROM jobs
WHERE state = 'running' AND session = ? AND token = ?
ORDER BY rank, place

-- name: list_silent_sessions
-- Sessions with an expired lease, and dead sessions that still have jobs to take back; and whether each has info.
SELECT session, info <> x'' FROM sessions WHERE gone = 0 AND expires_ms <= ?1
UNION ALL
SELECT session, info <> x'' FROM sessions WHERE gone = 1

-- name: load_due
-- The next due jobs, the earliest first.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM jobs WHERE due_ms <= ? ORDER BY due_ms, row LIMIT ?

-- name: list_payloads
-- The large calls of jobs, which are given as an array of rows.
SELECT payloads.job, payloads.body FROM json_each(?1) AS given CROSS JOIN payloads ON payloads.job = given.value

-- name: next_due
-- The instant of the next due job.
SELECT min(due_ms) FROM jobs WHERE due_ms IS NOT NULL

-- name: note_claim
-- Record that a session leased jobs under a nonce: the session lives until an instant, and earlier
-- nonces are used up.
INSERT INTO sessions (session, expires_ms, last_nonce) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET expires_ms = excluded.expires_ms, last_nonce = excluded.last_nonce

-- name: reap_after
-- The instant before which no session is declared dead, and the settings of queues.
SELECT reap_after_ms, queues FROM meta

-- name: take_jobs
-- Lease ready jobs (an array of rows) to a session under a token, and count the attempt.
UPDATE jobs
SET state = 'running', session = ?1, token = ?2, started_ms = ?3,
    attempt = attempt + 1, starts = starts + 1, progress = NULL, held_because = NULL
WHERE row IN (SELECT value FROM json_each(?4))
