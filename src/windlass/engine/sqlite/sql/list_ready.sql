-- The next jobs of one queue in the order in which they should start.
SELECT rank, place, row, id, queue, expires_ms
FROM jobs
WHERE state = 'ready' AND hold = 'none' AND queue = ? AND suspect = ?
ORDER BY rank, place
LIMIT ?
