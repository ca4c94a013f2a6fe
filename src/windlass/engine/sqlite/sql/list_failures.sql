-- The history of one job, oldest first.
SELECT at_ms, event, attempt, session, started_ms, error FROM failures WHERE job = ? ORDER BY number
