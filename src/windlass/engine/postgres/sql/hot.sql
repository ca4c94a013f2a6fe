-- The hot paths: each is a few statements that are sent together and need nothing from one another's replies.
--
-- The first parameter is the clock: what to add to that of the server, in milliseconds, or `=` and an instant. `begin` has
-- read the clock already, but its reply is not here yet.

-- name: put_jobs
-- Store new jobs, ready or scheduled, in the order of the arrays, if the settings of queues are still these; NULL stands
-- for any settings. Known ids store nothing. Arrays that no job needs may be empty. Counts the jobs that were stored, and
-- returns the settings.
WITH clock AS (
    SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
                ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END AS now_ms
), stored AS (
    INSERT INTO windlass.jobs (row, place, id, task, queue, rank, age, state, created_ms, due_ms, expires_ms, unique_key,
                               unique_until, period_until_ms, call)
    SELECT number, number, id, task, queue, rank + coalesce(age, 0), coalesce(age, 0),
           CASE WHEN due_ms > now_ms THEN 'scheduled' ELSE 'ready' END, now_ms, CASE WHEN due_ms > now_ms THEN due_ms END,
           least(expires_ms, now_ms + expires_in_ms), unique_key, unique_until, now_ms + nullif(period_ms, 0), call
    FROM (
        SELECT nextval('windlass.numbers') AS number, now_ms, greatest(run_after_ms, now_ms + run_in_ms) AS due_ms, given.*
        FROM clock CROSS JOIN unnest($3::text[], $4::text[], $5::text[], $6::text::integer[], $7::bytea[],
            $8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::integer[],
            $13::text[], $14::text[], $15::text::bigint[])
            AS given (id, task, queue, rank, call, run_after_ms, run_in_ms, expires_ms, expires_in_ms, age,
                      unique_key, unique_until, period_ms)
    ) AS numbered
    WHERE $2::text IS NULL OR (SELECT queues FROM windlass.meta WHERE one = 1) = $2::text
    ON CONFLICT (id) DO NOTHING
    RETURNING queue, task, state
), counted AS (
    INSERT INTO windlass.deltas (kind, name, part, number)
    SELECT 'jobs', queue, state, count(*) FROM stored GROUP BY queue, state
    UNION ALL
    SELECT 'enqueued', split_part(queue, '+', 1), task, count(*) FROM stored GROUP BY split_part(queue, '+', 1), task
)
SELECT queues FROM windlass.meta WHERE one = 1

-- name: drop_repeated
-- Remove jobs that this transaction has just stored although they succeeded before: the statement that stored them may
-- not have seen that.
WITH dropped AS (
    DELETE FROM windlass.jobs WHERE id = ANY(ARRAY(SELECT id FROM windlass.ended WHERE id = ANY($1::text[])))
    RETURNING queue, task, state
)
INSERT INTO windlass.deltas (kind, name, part, number)
SELECT 'jobs', queue, state, -count(*) FROM dropped GROUP BY queue, state
UNION ALL
SELECT 'enqueued', split_part(queue, '+', 1), task, -count(*) FROM dropped GROUP BY split_part(queue, '+', 1), task

-- name: look_now
-- What `look` returns, at the time of the server; and how many dead rows the table of jobs has, by its statistics.
SELECT EXISTS (SELECT 1 FROM windlass.sessions WHERE gone = 0 AND expires_ms <= now_ms)
       OR EXISTS (SELECT 1 FROM windlass.sessions WHERE gone = 1),
       (SELECT due_ms FROM windlass.jobs WHERE due_ms IS NOT NULL ORDER BY due_ms, row LIMIT 1),
       EXISTS (SELECT 1 FROM windlass.jobs WHERE suspect = 1 AND state = 'ready' AND hold IS NULL),
       pg_stat_get_dead_tuples('windlass.jobs'::regclass), now_ms
FROM (
    SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
                ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END AS now_ms
) AS clock

