-- Lease ready jobs, given as an array of rows, to a session under a token; the attempt is counted here.
UPDATE jobs
SET state = 'running', session = ?1, token = ?2, started_ms = ?3,
    attempt = attempt + 1, starts = starts + 1, progress = NULL
WHERE row IN (SELECT value FROM json_each(?4))
