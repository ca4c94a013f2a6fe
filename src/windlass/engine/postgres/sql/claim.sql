-- Claims: due jobs, silent sessions, and the jobs to lease.

-- name: drop_due
-- Drop the due time of a job that does not wait for an instant.
UPDATE windlass.jobs SET due_ms = NULL WHERE row = $1

-- name: list_candidates
-- The next jobs of each of these lines in the order in which they should start, with the size of the call.
SELECT found.* FROM unnest($1::text[]) AS given (line) CROSS JOIN LATERAL (
    SELECT rank, place, row, id, queue, expires_ms, task, octet_length(call)
    FROM windlass.jobs
    WHERE state = 'ready' AND hold IS NULL AND queue = given.line AND suspect = $2::smallint
    ORDER BY rank, place LIMIT $3::bigint
) AS found

-- name: list_candidates_after
-- The next jobs of one line after a rank and a place.
SELECT rank, place, row, id, queue, expires_ms, task, octet_length(call)
FROM windlass.jobs
WHERE state = 'ready' AND hold IS NULL AND queue = $1 AND suspect = $2::smallint AND (rank, place) > ($3::integer, $4::bigint)
ORDER BY rank, place LIMIT $5::bigint

-- name: list_claims
-- The jobs that a session still holds under one token. The last column is when a job took its place in line, relative
-- to its claim.
SELECT rank, place, row, id, queue, task, attempt, starts, crashes, losses, interruptions, snoozes, strays, created_ms,
       suspect, age - rank, call, coalesce(ready_ms, created_ms) - started_ms
FROM windlass.jobs
WHERE state = 'running' AND session = $1 AND token = $2

-- name: list_silent_sessions
-- Sessions with an expired lease, and dead sessions that still have jobs to take back; and whether each has info.
SELECT session, EXISTS (SELECT 1 FROM windlass.introductions AS known WHERE known.session = sessions.session)
FROM windlass.sessions WHERE gone = 0 AND expires_ms <= $1 OR gone = 1
ORDER BY gone, expires_ms LIMIT 100 FOR UPDATE SKIP LOCKED

-- name: load_due
-- The next due jobs, the earliest first.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM windlass.jobs WHERE due_ms <= $1 ORDER BY due_ms, row LIMIT $2 FOR UPDATE SKIP LOCKED

-- name: look
-- Whether a lease ran out, or a dead session still has jobs to take back; when the next job is due; and whether jobs
-- wait that must run alone.
SELECT EXISTS (SELECT 1 FROM windlass.sessions WHERE gone = 0 AND expires_ms <= $1)
       OR EXISTS (SELECT 1 FROM windlass.sessions WHERE gone = 1),
       (SELECT due_ms FROM windlass.jobs WHERE due_ms IS NOT NULL ORDER BY due_ms, row LIMIT 1),
       EXISTS (SELECT 1 FROM windlass.jobs WHERE suspect = 1 AND state = 'ready' AND hold IS NULL)

-- name: lines_with_jobs
-- The lines between two names that have ready jobs, by one seek in the index for each line.
WITH RECURSIVE found (line) AS (
    (SELECT queue FROM windlass.jobs
     WHERE state = 'ready' AND hold IS NULL AND queue >= $1::text COLLATE "C" AND queue < $2::text COLLATE "C"
     ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM windlass.jobs
            WHERE state = 'ready' AND hold IS NULL AND queue > found.line AND queue < $2::text COLLATE "C"
            ORDER BY queue LIMIT 1)
    FROM found WHERE found.line IS NOT NULL
)
SELECT line FROM found WHERE line IS NOT NULL

-- name: note_claim
-- Record that a session leased jobs under a nonce: the session lives until an instant, and earlier nonces are used up.
INSERT INTO windlass.sessions (session, expires_ms, last_nonce) VALUES ($1, $2, $3)
ON CONFLICT (session) DO UPDATE SET expires_ms = excluded.expires_ms, last_nonce = excluded.last_nonce

-- name: take_jobs
-- Lease ready jobs to a session under a token, and count the attempt. A job that another transaction changes at this
-- moment is left out. The state is compared in a way that offers no partial index to the planner.
WITH chosen AS (
    SELECT row FROM windlass.jobs
    WHERE row = ANY($4::text::bigint[]) AND coalesce(state, '') = 'ready' AND hold IS NULL
    ORDER BY row FOR UPDATE SKIP LOCKED
)
UPDATE windlass.jobs
SET state = 'running', session = $1, token = $2, started_ms = $3::bigint,
    attempt = attempt + 1, starts = starts + 1, progress = NULL, held_because = NULL
FROM chosen WHERE jobs.row = ANY(ARRAY[chosen.row])
RETURNING rank, place, jobs.row, id, queue, task, attempt, starts, crashes, losses, interruptions, snoozes, strays, created_ms,
          suspect, age - rank, call, coalesce(ready_ms, created_ms) - started_ms
