-- The next line between two names with ready jobs that need not run alone.
SELECT queue FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold = 'none' AND suspect = 0 AND queue > ? AND queue < ? ORDER BY queue LIMIT 1
