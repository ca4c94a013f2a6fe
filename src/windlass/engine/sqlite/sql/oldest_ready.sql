-- When the job that is next in line in a queue took its place.
SELECT ready_ms FROM jobs
WHERE state = 'ready' AND hold = 'none' AND queue = ? AND suspect = 0 ORDER BY rank, place LIMIT 1
