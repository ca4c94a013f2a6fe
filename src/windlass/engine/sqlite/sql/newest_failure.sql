-- The newest entry in the history of one job.
SELECT at_ms, event, attempt, session, started_ms, error FROM failures WHERE job = ? ORDER BY number DESC LIMIT 1
