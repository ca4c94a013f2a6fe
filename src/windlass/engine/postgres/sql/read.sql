-- Reads: records, pages of records, counters and sessions.

-- name: find_due
-- A stretch of jobs that wait for an instant, after an instant and row.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM windlass.jobs WHERE due_ms IS NOT NULL AND (due_ms, row) > ($1::bigint, $2::bigint) ORDER BY due_ms, row LIMIT $3

-- name: find_ended
-- A stretch of ended jobs of one state, before a visit of the purge and a row, down to another visit.
SELECT * FROM (
    (SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, keep_until_ms AS visit_ms
     FROM windlass.jobs
     WHERE state = $1 AND (keep_until_ms, row) < ($2::bigint, $3::bigint) AND keep_until_ms >= $4::bigint
     ORDER BY keep_until_ms DESC, row DESC LIMIT $5::bigint)
    UNION ALL
    (SELECT id, task, queue, priority, 'succeeded', NULL, NULL, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, NULL, expires_ms, started_ms, finished_ms, session, 0, 0, progress,
       result_until_ms, result IS NOT NULL, unique_key, NULL, row, keep_until_ms
     FROM windlass.ended
     WHERE $1 = 'succeeded' AND (keep_until_ms, row) < ($2::bigint, $3::bigint) AND keep_until_ms >= $4::bigint
     ORDER BY keep_until_ms DESC, row DESC LIMIT $5::bigint)
) AS found
ORDER BY visit_ms DESC, row DESC LIMIT $5::bigint

-- name: find_parked
-- A stretch of held jobs after a task and row.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row
FROM windlass.jobs WHERE hold IS NOT NULL AND (task, row) > ($1, $2::bigint) ORDER BY task, row LIMIT $3

-- name: find_ready
-- A stretch of ready jobs after a place in a line, in lines below a name. Jobs that must run alone are among them: in
-- the index they follow the others of their line.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, rank, place
FROM windlass.jobs
WHERE state = 'ready' AND hold IS NULL AND queue < $5
      AND (queue, suspect, rank, place) > ($1, $2::smallint, $3::integer, $4::bigint)
ORDER BY queue, suspect, rank, place LIMIT $6

-- name: find_running
-- A stretch of running jobs after a session, token and row.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, token
FROM windlass.jobs WHERE state = 'running' AND (session, token, row) > ($1, $2, $3::bigint)
ORDER BY session, token, row LIMIT $4

-- name: find_suspect
-- A stretch of ready jobs that must run alone, after a place in a line, in lines below a name.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, rank, place
FROM windlass.jobs
WHERE suspect = 1 AND state = 'ready' AND hold IS NULL AND queue < $4
      AND (queue, rank, place) > ($1, greatest($2::bigint, -2147483648)::integer, $3::bigint)
ORDER BY queue, rank, place LIMIT $5

-- name: list_counters
-- The number of records per queue and state.
SELECT name, part, sum(number)::bigint FROM (
    SELECT name, part, number FROM windlass.counters WHERE kind = 'jobs'
    UNION ALL
    SELECT name, part, number FROM windlass.deltas WHERE kind = 'jobs'
) AS found GROUP BY name, part HAVING sum(number) > 0

-- name: list_failures
-- The histories of jobs, oldest entry first.
SELECT job, at_ms, event, attempt, session, started_ms, error
FROM windlass.failures WHERE job = ANY($1::bigint[]) ORDER BY job, number

-- name: list_held_ids
-- Some of the jobs that a session holds.
SELECT id FROM windlass.jobs WHERE state = 'running' AND session = $1 LIMIT $2

-- name: list_introductions
-- The info of live sessions with a name prefix, a bounded number.
SELECT session, info FROM windlass.introductions
WHERE session > $1 AND session >= $2 AND session < $2 || U&'\+10FFFF'
ORDER BY session LIMIT $3

-- name: list_sessions
-- Live sessions and the number of jobs that each holds.
SELECT sessions.session, expires_ms, coalesce(info, ''::bytea), command,
       (SELECT count(*) FROM windlass.jobs WHERE state = 'running' AND jobs.session = sessions.session)
FROM windlass.sessions LEFT JOIN windlass.introductions ON introductions.session = ANY(ARRAY[sessions.session])
WHERE gone = 0 ORDER BY sessions.session

-- name: list_totals
-- The totals of events.
SELECT name, sum(number)::bigint FROM (
    SELECT name, number FROM windlass.counters WHERE kind = 'total'
    UNION ALL
    SELECT name, number FROM windlass.deltas WHERE kind = 'total'
) AS found GROUP BY name

-- name: newest_failure
-- The newest entry in the history of one job.
SELECT at_ms, event, attempt, session, started_ms, error FROM windlass.failures WHERE job = $1 ORDER BY number DESC LIMIT 1

-- name: oldest_ready
-- When the jobs that are next in these lines took their place.
SELECT given.line, found.ready_ms FROM unnest($1::text[]) AS given (line) CROSS JOIN LATERAL (
    SELECT coalesce(ready_ms, created_ms) AS ready_ms FROM windlass.jobs
    WHERE state = 'ready' AND hold IS NULL AND queue = given.line AND suspect = 0 ORDER BY rank, place LIMIT 1
) AS found

-- name: read_ends
-- The states of jobs, with their results while these are stored.
SELECT id, task, state, reason, finished_ms, NULL::bytea, row FROM windlass.jobs WHERE id = ANY($2::text[])
UNION ALL
SELECT id, task, 'succeeded', NULL, finished_ms, CASE WHEN result_until_ms > $1::bigint THEN result END, row
FROM windlass.ended WHERE id = ANY($2::text[])

-- name: read_infos
-- The info of live sessions with these names.
SELECT session, info FROM windlass.introductions WHERE session = ANY($1::text[])

-- name: read_jobs
-- The records of jobs, for display: with payload, result and fingerprint.
SELECT id, task, queue, age - rank, state, hold, reason, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, due_ms, expires_ms, started_ms, finished_ms, session, cancel_requested, suspect, progress,
       keep_until_ms, result IS NOT NULL, unique_key, held_because, row, call, result, CASE WHEN state = 'dead' THEN (
    SELECT fingerprint FROM windlass.dead_groups
    WHERE number = (SELECT dead_group FROM windlass.deaths WHERE job = jobs.row)
) END
FROM windlass.jobs WHERE id = ANY($1::text[])
UNION ALL
SELECT id, task, queue, priority, 'succeeded', NULL, NULL, attempt, starts, crashes, losses, interruptions, snoozes, strays,
       created_ms, NULL, expires_ms, started_ms, finished_ms, session, 0, 0, progress,
       result_until_ms, result IS NOT NULL, unique_key, NULL, row, call, result, NULL
FROM windlass.ended WHERE id = ANY($1::text[])

-- name: read_payload
-- The envelope of one job.
SELECT call FROM windlass.jobs WHERE row = $1