-- name: claim_line
-- Lease the next jobs of one line ($5), at most a number ($6) and a size in bytes ($7). Takes none if one of the next jobs
-- has expired. To skip dead rows, starts at a rank ($11) and a place ($12), and at the first job of a lower rank.
-- The five last columns are the same for each job: how many jobs were found, how many lines have jobs, and three
-- NULLs, where `claim_lines` has the heads of lines.
WITH clock AS MATERIALIZED (
    SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
                ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END AS now_ms
),
-- A row if the claim may take jobs: the settings of queues are still these ($2); workers have called lately ($9); the session
-- ($3), which must be locked, is known and alive, and its nonce ($4) new; no job is due, and no session is silent;
-- and, if this is asked ($10), no other line has jobs.
may AS MATERIALIZED (
    SELECT now_ms FROM clock CROSS JOIN windlass.meta
    WHERE one = 1 AND queues = $2::text AND now_ms - last_seen_ms BETWEEN 0 AND $9::bigint
          AND NOT ($10::boolean AND (
              EXISTS (SELECT 1 FROM windlass.jobs WHERE state = 'ready' AND hold IS NULL AND queue < $5)
              OR EXISTS (SELECT 1 FROM windlass.jobs WHERE state = 'ready' AND hold IS NULL AND queue > $5)))
          AND EXISTS (SELECT 1 FROM windlass.sessions WHERE session = $3 AND gone + 0 = 0 AND last_nonce < $4)
          AND coalesce((SELECT due_ms FROM windlass.jobs WHERE due_ms IS NOT NULL ORDER BY due_ms, row LIMIT 1) > now_ms, true)
          AND coalesce((SELECT expires_ms FROM windlass.sessions WHERE gone = 0 ORDER BY expires_ms LIMIT 1) > now_ms, true)
          AND NOT EXISTS (SELECT 1 FROM windlass.sessions WHERE gone = 1)
), next AS MATERIALIZED (
    SELECT found.row, found.rank, found.place, found.expires_ms, octet_length(found.call) AS size
    FROM may CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT * FROM windlass.jobs
            WHERE state = 'ready' AND hold IS NULL AND queue = $5 AND suspect = 0 AND rank < $11::integer
            ORDER BY rank, place LIMIT $6::bigint FOR UPDATE SKIP LOCKED
        ) AS higher
        UNION ALL
        SELECT * FROM (
            SELECT * FROM windlass.jobs
            WHERE state = 'ready' AND hold IS NULL AND queue = $5 AND suspect = 0
                  AND (rank, place) >= ($11::integer, $12::bigint)
            ORDER BY rank, place LIMIT $6::bigint FOR UPDATE SKIP LOCKED
        ) AS others
        LIMIT $6::bigint
    ) AS found
), fitting AS MATERIALIZED (
    SELECT row FROM (
        SELECT row, sum(size) OVER (ORDER BY rank, place) AS total, row_number() OVER (ORDER BY rank, place) AS number
        FROM next
    ) AS sized
    WHERE (total <= $7::bigint OR number = 1)
          AND NOT EXISTS (SELECT 1 FROM next CROSS JOIN clock WHERE expires_ms <= now_ms)
), taken AS (
    UPDATE windlass.jobs
    SET state = 'running', session = $3, token = $4, started_ms = now_ms,
        attempt = attempt + 1, starts = starts + 1, progress = NULL, held_because = NULL
    FROM fitting CROSS JOIN clock WHERE jobs.row = ANY(ARRAY[fitting.row])
    RETURNING rank, place, jobs.row, id, queue, task, attempt, starts, crashes, losses, interruptions, snoozes, strays,
              created_ms, suspect, age - rank, call, coalesce(ready_ms, created_ms) - started_ms
), noted AS (
    UPDATE windlass.sessions SET expires_ms = now_ms + $8::bigint, last_nonce = $4
    FROM clock WHERE session = $3 AND EXISTS (SELECT 1 FROM taken)
), counted AS (
    INSERT INTO windlass.deltas (kind, name, part, number)
    SELECT 'jobs', $5, unnest(ARRAY['ready', 'running']), unnest(ARRAY[-number, number])
    FROM (SELECT count(*) AS number FROM taken) AS numbers WHERE number > 0
)
SELECT taken.*, (SELECT count(*) FROM next), 1, NULL, NULL, NULL FROM taken

