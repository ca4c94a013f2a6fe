-- Append to the history of a job.
INSERT INTO failures (job, number, at_ms, event, attempt, session, error, started_ms)
SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6, (SELECT started_ms FROM jobs WHERE row = ?1)
FROM failures WHERE job = ?1
