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
