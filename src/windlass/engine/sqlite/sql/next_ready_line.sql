-- The next line between two names that has something ready.
SELECT queue FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold = 'none' AND queue > ? AND queue < ? ORDER BY queue LIMIT 1
