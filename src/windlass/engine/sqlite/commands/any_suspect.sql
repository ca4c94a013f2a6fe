-- Whether jobs wait that must run alone. The index is named because the planner would rather walk
-- through everything that is ready.
SELECT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_suspect
    WHERE suspect = 1 AND state = 'ready' AND hold = 'none')