-- name: claim_lines
-- The same for several lines ($5): these in turn, or if there are none, every line without labels whose queue is not
-- paused ($10), in the order of rank and place. In some lines ($11, sorted) starts at a remembered rank ($12) and
-- place ($13).
--
-- For every line, first counts without locks how many of the next jobs each line has, then takes that number from each.
-- So claims at the same time keep the order, but for the jobs that they take from each other. If a line has fewer jobs
-- by then, up to ten lines that have none of the next jobs fill up.
--
-- The five last columns: how many jobs were found, how many lines have jobs, and, in the row of the first job and if
-- this is asked ($15), the heads of the lines that were read as a whole: arrays of lines, ranks and places.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
                ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END AS now_ms
),
-- A row if the claim may take jobs: the settings of queues are still these ($2); workers have called lately ($9); the session
-- ($3), which must be locked, is known and alive, and its nonce ($4) new; no job is due, and no session is silent.
may AS MATERIALIZED (
    SELECT now_ms FROM clock CROSS JOIN windlass.meta
    WHERE one = 1 AND queues = $2::text AND now_ms - last_seen_ms BETWEEN 0 AND $9::bigint
          AND EXISTS (SELECT 1 FROM windlass.sessions WHERE session = $3 AND gone + 0 = 0 AND last_nonce < $4)
          AND coalesce((SELECT due_ms FROM windlass.jobs WHERE due_ms IS NOT NULL ORDER BY due_ms, row LIMIT 1) > now_ms, true)
          AND coalesce((SELECT expires_ms FROM windlass.sessions WHERE gone = 0 ORDER BY expires_ms LIMIT 1) > now_ms, true)
          AND NOT EXISTS (SELECT 1 FROM windlass.sessions WHERE gone = 1)
), remembered AS MATERIALIZED (
    SELECT line COLLATE "C" AS line, rank, place
    FROM unnest($11::text[], $12::text::integer[], $13::text::bigint[]) AS known (line, rank, place)
), known AS MATERIALIZED (
    SELECT $11::text[] AS lines, $12::text::integer[] AS ranks, $13::text::bigint[] AS places
),
-- If no lines were given: all lines with jobs, one seek each, with the first job of each. A remembered line is not read
-- here, since its dead rows come first: it counts as a line with jobs, and `heads` looks for its first job. The last
-- column counts the remembered lines that were passed.
walked (line, rank, place, suspect, is_known, passed) AS (
    SELECT '' COLLATE "C", 0, 0::bigint, 1::smallint, false, 0 FROM may WHERE cardinality($5::text[]) = 0
    UNION ALL
    SELECT next.* FROM walked CROSS JOIN known CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT queue, rank, place, suspect, false, passed FROM windlass.jobs
            WHERE state = 'ready' AND hold IS NULL AND queue > walked.line
                  AND queue < coalesce(lines[passed + 1], $14::text) COLLATE "C"
            ORDER BY queue, suspect, rank, place LIMIT 1
        ) AS unknown
        UNION ALL
        SELECT lines[passed + 1], ranks[passed + 1], places[passed + 1], 0::smallint, true, passed + 1
        WHERE passed < cardinality(lines)
        LIMIT 1
    ) AS next
),
-- The lines with the smallest first jobs, in that order: as many as jobs are wanted, and ten more to fill up.
heads AS MATERIALIZED (
    SELECT line, head.rank, head.place, is_known, row_number() OVER (ORDER BY head.rank, head.place) AS nth
    FROM walked CROSS JOIN LATERAL (
        SELECT walked.rank, walked.place WHERE NOT is_known
        UNION ALL
        SELECT * FROM (
            SELECT rank, place FROM windlass.jobs
            WHERE is_known AND state = 'ready' AND hold IS NULL AND queue = walked.line AND suspect = 0
                  AND rank < walked.rank
            ORDER BY rank, place LIMIT 1
        ) AS higher
        UNION ALL
        SELECT * FROM (
            SELECT rank, place FROM windlass.jobs
            WHERE is_known AND state = 'ready' AND hold IS NULL AND queue = walked.line AND suspect = 0
                  AND (rank, place) >= (walked.rank, walked.place)
            ORDER BY rank, place LIMIT 1
        ) AS others
        LIMIT 1
    ) AS head
    WHERE suspect = 0 AND strpos(line, '+') = 0 AND line <> ALL($10::text[])
    ORDER BY head.rank, head.place LIMIT $6::bigint + 10
),
-- The next jobs of these lines up to the head of the last one, which bounds what has to be read; and the lines to fill up.
fronts AS (
    SELECT line, heads.rank, heads.place, row_number() OVER (ORDER BY front.rank, front.place) AS nth
    FROM heads CROSS JOIN LATERAL (
        SELECT rank, place FROM windlass.jobs
        WHERE state = 'ready' AND hold IS NULL AND queue = heads.line AND suspect = 0
              AND (rank, place) >= (heads.rank, heads.place)
              AND (rank, place) <= (coalesce((SELECT rank FROM heads WHERE nth = $6::bigint), 2147483647),
                                    coalesce((SELECT place FROM heads WHERE nth = $6::bigint), 9223372036854775807))
        ORDER BY rank, place LIMIT $6::bigint - heads.nth + 1
    ) AS front
    WHERE heads.nth <= $6::bigint
    UNION ALL
    SELECT line, rank, place, nth + 1000000 FROM heads WHERE nth > $6::bigint
),
-- How many jobs to take from each line, and from where: the given lines, or the counted ones.
chosen AS MATERIALIZED (
    SELECT given.line, $6::bigint AS most, tier, coalesce(rank, -2147483648) AS rank,
           coalesce(place, -9223372036854775808) AS place
    FROM may CROSS JOIN unnest($5::text[]) WITH ORDINALITY AS given (line, tier)
    LEFT JOIN remembered ON remembered.line = given.line COLLATE "C"
    UNION ALL
    SELECT line, CASE WHEN most = 0 THEN $6::bigint ELSE most END, 0, rank, place FROM (
        SELECT line, rank, place, count(*) FILTER (WHERE nth <= $6::bigint) AS most FROM fronts GROUP BY line, rank, place
        ORDER BY min(nth)
    ) AS counted
),
-- The jobs that no other transaction has locked, line by line until there are enough. Of given lines also the jobs of
-- higher priority than the remembered rank, which `heads` has found already for the counted ones.
next AS MATERIALIZED (
    SELECT found.row, tier, found.rank, found.place, found.expires_ms, octet_length(found.call) AS size
    FROM chosen CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT * FROM windlass.jobs
            WHERE chosen.tier > 0 AND state = 'ready' AND hold IS NULL AND queue = chosen.line AND suspect = 0
                  AND rank < chosen.rank
            ORDER BY rank, place LIMIT chosen.most FOR UPDATE SKIP LOCKED
        ) AS higher
        UNION ALL
        SELECT * FROM (
            SELECT * FROM windlass.jobs
            WHERE state = 'ready' AND hold IS NULL AND queue = chosen.line AND suspect = 0
                  AND (rank, place) >= (chosen.rank, chosen.place)
            ORDER BY rank, place LIMIT chosen.most FOR UPDATE SKIP LOCKED
        ) AS others
        LIMIT chosen.most
    ) AS found
    LIMIT $6::bigint
), fitting AS MATERIALIZED (
    SELECT row FROM (
        SELECT row, sum(size) OVER in_order AS total, row_number() OVER in_order AS number
        FROM next WINDOW in_order AS (ORDER BY tier, rank, place)
    ) AS sized
    WHERE (total <= $7::bigint OR number = 1)
          AND NOT EXISTS (SELECT 1 FROM next CROSS JOIN clock WHERE expires_ms <= now_ms)
), taken AS (
    UPDATE windlass.jobs
    SET state = 'running', session = $3, token = $4, started_ms = now_ms,
        attempt = attempt + 1, starts = starts + 1, progress = NULL, held_because = NULL
    FROM fitting CROSS JOIN clock WHERE jobs.row = ANY(ARRAY[fitting.row])
    RETURNING rank, place, jobs.row, id, queue, task, attempt, starts, crashes, losses, interruptions, snoozes, strays,
              created_ms, suspect, age - rank, call, coalesce(ready_ms, created_ms) - started_ms
), noted AS (
    UPDATE windlass.sessions SET expires_ms = now_ms + $8::bigint, last_nonce = $4
    FROM clock WHERE session = $3 AND EXISTS (SELECT 1 FROM taken)
), counted AS (
    INSERT INTO windlass.deltas (kind, name, part, number)
    SELECT 'jobs', queue, unnest(ARRAY['ready', 'running']), unnest(ARRAY[-number, number])
    FROM (SELECT queue, count(*) AS number FROM taken GROUP BY queue) AS numbers
)
SELECT taken.*, (SELECT count(*) FROM next), (SELECT count(*) FROM walked WHERE line <> ''), firsts.* FROM taken
LEFT JOIN LATERAL (
    SELECT array_agg(line), array_agg(rank), array_agg(place)
    FROM walked WHERE $15::boolean AND line <> '' AND suspect = 0 AND NOT is_known
) AS firsts ON taken.place = (SELECT min(place) FROM taken)

-- name: note_seen
-- Store a sign of life of a worker if the last one is older than some time; do not wait for others that do.
UPDATE windlass.meta SET last_seen_ms = now_ms
FROM (
    SELECT CASE WHEN starts_with($1::text, '=') THEN substr($1::text, 2)::bigint
                ELSE (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::text::bigint END AS now_ms
) AS clock
WHERE one = (SELECT one FROM windlass.meta
             WHERE one = 1 AND now_ms - last_seen_ms BETWEEN $2::bigint AND 10000 FOR UPDATE SKIP LOCKED)
