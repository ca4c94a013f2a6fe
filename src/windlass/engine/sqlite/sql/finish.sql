-- Finish claims with their outcomes.

-- name: count_claims
-- The number of claims per queue with a current token. The array has id and token first in each
-- item.
SELECT jobs.queue, count(*)
FROM json_each(?1) AS given JOIN jobs ON jobs.id = given.value ->> 0 AND jobs.token = given.value ->> 1
GROUP BY jobs.queue

-- name: current_claims
-- The ids and tokens of the claims with a current token, from the same array.
SELECT jobs.id, jobs.token
FROM json_each(?1) AS given JOIN jobs ON jobs.id = given.value ->> 0 AND jobs.token = given.value ->> 1

-- name: find_claim
-- How the holder ended the last claim of a job.
SELECT last_end FROM jobs WHERE id = ?

-- name: note_progress
-- Store the progress of a running job, if the token is current.
UPDATE jobs SET progress = ?3 WHERE id = ?1 AND token = ?2 RETURNING row

-- name: note_why_held
-- Store why a job is held, or that it is not any more.
UPDATE jobs SET held_because = ?2 WHERE row = ?1

-- name: succeed_jobs
-- End claims with success if their token is current. Each item of the array has id, token, next
-- visit of the purge, mark of this end, and, if there is a result, its start and size in the value of
-- all results.
UPDATE jobs
SET state = 'succeeded', reason = NULL, suspect = 0, cancel_requested = 0, token = NULL,
    last_end = given.last_end, finished_ms = ?2, keep_until_ms = given.keep_until_ms, result = substr(?3, given.begin, given.size)
FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS keep_until_ms, value ->> 3 AS last_end,
           value ->> 4 AS begin, value ->> 5 AS size
    FROM json_each(?1)
) AS given
WHERE jobs.id = given.id AND jobs.token = given.token
