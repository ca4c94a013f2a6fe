-- Sessions and the jobs that they hold.

-- name: command_session
-- Set what heartbeats of a live session return.
UPDATE windlass.sessions SET command = $2 WHERE session = $1 AND gone + 0 = 0

-- name: end_session
-- Declare a session dead (1), or dead and without jobs (2). The row is kept until an instant, so that late
-- heartbeats get a reply.
WITH forgotten AS (DELETE FROM windlass.introductions WHERE session = $1)
INSERT INTO windlass.sessions (session, expires_ms, gone) VALUES ($1, $2, $3)
ON CONFLICT (session) DO UPDATE SET expires_ms = excluded.expires_ms, gone = excluded.gone

-- name: find_session
-- Whether a session was declared dead, and the latest nonce under which it leased jobs.
SELECT gone, last_nonce FROM windlass.sessions WHERE session = $1

-- name: introduce_session
-- Store the info of a session; a new session lives from now on, until an instant. Another transaction may have declared
-- it dead a moment ago.
WITH living AS (
    INSERT INTO windlass.sessions (session, expires_ms) VALUES ($1, $2)
    ON CONFLICT (session) DO UPDATE SET gone = sessions.gone
    RETURNING session, gone
)
INSERT INTO windlass.introductions (session, info) SELECT session, $3 FROM living WHERE gone = 0
ON CONFLICT (session) DO UPDATE SET info = excluded.info

-- name: keep_session
-- Extend a lease until an instant; a session that was declared dead stays dead.
UPDATE windlass.sessions SET expires_ms = $2 WHERE session = $1 AND gone + 0 = 0

-- name: list_cancel_requests
-- Jobs of a session with a requested cancellation.
SELECT id FROM windlass.jobs WHERE state = 'running' AND session = $1 AND cancel_requested = 1 ORDER BY id || ''

-- name: load_held
-- Jobs that a session holds; all of them with a negative limit.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM windlass.jobs WHERE state = 'running' AND session = $1
ORDER BY row + 0 LIMIT CASE WHEN $2::bigint < 0 THEN NULL ELSE $2::bigint END FOR UPDATE

-- name: load_held_under
-- Jobs that a session holds under one token.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM windlass.jobs WHERE state = 'running' AND session = $1 AND token = $2 ORDER BY row + 0 FOR UPDATE

-- name: load_unknown_nonces
-- Jobs that a session has held for a while under any token. A start in the future counts as old, because the clock
-- was set back.
SELECT row, id, task, queue, place, state, hold, reason, suspect, cancel_requested, attempt, starts, crashes, losses,
       interruptions, snoozes, strays, ready_ms, due_ms, expires_ms, finished_ms, keep_until_ms, session, token, last_end,
       progress, result
FROM windlass.jobs WHERE state = 'running' AND session = $1 AND (started_ms <= $2 OR started_ms > $3)
ORDER BY row + 0 FOR UPDATE

-- name: lock_free_sessions
-- Lock those of the given sessions that no other transaction has locked, and return the others.
WITH free AS (SELECT session FROM windlass.sessions WHERE session = ANY($1::text[]) FOR UPDATE SKIP LOCKED)
SELECT session FROM windlass.sessions WHERE session = ANY($1::text[]) AND session NOT IN (SELECT session FROM free)

-- name: lock_session
-- Keep other transactions from changing a session; whether it was declared dead, and its latest nonce.
SELECT gone, last_nonce FROM windlass.sessions WHERE session = $1 FOR UPDATE

-- name: begin_session
-- Make a session that is not known yet, without a lease.
INSERT INTO windlass.sessions (session, expires_ms) VALUES ($1, $2) ON CONFLICT (session) DO NOTHING

-- name: not_held
-- The jobs of an array that a session does not hold.
SELECT value FROM unnest($2::text[]) AS given (value)
WHERE value NOT IN (SELECT id FROM windlass.jobs WHERE state = 'running' AND session = $1)

-- name: read_command
-- Whether a session was declared dead, and what its heartbeats return.
SELECT gone, command FROM windlass.sessions WHERE session = $1 FOR UPDATE

-- name: use_up_nonce
-- Use up a nonce: a claim under it that arrives later must find nothing.
INSERT INTO windlass.sessions (session, expires_ms, last_nonce) VALUES ($1, $2, $3)
ON CONFLICT (session) DO UPDATE SET last_nonce = greatest(sessions.last_nonce, excluded.last_nonce)
