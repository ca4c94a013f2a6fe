-- Finish claims with their outcomes.

-- name: find_claim
-- How the holder ended the last claim of a job.
SELECT last_end FROM windlass.jobs WHERE id = $1
UNION ALL
SELECT last_end FROM windlass.ended WHERE id = $1

-- name: note_progress
-- Store the progress of a running job, if the token is current.
UPDATE windlass.jobs SET progress = $3 WHERE id = $1 AND token = $2 RETURNING row

-- name: note_why_held
-- Store why a job is held, or that it is not any more.
UPDATE windlass.jobs SET held_because = $2 WHERE row = $1

-- name: succeed_jobs
-- End claims with success if their token is current: move them into the ring, count them by queue, and return
-- their ids and tokens. The arrays have ids, tokens, marks of this end, lifetimes of results, and results.
WITH clock AS (
    SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
                ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END AS now_ms
), given AS (
    SELECT * FROM unnest($2::text[], $3::text[], $4::text::bigint[], $5::text::bigint[], $6::bytea[])
        AS given (id, token, last_end, ttl_ms, result)
), done AS (
    DELETE FROM windlass.jobs USING given
    WHERE jobs.id = ANY(ARRAY[given.id]) AND jobs.token = given.token  -- set exactly while it is running
    RETURNING jobs.*, given.last_end AS this_end, given.ttl_ms, given.result AS returned
), kept AS (
    SELECT done.*, now_ms, least(now_ms + CASE WHEN returned IS NULL THEN 0 ELSE ttl_ms END, $7::bigint) AS result_until_ms,
           greatest(least(now_ms + greatest(ttl_ms, $8::bigint), $7::bigint), coalesce(period_until_ms, 0)) AS until_ms
    FROM done CROSS JOIN clock
), counted AS (
    INSERT INTO windlass.deltas (kind, name, part, number)
    SELECT 'jobs', queue, unnest(ARRAY['running', 'succeeded']), unnest(ARRAY[-count(*), count(*)]) FROM done GROUP BY queue
    UNION ALL
    SELECT 'total', 'succeeded', '', count(*) FROM done HAVING count(*) > 0
), replaced AS (  -- a repeat of the put whose call the job had is known by its id
    INSERT INTO windlass.replaced_puts (id, job, expires_ms)
    SELECT replaced_by, id, until_ms FROM kept WHERE replaced_by IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET job = excluded.job, expires_ms = excluded.expires_ms
), moved AS (
    INSERT INTO windlass.ended (row, created_ms, ready_ms, expires_ms, started_ms, finished_ms, keep_until_ms, result_until_ms,
    last_end, period_until_ms, priority, attempt, starts, crashes, losses, interruptions, snoozes, strays, slot, id, task,
    queue, session, unique_key, unique_until, call, progress, result)
    SELECT row, created_ms, ready_ms, expires_ms, started_ms, now_ms, until_ms, result_until_ms,
    this_end, period_until_ms, age - rank, attempt, starts, crashes, losses, interruptions, snoozes, strays,
    CASE WHEN until_ms - now_ms < $10::bigint THEN (until_ms / $9::bigint) % $11::bigint ELSE $11::bigint END, id, task,
    queue, session, unique_key, unique_until, call, progress, returned
    FROM kept
)
SELECT id, token FROM done
