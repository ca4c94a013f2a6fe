-- Some jobs that are ready in one line, whoever they are.
SELECT row, id, queue, state FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold = 'none' AND queue = ? LIMIT ?
