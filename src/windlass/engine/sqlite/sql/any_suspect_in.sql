-- Whether jobs wait in one queue that must run alone.
SELECT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_suspect
    WHERE suspect = 1 AND state = 'ready' AND hold = 'none' AND queue = ?)
