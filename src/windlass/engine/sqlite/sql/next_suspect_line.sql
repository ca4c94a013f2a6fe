-- The next line between two names with ready jobs that must run alone. The index is named because
-- the planner would rather scan all ready jobs.
SELECT queue FROM jobs INDEXED BY jobs_suspect
WHERE suspect = 1 AND state = 'ready' AND hold = 'none' AND queue > ? AND queue < ? ORDER BY queue LIMIT 1
