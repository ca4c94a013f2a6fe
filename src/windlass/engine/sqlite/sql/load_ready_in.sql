-- Some ready jobs of one line, in any order.
SELECT row, id, queue, state FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND hold = 'none' AND queue = ? LIMIT ?
