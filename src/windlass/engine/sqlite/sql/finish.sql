-- Outcomes of claims.

-- name: count_claims
-- How many jobs of each queue are held under the token that is given with them, in an array that begins with both.
SELECT jobs.queue, count(*)
FROM json_each(?1) AS given JOIN jobs ON jobs.id = given.value ->> 0 AND jobs.token = given.value ->> 1
GROUP BY jobs.queue

-- name: find_claim
-- How the last claim of a job was ended by its own holder.
SELECT last_token, last_event FROM jobs WHERE id = ?

-- name: note_progress
-- Store the progress of a running job, if the token is current.
UPDATE jobs SET progress = ?3 WHERE id = ?1 AND token = ?2 RETURNING row

-- name: note_why_held
-- Store why a job is held, or that it is not any more.
UPDATE jobs SET held_because = ?2 WHERE row = ?1

-- name: succeed_jobs
-- End claims with success where the token is the current one. They are given as an array of id, token, next visit of
-- the purge, end of the result, and where the result begins in the value of all results and how long it is, if there
-- is one.
UPDATE jobs
SET state = 'succeeded', reason = NULL, suspect = 0, cancel_requested = 0, token = NULL,
    last_token = given.token, last_event = 'succeed', finished_ms = ?2, keep_until_ms = given.keep_until_ms,
    result_until_ms = given.result_until_ms, result = substr(?3, given.begin, given.size)
FROM (
    SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS keep_until_ms, value ->> 3 AS result_until_ms,
           value ->> 4 AS begin, value ->> 5 AS size
    FROM json_each(?1)
) AS given
WHERE jobs.id = given.id AND jobs.token = given.token
