-- When the job was created that is next in line in a queue.
SELECT created_ms FROM jobs
WHERE state = 'ready' AND hold = 'none' AND queue = ? AND suspect = 0 ORDER BY rank, place LIMIT 1
